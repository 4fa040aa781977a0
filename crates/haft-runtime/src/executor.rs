//! A small interface for programs that only want to run tools: it returns definitions, and the text output of calls.

mod servers;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haft_core::arguments::RawArguments;
use haft_core::naming::NamingScheme;
use haft_core::provider::ToolProvider;
use haft_core::tool::{CallId, ToolCall, ToolDefinition};
use haft_engine::{Orchestrator, RunContext, ToolFilter};
use haft_sandbox::{Home, PolicyError, SandboxMode, SandboxPolicy, user_home};
use haft_tools::mcp::McpProvider;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::wiring::{self, ToolSettings};
use haft_config::{self, resolved};

pub use servers::{McpServer, NotConnected};

pub use haft_core::text::truncate_chars as truncate_output;
pub use haft_tools::builtin::{BASH_TIMEOUT_SECS, MAX_BASH_OUTPUT};
pub use haft_tools::files::MAX_READ_OUTPUT;

/// A tool definition that the wire format of any model provider can express.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolDef {
    /// The name by which the tool is called. For tools of an MCP server, it begins with the server name.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of the arguments.
    pub parameters: Value,
}

/// The output text of a tool, and a flag that marks a failure.
#[derive(Debug, Clone)]
pub struct ExecutorOutput {
    /// The text for the model: the output, or the error of a failed call.
    pub content: String,
    /// True if the call failed.
    pub is_error: bool,
}

/// Runs the built-in tools and the tools of MCP servers, in a sandbox around one workspace.
#[derive(Debug)]
pub struct ToolExecutor {
    workspace_path: PathBuf,
    data_dir: PathBuf,
    sandbox_mode: SandboxMode,
    naming: NamingScheme,
    policy: Result<SandboxPolicy, String>,
    mcp_clients: HashMap<String, Arc<McpProvider>>,
    mcp_servers: BTreeMap<String, resolved::McpServerSettings>,
    /// `Err` if the workspace cannot be used; every call then returns that error.
    orchestrator: Result<Orchestrator, String>,
}

/// Names in the data directory that tools can neither read nor write.
const HIDDEN: [&str; 2] = ["data", "config.toml"];

/// Names in the data directory that tools can read but never write: their files become instructions of later runs.
const FROZEN: [&str; 2] = ["skills", "agents"];

impl ToolExecutor {
    /// Creates an executor. The data directory is the parent of the workspace, or the workspace itself if it has no
    /// parent.
    pub fn new(workspace_path: PathBuf, sandbox_mode: SandboxMode) -> Self {
        let data_dir = workspace_path.parent().unwrap_or(&workspace_path).to_path_buf();
        let policy = policy(&workspace_path, &data_dir, sandbox_mode);
        let mut executor = Self {
            workspace_path,
            data_dir,
            sandbox_mode,
            naming: NamingScheme::default(),
            policy,
            mcp_clients: HashMap::new(),
            mcp_servers: BTreeMap::new(),
            orchestrator: Err("the executor has not built its tools yet".into()),
        };
        executor.rebuild();
        executor
    }

    /// Sets the naming scheme for tools of MCP servers; the default is `double`, as in `server__tool`.
    #[must_use]
    pub fn with_naming(mut self, scheme: NamingScheme) -> Self {
        self.naming = scheme;
        self.rebuild();
        self
    }

    /// Builds a new orchestrator from the current tool providers.
    fn rebuild(&mut self) {
        self.orchestrator = self.policy.clone().and_then(|policy| {
            let mut config = haft_config::defaults().map_err(|errors| errors.to_string())?;
            config.mcp_servers.clone_from(&self.mcp_servers);
            config.naming = self.naming;
            let settings = ToolSettings { policy, timeout: None, config };
            let clients = self.mcp_clients.values();
            let clients = clients.map(|client| Arc::clone(client) as Arc<dyn ToolProvider>).collect();
            Ok(wiring::orchestrator_with(settings, clients))
        });
    }

    /// Returns the workspace as it was given to [`new`](Self::new).
    pub fn workspace_path(&self) -> &Path {
        &self.workspace_path
    }

