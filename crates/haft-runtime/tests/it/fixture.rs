//! A home directory, a scripted model server, tools that count their calls, and runtimes that use them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use haft_config::LoadedConfig;
use haft_config::agents::graph::AgentGraph;
use haft_config::agents::{AgentOverrides, loader};
use haft_core::event_log::{EventEnvelope, LogEvent};
use haft_core::home::Home;
use haft_core::name::Namespace;
use haft_core::output::ToolOutput;
use haft_core::provider::CallContext;
use haft_core::result::ToolError;
use haft_core::tool::{Effects, ToolDefinition};
use haft_core::validate::ValidArguments;
use haft_model_server::{ModelServer, Script, ScriptStep, StepOrder};
use haft_runtime::{
    EventSeq, RunHandle, RunOutcome, RunSpec, RunState, Runtime, RuntimeBuilder, RuntimeConfig, WorkspaceSpec,
};
use haft_tools::registry::{Registry, Tool};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct RuntimeFixture {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) model: ModelServer,
    /// The URL of the model server that new runs use.
    url: Arc<Mutex<String>>,
    pub(crate) calls: Arc<NoteToolCalls>,
}

/// The calls that reached the tool `note`.
#[derive(Default)]
pub(crate) struct NoteToolCalls {
    pub(crate) count: AtomicU32,
    pub(crate) texts: Mutex<Vec<String>>,
    shutdowns: AtomicU32,
}

impl NoteToolCalls {
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    pub(crate) fn shutdowns(&self) -> u32 {
        self.shutdowns.load(Ordering::SeqCst)
    }
}

/// A tool that notes a text. The call changes data, so it must never be made twice.
pub(crate) struct NoteTool(pub(crate) Arc<NoteToolCalls>);

impl Tool for NoteTool {
    fn definition(&self) -> ToolDefinition {
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        ToolDefinition::new("note", "Notes a text.", schema).with_effects(Effects::Mutating)
    }

    async fn call(&self, arguments: &ValidArguments, cx: &CallContext) -> Result<ToolOutput, ToolError> {
        let number = self.0.count.fetch_add(1, Ordering::SeqCst) + 1;
        let text = arguments.value().get("text").and_then(Value::as_str).unwrap_or_default();
        self.0.texts.lock().unwrap().push(format!("{}: {text}", cx.run.principal));
        Ok(ToolOutput::text(format!("noted as number {number}")))
    }

    async fn shutdown(&self) {
        self.0.shutdowns.fetch_add(1, Ordering::SeqCst);
    }
}

/// A tool that reads a counter. The operator allows its answers to be cached.
pub(crate) struct LookTool(pub(crate) Arc<NoteToolCalls>);

impl Tool for LookTool {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition::new("look", "Looks at the counter.", json!({"type": "object"}))
            .with_effects(Effects::ReadOnly)
    }

    async fn call(&self, _: &ValidArguments, _: &CallContext) -> Result<ToolOutput, ToolError> {
        let number = self.0.count.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(ToolOutput::text(format!("look number {number}")))
    }
}

/// A tool whose output is too large for a conversation.
struct LongOutputTool;

impl Tool for LongOutputTool {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition::new("long", "Gives a long text.", json!({"type": "object"}))
            .with_effects(Effects::ReadOnly)
    }

    async fn call(&self, _: &ValidArguments, _: &CallContext) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text("a line of a long text\n".repeat(1_000)))
    }
}

impl RuntimeFixture {
    pub(crate) fn new(steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        Self::scripted(Script::of(steps))
    }

