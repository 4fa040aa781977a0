//! The stored form of a run: its conversation, its settings and its state.
//!
//! The types in this module and its submodules exist only for storage. Any change to them needs a new [`VERSION`]. A
//! snapshot does not contain the model, the system text and the tools: the caller must supply them again to resume.

mod compaction;
mod input;
mod plan;
mod state;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AgentRun, RunPlan};
use crate::conversation::{Conversation, ConversationError, PartBody};
use crate::model_request::ModelRequest;
use crate::stored::{StoredError, StoredMessage};

pub use compaction::StoredCompaction;
pub use input::StoredInput;

/// The format version that this program writes. It reads no other version.
pub const VERSION: u32 = 1;

/// The stored form of an [`AgentRun`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSnapshot {
    version: u32,
    plan: plan::StoredPlan,
    state: state::StoredState,
    conversation: Vec<StoredMessage>,
}

/// The version field, which `from_json` reads first.
#[derive(Deserialize)]
struct SnapshotVersion {
    version: u32,
}

/// The reason why a snapshot cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The text is not JSON, or a field is missing or has the wrong type.
    #[error("haft cannot read the stored run: {problem}")]
    NotJson {
        /// The error message of the JSON parser.
        problem: String,
    },
    /// A different version of this program wrote the snapshot.
    #[error(
        "the stored run has version {found}; this version of haft reads {VERSION}. Resume the run with the version of haft that wrote it"
    )]
    UnknownVersion {
        /// The version in the snapshot.
        found: u32,
    },
    /// The name of an enum value is unknown.
    #[error("the stored run has an unknown {what} `{found}`")]
    UnknownWord {
        /// The kind of value, such as `model error`.
        what: &'static str,
        /// The unknown name in the snapshot.
        found: String,
    },
    /// Two parts of the snapshot contradict each other.
    #[error("the stored run is damaged: {problem}")]
    Broken {
        /// A description of the parts that contradict each other.
        problem: String,
    },
}

impl From<ConversationError> for SnapshotError {
    fn from(error: ConversationError) -> Self {
        Self::Broken { problem: error.to_string() }
    }
}

impl From<StoredError> for SnapshotError {
    fn from(error: StoredError) -> Self {
        match error {
            StoredError::UnknownWord { what, found } => Self::UnknownWord { what, found },
            StoredError::Broken { problem } => Self::Broken { problem },
        }
    }
}

impl AgentRun {
    /// Returns the current state for storage. It is valid between any two steps.
    pub fn snapshot(&self) -> RunSnapshot {
        RunSnapshot {
            version: VERSION,
            plan: plan::StoredPlan::of(&self.plan),
            state: state::StoredState::of(&self.state),
            conversation: self.conversation().messages().iter().map(|one| StoredMessage::of(one)).collect(),
        }
    }
}

impl RunSnapshot {
    /// Returns the snapshot as compact JSON.
    pub fn to_json(&self) -> Result<String, SnapshotError> {
        serde_json::to_string(self).map_err(|error| SnapshotError::NotJson { problem: error.to_string() })
    }

    /// Parses the output of [`to_json`](Self::to_json). Rejects other versions before it parses the rest.
    pub fn from_json(text: &str) -> Result<Self, SnapshotError> {
        let not_json = |error: serde_json::Error| SnapshotError::NotJson { problem: error.to_string() };
        let SnapshotVersion { version } = serde_json::from_str(text).map_err(not_json)?;
        if version != VERSION {
            return Err(SnapshotError::UnknownVersion { found: version });
        }
        serde_json::from_str(text).map_err(not_json)
    }

    /// Returns the text of the first message.
    pub fn request(&self) -> Option<String> {
        let message = self.conversation.first()?.clone().into_message().ok()?;
        let texts = message.parts.iter().filter_map(|part| match &part.body {
            PartBody::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        Some(texts.collect())
    }

    /// Returns the settings of the stored run.
    pub fn plan(&self) -> Result<RunPlan, SnapshotError> {
        self.plan.clone().into_plan()
    }

    /// Resumes the run. Everything except the conversation comes from `request`.
    pub fn resume(self, mut request: ModelRequest) -> Result<AgentRun, SnapshotError> {
        let mut conversation = Conversation::default();
        for message in self.conversation {
            conversation.push(message.into_message()?)?;
        }
        request.conversation = Arc::new(conversation);
        let run = AgentRun::with_state(request, self.plan.into_plan()?, self.state.into_state()?);
        run.check_calls()?;
        Ok(run)
    }
}

impl AgentRun {
    /// Checks that the run waits for exactly the open calls of the conversation.
    fn check_calls(&self) -> Result<(), SnapshotError> {
        let open_calls = self.conversation().open_calls().map(|call| &call.id);
        let waited = self.state.phase.turn_calls();
        if open_calls.eq(waited) {
            return Ok(());
        }
        Err(SnapshotError::Broken {
            problem: "the calls that the run waits for are not the open calls of its conversation".into(),
        })
    }
}

#[cfg(test)]
mod tests;
