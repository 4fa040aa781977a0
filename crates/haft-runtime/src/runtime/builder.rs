//! Builds a runtime from a configuration, stores, and the tools and interfaces of the embedding program.

use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use haft_config::ResolvedConfig;
use haft_config::skills::Skills;
use haft_core::accounting_store::AccountingStore;
use haft_core::approval::Approver;
use haft_core::blob_store::BlobStore;
use haft_core::cache_store::CacheStore;
use haft_core::elicitation::Elicitor;
use haft_core::event::{EventSink, EventSinks};
use haft_core::event_store::EventStore;
use haft_core::grant_store::{GrantStore, MemoryGrants};
use haft_core::home::Home;
use haft_core::idempotency_store::IdempotencyStore;
use haft_core::model_provider::ModelProvider;
use haft_core::output_store::OutputStores;
use haft_core::position::SessionId;
use haft_core::provider::ToolProvider;
use haft_core::run::caller_approvals::ApproverAuthority;
use haft_core::trace_context::TraceContext;
use haft_models::cassette::Tape;
use haft_store::accounting::{AccountingSink, FileAccounting, MemoryAccounting};
use haft_store::approvals_import;
use haft_store::blobs::{FileBlobs, MemoryBlobs};
use haft_store::cache::FileCache;
use haft_store::events::{FileEvents, MemoryEvents};
use haft_store::grants::FileGrants;
use haft_store::idempotency::{FileIdempotencyKeys, MemoryIdempotencyKeys};
use haft_store::journals::{JournalStore, MemoryJournals, Takeover};
use haft_store::outputs::{FileOutputs, MemoryOutputs};
use haft_store::sessions::{SessionStore, SyncBatch};
use haft_store::workspaces::WorkspaceStore;
use haft_tools::mcp::{SharedServers, TraceParents, TraceSink};

use super::generation::{ConfigGeneration, RuntimeConfig};
use super::shared_agents::SharedAgents;
use super::{Runtime, RuntimeShared};
use crate::event_log::EventLog;
use crate::recordings::{RecordingSink, RunRecorder};
use crate::run_queue::{QueueEntry, RunQueue};
use crate::runs::Variables;
use crate::wiring::{EngineState, cache_limits};

/// The stores that outlive a process. Clones share them.
#[derive(Clone)]
pub struct Stores {
    home: Home,
    journals: Option<Arc<dyn JournalStore>>,
    /// The batch that syncs the journals of ended runs together; `None` if each journal is synced at the end of its
    /// run.
    sync_batch: Option<SyncBatch>,
    pub(super) events: Option<Arc<dyn EventStore>>,
    pub(super) outputs: Arc<dyn OutputStores>,
    pub(super) blobs: Arc<dyn BlobStore>,
    pub(super) keys: Arc<dyn IdempotencyStore>,
    cache: CacheChoice,
    pub(super) grants: Arc<dyn GrantStore>,
    pub(super) accounting: Option<Arc<dyn AccountingStore>>,
    old_files: OldFiles,
}

/// Selects whether the runtime removes old files in haft's home directory and imports the approvals of an earlier
/// version of haft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OldFiles {
    /// Old files are removed, and `grants` imports the approvals of an earlier version of haft.
    SweptAndImported,
    Swept,
    Untouched,
}

impl Stores {
    /// Uses files in haft's home directory.
    pub fn at(home: &Home) -> Self {
        Self {
            home: home.clone(),
            journals: None,
            sync_batch: None,
            events: Some(Arc::new(FileEvents::of(home))),
            outputs: Arc::new(FileOutputs::of(home)),
            blobs: Arc::new(FileBlobs::of(home)),
            keys: Arc::new(FileIdempotencyKeys::of(home)),
            cache: CacheChoice::Files,
            grants: Arc::new(FileGrants::of(home)),
            accounting: Some(Arc::new(FileAccounting::of(home))),
            old_files: OldFiles::SweptAndImported,
        }
    }

