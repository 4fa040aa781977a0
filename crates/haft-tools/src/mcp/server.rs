//! One MCP server: runs its lifecycle state machine and provides its connection to calls.

use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use haft_core::changes::Changes;
use haft_core::event::Progress;
use haft_core::output::ToolOutput;
use haft_core::provider::CallContext;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::sampling::Caller;
use haft_core::tool::Effects;
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::call::{self, Call, CallError};
use super::config::ServerConfig;
use super::driver::{Driver, Note};
use super::era::Era;
use super::host::{Elicitation, Host};
use super::in_flight::Calls;
use super::listing::{self, Known, Listing};
use super::memory::{Memory, Remembered};
use super::overdue::Overdue;
use super::ring::Ring;
use super::sampling::SamplingPolicy;
use super::session::{Greeting, Session};
use super::shared::Users;
use super::supervisor::{Cause, Event, State};
use super::trace::{Trace, TraceSink, Traced};
use super::trace_parent::TraceParents;
use crate::withheld::Withheld;

/// The most queued notes to the driver; each call sends at most two.
const NOTES_WAITING_MAX: usize = 1024;

/// The interval at which a call that waits for its server reports progress.
const STARTING_TOLD_EVERY: Duration = Duration::from_millis(1100);

/// The delay before new log lines are written to the file, which limits the number of writes during a flood.
const KEPT_AFTER: Duration = Duration::from_millis(500);

/// An MCP server, running or not. Dropping it ends its process and all child processes.
pub struct Server {
    pub(super) shared: Arc<Shared>,
    pub(super) users: Users,
    notes: mpsc::Sender<Note>,
}

/// Settings and resources that all servers of a process share.
#[derive(Clone)]
pub struct McpEnvironment {
    /// The directory of logs and cached tool lists.
    pub directory: Option<PathBuf>,
    pub elicitation: Elicitation,
    /// Limits concurrent starts: each start holds a permit until it ends.
    pub starts: Arc<Semaphore>,
    /// Receives every message.
    pub trace: Option<Arc<dyn TraceSink>>,
    /// Returns the spans of calls, so that trace context reaches the servers.
    pub parents: Option<Arc<dyn TraceParents>>,
}

/// The default number of concurrent server starts.
const STARTS_MAX: usize = 16;

impl Default for McpEnvironment {
    fn default() -> Self {
        Self {
            directory: None,
            elicitation: Elicitation::default(),
            starts: Arc::new(Semaphore::new(STARTS_MAX)),
            trace: None,
            parents: None,
        }
    }
}

/// The state that the driver and the calls share.
pub(super) struct Shared {
    pub(super) config: ServerConfig,
    pub(super) host: Arc<Host>,
    pub(super) log: Arc<Ring>,
    pub(super) memory: Option<Memory>,
    pub(super) state: watch::Sender<State>,
    pub(super) changes: Changes,
    pub(super) starts: Arc<Semaphore>,
    /// The file of the log.
    log_file: Option<PathBuf>,
    lent: Mutex<Lent>,
}

/// The part of the state that calls use.
#[derive(Default)]
struct Lent {
    connection: Option<Arc<Connection>>,
    listing: Arc<Listing>,
    greeting: Greeting,
    era: Option<Era>,
    transport: Option<&'static str>,
}

/// An open connection, with its number among all connections of this server.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) session: Session,
    pub(super) generation: u64,
}

/// The status of a server for the operator.
#[derive(Debug, Clone)]
pub struct Status {
    pub name: String,
    /// `configured`, `starting`, `ready`, `degraded`, `restarting`, `failed`, `needs_auth` or `stopped`.
    pub state: &'static str,
    /// The reason why the server is not ready, if there is one.
    pub reason: Option<String>,
    pub era: Option<Era>,
    /// The transport of the latest connection.
    pub transport: Option<&'static str>,
    pub greeting: Greeting,
    pub listing: Arc<Listing>,
    /// The number of lines on standard output that were not protocol messages.
    pub noise: u64,
}

