//! Opens, probes and closes the connection to one MCP server, and waits before restarts. The state table in
//! `supervisor.rs` decides which of these actions comes next.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::catalog_cache::CachedCatalog;
use super::config::ServerConfig;
use super::debounce::ListingDebounce;
use super::era::ProtocolEra;
use super::host::Host;
use super::listing;
use super::log_level::LOG_LEVELS;
use super::news::ServerNews;
use super::open::{self, ConnectedServer};
use super::peer::{PeerError, PeerRequest};
use super::server::{McpConnection, McpServerState};
use super::session::{OpenError, ServerDescription};
use super::supervisor::{LifecycleAction, LifecycleEvent, LifecycleState, step};
use super::transport::TransportFailure;
use haft_core::settings::mcp::HealthProbe;

/// The timeout of a health probe.
const PROBE_PATIENCE: Duration = Duration::from_secs(3);

/// The timeout of a subscription to tool changes. It is long, because a subscription stays open.
const LISTEN_PATIENCE: Duration = Duration::from_hours(24);

/// The minimum and the maximum wait before a subscription that ended is opened again.
const LISTEN_AGAIN: Duration = Duration::from_millis(500);
const LISTEN_AGAIN_MAX: Duration = Duration::from_mins(1);

/// A message to the driver of an MCP server.
pub(super) enum DriverMessage {
    /// An event of the lifecycle. `generation` is the number of the connection that the event is about, or `None` if
    /// the event is about the server as a whole.
    Event { generation: Option<u64>, event: LifecycleEvent },
    /// Stops the server and then the driver.
    Stop(oneshot::Sender<()>),
}

/// The result of a background task.
enum DriverTaskResult {
    Opened(Result<ConnectedServer, OpenError>),
    Event(LifecycleEvent),
    /// The tools were listed again after this wait.
    Listed(Duration, Result<Vec<Box<RawValue>>, PeerError>),
    Nothing,
}

/// Owns the lifecycle of one server.
pub(super) struct LifecycleDriver {
    shared: Arc<McpServerState>,
    /// The number of the current connection; events of older connections are ignored.
    generation: u64,
    tasks: JoinSet<(u64, DriverTaskResult)>,
    settling: ListingDebounce,
}

impl LifecycleDriver {
    pub(super) fn new(shared: Arc<McpServerState>) -> Self {
        Self { shared, generation: 0, tasks: JoinSet::new(), settling: ListingDebounce::default() }
    }

    /// Runs until it receives `Stop`, or until all senders are dropped.
    pub(super) async fn run(self, notes: mpsc::Receiver<DriverMessage>) {
        let shared = Arc::clone(&self.shared);
        tokio::select! {
            () = self.attend(notes) => {}
            () = shared.save_log_while_running() => {}
        }
    }

    async fn attend(mut self, mut notes: mpsc::Receiver<DriverMessage>) {
        loop {
            let tasks = &mut self.tasks;
            let finished = async {
                match tasks.join_next().await {
                    Some(finished) => finished,
                    None => pending().await,
                }
            };
            tokio::select! {
                note = notes.recv() => match note {
                    Some(DriverMessage::Event { generation, event }) => self.happened(generation, event).await,
                    Some(DriverMessage::Stop(done)) => {
                        self.happened(None, LifecycleEvent::Stop).await;
                        let _ = done.send(());
                        return;
                    }
                    None => break,
                },
                // An aborted task or a panicked task has no result.
                finished = finished => if let Ok((generation, done)) = finished {
                    self.finished(generation, done).await;
                },
            }
        }
        // No caller is left that could wait for an orderly shutdown. Dropping the connection kills the process.
        drop(self.shared.withdraw_connection());
    }

    async fn finished(&mut self, generation: u64, done: DriverTaskResult) {
        if generation != self.generation {
            return;
        }
        match done {
            DriverTaskResult::Opened(Ok(opened)) => self.opened(opened).await,
            DriverTaskResult::Opened(Err(OpenError::NeedsAuth(reason))) => {
                self.happened(None, LifecycleEvent::AuthNeeded { reason }).await;
            }
            DriverTaskResult::Opened(Err(error)) => {
                let reason = error.reason().to_owned();
                self.happened(None, LifecycleEvent::NotOpened { reason }).await;
            }
            DriverTaskResult::Event(event) => self.happened(Some(generation), event).await,
            DriverTaskResult::Listed(waited, Ok(tools)) => self.listed(waited, &tools),
            DriverTaskResult::Listed(waited, Err(error)) => {
                self.shared.log.note(&format!("haft could not list the tools again: {error}"));
                self.settling = ListingDebounce::listed(waited, Instant::now());
                self.await_changes();
            }
            DriverTaskResult::Nothing => {}
        }
    }

