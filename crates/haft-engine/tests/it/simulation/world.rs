use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::budget::{ContextUsage, ContextWindow};
use haft_core::event::{Event, EventSink};
use haft_core::name::{Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind, ToolResult};
use haft_core::tool::{CallId, Effects, ToolDefinition, ToolFacts};
use haft_core::validate::ValidArguments;
use haft_engine::queue::AGEING_ADMISSIONS;
use haft_engine::{CacheUse, CallOptions, OrchestratorConfig, Priority};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::story::{QUEUES, ScenarioCall, TOOLS};

/// Records everything that is visible from outside, as it happens.
pub(super) struct SimulationRecorder {
    book: Mutex<SimulationState>,
    budget: Arc<ContextWindow>,
}

#[derive(Default)]
struct SimulationState {
    calls: Vec<CallObservation>,
    /// The number of admitted calls, by queue.
    started: HashMap<&'static str, u64>,
    /// The number of calls that the provider is running now, by queue, and by key for calls to `kept`.
    running: HashMap<String, usize>,
    /// The outputs of the provider, by text, with their key and time.
    given: HashMap<String, (u64, Instant)>,
    broken: Vec<String>,
}

/// The recorded times and outcome of one call.
#[derive(Debug, Clone)]
pub(super) struct CallObservation {
    pub(super) tool: &'static str,
    pub(super) queue: Option<&'static str>,
    pub(super) options: CallOptions,
    pub(super) key: u64,
    pub(super) ends: usize,
    pub(super) latency: Duration,
    pub(super) hit: Option<CacheHit>,
    pub(super) arrived: Option<QueueArrival>,
    started_at: Option<Instant>,
    pub(super) end: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct QueueArrival {
    place: usize,
    /// The number of calls that its queue had admitted when the call arrived.
    admissions: u64,
}

#[derive(Debug, Clone)]
pub(super) struct CacheHit {
    pub(super) key: u64,
    pub(super) age: Duration,
}

impl SimulationRecorder {
    pub(super) fn new(budget: Arc<ContextWindow>) -> Self {
        Self { book: Mutex::default(), budget }
    }

    pub(super) fn budget(&self) -> Arc<ContextWindow> {
        Arc::clone(&self.budget)
    }

    pub(super) fn ask(&self, asked: &ScenarioCall, options: &CallOptions) {
        let queue = TOOLS.iter().find(|(tool, _)| *tool == asked.tool).and_then(|(_, queue)| *queue);
        self.book().calls.push(CallObservation {
            tool: asked.tool,
            queue,
            options: options.clone(),
            key: asked.key,
            ends: 0,
            latency: Duration::ZERO,
            hit: None,
            arrived: None,
            started_at: None,
            end: "never arrived",
        });
    }

    pub(super) fn arrive(&self, number: usize) {
        let mut book = self.book();
        let place = book.calls.iter().filter(|call| call.arrived.is_some()).count();
        let admissions =
            book.calls[number].queue.map_or(0, |queue| book.started.get(queue).copied().unwrap_or(0));
        book.calls[number].arrived = Some(QueueArrival { place, admissions });
    }

    pub(super) fn answer(&self, result: &ToolResult) {
        let mut book = self.book();
        let number = number(&result.call.id);
        if result.receipt.notes.get("cache") == Some(&json!("hit")) {
            let (key, given) = book.given[&result.text()];
            book.calls[number].hit = Some(CacheHit { key, age: given.elapsed() });
            book.calls[number].end = "hit";
        }
        if result.outcome.is_ok() && result.text().contains("output truncated") {
            book.calls[number].end = "cut";
        }
        if result.error_kind() == Some(ToolErrorKind::Timeout) && !result.receipt.executed {
            book.calls[number].end = "timeout unexecuted";
        }
    }