    /// Returns the directory with haft's data: the parent of the workspace.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Returns the four tools that every executor has, followed by the tools of MCP servers.
    pub fn all_tool_defs(&self) -> Vec<ToolDef> {
        let own = builtin_tool_defs();
        let served = self.mcp_tool_map();
        let all = self
            .orchestrator
            .iter()
            .flat_map(|orchestrator| orchestrator.tools(&ToolFilter::default(), &RunContext::default()));
        let of_servers =
            all.filter(|shown| served.contains_key(shown.entry.exposed().as_str())).map(|shown| {
                let name = shown.entry.exposed().to_string();
                ToolDef { name, ..ToolDef::from(shown.entry.definition().clone()) }
            });
        own.into_iter().chain(of_servers).collect()
    }

    /// Runs one tool. Always returns a result. Looks for the exact name first, then ignores case.
    pub async fn execute(&mut self, tool_name: &str, args: &Value) -> ExecutorOutput {
        let orchestrator = match &self.orchestrator {
            Ok(orchestrator) => orchestrator,
            Err(reason) => return ExecutorOutput { content: reason.clone(), is_error: true },
        };
        let call = ToolCall {
            id: CallId("executor".into()),
            name: tool_name.into(),
            arguments: RawArguments::from_value(args),
        };
        let result = orchestrator.execute(call).await;
        ExecutorOutput { content: result.text(), is_error: result.outcome.is_err() }
    }

    /// Returns true if the sandbox mode allows a write to this path; a relative path is resolved against the workspace.
    pub fn is_write_allowed(&self, path: &Path) -> bool {
        haft_sandbox::is_within_roots(
            &self.workspace_path.join(path),
            self.sandbox_mode,
            &[self.workspace_path.as_path(), self.data_dir.as_path(), Path::new("/tmp")],
        )
    }
}

/// Returns the four tools that every executor has: `bash`, `read`, `write`, `edit`.
pub fn builtin_tool_defs() -> Vec<ToolDef> {
    haft_tools::builtin::definitions().into_iter().take(4).map(ToolDef::from).collect()
}

impl From<ToolDefinition> for ToolDef {
    fn from(definition: ToolDefinition) -> Self {
        Self {
            name: definition.name.to_string(),
            description: definition.description,
            parameters: definition.input_schema,
        }
    }
}

fn policy(workspace: &Path, data_dir: &Path, mode: SandboxMode) -> Result<SandboxPolicy, String> {
    let home = crate::home::find()
        .ok_or("haft cannot find its home directory, because neither HAFT_HOME nor HOME is set")?;
    haft_config::home::create(&home).map_err(|error| {
        format!("haft cannot create its home directory `{}`: {error}", home.root().display())
    })?;
    let user_home = user_home();
    let policy = SandboxPolicy::new(mode, workspace, &home, user_home.as_deref())
        .map_err(|error| error.to_string())?;
    let data_dir = data_dir.canonicalize().map_err(|error| error.to_string())?;
    if !is_grantable(&data_dir, &home, user_home.as_deref()) {
        return Ok(policy);
    }
    protect_names(&data_dir).map_err(|error| {
        format!("haft cannot protect its files in `{}` from tools: {error}", data_dir.display())
    })?;
    grant(policy, &data_dir).map_err(|error| error.to_string())
}

/// Returns true if tools may get access to the data directory. They never get access to shared directories, the user's
/// home or haft's home.
fn is_grantable(data_dir: &Path, home: &Home, user_home: Option<&Path>) -> bool {
    let shared =
        ["/", "/tmp", "/var/tmp", "/home", "/root"].iter().any(|shared| data_dir == Path::new(shared));
    let of_user = user_home.is_some_and(|user_home| user_home.starts_with(data_dir));
    let of_haft = home.root().starts_with(data_dir) || data_dir.starts_with(home.root());
    !shared && !of_user && !of_haft
}

/// Creates the protected files and directories, because the sandbox can only protect a path that exists.
fn protect_names(data_dir: &Path) -> io::Result<()> {
    for name in ["data", "skills", "agents"] {
        ignore_existing(std::fs::create_dir(data_dir.join(name)))?;
    }
    ignore_existing(std::fs::File::create_new(data_dir.join("config.toml")).map(drop))
}

fn ignore_existing(made: io::Result<()>) -> io::Result<()> {
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn grant(policy: SandboxPolicy, data_dir: &Path) -> Result<SandboxPolicy, PolicyError> {
    let policy = policy.writable(data_dir)?;
    let policy = HIDDEN.iter().fold(policy, |policy, name| policy.protect(&data_dir.join(name)));
    Ok(FROZEN.iter().fold(policy, |policy, name| policy.freeze(&data_dir.join(name))))
}

#[cfg(test)]
mod tests;