    async fn happened(&mut self, generation: Option<u64>, event: LifecycleEvent) {
        if generation.is_some_and(|generation| generation != self.generation) {
            return;
        }
        let state = self.shared.state.borrow().clone();
        let before = state.name();
        let (state, action) = step(state, event, Instant::now());
        if before != state.name() {
            self.shared.log_lifecycle(&format!("{before} ► {}{}", state.name(), short_reason(&state)));
        }
        self.perform(action, state).await;
    }

    /// Performs an action. Withdraws a connection that calls must no longer use before it publishes the new state.
    async fn perform(&mut self, action: LifecycleAction, state: LifecycleState) {
        match action {
            LifecycleAction::Nothing => self.show(state),
            LifecycleAction::Open => {
                self.show(state);
                self.open();
            }
            LifecycleAction::OpenAfter(wait) => {
                self.show(state);
                self.begin(async move {
                    sleep(wait).await;
                    DriverTaskResult::Event(LifecycleEvent::Due)
                });
            }
            LifecycleAction::Probe => {
                self.show(state);
                self.probe();
            }
            LifecycleAction::ReopenAfter(wait) => {
                self.drop_connection();
                self.show(state);
                self.begin(async move {
                    sleep(wait).await;
                    DriverTaskResult::Event(LifecycleEvent::Due)
                });
            }
            LifecycleAction::Reopen => {
                self.drop_connection();
                self.show(state);
                self.open();
            }
            LifecycleAction::Close => {
                let connection = self.shared.withdraw_connection();
                self.show(state);
                self.tasks.abort_all();
                if let Some(connection) = connection {
                    connection.session.peer.close().await;
                }
            }
        }
    }

    fn show(&self, state: LifecycleState) {
        self.shared.list_login(&state);
        self.shared.state.send_replace(state);
    }

    /// Withdraws the connection and aborts all tasks that were started for it.
    fn drop_connection(&mut self) {
        if let Some(connection) = self.shared.withdraw_connection() {
            // Calls that still hold the connection get a `Closed` failure. Nothing waits for this task, because closing
            // takes a bounded time.
            tokio::spawn(async move { connection.session.peer.close().await });
        }
        self.tasks.abort_all();
        self.generation += 1;
    }

    fn begin(&mut self, work: impl Future<Output = DriverTaskResult> + Send + 'static) {
        let generation = self.generation;
        self.tasks.spawn(async move { (generation, work.await) });
    }

    fn open(&mut self) {
        self.generation += 1;
        let shared = Arc::clone(&self.shared);
        self.begin(async move {
            // Ignore the error: the semaphore is never closed. If it were closed, the start would continue without a
            // permit.
            let _start = shared.starts.acquire().await;
            DriverTaskResult::Opened(
                open::open(&shared.config, &shared.host, &shared.log, shared.era()).await,
            )
        });
    }

    async fn opened(&mut self, opened: ConnectedServer) {
        let ConnectedServer { session, tools, transport } = opened;
        remember(&self.shared, &session.era, &session.greeting, &tools);
        self.shared.replace_tool_list(listing::read(&tools, &self.shared.config.wanted));
        let connection = Arc::new(McpConnection { session, generation: self.generation });
        self.shared.publish_connection(Arc::clone(&connection), transport);
        self.watch(&connection);
        self.happened(None, LifecycleEvent::Opened).await;
        self.announce_lists(&connection);
        self.await_changes();
    }

