//! The short way to use haft: an agent, its tools and servers, and one answer.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use haft_config::agents::graph::{AgentGraph, AgentGraphError};
use haft_config::agents::{AgentError, AgentOverrides, loader};
use haft_config::{ConfigErrors, resolved};
use haft_core::home::Home;
use haft_core::model_provider::ModelProvider;
use haft_core::name::Namespace;
use haft_core::run::finish::{FinishClass, RunAnswer};
use haft_runtime::executor::McpServer;
use haft_runtime::runtime::{NoHome, StartError};
use haft_runtime::{
    AnswerSource, RunDefect, RunHooks, RunOutcome, RunSecrets, RunSpec, Runtime, SessionStorage,
    WorkspaceSpec,
};
use haft_tools::registry::{AlreadyRegistered, Registry, Tool};

/// An agent that a program builds and sends a request to.
///
/// The agent has only the tools of the program and of the MCP servers that were added. Add `builtin_tools` for the
/// shell and files. Calls for which the operator's rules require approval are denied; use a [`Runtime`] to approve
/// them.
#[derive(Debug)]
pub struct Agent {
    model: String,
    system: String,
    registry: Registry,
    error: Option<AgentBuildError>,
    servers: Vec<McpServer>,
    builtin: bool,
    workspace: Option<PathBuf>,
    home: Option<Home>,
    models: Option<BroughtModels>,
}

/// A model provider that the program supplies.
struct BroughtModels(Arc<dyn ModelProvider>);

impl fmt::Debug for BroughtModels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// The reason why an agent gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AgentRunError {
    /// The agent could not be built. No model request was sent.
    #[error("{0}")]
    Build(AgentBuildError),
    /// The agent was built, but its run did not start.
    #[error("{0}")]
    Start(StartError),
    /// The run stopped because of an internal error of haft, not because of a model or a tool.
    #[error("{0}")]
    Defect(RunDefect),
    /// The run ended without an answer: the finish reason, and its details.
    #[error("the run ended without an answer ({reason}){}", after_colon(.detail))]
    NoAnswer {
        /// The name of the finish reason, such as `max_turns`.
        reason: String,
        /// The details, for a person. They may be empty.
        detail: String,
    },
}

fn after_colon(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

/// The reason why an agent cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum AgentBuildError {
    /// Two tools of the program have the same name.
    #[error("{0}")]
    Tool(AlreadyRegistered),
    /// The definition of an MCP server that the embedding program added is invalid.
    #[error("MCP server `{name}`: {reason}")]
    Server {
        /// The name that the program gave to the server.
        name: String,
        /// The problem with the definition.
        reason: String,
    },
    /// The built-in default configuration is invalid.
    #[error("{0}")]
    Config(ConfigErrors),
    /// The system text is not a valid agent file.
    #[error("{0}")]
    Agent(AgentError),
    /// The agent refers to agents that cannot be loaded, or the references form a cycle.
    #[error("{0}")]
    Graph(AgentGraphError),
    /// No home directory was set, and neither `$HAFT_HOME` nor the user's home directory is known.
    #[error("{0}")]
    Home(NoHome),
    /// haft's home directory or the workspace could not be created.
    #[error("haft cannot create its home directory or the workspace: {0}")]
    Workspace(std::io::Error),
}

