//! Journal: records the call before it reaches its tool. If recording fails, the tool does not run.

use haft_core::result::ToolError;
use haft_core::run::journal::{Durability, RunJournal};

use crate::call_record::CallRecord;
use crate::stage::Deadline;

pub(crate) async fn journal(
    record: &CallRecord,
    journal: Option<&dyn RunJournal>,
    durability: Durability,
    deadline: &Deadline<'_>,
) -> Result<(), ToolError> {
    let Some(journal) = journal else { return Ok(()) };
    let synced = async {
        journal.append_call(&record.call, record.operation())?;
        journal.sync(durability).await
    };
    Ok(deadline.wait(synced, "being written to the journal").await??)
}