    /// Keeps all data in the memory of this value, and writes no file. Runs can be attached, listed and resumed as long
    /// as this value exists.
    pub fn in_memory(home: &Home) -> Self {
        Self {
            home: home.clone(),
            journals: Some(Arc::new(MemoryJournals::default())),
            sync_batch: None,
            events: Some(Arc::new(MemoryEvents::default())),
            outputs: Arc::new(MemoryOutputs::default()),
            blobs: Arc::new(MemoryBlobs::default()),
            keys: Arc::new(MemoryIdempotencyKeys::default()),
            cache: CacheChoice::MemoryOnly,
            grants: Arc::new(MemoryGrants::default()),
            accounting: Some(Arc::new(MemoryAccounting::default())),
            old_files: OldFiles::Untouched,
        }
    }

    /// Keeps event logs in this store.
    #[must_use]
    pub fn with_events(mut self, events: Arc<dyn EventStore>) -> Self {
        self.events = Some(events);
        self
    }

    /// Keeps outputs that are too large for a conversation in this store.
    #[must_use]
    pub fn with_outputs(mut self, outputs: Arc<dyn OutputStores>) -> Self {
        self.outputs = outputs;
        self
    }

    /// Keeps the agents and skills of stored runs in this store.
    #[must_use]
    pub fn with_blobs(mut self, blobs: Arc<dyn BlobStore>) -> Self {
        self.blobs = blobs;
        self
    }

    /// Keeps idempotency keys in this store.
    #[must_use]
    pub fn with_idempotency_keys(mut self, keys: Arc<dyn IdempotencyStore>) -> Self {
        self.keys = keys;
        self
    }

    /// Keeps event logs in memory only.
    #[must_use]
    pub fn without_events(mut self) -> Self {
        self.events = None;
        self
    }

    /// Keeps the usage records of calls and model requests in this store.
    #[must_use]
    pub fn with_accounting(mut self, accounting: Arc<dyn AccountingStore>) -> Self {
        self.accounting = Some(accounting);
        self
    }

    /// Keeps no usage records, for runs whose models cost nothing, such as scripted ones.
    #[must_use]
    pub fn without_accounting(mut self) -> Self {
        self.accounting = None;
        self
    }

    /// Keeps journals in this store instead of in files.
    #[must_use]
    pub fn with_journals(mut self, journals: Arc<dyn JournalStore>) -> Self {
        self.journals = Some(journals);
        self
    }

    /// Keeps cached outputs of calls in this store, for example one that several runtimes of a process share.
    #[must_use]
    pub fn with_cache(mut self, store: Arc<dyn CacheStore>) -> Self {
        self.cache = CacheChoice::Brought(store);
        self
    }

    /// Keeps cached outputs of calls in the memory of the runtime only.
    #[must_use]
    pub fn without_cache(mut self) -> Self {
        self.cache = CacheChoice::MemoryOnly;
        self
    }

    /// Returns the store in which the cache of calls keeps its entries, with the configured limits.
    pub(super) fn cache(&self, config: &ResolvedConfig) -> Option<Arc<dyn CacheStore>> {
        match &self.cache {
            CacheChoice::Files => Some(Arc::new(self.file_cache(config))),
            CacheChoice::Brought(store) => Some(Arc::clone(store)),
            CacheChoice::MemoryOnly => None,
        }
    }

    fn file_cache(&self, config: &ResolvedConfig) -> FileCache {
        FileCache::of(&self.home, cache_limits(config))
    }

    /// Keeps remembered approvals in a store of the embedding program, such as [`MemoryGrants`].
    #[must_use]
    pub fn with_grants(mut self, grants: Arc<dyn GrantStore>) -> Self {
        self.grants = grants;
        self.old_files = match self.old_files {
            OldFiles::SweptAndImported | OldFiles::Swept => OldFiles::Swept,
            OldFiles::Untouched => OldFiles::Untouched,
        };
        self
    }

    /// Imports the approvals that an earlier version of haft stored, once. Returns a warning if some were dropped.
    fn import_approvals(&self) -> Option<String> {
        match self.old_files {
            OldFiles::SweptAndImported => approvals_import::import(&self.home),
            OldFiles::Swept | OldFiles::Untouched => None,
        }
    }

    /// Returns the journal store. A file store uses the limits of this configuration.
    pub(super) fn journals(&self, config: &ResolvedConfig) -> Arc<dyn JournalStore> {
        match &self.journals {
            Some(journals) => Arc::clone(journals),
            None => Arc::new(self.sessions(config)),
        }
    }

