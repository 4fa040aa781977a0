//! A home directory, a model server, keys, and a haft server on its own port.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use haft_config::agents::loader::AgentLoader;
use haft_config::resolved::ServeSettings;
use haft_core::home::Home;
use haft_model_server::{ModelServer, Script};
use haft_runtime::{Runtime, Stores, WorkspaceSpec};
use haft_server::{AgentCatalog, AuthMode, OperatorLog, Server, ServerSettings, WebSocketTimes};
use haft_store::api_keys::{ApiKeyStore, KeyLimits, KeyScope, NewApiKey};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime as Executor;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server that runs on its own threads until it is dropped.
pub(crate) struct TestServer {
    pub(crate) url: String,
    pub(crate) key: String,
    pub(crate) store: ApiKeyStore,
    pub(crate) model: ModelServer,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
    options: ServerOptions,
    /// This field is dropped after `stop`, so that the server ends before its threads do.
    pub(crate) executor: Executor,
    directory: TempDir,
}

/// The settings of a server that are not in its configuration.
#[derive(Debug, Clone)]
pub(crate) struct ServerOptions {
    pub(crate) auth: AuthMode,
    pub(crate) allowed_origins: Vec<String>,
    pub(crate) log: OperatorLog,
    pub(crate) websocket: WebSocketTimes,
    /// The time for which a stopping server waits for its responses; `None` for the default of `haft serve`.
    pub(crate) drain_timeout: Option<Duration>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            auth: AuthMode::Keys,
            allowed_origins: Vec::new(),
            log: OperatorLog::default(),
            websocket: WebSocketTimes::default(),
            drain_timeout: None,
        }
    }
}

/// The files of a server, and the model server behind it.
pub(crate) struct ServerFiles {
    pub(crate) key: String,
    pub(crate) model: ModelServer,
    store: ApiKeyStore,
    directory: TempDir,
}

impl ServerFiles {
    pub(crate) fn new(script: Script, config: &Value, agents: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let home = home(directory.path());
        haft_config::home::create(&home).unwrap();
        std::fs::create_dir_all(home.root().join("agents")).unwrap();
        for (name, text) in agents {
            std::fs::write(home.root().join("agents").join(format!("{name}.md")), text).unwrap();
        }
        std::fs::write(directory.path().join("haft.json"), config.to_string()).unwrap();
        // The HTTP client of the tests needs a crypto provider. Ignore the error if one is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let model = ModelServer::start(script).unwrap();
        let store = ApiKeyStore::of(&home);
        let key = key(&store, "default", "local", None);
        Self { key, model, store, directory }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }
}

fn home(directory: &Path) -> Home {
    Home::at(&directory.join("home"))
}

/// Serves these files on a free port, prints the address, and never returns.
pub(crate) fn serve_until_killed(directory: &Path, model: String) {
    haft_testkit::raise_file_limit();
    let executor = Executor::new().unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = executor.block_on(bind(directory, model, ServerOptions::default()));
    let address = format!("http://{}\n", server.address());
    std::io::stdout().write_all(address.as_bytes()).unwrap();
    executor.block_on(server.run(std::future::pending()));
}

/// A reply in a form that is easy to check.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

/// The timeout for the head and the body of a request. It is short, because a test waits for it; no client of the tests
/// pauses within a head or a body.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// The time for which the runtime keeps idle agents. It is longer than any test, as the time of `haft serve` is longer
/// than the pause between two requests.
const IDLE_AGENT_MAX: Duration = Duration::from_mins(1);

/// The maximum number of connections, unless a test configures another one. The number is small, because a test opens
/// all these connections.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// The agent that most tests use.
const AGENT: &str = "---\ndescription: Answers.\nmodels: openai/m\ntools: []\n---\nYou answer.\n";

impl TestServer {
    pub(crate) fn start(script: Script) -> Self {
        Self::with_options(script, ServerOptions::default())
    }

    pub(crate) fn with_options(script: Script, options: ServerOptions) -> Self {
        let config = json!({"models": {"default": "openai/m"}});
        Self::build(script, &config, &[("helper", AGENT)], options)
    }

    pub(crate) fn configured(script: Script, config: &Value, agents: &[(&str, &str)]) -> Self {
        Self::build(script, config, agents, ServerOptions::default())
    }

    pub(crate) fn configured_with(script: Script, config: &Value, options: ServerOptions) -> Self {
        Self::build(script, config, &[], options)
    }

    fn build(script: Script, config: &Value, agents: &[(&str, &str)], options: ServerOptions) -> Self {
        let ServerFiles { key, model, store, directory } = ServerFiles::new(script, config, agents);
        let executor = Executor::new().unwrap();
        let url = String::new();
        let (stop, running) = (None, None);
        let mut server = Self { url, key, store, model, stop, running, options, executor, directory };
        server.begin();
        server
    }

    fn begin(&mut self) {
        let server =
            self.executor.block_on(bind(self.directory.path(), self.model.url(), self.options.clone()));
        self.url = format!("http://{}", server.address());
        let (stop, stopped) = oneshot::channel::<()>();
        self.stop = Some(stop);
        self.running = Some(self.executor.spawn(server.run(async move { drop(stopped.await) })));
    }

    /// Asks the server to stop, like SIGTERM.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Stops the server, waits until it has ended, and starts another one with the same files.
    pub(crate) fn restart(&mut self) {
        self.stop_and_wait();
        self.begin();
    }

    /// Stops the server, and starts another one with the same files and other options.
    pub(crate) fn restart_with(&mut self, options: ServerOptions) {
        self.stop_and_wait();
        self.options = options;
        self.begin();
    }

