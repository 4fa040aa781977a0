//! `Runtime`: one per process, shared by all runs. It starts, resumes, finds and lists runs.
//!
//! A run is defined by its [`RunSpec`]. This module creates the values that belong to one run (principal, approver,
//! outputs, events) and passes them to the engine as its [`RunContext`].

mod builder;
mod compact;
mod error;
mod generation;
mod prepare;
mod shared_agents;
mod shared_provider;
mod suspended;
mod tool_inventory;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use haft_core::accounting_store::AccountingStore;
use haft_core::event::{Event, EventSink};
use haft_core::event_store::RunKey;
use haft_core::grant_store::GrantStore;
use haft_core::home::Home;
use haft_core::naming::MCP_ITEM_PREFIX;
use haft_core::output_store::{OutputStore, OutputStores as _, StoreError};
use haft_core::position::{RunPosition, SessionId};
use haft_core::principal::Principal;
use haft_core::run::context::RunContext;
use haft_core::run::event::RunBill;
use haft_core::tool_switches::ToolSwitches;
use haft_store::accounting::AccountingSink;
use haft_store::journals::{self, ClaimedJournal, JournalStore, MemoryJournals};
use haft_store::outputs::{MemoryOutputs, StoreLimits};
use haft_store::sessions::SessionError;
use haft_store::sessions::line::SessionStart;
use haft_store::sweep;
use haft_tools::mcp::{SharedServers, TraceParents, TraceSink};
use secrecy::ExposeSecret;
use serde_json::Value;

use crate::definition_watch::DefinitionWatch;
use crate::event_log::EventLog;
use crate::handle::{CallerFunctions, RunHandle, RunShared};
use crate::models::ModelsError;
use crate::pending::PendingDecisions;
use crate::run_queue::{QueueEntry, QueuePlace, RunQueue};
use crate::runs::{
    ActiveRun, CallerChoice, LeftSessions, PartialOutputs, PreparedAgent, ResumedSession, RunRequest,
    Variables,
};
use crate::spec::{ModelChoice, RunSecrets, RunSpec, SkillSource, SpecError, StoredSpec};
use crate::wiring::EngineState;
use haft_config::ResolvedConfig;
use haft_config::agents::graph::{AgentGraph, AgentGraphError};
use haft_config::expand::VariableSource;
use haft_config::skills::{MissingRequirement, Skill, Skills};

pub use builder::{
    AnswerSource, FinishedRun, NoHome, OutputStorage, RunHooks, RuntimeBuilder, SessionStorage, Stores,
    UnknownTools,
};
pub use compact::CompactFailure;
pub use error::{ResumeFailure, StartError};
use generation::ConfigGeneration;
pub use generation::RuntimeConfig;
pub use haft_store::journals::{ListedRun, RunListPage, Takeover};
use shared_agents::AgentLease;
pub(crate) use suspended::MemorySession;
pub use suspended::SuspendedRun;
pub use tool_inventory::ToolInventory;

pub use haft_models::provider_circuit::CIRCUIT_STATES;
pub use haft_tools::mcp::SERVER_STATES;

/// The minimum time between two sweeps by this process. A sweep removes old files from haft's home directory.
const SWEEP_INTERVAL: Duration = Duration::from_mins(10);

/// The maximum number of bytes of large tool outputs that a run without files keeps in memory.
const MEMORY_OUTPUT_BYTES_MAX: u64 = 64 << 20;

/// The maximum number of events that a resumed run reads from the end of its event log, to find the output of
/// interrupted calls.
const PARTIAL_EVENTS_MAX: usize = 2048;

/// Runs agents. Clones share all state.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<RuntimeShared>,
}

