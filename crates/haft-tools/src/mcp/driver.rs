//! Does what the table of a server's life says: opens, waits, asks, closes. Decides nothing.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::config::ServerConfig;
use super::era::Era;
use super::listing;
use super::memory::Remembered;
use super::open::{self, Opened};
use super::peer::{Ask, PeerError};
use super::server::{Connection, Shared};
use super::session::OpenError;
use super::settling::Settling;
use super::supervisor::{Action, Event, State, step};
use super::transport::Failure;
use haft_core::settings::mcp::HealthProbe;

/// How long a server may take to say that it is there.
const PROBE_PATIENCE: Duration = Duration::from_secs(3);

/// A stream of changes is meant to stay open.
const LISTEN_PATIENCE: Duration = Duration::from_hours(24);

/// How long is waited before a stream that ended is opened again, at first and at most.
const LISTEN_AGAIN: Duration = Duration::from_millis(500);
const LISTEN_AGAIN_MAX: Duration = Duration::from_mins(1);

/// What the driver is told.
pub(super) enum Note {
    /// `generation` is the connection it is about; none means the server as such.
    Event { generation: Option<u64>, event: Event },
    /// Ends the server and then the driver.
    Stop(oneshot::Sender<()>),
}

/// What came of something the driver had begun.
enum Done {
    Opened(Result<Opened, OpenError>),
    Event(Event),
    /// After this wait.
    Listed(Duration, Result<Vec<Box<RawValue>>, PeerError>),
    Nothing,
}

/// Owns the life of one server.
pub(super) struct Driver {
    shared: Arc<Shared>,
    /// Counts connections; news of an older one is no news.
    generation: u64,
    tasks: JoinSet<(u64, Done)>,
    settling: Settling,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, generation: 0, tasks: JoinSet::new(), settling: Settling::default() }
    }

    /// Runs until it is told to stop, or until nobody can tell it anything any more.
    pub(super) async fn run(self, notes: mpsc::Receiver<Note>) {
        let shared = Arc::clone(&self.shared);
        tokio::select! {
            () = self.attend(notes) => {}
            () = shared.keep_what_is_said() => {}
        }
    }

    async fn attend(mut self, mut notes: mpsc::Receiver<Note>) {
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
                    Some(Note::Event { generation, event }) => self.happened(generation, event).await,
                    Some(Note::Stop(done)) => {
                        self.happened(None, Event::Stop).await;
                        let _ = done.send(());
                        return;
                    }
                    None => break,
                },
                // One that was taken back, or broke, has nothing to say.
                finished = finished => if let Ok((generation, done)) = finished {
                    self.finished(generation, done).await;
                },
            }
        }
        // Nobody waits for manners: what is dropped is killed.
        drop(self.shared.take_back());
    }

    async fn finished(&mut self, generation: u64, done: Done) {
        if generation != self.generation {
            return;
        }
        match done {
            Done::Opened(Ok(opened)) => self.opened(opened).await,
            Done::Opened(Err(OpenError::NeedsAuth(reason))) => {
                self.happened(None, Event::AuthNeeded { reason }).await;
            }
            Done::Opened(Err(error)) => {
                let reason = error.reason().to_owned();
                self.happened(None, Event::NotOpened { reason }).await;
            }
            Done::Event(event) => self.happened(Some(generation), event).await,
            Done::Listed(waited, Ok(tools)) => self.listed(waited, &tools),
            Done::Listed(waited, Err(error)) => {
                self.shared.log.note(&format!("the tools could not be listed again: {error}"));
                self.settling = Settling::listed(waited, Instant::now());
                self.await_changes();
            }
            Done::Nothing => {}
        }
    }

    async fn happened(&mut self, generation: Option<u64>, event: Event) {
        if generation.is_some_and(|generation| generation != self.generation) {
            return;
        }
        let state = self.shared.state.borrow().clone();
        let before = state.name();
        let (state, action) = step(state, event, Instant::now());
        if before != state.name() {
            self.shared.lived(&format!("{before} ► {}{}", state.name(), in_short(&state)));
        }
        self.perform(action, state).await;
    }

    /// The new state is shown when what calls may not use any more is withdrawn.
    async fn perform(&mut self, action: Action, state: State) {
        match action {
            Action::Nothing => self.show(state),
            Action::Open => {
                self.show(state);
                self.open();
            }
            Action::OpenAfter(wait) => {
                self.show(state);
                self.begin(async move {
                    sleep(wait).await;
                    Done::Event(Event::Due)
                });
            }
            Action::Probe => {
                self.show(state);
                self.probe();
            }
            Action::ReopenAfter(wait) => {
                self.let_go();
                self.show(state);
                self.begin(async move {
                    sleep(wait).await;
                    Done::Event(Event::Due)
                });
            }
            Action::Reopen => {
                self.let_go();
                self.show(state);
                self.open();
            }
            Action::Close => {
                let connection = self.shared.take_back();
                self.show(state);
                self.tasks.abort_all();
                if let Some(connection) = connection {
                    connection.session.peer.close().await;
                }
            }
        }
    }

    fn show(&self, state: State) {
        self.shared.state.send_replace(state);
    }

    /// Forgets the connection and everything that was begun for it.
    fn let_go(&mut self) {
        if let Some(connection) = self.shared.take_back() {
            // Calls that still hold it are told that it is closed; its end is bounded, and nobody need wait for it.
            tokio::spawn(async move { connection.session.peer.close().await });
        }
        self.tasks.abort_all();
        self.generation += 1;
    }

    fn begin(&mut self, work: impl Future<Output = Done> + Send + 'static) {
        let generation = self.generation;
        self.tasks.spawn(async move { (generation, work.await) });
    }

    fn open(&mut self) {
        self.generation += 1;
        let shared = Arc::clone(&self.shared);
        self.begin(async move {
            // Closed is never: whoever waits then simply goes on.
            let _start = shared.starts.acquire().await;
            Done::Opened(open::open(&shared.config, &shared.host, &shared.log, shared.era()).await)
        });
    }

    async fn opened(&mut self, opened: Opened) {
        let Opened { session, tools, transport } = opened;
        remember(&self.shared, &session.era, session.greeting.instructions.as_deref(), &tools);
        self.shared.tools_are(listing::read(&tools, &self.shared.config.wanted));
        let connection = Arc::new(Connection { session, generation: self.generation });
        self.shared.lend(Arc::clone(&connection), transport);
        self.watch(&connection);
        self.happened(None, Event::Opened).await;
        self.await_changes();
    }

    /// Notices its end, and in the era without sessions asks to be told of changes. A connection is not kept alive by
    /// those who watch it.
    fn watch(&mut self, connection: &Arc<Connection>) {
        let watched = Arc::clone(connection);
        self.begin(async move {
            let reason = watched.session.peer.closed().await.to_string();
            Done::Event(Event::Ended { reason })
        });
        if connection.session.era == Era::Modern && connection.session.greeting.tools_change {
            let listener = Arc::clone(connection);
            let changed = Arc::clone(&self.shared.host.tools_changed);
            self.begin(async move {
                listen(&listener, &changed).await;
                Done::Nothing
            });
        }
    }

    fn await_changes(&mut self) {
        let shared = Arc::clone(&self.shared);
        let Some(connection) = shared.connection() else { return };
        let settling = self.settling;
        self.begin(async move {
            shared.host.tools_changed.notified().await;
            let wait = settling.wait(Instant::now());
            sleep(wait).await;
            Done::Listed(wait, listing::fetch(&connection.session.peer, shared.config.request_timeout).await)
        });
    }

    fn listed(&mut self, waited: Duration, tools: &[Box<RawValue>]) {
        self.settling = Settling::listed(waited, Instant::now());
        if let Some(connection) = self.shared.connection() {
            let greeting = &connection.session.greeting;
            remember(&self.shared, &connection.session.era, greeting.instructions.as_deref(), tools);
        }
        self.shared.tools_are(listing::read(tools, &self.shared.config.wanted));
        self.await_changes();
    }

    fn probe(&mut self) {
        let Some(connection) = self.shared.connection() else { return };
        let probe = self.shared.config.health_probe;
        self.begin(async move {
            let method = match (probe, &connection.session.era) {
                (HealthProbe::ListTools, _) => "tools/list",
                (HealthProbe::Ping, Era::Legacy { .. }) => "ping",
                (HealthProbe::Ping, Era::Modern) => "server/discover",
            };
            match connection.session.peer.request(Ask::new(method, "", PROBE_PATIENCE)).await {
                // Whatever it answers, it is there.
                Ok(_) | Err(PeerError::Rpc(_)) => Done::Event(Event::Alive),
                Err(PeerError::Silent(_) | PeerError::Failed(_)) => Done::Event(Event::Dead),
            }
        });
    }
}