impl Server {
    /// Creates a server without starting it. A cached tool list is available immediately.
    pub fn new(config: ServerConfig, environment: &McpEnvironment) -> Self {
        let McpEnvironment { directory, elicitation, starts, trace, parents } = environment;
        let withheld = Arc::new(Withheld::of(config.secrets.iter().map(ExposeSecret::expose_secret)));
        let log = Arc::new(Ring::without(Arc::clone(&withheld)));
        let trace =
            trace.as_ref().map(|sink| Trace::new(&config.name, Arc::clone(sink), Arc::clone(&withheld)));
        let host = Host {
            server: config.name.clone(),
            elicitation: *elicitation,
            trace,
            withheld,
            parents: parents.clone(),
            roots: config.roots.clone(),
            sampling: config.sampling.clone().map(|settings| SamplingPolicy { settings }),
            calls: Calls::default(),
            log: Arc::clone(&log),
            tools_changed: Arc::new(Notify::new()),
        };
        let memory = directory.as_ref().map(|directory| Memory::of(directory, config.namespace.as_str()));
        let remembered = memory.as_ref().and_then(|memory| memory.load(&config.digest));
        let lent = remembered.map(|remembered| Lent::of(remembered, &config)).unwrap_or_default();
        let log_file =
            directory.as_ref().map(|directory| directory.join(format!("{}.log", config.namespace.as_str())));
        let shared = Arc::new(Shared {
            config,
            host: Arc::new(host),
            log,
            memory,
            state: watch::Sender::new(State::Configured),
            changes: Changes::default(),
            starts: Arc::clone(starts),
            log_file,
            lent: Mutex::new(lent),
        });
        let (notes, inbox) = mpsc::channel(NOTES_WAITING_MAX);
        tokio::spawn(Driver::new(Arc::clone(&shared)).run(inbox));
        Self { shared, users: Users::default(), notes }
    }

    pub fn namespace(&self) -> &str {
        self.shared.config.namespace.as_str()
    }

    /// Returns true if the tool list is known, from this run or from the cache.
    pub fn is_known(&self) -> bool {
        self.shared.lent().era.is_some()
    }

    /// Starts the server if needed, and waits until it is ready or has failed.
    pub async fn start(&self) -> Result<(), ToolError> {
        self.ready().await.map(drop)
    }

    pub fn status(&self) -> Status {
        let state = self.shared.state.borrow().clone();
        let lent = self.shared.lent();
        let reason = state.reason().map(str::to_owned);
        Status {
            name: self.shared.config.name.clone(),
            state: state.name(),
            reason,
            era: lent.era.clone(),
            transport: lent.transport,
            greeting: lent.greeting.clone(),
            listing: Arc::clone(&lent.listing),
            noise: lent.connection.as_ref().map_or(0, |connection| connection.session.peer.noise()),
        }
    }

    /// Returns the last lines of its standard error and of its log messages.
    pub fn log(&self, lines: usize) -> Vec<String> {
        self.shared.log.last(lines)
    }

    /// Shuts the server down gracefully.
    pub async fn stop(&self) {
        let (done, ended) = oneshot::channel();
        if self.notes.send(Note::Stop(done)).await.is_ok() {
            let _ = ended.await;
        }
    }