    pub(crate) fn scripted(script: Script) -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir(directory.path().join("ws")).unwrap();
        let model = ModelServer::start(script).unwrap();
        let url = Arc::new(Mutex::new(model.url()));
        let fixture = Self { directory, model, url, calls: Arc::default() };
        haft_config::home::create(&fixture.home()).unwrap();
        fixture
    }

    /// Creates a fixture whose model server takes these steps in order, no matter which run sends the request.
    pub(crate) fn in_order(steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        Self::scripted(Script::of(steps).in_order(StepOrder::Strict))
    }

    /// Makes later runs use another model server.
    pub(crate) fn ask(&self, model: &ModelServer) {
        *self.url.lock().unwrap() = model.url();
    }

    /// Puts a proxy in front of the model server. Returns the counter of the connections that the proxy has accepted.
    pub(crate) async fn count_connections(&self) -> Arc<AtomicU32> {
        let server = self.model.url().trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        *self.url.lock().unwrap() = format!("http://{}", listener.local_addr().unwrap());
        let accepted = Arc::<AtomicU32>::default();
        let count = Arc::clone(&accepted);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let mut server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
            }
        });
        accepted
    }

    pub(crate) fn home(&self) -> Home {
        Home::at(&self.directory.path().join("home"))
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.directory.path().join("ws")
    }

    /// Returns a builder for a runtime with the program's tools and this configuration.
    pub(crate) fn builder(&self, config: &Value) -> RuntimeBuilder {
        self.builder_over(self.load(config))
    }

    pub(crate) fn load(&self, config: &Value) -> LoadedConfig {
        let file = self.directory.path().join("haft.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let sources = haft_config::ConfigSources { home: None, project: None, named: Some(&file) };
        haft_config::load(sources, &|_| None).unwrap()
    }

    pub(crate) fn builder_over(&self, config: impl Into<RuntimeConfig>) -> RuntimeBuilder {
        let registry = Registry::new(Namespace::new("app").unwrap());
        registry.register(NoteTool(Arc::clone(&self.calls))).unwrap();
        registry.register(LookTool(Arc::clone(&self.calls))).unwrap();
        registry.register(LongOutputTool).unwrap();
        let url = Arc::clone(&self.url);
        let variables = move |name: &str| match name {
            "OPENAI_BASE_URL" => Some(format!("{}/v1", url.lock().unwrap())),
            "OPENAI_API_KEY" => Some("k".to_owned()),
            _ => None,
        };
        Runtime::builder(config).home(self.home()).variables(Arc::new(variables)).tools(Arc::new(registry))
    }

    pub(crate) async fn runtime(&self, config: &Value) -> Runtime {
        self.builder(config).build().await.unwrap()
    }

    pub(crate) fn spec(&self, request: &str) -> RunSpec {
        self.spec_of(
            "---\nmodels: openai/m\ntools: [note, look, long, tool_output]\n---\nYou work.\n",
            request,
        )
    }

    /// Returns a run of the first of these agent files, which may name the others.
    pub(crate) fn spec_of_files(&self, files: &[(&str, &str)], request: &str) -> RunSpec {
        for (name, text) in files {
            std::fs::write(self.directory.path().join(name), text).unwrap();
        }
        let loader = loader::AgentLoader::default();
        let first = loader.open(&self.directory.path().join(files[0].0)).unwrap();
        let graph = AgentGraph::gather(first, &loader).unwrap();
        RunSpec::new(&graph, request, WorkspaceSpec::at(self.workspace()))
    }

    pub(crate) fn spec_of(&self, agent: &str, request: &str) -> RunSpec {
        let agent = loader::of_text("agent.md", agent, &AgentOverrides::default()).unwrap();
        let graph = AgentGraph::gather(agent, &loader::AgentLoader::default()).unwrap();
        RunSpec::new(&graph, request, WorkspaceSpec::at(self.workspace()))
    }
}

/// Returns a configuration in which calls of `note` wait for approval.
pub(crate) fn asking() -> Value {
    json!({"policy": {"rules": [{"tool": "note", "decision": "ask"}]}})
}

pub(crate) fn note(text: &str) -> ScriptStep {
    ScriptStep::call("note", json!({ "text": text }))
}

pub(crate) async fn finished(run: &RunHandle) -> RunOutcome {
    match run.wait().await.unwrap() {
        RunState::Finished(outcome) => *outcome,
        other @ (RunState::Parked(_) | RunState::Suspended) => panic!("{other:?}"),
    }
}

pub(crate) fn answer(outcome: &RunOutcome) -> String {
    outcome.finish.answer.as_ref().map(haft_core::run::finish::RunAnswer::text).unwrap_or_default()
}

/// Returns all events of a finished run.
pub(crate) async fn events(run: &RunHandle) -> Vec<Arc<EventEnvelope>> {
    let mut reader = run.events(EventSeq::START);
    let mut found = Vec::new();
    while let Some(event) = reader.next().await {
        found.push(event.unwrap());
    }
    found
}

/// Returns the kinds of these events, without deltas.
pub(crate) fn kinds(events: &[Arc<EventEnvelope>]) -> Vec<String> {
    let kind = |event: &Arc<EventEnvelope>| {
        let value = serde_json::to_value(&event.event.kind).unwrap();
        value["type"].as_str().unwrap().to_owned()
    };
    let is_delta = |event: &&Arc<EventEnvelope>| matches!(event.event.kind, LogEvent::TextDelta { .. });
    events.iter().filter(|event| !is_delta(event)).map(kind).collect()
}

/// Returns a tokio runtime that simulates a process: dropping it ends all its tasks.
pub(crate) fn process() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns the results of all calls of a run.
pub(crate) async fn results(run: &RunHandle) -> Vec<String> {
    assert_eq!(answer(&finished(run).await), "done");
    let events = events(run).await;
    let results = events.iter().filter_map(|event| match &event.event.kind {
        LogEvent::ToolResult { text, .. } => Some(text.clone()),
        _ => None,
    });
    results.collect()
}

/// An MCP server whose only tool returns a name that is unique to its process.
pub(crate) const PROCESS_SERVER: &str = r#"
import json, random, sys
me = str(random.getrandbits(64))
for line in sys.stdin:
    request = json.loads(line)
    result = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "process", "version": "1"}},
        "tools/list": {"tools": [{"name": "name", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "process " + me}]},
    }.get(request.get("method"))
    reply = {"error": {"code": -32601, "message": "unknown method"}} if result is None else {"result": result}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}), flush=True)
"#;
