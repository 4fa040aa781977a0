//! The tools of equal clients: opened with the first request, prepared in the background, and listed from a cache.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use haft_core::client_relay::ClientRelay;
use haft_core::position::RunPosition;
use haft_core::provider::ToolProvider;
use haft_core::run::journal::RunJournal;
use haft_engine::{CatalogWarning, Orchestrator, RunContext, SearchScope};
use haft_runtime::definition_watch::DefinitionWatch;
use haft_runtime::wiring::{self, LoginTarget};
use haft_tools::mcp::SupervisedServer;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::address::UpstreamAddresses;
use super::client_outputs::ClientOutputs;
use super::gateway::{
    GatewayClient, McpGateway, OpenedTools, OperatorApprovers, OutputsOpener, ProfileRequest, ToolView,
    WarningSink,
};
use super::held::HeldCalls;
use super::listing::CachedListing;
use super::logins::{LoginPlace, UpstreamLogins};
use super::meta_tools::{ListedTools, ToolListing};
use super::operator_questions::{ApprovalsApi, OperatorQueue};
use super::provider_changes::{LIST_SETTLE_TIME, any_change, change_counts};
use super::questions::ClientQuestions;
use super::tasks::TaskTable;
use super::upstream::{CachedLists, UpstreamServers};

/// The maximum number of warnings that wait for a connection.
const WARNINGS_WAITING_MAX: usize = 64;

/// The minimum time between two reports about definitions that changed. A server may change its definitions continuously.
const CHANGE_REPORT_PAUSE: Duration = Duration::from_mins(1);

/// The tools that all connections of equal clients share.
pub(super) struct SharedTools {
    /// The settings that the tools were opened with.
    pub(super) gateway: Arc<McpGateway>,
    /// The number of reloads before the tools were opened.
    generation: u64,
    pub(super) client: GatewayClient,
    /// The tools that the client sees, by its profile.
    pub(super) view: ToolView,
    pub(super) orchestrator: Orchestrator,
    /// The context of calls, without the parts that belong to a connection.
    pub(super) context: RunContext,
    pub(super) journal: Arc<dyn RunJournal>,
    pub(super) place: RunPosition,
    pub(super) upstreams: UpstreamServers,
    /// The servers at which the client's user can log in.
    logins: Vec<LoginTarget>,
    pub(super) lists: CachedLists,
    pub(super) held: Arc<HeldCalls>,
    pub(super) tasks: Arc<TaskTable>,
    /// The outputs of tasks, and of clients without a session.
    pub(super) outputs: Arc<ClientOutputs>,
    /// Opens the output store of a client; `None` if haft stores no outputs.
    pub(super) open_outputs: Option<OutputsOpener>,
    definitions: DefinitionWatch,
    /// True after the providers have started, or the time for it has passed.
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
    fn open(
        (gateway, generation): (Arc<McpGateway>, u64),
        (client, only_client): (GatewayClient, Option<&Weak<dyn ClientRelay>>),
        kept: KeptState,
    ) -> Result<Arc<Self>, String> {
        let view = gateway.view_of(client.profile.as_deref()).cloned();
        let view = view.ok_or("the gateway no longer has this profile")?;
        let opened = (gateway.open)(&client)?;
        let warn = Arc::clone(&gateway.warn);
        let OpenedTools {
            orchestrator,
            context,
            outputs: open_outputs,
            journal,
            place,
            later,
            upstreams,
            logins,
            naming,
            definitions,
        } = opened;
        let servers: Vec<Arc<SupervisedServer>> =
            upstreams.iter().map(|provider| Arc::clone(provider.server())).collect();
        if let Some(client) = only_client {
            for server in &servers {
                server.set_only_client(Weak::clone(client));
            }
        }
        let namespaces = servers.iter().map(|server| server.namespace().to_owned()).collect();
        let tools = Arc::new(Self {
            gateway,
            generation,
            client,
            view,
            orchestrator,
            context,
            journal,
            place,
            upstreams: UpstreamServers { servers, addresses: UpstreamAddresses::new(naming, namespaces) },
            logins,
            lists: CachedLists::default(),
            held: kept.held,
            tasks: kept.tasks,
            outputs: kept.outputs,
            open_outputs,
            definitions,
            ready: watch::Sender::new(false),
            changed: watch::Sender::new(0),
            warnings: broadcast::Sender::new(WARNINGS_WAITING_MAX),
            listing: Mutex::default(),
            task: Mutex::default(),
            last_used: Mutex::new(Instant::now()),
        });
        let preparing = tokio::spawn(Arc::clone(&tools).prepare(later, warn));
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
        let of_items = self.listing().items.warnings();
        warnings.extend(of_items.iter().cloned());
        let reported = [self.orchestrator.catalog().warnings(), of_items].concat();
        self.report(warnings, &warn);
        let tools = Arc::downgrade(&self);
        // Keep only a weak reference: a strong one would keep the tools open while no connection uses them.
        drop(self);
        report_later_changes(tools, warn, reported).await;
    }

