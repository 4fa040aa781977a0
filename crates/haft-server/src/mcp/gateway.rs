//! The settings of a gateway, and the tools that it opens for a client.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::approval::Approver;
use haft_core::glob::ToolGlob;
use haft_core::naming::NamingScheme;
use haft_core::output_store::OutputStore;
use haft_core::position::{RunPosition, SessionId};
use haft_core::principal::Principal;
use haft_core::provider::ToolProvider;
use haft_core::result::ToolError;
use haft_core::run::journal::RunJournal;
use haft_engine::{CatalogWarning, Orchestrator, RunContext, ToolFilter};
use haft_runtime::definition_watch::DefinitionWatch;
use haft_runtime::wiring::LoginTarget;
use haft_store::workspaces::WorkspaceLease;
use haft_tools::mcp::McpProvider;

use super::era::ClientAbilities;
use super::meta_tools::ListedTools;

/// Builds the tools for a client. It must not do slow IO, because the reply to `initialize` waits for it. The error is
/// for the client.
pub type ToolsOpener = Box<dyn Fn(&GatewayClient) -> Result<OpenedTools, String> + Send + Sync>;

/// Opens the output store of one client for this session. The error is for the client.
pub type OutputsOpener = Arc<dyn Fn(SessionId) -> Result<Arc<dyn OutputStore>, String> + Send + Sync>;

/// Returns a hint for the user about a failed call. The arguments are the error, the tool name and the principal of the
/// client.
pub type CallHints = Arc<dyn Fn(&ToolError, &str, &Principal) -> Option<String> + Send + Sync>;

/// Receives warnings for the operator.
pub type WarningSink = Arc<dyn Fn(&CatalogWarning) + Send + Sync>;

/// Returns the approver that asks the operator about the calls of a client. The gateway limits the number of questions
/// and the wait for an answer. To withdraw a question, it drops the future that waits for the answer.
pub type OperatorApprovers = Arc<dyn Fn(&CallingClient) -> Arc<dyn Approver> + Send + Sync>;

/// A client whose calls need approval, as the operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallingClient {
    /// The principal that the client works for.
    pub principal: Principal,
    /// The name that the client gave itself; not verified.
    pub name: Option<String>,
}

/// The tools that a client sees and may call.
#[derive(Debug, Clone)]
pub struct ToolView {
    /// The tools that the client may call.
    pub selection: ToolFilter,
    /// Selects whether the list contains all these tools, or a search for them.
    pub listed: ListedTools,
    /// The instructions for the client's model.
    pub instructions: Option<String>,
}

/// The tools of the clients that use a profile.
#[derive(Debug, Clone)]
pub struct GatewayProfile {
    /// The tools, a subset of those for clients without a profile.
    pub view: ToolView,
    /// Client name patterns. A client with a matching name gets this profile if it requests none.
    pub clients: Vec<ToolGlob>,
}

/// The properties of a client that determine its profile.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProfileRequest<'a> {
    /// The profile in the path of the request.
    pub(super) named: Option<&'a str>,
    /// The name that the client gave itself; not verified.
    pub(super) client_name: Option<&'a str>,
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
    /// Selects whether the client may approve its calls.
    pub own_approvals: OwnApprovals,
    /// The profile of the client; `None` for all tools of the gateway.
    pub profile: Option<String>,
}

/// The principal of a connection, with its permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GatewayUser {
    pub(crate) principal: Principal,
    pub(crate) builtin_tools: BuiltinAccess,
    pub(crate) task_list: TaskListAccess,
    pub(crate) own_approvals: OwnApprovals,
    /// The profile in the path of the requests. A session at one path is unknown at every other path.
    pub(crate) profile: Option<String>,
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

/// Selects whether a client may ask its own user to approve its calls. A client could send the answer itself, so an
/// answer proves only that the key of the client has the right to approve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnApprovals {
    /// A client that can show forms asks its user.
    Permitted,
    /// Only the operator decides, at the terminal or through the approvals API. Without them, the call is denied.
    Forbidden,
}

