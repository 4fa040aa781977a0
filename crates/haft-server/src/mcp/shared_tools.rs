//! The tools of equal clients: opened with the first request, prepared in the background, and listed from a cache.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haft_core::output_store::StoreEntry;
use haft_core::position::RunPosition;
use haft_core::provider::ToolProvider;
use haft_engine::{CatalogWarning, Orchestrator, RunContext, SearchScope};
use haft_runtime::definition_watch::DefinitionWatch;
use haft_runtime::wiring;
use haft_tools::mcp::SupervisedServer;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::address::UpstreamAddresses;
use super::gateway::{GatewayClient, McpGateway, OpenedTools, WarningSink};
use super::held::HeldCalls;
use super::listing::CachedListing;
use super::meta_tools::{ListedTools, ToolListing};
use super::tasks::TaskTable;
use super::upstream::{CachedLists, UpstreamServers};

/// The maximum number of stored outputs that are listed as resources. Clients can still read older ones.
const STORED_LISTED_MAX: usize = 1_000;

/// The maximum number of warnings that wait for a connection.
const WARNINGS_WAITING_MAX: usize = 64;

/// The tools of all connections whose clients are equal.
pub(super) struct SharedTools {
    pub(super) client: GatewayClient,
    pub(super) orchestrator: Orchestrator,
    /// The context of calls, without the parts that belong to a connection.
    pub(super) context: RunContext,
    pub(super) place: RunPosition,
    pub(super) upstreams: UpstreamServers,
    pub(super) lists: CachedLists,
    pub(super) held: HeldCalls,
    pub(super) tasks: TaskTable,
    /// Outputs that were stored for the clients, the oldest first.
    pub(super) stored: Mutex<Vec<StoreEntry>>,
    definitions: DefinitionWatch,
    /// True after all providers had time to start.
    ready: watch::Sender<bool>,
    /// Counts list changes that no provider announces.
    pub(super) changed: watch::Sender<u64>,
    pub(super) warnings: broadcast::Sender<Arc<CatalogWarning>>,
    listing: Mutex<Option<CachedListing>>,
    task: Mutex<Option<JoinHandle<()>>>,
    last_used: Mutex<Instant>,
}

impl SharedTools {
    /// Opens the tools of a client, and starts the upstream servers in the background.
    pub(super) fn open(gateway: &McpGateway, client: GatewayClient) -> Result<Arc<Self>, String> {
        let opened = (gateway.open)(&client)?;
        let OpenedTools { orchestrator, context, place, later, upstreams, naming, definitions } = opened;
        let servers: Vec<Arc<SupervisedServer>> =
            upstreams.iter().map(|provider| Arc::clone(provider.server())).collect();
        let namespaces = servers.iter().map(|server| server.namespace().to_owned()).collect();
        let tools = Arc::new(Self {
            client,
            orchestrator,
            context,
            place,
            upstreams: UpstreamServers { servers, addresses: UpstreamAddresses::new(naming, namespaces) },
            lists: CachedLists::default(),
            held: HeldCalls::default(),
            tasks: TaskTable::default(),
            stored: Mutex::default(),
            definitions,
            ready: watch::Sender::new(false),
            changed: watch::Sender::new(0),
            warnings: broadcast::Sender::new(WARNINGS_WAITING_MAX),
            listing: Mutex::default(),
            task: Mutex::default(),
            last_used: Mutex::new(Instant::now()),
        });
        let preparing = tokio::spawn(Arc::clone(&tools).prepare(later, Arc::clone(&gateway.warn)));
        *tools.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(preparing);
        Ok(tools)
    }

