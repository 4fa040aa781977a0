//! A provider whose tools echo, fail, hang, panic and so on, an orchestrator for it with the context of one run, and a
//! sink that records events.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::arguments::RawArguments;
use haft_core::change_counter::ChangeCounter;
use haft_core::digest::Digest;
use haft_core::event::{CallProgress, Event, EventSink};
use haft_core::name::{Namespace, ToolName};
use haft_core::naming::NamingScheme;
use haft_core::output::{OutputContent, ToolOutput};
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind, ToolResult};
use haft_core::tool::{CallId, Effects, ToolCall, ToolDefinition, ToolFacts, ToolPolicy};
use haft_core::validate::ValidArguments;
use haft_engine::{
    CallOptions, Catalog, EffectOrder, Orchestrator, OrchestratorConfig, RunContext, ToolPolicies,
};
use serde_json::{Value, json};

/// Lines in the order in which they were written. Clones share the lines.
#[derive(Clone, Default)]
pub(crate) struct SharedLog(Arc<Mutex<Vec<String>>>);

impl SharedLog {
    pub(crate) fn write(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Records events as short lines.
impl EventSink for SharedLog {
    fn emit(&self, event: Event) {
        self.write(match event {
            Event::ToolStarted { operation, tool, .. } => {
                format!("{} {} started", operation.call.0, tool.name())
            }
            Event::ToolProgress { operation, progress } => {
                let text = match progress {
                    CallProgress::Output(text) | CallProgress::Message(text) => text,
                    CallProgress::Part { fraction, message } => {
                        format!("{fraction} {}", message.unwrap_or_default())
                    }
                    CallProgress::Amount(amount) => amount.text(),
                };
                format!("{} progress {text}", operation.call.0)
            }
            Event::ToolFinished { operation, tool, failure, .. } => {
                let end = failure.map_or("ok", ToolErrorKind::name);
                format!("{} {} finished {end}", operation.call.0, tool.name())
            }
            Event::ModelStarted { id, .. } | Event::ModelFinished { id, .. } => format!("{id} asks a model"),
            Event::Run { place, event } => format!("turn {} {}", place.turn, event.name()),
        });
    }
}

pub(crate) struct FakeProvider {
    kind: ProviderKind,
    namespace: Namespace,
    tools: Arc<[ToolDefinition]>,
    calls: AtomicUsize,
    log: SharedLog,
    /// The digest of the provider's settings. Without it, the provider's outputs are cached only in memory.
    source: Option<Digest>,
}

impl FakeProvider {
    /// Returns a provider of built-in tools with all behaviours.
    pub(crate) fn builtins(log: SharedLog) -> Self {
        let tools = [
            ("echo", Effects::ReadOnly, schema(&["text"])),
            ("store", Effects::Mutating, schema(&["text"])),
            ("fail", Effects::ReadOnly, json!({"type": "object"})),
            ("hang", Effects::ReadOnly, json!({"type": "object"})),
            ("partial", Effects::ReadOnly, json!({"type": "object"})),
            ("panic", Effects::ReadOnly, json!({"type": "object"})),
            ("panic_early", Effects::ReadOnly, json!({"type": "object"})),
            ("huge", Effects::ReadOnly, json!({"type": "object"})),
            ("huge_fail", Effects::ReadOnly, json!({"type": "object"})),
            ("rows", Effects::ReadOnly, json!({"type": "object"})),
            ("picture", Effects::ReadOnly, json!({"type": "object"})),
            ("note", Effects::ReadOnly, json!({"type": "object"})),
            ("slow_read", Effects::ReadOnly, schema(&["text"])),
            ("slow_write", Effects::Mutating, schema(&["text"])),
            ("flood", Effects::ReadOnly, json!({"type": "object"})),
            ("beat", Effects::ReadOnly, json!({"type": "object"})),
            ("count", Effects::ReadOnly, json!({"type": "object"})),
            ("count_fail", Effects::ReadOnly, json!({"type": "object"})),
            ("count_write", Effects::Mutating, json!({"type": "object"})),
            ("structured", Effects::ReadOnly, json!({"type": "object"})),
            ("unchecked", Effects::ReadOnly, json!({"type": "nonsense"})),
        ];
        Self::new(ProviderKind::Builtin, "fake", &tools, log)
    }

    pub(crate) fn new(
        kind: ProviderKind,
        namespace: &str,
        tools: &[(&str, Effects, Value)],
        log: SharedLog,
    ) -> Self {
        let tools =
            tools.iter().map(|(name, effects, schema)| definition(name, *effects, schema.clone())).collect();
        let (namespace, calls) = (Namespace::new(namespace).unwrap(), AtomicUsize::new(0));
        Self { kind, namespace, tools, calls, log, source: None }
    }

    pub(crate) fn with_source(self, source: Option<Digest>) -> Self {
        Self { source, ..self }
    }

    async fn perform(
        &self,
        tool: &str,
        arguments: &ValidArguments,
        cx: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        let text = arguments.value().get("text").and_then(Value::as_str).unwrap_or_default();
        match tool {
            "fail" => Err(ToolError::new(ToolErrorKind::Failed, "it failed")),
            "hang" => {
                let _undo = CleanupMarker(self.log.clone());
                cx.note("sandbox", json!("active"));
                std::future::pending().await
            }
            "partial" => {
                cx.progress(CallProgress::Output("half".into()));
                tokio::time::sleep_until(cx.time_limit.unwrap().deadline.into()).await;
                // The tool simulates that stopping a process takes a moment.
                tokio::time::sleep(Duration::from_millis(5)).await;
                Ok(ToolOutput::text("half of it"))
            }
            "panic" => panic!("secret detail"),
            "huge" => Ok(ToolOutput::text("é".repeat(1_000_000))),
            "rows" => {
                Ok(ToolOutput::text(json!(vec![json!({"name": "row", "of": 1_000}); 1_000]).to_string()))
            }
            "picture" => Ok(ToolOutput { content: pictures(), ..ToolOutput::default() }),
            "huge_fail" => Err(ToolError::new(ToolErrorKind::Failed, "é".repeat(1_000_000))),
            "note" => {
                cx.note("sandbox", json!({"layers": 2}));
                Ok(ToolOutput::text("noted"))
            }
            "flood" => {
                let message = Some("a quarter".to_owned());
                for _ in 0..1_000 {
                    cx.progress(CallProgress::Part { fraction: 0.25, message: message.clone() });
                }
                Ok(ToolOutput::text("flooded"))
            }
            "beat" => {
                for beat in 0..10 {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    cx.progress(CallProgress::Message(beat.to_string()));
                }
                std::future::pending().await
            }
            // Each call returns a new number, so an answer identifies the call that produced it.
            "count" | "count_write" | "count_fail" => {
                let number = self.calls.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(1)).await;
                match tool {
                    "count_fail" => Err(ToolError::new(ToolErrorKind::Failed, number.to_string())),
                    _ => Ok(ToolOutput::text(number.to_string())),
                }
            }
            "structured" => {
                let structured = Some(json!({"rows": vec!["row"; 100]}));
                Ok(ToolOutput { structured, ..ToolOutput::text("rows") })
            }
            "slow_read" | "slow_write" => {
                self.log.write(format!("{text} in"));
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.log.write(format!("{text} out"));
                Ok(ToolOutput::text(text))
            }
            _ => Ok(ToolOutput::text(format!("{tool}: {text}"))),
        }
    }
}

impl ToolProvider for FakeProvider {
    fn kind(&self) -> ProviderKind {
        self.kind
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.tools)
    }

