//! The untrusted text that a run has read: output of MCP servers, of REST services, and of commands with network.

use std::sync::{Arc, OnceLock};

/// Remembers the first source of untrusted text in a run. Clones of the context of a run share it, so that a sub-agent
/// that reads a web page also marks the agent that reads its answer.
#[derive(Debug, Default)]
pub struct UntrustedReads {
    first: OnceLock<Arc<str>>,
}

impl UntrustedReads {
    /// Records a source. Later sources change nothing.
    pub fn record(&self, source: &str) {
        self.first.get_or_init(|| source.into());
    }

    /// Returns the first source; `None` if the run has read no untrusted text.
    pub fn first_source(&self) -> Option<Arc<str>> {
        self.first.get().cloned()
    }
}