    /// Calls a tool. A second attempt follows only if the server reports that the session of the first one had expired,
    /// because then the tool did not run.
    pub(super) async fn call(
        &self,
        tool: &Known,
        effects: Effects,
        arguments: &Map<String, Value>,
        cx: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        let progress = |progress| cx.progress(progress);
        let config = &self.shared.config;
        let begun = self.shared.host.calls.begin(Caller::of(cx));
        let call = Call {
            tool,
            arguments,
            trace_parent: self.shared.host.trace_parent(cx.operation()),
            patience: config.request_timeout,
            in_flight: &begun.call,
            progress: &progress,
        };
        for _ in 0..2 {
            let connection = self.ready_for(cx).await?;
            let watch = Overdue::watch(self, connection.generation, cx.time_limit.as_ref());
            let outcome = call::call(&connection.session, &self.shared.host, &call).await;
            watch.answered();
            if begun.call.samples() > 0 {
                cx.note("sampling", json!({ "requests": begun.call.samples() }));
            }
            match outcome {
                Ok(output) => {
                    self.let_in(connection.generation);
                    return Ok(output);
                }
                Err(CallError::Told(error)) => {
                    let message = self.shared.host.withheld.left_of(error.message);
                    return Err(ToolError::new(error.kind, message));
                }
                Err(CallError::NeedsAuth(reason)) => {
                    self.note(connection.generation, Event::AuthNeeded { reason: reason.clone() });
                    return Err(self.error(ToolErrorKind::Unavailable, &reason));
                }
                Err(CallError::SessionExpired) => self.note(connection.generation, Event::Expired),
                Err(CallError::Silent(patience)) => {
                    self.note(connection.generation, Event::Silent);
                    return Err(self.silent(tool, patience));
                }
                Err(CallError::Lost(reason)) => return Err(self.lost(tool, effects, &reason)),
            }
        }
        Err(self.error(ToolErrorKind::Unavailable, "the server forgets every session it opens"))
    }

    /// Waits for the connection, and reports progress meanwhile.
    async fn ready_for(&self, cx: &CallContext) -> Result<Arc<Connection>, ToolError> {
        let mut ready = pin!(self.ready());
        loop {
            if let Ok(ready) = timeout(STARTING_TOLD_EVERY, &mut ready).await {
                return ready;
            }
            let name = &self.shared.config.name;
            cx.progress(Progress::Message(format!("MCP server `{name}` is starting")));
        }
    }

    /// Returns the connection as soon as one is open. While the server restarts, it returns an error immediately, so
    /// that the model can do something else.
    async fn ready(&self) -> Result<Arc<Connection>, ToolError> {
        let mut state = self.shared.state.subscribe();
        let mut asked = false;
        loop {
            if let Some(connection) = self.shared.lent().connection.clone() {
                return Ok(connection);
            }
            let found = state.borrow_and_update().clone();
            match found {
                State::Configured | State::NeedsAuth { .. } if !asked => {
                    asked = true;
                    let _ = self.notes.try_send(Note::Event { generation: None, event: Event::Wanted });
                }
                State::Configured | State::Starting { .. } | State::Ready { .. } | State::Degraded { .. } => {
                }
                State::Restarting { cause, reason, at, failures } => {
                    let word = match (cause, failures) {
                        (Cause::Ended, _) => "mcp_restart_in_progress",
                        (Cause::NotOpened, 0 | 1) => "mcp_start_failed",
                        (Cause::NotOpened, _) => "mcp_restart_failed",
                    };
                    return Err(self.restarting(word, &reason, at));
                }
                State::NeedsAuth { reason } => {
                    return Err(self.error(ToolErrorKind::Unavailable, &reason));
                }
                State::Stopped => {
                    return Err(self.error(ToolErrorKind::Unavailable, "the server was stopped"));
                }
            }
            if state.changed().await.is_err() {
                return Err(self.error(ToolErrorKind::Unavailable, "the server was stopped"));
            }
        }
    }

    /// Reports that the server accepts requests again after it had required a login.
    fn let_in(&self, generation: u64) {
        if matches!(*self.shared.state.borrow(), State::NeedsAuth { .. }) {
            self.note(generation, Event::Alive);
        }
    }

    /// Sends an event about one connection to the driver. Stops lending out an expired connection.
    pub(super) fn note(&self, generation: u64, event: Event) {
        if event == Event::Expired {
            self.shared.withdraw(generation);
        }
        let _ = self.notes.try_send(Note::Event { generation: Some(generation), event });
    }

    fn error(&self, kind: ToolErrorKind, message: &str) -> ToolError {
        ToolError::new(kind, format!("MCP server `{}`: {message}", self.shared.config.name))
    }

    fn silent(&self, tool: &Known, patience: Duration) -> ToolError {
        let message = format!(
            "`{}` gave neither a result nor progress for {} ms and was cancelled; `requestTimeoutMs` allows more",
            tool.name,
            patience.as_millis()
        );
        self.error(ToolErrorKind::Timeout, &message)
    }