/// Why it is so; what the server said last is in the log already.
fn in_short(state: &State) -> String {
    let reason = state.reason().and_then(|reason| reason.lines().next());
    reason.map(|reason| format!(": {}", reason.trim_end_matches("; it said last:"))).unwrap_or_default()
}

/// Hears of changes for as long as the server lets it. A stream that ended is opened again, and what changed in between may have
/// been missed; a server that refuses it has none to tell.
async fn listen(connection: &Connection, changed: &Notify) {
    let fields = "\"notifications\":{\"toolsListChanged\":true}";
    let mut wait = LISTEN_AGAIN;
    loop {
        let opened = Instant::now();
        let ask = Ask::new("subscriptions/listen", fields, LISTEN_PATIENCE);
        match connection.session.peer.request(ask).await {
            Ok(_)
            | Err(
                PeerError::Silent(_)
                | PeerError::Failed(Failure::Broken(_) | Failure::Closed(_) | Failure::Unreached(_)),
            ) => {}
            Err(PeerError::Rpc(_) | PeerError::Failed(_)) => return,
        }
        wait =
            if opened.elapsed() < LISTEN_AGAIN_MAX { (wait * 2).min(LISTEN_AGAIN_MAX) } else { LISTEN_AGAIN };
        sleep(wait).await;
        changed.notify_one();
    }
}

fn remember(shared: &Shared, era: &Era, instructions: Option<&str>, tools: &[Box<RawValue>]) {
    let Some(memory) = &shared.memory else { return };
    let ServerConfig { digest, .. } = &shared.config;
    let remembered = Remembered {
        digest: digest.clone(),
        version: era.version().to_owned(),
        instructions: instructions.map(str::to_owned),
        tools: tools.to_vec(),
    };
    if let Err(error) = memory.save(&remembered) {
        shared.log.note(&format!("the tools could not be remembered: {error}"));
    }
}
