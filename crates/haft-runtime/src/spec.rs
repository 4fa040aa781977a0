//! `RunSpec`: all values that are needed to start or continue a run on any machine. It contains no command-line
//! arguments, no current directory and no secrets.

mod stored;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haft_config::agents::graph::{AgentGraph, AgentGraphError, AgentGraphSource};
use haft_config::agents::{AgentDefinition, AgentError, AgentOverrides, DefaultText, ReportDelivery, loader};
use haft_config::expand::VariableSource;
use haft_config::project_instructions::InstructionFile;
use haft_core::conversation::{Media, Message};
use haft_core::glob::ToolGlob;
use haft_core::home::Home;
use haft_core::internal_tools::final_report::ReportShape;
use haft_core::model_request::ToolChoice;
use haft_core::principal::Principal;
use haft_core::run::caller_approvals::CallerApproval;
use haft_core::settings::limits::CommandLimits;
use haft_core::settings::mode::SandboxMode;
use haft_core::settings::sandbox::{GitMetadata, ResourceAccess};
use haft_sandbox::{PolicyError, SandboxPolicy, user_home};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use stored::{SPEC_VERSION, SpecError, StoredBlob, StoredSpec};

/// The definition of a run, in plain values.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSpec {
    /// The text for the agent. It is JSON for an agent with JSON input.
    pub request: String,
    /// The messages that the conversation begins with, up to the message that the model answers; empty if the request
    /// is the only message. The journal stores them as a part of the run, so a stored spec does not contain them.
    pub opening: Vec<Message>,
    /// The files of the agent and of all agents that it can reach.
    pub agents: AgentGraphSource,
    /// Changes to the agent that receives the request, for this run only.
    pub changes: AgentChanges,
    /// The skills that the request triggers. haft sets them when the run starts.
    pub skills: Vec<SkillSource>,
    /// The trusted instruction files of the project, which are added to the system text of every agent.
    pub instructions: Vec<InstructionFile>,
    /// Images that belong to the request.
    pub images: Vec<Media>,
    /// The directory that tools work in, and the sandbox around it.
    pub workspace: WorkspaceSpec,
    /// The tools that the model may or must call. If a call is required, it is required only until the model has made
    /// one.
    pub tool_choice: ToolChoice,
    /// The only tools that the model may call in any turn; `None` for no limit besides `tool_choice` and the limits of
    /// the agent. The names have the form of those in `tool_choice`.
    pub allowed_tools: Option<Vec<String>>,
    /// Functions that the caller runs. A call to such a function parks the run until the caller submits the output.
    pub functions: Vec<FunctionTool>,
    /// Calls that the caller wants to approve, in addition to the calls that the operator's rules ask about.
    pub approvals: Vec<CallerApproval>,
    /// The way in which the model is chosen.
    pub model_choice: ModelChoice,
    /// The owner of the run. Only the owner finds, lists and resumes it.
    pub principal: Principal,
    /// The idempotency key. Starting a second run with the same key returns the first run.
    pub idempotency_key: Option<String>,
    /// The names of the [`RunSecrets`] that the run was started with. A run that is resumed without one of them parks.
    pub secrets: BTreeSet<String>,
    /// The configuration files, for an interface that loads them again to continue the run.
    pub config: ConfigFiles,
    /// The generation of the configuration that the run was started under.
    pub generation: u64,
    /// Metadata of the caller, which haft stores but does not use.
    pub metadata: BTreeMap<String, String>,
}

/// Changes that a caller makes to an agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentChanges {
    /// The models as `provider/model`, in the order in which they are tried; empty for the agent's own models.
    pub models: Vec<String>,
    /// Replaces the system text of the agent file; an empty text removes the system text.
    pub system: Option<String>,
    /// Replaces the maximum number of turns of the agent.
    pub turns_max: Option<u32>,
    /// Replaces the time limit of the run.
    pub timeout: Option<Duration>,
    /// Replaces the list of the tools that the model sees.
    pub tools: Option<Vec<ToolGlob>>,
    /// Replaces the list of the tools that the model may call.
    pub allowed_tools: Option<Vec<String>>,
    /// Replaces the number of times that the model may continue a reply that reached the limit on output tokens.
    pub continuations_max: Option<u32>,
    /// The JSON Schema of the agent's answer.
    pub output_schema: Option<Arc<Value>>,
    /// Replacements for keys of the agent file.
    pub overrides: AgentOverrides,
}

