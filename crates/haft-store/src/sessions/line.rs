//! The lines of a session's journal. They change only together with [`VERSION`].

use haft_core::place::SessionId;
use haft_core::run::snapshot::{RunSnapshot, StoredTold};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::accounting::{ModelRecord, Record, now_ms};

/// The form that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// How much of a request names its session.
const TITLE_CHARS_MAX: usize = 80;

/// One line. Every line but the first says when it was written, in milliseconds since 1970.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// The first line.
    Session(Box<Opened>),
    /// Another process goes on.
    Resumed {
        at_ms: u64,
    },
    Told {
        at_ms: u64,
        told: StoredTold,
    },
    /// A call is about to reach its tool.
    Begun {
        at_ms: u64,
        call: String,
        /// As it was written.
        tool: String,
        turn: u32,
        operation: u64,
    },
    /// What a call was and cost.
    Tool(Box<Record>),
    /// What an attempt at a model was and cost.
    Model(Box<ModelRecord>),
    /// Something the run decided.
    Note {
        at_ms: u64,
        turn: u32,
        note: String,
    },
    /// The run ended, with this reason.
    Finished {
        at_ms: u64,
        reason: String,
        turns: u32,
    },
}

/// How a session began.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Opened {
    pub version: u32,
    pub id: String,
    pub at_ms: u64,
    /// What was asked first, shortened.
    pub title: String,
    /// The agent that works in it.
    pub agent: String,
    /// The model that it asks first; whoever goes on does not choose again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The session in which the request was first made; nothing when it is this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// How whoever began it can put it together again; theirs alone to read.
    pub order: Value,
    /// The run before its first step.
    pub run: RunSnapshot,
}

impl Opened {
    pub fn new(id: SessionId, request: &str, order: Value, run: RunSnapshot) -> Self {
        let (id, title, agent) = (id.to_string(), title(request), String::new());
        Self { version: VERSION, id, at_ms: now_ms(), title, agent, model: None, origin: None, order, run }
    }

    /// Whether it is the work of this agent on this request.
    pub fn is_for(&self, request: &str, agent: &str) -> bool {
        self.title == title(request) && self.agent == agent
    }
}

fn title(request: &str) -> String {
    let first = request.trim().lines().next().unwrap_or_default();
    first.chars().take(TITLE_CHARS_MAX).collect()
}

/// What is looked at before all else.
#[derive(Debug, Deserialize)]
pub(super) struct Versioned {
    pub(super) version: Option<u32>,
}
