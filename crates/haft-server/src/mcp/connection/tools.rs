//! The tools of a client: opened with its first request, listed in pages, and watched for changes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{FutureExt, select_all};
use haft_core::change_counter::ChangeCounter;
use haft_core::event::EventSinks;
use haft_core::position::RunPosition;
use haft_core::provider::ToolProvider;
use haft_core::run::context::RawResults;
use haft_engine::{Orchestrator, RunContext, ToolFilter};
use haft_runtime::definition_watch::DefinitionWatch;
use haft_runtime::wiring;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{ClientConnection, LIST_TTL_MS};
use crate::mcp::era::{ClientAbilities, ConnectionEra, RequestEra};
use crate::mcp::gateway::{OpenedTools, WarningSink};
use crate::mcp::listing::{CachedListing, ListedTools};
use crate::mcp::message::{self, ClientRequest, GatewayError};

/// The pause between two notifications about a changed list. An upstream server may change its list all the time.
const LIST_CHANGED_PAUSE: Duration = Duration::from_secs(1);

/// The most streams of notifications that a client may open.
const SUBSCRIPTIONS_MAX: usize = 16;

/// The tools of one client.
pub(super) struct ClientTools {
    pub(super) orchestrator: Orchestrator,
    pub(super) context: Arc<RunContext>,
    pub(super) place: RunPosition,
    definitions: DefinitionWatch,
    /// True when all providers had the time to start.
    ready: watch::Sender<bool>,
    listing: Mutex<Option<CachedListing>>,
    /// The list that the client has seen last, or was last notified about.
    told: Mutex<Option<Arc<ListedTools>>>,
    /// Notified when the list may have changed without an announcement of a provider.
    changed: Notify,
    /// The ids of the requests that listen for changes, in the era without sessions.
    subscriptions: Mutex<Vec<Box<RawValue>>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl ClientTools {
    /// Waits until the tools of upstream servers are known, at most for `wait`.
    pub(super) async fn until_ready(&self, wait: Duration) {
        let mut ready = self.ready.subscribe();
        // A late server announces its tools with `list_changed`.
        let _ = timeout(wait, ready.wait_for(|ready| *ready)).await;
    }

    /// Returns the list. It is built again only if the catalog has changed.
    fn listed(&self, selection: &ToolFilter) -> Arc<ListedTools> {
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.orchestrator.catalog().snapshot();
        if let Some(cached) = listing.as_ref().filter(|cached| Arc::ptr_eq(&cached.snapshot, &snapshot)) {
            return Arc::clone(&cached.tools);
        }
        let tools = Arc::new(ListedTools::of(&self.orchestrator.active_tools(selection)));
        *listing = Some(CachedListing { snapshot, tools: Arc::clone(&tools) });
        tools
    }

    /// Remembers the list that the client sees now.
    fn set_told(&self, tools: &Arc<ListedTools>) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(tools));
    }

    /// Returns true once for a list that differs from the one that the client has seen.
    fn is_news(&self, now: Arc<ListedTools>) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seen) = told.as_mut().filter(|seen| !seen.is_same(&now)) else { return false };
        *seen = now;
        true
    }

    /// Stops the tasks and the upstream servers.
    pub(super) async fn close(&self, warn: &WarningSink) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.iter().for_each(JoinHandle::abort);
        self.definitions.late_warnings(&self.orchestrator).iter().for_each(|warning| warn(warning));
        wiring::shut_down(&self.orchestrator).await.iter().for_each(|warning| warn(warning));
    }

    fn keep(&self, task: JoinHandle<()>) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }
}