    /// Reports warnings to the operator and to the connected clients.
    fn report(&self, warnings: Vec<CatalogWarning>, warn: &WarningSink) {
        for warning in warnings {
            warn(&warning);
            // Ignore the error: without a connection there is no receiver.
            let _ = self.warnings.send(Arc::new(warning));
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Waits until the tools of upstream servers are known, or until the time that the operator allows for this has
    /// passed.
    pub(super) async fn until_ready(&self) {
        let mut ready = self.ready.subscribe();
        // Ignore a timeout: a server that is late announces its tools with `list_changed`.
        let _ = timeout(self.gateway.ready_wait, ready.wait_for(|ready| *ready)).await;
    }

    /// Returns the login target for an upstream server; `None` if the client's user cannot log in there.
    pub(super) fn login_target(&self, server: usize) -> Option<&LoginTarget> {
        let namespace = self.upstreams.servers.get(server)?.namespace();
        self.logins.iter().find(|target| target.namespace().as_str() == namespace)
    }

    /// Returns the upstream servers whose resources and prompts the client sees.
    pub(super) fn offered_upstreams(&self) -> Vec<usize> {
        self.upstreams.offered(&self.orchestrator, &self.view.selection, &self.definitions)
    }

    /// Returns the tool list of the client. The list is built again only if the catalog has changed.
    pub(super) fn listing(&self) -> ToolListing {
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.orchestrator.catalog().snapshot();
        if let Some(cached) = listing.as_ref().filter(|cached| Arc::ptr_eq(&cached.snapshot, &snapshot)) {
            return cached.listing.clone();
        }
        let tools = self.orchestrator.active_tools(&self.view.selection);
        let built = self.view.listed.listing(&self.orchestrator, &tools);
        *listing = Some(CachedListing { snapshot, listing: built.clone() });
        built
    }

    /// Returns the scope of searches; `None` for a client that sees all tools, without building its list.
    pub(super) fn search_scope(&self) -> Option<Arc<SearchScope>> {
        match self.view.listed {
            ListedTools::All => None,
            ListedTools::Search(_) => self.listing().search,
        }
    }

    fn mark_used(&self) {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn idle_for(&self) -> Duration {
        self.last_used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Stops the preparation and the upstream servers.
    async fn close(&self) {
        let warn = &self.gateway.warn;
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
        }
        self.definitions.late_warnings(&self.orchestrator).iter().for_each(|warning| warn(warning));
        wiring::shut_down(&self.orchestrator).await.iter().for_each(|warning| warn(warning));
    }
}

/// Reports the definitions that change while the gateway runs, and new warnings about tool lists, until the tools are
/// closed. `reported` contains the warnings about tool lists that were already reported.
async fn report_later_changes(
    tools: Weak<SharedTools>,
    warn: WarningSink,
    mut reported: Vec<CatalogWarning>,
) {
    loop {
        let Some(open) = tools.upgrade() else { return };
        // Read the counters before the definitions are compared, so that no change in between is missed.
        let counted = change_counts(&open.orchestrator);
        let mut warnings = open.definitions.late_warnings(&open.orchestrator);
        let of_lists = [open.orchestrator.catalog().warnings(), open.listing().items.warnings()].concat();
        warnings.extend(of_lists.iter().filter(|warning| !reported.contains(warning)).cloned());
        reported = of_lists;
        let pause = if warnings.is_empty() { LIST_SETTLE_TIME } else { CHANGE_REPORT_PAUSE };
        open.report(warnings, &warn);
        drop(open);
        sleep(pause).await;
        any_change(&counted).await;
        sleep(LIST_SETTLE_TIME).await;
    }
}

impl fmt::Debug for SharedTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTools").field("client", &self.client).finish_non_exhaustive()
    }
}

/// The maximum number of different clients whose tools are open. Each may run a process for every configured server.
const OPEN_MAX: usize = 256;

/// The state of a client that a reload does not end: its calls in progress, its tasks and its outputs.
#[derive(Debug, Clone, Default)]
struct KeptState {
    held: Arc<HeldCalls>,
    tasks: Arc<TaskTable>,
    outputs: Arc<ClientOutputs>,
}

/// The tools of one client in the pool.
#[derive(Debug, Default)]
struct PooledClient {
    kept: KeptState,
    /// `None` after a reload, until the client uses its tools again.
    tools: Option<Arc<SharedTools>>,
}

#[derive(Debug)]
struct PooledTools {
    gateway: Arc<McpGateway>,
    clients: HashMap<GatewayClient, PooledClient>,
    /// Tools from before a reload, until their last call has ended.
    replaced: Vec<Arc<SharedTools>>,
}

/// The tools of all clients of a gateway. Principals never share them.
#[derive(Debug)]
pub(super) struct ToolPool {
    /// The open logins at upstream servers.
    pub(super) logins: Arc<UpstreamLogins>,
    /// The questions that wait for the operator. A reload keeps them.
    pub(super) operator_queue: Arc<OperatorQueue>,
    /// The approvals API; `None` for a server without it.
    pub(super) approvals_api: Option<ApprovalsApi>,
    pooled: Mutex<PooledTools>,
    /// The number of reloads.
    generation: watch::Sender<u64>,
    /// True if all requests come from one client.
    has_one_client: bool,
    only_client: OnceLock<Weak<dyn ClientRelay>>,
}

impl ToolPool {
    pub(super) fn new(gateway: Arc<McpGateway>, place: LoginPlace) -> Self {
        let pooled = PooledTools { gateway, clients: HashMap::new(), replaced: Vec::new() };
        let (pooled, generation) = (Mutex::new(pooled), watch::Sender::new(0));
        let operator_queue = Arc::new(OperatorQueue::of_terminal());
        Self {
            logins: UpstreamLogins::new(place),
            operator_queue,
            approvals_api: None,
            pooled,
            generation,
            has_one_client: false,
            only_client: OnceLock::new(),
        }
    }