    fn lost(&self, tool: &Known, effects: Effects, reason: &str) -> ToolError {
        match effects {
            Effects::ReadOnly => {
                let message = format!("`{}` was interrupted: {reason}", tool.name);
                self.error(ToolErrorKind::Unavailable, &message)
            }
            Effects::Idempotent | Effects::Mutating | Effects::Unknown => {
                let message = format!(
                    "`{}` was interrupted, and it is not known whether it took effect: {reason}",
                    tool.name
                );
                self.error(ToolErrorKind::UnknownOutcome, &message)
            }
        }
    }

    fn restarting(&self, word: &str, reason: &str, at: Instant) -> ToolError {
        let name = &self.shared.config.name;
        // Round up, so that a fraction of a second does not read as "now".
        let wait = at.saturating_duration_since(Instant::now()).as_millis().div_ceil(1000);
        let next = if wait == 0 { "now".to_owned() } else { format!("in {wait} s") };
        let message = format!("{word}:{name}: {reason}\nit is started again {next}; nothing was called");
        ToolError::new(ToolErrorKind::Unavailable, message)
    }
}

impl Lent {
    fn of(remembered: Remembered, config: &ServerConfig) -> Self {
        Self {
            connection: None,
            listing: Arc::new(listing::read(&remembered.tools, &config.wanted)),
            greeting: Greeting {
                instructions: remembered.instructions.map(Into::into),
                ..Greeting::default()
            },
            era: Era::of_version(&remembered.version),
            transport: None,
        }
    }
}

impl Shared {
    fn lent(&self) -> std::sync::MutexGuard<'_, Lent> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn era(&self) -> Option<Era> {
        self.lent().era.clone()
    }

    pub(super) fn connection(&self) -> Option<Arc<Connection>> {
        self.lent().connection.clone()
    }

    pub(super) fn listing(&self) -> Arc<Listing> {
        Arc::clone(&self.lent().listing)
    }

    pub(super) fn instructions(&self) -> Option<Arc<str>> {
        self.lent().greeting.instructions.clone()
    }

    pub(super) fn lend(&self, connection: Arc<Connection>, transport: &'static str) {
        let mut lent = self.lent();
        lent.transport = Some(transport);
        lent.era = Some(connection.session.era.clone());
        lent.greeting = connection.session.greeting.clone();
        lent.connection = Some(connection);
    }

    /// Withdraws the connection, so that no further call gets it.
    pub(super) fn take_back(&self) -> Option<Arc<Connection>> {
        self.lent().connection.take()
    }

    /// Logs a lifecycle event of the server.
    pub(super) fn lived(&self, what: &str) {
        self.log.note(what);
        self.host.trace(Traced::Life, what);
        self.keep_log();
    }

    /// Writes new log lines to the file while the server runs, so that the operator can follow them and a crash of this
    /// process does not lose them.
    pub(super) async fn keep_what_is_said(&self) {
        loop {
            self.log.grew().await;
            sleep(KEPT_AFTER).await;
            self.keep_log();
        }
    }

    /// Writes the log file. An error is ignored, because the log is still available in memory.
    fn keep_log(&self) {
        if let Some(path) = &self.log_file {
            let _ = self.log.keep(path);
        }
    }

    fn withdraw(&self, generation: u64) {
        let mut lent = self.lent();
        if lent.connection.as_ref().is_some_and(|connection| connection.generation == generation) {
            lent.connection = None;
        }
    }

    /// Replaces the tool list and announces the change. No other function may do this, because the catalog relies on
    /// the announcement.
    pub(super) fn tools_are(&self, listing: Listing) {
        for skipped in &listing.skipped {
            self.log.note(&format!("tool `{}` is left out: {}", skipped.name, skipped.reason));
        }
        self.lent().listing = Arc::new(listing);
        self.changes.announce();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.keep_log();
    }
}

impl fmt::Debug for McpEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpEnvironment").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("config", &self.shared.config).finish_non_exhaustive()
    }
}
