//! Notifies the client about changes of lists and single resources, and about log messages of upstream servers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use haft_tools::mcp::{PassedMethod, PassedRequest, ServerNews};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::sleep;

use super::ClientConnection;
use super::calls::new_call_id;
use super::opened::{ChangeListener, ClientSubscriptions, OpenedClient};
use crate::mcp::address::stored_handle;
use crate::mcp::era::{ClientAbilities, ConnectionEra};
use crate::mcp::message::{self, ClientRequest, GatewayError};
use crate::mcp::outbox::MessageScope;
use crate::mcp::provider_changes::{LIST_SETTLE_TIME, any_change, change_counts};

/// The minimum time between two notifications about a changed list. An upstream server may change its list
/// continuously.
const LIST_CHANGED_PAUSE: Duration = Duration::from_secs(1);

/// The maximum number of notification streams that a client may open.
const LISTENERS_MAX: usize = 16;

/// The maximum number of resources that one notification stream may watch.
const LISTENED_URIS_MAX: usize = 100;

/// A list that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangedList {
    Tools,
    Prompts,
    Resources,
}

impl ChangedList {
    fn method(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources => "notifications/resources/list_changed",
        }
    }

    fn is_wanted(self, listener: &ChangeListener) -> bool {
        match self {
            Self::Tools => listener.tools,
            Self::Prompts => listener.prompts,
            Self::Resources => listener.resources,
        }
    }
}

impl ClientConnection {
    /// Watches for changes until the connection closes. Only the first call has an effect.
    pub(super) fn watch_changes(self: &Arc<Self>, opened: &Arc<OpenedClient>) {
        opened.keep(|| {
            let both = || (Arc::clone(self), Arc::clone(opened));
            let (connection, tools) = both();
            let mut tasks = vec![tokio::spawn(connection.announce_tools(tools))];
            let (connection, tools) = both();
            tasks.push(tokio::spawn(connection.announce_lists(tools)));
            let (connection, tools) = both();
            tasks.push(tokio::spawn(connection.pass_warnings(tools)));
            let (connection, tools) = both();
            tasks.push(tokio::spawn(connection.follow_reload(tools)));
            for server in 0..opened.shared.upstreams.servers.len() {
                let (connection, tools) = both();
                tasks.push(tokio::spawn(connection.pass_news(tools, server)));
            }
            tasks
        });
    }

    /// Sends notifications about changes on the response stream of a request that stays open.
    pub(super) async fn listen(self: &Arc<Self>, request: ClientRequest, abilities: ClientAbilities) {
        let listener = match wanted(&request) {
            Ok(listener) => listener,
            Err(error) => return self.fail(Some(&request.id), &error).await,
        };
        let opened = match self.open(abilities) {
            Ok(opened) => opened,
            Err(error) => return self.fail(Some(&request.id), &error).await,
        };
        let (connection, id) = (Arc::clone(self), request.id);
        self.start_silent(&id, connection.keep_listening(opened, listener)).await;
    }

    /// Sends notifications about changes until the request is cancelled or the connection closes.
    async fn keep_listening(self: Arc<Self>, opened: Arc<OpenedClient>, mut listener: ChangeListener) {
        listener.uris = self.readable(&opened, listener.uris).await;
        let Ok(_listening) = self.add_listener(&opened, &listener) else {
            let message =
                format!("a client may have at most {LISTENERS_MAX} open requests that listen for changes");
            let error = GatewayError::new(message::INTERNAL_ERROR, message);
            return self.fail(Some(&listener.id), &error).await;
        };
        self.watch_changes(&opened);
        let mut params = subscribed(&listener.id);
        params["notifications"] = honored(&listener);
        let acknowledged = message::notification("notifications/subscriptions/acknowledged", &params);
        self.out.send(MessageScope::Request(listener.id.clone()), acknowledged).await;
        self.watch_at_servers(&opened, &listener.uris).await;
        // Release the tools. Otherwise the gateway could not close them after a reload while the stream stays open.
        drop(opened);
        self.out.closed().await;
    }

    /// Adds a listener until the guard is dropped, unless there are too many.
    fn add_listener(
        self: &Arc<Self>,
        opened: &OpenedClient,
        listener: &ChangeListener,
    ) -> Result<ListenerGuard, TooManyListeners> {
        if listener.tools {
            opened.set_told_if_none(&opened.shared.listing().items);
        }
        let mut listeners = opened.listeners();
        if listeners.len() >= LISTENERS_MAX {
            return Err(TooManyListeners);
        }
        listeners.push(listener.clone());
        Ok(ListenerGuard {
            connection: Arc::clone(self),
            subscriptions: Arc::clone(&opened.subscriptions),
            id: listener.id.clone(),
        })
    }

