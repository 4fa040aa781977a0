//! Untrusted text that a run has read: the output of MCP servers, REST services, and commands with network access.

use std::sync::{Arc, OnceLock};

/// Remembers the first source of untrusted text in a run. Clones of the run's context share it: if a sub-agent reads a
/// web page, the agent that reads its answer is marked too.
#[derive(Debug, Default)]
pub struct UntrustedReads {
    first: OnceLock<Arc<str>>,
}

impl UntrustedReads {
    /// Records a source. Only the first source is kept.
    pub fn record(&self, source: &str) {
        self.first.get_or_init(|| source.into());
    }

    /// Returns the first source, or `None` if the run has read no untrusted text.
    pub fn first_source(&self) -> Option<Arc<str>> {
        self.first.get().cloned()
    }
}