    fn source_digest(&self, _: &ToolName, _: &ValidArguments) -> Option<Digest> {
        self.source
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        assert_ne!(tool.as_str(), "panic_early", "secret detail");
        Box::pin(self.perform(tool.as_str(), arguments, cx))
    }
}

/// Returns a small image, an image that is too large to show, and binary data.
fn pictures() -> Vec<OutputContent> {
    let gif = |bytes: usize| [b"GIF89a\x05\0\x07\0".as_slice(), &vec![0; bytes]].concat();
    let image =
        |bytes: usize| OutputContent::Image { media_type: "image/gif".into(), bytes: gif(bytes).into() };
    let binary = OutputContent::Binary { uri: None, media_type: None, bytes: [0; 5].into() };
    vec![OutputContent::Text("pictures".into()), image(1), image(6 << 20), binary]
}

/// A server whose tool list can change at any time. Its tools echo their input.
pub(crate) struct ChangingProvider {
    namespace: Namespace,
    tools: Mutex<Arc<[ToolDefinition]>>,
    changes: ChangeCounter,
}

impl ChangingProvider {
    pub(crate) fn new(namespace: &str, tools: &[&str]) -> Arc<Self> {
        let namespace = Namespace::new(namespace).unwrap();
        Arc::new(Self { namespace, tools: Mutex::new(listed(tools)), changes: ChangeCounter::default() })
    }

    /// Replaces the list and announces the change.
    pub(crate) fn list(&self, tools: &[&str]) {
        self.list_quietly(tools);
        self.changes.announce();
    }

    pub(crate) fn list_quietly(&self, tools: &[&str]) {
        *self.tools.lock().unwrap() = listed(tools);
    }
}

fn listed(tools: &[&str]) -> Arc<[ToolDefinition]> {
    tools.iter().map(|name| definition(name, Effects::ReadOnly, json!({"type": "object"}))).collect()
}