    /// Returns the resources among these that the client may read. It gets no notifications about others.
    async fn readable(&self, opened: &OpenedClient, uris: Vec<String>) -> Vec<String> {
        let mut readable = Vec::new();
        for uri in uris {
            if stored_handle(&uri).is_some() || self.uri_owner(opened, &uri).await.is_some() {
                readable.push(uri);
            }
        }
        readable
    }

    /// Asks the servers of these resources for change notifications. A server that does not support them sends none.
    pub(super) async fn watch_at_servers(&self, opened: &OpenedClient, uris: &[String]) {
        let watch = |uri: &String| {
            let uri = uri.clone();
            async move {
                let Some((server, own)) = self.uri_owner(opened, &uri).await else { return };
                opened.watch_resource(&uri, (server, &own));
                let request = PassedRequest {
                    method: PassedMethod::Subscribe,
                    fields: format!("\"uri\":{}", Value::from(own.as_str())),
                    name: Some(&own),
                    caller: opened.caller(&new_call_id()),
                };
                let _ = opened.shared.upstreams.pass(server, &request, &|_| ()).await;
            }
        };
        join_all(uris.iter().filter(|uri| stored_handle(uri).is_none()).map(watch)).await;
    }

    /// Notifies the client that the tools have changed, at most once per pause. Does not notify a client that has not
    /// requested the list yet.
    async fn announce_tools(self: Arc<Self>, opened: Arc<OpenedClient>) {
        let mut changed = opened.shared.changed.subscribe();
        // Wait until the servers have started. Otherwise haft would notify the client after a reload that all tools of
        // servers are gone, and later that they are back.
        opened.shared.until_ready().await;
        loop {
            // Read the counters before the list is built, so that no change in the meantime is missed.
            let counted = change_counts(&opened.shared.orchestrator);
            changed.mark_unchanged();
            let now = opened.shared.listing().items;
            if opened.is_news(now) {
                self.announce(&opened, ChangedList::Tools).await;
                sleep(LIST_CHANGED_PAUSE).await;
            }
            tokio::select! {
                () = any_change(&counted) => {}
                Ok(()) = changed.changed() => {}
            }
            sleep(LIST_SETTLE_TIME).await;
        }
    }

    /// Notifies the client that prompts or resources have changed, at most once per pause.
    async fn announce_lists(self: Arc<Self>, opened: Arc<OpenedClient>) {
        let mut outputs = opened.shared.outputs_changed.subscribe();
        loop {
            let list = tokio::select! {
                () = opened.prompts_changed.notified() => ChangedList::Prompts,
                () = opened.resources_changed.notified() => ChangedList::Resources,
                Ok(()) = outputs.changed() => ChangedList::Resources,
            };
            self.announce(&opened, list).await;
            sleep(LIST_CHANGED_PAUSE / 2).await;
        }
    }

    /// Notifies the client that all lists may have changed, because it missed notifications.
    pub(in crate::mcp) async fn announce_everything(&self) {
        let opened = self.slot().opened.clone();
        for opened in &opened {
            for list in [ChangedList::Tools, ChangedList::Prompts, ChangedList::Resources] {
                self.announce(opened, list).await;
            }
            self.announce_watched(opened).await;
        }
    }

    async fn announce_watched(&self, opened: &OpenedClient) {
        for uri in opened.subscriptions.all_uris() {
            self.announce_update(opened, &uri).await;
        }
    }

    async fn announce(&self, opened: &OpenedClient, list: ChangedList) {
        self.notify(opened, list.method(), |listener| list.is_wanted(listener), json!({})).await;
    }

    /// Sends a notification to the client or, in protocol revisions without sessions, to the streams that want it.
    async fn notify(
        &self,
        opened: &OpenedClient,
        method: &str,
        is_wanted: impl Fn(&ChangeListener) -> bool,
        params: Value,
    ) {
        let era = *self.era();
        match era {
            ConnectionEra::Handshake => {
                self.out.send(MessageScope::Connection, message::notification(method, &params)).await;
            }
            ConnectionEra::Open | ConnectionEra::Stateless => {
                let listeners: Vec<ChangeListener> =
                    opened.listeners().iter().filter(|listener| is_wanted(listener)).cloned().collect();
                for listener in listeners {
                    let mut params = params.clone();
                    params["_meta"] = subscribed(&listener.id)["_meta"].take();
                    let text = message::notification(method, &params);
                    self.out.send(MessageScope::Request(listener.id), text).await;
                }
            }
        }
    }

