//! Warnings of a running server for its operator.

use std::fmt;
use std::sync::Arc;

/// Receives the warnings of a running server. This crate does not write to a terminal, so the program that starts the
/// server decides where the warnings go. The default discards them.
#[derive(Clone)]
pub struct OperatorLog(Arc<dyn Fn(&str) + Send + Sync>);

impl OperatorLog {
    /// Passes each warning to `write`. A warning may quote text of a client. `write` must not wait, because requests
    /// wait for it.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    pub(crate) fn warn(&self, message: &str) {
        (self.0)(message);
    }
}

impl Default for OperatorLog {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for OperatorLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperatorLog")
    }
}