impl ToolProvider for ChangingProvider {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Mcp
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.tools.lock().unwrap())
    }

    fn changes(&self) -> Option<&ChangeCounter> {
        Some(&self.changes)
    }

    /// Changes the list during a search, if the server has the tool `shy`.
    fn is_shown(&self, _: &RunContext) -> bool {
        if self.tools().iter().any(|tool| tool.name.as_str() == "shy") {
            self.list(&["shifted"]);
        }
        true
    }

    fn instructions(&self) -> Option<Arc<str>> {
        (self.namespace.as_str() == "garden").then(|| "Water in the evening. Never at noon.".into())
    }

    /// Calls a tool. `shift` changes the list during its call.
    fn call<'a>(
        &'a self,
        tool: &'a ToolName,
        _: &'a ValidArguments,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            if tool.as_str() == "shift" {
                self.list(&["shifted"]);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok(ToolOutput::text(format!("{}/{tool}", self.namespace)))
        })
    }
}

/// Records that the provider's cleanup ran when its call was dropped.
struct CleanupMarker(SharedLog);

impl Drop for CleanupMarker {
    fn drop(&mut self) {
        self.0.write("undone");
    }
}

/// Returns an object schema whose properties are all required strings.
pub(crate) fn schema(properties: &[&str]) -> Value {
    let declared: serde_json::Map<_, _> =
        properties.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    json!({"type": "object", "properties": declared, "required": properties, "additionalProperties": false})
}

pub(crate) fn definition(name: &str, effects: Effects, input_schema: Value) -> ToolDefinition {
    // `echo` acts as a shell, so that rules on commands can be tested.
    let command_argument = (name == "echo").then_some("text");
    let facts = ToolFacts { command_argument, ..ToolFacts::default() };
    ToolDefinition::new(name, String::new(), input_schema).with_effects(effects).with_facts(facts)
}

/// An orchestrator with the run for which it makes calls. It has the same methods for executing calls, and each of them
/// adds the context of the run.
#[derive(Clone)]
pub(crate) struct TestRig {
    orchestrator: Arc<Orchestrator>,
    context: Arc<RunContext>,
}

impl TestRig {
    pub(crate) fn new(orchestrator: Orchestrator, context: RunContext) -> Self {
        Self { orchestrator: Arc::new(orchestrator), context: Arc::new(context) }
    }

    /// Returns the same orchestrator for another run.
    pub(crate) fn with(&self, context: RunContext) -> Self {
        Self { orchestrator: Arc::clone(&self.orchestrator), context: Arc::new(context) }
    }

    pub(crate) fn context(&self) -> &RunContext {
        &self.context
    }

    pub(crate) async fn execute(&self, call: ToolCall) -> ToolResult {
        self.execute_with(call, CallOptions::default()).await
    }

    pub(crate) async fn execute_with(&self, call: ToolCall, options: CallOptions) -> ToolResult {
        self.orchestrator.execute_with(call, self.options(options)).await
    }

    pub(crate) async fn execute_all(&self, calls: Vec<ToolCall>, options: CallOptions) -> Vec<ToolResult> {
        self.orchestrator.execute_all(calls, self.options(options)).await
    }

    pub(crate) fn execute_in_turn(
        &self,
        order: &EffectOrder,
        call: ToolCall,
        options: CallOptions,
    ) -> impl Future<Output = ToolResult> + Send {
        self.orchestrator.execute_in_turn(order, call, self.options(options))
    }

    fn options(&self, options: CallOptions) -> CallOptions {
        CallOptions { context: Arc::clone(&self.context), ..options }
    }
}

impl Deref for TestRig {
    type Target = Orchestrator;

    fn deref(&self) -> &Orchestrator {
        &self.orchestrator
    }
}

/// Returns an orchestrator with the built-in tools, and one log for its events and the actions of the tools.
pub(crate) fn orchestrator() -> (TestRig, SharedLog) {
    orchestrator_with(ToolPolicies::default())
}

pub(crate) fn orchestrator_with(policies: ToolPolicies) -> (TestRig, SharedLog) {
    orchestrator_from(OrchestratorConfig { policies, ..Default::default() })
}

pub(crate) fn orchestrator_from(config: OrchestratorConfig) -> (TestRig, SharedLog) {
    orchestrator_for(RunContext::default(), config)
}

/// Returns an orchestrator for this run, and the log of the run's events.
pub(crate) fn orchestrator_for(context: RunContext, config: OrchestratorConfig) -> (TestRig, SharedLog) {
    let log = SharedLog::default();
    let catalog = Catalog::new(vec![Arc::new(FakeProvider::builtins(log.clone()))], NamingScheme::Double);
    let context = RunContext { events: Arc::new(log.clone()), ..context };
    (TestRig::new(Orchestrator::try_new(catalog, config).unwrap(), context), log)
}

/// Returns a configuration with a changed default policy.
pub(crate) fn config(change: impl FnOnce(&mut ToolPolicy)) -> OrchestratorConfig {
    let mut config = OrchestratorConfig::default();
    change(&mut config.policies.default);
    config
}

pub(crate) fn call(name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: CallId("c1".into()), name: name.into(), arguments: RawArguments::from_text(arguments) }
}

/// Returns `kind: message` for an error, or the text of an output.
pub(crate) fn said(result: &ToolResult) -> String {
    match &result.outcome {
        Ok(output) => output.as_text(),
        Err(error) => error.to_string(),
    }
}
