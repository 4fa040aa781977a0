//! Tools that the embedding Rust program provides.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use futures_util::future::{BoxFuture, join_all};
use haft_core::changes::ChangeCounter;
use haft_core::name::{Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::ToolDefinition;
use haft_core::validate::ValidArguments;
use tokio::sync::OnceCell;

/// A tool of the program that embeds haft. Its calls go through the same stages as all others: it sees only arguments
/// that match its schema, it has a time limit, and a panic fails only the call.
pub trait Tool: Send + Sync + 'static {
    /// Returns the definition for models. Called once, at registration.
    fn definition(&self) -> ToolDefinition;

    /// Prepares the tool, during warmup or before the first call. Runs once; after an error, the next call tries again.
    fn initialize(&self) -> impl Future<Output = Result<(), ToolError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Runs the tool. Dropping the future cancels the call.
    fn call(
        &self,
        arguments: &ValidArguments,
        cx: &CallContext,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send;

    /// Stops the background work of the tool. Not called for a tool that was never initialized.
    fn shutdown(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The tools of a program, by name. Tools may be added and removed at any time; the change applies to the next call.
pub struct Registry {
    namespace: Namespace,
    registered: RwLock<ToolTable>,
    changes: ChangeCounter,
}

#[derive(Default)]
struct ToolTable {
    /// In the order of registration.
    tools: Vec<Arc<RegisteredTool>>,
    definitions: Arc<[ToolDefinition]>,
}

/// A tool, and whether it is initialized.
struct RegisteredTool {
    name: ToolName,
    tool: Box<dyn DynTool>,
    ready: OnceCell<()>,
}

impl Registry {
    /// Creates an empty registry. The namespace distinguishes these tools from others and names their group; it is not
    /// a part of their names.
    pub fn new(namespace: Namespace) -> Self {
        Self { namespace, registered: RwLock::default(), changes: ChangeCounter::default() }
    }

    /// Adds a tool. Fails if the name is already registered.
    pub fn register(&self, tool: impl Tool) -> Result<(), AlreadyRegistered> {
        let definition = tool.definition();
        let name = definition.name.clone();
        let held = RegisteredTool { name: name.clone(), tool: Box::new(tool), ready: OnceCell::new() };
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

    /// Removes a tool; returns whether it was registered. Calls in progress continue.
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

    /// Returns the definition of a tool.
    pub fn get(&self, name: &str) -> Option<ToolDefinition> {
        self.read().definitions.iter().find(|tool| tool.name.as_str() == name).cloned()
    }

    /// Returns all tools, in the order of registration.
    pub fn list(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.read().definitions)
    }

    fn read(&self) -> RwLockReadGuard<'_, ToolTable> {
        self.registered.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self, name: &ToolName) -> Result<Arc<RegisteredTool>, ToolError> {
        let held = self.read().tools.iter().find(|held| held.name == *name).map(Arc::clone);
        held.ok_or_else(|| ToolError::new(ToolErrorKind::UnknownTool, format!("Unknown tool: {name}")))
    }
}

impl RegisteredTool {
    async fn make_ready(&self) -> Result<(), ToolError> {
        self.ready.get_or_try_init(|| self.tool.initialize()).await.map(|&()| ())
    }
}

impl ToolProvider for Registry {
    /// These tools are a part of the program like the built-in ones, so their names get no prefix.
    fn kind(&self) -> ProviderKind {
        ProviderKind::Builtin
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        self.list()
    }

    fn changes(&self) -> Option<&ChangeCounter> {
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

/// A tool of this name is already registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlreadyRegistered(pub ToolName);

impl fmt::Display for AlreadyRegistered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a tool `{}` is registered already; give this one another name", self.0)
    }
}

impl std::error::Error for AlreadyRegistered {}

/// An object-safe version of [`Tool`]: implementations can use `async fn`, and the registry can box them.
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