    fn sessions(&self, config: &ResolvedConfig) -> SessionStore {
        let sessions = SessionStore::of(&self.home, config.sessions.limits);
        match &self.sync_batch {
            Some(batch) => sessions.batching(batch.clone()),
            None => sessions,
        }
    }

    /// Syncs the journals of all ended runs to disk.
    pub(super) async fn sync_sessions(&self) {
        if let Some(batch) = &self.sync_batch {
            batch.sync().await;
        }
    }

    /// Syncs the journals of ended runs in batches, for a program with many short runs. If the machine crashes, the
    /// final records of runs that ended in the last second may be lost, but never the record of a mutating call. This
    /// affects only journals in files, not a journal store that the program provides.
    #[must_use]
    pub fn syncing_together(mut self) -> Self {
        self.sync_batch = Some(SyncBatch::default());
        self
    }

    /// Removes files that have not changed for as long as sessions are kept, and expired cached outputs. Runtimes with
    /// other stores do this too, because earlier processes may have left files.
    pub(super) fn sweep(&self, config: &ResolvedConfig) {
        match self.old_files {
            OldFiles::SweptAndImported | OldFiles::Swept => {}
            OldFiles::Untouched => return,
        }
        let keep = config.sessions.limits.keep;
        let now = std::time::SystemTime::now();
        FileBlobs::of(&self.home).sweep(keep, now);
        FileIdempotencyKeys::of(&self.home).sweep(keep, now);
        FileEvents::of(&self.home).sweep(keep, now);
        self.file_cache(config).sweep();
        WorkspaceStore::of(&self.home).sweep_tmps(keep, now);
    }
}

/// The store behind the cache of calls.
#[derive(Clone)]
enum CacheChoice {
    /// Files in haft's home directory, which other processes share.
    Files,
    /// A store that the embedding program provides.
    Brought(Arc<dyn CacheStore>),
    MemoryOnly,
}

/// The source of answers to approvals and elicitation requests of a run.
pub enum AnswerSource<T: ?Sized> {
    /// The run parks, and the caller answers through its handle.
    ThroughHandle,
    /// This object answers at once, while the run waits for the answer.
    By(Arc<T>),
    /// No source: calls that need approval are denied, and elicitation requests are declined.
    Denied,
}

impl<T: ?Sized> AnswerSource<T> {
    /// Returns `By` with this object, or `Denied` if there is none.
    pub fn by(interface: Option<Arc<T>>) -> Self {
        interface.map_or(Self::Denied, Self::By)
    }

    pub(super) fn or(&self, desk: Arc<T>) -> Option<Arc<T>> {
        match self {
            Self::ThroughHandle => Some(desk),
            Self::By(interface) => Some(Arc::clone(interface)),
            Self::Denied => None,
        }
    }
}

impl<T: ?Sized> Clone for AnswerSource<T> {
    fn clone(&self) -> Self {
        match self {
            Self::ThroughHandle => Self::ThroughHandle,
            Self::By(interface) => Self::By(Arc::clone(interface)),
            Self::Denied => Self::Denied,
        }
    }
}

impl<T: ?Sized> std::fmt::Debug for AnswerSource<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ThroughHandle => "ThroughHandle",
            Self::By(_) => "By",
            Self::Denied => "Denied",
        })
    }
}

