//! The tools that belong to a run itself: their definitions for the model, and the parsers of their arguments.
//!
//! These tools have no side effects outside the run, so the run answers their calls itself, without a provider: the
//! [`final_report`], the [`task_status`], the [`batch`] of other calls, and the [`handoff`] to another agent. The run
//! also unwraps the calls of [`tool_search`]; the engine carries out the search itself.

pub mod batch;
pub mod final_report;
pub mod handoff;
pub mod report_format;
pub mod task_status;
pub mod tool_search;

use batch::BATCH;
use final_report::FINAL_REPORT;
use handoff::HANDOFF;
use serde::de::DeserializeOwned;
use task_status::TASK_STATUS;

use crate::arguments::{ArgumentLimits, RawArguments};

/// Returns true for the name of a tool whose calls the run answers itself, without a provider.
pub fn is_own_tool(name: &str) -> bool {
    [FINAL_REPORT, TASK_STATUS, HANDOFF, BATCH].contains(&name)
}

/// Deserializes the arguments of a tool of this module. The error text is for the model.
fn read<T: DeserializeOwned>(arguments: &RawArguments) -> Result<T, String> {
    let parsed = arguments.parse(&ArgumentLimits::default()).map_err(|error| error.to_string())?;
    if parsed.cut_off() {
        return Err("the arguments are cut off; send shorter arguments".into());
    }
    T::deserialize(parsed.object())
        .map_err(|error| format!("the arguments do not match the schema of the tool: {error}"))
}
