//! The seam between the engine and whatever gives tools.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::changes::Changes;
use crate::event::{Event, EventSink, Progress};
use crate::name::{Namespace, ToolName};
use crate::output::ToolOutput;
use crate::place::{Operation, OperationId, Place};
pub use crate::principal::Principal;
use crate::priority::Priority;
use crate::result::ToolError;
use crate::run::context::RunContext;
use crate::run::scope::RunScope;
use crate::time_limit::TimeLimit;
use crate::tool::{CallId, ToolDefinition};
use crate::validate::ValidArguments;

/// Gives tools and performs their calls. Dropping a call's future cancels it: nothing it started may outlive it.
pub trait ToolProvider: Send + Sync {
    fn kind(&self) -> ProviderKind;

    fn namespace(&self) -> &Namespace;

    /// A snapshot; no IO, and no question to the catalog, which is waiting for the answer.
    fn tools(&self) -> Arc<[ToolDefinition]>;

    /// False while the tools of this provider would not help the run. Models are not shown them then, but may still call
    /// them. No IO.
    fn is_shown(&self, _: &RunContext) -> bool {
        true
    }

    /// Where the provider announces that `tools` gives another list; `None` when it never does.
    fn changes(&self) -> Option<&Changes> {
        None
    }

    /// Makes the tools ready, once and before the first call: connect, start, load. An error is told to the operator;
    /// the provider is used all the same, with whatever `tools` gives then.
    fn warmup(&self) -> BoxFuture<'_, Result<(), ToolError>> {
        Box::pin(async { Ok(()) })
    }

    /// What the provider wants the model to know about its tools as a whole.
    fn instructions(&self) -> Option<Arc<str>> {
        None
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// Where tools come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProviderKind {
    Builtin,
    Mcp,
    Rest,
    Agent,
    Client,
}

impl ProviderKind {
    pub fn name(self) -> &'static str {
        match self {
            ProviderKind::Builtin => "builtin",
            ProviderKind::Mcp => "mcp",
            ProviderKind::Rest => "rest",
            ProviderKind::Agent => "agent",
            ProviderKind::Client => "client",
        }
    }
}

/// What a provider is told about the call beside its arguments, and how it speaks while it works.
pub struct CallContext {
    pub id: CallId,
    /// The run that makes the call: its principal, its outputs, and the people and models that it can ask.
    pub run: Arc<RunContext>,
    /// When the call is stopped. A provider that can give partial output watches it and answers as soon as it is
    /// reached; the engine waits a moment for that and no longer.
    pub time_limit: Option<TimeLimit>,
    operation: Arc<Operation>,
    /// How urgent the call is. A provider that makes calls of its own makes them as urgent.
    pub priority: Priority,
    /// The run that the call is made for; none for a call that stands alone.
    pub scope: Option<Arc<RunScope>>,
    events: Arc<dyn EventSink>,
    notes: Mutex<BTreeMap<&'static str, Value>>,
}

impl CallContext {
    /// For a call that stands alone.
    pub fn new(
        id: CallId,
        run: Arc<RunContext>,
        time_limit: Option<TimeLimit>,
        events: Arc<dyn EventSink>,
    ) -> Self {
        let operation = Operation { id: OperationId::default(), call: id.clone(), place: Place::default() };
        Self::of(id, Arc::new(operation), run, time_limit, events)
    }

    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    #[must_use]
    pub fn with_scope(mut self, scope: Option<Arc<RunScope>>) -> Self {
        self.scope = scope;
        self
    }

    pub fn of(
        id: CallId,
        operation: Arc<Operation>,
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

    /// Where the call stands; a session that works for it names it as parent.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Who watches the call, and counts what its run costs; to be told of work that is done on its behalf.
    pub fn events(&self) -> &Arc<dyn EventSink> {
        &self.events
    }

    /// Tells whoever watches how the call is getting on, in events of bounded size.
    pub fn progress(&self, progress: Progress) {
        if let Some(progress) = progress.bounded() {
            self.events.emit(Event::ToolProgress { operation: Arc::clone(&self.operation), progress });
        }
    }

    /// Puts a fact about how the call was carried out into its receipt.
    pub fn note(&self, topic: &'static str, value: Value) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(topic, value);
    }

    /// Takes what was noted; the orchestrator moves it into the receipt.
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
