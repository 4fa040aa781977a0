//! The settings of a gateway, and the tools that it opens for a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::approval::Approver;
use haft_core::naming::NamingScheme;
use haft_core::output_store::OutputStore;
use haft_core::position::{RunPosition, SessionId};
use haft_core::principal::Principal;
use haft_core::provider::ToolProvider;
use haft_core::result::ToolError;
use haft_engine::{CatalogWarning, Orchestrator, RunContext, ToolFilter};
use haft_runtime::definition_watch::DefinitionWatch;
use haft_runtime::wiring::LoginTarget;
use haft_tools::mcp::McpProvider;

use super::era::ClientAbilities;
use super::meta_tools::ListedTools;

/// Builds the tools for a client. It must not do slow IO, because the reply to `initialize` waits for it. The error is
/// for the client.
pub type ToolsOpener = Box<dyn Fn(&GatewayClient) -> Result<OpenedTools, String> + Send + Sync>;

/// Opens the store of the outputs of one client, under this session. The error is for the client.
pub type OutputsOpener = Arc<dyn Fn(SessionId) -> Result<Arc<dyn OutputStore>, String> + Send + Sync>;

/// Returns the next step for a user after a failed call of the named tool by this principal.
pub type CallHints = Arc<dyn Fn(&ToolError, &str, &Principal) -> Option<String> + Send + Sync>;

/// Receives warnings for the operator.
pub type WarningSink = Arc<dyn Fn(&CatalogWarning) + Send + Sync>;

/// Returns the approver that asks the operator about the calls of a client. The gateway limits the number of questions
/// and the wait for an answer; it drops a question to withdraw it.
pub type OperatorApprovers = Arc<dyn Fn(&CallingClient) -> Arc<dyn Approver> + Send + Sync>;

/// A client whose calls need approval, as the operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallingClient {
    /// The principal that the client works for.
    pub principal: Principal,
    /// The name that the client gave itself; not verified.
    pub name: Option<String>,
}

/// A client of the gateway. Equal clients share upstream servers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GatewayClient {
    /// The principal that the client works for.
    pub principal: Principal,
    /// The requests from upstream servers that the client can answer.
    pub abilities: ClientAbilities,
    /// Selects whether the client may use the built-in tools.
    pub builtin_tools: BuiltinAccess,
}

/// The principal of a connection, with its permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GatewayUser {
    pub(crate) principal: Principal,
    pub(crate) builtin_tools: BuiltinAccess,
    pub(crate) task_list: TaskListAccess,
}

/// Selects whether a client may list tasks. On an HTTP server without keys, all clients are one principal, and a list
/// would give each client the ids, and with them the results, of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskListAccess {
    /// The list contains the tasks of the client's principal.
    Offered,
    /// The method does not exist for the client.
    Withheld,
}

impl GatewayUser {
    /// Returns the user who started the gateway.
    pub(crate) fn local() -> Self {
        Self {
            principal: Principal::local(),
            builtin_tools: BuiltinAccess::Offered,
            task_list: TaskListAccess::Offered,
        }
    }
}

/// Selects whether a client may use the built-in shell and file tools. For a client over HTTP, the scopes of its key
/// decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BuiltinAccess {
    /// The client sees the built-in tools, and the operator's rules apply.
    Offered,
    /// The client sees only the tools of MCP servers and HTTP APIs.
    Withheld,
}

/// One MCP server that offers all tools of an orchestrator.
pub struct McpGateway {
    /// The server name that clients see.
    pub name: String,
    /// The server version that clients see.
    pub version: String,
    /// The instructions for the client's model.
    pub instructions: Option<String>,
    /// The tools that the client sees and may call.
    pub selection: ToolFilter,
    /// Selects whether the list contains all these tools, or a search for them.
    pub listed: ListedTools,
    /// The maximum time that the first list waits for servers whose tools are not known yet.
    pub ready_wait: Duration,
    /// Builds the tools when the first request arrives, because haft tells upstream servers the capabilities of the
    /// client.
    pub open: ToolsOpener,
    /// Adds a hint to the failures that the client shows.
    pub hints: CallHints,
    /// Receives warnings about upstream servers.
    pub warn: WarningSink,
    /// Asks the operator to approve the calls of clients that cannot ask their users. If `None`, these calls are denied.
    pub operator: Option<OperatorApprovers>,
}

/// The tools of one client.
pub struct OpenedTools {
    /// The orchestrator that executes the calls.
    pub orchestrator: Orchestrator,
    /// The context of all calls. The gateway adds approver, relay, progress and outputs.
    pub context: RunContext,
    /// Opens the output store of a client; `None` if haft stores no outputs.
    pub outputs: Option<OutputsOpener>,
    /// The session and turn of the calls.
    pub place: RunPosition,
    /// Providers that take longer to prepare, such as HTTP APIs whose OpenAPI document is fetched.
    pub later: BoxFuture<'static, Vec<Arc<dyn ToolProvider>>>,
    /// The MCP servers, whose resources and prompts the client sees too.
    pub upstreams: Vec<Arc<McpProvider>>,
    /// The servers at which the client's user can log in.
    pub logins: Vec<LoginTarget>,
    /// The naming scheme for names and URIs.
    pub naming: NamingScheme,
    /// Warns about definitions that changed.
    pub definitions: DefinitionWatch,
}

impl fmt::Debug for McpGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpGateway")
            .field("name", &self.name)
            .field("selection", &self.selection)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenedTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedTools").field("orchestrator", &self.orchestrator).finish_non_exhaustive()
    }
}
