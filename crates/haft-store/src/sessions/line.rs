//! The lines of a session journal. A change to them requires a new [`VERSION`].
//!
//! A recording of a run contains the same lines. There, each line has the additional field `journal` with the session
//! id of its journal, because several runs share the file. Readers of a journal ignore that field.

use haft_core::event::Event;
use haft_core::position::{CallOperation, SessionId};
use haft_core::principal::Principal;
use haft_core::run::RunNote;
use haft_core::run::event::RunEvent;
use haft_core::run::input::RunInput;
use haft_core::run::snapshot::{RunSnapshot, StoredCompaction, StoredInput};
use haft_core::tool::ToolCall;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::accounting::{ModelRecord, ToolRecord, model_record, now_ms, record};

/// The version of the format that is written.
pub const VERSION: u32 = 2;

/// The oldest version that can be read. Version 1 stores the command line of the run instead of its spec.
pub const VERSION_OLDEST: u32 = 1;

/// The maximum number of characters of the session title, which is the beginning of the request.
const TITLE_CHARS_MAX: usize = 80;

/// One line. Every line except the first has the time of writing, in milliseconds since 1970.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SessionJournalLine {
    /// The first line, which describes the start of the session.
    Session(Box<SessionStart>),
    /// A process claims the journal and continues the session. Every line of a later claim has `epoch` as its last
    /// field. The claim with its epoch fences all earlier holders: see [`JournalLines`](super::JournalLines).
    Resumed {
        at_ms: u64,
        /// A random number that distinguishes two claims with the same epoch: the first of them is valid.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claim: Option<u64>,
    },
    /// An input of the run. The names in the file are older than the type name.
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
        /// The name as the model wrote it.
        tool: String,
        turn: u32,
        operation: u64,
    },
    /// The record of a finished call.
    Tool(Box<ToolRecord>),
    /// The record of a model request.
    Model(Box<ModelRecord>),
    /// The name of a decision of the run, such as a compaction, for readers of the session.
    Note {
        at_ms: u64,
        turn: u32,
        note: String,
        /// The sizes of a compaction, if the note is about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compaction: Option<StoredCompaction>,
    },
    /// The end of the run, with its reason.
    Finished { at_ms: u64, reason: String, turns: u32 },
}

impl SessionJournalLine {
    /// Returns the line for an input.
    pub fn of_input(input: &RunInput) -> Self {
        Self::Input { at_ms: now_ms(), input: StoredInput::of(input) }
    }

    /// Returns the line for a call that is about to reach its tool.
    pub fn of_call(call: &ToolCall, operation: &CallOperation) -> Self {
        Self::Begun {
            at_ms: now_ms(),
            call: call.id.0.clone(),
            tool: call.name.clone(),
            turn: operation.place.turn,
            operation: operation.id.0,
        }
    }

    /// Returns the line for an event in the journal of `session`, which includes the calls and costs of sub-agents.
    pub fn of_event(session: SessionId, event: &Event) -> Option<Self> {
        match event {
            Event::ToolFinished { operation, tool, failure, latency, account, content: _ } => {
                Some(Self::Tool(Box::new(record(operation, tool, *failure, *latency, account))))
            }
            Event::ModelFinished { id, place, attempt, principal, account } => {
                Some(Self::Model(Box::new(model_record(id, *place, attempt, principal, account))))
            }
            Event::Run { place, event } if place.session == session => Self::of_run_event(place.turn, event),
            Event::Run { .. }
            | Event::ToolStarted { .. }
            | Event::ToolProgress { .. }
            | Event::ModelStarted { .. } => None,
        }
    }

    /// Returns the line for a run event. Most events need none, because the recorded inputs contain the same content.
    fn of_run_event(turn: u32, event: &RunEvent) -> Option<Self> {
        match event {
            RunEvent::Noted(note) => {
                let compaction = match note {
                    RunNote::Compacted(compaction) => Some(StoredCompaction::of(compaction)),
                    RunNote::Status(_)
                    | RunNote::Refused { .. }
                    | RunNote::AskedAgain { .. }
                    | RunNote::Circling { .. }
                    | RunNote::ToolsFound(_)
                    | RunNote::ToolsAppended(_)
                    | RunNote::FinalTurn(_)
                    | RunNote::CompactionFault { .. } => None,
                };
                Some(Self::Note { at_ms: now_ms(), turn, note: note.name().to_owned(), compaction })
            }
            RunEvent::Finished { finish, .. } => {
                let reason = finish.reason.name().to_owned();
                Some(Self::Finished { at_ms: now_ms(), reason, turns: turn })
            }
            RunEvent::Began(_)
            | RunEvent::Asked
            | RunEvent::Model(_)
            | RunEvent::Called(_)
            | RunEvent::Answered(_) => None,
        }
    }
}

/// The start of a session: its agent, model, spec and first request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionStart {
    pub version: u32,
    pub id: String,
    pub at_ms: u64,
    /// The first request, shortened.
    pub title: String,
    /// The name of the agent.
    pub agent: String,
    /// The model with which the run began. A resumed run uses this model and does not choose one again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The session that received the original request; `None` if it is this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The spec of the run, from which the run is resumed; null for sub-agents.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub spec: Value,
    /// The tenant and subject of the run; version 1 had only the local user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<(String, String)>,
    /// Version 1 only: the command line of the run.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub order: Value,
    /// The state of the run before its first step.
    pub run: RunSnapshot,
}

impl SessionStart {
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

    /// Returns true if the run belongs to this principal.
    pub fn belongs_to(&self, principal: &Principal) -> bool {
        match &self.principal {
            Some((tenant, subject)) => tenant == principal.tenant() && subject == principal.subject(),
            None => (principal.tenant(), principal.subject()) == ("local", "local"),
        }
    }

    /// Returns true if the session has this agent and this request.
    pub fn is_for(&self, request: &str, agent: &str) -> bool {
        self.title == title(request) && self.agent == agent
    }
}

fn title(request: &str) -> String {
    let first = request.trim().lines().next().unwrap_or_default();
    first.chars().take(TITLE_CHARS_MAX).collect()
}

/// The version field, which is checked before the rest of the line is parsed.
#[derive(Debug, Deserialize)]
pub(super) struct JournalVersion {
    pub(super) version: Option<u32>,
}