/// The directory that tools work in, and the sandbox around it.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkspaceSpec {
    /// The directory that commands start in and may write to.
    pub directory: PathBuf,
    /// The sandbox mode. The fields below extend or restrict the access that it gives.
    pub mode: SandboxMode,
    /// Access to the network. `None` keeps the default of the mode.
    pub network: Option<ResourceAccess>,
    /// Access to Unix sockets. `None` keeps the default of the mode.
    pub unix_sockets: Option<ResourceAccess>,
    /// Selects whether tools may change git hooks and git configuration.
    pub git: GitMetadata,
    /// Further directories that tools may write to.
    pub writable: Vec<PathBuf>,
    /// Secrets of the user that tools may read despite the default protection.
    pub readable: Vec<PathBuf>,
    /// Paths that tools must not read, in addition to the built-in list of secrets.
    pub secrets: Vec<PathBuf>,
    /// Names of environment variables that commands see; their values are read when a command starts.
    pub environment: Vec<String>,
    /// Files that tools must not change, such as the active configuration files.
    pub protected: Vec<PathBuf>,
    /// The resource limits of one command.
    pub limits: CommandLimits,
    /// The part of the user's home directory that commands see.
    pub home: UserHomeView,
}

/// The part of the user's home directory that the commands of a run see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UserHomeView {
    /// The whole home directory except for the listed secrets.
    #[default]
    WithoutSecrets,
    /// The whole home directory except for the listed secrets. The home directory itself may be the workspace.
    AsWorkspace,
    /// Only the workspace and other granted directories, for a server whose principals are not the local user.
    Covered,
}

/// The files that the configuration of a run came from, in addition to the files in haft's home directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigFiles {
    /// The configuration file that the operator named.
    pub named: Option<PathBuf>,
    /// The directory of the project whose configuration the run uses.
    pub project: Option<PathBuf>,
}

/// A function that the caller runs.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionTool {
    /// The name that the model calls. It hides a tool of the same name.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of the function's arguments.
    pub parameters: Arc<Value>,
    /// True if the model provider must make the arguments follow the schema exactly. Most providers cannot do this.
    pub strict: bool,
}

/// The file of a skill, with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillSource {
    /// The path that the text was read from.
    pub file: PathBuf,
    /// The content of the file when the run started.
    pub text: String,
}

/// The way in which the model of a run is chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ModelChoice {
    /// Uses the caller's model, or the agent's, or the configured default, in this order.
    #[default]
    Named,
    /// The configured fast model decides whether it or the complex model works on the request.
    Routed,
}

/// Secrets of one run, by name. They take precedence over environment variables wherever the configuration or a
/// provider uses a variable, and are never stored.
#[derive(Debug, Clone, Default)]
pub struct RunSecrets(BTreeMap<String, SecretString>);

impl RunSecrets {
    /// Creates an empty set of secrets, so that every variable comes from the environment.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a secret, or replaces the secret with this name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<SecretString>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Adds an MCP server. The run gets its tools, with this label as the namespace.
    #[must_use]
    pub fn with_server(self, label: &str, server: &RequestedServer) -> Self {
        // A map of strings is always valid JSON.
        let text = serde_json::to_string(server).unwrap_or_default();
        self.with(format!("{SERVER_SECRET}{label}"), text)
    }

    /// Returns true if there are no secrets.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the secret with this name; `None` if the run was started without it.
    pub fn get(&self, name: &str) -> Option<&SecretString> {
        self.0.get(name)
    }

    /// Returns the names of the secrets without their values, so that they can be stored.
    pub fn names(&self) -> BTreeSet<String> {
        self.0.keys().cloned().collect()
    }
}

/// An MCP server that the caller names, with all data for a connection. It is a secret of the run, which is never
/// stored, because URL and headers may contain credentials.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedServer {
    /// The URL of the server, with the scheme http or https.
    pub url: String,
    /// The headers of every request, by name.
    pub headers: BTreeMap<String, String>,
}

/// The prefix of the name of a secret that contains the URL and headers of an MCP server.
const SERVER_SECRET: &str = "MCP server ";

impl RequestedServer {
    /// Reads the server with a label from the secrets of a run.
    pub(crate) fn of_variable(label: &str, variables: VariableSource<'_>) -> Result<Self, String> {
        let secret = variables(&format!("{SERVER_SECRET}{label}"))
            .ok_or("the secrets of the run do not contain the URL and headers of the MCP server")?;
        // Do not include the parser error, because it could show a part of the secret.
        serde_json::from_str(&secret).map_err(|_| {
            "haft cannot read the URL and headers of the MCP server in the secrets of the run".to_owned()
        })
    }
}

impl fmt::Debug for RequestedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestedServer").finish_non_exhaustive()
    }
}

/// Returns the labels of the MCP servers whose URLs and headers are in the secrets with these names.
pub fn requested_labels(secrets: &BTreeSet<String>) -> impl Iterator<Item = &str> {
    secrets.iter().filter_map(|name| name.strip_prefix(SERVER_SECRET))
}

impl RunSpec {
    /// Creates the spec of a run of an agent in a workspace, with defaults for all other fields.
    pub fn new(agents: &AgentGraph, request: impl Into<String>, workspace: WorkspaceSpec) -> Self {
        Self {
            request: request.into(),
            opening: Vec::new(),
            agents: agents.source(),
            changes: AgentChanges::default(),
            skills: Vec::new(),
            instructions: Vec::new(),
            images: Vec::new(),
            workspace,
            tool_choice: ToolChoice::Auto,
            allowed_tools: None,
            functions: Vec::new(),
            approvals: Vec::new(),
            model_choice: ModelChoice::Named,
            principal: Principal::local(),
            idempotency_key: None,
            secrets: BTreeSet::new(),
            config: ConfigFiles::default(),
            generation: 0,
            metadata: BTreeMap::new(),
        }
    }

