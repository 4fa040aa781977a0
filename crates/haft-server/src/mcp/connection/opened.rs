//! The tools for one connection: with the connection's own approver, relay and progress.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haft_core::approval::Approver;
use haft_core::client_relay::RelayAbilities;
use haft_core::event::EventSinks;
use haft_core::output_store::{OutputStore, StoreEntry};
use haft_core::run::context::RawResults;
use haft_core::sampling::OriginatingCall;
use haft_core::tool::CallId;
use haft_engine::RunContext;
use haft_tools::mcp::{LogLevelRequest, ResourceWatch, SupervisedServer};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::ClientConnection;
use crate::mcp::client_outputs::{ClientOutputStore, ClientOutputs, OutputOwner};
use crate::mcp::era::{ClientAbilities, RequestEra};
use crate::mcp::gateway::{CallingClient, GatewayClient, GatewayUser, OwnApprovals, TaskListAccess};
use crate::mcp::listing::ListedItems;
use crate::mcp::message::{GatewayError, INTERNAL_ERROR, INVALID_PARAMS};
use crate::mcp::operator_questions::{AnswerWait, ClientReply, OperatorQuestions};
use crate::mcp::shared_tools::SharedTools;

/// The maximum number of resources whose changes one client may watch.
const WATCHED_MAX: usize = 1_000;

/// The tools of a connection, after the first request.
#[derive(Default)]
pub(super) struct OpenSlot {
    /// The tools for each set of client capabilities. A handshake declares one set. In revisions without sessions, each
    /// request declares its own; the number of sets is finite.
    pub(super) opened: Vec<Arc<OpenedClient>>,
    /// True after the connection was closed.
    pub(super) is_closed: bool,
}

/// The tools of one connection.
pub(super) struct OpenedClient {
    pub(super) shared: Arc<SharedTools>,
    /// The context of calls. If the client's user approves calls, each call adds an approver of its own.
    pub(super) context: Arc<RunContext>,
    /// The outputs that the client lists as resources; `None` if it cannot list the outputs that it can read.
    pub(super) listed_outputs: Option<Arc<ClientOutputs>>,
    /// The output store for calls that run as tasks.
    pub(super) task_outputs: Option<Arc<dyn OutputStore>>,
    pub(super) subscriptions: Arc<ClientSubscriptions>,
    /// The watched resources of servers, by URI.
    watches: Mutex<HashMap<String, ResourceWatch>>,
    pub(super) prompts_changed: Notify,
    pub(super) resources_changed: Notify,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// The requests to the upstream servers for the log level that the client has set. Dropping a request ends it.
    log_level: Mutex<Vec<LogLevelRequest>>,
}

/// The changes that the client of a connection subscribed to. A reload keeps them.
#[derive(Default)]
pub(super) struct ClientSubscriptions {
    /// The tool list that the client saw last, or whose change it was last notified about; `None` before the first
    /// list.
    told: Mutex<Option<Arc<ListedItems>>>,
    /// The requests that listen for changes, in protocol revisions without sessions.
    listeners: Mutex<Vec<ChangeListener>>,
    /// The URIs of resources whose changes the client wants, in protocol revisions with a handshake.
    watched_uris: Mutex<HashSet<String>>,
}

impl ClientSubscriptions {
    pub(super) fn listeners(&self) -> MutexGuard<'_, Vec<ChangeListener>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the URIs of all resources whose changes the client wants.
    pub(super) fn all_uris(&self) -> Vec<String> {
        let watched = self.watched_uris.lock().unwrap_or_else(PoisonError::into_inner);
        let watched: Vec<String> = watched.iter().cloned().collect();
        let listened = self.listeners().iter().flat_map(|listener| listener.uris.clone()).collect::<Vec<_>>();
        watched.into_iter().chain(listened).collect()
    }
}

