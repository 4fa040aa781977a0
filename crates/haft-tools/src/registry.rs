//! Tools that the embedding Rust program provides.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use futures_util::future::{BoxFuture, join_all};
use haft_core::change_counter::ChangeCounter;
use haft_core::name::{Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::ToolDefinition;
use haft_core::validate::ValidArguments;
use tokio::sync::OnceCell;

/// A tool of the program that embeds haft. Its calls pass the same stages as all other calls: the arguments are
/// validated against its schema, each call has a time limit, and a panic fails only that call.
pub trait Tool: Send + Sync + 'static {
    /// Returns the definition for models. haft calls this method once, at registration.
    fn definition(&self) -> ToolDefinition;

    /// Prepares the tool, during warmup or before the first call. haft calls this method once; after an error, the next
    /// call tries again.
    fn initialize(&self) -> impl Future<Output = Result<(), ToolError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Runs the tool. Dropping the future cancels the call.
    fn call(
        &self,
        arguments: &ValidArguments,
        cx: &CallContext,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send;

    /// Stops the background work of the tool. haft does not call this method for a tool that was never initialized.
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
    /// The tools, keyed by a number that grows with each registration.
    tools: BTreeMap<u64, Arc<RegisteredTool>>,
    numbers: HashMap<ToolName, u64>,
    next: u64,
    /// The list of definitions, built on the first request after a change. Building the list again for each of 2,000
    /// new tools would copy two million definitions.
    listed: OnceLock<Arc<[ToolDefinition]>>,
}

/// A registered tool, and whether it is initialized.
struct RegisteredTool {
    definition: ToolDefinition,
    tool: Box<dyn DynTool>,
    ready: OnceCell<()>,
}

impl Registry {
    /// Creates an empty registry. The namespace distinguishes these tools from other tools and is the name of their
    /// group. It is not a part of the tool names.
    pub fn new(namespace: Namespace) -> Self {
        Self { namespace, registered: RwLock::default(), changes: ChangeCounter::default() }
    }

    /// Adds a tool. Fails if the name is already registered.
    pub fn register(&self, tool: impl Tool) -> Result<(), AlreadyRegistered> {
        let definition = tool.definition();
        let registered = RegisteredTool { definition, tool: Box::new(tool), ready: OnceCell::new() };
        self.registered.write().unwrap_or_else(PoisonError::into_inner).add(registered)?;
        self.changes.announce();
        Ok(())
    }

    /// Removes a tool; returns whether it was registered. Calls in progress continue.
    pub fn unregister(&self, name: &str) -> bool {
        let found = self.registered.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        if found {
            self.changes.announce();
        }
        found
    }

    /// Returns the definition of a tool.
    pub fn get(&self, name: &str) -> Option<ToolDefinition> {
        self.read().get(name).map(|registered| registered.definition.clone())
    }

    /// Returns all tools, in the order of registration.
    pub fn list(&self) -> Arc<[ToolDefinition]> {
        self.read().list()
    }

    fn read(&self) -> RwLockReadGuard<'_, ToolTable> {
        self.registered.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn registered(&self, name: &ToolName) -> Result<Arc<RegisteredTool>, ToolError> {
        let registered = self.read().get(name.as_str()).map(Arc::clone);
        registered.ok_or_else(|| ToolError::new(ToolErrorKind::UnknownTool, format!("Unknown tool: {name}")))
    }
}

impl ToolTable {
    fn add(&mut self, registered: RegisteredTool) -> Result<(), AlreadyRegistered> {
        let name = registered.definition.name.clone();
        if self.numbers.contains_key(&name) {
            return Err(AlreadyRegistered(name));
        }
        self.numbers.insert(name, self.next);
        self.tools.insert(self.next, Arc::new(registered));
        self.next += 1;
        self.listed.take();
        Ok(())
    }

    /// Removes the tool. Returns false if there is no such tool.
    fn remove(&mut self, name: &str) -> bool {
        let number = ToolName::new(name).ok().and_then(|name| self.numbers.remove(&name));
        let found = number.is_some_and(|number| self.tools.remove(&number).is_some());
        if found {
            self.listed.take();
        }
        found
    }

    fn get(&self, name: &str) -> Option<&Arc<RegisteredTool>> {
        self.tools.get(self.numbers.get(&ToolName::new(name).ok()?)?)
    }

    fn list(&self) -> Arc<[ToolDefinition]> {
        let listed = || self.tools.values().map(|registered| registered.definition.clone()).collect();
        Arc::clone(self.listed.get_or_init(listed))
    }

    fn all(&self) -> Vec<Arc<RegisteredTool>> {
        self.tools.values().cloned().collect()
    }
}

impl RegisteredTool {
    async fn make_ready(&self) -> Result<(), ToolError> {
        self.ready.get_or_try_init(|| self.tool.initialize()).await.map(|&()| ())
    }
}

impl ToolProvider for Registry {
    /// Returns the kind of built-in tools, so that the names of these tools get no prefix: they are a part of the
    /// program too.
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
        let tools = self.read().all();
        Box::pin(async move {
            let each = tools
                .iter()
                .map(|registered| async { (&registered.definition.name, registered.make_ready().await) });
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
            let registered = self.registered(tool)?;
            registered.make_ready().await?;
            registered.tool.call(arguments, cx).await
        })
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        let tools = self.read().all();
        Box::pin(async move {
            let ready = tools.iter().filter(|registered| registered.ready.initialized());
            join_all(ready.map(|registered| registered.tool.shutdown())).await;
        })
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.read();
        let names: Vec<&str> =
            registered.tools.values().map(|registered| registered.definition.name.as_str()).collect();
        f.debug_struct("Registry")
            .field("namespace", &self.namespace)
            .field("tools", &names)
            .finish_non_exhaustive()
    }
}

/// A tool with this name is already registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a tool named `{0}` is already registered; give the new tool another name")]
pub struct AlreadyRegistered(pub ToolName);

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
