//! The interface between the engine and tool providers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::change_counter::ChangeCounter;
use crate::digest::Digest;
use crate::event::{CallProgress, Event, EventSink};
use crate::name::{Namespace, ToolName};
use crate::output::ToolOutput;
use crate::position::{CallOperation, OperationId, RunPosition};
pub use crate::principal::Principal;
use crate::priority::Priority;
use crate::result::ToolError;
use crate::run::context::RunContext;
use crate::run::scope::RunScope;
use crate::time_limit::TimeLimit;
use crate::tool::{CallId, ToolDefinition};
use crate::validate::ValidArguments;

/// Lists tools and executes their calls. Dropping the future of a call cancels the call: nothing that it started may
/// outlive it.
pub trait ToolProvider: Send + Sync {
    /// Returns the origin of the tools. It must never change.
    fn kind(&self) -> ProviderKind;

    /// Returns the namespace of the tools. It must never change.
    fn namespace(&self) -> &Namespace;

    /// Returns a snapshot of the tools. An implementation must do no IO, and must not call the catalog, which waits for
    /// the result.
    fn tools(&self) -> Arc<[ToolDefinition]>;

    /// Returns false while this provider's tools would not help the run. The model then does not see them, but may
    /// still call them. An implementation must do no IO.
    fn is_shown(&self, _: &RunContext) -> bool {
        true
    }

    /// Returns the counter that announces changes of `tools`, or `None` if the list never changes.
    fn changes(&self) -> Option<&ChangeCounter> {
        None
    }

    /// Returns a warning for the operator about `tools`, for example that the list was cut. It changes only together with
    /// the list. An implementation must do no IO.
    fn list_warning(&self) -> Option<String> {
        None
    }

    /// Prepares the tools once before the first call, for example by connecting to a server. An error becomes a warning
    /// for the operator; the engine still uses the tools that `tools` returns.
    fn warmup(&self) -> BoxFuture<'_, Result<(), ToolError>> {
        Box::pin(async { Ok(()) })
    }

    /// Waits until `tools` returns a list that the running source sent, not one that an earlier process cached. The
    /// engine calls this before a call if the operator's policy depends on the tool's definition, as a tool lock does.
    /// `progress` receives the steps of a long wait. Does nothing by default.
    fn refresh_tools<'a>(
        &'a self,
        _progress: &'a (dyn Fn(CallProgress) + Send + Sync),
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        Box::pin(async { Ok(()) })
    }

    /// Returns instructions for the model about all tools of this provider.
    fn instructions(&self) -> Option<Arc<str>> {
        None
    }

    /// Returns a digest of everything besides definition and arguments that affects the output of a call: the address,
    /// the credentials, the sandbox. Processes share a cached output only if their digests are equal. With `None`,
    /// outputs are cached only in the memory of this process. An implementation must do no IO.
    fn source_digest(&self, _: &ToolName, _: &ValidArguments) -> Option<Digest> {
        None
    }

    /// Executes a call. The arguments have been validated against the tool's schema. If the model can act on an error,
    /// the error message says how.
    fn call<'a>(
        &'a self,
        tool: &'a ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;

    /// Releases processes and connections before the program ends. Does nothing by default.
    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// The kind of source from which tools come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProviderKind {
    /// Tools of haft itself, or of the program that embeds it.
    Builtin,
    /// A server of the Model Context Protocol, local or remote.
    Mcp,
    /// An HTTP API that the operator configured.
    Rest,
    /// Another agent, which runs as a tool.
    Agent,
    /// Tools that the caller of the run executes itself.
    Client,
}

crate::name_table!(ProviderKind {
    Builtin: "builtin",
    Mcp: "mcp",
    Rest: "rest",
    Agent: "agent",
    Client: "client",
});

/// The context of a call: everything that the provider needs apart from the arguments.
pub struct CallContext {
    /// The id that the caller gave the call.
    pub id: CallId,
    /// The run that makes the call, with its principal, its output store, its approver and its models.
    pub run: Arc<RunContext>,
    /// The time at which the call is stopped. A provider with partial output watches this time and returns the partial
    /// output when the time is reached; the engine waits a short grace period for this output.
    pub time_limit: Option<TimeLimit>,
    operation: Arc<CallOperation>,
    /// The priority of the call. Calls that the provider itself makes use the same priority.
    pub priority: Priority,
    /// The run that pays for the call; `None` for a call outside a run.
    pub scope: Option<Arc<RunScope>>,
    events: Arc<dyn EventSink>,
    notes: Mutex<BTreeMap<&'static str, Value>>,
}

impl CallContext {
    /// Creates the context of a call outside a run.
    pub fn new(
        id: CallId,
        run: Arc<RunContext>,
        time_limit: Option<TimeLimit>,
        events: Arc<dyn EventSink>,
    ) -> Self {
        let operation =
            CallOperation { id: OperationId::default(), call: id.clone(), place: RunPosition::default() };
        Self::of(id, Arc::new(operation), run, time_limit, events)
    }

    /// Sets the priority of the call and of the calls that the provider makes for it.
    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the run that pays for the call.
    #[must_use]
    pub fn with_scope(mut self, scope: Option<Arc<RunScope>>) -> Self {
        self.scope = scope;
        self
    }

    /// Creates the context of a call whose operation is known.
    pub fn of(
        id: CallId,
        operation: Arc<CallOperation>,
        run: Arc<RunContext>,
        time_limit: Option<TimeLimit>,
        events: Arc<dyn EventSink>,
    ) -> Self {
        Self {
            id,
            run,
            time_limit,
            operation,
            priority: Priority::default(),
            scope: None,
            events,
            notes: Mutex::default(),
        }
    }

    /// Returns the operation of the call. If the call starts a sub-agent, this operation is the parent of the
    /// sub-agent's session.
    pub fn operation(&self) -> &CallOperation {
        &self.operation
    }

    /// Returns the sink that also adds up the run's cost. Work on behalf of the call must emit its events to this sink.
    pub fn events(&self) -> &Arc<dyn EventSink> {
        &self.events
    }

    /// Emits progress, split into events of limited size.
    pub fn progress(&self, progress: CallProgress) {
        if let Some(progress) = progress.bounded() {
            self.events.emit(Event::ToolProgress { operation: Arc::clone(&self.operation), progress });
        }
    }

    /// Adds a note about the execution to the call's receipt.
    pub fn note(&self, topic: &'static str, value: Value) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(topic, value);
    }

    /// Takes all notes. The orchestrator moves them into the receipt.
    pub fn take_notes(&self) -> BTreeMap<&'static str, Value> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("id", &self.id)
            .field("principal", &self.run.principal)
            .field("time_limit", &self.time_limit)
            .finish_non_exhaustive()
    }
}