    /// Declares that all requests come from one client, as over stdio.
    #[must_use]
    pub(super) fn for_one_client(mut self) -> Self {
        self.has_one_client = true;
        self
    }

    /// Lets a client that has made a handshake answer requests of upstream servers outside of calls, if it is the only
    /// one.
    pub(super) fn set_only_client(&self, client: &Arc<ClientQuestions>) {
        if self.has_one_client {
            let _ = self.only_client.set(Arc::downgrade(client) as _);
        }
    }

    /// Adds the approvals API, which asks its callers about the calls of clients that cannot show forms.
    #[must_use]
    pub(super) fn with_approvers(mut self, approvers: Option<OperatorApprovers>) -> Self {
        self.approvals_api = approvers.map(ApprovalsApi::new);
        self
    }

    /// Returns the settings for new clients.
    pub(super) fn gateway(&self) -> Arc<McpGateway> {
        Arc::clone(&self.pooled().gateway)
    }

    /// Replaces the settings for later calls. Calls in progress keep their tools; connections open their tools again.
    pub(super) fn replace(&self, gateway: McpGateway) {
        let mut pooled = self.pooled();
        pooled.gateway = Arc::new(gateway);
        let replaced: Vec<_> = pooled.clients.values_mut().filter_map(|client| client.tools.take()).collect();
        pooled.replaced.extend(replaced);
        self.generation.send_modify(|number| *number += 1);
    }