    /// Starts a task that reports the end of the connection. For protocol revisions without sessions, also starts a
    /// task that subscribes to tool changes. Withdrawing the connection aborts both tasks, so that they do not keep the
    /// connection alive.
    fn watch(&mut self, connection: &Arc<McpConnection>) {
        let watched = Arc::clone(connection);
        self.begin(async move {
            let reason = watched.session.peer.closed().await.to_string();
            DriverTaskResult::Event(LifecycleEvent::Ended { reason })
        });
        if connection.session.era == ProtocolEra::Modern && connection.session.greeting.tools_change {
            let listener = Arc::clone(connection);
            let changed = Arc::clone(&self.shared.host.tools_changed);
            self.begin(async move {
                listen_for_changed_lists(&listener, &changed).await;
                DriverTaskResult::Nothing
            });
        }
        // Protocol revisions without sessions set the level with each request.
        if connection.session.greeting.logs && connection.session.era != ProtocolEra::Modern {
            let (connection, shared) = (Arc::clone(connection), Arc::clone(&self.shared));
            self.begin(async move { send_log_levels(&connection, &shared).await });
        }
        if connection.session.greeting.offers.subscriptions {
            let (connection, shared) = (Arc::clone(connection), Arc::clone(&self.shared));
            self.begin(async move {
                match connection.session.era {
                    ProtocolEra::Modern => listen_for_watched_resources(&connection, &shared.host).await,
                    ProtocolEra::Legacy { .. } => subscribe_again(&connection, &shared).await,
                }
            });
        }
    }

    /// Tells the clients of a gateway to read the lists and the watched resources again: their first request may have
    /// come before the server was ready, and a server that was not running reported no changes.
    fn announce_lists(&self, connection: &McpConnection) {
        let news = &self.shared.host.news;
        // Ignore send errors: without a gateway there is no receiver.
        if connection.session.greeting.offers.prompts {
            let _ = news.send(ServerNews::PromptsChanged);
        }
        if connection.session.greeting.offers.resources {
            let _ = news.send(ServerNews::ResourcesChanged);
        }
        for uri in self.shared.host.watched.uris() {
            let _ = news.send(ServerNews::ResourceUpdated(uri));
        }
    }

    /// Starts a task that waits for a change of the tools, lets the changes settle, and lists the tools again.
    fn await_changes(&mut self) {
        let shared = Arc::clone(&self.shared);
        let Some(connection) = shared.connection() else { return };
        let settling = self.settling;
        self.begin(async move {
            shared.host.tools_changed.notified().await;
            let wait = settling.wait(Instant::now());
            sleep(wait).await;
            DriverTaskResult::Listed(
                wait,
                listing::fetch(&connection.session.peer, shared.config.request_timeout).await,
            )
        });
    }

    fn listed(&mut self, waited: Duration, tools: &[Box<RawValue>]) {
        self.settling = ListingDebounce::listed(waited, Instant::now());
        if let Some(connection) = self.shared.connection() {
            remember(&self.shared, &connection.session.era, &connection.session.greeting, tools);
        }
        self.shared.replace_tool_list(listing::read(tools, &self.shared.config.wanted));
        self.await_changes();
    }

    fn probe(&mut self) {
        let Some(connection) = self.shared.connection() else { return };
        let probe = self.shared.config.health_probe;
        self.begin(async move {
            let method = match (probe, &connection.session.era) {
                (HealthProbe::ListTools, _) => "tools/list",
                (HealthProbe::Ping, ProtocolEra::Legacy { .. }) => "ping",
                (HealthProbe::Ping, ProtocolEra::Modern) => "server/discover",
            };
            match connection.session.peer.request(PeerRequest::new(method, "", PROBE_PATIENCE)).await {
                // Any reply shows that the server is alive, even an error reply.
                Ok(_) | Err(PeerError::Rpc(_)) => DriverTaskResult::Event(LifecycleEvent::Alive),
                Err(PeerError::Silent(_) | PeerError::Failed(_)) => {
                    DriverTaskResult::Event(LifecycleEvent::Dead)
                }
            }
        });
    }
}

/// Returns the first line of the reason. The lines after it are the last output of the server, which the log already
/// contains.
fn short_reason(state: &LifecycleState) -> String {
    let reason = state.reason().and_then(|reason| reason.lines().next());
    reason
        .map(|reason| format!(": {}", reason.trim_end_matches("; last lines of stderr:")))
        .unwrap_or_default()
}

/// Subscribes to changed lists until the server refuses. A server that refuses reports no changes.
async fn listen_for_changed_lists(connection: &McpConnection, changed: &Notify) {
    let offers = connection.session.greeting.offers;
    let (prompts, resources) = (offers.prompts, offers.resources);
    let fields = format!(
        "\"notifications\":{{\"toolsListChanged\":true,\"promptsListChanged\":{prompts},\"resourcesListChanged\":{resources}}}"
    );
    listen(connection, &fields, || changed.notify_one()).await;
}