/// A request that listens for changes.
#[derive(Debug, Clone)]
pub(super) struct ChangeListener {
    pub(super) id: Box<RawValue>,
    pub(super) tools: bool,
    pub(super) prompts: bool,
    pub(super) resources: bool,
    pub(super) uris: Vec<String>,
}

impl OpenedClient {
    /// Stores the list that the client sees now.
    pub(super) fn set_told(&self, tools: &Arc<ListedItems>) {
        *self.told() = Some(Arc::clone(tools));
    }

    pub(super) fn set_told_if_none(&self, tools: &Arc<ListedItems>) {
        self.told().get_or_insert_with(|| Arc::clone(tools));
    }

    /// Returns true if this list differs from the list that the client has seen, and then counts it as seen. Returns
    /// false if the client has not seen a list yet.
    pub(super) fn is_news(&self, now: Arc<ListedItems>) -> bool {
        let mut told = self.told();
        let Some(seen) = told.as_mut().filter(|seen| !seen.is_same(&now)) else { return false };
        *seen = now;
        true
    }

    /// Lists an output of a call as a resource from now on.
    pub(super) fn add_stored(&self, entry: &StoreEntry) {
        let own = self.listed_outputs.as_ref().filter(|outputs| outputs.has_stored(&entry.handle));
        let outputs = own.unwrap_or(&self.shared.outputs);
        outputs.add(entry);
        if Arc::ptr_eq(outputs, &self.shared.outputs) {
            self.shared.outputs_changed.send_modify(|count| *count += 1);
        } else {
            self.resources_changed.notify_one();
        }
    }

    /// Returns the caller of a request that is not a tool call.
    pub(super) fn caller(&self, id: &str) -> OriginatingCall {
        let cx = haft_core::provider::CallContext::new(
            CallId(id.to_owned()),
            Arc::clone(&self.context),
            None,
            Arc::clone(&self.context.events),
        );
        OriginatingCall { place: self.shared.place, ..OriginatingCall::of(&cx) }
    }