impl Agent {
    /// Creates an agent that uses this model, written as `provider/model`.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            system: String::new(),
            registry: Registry::new(Namespace::sanitize("app")),
            error: None,
            servers: Vec::new(),
            builtin: false,
            workspace: None,
            home: None,
            models: None,
        }
    }

    /// Sets the text that the model gets before the request.
    #[must_use]
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.system = text.into();
        self
    }

    /// Adds a tool of the program.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        if let Err(error) = self.registry.register(tool) {
            self.error.get_or_insert(AgentBuildError::Tool(error));
        }
        self
    }

    /// Adds an MCP server. `command` is a program and its arguments, separated by spaces.
    #[must_use]
    pub fn mcp(mut self, name: &str, command: &str) -> Self {
        let mut words = command.split_whitespace();
        let program = words.next().unwrap_or_default();
        self.servers.push(McpServer::new(name, program, &words.collect::<Vec<_>>()));
        self
    }

    /// Adds the shell, files and the other built-in tools, confined to the workspace. The program must then call
    /// [`init`](crate::init) at the top of `main`.
    #[must_use]
    pub fn builtin_tools(mut self) -> Self {
        self.builtin = true;
        self
    }

    /// Sets the directory in which tools work. The default is `workspace` in haft's home directory.
    #[must_use]
    pub fn workspace(mut self, directory: impl Into<PathBuf>) -> Self {
        self.workspace = Some(directory.into());
        self
    }

    /// Sets haft's home directory. The default is `$HAFT_HOME`, or else `~/.haft`.
    #[must_use]
    pub fn home(mut self, directory: impl Into<PathBuf>) -> Self {
        self.home = Some(Home::at(&directory.into()));
        self
    }

    /// Sends model requests to this provider instead of the one in the model name.
    #[must_use]
    pub fn models(mut self, models: Arc<dyn ModelProvider>) -> Self {
        self.models = Some(BroughtModels(models));
        self
    }

    /// Works on a request and returns the text of the answer.
    pub async fn run(self, request: &str) -> Result<String, AgentRunError> {
        let (runtime, spec) = self.build(request).await.map_err(AgentRunError::Build)?;
        let hooks = RunHooks {
            approvals: AnswerSource::Denied,
            elicitations: AnswerSource::Denied,
            sessions: SessionStorage::None,
            ..RunHooks::default()
        };
        let run = runtime.start_with(spec, RunSecrets::none(), hooks).await.map_err(AgentRunError::Start)?;
        let outcome = run.finished().await.map_err(AgentRunError::Defect)?;
        run.closed().await;
        answer(outcome)
    }

    async fn build(self, request: &str) -> Result<(Runtime, RunSpec), AgentBuildError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut config = haft_config::defaults().map_err(AgentBuildError::Config)?;
        for server in &self.servers {
            let name = server.name.clone();
            let resolved: Result<resolved::McpServerSettings, String> = server.resolved();
            match resolved {
                Ok(resolved) => drop(config.mcp_servers.insert(name, resolved)),
                Err(reason) => return Err(AgentBuildError::Server { name, reason }),
            }
        }
        let tools: Vec<String> = self.tool_globs();
        let home = self.home.or_else(haft_runtime::home::find).ok_or(AgentBuildError::Home(NoHome))?;
        haft_config::home::create(&home).map_err(AgentBuildError::Workspace)?;
        let workspace = self.workspace.unwrap_or_else(|| home.workspace());
        std::fs::create_dir_all(&workspace).map_err(AgentBuildError::Workspace)?;
        let agent = loader::of_text("agent", &self.system, &AgentOverrides::default())
            .map_err(AgentBuildError::Agent)?;
        let graph =
            AgentGraph::gather(agent, &loader::AgentLoader::default()).map_err(AgentBuildError::Graph)?;
        let mut spec = RunSpec::new(&graph, request, WorkspaceSpec::at(workspace));
        spec.changes.models = vec![self.model];
        spec.changes.tools = Some(tools.iter().filter_map(|glob| glob.parse().ok()).collect());
        let mut builder = Runtime::builder(config).home(home).tools(Arc::new(self.registry));
        if let Some(BroughtModels(models)) = self.models {
            builder = builder.models(models);
        }
        Ok((builder.build().await.map_err(AgentBuildError::Home)?, spec))
    }

    /// Returns the patterns of the tools that the model sees.
    fn tool_globs(&self) -> Vec<String> {
        if self.builtin {
            return vec!["*".into()];
        }
        let tools = self.registry.list();
        let own = tools.iter().map(|tool| tool.name.to_string());
        let servers = self.servers.iter().map(|server| format!("{}__*", Namespace::sanitize(&server.name)));
        own.chain(servers).collect()
    }
}

fn answer(outcome: RunOutcome) -> Result<String, AgentRunError> {
    let row = outcome.finish.reason.row();
    match (row.class, &outcome.finish.answer) {
        (FinishClass::Answered, Some(answer)) => Ok(RunAnswer::text(answer)),
        _ => Err(AgentRunError::NoAnswer { reason: row.name.to_owned(), detail: outcome.finish.detail }),
    }
}