impl ClientConnection {
    /// Opens the tools for a client with these abilities. Only the first call opens them.
    pub(super) fn open(self: &Arc<Self>, abilities: ClientAbilities) -> Arc<ClientTools> {
        let opener = self.opener.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(opener) = opener else { return self.opened() };
        let OpenedTools { orchestrator, context, place, later, definitions } = opener(abilities);
        let events = EventSinks(vec![Arc::clone(&context.events), Arc::clone(&self.progress) as _]);
        let context = RunContext {
            approver: abilities.elicitation.then(|| Arc::clone(&self.questions) as _),
            elicitor: abilities.elicitation.then(|| Arc::clone(&self.questions) as _),
            events: Arc::new(events),
            raw_results: RawResults::Kept,
            ..context
        };
        let tools = Arc::new(ClientTools {
            orchestrator,
            context: Arc::new(context),
            place,
            definitions,
            ready: watch::Sender::new(false),
            listing: Mutex::default(),
            told: Mutex::default(),
            changed: Notify::new(),
            subscriptions: Mutex::default(),
            tasks: Mutex::default(),
        });
        let tools = Arc::clone(self.tools.get_or_init(|| tools));
        tools.keep(tokio::spawn(Arc::clone(self).prepare(Arc::clone(&tools), later)));
        tools.keep(tokio::spawn(Arc::clone(self).announce_changes(Arc::clone(&tools))));
        tools
    }

    /// Waits for the tools that another request is opening. That takes no time but on several threads.
    fn opened(&self) -> Arc<ClientTools> {
        Arc::clone(self.tools.wait())
    }

    /// Starts the upstream servers behind the first reply.
    async fn prepare(
        self: Arc<Self>,
        tools: Arc<ClientTools>,
        later: futures_util::future::BoxFuture<'static, Vec<Arc<dyn ToolProvider>>>,
    ) {
        for provider in later.await {
            tools.orchestrator.catalog().add(provider);
        }
        tools.changed.notify_one();
        let mut warnings = wiring::warm_up(&tools.orchestrator).await;
        warnings.extend(tools.definitions.warnings(&tools.orchestrator));
        tools.ready.send_replace(true);
        tools.changed.notify_one();
        for warning in &warnings {
            (self.gateway.warn)(warning);
            if self.wants_warnings() {
                let params = json!({ "level": "warning", "logger": "haft", "data": warning.to_string() });
                // A client that does not read loses the warning; the operator has it.
                let _ = self.out.try_send(message::notification("notifications/message", &params));
            }
        }
    }

    pub(super) async fn begin_list(self: &Arc<Self>, request: ClientRequest, era: RequestEra) {
        let tools = self.open(abilities_of(era));
        let connection = Arc::clone(self);
        let selection = self.gateway.selection.clone();
        if *tools.ready.borrow() {
            return self.reply_list(&request, &tools, &selection, era).await;
        }
        self.start(request, move |request| async move {
            tools.until_ready(connection.gateway.ready_wait).await;
            let reply = list_reply(&request, &tools, &selection, era);
            (request, reply)
        })
        .await;
    }

    async fn reply_list(
        &self,
        request: &ClientRequest,
        tools: &ClientTools,
        selection: &ToolFilter,
        era: RequestEra,
    ) {
        match list_reply(request, tools, selection, era) {
            Ok(result) => self.send(message::success(&request.id, &result)).await,
            Err(error) => self.fail(Some(&request.id), &error).await,
        }
    }