/// The caller's hooks and options for one run. By default, the caller approves calls, answers elicitation requests and
/// submits function outputs through the [`RunHandle`](crate::RunHandle).
#[derive(Clone)]
pub struct RunHooks {
    /// Allows or denies calls that need approval.
    pub approvals: AnswerSource<dyn Approver>,
    /// Selects the calls that the source of `approvals` may allow or deny.
    pub authority: ApproverAuthority,
    /// Answers the elicitation requests of MCP servers.
    pub elicitations: AnswerSource<dyn Elicitor>,
    /// Watchers that receive every event as it happens, before the event log.
    pub watchers: Vec<Arc<dyn EventSink>>,
    /// Records the model requests, tool calls and clock readings of the run, so that it can be replayed.
    pub recorder: Option<(Arc<Tape>, Arc<RunRecorder>)>,
    /// The provider that replaces the configured models.
    pub models: Option<Arc<dyn ModelProvider>>,
    /// The id of the run, if the caller chose one.
    pub session: Option<SessionId>,
    /// Selects where the run stores its session.
    pub sessions: SessionStorage,
    /// Selects where the run stores tool outputs that are large or cached.
    pub output_storage: OutputStorage,
    /// Selects whether a resumed run may be taken over from a process that still holds it.
    pub takeover: Takeover,
    /// Selects whether a run that has ended may be resumed without a further request.
    pub finished: FinishedRun,
    /// Selects whether the run queue may refuse this run.
    pub queue_entry: QueueEntry,
    /// Selects what happens if the run names a tool that does not exist.
    pub unknown_tools: UnknownTools,
    /// The span of the caller, which is the parent of the run's spans.
    pub trace_parent: Option<TraceContext>,
}

/// Selects what happens if the first agent of a new run names a tool or a group that does not exist. Tools of MCP
/// servers (`mcp:SERVER__TOOL`) are never an error, because a server may be down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnknownTools {
    /// The run starts without these tools and reports a warning.
    #[default]
    Warned,
    /// The run does not start.
    Refused,
}

/// Selects where a run stores its session: its journal, the journals of its sub-agents, its agents and its events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SessionStorage {
    /// The stores of the runtime. Without `sessions.enabled` in the configuration, the run has no session.
    #[default]
    Stores,
    /// Memory only, for a run that must leave no files on the disk but can be suspended:
    /// [`RunHandle::suspended_run`](crate::RunHandle::suspended_run) returns the whole run.
    Memory,
    /// The run has no session and cannot be resumed.
    None,
}

impl SessionStorage {
    /// Returns the session storage that applies under this configuration.
    pub(super) fn under(self, config: &ResolvedConfig) -> Self {
        match self {
            Self::Stores if !config.sessions.enabled => Self::None,
            Self::Stores | Self::Memory | Self::None => self,
        }
    }
}

/// Selects where a run stores its tool outputs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OutputStorage {
    /// The stores of the runtime.
    #[default]
    Stores,
    /// Memory only, for a run that must leave no files on the disk. Large outputs are dropped when the run ends.
    Memory,
}

/// Selects what happens when a run that has ended is resumed without a further request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FinishedRun {
    /// Resuming returns an error, because there is nothing to do.
    #[default]
    Refused,
    /// The run ends again with the same outcome, without a model request. This is for a caller that crashed before it
    /// stored the outcome.
    EndsAgain,
}

impl Default for RunHooks {
    fn default() -> Self {
        Self {
            approvals: AnswerSource::ThroughHandle,
            authority: ApproverAuthority::AllCalls,
            elicitations: AnswerSource::ThroughHandle,
            watchers: Vec::new(),
            recorder: None,
            models: None,
            session: None,
            sessions: SessionStorage::Stores,
            output_storage: OutputStorage::Stores,
            takeover: Takeover::Never,
            finished: FinishedRun::Refused,
            unknown_tools: UnknownTools::Warned,
            queue_entry: QueueEntry::Limited,
            trace_parent: None,
        }
    }
}

impl RunHooks {
    pub(super) fn sink(&self, log: &EventLog) -> Arc<dyn EventSink> {
        let mut all = self.watchers.clone();
        all.push(Arc::new(log.clone()));
        let watchers = EventSinks(all);
        match &self.recorder {
            // The recorder forwards events, so that readers see them in the recorded order.
            Some((_, recorder)) => Arc::new(RecordingSink::new(Arc::clone(recorder), watchers)),
            None => Arc::new(watchers),
        }
    }
}

/// Builds a [`Runtime`].
pub struct RuntimeBuilder {
    config: RuntimeConfig,
    home: Option<Home>,
    stores: Option<Stores>,
    variables: Variables,
    skills: Skills,
    tools: Vec<Arc<dyn ToolProvider>>,
    models: Option<Arc<dyn ModelProvider>>,
    trace: Option<Arc<dyn TraceSink>>,
    parents: Option<Arc<dyn TraceParents>>,
    idle_for: Duration,
}

