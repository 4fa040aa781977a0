//! Tools: their definitions, the operator's policy for them, and calls to them.

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
    /// The provider's own name for the tool. The catalog adds the namespace.
    pub name: ToolName,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of the arguments, always an object schema.
    pub input_schema: Value,
    /// The JSON Schema of the structured output; `None` if the tool declares none.
    pub output_schema: Option<Value>,
    /// The effects that the provider declares.
    pub effects: Effects,
    /// The groups to which the provider assigns the tool. The operator may add others.
    pub groups: Vec<GroupName>,
    /// Facts that the engine relies on. Tools of remote servers always have the defaults.
    pub facts: ToolFacts,
    /// The definition as the server sent it, for a re-export without loss.
    pub raw: Option<Arc<RawValue>>,
}

impl ToolDefinition {
    /// Creates a tool with unknown effects and no output schema. Replaces an invalid name by the most similar valid
    /// one.
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

    /// Declares the effects of calls. By default they are unknown.
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

/// Facts about a tool that its own code declares and the engine relies on. Remote servers cannot set them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFacts {
    /// The way in which the tool limits its own output.
    pub output: OutputFact,
    /// The tool's default timeout; `None` for the default of its provider kind. The operator's timeout has priority.
    pub timeout: Option<Duration>,
    /// The name of the argument that holds a shell command line. Command rules parse this argument.
    pub command_argument: Option<&'static str>,
    /// The author of the definition.
    pub author: DefinitionAuthor,
    /// The scheme, host and port of the HTTP API that the tool uses, such as `https://api.example.com`; `None` for
    /// other tools.
    pub host: Option<Arc<str>>,
}

/// The author of a tool's definition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DefinitionAuthor {
    /// The source of the tool: a server, an API, an agent, or the code of a built-in tool.
    #[default]
    Source,
    /// haft itself, in place of a server that it cannot reach yet.
    Haft,
    /// The Model Context Protocol: the tool is a method that reads content of a server, such as `resources/read`.
    Protocol,
}

/// The limit that a tool sets on its own output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OutputFact {
    /// The tool does not limit its output, so the operator's limit applies.
    #[default]
    Unlimited,
    /// The tool has its own limit and stores the rest. The operator's general limit does not apply.
    CapsItself,
    /// The tool returns pages of at most this many characters. A page is truncated, never stored again.
    Pages {
        /// The maximum length of a page, in characters.
        chars_max: usize,
    },
}

/// The effects of a tool. They determine which calls may run at the same time and which may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    /// The tool changes nothing. Calls may run at the same time, be repeated and be cached.
    ReadOnly,
    /// Repeating a call changes nothing more, so an interrupted call may be repeated.
    Idempotent,
    /// Each call may change a resource, so an interrupted call is not repeated.
    Mutating,
    /// The provider declares no effects. The engine treats the tool as mutating.
    Unknown,
}

impl Effects {
    /// Returns the stable name that all wire formats use.
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
    /// The time limit for a call.
    pub timeout: Duration,
    /// The maximum time without progress; `None` if only `timeout` applies.
    pub idle_timeout: Option<Duration>,
    /// The treatment of an output that is too large.
    pub output: OutputPolicy,
    /// The queue for all calls to the tool; `None` for the default queue.
    pub queue: Option<QueueName>,
    /// The priority of all calls to the tool; `None` if the run decides.
    pub priority: Option<Priority>,
    /// The time for which outputs stay cached; `None` if they are not cached.
    pub cache_ttl: Option<Duration>,
    /// The minimum approval that a call needs. Rules may require more.
    pub approval: ApprovalPolicy,
}

/// The treatment of an output that is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputPolicy {
    /// The tool limits its own output, so the engine does not change it.
    Pass,
    /// Truncates the text to this many characters, with a notice. JSON stays valid JSON.
    Truncate {
        /// The maximum length of the text, in characters.
        chars_max: usize,
    },
    /// Stores a text with more than this many bytes, and shows its beginning with instructions for querying the rest.
    Store {
        /// The maximum size of a text that is not stored, in bytes.
        bytes_max: usize,
    },
}

/// Selects whether a user must approve the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalPolicy {
    /// No approval is needed, unless a rule requires it.
    Allow,
    /// A user must approve every call.
    Ask,
    /// Every call is refused.
    Deny,
}

/// The id that the client gave the call. The reply contains the same id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallId(pub String);

/// A call: the tool name and the arguments, exactly as the model wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The id from the model or the client.
    pub id: CallId,
    /// The tool name as the model wrote it. The resolve stage finds the tool, or reports that there is none.
    pub name: String,
    /// The arguments text as the model wrote it. The engine parses it.
    pub arguments: RawArguments,
}

impl ToolCall {
    /// Creates a call with arguments that are already JSON.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: &Value) -> Self {
        Self { id: CallId(id.into()), name: name.into(), arguments: RawArguments::from_value(arguments) }
    }
}
