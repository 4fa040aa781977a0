//! A provider whose tools are left out or described differently.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::name::{Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::ToolError;
use haft_core::tool::ToolDefinition;
use haft_core::validate::ValidArguments;

/// Shows the tools of another provider as the operator wants them seen.
pub struct Described {
    inner: Arc<dyn ToolProvider>,
    tools: Arc<[ToolDefinition]>,
}

impl Described {
    /// `describe` gives the tool as it is to be seen, or nothing to leave it out. Names must not change: calls arrive
    /// under them.
    pub fn new(
        inner: Arc<dyn ToolProvider>,
        describe: impl Fn(ToolDefinition) -> Option<ToolDefinition>,
    ) -> Self {
        let tools = inner.tools().iter().cloned().filter_map(describe).collect();
        Self { inner, tools }
    }
}

impl ToolProvider for Described {
    fn kind(&self) -> ProviderKind {
        self.inner.kind()
    }

    fn namespace(&self) -> &Namespace {
        self.inner.namespace()
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        self.tools.clone()
    }

    fn is_shown(&self) -> bool {
        self.inner.is_shown()
    }

    fn instructions(&self) -> Option<Arc<str>> {
        self.inner.instructions()
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        self.inner.call(tool, arguments, cx)
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.inner.shutdown()
    }
}

impl fmt::Debug for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Described").field("tools", &self.tools.len()).finish_non_exhaustive()
    }
}