    /// Checks that no slot, flight, reservation or running call is left at the end.
    pub(super) fn close(&self, config: &OrchestratorConfig) {
        let mut book = self.book();
        for queue in config.queues.snapshot() {
            if (queue.in_use, queue.waiting) != (0, 0) {
                book.broken.push(format!("left at the end: {queue:?}"));
            }
        }
        if config.cache.snapshot().flights != 0 {
            book.broken.push(format!("left at the end: {:?}", config.cache));
        }
        if self.budget.usage().pending_tokens != 0 {
            book.broken.push(format!("left at the end: {:?}", self.budget));
        }
        let left: Vec<_> =
            book.running.iter().filter(|(_, running)| **running != 0).map(|left| left.0.clone()).collect();
        book.broken.extend(left.into_iter().map(|left| format!("still running: {left}")));
    }

    pub(super) fn calls(&self) -> Vec<CallObservation> {
        self.book().calls.clone()
    }

    pub(super) fn ends(&self) -> Vec<&'static str> {
        self.book().calls.iter().map(|call| call.end).collect()
    }

    pub(super) fn overheard(&self) -> Vec<String> {
        self.book().broken.clone()
    }

    /// Returns the calls that overtook another call unfairly. A call may overtake only with a higher priority, and only
    /// if it arrived before the other call had aged. `kept` is excluded, because the cache determines when its calls
    /// reach the queue.
    pub(super) fn passed_unfairly(&self) -> Vec<String> {
        let book = self.book();
        let queued: Vec<_> =
            book.calls.iter().filter(|call| call.queue.is_some() && call.tool != "kept").collect();
        let mut unfair = Vec::new();
        for waited in &queued {
            unfair.extend(
                queued
                    .iter()
                    .filter(|passed| passed.queue == waited.queue && !passed.may_pass(waited))
                    .map(|passed| format!("{passed:?} passed {waited:?}")),
            );
        }
        unfair
    }

    fn enter(self: &Arc<Self>, what: String, most: usize) -> RunningCallGuard {
        let mut book = self.book();
        let running = book.running.entry(what.clone()).or_default();
        *running += 1;
        let running = *running;
        if running > most {
            book.broken.push(format!("{running} at once: {what}"));
        }
        RunningCallGuard { world: Arc::clone(self), what }
    }

    fn book(&self) -> MutexGuard<'_, SimulationState> {
        self.book.lock().unwrap()
    }
}

impl CallObservation {
    /// Returns true if this call did not overtake the call `waited`, or if its priority permitted this.
    fn may_pass(&self, waited: &CallObservation) -> bool {
        let (Some(mine), Some(theirs)) = (self.arrived, waited.arrived) else { return true };
        let (Some(my_start), Some(their_start)) = (self.started_at, waited.started_at) else { return true };
        // Calls that are admitted at the same instant may be polled in any order.
        if mine.place <= theirs.place || my_start >= their_start {
            return true;
        }
        // The count of admitted calls does not include a call that is admitted but not yet polled.
        let let_in_unseen =
            u64::try_from(QUEUES.map(|(_, concurrent, _)| concurrent).into_iter().max().unwrap()).unwrap();
        let head_start =
            (level(self.options.priority) - level(waited.options.priority)) * AGEING_ADMISSIONS.cast_signed();
        head_start > 0 && mine.admissions <= theirs.admissions + head_start.cast_unsigned() + let_in_unseen
    }
}

fn level(priority: Priority) -> i64 {
    match priority {
        Priority::Low => 0,
        Priority::Normal => 1,
        Priority::High => 2,
    }
}

fn number(id: &CallId) -> usize {
    id.0.parse().unwrap()
}

/// Returns an error text if the reserved and used tokens exceed the budget.
fn overdrawn(budget: &ContextWindow) -> Option<String> {
    let ContextUsage { current_tokens, pending_tokens, schema_tokens } = budget.usage();
    let taken = current_tokens.checked_add(pending_tokens)?.checked_add(schema_tokens)?;
    (taken > budget.usable_tokens()).then(|| format!("{taken} tokens are taken: {budget:?}"))
}

