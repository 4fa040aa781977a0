//! Checks that every agent can be read and that its references form no cycle.

use std::fmt::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::super::agents::problem;
use haft_config::agents::loader::{AgentLoadError, AgentLoader};

/// The check result of one agent file.
pub(super) struct AgentFinding {
    file: PathBuf,
    /// The reason why the agent cannot be run.
    problem: Option<String>,
}

impl AgentFinding {
    pub(super) fn is_good(&self) -> bool {
        self.problem.is_none()
    }

    pub(super) fn as_json(&self) -> Value {
        json!({ "file": self.file.to_string_lossy(), "usable": self.is_good(), "reason": self.problem })
    }

    pub(super) fn write_to(&self, text: &mut String) {
        let file = self.file.display();
        let _ = match &self.problem {
            None => writeln!(text, "agent      {file}: can be run"),
            Some(problem) => {
                writeln!(text, "agent      {file}: {}", problem.replace('\n', "\n           "))
            }
        };
    }
}

/// Checks every agent of the loader. An agent that is not trusted yet is not an error.
pub(super) fn check_all(loader: &AgentLoader) -> Vec<AgentFinding> {
    let all =
        loader.all().into_iter().filter(|(_, read)| !matches!(read, Err(AgentLoadError::Untrusted { .. })));
    all.map(|(file, read)| AgentFinding { problem: problem(&read, loader, None), file }).collect()
}
