//! Tools: what the model is shown of one, what the operator decides about it, and a call of it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::arguments::Arguments;
use crate::name::{GroupName, QueueName, ToolName};

/// What exists: one tool, as its provider describes it.
#[derive(Debug, Clone)]
pub struct ToolDefinition {
    pub name: ToolName,
    pub description: String,
    /// Always an object schema.
    pub input_schema: Value,
    pub output_schema: Option<Value>,
    pub effects: Effects,
    pub groups: Vec<GroupName>,
    /// The definition as a server sent it, for re-export without loss.
    pub raw: Option<Arc<RawValue>>,
}

/// What calling a tool does to the world. Decides which calls may run at the same time, and which may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    ReadOnly,
    Idempotent,
    Mutating,
    Unknown,
}

impl Effects {
    pub fn name(self) -> &'static str {
        match self {
            Effects::ReadOnly => "read-only",
            Effects::Idempotent => "idempotent",
            Effects::Mutating => "mutating",
            Effects::Unknown => "unknown",
        }
    }
}

/// What the operator decides about a tool. The model never sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolPolicy {
    /// How long a call may take in all.
    pub timeout: Duration,
    /// How long a call may go on without telling progress; `None` when only `timeout` counts.
    pub idle_timeout: Option<Duration>,
    pub output: OutputPolicy,
    pub queue: Option<QueueName>,
    pub cache_ttl: Option<Duration>,
    pub approval: Approval,
}

/// What is done with an output that is larger than it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputPolicy {
    /// The tool caps its own output; nothing is done after it.
    Pass,
    /// The text is cut after this many characters, with a notice.
    Truncate { chars_max: usize },
    /// Beyond this many bytes the text is kept in the store, and the beginning shown with how to ask for more.
    Store { bytes_max: usize },
}

/// Whether a human is asked before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    Allow,
    Ask,
    Deny,
}

/// The name by which the asker knows a call; answers carry it back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallId(pub String);

/// What was asked: a tool by the name the asker wrote, and the arguments in the asker's own bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    pub id: CallId,
    /// As written by the asker; `resolve` turns it into a tool or says that there is none.
    pub name: String,
    pub arguments: Arguments,
}