impl GatewayUser {
    /// Returns the user who started the gateway.
    pub(crate) fn local() -> Self {
        Self {
            principal: Principal::local(),
            builtin_tools: BuiltinAccess::Offered,
            task_list: TaskListAccess::Offered,
            own_approvals: OwnApprovals::Permitted,
            profile: None,
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
    /// The tools of clients without a profile.
    pub view: ToolView,
    /// The profiles, by name.
    pub profiles: BTreeMap<String, GatewayProfile>,
    /// The maximum time that the first list waits for servers whose tools are not known yet.
    pub ready_wait: Duration,
    /// Builds the tools when the first request arrives, because haft tells upstream servers the capabilities of the
    /// client.
    pub open: ToolsOpener,
    /// Returns the hint that the gateway adds to the error of a failed call.
    pub hints: CallHints,
    /// Receives warnings about upstream servers.
    pub warn: WarningSink,
    /// Asks the operator to approve calls of clients that cannot ask their users. If `None`, these calls are denied.
    pub operator: Option<OperatorApprovers>,
}

impl McpGateway {
    /// Returns the profile of a client: the requested one, or else the one whose pattern for the client's name is the
    /// most specific. If several are equally specific, the first in alphabetical order counts.
    pub(super) fn profile_of(&self, request: ProfileRequest<'_>) -> Option<&str> {
        if let Some(named) = request.named {
            return self.profiles.get_key_value(named).map(|(name, _)| name.as_str());
        }
        let client = request.client_name?;
        let matching = self.profiles.iter().filter_map(|(name, profile)| {
            let globs = profile.clients.iter().filter(|glob| glob.matches(client));
            Some((globs.map(ToolGlob::specificity).max()?, Reverse(name)))
        });
        matching.max().map(|(_, Reverse(name))| name.as_str())
    }

    /// Returns the tools of a client with this profile; `None` if there is no such profile.
    pub(super) fn view_of(&self, profile: Option<&str>) -> Option<&ToolView> {
        match profile {
            Some(name) => self.profiles.get(name).map(|profile| &profile.view),
            None => Some(&self.view),
        }
    }
}

/// The tools of one client.
pub struct OpenedTools {
    /// The orchestrator that executes the calls.
    pub orchestrator: Orchestrator,
    /// The context of all calls. The gateway adds approver, relay, progress and outputs.
    pub context: RunContext,
    /// Opens the output store of a client; `None` if haft stores no outputs.
    pub outputs: Option<OutputsOpener>,
    /// Records each call before it reaches its tool.
    pub journal: Arc<dyn RunJournal>,
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
    /// Warns about tool definitions that changed.
    pub definitions: DefinitionWatch,
    /// The workspace of the client, which stays in use as long as the tools; `None` for the local user.
    pub workspace: Option<WorkspaceLease>,
}

impl fmt::Debug for McpGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpGateway")
            .field("name", &self.name)
            .field("view", &self.view)
            .field("profiles", &self.profiles)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenedTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedTools").field("orchestrator", &self.orchestrator).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the view of all tools.
    fn everything() -> ToolView {
        ToolView { selection: ToolFilter::All, listed: ListedTools::All, instructions: None }
    }

    /// Returns a gateway that opens no tools.
    pub(in super::super) fn empty_gateway() -> McpGateway {
        McpGateway {
            name: "haft".into(),
            version: "1".into(),
            view: everything(),
            profiles: BTreeMap::new(),
            ready_wait: Duration::ZERO,
            open: Box::new(|_| Err("no tools".into())),
            hints: Arc::new(|_, _, _| None),
            warn: Arc::new(|_| ()),
            operator: None,
        }
    }

    #[test]
    fn requested_profile_or_most_specific_client_pattern_decides() {
        let profile = |patterns: &[&str]| GatewayProfile {
            view: everything(),
            clients: patterns.iter().map(|pattern| ToolGlob::new(pattern).unwrap()).collect(),
        };
        let profiles = [
            ("any", profile(&["*"])),
            ("claude", profile(&["cursor", "claude-*"])),
            ("code", profile(&["claude-code"])),
            ("copy", profile(&["claude-code"])),
            ("never", profile(&[])),
        ];
        let profiles = profiles.into_iter().map(|(name, profile)| (name.to_owned(), profile)).collect();
        let gateway = McpGateway { profiles, ..empty_gateway() };
        let check = |named: Option<&str>, client_name: Option<&str>, expected: Option<&str>| {
            assert_eq!(gateway.profile_of(ProfileRequest { named, client_name }), expected);
        };
        check(None, Some("Claude-Code"), Some("code"));
        check(None, Some("claude-desktop"), Some("claude"));
        check(None, Some("cursor"), Some("claude"));
        check(None, Some("zed"), Some("any"));
        check(None, None, None);
        check(Some("never"), Some("cursor"), Some("never"));
        check(Some("none"), Some("cursor"), None);
        assert!(gateway.view_of(None).is_some() && gateway.view_of(Some("none")).is_none());
    }
}
