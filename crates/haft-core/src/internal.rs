//! The tools that belong to a run itself: what a model is shown of them, and how what it sends is read.
//!
//! None of them touches the world, so the run answers them without asking anybody: the [`final_report`], the
//! [`task_status`], the [`batch`] of other calls, and the [`handoff`] to another agent.

pub mod batch;
pub mod final_report;
pub mod handoff;
pub mod report_format;
pub mod task_status;

use serde::de::DeserializeOwned;

use crate::arguments::{ArgumentLimits, Arguments};

/// Reads arguments as a type of one of these tools; the error is written for the model.
fn read<T: DeserializeOwned>(arguments: &Arguments) -> Result<T, String> {
    let parsed = arguments.parse(&ArgumentLimits::default()).map_err(|error| error.to_string())?;
    if parsed.cut_off() {
        return Err("the arguments end in the middle; send them again, shorter".into());
    }
    T::deserialize(parsed.object()).map_err(|error| format!("the arguments do not fit: {error}"))
}
