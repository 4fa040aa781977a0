//! Put down: a call is on record before it reaches its tool, or it is not made.

use haft_core::result::{ToolError, ToolErrorKind};

use crate::chronicle::{Chronicle, Haste, Unrecorded};
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

impl From<Unrecorded> for ToolError {
    fn from(unrecorded: Unrecorded) -> Self {
        let message = format!("the call was not made: {unrecorded}");
        ToolError::new(ToolErrorKind::Unavailable, message)
    }
}
