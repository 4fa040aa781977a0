//! The settings of a gateway, and the tools that it opens for a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::naming::NamingScheme;
use haft_core::position::RunPosition;
use haft_core::principal::Principal;
use haft_core::provider::ToolProvider;
use haft_core::result::ToolError;
use haft_engine::{CatalogWarning, Orchestrator, RunContext, ToolFilter};
use haft_runtime::definition_watch::DefinitionWatch;
use haft_tools::mcp::McpProvider;

use super::era::ClientAbilities;
use super::meta_tools::ListedTools;

/// Builds the tools for a client. It must do no IO that takes long: the reply to `initialize` waits for it. The error is for
/// the client.
pub type ToolsOpener = Box<dyn Fn(&GatewayClient) -> Result<OpenedTools, String> + Send + Sync>;

/// Returns the next step of a person after a failed call of the named tool.
pub type CallHints = Arc<dyn Fn(&ToolError, &str) -> Option<String> + Send + Sync>;

/// Receives warnings for the operator.
pub type WarningSink = Arc<dyn Fn(&CatalogWarning) + Send + Sync>;

/// A client of the gateway. Clients that are equal share upstream servers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GatewayClient {
    /// The identity that the client works for.
    pub principal: Principal,
    /// The requests that the client answers.
    pub abilities: ClientAbilities,
    /// The right to use the built-in tools.
    pub builtin_tools: BuiltinAccess,
}

/// The identity behind a connection, with its rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GatewayUser {
    pub(crate) principal: Principal,
    pub(crate) builtin_tools: BuiltinAccess,
}

impl GatewayUser {
    /// The person who started the gateway.
    pub(crate) fn local() -> Self {
        Self { principal: Principal::local(), builtin_tools: BuiltinAccess::Offered }
    }
}

/// Decides if a client may use the shell and file tools. The key of a client over HTTP has a scope for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BuiltinAccess {
    /// The client sees them, under the operator's rules.
    Offered,
    /// The client sees only the tools of servers and HTTP APIs.
    Withheld,
}

/// One MCP server over all tools of an orchestrator.
pub struct McpGateway {
    /// The name that the server gives itself.
    pub name: String,
    /// The version that the server gives itself.
    pub version: String,
    /// The instructions for the client's model.
    pub instructions: Option<String>,
    /// The tools that the client sees and may call.
    pub selection: ToolFilter,
    /// Decides if the list has all these tools, or a search for them.
    pub listed: ListedTools,
    /// The longest time that the first list waits for servers whose tools are not known yet.
    pub ready_wait: Duration,
    /// Builds the tools when the first request arrives, because upstream servers learn what the client can do.
    pub open: ToolsOpener,
    /// Adds a hint to the failures that the client shows.
    pub hints: CallHints,
    /// Receives warnings about upstream servers.
    pub warn: WarningSink,
}

/// The tools of one client.
pub struct OpenedTools {
    /// Executes the calls.
    pub orchestrator: Orchestrator,
    /// The context of all calls. The gateway adds approver, relay and progress.
    pub context: RunContext,
    /// The session of the calls.
    pub place: RunPosition,
    /// Providers that take longer to prepare, such as HTTP APIs whose description is fetched.
    pub later: BoxFuture<'static, Vec<Arc<dyn ToolProvider>>>,
    /// The MCP servers, whose resources and prompts the client sees too.
    pub upstreams: Vec<Arc<McpProvider>>,
    /// The form of names and URIs.
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