    /// Passes haft's own warnings to the client.
    async fn pass_warnings(self: Arc<Self>, opened: Arc<OpenedClient>) {
        let mut warnings = opened.shared.warnings.subscribe();
        loop {
            match warnings.recv().await {
                Ok(warning) => {
                    let data = opened.shared.upstreams.without_addresses(&warning.to_string());
                    let params = json!({ "level": "warning", "logger": "haft", "data": data });
                    self.log.offer("warning", &params.to_string());
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Passes the notifications of one upstream server to the client.
    async fn pass_news(self: Arc<Self>, opened: Arc<OpenedClient>, server: usize) {
        let mut news = opened.shared.upstreams.servers[server].news();
        loop {
            match news.recv().await {
                Ok(ServerNews::PromptsChanged) => {
                    opened.shared.lists.clear();
                    opened.prompts_changed.notify_one();
                }
                Ok(ServerNews::ResourcesChanged) => {
                    opened.shared.lists.clear();
                    opened.resources_changed.notify_one();
                }
                Ok(ServerNews::ResourceUpdated(own)) => self.pass_update(&opened, server, &own).await,
                Ok(ServerNews::UrlCompleted(id)) => self.pass_completion(&opened, server, &id).await,
                Ok(ServerNews::Log(record)) => self.log.offer(&record.level, &record.params),
                // Some of the missed notifications may have been changes.
                Err(RecvError::Lagged(_)) => {
                    opened.shared.lists.clear();
                    opened.prompts_changed.notify_one();
                    opened.resources_changed.notify_one();
                    self.announce_watched(&opened).await;
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Tells the client that the user has finished at a URL, if the client received the question about this URL.
    async fn pass_completion(&self, opened: &OpenedClient, server: usize, id: &str) {
        let server = opened.shared.upstreams.servers[server].name();
        let is_told = self.questions.urls.end(server, id) && *self.era() == ConnectionEra::Handshake;
        if is_told {
            let params = json!({ "elicitationId": id });
            let text = message::notification("notifications/elicitation/complete", &params);
            self.out.send(MessageScope::Connection, text).await;
        }
    }

    async fn pass_update(&self, opened: &OpenedClient, server: usize, own: &str) {
        let uri = opened.shared.upstreams.addresses.uri(server, own);
        let is_unwanted = *self.era() == ConnectionEra::Handshake && !opened.watched_uris().contains(&uri);
        if is_unwanted {
            return;
        }
        self.announce_update(opened, &uri).await;
    }

    async fn announce_update(&self, opened: &OpenedClient, uri: &str) {
        let is_wanted = |listener: &ChangeListener| listener.uris.iter().any(|listened| listened == uri);
        self.notify(opened, "notifications/resources/updated", is_wanted, json!({ "uri": uri })).await;
    }
}

/// Reads which changes a request wants to listen for.
fn wanted(request: &ClientRequest) -> Result<ChangeListener, GatewayError> {
    #[derive(Deserialize)]
    struct ListenParams {
        notifications: WantedNotifications,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    struct WantedNotifications {
        tools_list_changed: bool,
        prompts_list_changed: bool,
        resources_list_changed: bool,
        resource_subscriptions: Vec<String>,
    }
    let ListenParams { notifications } = message::params(request.params.as_deref())?;
    let mut uris = notifications.resource_subscriptions;
    uris.truncate(LISTENED_URIS_MAX);
    Ok(ChangeListener {
        id: request.id.clone(),
        tools: notifications.tools_list_changed,
        prompts: notifications.prompts_list_changed,
        resources: notifications.resources_list_changed,
        uris,
    })
}

/// Returns the notifications that the client will get.
fn honored(listener: &ChangeListener) -> Value {
    let mut honored = json!({});
    let lists = [
        ("toolsListChanged", listener.tools),
        ("promptsListChanged", listener.prompts),
        ("resourcesListChanged", listener.resources),
    ];
    for (name, _) in lists.into_iter().filter(|(_, is_wanted)| *is_wanted) {
        honored[name] = true.into();
    }
    if !listener.uris.is_empty() {
        honored["resourceSubscriptions"] = json!(listener.uris);
    }
    honored
}

/// The client has the maximum number of listeners.
struct TooManyListeners;

/// Removes the listener when its request ends, and stops watching its resources.
struct ListenerGuard {
    connection: Arc<ClientConnection>,
    subscriptions: Arc<ClientSubscriptions>,
    id: Box<RawValue>,
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        self.subscriptions.listeners().retain(|listener| listener.id.get() != self.id.get());
        let opened = self.connection.slot().opened.clone();
        for opened in opened {
            opened.release_watches();
        }
    }
}

fn subscribed(id: &RawValue) -> Value {
    let id: Value = serde_json::from_str(id.get()).unwrap_or_default();
    json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": id } })
}