/// Subscribes to changes of the watched resources. Opens a new stream when the clients of the gateway watch other
/// resources, and keeps the old stream until the server has confirmed the new one, so that no change is missed.
async fn listen_for_watched_resources(connection: &McpConnection, host: &Host) -> DriverTaskResult {
    let watched = &host.watched;
    watched.begin();
    let mut old: Option<BoxFuture<'_, ()>> = None;
    loop {
        let uris = watched.uris();
        let mut stream = Box::pin(listen_for_updates(connection, host, uris.clone())) as BoxFuture<'_, ()>;
        loop {
            tokio::select! {
                () = &mut stream => {
                    watched.refused(&uris);
                    stream = Box::pin(pending());
                }
                () = async { if let Some(old) = &mut old { old.await } }, if old.is_some() => old = None,
                () = watched.all_answered(&uris), if old.is_some() => old = None,
                () = watched.changed_from(&uris) => break,
            }
        }
        old = Some(stream);
    }
}

/// Sends the server the lowest log level that any client of the gateway has requested: once at the start, because a
/// restarted server does not know it, and after each change.
async fn send_log_levels(connection: &McpConnection, shared: &McpServerState) -> DriverTaskResult {
    let mut lowest = shared.host.log_levels.subscribe();
    loop {
        let level = *lowest.borrow_and_update();
        if let Some(level) = level {
            let fields = format!("\"level\":{}", Value::from(LOG_LEVELS[level]));
            let ask = PeerRequest::new("logging/setLevel", fields, shared.config.request_timeout);
            // Ignore the error: a server that refuses the level chooses itself which messages it sends.
            let _ = connection.session.peer.request(ask).await;
        }
        if lowest.changed().await.is_err() {
            return DriverTaskResult::Nothing;
        }
    }
}

/// Subscribes to the watched resources at a server that has started again. A server forgets its subscriptions when it
/// ends.
async fn subscribe_again(connection: &McpConnection, shared: &McpServerState) -> DriverTaskResult {
    for uri in shared.host.watched.uris() {
        let fields = format!("\"uri\":{}", Value::from(uri));
        let ask = PeerRequest::new("resources/subscribe", fields, shared.config.request_timeout);
        // Ignore the error: a server that refuses the subscription reports no changes.
        let _ = connection.session.peer.request(ask).await;
    }
    DriverTaskResult::Nothing
}

/// Subscribes to changes of these resources until the server refuses.
async fn listen_for_updates(connection: &McpConnection, host: &Host, uris: Vec<String>) {
    if uris.is_empty() {
        return pending().await;
    }
    let fields = format!("\"notifications\":{{\"resourceSubscriptions\":{}}}", Value::from(uris.clone()));
    // Ignore send errors: without a gateway there is no receiver.
    let may_have_changed =
        || uris.iter().for_each(|uri| drop(host.news.send(ServerNews::ResourceUpdated(uri.clone()))));
    listen(connection, &fields, may_have_changed).await;
}

/// Keeps a subscription with these parameters open until the server refuses. Reopens a subscription that ended, and
/// then calls `may_have_missed`, because the server may have reported a change in between.
async fn listen(connection: &McpConnection, fields: &str, may_have_missed: impl Fn()) {
    let mut wait = LISTEN_AGAIN;
    loop {
        let opened = Instant::now();
        let ask = PeerRequest::new("subscriptions/listen", fields, LISTEN_PATIENCE);
        match connection.session.peer.request(ask).await {
            Ok(_)
            | Err(
                PeerError::Silent(_)
                | PeerError::Failed(
                    TransportFailure::Broken(_)
                    | TransportFailure::Closed(_)
                    | TransportFailure::Unreached(_),
                ),
            ) => {}
            Err(PeerError::Rpc(_) | PeerError::Failed(_)) => return,
        }
        wait =
            if opened.elapsed() < LISTEN_AGAIN_MAX { (wait * 2).min(LISTEN_AGAIN_MAX) } else { LISTEN_AGAIN };
        sleep(wait).await;
        may_have_missed();
    }
}

fn remember(
    shared: &McpServerState,
    era: &ProtocolEra,
    greeting: &ServerDescription,
    tools: &[Box<RawValue>],
) {
    let Some(memory) = &shared.memory else { return };
    let ServerConfig { digest, .. } = &shared.config;
    let remembered = CachedCatalog {
        digest: digest.clone(),
        version: era.version().to_owned(),
        instructions: greeting.instructions.as_deref().map(str::to_owned),
        offers: Some(greeting.offers),
        tools: tools.to_vec(),
    };
    if let Err(error) = memory.save(&remembered) {
        shared.log.note(&format!("haft could not cache the tool list: {error}"));
    }
}