    /// Returns false if a reload has replaced the settings of these tools.
    pub(super) fn is_current(&self, tools: &SharedTools) -> bool {
        *self.generation.borrow() == tools.generation
    }

    /// Waits until these tools are replaced.
    pub(super) async fn replaced(&self, tools: &SharedTools) {
        let mut generation = self.generation.subscribe();
        // Waiting cannot fail, because the sender lives as long as `self`.
        let _ = generation.wait_for(|number| *number != tools.generation).await;
    }

    /// Returns the tools of a client. Only the first call after the start or a reload opens them. The current settings
    /// determine the client's profile.
    pub(super) fn get(
        &self,
        client: GatewayClient,
        request: ProfileRequest<'_>,
    ) -> Result<Arc<SharedTools>, String> {
        let mut pooled = self.pooled();
        let profile = pooled.gateway.profile_of(request).map(str::to_owned);
        if let (Some(named), None) = (request.named, &profile) {
            return Err(format!("the gateway has no profile `{named}`"));
        }
        let client = GatewayClient { profile, ..client };
        let known = pooled.clients.get(&client);
        if let Some(tools) = known.and_then(|known| known.tools.as_ref()) {
            tools.mark_used();
            return Ok(Arc::clone(tools));
        }
        if known.is_none() && pooled.clients.len() >= OPEN_MAX {
            return Err(format!(
                "the gateway already serves {OPEN_MAX} different clients (by principal, capabilities and profile); try again later"
            ));
        }
        let kept = known.map(|known| known.kept.clone()).unwrap_or_default();
        let current = (Arc::clone(&pooled.gateway), *self.generation.borrow());
        let tools = SharedTools::open(current, (client.clone(), self.only_client.get()), kept.clone())?;
        pooled.clients.insert(client, PooledClient { kept, tools: Some(Arc::clone(&tools)) });
        Ok(tools)
    }

    /// Returns the name and the state of each upstream server of all clients.
    pub(super) fn server_states(&self) -> Vec<(String, &'static str)> {
        let pooled = self.pooled();
        let open = pooled.clients.values().filter_map(|client| client.tools.as_ref()).chain(&pooled.replaced);
        let servers = open.flat_map(|tools| &tools.upstreams.servers);
        servers.map(|server| (server.name().to_owned(), server.state_name())).collect()
    }

    /// Closes the tools that no connection has used for some time, and replaced tools without calls.
    pub(super) async fn close_idle(&self, idle_max: Duration) {
        let is_unused = |tools: &Arc<SharedTools>| Arc::strong_count(tools) == 1;
        let is_idle = |client: &PooledClient| {
            let mut tools = client.tools.iter();
            client.kept.tasks.is_empty()
                && tools.all(|tools| is_unused(tools) && tools.idle_for() >= idle_max)
        };
        let mut idle: Vec<Arc<SharedTools>> = Vec::new();
        {
            let mut pooled = self.pooled();
            let clients = pooled.clients.extract_if(|_, client| is_idle(client));
            idle.extend(clients.filter_map(|(_, client)| client.tools));
            idle.extend(pooled.replaced.extract_if(.., |tools| is_unused(tools)));
        }
        for tools in idle {
            tools.close().await;
        }
    }

    /// Cancels all logins and stops all upstream servers.
    pub(super) async fn close(&self) {
        self.logins.close();
        let mut all: Vec<Arc<SharedTools>> = Vec::new();
        {
            let mut pooled = self.pooled();
            all.extend(pooled.clients.drain().filter_map(|(_, client)| client.tools));
            all.append(&mut pooled.replaced);
        }
        for tools in all {
            tools.close().await;
        }
    }

    fn pooled(&self) -> MutexGuard<'_, PooledTools> {
        self.pooled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
