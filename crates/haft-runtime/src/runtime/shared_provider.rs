//! A provider that several runs use, so no single run may shut it down.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::change_counter::ChangeCounter;
use haft_core::digest::Digest;
use haft_core::event::CallProgress;
use haft_core::name::{Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::ToolError;
use haft_core::run::context::RunContext;
use haft_core::tool::ToolDefinition;
use haft_core::validate::ValidArguments;

/// Passes every request to the tool provider, except `shutdown`. Each run shuts down its own catalog, but other runs
/// still use the provider.
pub(super) struct SharedProvider(pub(super) Arc<dyn ToolProvider>);

impl ToolProvider for SharedProvider {
    fn kind(&self) -> ProviderKind {
        self.0.kind()
    }

    fn namespace(&self) -> &Namespace {
        self.0.namespace()
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        self.0.tools()
    }

    fn is_shown(&self, run: &RunContext) -> bool {
        self.0.is_shown(run)
    }

    fn changes(&self) -> Option<&ChangeCounter> {
        self.0.changes()
    }

    fn list_warning(&self) -> Option<String> {
        self.0.list_warning()
    }

    fn warmup(&self) -> BoxFuture<'_, Result<(), ToolError>> {
        self.0.warmup()
    }

    fn refresh_tools<'a>(
        &'a self,
        progress: &'a (dyn Fn(CallProgress) + Send + Sync),
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        self.0.refresh_tools(progress)
    }

    fn instructions(&self) -> Option<Arc<str>> {
        self.0.instructions()
    }

    fn source_digest(&self, tool: &ToolName, arguments: &ValidArguments) -> Option<Digest> {
        self.0.source_digest(tool, arguments)
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        self.0.call(tool, arguments, cx)
    }
}