struct RuntimeShared {
    home: Home,
    stores: Stores,
    accounting: Option<Arc<AccountingSink>>,
    /// The event watchers that the embedding program added for all runs.
    watchers: RwLock<Vec<Arc<dyn EventSink>>>,
    generation: RwLock<Arc<ConfigGeneration>>,
    variables: Variables,
    servers: Arc<SharedServers>,
    trace: Option<Arc<dyn TraceSink>>,
    parents: Option<Arc<dyn TraceParents>>,
    /// The runs that this runtime drives now.
    runs: Mutex<HashMap<SessionId, Arc<RunShared>>>,
    queue: RunQueue,
    /// The journals of runs whose sessions are only in memory.
    memory_journals: MemoryJournals,
}

/// A run that is prepared but not driven yet.
struct PreparedRun {
    agent: AgentLease,
    context: Arc<RunContext>,
    shared: RunShared,
    routing: Vec<Event>,
}

impl Runtime {
    /// Returns a builder for a configuration. If the configuration was loaded from files, the secrets of a run also
    /// provide values for `${VARIABLE}` in these files.
    pub fn builder(config: impl Into<RuntimeConfig>) -> RuntimeBuilder {
        RuntimeBuilder::new(config.into())
    }

    fn new(shared: RuntimeShared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// Returns haft's home directory, which holds sessions and caches.
    pub fn home(&self) -> &Home {
        &self.shared.home
    }

    /// Returns the configuration for runs that start now. A reload replaces it.
    pub fn config(&self) -> Arc<ResolvedConfig> {
        Arc::clone(&self.generation().config)
    }

    /// Returns the skills that a request can trigger. A reload replaces them.
    pub fn skills(&self) -> Arc<Skills> {
        Arc::clone(&self.generation().skills)
    }

    /// Returns the requirements of a skill that are not met.
    pub fn missing_requirements(&self, skill: &Skill) -> Vec<MissingRequirement> {
        skill.missing(&*self.shared.variables)
    }

    /// Returns the tools that an administrator turned off, for all runs of this runtime.
    pub fn switches(&self) -> ToolSwitches {
        self.generation().engine.switches().clone()
    }

    /// Returns the queues and caches that all runs of the current configuration share, for calls outside of runs.
    pub fn engine(&self) -> EngineState {
        self.generation().engine.clone()
    }

    /// Returns the remembered approvals of all principals, for a program that lists and revokes them.
    pub fn grants(&self) -> &Arc<dyn GrantStore> {
        &self.shared.stores.grants
    }

    /// Returns the usage records of all tenants; `None` if the stores keep none.
    pub fn accounting(&self) -> Option<&Arc<dyn AccountingStore>> {
        self.shared.stores.accounting.as_ref()
    }

    /// Adds a watcher for every run that starts or resumes after this call, such as the metrics of a server.
    pub fn watch(&self, watcher: Arc<dyn EventSink>) {
        self.shared.watchers.write().unwrap_or_else(PoisonError::into_inner).push(watcher);
    }

    /// Returns the name and the state ([`SERVER_STATES`]) of each MCP server that runs use now or have used a short time
    /// ago. A name can occur several times, because principals do not share servers.
    pub fn mcp_server_states(&self) -> Vec<(String, &'static str)> {
        self.shared.servers.states()
    }

    /// Returns the name and the state ([`CIRCUIT_STATES`]) of each model provider that has fallbacks or is a fallback. A
    /// provider that keeps failing is `open`, and runs skip it.
    pub fn provider_circuits(&self) -> Vec<(String, &'static str)> {
        self.generation().engine.circuits().states()
    }

    /// Returns the queue of all root runs. Runs wait only if a program, such as the server, sets limits.
    pub fn queue(&self) -> &RunQueue {
        &self.shared.queue
    }

    fn enter_queue(&self, principal: &Principal, entry: QueueEntry) -> Result<QueuePlace, StartError> {
        self.shared.queue.enter(principal.tenant(), entry).map_err(StartError::QueueFull)
    }

    /// Starts a run. The caller handles its approvals, elicitation requests and functions through the [`RunHandle`].
    pub async fn start(&self, spec: RunSpec, secrets: RunSecrets) -> Result<RunHandle, StartError> {
        self.start_with(spec, secrets, RunHooks::default()).await
    }

    /// Starts a run with the caller's [`RunHooks`], for example with an approver or a chosen run id.
    pub async fn start_with(
        &self,
        mut spec: RunSpec,
        secrets: RunSecrets,
        hooks: RunHooks,
    ) -> Result<RunHandle, StartError> {
        let id = hooks.session.unwrap_or_else(|| SessionId(uuid::Uuid::new_v4().as_u128()));
        if let Some(key) = &spec.idempotency_key {
            let bound = self.shared.stores.keys.bind(&spec.principal, key, id).await;
            let first = bound.map_err(StartError::Store)?;
            if first != id {
                let running = self.attach_for(&spec.principal, first);
                return running.map_err(|_| StartError::AlreadyStarted { run: first });
            }
        }
        let principal_and_key = spec.idempotency_key.clone().map(|key| (spec.principal.clone(), key));
        spec.secrets = secrets.names();
        let started = self.begin(id, spec, &secrets, hooks).await;
        if let (Err(_), Some((principal, key))) = (&started, principal_and_key) {
            self.shared.stores.keys.release(&principal, &key, id).await;
        }
        started
    }

    async fn begin(
        &self,
        id: SessionId,
        mut spec: RunSpec,
        secrets: &RunSecrets,
        hooks: RunHooks,
    ) -> Result<RunHandle, StartError> {
        let place = self.enter_queue(&spec.principal, hooks.queue_entry)?;
        let (variables, (generation, unusable)) =
            (self.variables(secrets), self.generation_for(secrets).await?);
        spec.generation = generation.number;
        trigger_skills(&mut spec, None, &generation, &*variables);
        let functions = functions_of(&spec);
        let sessions = hooks.sessions.under(&generation.config);
        let (recorder, unknown_tools) = (hooks.recorder.clone(), hooks.unknown_tools);
        self.adopt_caller(id, &hooks);
        let hooks = self.with_watchers(hooks);
        let prepared = self.prepare(id, &spec, variables, hooks, LeftSessions::Ignored, &generation).await?;
        let PreparedRun { agent, context, mut shared, routing } = prepared;
        shared.warn(unusable);
        check_names(&agent.runnable().agent, unknown_tools)?;
        let choice = caller_choice(&agent.runnable().agent, &spec, &context)?;
        let mut stored_spec = Value::Null;
        if sessions != SessionStorage::None || recorder.is_some() {
            let (stored, blob) = StoredSpec::of(&spec);
            match sessions {
                SessionStorage::Stores => {
                    let put = self.shared.stores.blobs.put(spec.principal.tenant(), &blob).await;
                    put.map_err(StartError::Store)?;
                }
                SessionStorage::Memory => {
                    let key = RunKey { tenant: spec.principal.tenant().to_owned(), run: id };
                    shared = shared.in_memory(self.memory_session(key, blob.clone()));
                }
                SessionStorage::None => {}
            }
            if let Some((_, recorder)) = recorder {
                recorder.sources(&blob);
            }
            stored_spec = serde_json::to_value(&stored).unwrap_or_default();
        }
        let (spent, prepared) = (RunBill::of(&routing), &agent.runnable().agent);
        let request = RunRequest {
            before: routing,
            opening: spec.opening.clone(),
            spec: stored_spec,
            choice,
            functions: spec.functions.clone(),
            images: spec.images.clone(),
            ..RunRequest::first(prepared, spec.request.clone(), RunPosition::first(id), context, spent)
        };
        let run = ActiveRun::begin(Arc::clone(prepared), request).await.map_err(StartError::Run)?;
        Ok(self.launch(run, agent, shared, functions, place))
    }

    /// Returns the agents of a spec, for example of a stored one, with the changes of the spec.
    pub fn agents_of(&self, spec: &RunSpec) -> Result<AgentGraph, AgentGraphError> {
        spec.graph(&*self.variables(&RunSecrets::none()))
    }

    /// Continues a stored run of the local user. `more` is a further request in the same conversation; without it, the
    /// run continues its unfinished work.
    pub async fn resume(
        &self,
        id: SessionId,
        more: Option<String>,
        secrets: RunSecrets,
    ) -> Result<RunHandle, ResumeFailure> {
        self.resume_for(&Principal::local(), id, more, secrets).await
    }

    /// Resumes a run of this principal. Returns "not found" for runs of other principals.
    pub async fn resume_for(
        &self,
        principal: &Principal,
        id: SessionId,
        more: Option<String>,
        secrets: RunSecrets,
    ) -> Result<RunHandle, ResumeFailure> {
        let spec = self.stored_spec(principal, id).await?;
        self.resume_with(id, spec, more, secrets, RunHooks::default()).await
    }

    /// Returns the first line of a run's journal. Returns "not found" for a run of another principal.
    async fn opened(&self, principal: &Principal, id: SessionId) -> Result<SessionStart, ResumeFailure> {
        let journals = self.shared.stores.journals(&self.config());
        opened(&*journals, principal, id).await
    }

    /// Returns a stored root run. Returns "not found" for a run of another principal.
    pub async fn stored_run(&self, principal: &Principal, id: SessionId) -> Result<ListedRun, ResumeFailure> {
        match self.opened(principal, id).await? {
            opened if opened.origin.is_none() => {
                Ok(ListedRun::of(id, opened, self.attach_for(principal, id).is_ok()))
            }
            _ => Err(ResumeFailure::Session(SessionError::NotFound { id: id.to_string() })),
        }
    }

    /// Returns the spec of a stored run. Returns "not found" for a run of another principal.
    pub async fn stored_spec(&self, principal: &Principal, id: SessionId) -> Result<RunSpec, ResumeFailure> {
        let opened = self.opened(principal, id).await?;
        let stored = root_spec(&opened)?;
        let missing = |error: StoreError| {
            let problem = format!("{}: {}", stored.sources, error::reason(&error));
            ResumeFailure::Spec(SpecError::Sources { problem })
        };
        let digest = stored.digest().map_err(ResumeFailure::Spec)?;
        let (blobs, tenant) = (&self.shared.stores.blobs, principal.tenant());
        let blob = blobs.get(tenant, &digest).await.map_err(missing)?;
        // Storing the blob again marks it as used, so that its retention time starts now.
        let _ = blobs.put(tenant, &blob).await;
        restored_spec(principal, opened, stored, &blob)
    }

    /// Resumes a stored run with this spec, which may differ from the stored one, and with the caller's [`RunHooks`].
    /// `more` is a further request, as in [`resume`](Self::resume).
    pub async fn resume_with(
        &self,
        id: SessionId,
        spec: RunSpec,
        more: Option<String>,
        secrets: RunSecrets,
        hooks: RunHooks,
    ) -> Result<RunHandle, ResumeFailure> {
        let journals = self.shared.stores.journals(&self.config());
        let stopped = StoppedRun { id, journals, memory: None };
        self.resume_stopped(stopped, spec, more, secrets, hooks).await
    }

    async fn resume_stopped(
        &self,
        stopped: StoppedRun,
        mut spec: RunSpec,
        more: Option<String>,
        secrets: RunSecrets,
        hooks: RunHooks,
    ) -> Result<RunHandle, ResumeFailure> {
        let StoppedRun { id, journals, memory } = stopped;
        opened(&*journals, &spec.principal, id).await?;
        let lacks: Vec<String> = spec.secrets.difference(&secrets.names()).cloned().collect();
        if !lacks.is_empty() {
            let left = LeftSessions::Continued(Takeover::Never);
            let key = RunKey { tenant: spec.principal.tenant().to_owned(), run: id };
            let (log, desk) = self.log_and_desk(key, hooks.sessions, left, None).await;
            let shared = RunShared::new(id, spec.principal, log, desk).lacking(lacks);
            return Ok(RunHandle::new(Arc::new(shared)));
        }
        let place = self.enter_queue(&spec.principal, hooks.queue_entry).map_err(ResumeFailure::Start)?;
        let variables = self.variables(&secrets);
        let (generation, unusable) = self.generation_for(&secrets).await.map_err(ResumeFailure::Start)?;
        trigger_skills(&mut spec, more.as_deref(), &generation, &*variables);
        let functions = functions_of(&spec);
        let (takeover, finished) = (hooks.takeover, hooks.finished);
        self.adopt_caller(id, &hooks);
        let (left, hooks) = (LeftSessions::Continued(takeover), self.with_watchers(hooks));
        let prepared = self.prepare(id, &spec, variables, hooks, left, &generation).await;
        let PreparedRun { agent, context, mut shared, .. } = prepared.map_err(ResumeFailure::Start)?;
        shared.warn(unusable);
        let choice = caller_choice(&agent.runnable().agent, &spec, &context).map_err(ResumeFailure::Start)?;
        if let Some(memory) = memory {
            shared = shared.in_memory(memory);
        }
        let key = RunKey { tenant: spec.principal.tenant().to_owned(), run: id };
        let claimed = journals.claim(&key, takeover).await.map_err(ResumeFailure::Session)?;
        let ClaimedJournal { past, journal, before: _ } = claimed;
        shared.log.claim(journal.epoch()).await;
        for allowed in past.allowed() {
            shared.desk.allow(allowed);
        }
        let resumable = &agent.runnable().agent;
        resumable.environment().keep_partial_outputs(self.partial_outputs(&key).await);
        let functions_of_caller = spec.functions.clone();
        let resumed =
            ResumedSession { past, journal, more, choice, functions: functions_of_caller, finished };
        let run = ActiveRun::resume(Arc::clone(resumable), resumed, context).map_err(ResumeFailure::Run)?;
        Ok(self.launch(run, agent, shared, functions, place))
    }

    /// Returns the partial output of interrupted calls in a run and its sub-agents, if the event log contains it.
    async fn partial_outputs(&self, key: &RunKey) -> PartialOutputs {
        let Some(store) = self.shared.stores.events.as_ref() else { return PartialOutputs::default() };
        let last = store.last(key).await.unwrap_or(0);
        let from = last.saturating_sub(PARTIAL_EVENTS_MAX as u64 - 1).max(1);
        let events = store.read(key, from, PARTIAL_EVENTS_MAX).await.unwrap_or_default();
        PartialOutputs::of(&events)
    }

    /// Returns the handle of a run of the local user that this runtime drives.
    pub fn attach(&self, id: SessionId) -> Result<RunHandle, SessionError> {
        self.attach_for(&Principal::local(), id)
    }

    /// Attaches to a run of this principal. Returns "not found" for runs of other principals.
    pub fn attach_for(&self, principal: &Principal, id: SessionId) -> Result<RunHandle, SessionError> {
        let found = self.runs().get(&id).filter(|run| run.principal.is_subject_of(principal)).map(Arc::clone);
        found.map(RunHandle::new).ok_or_else(|| SessionError::NotFound { id: id.to_string() })
    }

    /// Returns the stored root runs of a principal, newest first.
    pub async fn list(
        &self,
        principal: &Principal,
        page: RunListPage,
    ) -> Result<Vec<ListedRun>, SessionError> {
        self.shared.stores.journals(&self.config()).list(principal, page).await
    }

    /// Replaces the configuration for runs that start after this call. Running runs keep their configuration. Queues
    /// that did not change keep their slots, and shared servers that did not change keep their processes.
    pub async fn reload(&self, config: impl Into<RuntimeConfig>) -> Vec<String> {
        let skills = self.skills();
        self.replace_generation(config.into(), skills).await
    }

    /// Replaces the configuration and the skills for runs that start after this call, like [`reload`](Self::reload).
    pub async fn reload_with_skills(&self, config: impl Into<RuntimeConfig>, skills: Skills) -> Vec<String> {
        self.replace_generation(config.into(), Arc::new(skills)).await
    }

    async fn replace_generation(&self, config: RuntimeConfig, skills: Arc<Skills>) -> Vec<String> {
        let before = self.generation();
        let (next, warnings) = before.next((config, skills), &self.shared.home, &self.shared.variables).await;
        *self.shared.generation.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        before.agents.close().await;
        before.inventories.close().await;
        warnings
    }

    /// Cancels all runs, waits until the processes that they started have ended, and shuts down the tools of the
    /// program.
    pub async fn shut_down(&self) {
        let runs: Vec<RunHandle> = self.runs().values().map(|run| RunHandle::new(Arc::clone(run))).collect();
        for run in &runs {
            run.cancel();
        }
        for run in &runs {
            run.closed().await;
        }
        let generation = self.generation();
        generation.agents.close().await;
        generation.inventories.close().await;
        for provider in &generation.providers {
            provider.shutdown().await;
        }
        self.shared.stores.sync_sessions().await;
        if let Some(accounting) = &self.shared.accounting {
            accounting.flush().await;
        }
    }

    /// Makes the caller's span the parent of the run's spans, if the program exports spans.
    fn adopt_caller(&self, id: SessionId, hooks: &RunHooks) {
        if let (Some(parents), Some(caller)) = (&self.shared.parents, &hooks.trace_parent) {
            parents.adopt(id, caller);
        }
    }

    fn with_watchers(&self, mut hooks: RunHooks) -> RunHooks {
        hooks.watchers.extend(self.shared.accounting.clone().map(|sink| sink as _));
        let of_all_runs = self.shared.watchers.read().unwrap_or_else(PoisonError::into_inner);
        hooks.watchers.extend(of_all_runs.iter().cloned());
        hooks
    }

    fn launch(
        &self,
        run: ActiveRun,
        agent: AgentLease,
        shared: RunShared,
        functions: CallerFunctions,
        mut place: QueuePlace,
    ) -> RunHandle {
        let shared = shared.with_scope(&run.run_request().scope);
        if place.is_admitted() {
            shared.admit();
        }
        if let Some(error) = run.unkept() {
            shared.warn([format!(
                "haft could not create the session of the run, so the run cannot be resumed: {error}"
            )]);
        }
        let shared = Arc::new(shared);
        self.runs().insert(shared.id, Arc::clone(&shared));
        // Box the run: otherwise each future through which the run moves would be as large as the run.
        let (driven, runtime, run) = (Arc::clone(&shared), self.clone(), Box::new(run));
        tokio::spawn(async move {
            // Box this future, because tokio copies the whole task several times, and this part is by far the largest.
            Box::pin(driven.drive(run, functions, place)).await;
            runtime.runs().remove(&driven.id);
            let definitions = DefinitionWatch::new(&runtime.generation().config, &runtime.shared.home)
                .ignoring(agent.runnable().requested_labels())
                .for_principal(&driven.principal);
            let runnable = agent.runnable();
            let mut warnings = runnable.compared.late_warnings(&definitions, runnable.agent.orchestrator());
            warnings.extend(agent.end().await);
            driven.warn(warnings.iter().map(ToString::to_string));
            driven.close();
        });
        self.sweep_when_due();
        RunHandle::new(shared)
    }

    /// Creates the event log and the pending decisions of a run. `chosen` is the run id that the caller chose, if any.
    async fn log_and_desk(
        &self,
        key: RunKey,
        sessions: SessionStorage,
        left: LeftSessions,
        chosen: Option<SessionId>,
    ) -> (EventLog, Arc<PendingDecisions>) {
        let is_stored = sessions == SessionStorage::Stores;
        let log = match (self.shared.stores.events.as_ref().filter(|_| is_stored), left) {
            (None, _) => EventLog::in_memory(),
            // The runtime chose a random run id, so the event store cannot contain events of this run yet.
            (Some(store), LeftSessions::Ignored) if chosen.is_none() => {
                EventLog::stored(key, Arc::clone(store), 1)
            }
            (Some(store), left) => {
                let last = store.last(&key).await.unwrap_or(0);
                match left {
                    LeftSessions::Ignored => EventLog::stored(key, Arc::clone(store), last + 1),
                    // Another process may still write to the log until this process has claimed the journal of the run.
                    LeftSessions::Continued(_) => EventLog::unclaimed(key, Arc::clone(store), last + 1),
                }
            }
        };
        let desk = PendingDecisions::new(log.clone());
        (log, desk)
    }

    /// Returns the store of the journals; `None` for runs without sessions.
    fn journals(&self, sessions: SessionStorage, config: &ResolvedConfig) -> Option<Arc<dyn JournalStore>> {
        match sessions {
            SessionStorage::Stores => Some(self.shared.stores.journals(config)),
            SessionStorage::Memory => Some(Arc::new(self.shared.memory_journals.clone())),
            SessionStorage::None => None,
        }
    }

    /// Opens the output store of a run. Outputs are stored under the session, so that a resumed run can still read
    /// them.
    fn outputs(
        &self,
        key: &RunKey,
        config: &ResolvedConfig,
        storage: OutputStorage,
    ) -> Result<Option<Arc<dyn OutputStore>>, StartError> {
        if !config.tool_output.enabled {
            return Ok(None);
        }
        let limits = &config.tool_output.limits;
        let store = match storage {
            OutputStorage::Stores => self.shared.stores.outputs.open(key, limits),
            OutputStorage::Memory => {
                let total_bytes_max = limits.total_bytes_max.min(MEMORY_OUTPUT_BYTES_MAX);
                MemoryOutputs::default().open(key, &StoreLimits { total_bytes_max, ..limits.clone() })
            }
        };
        store.map(Some).map_err(StartError::Outputs)
    }

    /// Looks up a variable in the secrets of the run first, then in the environment of the process.
    fn variables(&self, secrets: &RunSecrets) -> Variables {
        let (secrets, process) = (secrets.clone(), Arc::clone(&self.shared.variables));
        Arc::new(move |name: &str| {
            let secret = secrets.get(name).map(|secret| secret.expose_secret().to_owned());
            secret.or_else(|| process(name))
        })
    }

    /// Removes old blobs, keys, event logs and cached outputs in the background, without delaying a run.
    fn sweep_when_due(&self) {
        if !sweep::is_due(&self.shared.home.data(), SWEEP_INTERVAL) {
            return;
        }
        let (shared, config) = (Arc::clone(&self.shared), self.config());
        tokio::task::spawn_blocking(move || shared.stores.sweep(&config));
    }

    /// Returns the generation for a run that starts now, and warnings about tools that cannot be used with its secrets.
    /// A run without secrets shares the generation of the runtime.
    async fn generation_for(
        &self,
        secrets: &RunSecrets,
    ) -> Result<(Arc<ConfigGeneration>, Vec<String>), StartError> {
        let shared = self.generation();
        if secrets.is_empty() {
            return Ok((shared, Vec::new()));
        }
        let variables = self.variables(secrets);
        let own = shared.for_run(&self.shared.home, &variables).await.map_err(StartError::Config)?;
        Ok(own.map_or((shared, Vec::new()), |(own, warnings)| (Arc::new(own), warnings)))
    }

    fn generation(&self) -> Arc<ConfigGeneration> {
        Arc::clone(&self.shared.generation.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<RunShared>>> {
        self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stored run that is not driven now, and the store of its journals.
struct StoppedRun {
    id: SessionId,
    journals: Arc<dyn JournalStore>,
    /// The session of the run, if the session is only in memory.
    memory: Option<MemorySession>,
}

/// Returns the first line of a run's journal. Returns "not found" for a run of another principal.
async fn opened(
    journals: &dyn JournalStore,
    principal: &Principal,
    id: SessionId,
) -> Result<SessionStart, ResumeFailure> {
    let key = RunKey { tenant: principal.tenant().to_owned(), run: id };
    let opened = journals::opened(journals, &key).await.map_err(ResumeFailure::Session)?;
    if opened.belongs_to(principal) {
        Ok(opened)
    } else {
        Err(ResumeFailure::Session(SessionError::NotFound { id: id.to_string() }))
    }
}

/// Returns the stored spec of a root run.
fn root_spec(opened: &SessionStart) -> Result<StoredSpec, ResumeFailure> {
    if let Some(origin) = &opened.origin {
        return Err(ResumeFailure::WorksForAnother { origin: origin.clone() });
    }
    if opened.spec.is_null() {
        return Err(ResumeFailure::NoSpec);
    }
    StoredSpec::read(&opened.spec).map_err(ResumeFailure::Spec)
}

/// Joins a stored spec with the blob of its agents and skills.
fn restored_spec(
    principal: &Principal,
    opened: SessionStart,
    stored: StoredSpec,
    blob: &[u8],
) -> Result<RunSpec, ResumeFailure> {
    let mut spec = stored.into_spec(blob).map_err(ResumeFailure::Spec)?;
    spec.principal = principal.clone();
    // Use the model that was chosen when the run began, so that a resumed run does not change its model.
    if let (ModelChoice::Routed, Some(model), true) =
        (spec.model_choice, opened.model, spec.changes.models.is_empty())
    {
        spec.model_choice = ModelChoice::Named;
        spec.changes.models = vec![model];
    }
    Ok(spec)
}

/// Adds the skills that the requests trigger to the skills that the run already has.
fn trigger_skills(
    spec: &mut RunSpec,
    more: Option<&str>,
    generation: &ConfigGeneration,
    variables: VariableSource<'_>,
) {
    let asked = [Some(spec.request.as_str()), more].into_iter().flatten().collect::<Vec<_>>().join("\n");
    for skill in generation.skills.matching(&asked, variables) {
        if spec.skills.iter().all(|known| known.file != skill.path) {
            spec.skills.push(SkillSource { file: skill.path.clone(), text: skill.text.clone() });
        }
    }
}

/// Returns an error if the agent names tools that do not exist and `unknown` is `Refused`.
fn check_names(agent: &PreparedAgent, unknown: UnknownTools) -> Result<(), StartError> {
    match unknown {
        UnknownTools::Warned => Ok(()),
        UnknownTools::Refused => {
            let mut names = agent.unresolved_names();
            names.retain(|name| !name.starts_with(MCP_ITEM_PREFIX));
            if names.is_empty() { Ok(()) } else { Err(StartError::UnknownTools { names }) }
        }
    }
}

/// Returns the caller's tool choice with the names that the model sees.
fn caller_choice(
    agent: &PreparedAgent,
    spec: &RunSpec,
    run: &RunContext,
) -> Result<CallerChoice, StartError> {
    let unmet = |problem| StartError::ToolChoice { agent: agent.agent().name.clone(), problem };
    agent.caller_choice(spec, run).map_err(unmet)
}

fn functions_of(spec: &RunSpec) -> CallerFunctions {
    if spec.functions.is_empty() { CallerFunctions::None } else { CallerFunctions::OfCaller }
}

impl From<ModelsError> for StartError {
    fn from(error: ModelsError) -> Self {
        Self::Models(error)
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("home", &self.shared.home).finish_non_exhaustive()
    }
}