    /// Sends notifications about changes as the reply to a request that stays open.
    pub(super) async fn listen(self: &Arc<Self>, request: ClientRequest, abilities: ClientAbilities) {
        #[derive(Deserialize)]
        struct ListenParams {
            notifications: WantedNotifications,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct WantedNotifications {
            #[serde(default)]
            tools_list_changed: bool,
        }
        let wanted: ListenParams = match message::params(request.params.as_deref()) {
            Ok(wanted) => wanted,
            Err(error) => return self.fail(Some(&request.id), &error).await,
        };
        let tools = self.open(abilities);
        let is_full = {
            let mut subscriptions = tools.subscriptions.lock().unwrap_or_else(PoisonError::into_inner);
            let is_full = subscriptions.len() >= SUBSCRIPTIONS_MAX;
            if !is_full && wanted.notifications.tools_list_changed {
                subscriptions.push(request.id.clone());
            }
            is_full
        };
        if is_full {
            let message = format!("a client may listen with at most {SUBSCRIPTIONS_MAX} requests");
            return self.fail(Some(&request.id), &GatewayError::new(message::INTERNAL_ERROR, message)).await;
        }
        let honored = if wanted.notifications.tools_list_changed {
            json!({ "toolsListChanged": true })
        } else {
            json!({})
        };
        let mut params = subscribed(&request.id);
        params["notifications"] = honored;
        self.send(message::notification("notifications/subscriptions/acknowledged", &params)).await;
        let (connection, id) = (Arc::clone(self), request.id.clone());
        self.start_silent(&id, async move {
            let _subscription = Subscription { tools, id: request.id };
            // The stream ends with a cancellation or with the connection.
            connection.out.closed().await;
        })
        .await;
    }

    /// Tells the client that the list has changed, at most once in a pause. A client that has not asked for the list yet
    /// is not told.
    async fn announce_changes(self: Arc<Self>, tools: Arc<ClientTools>) {
        let selection = self.gateway.selection.clone();
        loop {
            // Counted before the list is built, so that no change in between is missed.
            let counted = change_counts(&tools.orchestrator);
            let now = tools.listed(&selection);
            let is_new = tools.is_news(now);
            if is_new {
                self.announce(&tools).await;
            }
            tokio::select! {
                () = any_change(&counted) => {}
                () = tools.changed.notified() => {}
            }
            sleep(LIST_CHANGED_PAUSE).await;
        }
    }

    async fn announce(&self, tools: &ClientTools) {
        const METHOD: &str = "notifications/tools/list_changed";
        let era = *self.era();
        match era {
            ConnectionEra::Handshake => {
                self.send(message::notification(METHOD, &json!({}))).await;
            }
            ConnectionEra::Open | ConnectionEra::Stateless => {
                let ids = tools.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).clone();
                for id in ids {
                    self.send(message::notification(METHOD, &subscribed(&id))).await;
                }
            }
        }
    }
}

/// Removes the subscription when its request ends.
struct Subscription {
    tools: Arc<ClientTools>,
    id: Box<RawValue>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut subscriptions = self.tools.subscriptions.lock().unwrap_or_else(PoisonError::into_inner);
        subscriptions.retain(|id| id.get() != self.id.get());
    }
}

fn subscribed(id: &RawValue) -> Value {
    let id: Value = serde_json::from_str(id.get()).unwrap_or_default();
    json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": id } })
}

pub(super) fn abilities_of(era: RequestEra) -> ClientAbilities {
    match era {
        // The handshake has opened the tools with the client's abilities.
        RequestEra::Handshake => ClientAbilities::default(),
        RequestEra::Stateless(abilities) => abilities,
    }
}

fn list_reply(
    request: &ClientRequest,
    tools: &ClientTools,
    selection: &ToolFilter,
    era: RequestEra,
) -> Result<String, GatewayError> {
    #[derive(Deserialize)]
    struct ListParams {
        cursor: Option<String>,
    }
    let ListParams { cursor } = message::params(request.params.as_deref())?;
    let listed = tools.listed(selection);
    let page = listed.page(cursor.as_deref())?;
    tools.set_told(&listed);
    let next = page.next.map(|next| format!(",\"nextCursor\":{}", Value::from(next))).unwrap_or_default();
    let more = match era {
        RequestEra::Handshake => String::new(),
        RequestEra::Stateless(_) => {
            format!(",\"resultType\":\"complete\",\"ttlMs\":{LIST_TTL_MS},\"cacheScope\":\"private\"")
        }
    };
    Ok(format!("{{\"tools\":[{}]{next}{more}}}", page.tools))
}

/// The change counters of all providers, with their counts.
fn change_counts(orchestrator: &Orchestrator) -> Vec<(ChangeCounter, u64)> {
    let providers = orchestrator.catalog().providers();
    let counters = providers.iter().filter_map(|provider| provider.changes());
    counters.map(|counter| (counter.clone(), counter.count())).collect()
}

/// Waits until one of the counters differs from its count. Never returns if there is none.
async fn any_change(counted: &[(ChangeCounter, u64)]) {
    if counted.is_empty() {
        std::future::pending::<()>().await;
    }
    select_all(counted.iter().map(|(counter, count)| counter.changed(*count).boxed())).await;
}
