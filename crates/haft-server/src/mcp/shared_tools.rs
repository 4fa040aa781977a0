//! The tools of equal clients: opened with the first request, prepared in the background, and listed from a cache.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use haft_core::client_relay::ClientRelay;
use haft_core::name::Namespace;
use haft_core::position::RunPosition;
use haft_core::provider::ToolProvider;
use haft_core::run::journal::RunJournal;
use haft_engine::{CatalogWarning, Orchestrator, RunContext, SearchScope};
use haft_runtime::definition_watch::DefinitionWatch;
use haft_runtime::wiring::{self, LoginTarget};
use haft_store::workspaces::WorkspaceLease;
use haft_tools::mcp::{ServerNews, SupervisedServer};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::address::UpstreamAddresses;
use super::client_outputs::ClientOutputs;
use super::era::ClientAbilities;
use super::gateway::{
    GatewayClient, McpGateway, OpenedTools, OperatorApprovers, OutputsOpener, ProfileRequest, ToolView,
    WarningSink,
};
use super::held::HeldCalls;
use super::listing::CachedListing;
use super::logins::{LoginPlace, UpstreamLogins};
use super::meta_tools::{ListedTools, ToolListing};
use super::operator_questions::{ApprovalsApi, OperatorQueue};
use super::passed_methods::PassedMethods;
use super::principals::PrincipalTable;
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
    /// The requests other than tool calls that read content of the upstream servers.
    pub(super) passed: PassedMethods,
    /// The servers at which the client's user can log in.
    logins: Vec<LoginTarget>,
    pub(super) lists: CachedLists,
    pub(super) held: Arc<HeldCalls>,
    pub(super) tasks: Arc<TaskTable>,
    /// The outputs of tasks, and of clients without a session.
    pub(super) outputs: Arc<ClientOutputs>,
    /// Counts the outputs that were added to `outputs`.
    pub(super) outputs_changed: watch::Sender<u64>,
    /// Opens the output store of a client; `None` if haft stores no outputs.
    pub(super) open_outputs: Option<OutputsOpener>,
    definitions: DefinitionWatch,
    /// Keeps the workspace of the client in use, so that no sweep removes it.
    _workspace: Option<WorkspaceLease>,
    /// True after the providers have started, or after the time limit for their start has passed.
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
            workspace,
        } = opened;
        let servers: Vec<Arc<SupervisedServer>> =
            upstreams.iter().map(|provider| Arc::clone(provider.server())).collect();
        if let Some(client) = only_client {
            for server in &servers {
                server.set_only_client(Weak::clone(client));
            }
        }
        let namespaces: Vec<String> = servers.iter().map(|server| server.namespace().to_owned()).collect();
        let passed =
            PassedMethods::new(&orchestrator, namespaces.iter().map(|name| Namespace::sanitize(name)));
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
            passed,
            logins,
            lists: CachedLists::default(),
            held: kept.held,
            tasks: kept.tasks,
            outputs: kept.outputs,
            outputs_changed: watch::Sender::new(0),
            open_outputs,
            definitions,
            _workspace: workspace,
            ready: watch::Sender::new(false),
            changed: watch::Sender::new(0),
            warnings: broadcast::Sender::new(WARNINGS_WAITING_MAX),
            listing: Mutex::default(),
            task: Mutex::default(),
            last_used: Mutex::new(Instant::now()),
        });
        let clearing = clear_changed_lists(Arc::downgrade(&tools));
        let preparing = Arc::clone(&tools).prepare(later, warn);
        let preparing = tokio::spawn(async move {
            tokio::join!(preparing, clearing);
        });
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
        let quarantined = self.definitions.quarantine_warnings(&self.orchestrator);
        warnings.extend(self.definitions.unreported_warnings(&self.orchestrator));
        self.ready.send_replace(true);
        self.changed.send_modify(|count| *count += 1);
        let of_items = self.listing().items.warnings();
        warnings.extend(of_items.iter().cloned());
        let reported = [self.orchestrator.catalog().warnings(), of_items].concat();
        // The operator gets these warnings once, and each client when its tools are opened.
        let known = quarantined.into_iter().filter(|warning| !warnings.contains(warning));
        known.for_each(|warning| self.tell_clients(warning));
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
            self.tell_clients(warning);
        }
    }

    fn tell_clients(&self, warning: CatalogWarning) {
        // Ignore the error: without a connection there is no receiver.
        let _ = self.warnings.send(Arc::new(warning));
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
        self.definitions.unreported_warnings(&self.orchestrator).iter().for_each(|warning| warn(warning));
        wiring::shut_down(&self.orchestrator).await.iter().for_each(|warning| warn(warning));
    }
}

