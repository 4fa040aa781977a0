//! An error while setting up the sandbox, with the name of the stage in which it happened.

use std::fmt::Display;
use std::io;

/// An error, and the stage in which it happened. The reason is for the operator.
#[derive(Debug)]
pub(super) struct StageError {
    pub(super) stage: &'static str,
    pub(super) reason: String,
}

impl StageError {
    pub(super) fn new(stage: &'static str, reason: impl Display) -> Self {
        Self { stage, reason: reason.to_string() }
    }
}

/// Adds the name of a stage to an error.
pub(super) trait InStage<T> {
    fn stage(self, stage: &'static str, what: impl Display) -> Result<T, StageError>;
}

impl<T, E: Into<io::Error>> InStage<T> for Result<T, E> {
    fn stage(self, stage: &'static str, what: impl Display) -> Result<T, StageError> {
        self.map_err(|error| StageError::new(stage, format!("{what} failed: {}", error.into())))
    }
}