    async fn prepare(
        self: Arc<Self>,
        later: futures_util::future::BoxFuture<'static, Vec<Arc<dyn ToolProvider>>>,
        warn: WarningSink,
    ) {
        for provider in later.await {
            self.orchestrator.catalog().add(provider);
        }
        self.changed.send_modify(|count| *count += 1);
        let mut warnings = wiring::warm_up(&self.orchestrator).await;
        warnings.extend(self.definitions.warnings(&self.orchestrator));
        self.ready.send_replace(true);
        self.changed.send_modify(|count| *count += 1);
        for warning in warnings {
            warn(&warning);
            // Without a connection there is no receiver.
            let _ = self.warnings.send(Arc::new(warning));
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Waits until the tools of upstream servers are known, at most for `wait`.
    pub(super) async fn until_ready(&self, wait: Duration) {
        let mut ready = self.ready.subscribe();
        // Ignore a timeout: a server that is late announces its tools with `list_changed`.
        let _ = timeout(wait, ready.wait_for(|ready| *ready)).await;
    }

    /// Returns the tool list of the client. The list is built again only if the catalog has changed.
    pub(super) fn listing(&self, gateway: &McpGateway) -> ToolListing {
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.orchestrator.catalog().snapshot();
        if let Some(cached) = listing.as_ref().filter(|cached| Arc::ptr_eq(&cached.snapshot, &snapshot)) {
            return cached.listing.clone();
        }
        let tools = self.orchestrator.active_tools(&gateway.selection);
        let built = gateway.listed.listing(&self.orchestrator, &tools);
        *listing = Some(CachedListing { snapshot, listing: built.clone() });
        built
    }

    /// Returns the scope of searches; `None` for a client that sees all tools, without building its list.
    pub(super) fn search_scope(&self, gateway: &McpGateway) -> Option<Arc<SearchScope>> {
        match gateway.listed {
            ListedTools::All => None,
            ListedTools::Search(_) => self.listing(gateway).search,
        }
    }

    /// Lists an output as a resource from now on.
    pub(super) fn add_stored(&self, entry: &StoreEntry) {
        let mut stored = self.stored();
        if stored.len() >= STORED_LISTED_MAX {
            stored.remove(0);
        }
        stored.push(entry.clone());
        drop(stored);
        self.lists.clear();
    }

    pub(super) fn stored(&self) -> MutexGuard<'_, Vec<StoreEntry>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark_used(&self) {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn idle_for(&self) -> Duration {
        self.last_used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Stops the preparation and the upstream servers.
    pub(super) async fn close(&self, warn: &WarningSink) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
        }
        self.definitions.late_warnings(&self.orchestrator).iter().for_each(|warning| warn(warning));
        wiring::shut_down(&self.orchestrator).await.iter().for_each(|warning| warn(warning));
    }
}

impl fmt::Debug for SharedTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTools").field("client", &self.client).finish_non_exhaustive()
    }
}

/// The maximum number of different clients whose tools are open. Each may run a process for every configured server.
const OPEN_MAX: usize = 256;

/// The tools of all clients of a gateway. Principals never share them.
#[derive(Debug)]
pub(super) struct ToolPool {
    pub(super) gateway: Arc<McpGateway>,
    open: Mutex<HashMap<GatewayClient, Arc<SharedTools>>>,
}

impl ToolPool {
    pub(super) fn new(gateway: Arc<McpGateway>) -> Self {
        Self { gateway, open: Mutex::default() }
    }

    /// Returns the tools of a client; only the first call opens them.
    pub(super) fn get(&self, client: GatewayClient) -> Result<Arc<SharedTools>, String> {
        let mut open = self.open();
        if let Some(tools) = open.get(&client) {
            tools.mark_used();
            return Ok(Arc::clone(tools));
        }
        if open.len() >= OPEN_MAX {
            return Err(format!(
                "the gateway already serves {OPEN_MAX} different clients (by principal and capabilities); try again later"
            ));
        }
        let tools = SharedTools::open(&self.gateway, client.clone())?;
        open.insert(client, Arc::clone(&tools));
        Ok(tools)
    }

    /// Closes the tools that no connection has used for some time.
    pub(super) async fn close_idle(&self, idle_max: Duration) {
        let is_idle = |tools: &Arc<SharedTools>| {
            Arc::strong_count(tools) == 1 && tools.idle_for() >= idle_max && tools.tasks.is_empty()
        };
        let idle: Vec<Arc<SharedTools>> =
            self.open().extract_if(|_, tools| is_idle(tools)).map(|(_, tools)| tools).collect();
        for tools in idle {
            tools.close(&self.gateway.warn).await;
        }
    }

    /// Stops all upstream servers.
    pub(super) async fn close(&self) {
        let all: Vec<Arc<SharedTools>> = self.open().drain().map(|(_, tools)| tools).collect();
        for tools in all {
            tools.close(&self.gateway.warn).await;
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<GatewayClient, Arc<SharedTools>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
