//! The lines of a session's journal. They change only together with [`VERSION`].

use haft_core::place::SessionId;
use haft_core::principal::Principal;
use haft_core::run::snapshot::{RunSnapshot, StoredInput};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::accounting::{ModelRecord, Record, now_ms};

/// The version that is written.
pub const VERSION: u32 = 2;

/// The oldest version that is read. Version 1 stores the command line of the run instead of its spec.
pub const VERSION_OLDEST: u32 = 1;

/// How much of a request names its session.
const TITLE_CHARS_MAX: usize = 80;

/// One line. Every line but the first says when it was written, in milliseconds since 1970.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// The first line.
    Session(Box<Opened>),
    /// Another process goes on.
    Resumed { at_ms: u64 },
    /// An input of the run. Both names on disk are older than the type's.
    #[serde(rename = "told")]
    Input {
        at_ms: u64,
        #[serde(rename = "told")]
        input: StoredInput,
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
    Note { at_ms: u64, turn: u32, note: String },
    /// The run ended, with this reason.
    Finished { at_ms: u64, reason: String, turns: u32 },
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
    /// The spec of the run, for the code that started it; absent for runs that work for another.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub spec: Value,
    /// The tenant and subject that the run works for; version 1 knew only the local user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<(String, String)>,
    /// The command line of the run, in version 1.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub order: Value,
    /// The run before its first step.
    pub run: RunSnapshot,
}

impl Opened {
    pub fn new(id: SessionId, request: &str, spec: Value, run: RunSnapshot) -> Self {
        Self {
            version: VERSION,
            id: id.to_string(),
            at_ms: now_ms(),
            title: title(request),
            agent: String::new(),
            model: None,
            origin: None,
            spec,
            principal: None,
            order: Value::Null,
            run,
        }
    }

    /// True when the run works for this principal.
    pub fn belongs_to(&self, principal: &Principal) -> bool {
        match &self.principal {
            Some((tenant, subject)) => tenant == principal.tenant() && subject == principal.subject(),
            None => (principal.tenant(), principal.subject()) == ("local", "local"),
        }
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
