//! Journal: records the call before it reaches its tool. If recording fails, the tool does not run.

use haft_core::result::ToolError;
use haft_core::run::chronicle::{Chronicle, Haste};

use crate::record::CallRecord;
use crate::stage::Deadline;

pub(crate) async fn put_down(
    record: &CallRecord,
    chronicle: Option<&dyn Chronicle>,
    haste: Haste,
    deadline: &Deadline<'_>,
) -> Result<(), ToolError> {
    let Some(chronicle) = chronicle else { return Ok(()) };
    let kept = async {
        chronicle.begins(&record.call, record.operation())?;
        chronicle.secure(haste).await
    };
    Ok(deadline.wait(kept, "being put on record").await??)
}