/// The error of a builder that finds no home directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("haft's home directory is not known; set HAFT_HOME or HOME, or pass a home to the builder")]
pub struct NoHome;

impl RuntimeBuilder {
    pub(super) fn new(config: RuntimeConfig) -> Self {
        Self {
            config,
            home: None,
            stores: None,
            variables: Arc::new(haft_config::environment),
            skills: Skills::default(),
            tools: Vec::new(),
            models: None,
            trace: None,
            parents: None,
            idle_for: Duration::ZERO,
        }
    }

    /// Sets haft's home directory; by default `$HAFT_HOME`, or `~/.haft` if it is not set.
    #[must_use]
    pub fn home(mut self, home: Home) -> Self {
        self.home = Some(home);
        self
    }

    /// Sets the stores of sessions, events and grants; by default files in haft's home directory.
    #[must_use]
    pub fn stores(mut self, stores: Stores) -> Self {
        self.stores = Some(stores);
        self
    }

    /// Sets the lookup of variables; by default the environment of the process.
    #[must_use]
    pub fn variables(mut self, variables: Variables) -> Self {
        self.variables = variables;
        self
    }

    /// Sets the skills that a request can trigger; none by default.
    #[must_use]
    pub fn skills(mut self, skills: Skills) -> Self {
        self.skills = skills;
        self
    }

    /// Adds tools of the embedding program.
    #[must_use]
    pub fn tools(mut self, provider: Arc<dyn ToolProvider>) -> Self {
        self.tools.push(provider);
        self
    }

    /// Uses this provider instead of the configured models.
    #[must_use]
    pub fn models(mut self, models: Arc<dyn ModelProvider>) -> Self {
        self.models = Some(models);
        self
    }

    /// Sends a copy of every message to and from MCP servers to this sink.
    #[must_use]
    pub fn trace_mcp(mut self, trace: Arc<dyn TraceSink>) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Sends trace context to MCP servers, with the span of each call as the parent.
    #[must_use]
    pub fn trace_parents(mut self, parents: Option<Arc<dyn TraceParents>>) -> Self {
        self.parents = parents;
        self
    }

    /// Keeps a prepared agent, its MCP servers and its workers for this time after its last run, for another run of the
    /// same agent in the same workspace. By default they end with the run.
    #[must_use]
    pub fn keep_idle_agents(mut self, idle_for: Duration) -> Self {
        self.idle_for = idle_for;
        self
    }

    /// Builds the runtime. The warnings name the parts of the configuration that cannot be used; the other parts work.
    pub async fn build_with_warnings(self) -> Result<(Runtime, Vec<String>), NoHome> {
        let home = self.home.or_else(crate::home::find).ok_or(NoHome)?;
        let stores = self.stores.unwrap_or_else(|| Stores::at(&home));
        let config = self.config.resolved();
        let engine = EngineState::new(config).with_cache_store(stores.cache(config));
        let own = (self.tools, self.models);
        let shared = (engine, SharedAgents::new(self.idle_for));
        let (generation, mut warnings) =
            ConfigGeneration::first(self.config, self.skills, own, shared, (&home, &self.variables)).await;
        warnings.extend(stores.import_approvals());
        let accounting = stores.accounting.clone().map(AccountingSink::new).map(Arc::new);
        let runtime = Runtime::new(RuntimeShared {
            home,
            accounting,
            watchers: RwLock::default(),
            stores,
            generation: RwLock::new(Arc::new(generation)),
            variables: self.variables,
            servers: Arc::new(SharedServers::default()),
            trace: self.trace,
            parents: self.parents,
            runs: Mutex::default(),
            queue: RunQueue::default(),
            memory_journals: MemoryJournals::default(),
        });
        Ok((runtime, warnings))
    }

    /// Builds the runtime without its warnings about the configuration.
    pub async fn build(self) -> Result<Runtime, NoHome> {
        self.build_with_warnings().await.map(|(runtime, _)| runtime)
    }
}

impl std::fmt::Debug for RuntimeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuntimeBuilder").field("home", &self.home).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stores").field("home", &self.home).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for RunHooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunHooks").field("session", &self.session).finish_non_exhaustive()
    }
}
