//! Tools that a Rust program brings along.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use futures_util::future::{BoxFuture, join_all};
use haft_core::changes::Changes;
use haft_core::name::{Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::ToolDefinition;
use haft_core::validate::ValidArguments;
use tokio::sync::OnceCell;

/// A tool of the program that embeds haft. Its calls go through the same stages as all others: it sees only arguments
/// that fit its schema, is stopped when it takes too long, and a panic costs only the call.
pub trait Tool: Send + Sync + 'static {
    /// What models are shown. Asked once, when the tool is registered.
    fn definition(&self) -> ToolDefinition;

    /// Makes the tool ready: when the program warms up, else before the first call. Done once; after an error it is tried
    /// again at the next call.
    fn initialize(&self) -> impl Future<Output = Result<(), ToolError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Does the work. To drop the future is to cancel it.
    fn call(
        &self,
        arguments: &ValidArguments,
        cx: &CallContext,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send;

    /// Ends what the tool keeps running. Not called for a tool that never was made ready.
    fn shutdown(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The tools of a program, by name. Tools may come and go at any time; the next call sees it.
pub struct Registry {
    namespace: Namespace,
    registered: RwLock<Registered>,
    changes: Changes,
}

#[derive(Default)]
struct Registered {
    /// In the order they came.
    tools: Vec<Arc<Held>>,
    definitions: Arc<[ToolDefinition]>,
}

/// A tool and whether it is ready.
struct Held {
    name: ToolName,
    tool: Box<dyn DynTool>,
    ready: OnceCell<()>,
}

impl Registry {
    /// The namespace tells these tools from those of others, and is a group of them. They are known by their own names.
    pub fn new(namespace: Namespace) -> Self {
        Self { namespace, registered: RwLock::default(), changes: Changes::default() }
    }

    /// Adds a tool. A name that is there already is refused.
    pub fn register(&self, tool: impl Tool) -> Result<(), AlreadyRegistered> {
        let definition = tool.definition();
        let name = definition.name.clone();
        let held = Held { name: name.clone(), tool: Box::new(tool), ready: OnceCell::new() };
        let mut registered = self.registered.write().unwrap_or_else(PoisonError::into_inner);
        if registered.tools.iter().any(|known| known.name == name) {
            return Err(AlreadyRegistered(name));
        }
        registered.tools.push(Arc::new(held));
        registered.definitions = registered.definitions.iter().cloned().chain([definition]).collect();
        drop(registered);
        self.changes.announce();
        Ok(())
    }

    /// Takes a tool away; says whether it was there. Calls under way go on.
    pub fn unregister(&self, name: &str) -> bool {
        let mut registered = self.registered.write().unwrap_or_else(PoisonError::into_inner);
        let before = registered.tools.len();
        registered.tools.retain(|held| held.name.as_str() != name);
        registered.definitions =
            registered.definitions.iter().filter(|tool| tool.name.as_str() != name).cloned().collect();
        let found = registered.tools.len() < before;
        drop(registered);
        if found {
            self.changes.announce();
        }
        found
    }

    /// What models are shown of a tool.
    pub fn get(&self, name: &str) -> Option<ToolDefinition> {
        self.read().definitions.iter().find(|tool| tool.name.as_str() == name).cloned()
    }

    /// All tools, in the order they were registered.
    pub fn list(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.read().definitions)
    }

    fn read(&self) -> RwLockReadGuard<'_, Registered> {
        self.registered.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self, name: &ToolName) -> Result<Arc<Held>, ToolError> {
        let held = self.read().tools.iter().find(|held| held.name == *name).map(Arc::clone);
        held.ok_or_else(|| ToolError::new(ToolErrorKind::UnknownTool, format!("Unknown tool: {name}")))
    }
}

impl Held {
    async fn make_ready(&self) -> Result<(), ToolError> {
        self.ready.get_or_try_init(|| self.tool.initialize()).await.map(|&()| ())
    }
}

impl ToolProvider for Registry {
    /// As much a part of the program as the built-ins: their names stand alone.
    fn kind(&self) -> ProviderKind {
        ProviderKind::Builtin
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        self.list()
    }

    fn changes(&self) -> Option<&Changes> {
        Some(&self.changes)
    }

    fn warmup(&self) -> BoxFuture<'_, Result<(), ToolError>> {
        let tools = self.read().tools.clone();
        Box::pin(async move {
            let each = tools.iter().map(|held| async { (&held.name, held.make_ready().await) });
            let failed: Vec<String> = join_all(each)
                .await
                .into_iter()
                .filter_map(|(name, ready)| Some(format!("`{name}`: {}", ready.err()?.message)))
                .collect();
            if failed.is_empty() {
                return Ok(());
            }
            Err(ToolError::new(ToolErrorKind::Unavailable, failed.join("; ")))
        })
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let held = self.held(tool)?;
            held.make_ready().await?;
            held.tool.call(arguments, cx).await
        })
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        let tools = self.read().tools.clone();
        Box::pin(async move {
            let ready = tools.iter().filter(|held| held.ready.initialized());
            join_all(ready.map(|held| held.tool.shutdown())).await;
        })
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.read();
        let names: Vec<&str> = registered.tools.iter().map(|held| held.name.as_str()).collect();
        f.debug_struct("Registry")
            .field("namespace", &self.namespace)
            .field("tools", &names)
            .finish_non_exhaustive()
    }
}

/// There is a tool of this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlreadyRegistered(pub ToolName);

impl fmt::Display for AlreadyRegistered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a tool `{}` is registered already; give this one another name", self.0)
    }
}

impl std::error::Error for AlreadyRegistered {}

/// [`Tool`] behind a pointer: who writes a tool writes `async fn`, who holds many of them boxes.
trait DynTool: Send + Sync {
    fn initialize(&self) -> BoxFuture<'_, Result<(), ToolError>>;

    fn call<'a>(
        &'a self,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;

    fn shutdown(&self) -> BoxFuture<'_, ()>;
}

impl<T: Tool> DynTool for T {
    fn initialize(&self) -> BoxFuture<'_, Result<(), ToolError>> {
        Box::pin(Tool::initialize(self))
    }

    fn call<'a>(
        &'a self,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(Tool::call(self, arguments, cx))
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(Tool::shutdown(self))
    }
}

#[cfg(test)]
mod tests;
