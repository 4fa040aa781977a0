//! A run as it is stored: what it says, by which rules it goes on, and where it stands.
//!
//! The types here and below are the stored form and nothing else; they change only together with [`VERSION`]. What can be
//! had again is not in it: the model, the system text and the tools are given anew when the run goes on.

mod plan;
mod state;
mod told;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AgentRun, RunPlan};
use crate::conversation::{Body, Conversation, ConversationError};
use crate::model_request::ModelRequest;
use crate::stored::{StoredError, StoredMessage};

pub use told::StoredTold;

/// The form that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// The stored form of an [`AgentRun`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSnapshot {
    version: u32,
    plan: plan::StoredPlan,
    state: state::StoredState,
    conversation: Vec<StoredMessage>,
}

/// What is looked at before all else.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Why a snapshot cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotError {
    NotJson {
        problem: String,
    },
    /// Written by another version of this program.
    UnknownVersion {
        found: u32,
    },
    /// A word that stands for nothing.
    UnknownWord {
        what: &'static str,
        found: String,
    },
    /// Two things in it contradict each other.
    Broken {
        problem: String,
    },
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson { problem } => write!(f, "the stored run cannot be read: {problem}"),
            Self::UnknownVersion { found } => write!(
                f,
                "the stored run has version {found}, this program reads version {VERSION}; go on with the program that wrote it"
            ),
            Self::UnknownWord { what, found } => {
                write!(f, "the stored run names the {what} `{found}`, which there is not")
            }
            Self::Broken { problem } => write!(f, "the stored run is damaged: {problem}"),
        }
    }
}

impl std::error::Error for SnapshotError {}

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
    pub fn to_json(&self) -> Result<String, SnapshotError> {
        serde_json::to_string(self).map_err(|error| SnapshotError::NotJson { problem: error.to_string() })
    }

    /// Reads what [`to_json`](Self::to_json) wrote. Another version is refused before anything else is looked at.
    pub fn from_json(text: &str) -> Result<Self, SnapshotError> {
        let not_json = |error: serde_json::Error| SnapshotError::NotJson { problem: error.to_string() };
        let Versioned { version } = serde_json::from_str(text).map_err(not_json)?;
        if version != VERSION {
            return Err(SnapshotError::UnknownVersion { found: version });
        }
        serde_json::from_str(text).map_err(not_json)
    }

    /// What was asked first, where that is text.
    pub fn request(&self) -> Option<String> {
        let message = self.conversation.first()?.clone().into_message().ok()?;
        let texts = message.parts.iter().filter_map(|part| match &part.body {
            Body::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        Some(texts.collect())
    }

    /// The rules it goes on by.
    pub fn plan(&self) -> Result<RunPlan, SnapshotError> {
        self.plan.clone().into_plan()
    }

    /// Goes on. Of the request, everything is taken but its conversation.
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
    /// The calls that are waited for must be the calls that were said.
    fn check_calls(&self) -> Result<(), SnapshotError> {
        let said = self.conversation().open_calls().map(|call| &call.id);
        let waited = self.state.phase.turn_calls();
        if said.eq(waited) {
            return Ok(());
        }
        Err(SnapshotError::Broken { problem: "it waits for other calls than were made".into() })
    }
}

#[cfg(test)]
mod tests;