    /// Returns the agents of the spec, with the changes applied to the agent that receives the request.
    pub fn graph(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<AgentGraph, AgentGraphError> {
        let mut graph = AgentGraph::from_source(&self.agents, &self.changes.overrides, variable)?;
        if let Some(agent) = graph.first_mut() {
            self.changes.apply(agent).map_err(|error| AgentGraphError::Load {
                by: self.agents.first.clone(),
                error: loader::AgentLoadError::Wrong(error),
            })?;
        }
        Ok(graph)
    }
}

impl WorkspaceSpec {
    /// Creates the strictest sandbox around a directory.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            mode: SandboxMode::Workspace,
            network: None,
            unix_sockets: None,
            git: GitMetadata::Frozen,
            writable: Vec::new(),
            readable: Vec::new(),
            secrets: Vec::new(),
            environment: Vec::new(),
            protected: Vec::new(),
            limits: CommandLimits::default(),
            home: UserHomeView::WithoutSecrets,
        }
    }
}

impl WorkspaceSpec {
    /// Builds the sandbox policy. Returns an error for a path that does not exist, and for a directory that would
    /// expose haft's own data.
    pub fn policy(&self, home: &Home) -> Result<SandboxPolicy, PolicyError> {
        let user_home = user_home();
        // Remove readable secrets from the protected list before the workspace is checked against that list.
        let new = match self.home {
            UserHomeView::AsWorkspace => SandboxPolicy::new_allowing_home,
            UserHomeView::WithoutSecrets | UserHomeView::Covered => SandboxPolicy::new_with_readable,
        };
        let mut policy = new(self.mode, &self.directory, home, user_home.as_deref(), &self.readable)?;
        for directory in &self.writable {
            policy = policy.writable(directory)?;
        }
        for name in &self.environment {
            policy = policy.environment(name);
        }
        if let Some(access) = self.network {
            policy = policy.network(access);
        }
        if let Some(access) = self.unix_sockets {
            policy = policy.unix_sockets(access);
        }
        for file in &self.protected {
            policy = policy.protect(file);
        }
        for path in &self.secrets {
            policy = policy.hide(path)?;
        }
        let policy = match (self.home, &user_home) {
            (UserHomeView::Covered, Some(user_home)) => policy.cover_home(user_home),
            (UserHomeView::Covered, None) | (UserHomeView::WithoutSecrets | UserHomeView::AsWorkspace, _) => {
                policy
            }
        };
        Ok(policy.git(self.git).limits(self.limits.clone()))
    }

    /// Builds the sandbox policy of a principal. The policy hides the workspaces and temporary files of other
    /// principals, except from the local user, who can read them anyway.
    pub fn policy_of(&self, principal: &Principal, home: &Home) -> Result<SandboxPolicy, PolicyError> {
        let policy = self.policy(home)?;
        if principal.is_subject_of(&Principal::local()) {
            return Ok(policy);
        }
        policy.hide_neighbours().private_tmp(&self.private_tmp(principal, home))
    }

    /// Returns the directory that commands of this principal see as `/tmp` in this workspace.
    pub fn private_tmp(&self, principal: &Principal, home: &Home) -> PathBuf {
        haft_store::workspaces::private_tmp(home, principal, &self.directory)
    }
}

impl AgentChanges {
    fn apply(&self, agent: &mut AgentDefinition) -> Result<(), AgentError> {
        if !self.models.is_empty() {
            agent.models.clone_from(&self.models);
        }
        if let Some(system) = &self.system {
            agent.body.clone_from(system);
            agent.default_text = DefaultText::Never;
        }
        agent.limits.turns_max = self.turns_max.unwrap_or(agent.limits.turns_max);
        agent.limits.continuations_max = self.continuations_max.unwrap_or(agent.limits.continuations_max);
        agent.times.run = self.timeout.unwrap_or(agent.times.run);
        if let Some(allowed) = &self.allowed_tools {
            agent.reach.allowed_tools = Some(allowed.clone());
        }
        if let Some(tools) = &self.tools {
            agent.reach.tools = Some(tools.clone());
        }
        if let Some(schema) = &self.output_schema {
            agent.report.shape = ReportShape::json(Arc::clone(schema))
                .map_err(|problem| AgentError::new("output schema", 1, problem))?;
            agent.report.by = match agent.report.by {
                ReportDelivery::None | ReportDelivery::Tool => ReportDelivery::Tool,
                ReportDelivery::Text => ReportDelivery::Text,
                ReportDelivery::Xml => ReportDelivery::Xml,
            };
        }
        Ok(())
    }
}