    /// Stops the server and waits until it has ended.
    pub(crate) fn stop_and_wait(&mut self) {
        self.stop();
        if let Some(running) = self.running.take() {
            self.executor.block_on(running).unwrap();
        }
    }

    /// Starts another server with the same files, without waiting for the runs of this one.
    pub(crate) fn restart_at_once(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
        }
        drop(self.stop.take());
        self.begin();
    }

    /// Returns a request with the key of the server.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.without_key(method, path).bearer_auth(&self.key)
    }

    pub(crate) fn without_key(&self, method: Method, path: &str) -> RequestBuilder {
        reqwest::Client::new().request(method, format!("{}{path}", self.url))
    }

    pub(crate) fn send(&self, request: RequestBuilder) -> Reply {
        self.executor.block_on(async {
            let response = request.send().await.unwrap();
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            Reply { status, headers, text: response.text().await.unwrap() }
        })
    }

    /// Returns the directory of haft's data.
    pub(crate) fn data(&self) -> std::path::PathBuf {
        home(self.directory.path()).data()
    }

    /// Returns the files of the whole home that contain a string.
    pub(crate) fn files_with(&self, text: &str) -> Vec<String> {
        let mut directories = vec![home(self.directory.path()).root().to_path_buf()];
        let mut found = Vec::new();
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    directories.push(entry.path());
                } else if std::fs::read(entry.path())
                    .unwrap()
                    .windows(text.len())
                    .any(|part| part == text.as_bytes())
                {
                    found.push(entry.path().display().to_string());
                }
            }
        }
        found
    }

    /// Makes a stored response older than the lifetimes of approval requests and idempotency keys.
    pub(crate) fn make_old(&self, response: &Value) {
        let id = response["id"].as_str().unwrap();
        let mut paths = self.files_with(id).into_iter();
        let path = paths.find(|path| path.ends_with(&format!("/{id}.json"))).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        // The events of the response follow its record.
        let (record, events) = text.split_at(text.find('\n').unwrap_or(text.len()));
        let mut record: Value = serde_json::from_str(record).unwrap();
        record["created_ms"] = (record["created_ms"].as_u64().unwrap() - 25 * 3_600_000).into();
        std::fs::write(path, format!("{record}{events}")).unwrap();
    }

    /// Returns the lines of a file in haft's data.
    pub(crate) fn data_lines(&self, file: &str) -> Vec<Value> {
        let path = home(self.directory.path()).data().join(file);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send(self.request(Method::GET, path))
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

/// Creates a key and returns its secret.
pub(crate) fn key(store: &ApiKeyStore, tenant: &str, subject: &str, expires_ms: Option<u64>) -> String {
    let new = NewApiKey {
        name: "test".into(),
        tenant: tenant.into(),
        subject: subject.into(),
        scopes: vec![KeyScope::Api],
        expires_ms,
        limits: KeyLimits::default(),
    };
    store.create(new, 1).unwrap().1.expose().to_owned()
}

/// Creates a key of the usual subject with these scopes, and returns its secret.
pub(crate) fn scoped_key(store: &ApiKeyStore, scopes: &[KeyScope]) -> String {
    let new = NewApiKey {
        name: "scoped".into(),
        tenant: "default".into(),
        subject: "local".into(),
        scopes: scopes.to_vec(),
        expires_ms: None,
        limits: KeyLimits::default(),
    };
    store.create(new, 1).unwrap().1.expose().to_owned()
}

/// Creates a key of the usual subject with these limits, and returns its secret.
pub(crate) fn limited_key(store: &ApiKeyStore, limits: KeyLimits) -> String {
    let new = NewApiKey {
        name: "limited".into(),
        tenant: "default".into(),
        subject: "local".into(),
        scopes: vec![KeyScope::Api],
        expires_ms: None,
        limits,
    };
    store.create(new, 1).unwrap().1.expose().to_owned()
}

async fn bind(directory: &Path, model: String, options: ServerOptions) -> Server {
    let (home, file) = (home(directory), directory.join("haft.json"));
    let sources = haft_config::ConfigSources { home: None, project: None, named: Some(&file) };
    let resolved = haft_config::load(sources, &|_| None).unwrap().resolved;
    let variables = move |name: &str| match name {
        "OPENAI_BASE_URL" => Some(format!("{model}/v1")),
        "ANTHROPIC_BASE_URL" | "GOOGLE_GEMINI_BASE_URL" => Some(model.clone()),
        "OPENAI_API_KEY" | "ANTHROPIC_API_KEY" | "GEMINI_API_KEY" => Some("k".to_owned()),
        _ => None,
    };
    let (agents, warnings) = AgentCatalog::load(&AgentLoader::new(Some(home.clone()), None));
    assert!(warnings.is_empty(), "{warnings:?}");
    let workspace = WorkspaceSpec::at(home.workspace());
    let mut serve = resolved.serve.clone();
    if serve.connections_max == ServeSettings::default().connections_max {
        serve.connections_max = CONNECTIONS_MAX;
    }
    let stores = Stores::at(&home).syncing_together();
    let builder = Runtime::builder(resolved).stores(stores).home(home).variables(Arc::new(variables));
    let runtime = builder.keep_idle_agents(IDLE_AGENT_MAX).build().await.unwrap();
    let usual = ServerSettings::at("127.0.0.1:0".parse().unwrap(), workspace);
    let settings = ServerSettings {
        head_timeout: HEAD_TIMEOUT,
        body_timeout: HEAD_TIMEOUT,
        serve,
        auth: options.auth,
        allowed_origins: options.allowed_origins,
        log: options.log,
        websocket: options.websocket,
        drain_timeout: options.drain_timeout.unwrap_or(usual.drain_timeout),
        ..usual
    };
    Server::bind(settings, runtime, agents).await.unwrap()
}