/// Clears the cached lists when a server announces a change, even if no client listens. Ends when the tools are closed.
fn clear_changed_lists(tools: Weak<SharedTools>) -> impl Future<Output = ()> + Send {
    let servers = tools.upgrade().map(|tools| tools.upstreams.servers.clone()).unwrap_or_default();
    let news: Vec<_> = servers.iter().map(|server| server.news()).collect();
    async move {
        let clearing = news.into_iter().map(|mut news| {
            let tools = tools.clone();
            async move {
                loop {
                    let has_changed = match news.recv().await {
                        // Some of the missed notifications may have been changes.
                        Ok(ServerNews::PromptsChanged | ServerNews::ResourcesChanged)
                        | Err(RecvError::Lagged(_)) => true,
                        Ok(
                            ServerNews::ResourceUpdated(_) | ServerNews::UrlCompleted(_) | ServerNews::Log(_),
                        ) => false,
                        Err(RecvError::Closed) => return,
                    };
                    let Some(tools) = tools.upgrade() else { return };
                    if has_changed {
                        tools.lists.clear();
                    }
                }
            }
        });
        join_all(clearing).await;
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
        let mut warnings = open.definitions.unreported_warnings(&open.orchestrator);
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

/// The maximum number of different clients for which the gateway keeps tools open. For each of them, a process of every
/// configured server may run.
const OPEN_MAX: usize = 256;

/// The maximum number of states that the gateway keeps for clients without open tools, whose tasks it could otherwise
/// keep for any number of principals.
const KEPT_STATES_MAX: usize = 256;

/// The clients that share held calls, tasks and outputs: clients that differ only in their capabilities. A client
/// without sessions may declare other capabilities in its next request, and must still find its task or its held call.
/// Clients of one principal with different permissions share nothing. Otherwise a token could answer the approval
/// question of a call that a token with other permissions began.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct StateOwner(GatewayClient);

impl StateOwner {
    fn of(client: &GatewayClient) -> Self {
        Self(GatewayClient { abilities: ClientAbilities::default(), ..client.clone() })
    }
}

/// The state of clients that a reload does not end: their calls in progress, their tasks and their outputs.
#[derive(Debug, Clone, Default)]
struct KeptState {
    held: Arc<HeldCalls>,
    tasks: Arc<TaskTable>,
    outputs: Arc<ClientOutputs>,
}

#[derive(Debug)]
struct PooledTools {
    gateway: Arc<McpGateway>,
    clients: HashMap<GatewayClient, Arc<SharedTools>>,
    kept: HashMap<StateOwner, KeptState>,
    /// The tools that a reload has replaced, kept until their last call has ended.
    replaced: Vec<Arc<SharedTools>>,
}

impl PooledTools {
    /// Removes the states of clients without open tools and without tasks. If too many of the other clients without open
    /// tools have tasks, removes the states whose last task ended first.
    fn forget_unused_states(&mut self) {
        // After a reload, a call that waits for an answer still uses the replaced tools.
        let replaced = self.replaced.iter().map(|tools| &tools.client);
        let owners: HashSet<StateOwner> = self.clients.keys().chain(replaced).map(StateOwner::of).collect();
        self.kept.retain(|owner, kept| owners.contains(owner) || !kept.tasks.is_empty());
        let closed = self.kept.iter().filter(|(owner, _)| !owners.contains(owner));
        let closed = closed.map(|(owner, kept)| (kept.tasks.last_ended(), owner.clone()));
        for owner in excess_states(closed.collect()) {
            self.kept.remove(&owner);
        }
    }
}

/// Returns the states to remove: those whose last task ended first. A state with a task that works has no such time, and
/// stays; its client has open tools, because the task uses them.
fn excess_states<T>(states: Vec<(Option<Instant>, T)>) -> Vec<T> {
    let excess = states.len().saturating_sub(KEPT_STATES_MAX);
    let mut ended: Vec<(Instant, T)> =
        states.into_iter().filter_map(|(ended, state)| Some((ended?, state))).collect();
    ended.sort_by_key(|(ended, _)| *ended);
    ended.into_iter().take(excess).map(|(_, state)| state).collect()
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
    /// The limits and the untrusted reads of principals. A reload keeps them.
    pub(super) principals: PrincipalTable,
    pooled: Mutex<PooledTools>,
    /// The number of reloads.
    generation: watch::Sender<u64>,
    /// True if all requests come from one client.
    has_one_client: bool,
    only_client: OnceLock<Weak<dyn ClientRelay>>,
}

impl ToolPool {
    pub(super) fn new(gateway: Arc<McpGateway>, place: LoginPlace) -> Self {
        let pooled =
            PooledTools { gateway, clients: HashMap::new(), kept: HashMap::new(), replaced: Vec::new() };
        let (pooled, generation) = (Mutex::new(pooled), watch::Sender::new(0));
        let operator_queue = Arc::new(OperatorQueue::of_terminal());
        Self {
            logins: UpstreamLogins::new(place),
            operator_queue,
            approvals_api: None,
            principals: PrincipalTable::default(),
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

    /// Lets a client that has made a handshake answer requests that upstream servers send outside of calls. Has no
    /// effect if the gateway can have several clients, because haft would not know which client should answer.
    pub(super) fn set_only_client(&self, client: &Arc<ClientQuestions>) {
        if self.has_one_client {
            let _ = self.only_client.set(Arc::downgrade(client) as _);
        }
    }

    /// Adds the approvals API, which asks its callers about the calls of clients that cannot show forms or may not approve
    /// calls.
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
        let replaced: Vec<_> = pooled.clients.drain().map(|(_, tools)| tools).collect();
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
        if let Some(tools) = pooled.clients.get(&client) {
            tools.mark_used();
            return Ok(Arc::clone(tools));
        }
        if pooled.clients.len() >= OPEN_MAX {
            return Err(format!(
                "the gateway already serves {OPEN_MAX} different clients (by principal, capabilities and profile); try again later"
            ));
        }
        let owner = StateOwner::of(&client);
        let kept = pooled.kept.get(&owner).cloned().unwrap_or_default();
        let current = (Arc::clone(&pooled.gateway), *self.generation.borrow());
        let tools = SharedTools::open(current, (client.clone(), self.only_client.get()), kept.clone())?;
        pooled.kept.insert(owner, kept);
        pooled.clients.insert(client, Arc::clone(&tools));
        Ok(tools)
    }

    /// Returns the name and the state of each upstream server of all clients.
    pub(super) fn server_states(&self) -> Vec<(String, &'static str)> {
        let pooled = self.pooled();
        let open = pooled.clients.values().chain(&pooled.replaced);
        let servers = open.flat_map(|tools| &tools.upstreams.servers);
        servers.map(|server| (server.name().to_owned(), server.state_name())).collect()
    }

    /// Closes the tools that no connection has used for some time, and replaced tools without calls.
    pub(super) async fn close_idle(&self, idle_max: Duration) {
        let is_unused = |tools: &Arc<SharedTools>| Arc::strong_count(tools) == 1;
        // A client's tools are in use while one of its tasks runs or one of its calls waits for answers, because the
        // task or the call holds a reference to them.
        let is_idle = |tools: &Arc<SharedTools>| is_unused(tools) && tools.idle_for() >= idle_max;
        let mut idle: Vec<Arc<SharedTools>> = Vec::new();
        {
            let mut pooled = self.pooled();
            idle.extend(pooled.clients.extract_if(|_, tools| is_idle(tools)).map(|(_, tools)| tools));
            idle.extend(pooled.replaced.extract_if(.., |tools| is_unused(tools)));
            pooled.forget_unused_states();
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
            all.extend(pooled.clients.drain().map(|(_, tools)| tools));
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

#[cfg(test)]
mod tests {
    use haft_config::ConfigSources;
    use haft_core::home::Home;
    use haft_core::naming::NamingScheme;
    use haft_core::position::SessionId;
    use haft_core::principal::Principal;
    use haft_engine::{Catalog, OrchestratorConfig};
    use haft_store::call_journal::CallJournalFile;

    use super::super::gateway::tests::empty_gateway;
    use super::super::gateway::{BuiltinAccess, OwnApprovals};
    use super::*;

    /// Returns a gateway that opens an empty set of tools.
    fn openable_gateway(home: &Home) -> McpGateway {
        let sources = ConfigSources { home: None, project: None, named: None };
        let config = haft_config::load(sources, &|_| None).unwrap().resolved;
        let (home, session) = (home.clone(), SessionId(7));
        let open = move |client: &GatewayClient| {
            let (catalog, settings) =
                (Catalog::new(Vec::new(), NamingScheme::Bare), OrchestratorConfig::default());
            Ok(OpenedTools {
                orchestrator: Orchestrator::new(catalog, settings),
                context: RunContext::default(),
                outputs: None,
                journal: Arc::new(Arc::new(CallJournalFile::of(&home)).of_principal(&client.principal)),
                place: RunPosition::first(session),
                later: Box::pin(async { Vec::new() }),
                upstreams: Vec::new(),
                logins: Vec::new(),
                naming: NamingScheme::Bare,
                definitions: DefinitionWatch::new(&config, &home),
                workspace: None,
            })
        };
        McpGateway { open: Box::new(open), ..empty_gateway() }
    }

    #[test]
    fn states_beyond_the_limit_are_removed_in_the_order_in_which_their_last_tasks_ended() {
        let began = Instant::now();
        let state = |number: usize| (Some(began + Duration::from_secs(number as u64)), number);
        let newest_first = |count: usize| (0..count).rev().map(state).collect::<Vec<_>>();
        assert_eq!(excess_states(newest_first(KEPT_STATES_MAX)), [0_usize; 0]);
        assert_eq!(excess_states(newest_first(KEPT_STATES_MAX + 2)), [0, 1]);
        let mut working = newest_first(KEPT_STATES_MAX + 1);
        working.iter_mut().filter(|(_, number)| *number == 0).for_each(|(ended, _)| *ended = None);
        assert_eq!(excess_states(working), [1], "a state with a task that works stays");
    }

    fn client() -> GatewayClient {
        GatewayClient {
            principal: Principal::local(),
            abilities: ClientAbilities::default(),
            builtin_tools: BuiltinAccess::Offered,
            own_approvals: OwnApprovals::Permitted,
            profile: None,
        }
    }

    #[tokio::test]
    async fn state_is_kept_after_a_reload_while_a_call_uses_the_replaced_tools() {
        let directory = tempfile::tempdir().unwrap();
        let gateway = || openable_gateway(&Home::at(directory.path()));
        let pool = ToolPool::new(Arc::new(gateway()), LoginPlace::Nowhere);
        let request = ProfileRequest { named: None, client_name: None };
        let in_use = pool.get(client(), request).unwrap();
        pool.replace(gateway());
        pool.close_idle(Duration::ZERO).await;
        let reopened = pool.get(client(), request).unwrap();
        assert!(Arc::ptr_eq(&in_use.held, &reopened.held), "the waiting calls are found again");
        drop((in_use, reopened));
        pool.replace(gateway());
        // The preparation of the tools uses them for a moment.
        let forgotten = async {
            while !pool.pooled().kept.is_empty() {
                pool.close_idle(Duration::ZERO).await;
                tokio::task::yield_now().await;
            }
        };
        assert!(timeout(Duration::from_secs(20), forgotten).await.is_ok(), "an unused state is forgotten");
    }

    /// Otherwise a token without the scope `approvals` could answer the approval question of a task that another token
    /// of its subject began.
    #[test]
    fn clients_share_their_tasks_only_if_they_have_the_same_permissions() {
        let client = client();
        let own = StateOwner::of(&client);
        let abilities = ClientAbilities { elicitation: true, ..ClientAbilities::default() };
        assert_eq!(own, StateOwner::of(&GatewayClient { abilities, ..client.clone() }));
        for other in [
            GatewayClient { builtin_tools: BuiltinAccess::Withheld, ..client.clone() },
            GatewayClient { own_approvals: OwnApprovals::Forbidden, ..client.clone() },
            GatewayClient { principal: Principal::new("acme", "anna", "key_1"), ..client.clone() },
            GatewayClient { profile: Some("docs".into()), ..client },
        ] {
            assert_ne!(own, StateOwner::of(&other), "{other:?}");
        }
    }
}