impl EventSink for SimulationRecorder {
    fn emit(&self, event: Event) {
        let mut book = self.book();
        book.broken.extend(overdrawn(&self.budget));
        match event {
            Event::ToolStarted { operation, .. } => {
                let call = &mut book.calls[number(&operation.call)];
                if call.started_at.replace(Instant::now()).is_some() {
                    let broken = format!("{call:?} started twice");
                    book.broken.push(broken);
                } else if let Some(queue) = call.queue {
                    *book.started.entry(queue).or_default() += 1;
                }
            }
            Event::ToolProgress { .. }
            | Event::ModelStarted { .. }
            | Event::ModelFinished { .. }
            | Event::Run { .. } => {}
            Event::ToolFinished { operation, failure, latency, .. } => {
                let call = &mut book.calls[number(&operation.call)];
                call.ends += 1;
                call.latency = latency;
                call.end = failure.map_or("ok", ToolErrorKind::name);
            }
        }
    }
}

/// Counts a call as running until it is dropped.
struct RunningCallGuard {
    world: Arc<SimulationRecorder>,
    what: String,
}

impl Drop for RunningCallGuard {
    fn drop(&mut self) {
        *self.world.book().running.get_mut(&self.what).unwrap() -= 1;
    }
}

/// A provider that behaves as its arguments say, and checks the concurrency limits.
pub(super) struct SimulatedProvider {
    world: Arc<SimulationRecorder>,
    namespace: Namespace,
}

impl SimulatedProvider {
    pub(super) fn new(world: Arc<SimulationRecorder>) -> Self {
        Self { world, namespace: Namespace::new("actor").unwrap() }
    }

    /// Returns guards that count this call as running in its queue and under its cache key.
    fn guards(&self, tool: &str, id: &CallId, key: Option<u64>) -> Vec<RunningCallGuard> {
        let queue = TOOLS.iter().find(|(name, _)| *name == tool).and_then(|(_, queue)| *queue);
        let of_queue = queue.and_then(|queue| QUEUES.iter().find(|(name, ..)| *name == queue));
        let uses_cache = self.world.book().calls[number(id)].options.cache == CacheUse::Use;
        let of_key = key.filter(|_| uses_cache).map(|key| self.world.enter(format!("key {key}"), 1));
        of_queue
            .map(|(name, concurrent, _)| self.world.enter((*name).to_owned(), *concurrent))
            .into_iter()
            .chain(of_key)
            .collect()
    }

    async fn perform(
        &self,
        tool: &str,
        arguments: &ValidArguments,
        cx: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        let arguments = arguments.value();
        let key = arguments.get("key").and_then(Value::as_u64);
        let _guards = self.guards(tool, &cx.id, key);
        sleep(Duration::from_millis(arguments["millis"].as_u64().unwrap())).await;
        match arguments["behaviour"].as_str().unwrap() {
            "fail" => Err(ToolError::new(ToolErrorKind::Failed, "failed")),
            // `resume_unwind` skips the panic hook, which would print thousands of backtraces.
            "panic" => std::panic::resume_unwind(Box::new("panicked")),
            "hang" => std::future::pending().await,
            // The output is often larger than the budget.
            "talk" => Ok(ToolOutput::text("much ".repeat(2_000))),
            _ => {
                let text = format!("given to {}", cx.id.0);
                self.world.book().given.insert(text.clone(), (key.unwrap_or_default(), Instant::now()));
                Ok(ToolOutput::text(text))
            }
        }
    }
}

impl ToolProvider for SimulatedProvider {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Builtin
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        let definition = |tool: &str| ToolDefinition {
            name: ToolName::new(tool).unwrap(),
            description: String::new(),
            input_schema: json!({"type": "object"}),
            output_schema: None,
            effects: if tool == "write" { Effects::Mutating } else { Effects::ReadOnly },
            groups: Vec::new(),
            facts: ToolFacts::default(),
            raw: None,
        };
        TOOLS.iter().map(|(tool, _)| definition(tool)).collect()
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        if arguments.value()["behaviour"] == "panic_early" {
            std::panic::resume_unwind(Box::new("panicked"));
        }
        Box::pin(self.perform(tool.as_str(), arguments, cx))
    }
}
