//! Tools: their definitions, the operator's policy for them, and calls of them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::arguments::RawArguments;
use crate::name::{GroupName, QueueName, ToolName};
use crate::priority::Priority;

/// One tool, as its provider describes it.
#[derive(Debug, Clone)]
pub struct ToolDefinition {
    /// The provider's own name of the tool; the catalog adds the namespace.
    pub name: ToolName,
    /// The description for the model.
    pub description: String,
    /// Always an object schema.
    pub input_schema: Value,
    /// The JSON Schema of the structured output; `None` if the tool declares none.
    pub output_schema: Option<Value>,
    /// The effects that the provider declares.
    pub effects: Effects,
    /// The groups that the provider puts the tool into; the operator may add others.
    pub groups: Vec<GroupName>,
    /// Facts for the engine; the defaults for tools of remote servers.
    pub facts: ToolFacts,
    /// The definition as the server sent it, for lossless re-export.
    pub raw: Option<Arc<RawValue>>,
}

impl ToolDefinition {
    /// Creates a tool with unknown effects and no output schema. Replaces an invalid name by the nearest valid one.
    pub fn new(name: &str, description: impl Into<String>, input_schema: Value) -> Self {
        Self {
            name: ToolName::sanitize(name),
            description: description.into(),
            input_schema,
            output_schema: None,
            effects: Effects::Unknown,
            groups: Vec::new(),
            facts: ToolFacts::default(),
            raw: None,
        }
    }

    /// Declares the effects of calls; without it they are unknown.
    #[must_use]
    pub fn with_effects(self, effects: Effects) -> Self {
        Self { effects, ..self }
    }

    /// Sets the facts that the engine relies on, such as the argument that holds a shell command.
    #[must_use]
    pub fn with_facts(self, facts: ToolFacts) -> Self {
        Self { facts, ..self }
    }
}

/// Facts that the code of a tool knows about itself, and that the engine goes by. Remote servers cannot set them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFacts {
    /// The way in which the tool limits its own output.
    pub output: OutputFact,
    /// The timeout unless the operator sets one; without it the default of the tool's kind holds.
    pub timeout: Option<Duration>,
    /// The argument that is a shell command line, which rules on commands read.
    pub command_argument: Option<&'static str>,
}

/// The limit that a tool sets on its own output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OutputFact {
    /// Not at all: the operator's limit holds.
    #[default]
    Unlimited,
    /// At its own limit, beyond which it stores the rest. The operator's general limit does not apply.
    CapsItself,
    /// In pages of at most this many characters. A page is truncated, never stored again.
    Pages {
        /// The longest page.
        chars_max: usize,
    },
}

/// The effects of a tool. They decide which calls may run concurrently and which may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    /// Changes nothing. Calls may run at the same time, be repeated and be cached.
    ReadOnly,
    /// A repetition changes nothing more, so an interrupted call may be repeated.
    Idempotent,
    /// Each call may change something, so an interrupted call is not repeated.
    Mutating,
    /// The provider declares nothing; the engine treats the tool as mutating.
    Unknown,
}

impl Effects {
    /// Returns the stable name for all wire formats.
    pub fn name(self) -> &'static str {
        match self {
            Effects::ReadOnly => "read-only",
            Effects::Idempotent => "idempotent",
            Effects::Mutating => "mutating",
            Effects::Unknown => "unknown",
        }
    }
}

/// The operator's policy for a tool. The model never sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolPolicy {
    /// The longest time for a call.
    pub timeout: Duration,
    /// The longest time without progress; `None` if only `timeout` applies.
    pub idle_timeout: Option<Duration>,
    /// The treatment of an output that is too large.
    pub output: OutputPolicy,
    /// The queue of all calls of the tool; `None` for the default queue.
    pub queue: Option<QueueName>,
    /// The priority of all calls of the tool; `None` if the run decides.
    pub priority: Option<Priority>,
    /// The time that outputs stay cached; `None` if they are not cached.
    pub cache_ttl: Option<Duration>,
    /// The least approval of any call; rules may require more.
    pub approval: ApprovalPolicy,
}

/// The treatment of an output that is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputPolicy {
    /// The tool limits its own output, so the engine does not change it.
    Pass,
    /// Truncates the text to this many characters, with a notice. JSON stays valid JSON.
    Truncate {
        /// The longest text.
        chars_max: usize,
    },
    /// Stores a text of more than this many bytes and shows its beginning with instructions for querying the rest.
    Store {
        /// The longest text that is not stored.
        bytes_max: usize,
    },
}

/// Decides if a user must approve the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalPolicy {
    /// No approval is needed, unless a rule requires it.
    Allow,
    /// A user must approve every call.
    Ask,
    /// Every call is refused.
    Deny,
}

/// The client's id of a call; the answer carries it back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallId(pub String);

/// A call: the name of a tool as the model wrote it, and the arguments in the model's own bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The model's or client's own id.
    pub id: CallId,
    /// The name as written. The resolve stage finds the tool, or reports that there is none.
    pub name: String,
    /// The text as the model wrote it; parsed by the engine.
    pub arguments: RawArguments,
}

impl ToolCall {
    /// Creates a call with arguments that are already JSON.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: &Value) -> Self {
        Self { id: CallId(id.into()), name: name.into(), arguments: RawArguments::from_value(arguments) }
    }
}