    pub(super) fn listeners(&self) -> MutexGuard<'_, Vec<ChangeListener>> {
        self.subscriptions.listeners()
    }

    pub(super) fn watched_uris(&self) -> MutexGuard<'_, HashSet<String>> {
        self.subscriptions.watched_uris.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a resource at its server until the client no longer wants to know about its changes.
    /// If all clients together watch too many resources, a server without sessions refuses the subscription.
    pub(super) fn watch_resource(&self, uri: &str, (server, own): (usize, &str)) {
        if let Some(watch) = self.shared.upstreams.servers[server].watch_resource(own) {
            self.watches().insert(uri.to_owned(), watch);
        }
    }

    /// Adds a URI to the resources that a client with a handshake watches. Returns true if the client did not watch
    /// this URI yet.
    pub(super) fn add_watched_uri(&self, uri: &str) -> Result<bool, GatewayError> {
        let mut watched = self.watched_uris();
        if watched.len() >= WATCHED_MAX && !watched.contains(uri) {
            let message = format!("a client may watch at most {WATCHED_MAX} resources");
            return Err(GatewayError::new(INVALID_PARAMS, message));
        }
        Ok(watched.insert(uri.to_owned()))
    }

    /// Stops watching the resources that no subscription of the client names any more.
    pub(super) fn release_watches(&self) {
        let wanted = self.subscriptions.all_uris();
        self.watches().retain(|uri, _| wanted.contains(uri));
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<String, ResourceWatch>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the tasks until the connection closes. Only the first call has an effect.
    pub(super) fn keep(&self, tasks: impl FnOnce() -> Vec<JoinHandle<()>>) {
        let mut kept = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_empty() {
            *kept = tasks();
        }
    }

    /// Runs another task until the connection closes.
    fn keep_also(&self, task: JoinHandle<()>) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    /// Returns true if the connection watches for changes.
    fn is_watched(&self) -> bool {
        !self.tasks.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Requests log messages of this level from all servers, in place of an earlier level.
    pub(super) fn request_log_level(&self, level: Option<&str>) {
        let request = |server: &Arc<SupervisedServer>| server.request_log_level(level?);
        let requests = self.shared.upstreams.servers.iter().filter_map(request).collect();
        // Drop the requests for the earlier level only now. Otherwise the servers would have no requested level for a
        // moment.
        *self.log_level.lock().unwrap_or_else(PoisonError::into_inner) = requests;
    }

    pub(super) fn close(&self) {
        self.request_log_level(None);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.iter().for_each(JoinHandle::abort);
    }

    fn told(&self) -> MutexGuard<'_, Option<Arc<ListedItems>>> {
        self.subscriptions.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outputs that a connection lists, and the stores for its calls and its tasks.
struct ConnectionOutputs {
    listed: Option<Arc<ClientOutputs>>,
    own: Option<Arc<dyn OutputStore>>,
    of_tasks: Option<Arc<dyn OutputStore>>,
}

impl ClientConnection {
    /// Opens the tools for requests with these client capabilities. Only the first call with these capabilities opens
    /// them, and the first call after a reload.
    pub(super) fn open(
        self: &Arc<Self>,
        abilities: ClientAbilities,
    ) -> Result<Arc<OpenedClient>, GatewayError> {
        let mut slot = self.slot();
        let position = slot.opened.iter().position(|opened| opened.shared.client.abilities == abilities);
        let Some(position) = position else {
            let opened = self.open_again(abilities, Arc::default())?;
            slot.opened.push(Arc::clone(&opened));
            return Ok(opened);
        };
        let replaced = Arc::clone(&slot.opened[position]);
        if self.pool.is_current(&replaced.shared) {
            return Ok(replaced);
        }
        let opened = self.open_again(abilities, Arc::clone(&replaced.subscriptions))?;
        if replaced.is_watched() && !slot.is_closed {
            self.watch_after_reload(&opened);
        }
        replaced.close();
        slot.opened[position] = Arc::clone(&opened);
        Ok(opened)
    }

    fn open_again(
        &self,
        abilities: ClientAbilities,
        subscriptions: Arc<ClientSubscriptions>,
    ) -> Result<Arc<OpenedClient>, GatewayError> {
        let GatewayUser { principal, builtin_tools, own_approvals, .. } = self.user.clone();
        let client = GatewayClient { principal, abilities, builtin_tools, own_approvals, profile: None };
        let shared = self.pool.get(client, self.profile_request());
        let shared = shared.map_err(|reason| GatewayError::new(INTERNAL_ERROR, reason))?;
        let outputs =
            self.open_outputs(&shared).map_err(|reason| GatewayError::new(INTERNAL_ERROR, reason))?;
        let events = EventSinks(vec![Arc::clone(&shared.context.events), Arc::clone(&self.notices) as _]);
        let context = RunContext {
            approver: self.operator_approver(&shared, &|| None),
            outputs: outputs.own,
            relay: Some(Arc::clone(&self.questions) as _),
            relay_abilities: RelayAbilities { forms: abilities.elicitation },
            events: Arc::new(events),
            raw_results: RawResults::Kept,
            untrusted: Arc::clone(&self.untrusted),
            ..shared.context.clone()
        };
        let opened = OpenedClient {
            shared,
            listed_outputs: outputs.listed,
            task_outputs: outputs.of_tasks,
            context: Arc::new(context),
            subscriptions,
            watches: Mutex::default(),
            prompts_changed: Notify::new(),
            resources_changed: Notify::new(),
            tasks: Mutex::default(),
            log_level: Mutex::default(),
        };
        opened.request_log_level(self.log.connection_level());
        Ok(Arc::new(opened))
    }

    /// Opens the output stores of the client. On a server without keys, all clients without a session are one
    /// principal, and a list would give each client the handles, and with them the outputs, of the others.
    fn open_outputs(&self, shared: &SharedTools) -> Result<ConnectionOutputs, String> {
        let open = |outputs: &ClientOutputs| {
            shared.open_outputs.as_ref().map(|open| open(outputs.session)).transpose()
        };
        let of_tasks = open(&shared.outputs)?;
        let listed = match (&self.outputs, self.user.task_list) {
            (OutputOwner::Connection(own), _) => {
                let stores = open(own)?.zip(of_tasks.clone());
                let own_store =
                    stores.map(|(own, of_tasks)| Arc::new(ClientOutputStore { own, of_tasks }) as _);
                return Ok(ConnectionOutputs { listed: Some(Arc::clone(own)), own: own_store, of_tasks });
            }
            (OutputOwner::Principal, TaskListAccess::Offered) => Some(Arc::clone(&shared.outputs)),
            (OutputOwner::Principal, TaskListAccess::Withheld) => None,
        };
        Ok(ConnectionOutputs { listed, own: of_tasks.clone(), of_tasks })
    }

    /// Returns true if the client asks its own user to approve its calls.
    pub(super) fn asks_own_user(tools: &SharedTools) -> bool {
        match tools.client.own_approvals {
            OwnApprovals::Permitted => tools.client.abilities.elicitation,
            OwnApprovals::Forbidden => false,
        }
    }

    /// Returns the approver that asks the operator, at the terminal or through the approvals API; `None` if the client
    /// asks its own user, or no operator can be asked.
    pub(super) fn operator_approver(
        &self,
        tools: &SharedTools,
        reply: &dyn Fn() -> Option<ClientReply>,
    ) -> Option<Arc<dyn Approver>> {
        if Self::asks_own_user(tools) {
            return None;
        }
        let (approvers, queue, wait) = match (&tools.gateway.operator, &self.pool.approvals_api) {
            (Some(terminal), _) => (terminal, &self.pool.operator_queue, AnswerWait::Minutes),
            (None, Some(api)) => (&api.approvers, &api.queue, AnswerWait::ByApprover),
            (None, None) => return None,
        };
        let principal = self.user.principal.clone();
        let client = CallingClient { principal: principal.clone(), name: self.client_name.get().cloned() };
        Some(Arc::new(OperatorQuestions {
            operator: approvers(&client),
            queue: Arc::clone(queue),
            wait,
            principal,
            reply: reply(),
        }))
    }

    /// Watches the new tools. They may belong to other servers, so this notifies the client that all lists may have
    /// changed, and subscribes at the new servers to the resources that the client watches.
    fn watch_after_reload(self: &Arc<Self>, opened: &Arc<OpenedClient>) {
        self.watch_changes(opened);
        opened.prompts_changed.notify_one();
        opened.resources_changed.notify_one();
        let (renewed, uris) = (Arc::clone(opened), opened.subscriptions.all_uris());
        if !uris.is_empty() {
            let connection = Arc::clone(self);
            opened.keep_also(tokio::spawn(async move {
                renewed.shared.until_ready().await;
                connection.watch_at_servers(&renewed, &uris).await;
            }));
        }
    }

    /// Opens the tools again after a reload, so that a client that sends no request learns of the new tools.
    pub(super) async fn follow_reload(self: Arc<Self>, opened: Arc<OpenedClient>) {
        self.pool.replaced(&opened.shared).await;
        // If this fails, the next request tries again and reports the error to the client.
        let _ = self.open(opened.shared.client.abilities);
    }

    /// Opens the tools for a request. With a handshake, they are already open with the client's capabilities.
    pub(super) fn open_for(self: &Arc<Self>, era: RequestEra) -> Result<Arc<OpenedClient>, GatewayError> {
        let abilities = match era {
            RequestEra::Handshake => {
                let opened = self.slot().opened.first().map(|opened| opened.shared.client.abilities);
                opened.unwrap_or_default()
            }
            RequestEra::Stateless(abilities) => abilities,
        };
        self.open(abilities)
    }

    pub(super) fn slot(&self) -> MutexGuard<'_, OpenSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
