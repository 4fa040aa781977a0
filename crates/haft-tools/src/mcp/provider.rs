//! An MCP server as a tool provider.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::change_counter::ChangeCounter;
use haft_core::digest::Digest;
use haft_core::duration_text;
use haft_core::event::CallProgress;
use haft_core::name::{Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::ToolDefinition;
use haft_core::validate::ValidArguments;
use serde_json::json;

use super::listing::{CalledTool, McpToolList};
use super::login_tool::{LOGIN_FINISHED, is_login_tool, login_tool};
use super::server::SupervisedServer;

/// Provides the tools of one server. Several providers may share a server.
pub struct McpProvider {
    server: Arc<SupervisedServer>,
    left: AtomicBool,
    /// The maximum time that `warmup` waits; `None` for the startup timeout of the server.
    ready_wait: Option<Duration>,
    /// True if the server was not ready in time. When the server becomes ready later, a run finds its tools with a
    /// search, or gets them in addition to its other tools.
    late: AtomicBool,
}

impl McpProvider {
    /// Creates a provider and registers it as a user of the server, unless the server has already ended.
    pub fn new(server: Arc<SupervisedServer>) -> Self {
        let left = !server.users.join();
        Self { server, left: AtomicBool::new(left), ready_wait: None, late: AtomicBool::new(false) }
    }

    /// Sets the maximum time that `warmup` waits for a server whose tools are not known yet.
    #[must_use]
    pub fn waiting_at_most(mut self, ready_wait: Duration) -> Self {
        self.ready_wait = Some(ready_wait);
        self
    }

    /// Registers as another user of a shared server. Returns `None` if the last user has left.
    pub(super) fn join(server: Arc<SupervisedServer>) -> Option<Self> {
        server.users.join().then(|| Self {
            server,
            left: AtomicBool::new(false),
            ready_wait: None,
            late: AtomicBool::new(false),
        })
    }

    /// Starts the server and waits for it up to the limit. A server that takes longer continues to start.
    async fn start_in_time(&self) -> Result<(), ToolError> {
        let Some(ready_wait) = self.ready_wait else { return self.server.start().await };
        if let Ok(started) = tokio::time::timeout(ready_wait, self.server.start()).await {
            return started;
        }
        self.late.store(true, Ordering::Release);
        let message = format!(
            "MCP server `{}` is still starting after {}; its tools will be available later",
            self.server.shared.config.name,
            duration_text::in_words(ready_wait)
        );
        Err(ToolError::new(ToolErrorKind::Unavailable, message))
    }

    /// Unregisters from the server. Returns true if this was the last user.
    fn leave(&self) -> bool {
        !self.left.swap(true, Ordering::AcqRel) && self.server.users.leave()
    }

    /// Returns true if the server was not ready in time and still is not.
    pub fn is_late(&self) -> bool {
        self.late.load(Ordering::Acquire) && !self.server.is_known()
    }

    pub fn server(&self) -> &Arc<SupervisedServer> {
        &self.server
    }

    /// Returns true for the login tool, which haft provides, and false for a tool of the server.
    fn is_login(&self, tool: &ToolName, listing: &McpToolList) -> bool {
        self.server.shared.is_login_listed() && is_login_tool(tool) && !listing.known.contains_key(tool)
    }

    async fn dispatch(
        &self,
        tool: &ToolName,
        arguments: &ValidArguments,
        cx: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        let listing = self.server.shared.listing();
        if self.is_login(tool, &listing) {
            return self.server.start().await.map(|()| ToolOutput::text(LOGIN_FINISHED));
        }
        let Some(known) = listing.known.get(tool) else {
            let message = format!("the MCP server has no tool `{tool}` any more; list the tools again");
            return Err(ToolError::new(ToolErrorKind::UnknownTool, message));
        };
        let called = CalledTool { entry: known, definition: listing.definition(tool) };
        let outcome = self.server.call(&called, arguments.value(), cx).await;
        if let Some(era) = self.server.shared.era() {
            cx.note("mcp", json!({ "server": self.server.shared.config.name, "protocol": era.version() }));
        }
        outcome
    }
}

impl ToolProvider for McpProvider {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Mcp
    }

    fn namespace(&self) -> &Namespace {
        &self.server.shared.config.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        let listing = self.server.shared.listing();
        if !self.server.shared.is_login_listed() {
            return Arc::clone(&listing.tools);
        }
        let login = login_tool(&self.server.shared.config.name, self.namespace());
        let login = Some(login).filter(|login| self.is_login(&login.name, &listing));
        listing.tools.iter().cloned().chain(login).collect()
    }

    fn list_warning(&self) -> Option<String> {
        self.server.shared.listing().warning()
    }

    fn changes(&self) -> Option<&ChangeCounter> {
        Some(&self.server.shared.changes)
    }

    /// Starts the server only if no cached tool list exists; otherwise the first call starts it.
    fn warmup(&self) -> BoxFuture<'_, Result<(), ToolError>> {
        Box::pin(async { if self.server.is_known() { Ok(()) } else { self.start_in_time().await } })
    }

    fn refresh_tools<'a>(
        &'a self,
        progress: &'a (dyn Fn(CallProgress) + Send + Sync),
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        // Waiting for the connection is enough, because a connection is available only after its tools are listed.
        Box::pin(async move { self.server.ready_reporting(progress).await.map(drop) })
    }

    fn instructions(&self) -> Option<Arc<str>> {
        self.server.shared.instructions()
    }

    fn source_digest(&self, _: &ToolName, _: &ValidArguments) -> Option<Digest> {
        self.server.shared.config.source_digest()
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(self.dispatch(tool, arguments, cx))
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if self.leave() {
                self.server.stop().await;
            }
        })
    }
}

impl Drop for McpProvider {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for McpProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpProvider").field("server", &self.server).finish_non_exhaustive()
    }
}
