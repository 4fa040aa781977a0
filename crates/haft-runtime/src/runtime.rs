//! `Runtime`: one per process, shared by all runs. It starts, resumes, finds and lists them.
//!
//! A run gets everything from its [`RunSpec`]. The state of a single run (principal, approver, outputs, events) is
//! created here and reaches the engine as its [`RunContext`].

mod builder;
mod error;
mod generation;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use haft_core::event::{Event, EventSink, Watchers};
use haft_core::event_store::RunKey;
use haft_core::home::Home;
use haft_core::place::{Place, SessionId};
use haft_core::principal::Principal;
use haft_core::run::context::RunContext;
use haft_core::run::event::Bill;
use haft_store::outputs::FileStore;
use haft_store::sessions::SessionError;
use haft_tools::mcp::{Elicitation, SharedServers, TraceParents, TraceSink};
use secrecy::ExposeSecret;

use crate::desk::Desk;
use crate::event_log::EventLog;
use crate::handle::{Functions, RunHandle, RunShared};
use crate::models::ModelsError;
use crate::runs::{
    ActiveRun, AvailableSkills, LeftSessions, PreparedAgent, ResumedSession, RunEnvironment, RunRequest,
    Variables, model_names, route,
};
use crate::sampling::ModelSampler;
use crate::spec::{ModelChoice, RunSecrets, RunSpec, SkillSource, SpecError, StoredSpec};
use crate::wiring::{self, McpFace, ToolSettings};
use haft_config::Resolved;
use haft_config::agents::graph::AgentGraph;
use haft_config::resolved::ModelName;
use haft_config::skills::{self, Skill};

pub use builder::{Answers, NoHome, RunHooks, RuntimeBuilder, Stores};
pub use error::{ResumeFailure, StartError};
use generation::Generation;

/// Runs agents. Clones share everything.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<RuntimeShared>,
}

struct RuntimeShared {
    home: Home,
    stores: Stores,
    generation: RwLock<Arc<Generation>>,
    variables: Variables,
    servers: Arc<SharedServers>,
    trace: Option<Arc<dyn TraceSink>>,
    parents: Option<Arc<dyn TraceParents>>,
    swept: AtomicBool,
    /// The runs that are driven now.
    runs: Mutex<HashMap<SessionId, Arc<RunShared>>>,
}

/// A run that is ready to be driven.
struct Prepared {
    agent: Arc<PreparedAgent>,
    context: Arc<RunContext>,
    shared: RunShared,
    routing: Vec<Event>,
}

/// A page of the runs of one principal, the newest first.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    pub skip: usize,
    pub count: usize,
}

/// One stored run, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRun {
    pub id: SessionId,
    /// The beginning of the request.
    pub title: String,
    pub agent: String,
    pub started_ms: u64,
    pub is_running: bool,
}

impl Runtime {
    /// Creates a builder over a resolved configuration.
    pub fn builder(config: Resolved) -> RuntimeBuilder {
        RuntimeBuilder::new(config)
    }

    fn new(shared: RuntimeShared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    pub fn home(&self) -> &Home {
        &self.shared.home
    }

    pub fn config(&self) -> Arc<Resolved> {
        Arc::clone(&self.generation().config)
    }

    /// Starts a run whose approvals, questions and functions the caller handles through the [`RunHandle`].
    pub async fn start(&self, spec: RunSpec, secrets: RunSecrets) -> Result<RunHandle, StartError> {
        self.start_with(spec, secrets, RunHooks::default()).await
    }

    /// Starts a run with the caller's own interfaces.
    pub async fn start_with(
        &self,
        mut spec: RunSpec,
        secrets: RunSecrets,
        hooks: RunHooks,
    ) -> Result<RunHandle, StartError> {
        let id = hooks.session.unwrap_or_else(|| SessionId(uuid::Uuid::new_v4().as_u128()));
        if let Some(key) = &spec.idempotency_key {
            let first = self.shared.stores.keys.bind(&spec.principal, key, id).map_err(StartError::Store)?;
            if first != id {
                return self.attach(first).map_err(|_| StartError::AlreadyStarted { run: first });
            }
        }
        let principal_and_key = spec.idempotency_key.clone().map(|key| (spec.principal.clone(), key));
        let generation = self.generation();
        spec.generation = generation.number;
        spec.secrets = secrets.names();
        let started = self.begin(id, spec, &secrets, hooks, &generation).await;
        if let (Err(_), Some((principal, key))) = (&started, principal_and_key) {
            self.shared.stores.keys.release(&principal, &key);
        }
        started
    }

    async fn begin(
        &self,
        id: SessionId,
        mut spec: RunSpec,
        secrets: &RunSecrets,
        hooks: RunHooks,
        generation: &Arc<Generation>,
    ) -> Result<RunHandle, StartError> {
        let variables = self.variables(secrets);
        let active = generation.skills.matching(&spec.request, &*variables);
        spec.skills = active
            .iter()
            .map(|skill| SkillSource { file: skill.path.clone(), text: skill.text.clone() })
            .collect();
        let functions = functions_of(&spec);
        let prepared = self.prepare(id, &spec, variables, hooks, LeftSessions::Ignored, generation).await?;
        let Prepared { agent, context, shared, routing } = prepared;
        let (stored, blob) = StoredSpec::of(&spec);
        if self.shared.stores.sessions(&self.config()).is_some() {
            self.shared.stores.blobs.put(&blob).map_err(StartError::Store)?;
        }
        let spent = Bill::of(&routing);
        let request = RunRequest {
            before: routing,
            spec: serde_json::to_value(&stored).unwrap_or_default(),
            tool_choice: spec.tool_choice.clone(),
            functions: spec.functions.clone(),
            ..RunRequest::first(&agent, spec.request.clone(), Place::first(id), context, spent)
        };
        let run = ActiveRun::begin(agent, request).map_err(StartError::Run)?;
        Ok(self.launch(run, shared, functions))
    }

    /// Continues a stored run: with its unfinished work, or with a further request in the same conversation.
    pub async fn resume(
        &self,
        id: SessionId,
        more: Option<String>,
        secrets: RunSecrets,
    ) -> Result<RunHandle, ResumeFailure> {
        let spec = self.stored_spec(id)?;
        self.resume_with(id, spec, more, secrets, RunHooks::default()).await
    }

    /// Returns the spec of a stored run.
    pub fn stored_spec(&self, id: SessionId) -> Result<RunSpec, ResumeFailure> {
        let sessions = self.shared.stores.all_sessions();
        let opened = sessions.opened(id).map_err(ResumeFailure::Session)?;
        if let Some(origin) = opened.origin {
            return Err(ResumeFailure::WorksForAnother { origin });
        }
        if opened.spec.is_null() {
            return Err(ResumeFailure::NoSpec);
        }
        let stored = StoredSpec::read(&opened.spec).map_err(ResumeFailure::Spec)?;
        let missing = |error: std::io::Error| {
            ResumeFailure::Spec(SpecError::Sources { problem: format!("{}: {error}", stored.sources) })
        };
        let digest = stored.digest().map_err(ResumeFailure::Spec)?;
        let blob = self.shared.stores.blobs.get(&digest).map_err(missing)?;
        let mut spec = stored.into_spec(&blob).map_err(ResumeFailure::Spec)?;
        // The run chose its model when it started; a resumed run keeps that model.
        if let (ModelChoice::Routed, Some(model), true) =
            (spec.model_choice, opened.model, spec.changes.models.is_empty())
        {
            spec.model_choice = ModelChoice::Named;
            spec.changes.models = vec![model];
        }
        Ok(spec)
    }

    /// Continues a stored run with a spec that the caller may have changed, and with the caller's own interfaces.
    pub async fn resume_with(
        &self,
        id: SessionId,
        spec: RunSpec,
        more: Option<String>,
        secrets: RunSecrets,
        hooks: RunHooks,
    ) -> Result<RunHandle, ResumeFailure> {
        let generation = self.generation();
        let lacks: Vec<String> = spec.secrets.difference(&secrets.names()).cloned().collect();
        if !lacks.is_empty() {
            let (log, desk) = self.log_and_desk(id, &spec.principal, true).await;
            let shared = RunShared::new(id, spec.principal, log, desk).lacking(lacks);
            return Ok(RunHandle::new(Arc::new(shared)));
        }
        let variables = self.variables(&secrets);
        let functions = functions_of(&spec);
        let prepared = self.prepare(id, &spec, variables, hooks, LeftSessions::Continued, &generation).await;
        let Prepared { agent, context, shared, .. } = prepared.map_err(ResumeFailure::Start)?;
        let sessions = self.shared.stores.sessions_of(&generation.config);
        let (past, journal) = sessions.resume(id).map_err(ResumeFailure::Session)?;
        for allowed in past.allowed() {
            shared.desk.allow(allowed);
        }
        let resumed = ResumedSession { past, journal, more, functions: spec.functions.clone() };
        let run = ActiveRun::resume(agent, resumed, context).map_err(ResumeFailure::Run)?;
        Ok(self.launch(run, shared, functions))
    }

    /// Returns the handle of a run that this runtime drives.
    pub fn attach(&self, id: SessionId) -> Result<RunHandle, SessionError> {
        let found = self.runs().get(&id).map(Arc::clone);
        found.map(RunHandle::new).ok_or_else(|| SessionError::NotFound { id: id.to_string() })
    }

    /// Returns the stored root runs of a principal, the newest first.
    pub fn list(&self, principal: &Principal, page: Page) -> Result<Vec<ListedRun>, SessionError> {
        let sessions = self.shared.stores.all_sessions();
        let opened = |id: SessionId| sessions.opened(id).ok().map(|opened| (id, opened));
        let roots = sessions.ids()?.into_iter().filter_map(opened);
        let mine = roots.filter(|(_, opened)| opened.origin.is_none() && opened.belongs_to(principal));
        let listed = mine.skip(page.skip).take(page.count).map(|(id, opened)| ListedRun {
            id,
            title: opened.title,
            agent: opened.agent,
            started_ms: opened.at_ms,
            is_running: sessions.is_busy(id),
        });
        Ok(listed.collect())
    }

    /// Replaces the configuration for runs that start from now on. Active runs keep theirs; queues that did not change
    /// keep their slots, and shared servers that did not change keep their processes.
    pub async fn reload(&self, config: Resolved) -> Vec<String> {
        let before = self.generation();
        let (next, warnings) = before.next(config, &self.shared.home, &self.shared.variables).await;
        *self.shared.generation.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        warnings
    }

    /// Builds everything that a run needs before its first step.
    async fn prepare(
        &self,
        id: SessionId,
        spec: &RunSpec,
        variables: Variables,
        hooks: RunHooks,
        left: LeftSessions,
        generation: &Arc<Generation>,
    ) -> Result<Prepared, StartError> {
        let mut graph = spec.graph(&*variables).map_err(StartError::Agent)?;
        if left == LeftSessions::Ignored {
            crate::runs::check_input(&graph.first().agent, &spec.request)?;
        }
        let policy = spec.workspace.policy(&self.shared.home).map_err(StartError::Policy)?;
        let (config, skills) = with_skills(generation, spec, &*variables);
        let usual = model_names(&graph.first().agent, &config).map_err(StartError::Models)?;
        let sampler = ModelSampler::new(&config, &policy, Arc::clone(&variables), usual.into_iter().next());
        let kept = hooks.keeps_session && generation.config.sessions.enabled;
        let (log, desk) = self.log_and_desk(id, &spec.principal, kept).await;
        let outputs = self.outputs(id, &config)?;
        let context = Arc::new(RunContext {
            principal: spec.principal.clone(),
            workspace: policy.workspace().to_string_lossy().into(),
            approver: hooks.approvals.or(Arc::clone(&desk) as _),
            grants: self.shared.stores.grants(&spec.principal),
            outputs,
            elicitor: hooks.elicitations.or(Arc::clone(&desk) as _),
            sampler: Some(Arc::new(sampler)),
            events: hooks.sink(&log),
        });
        let (environment, unusable) =
            self.environment(spec, config, policy, (skills, variables), generation, &hooks);
        if let Some(sessions) =
            self.shared.stores.sessions(&generation.config).filter(|_| hooks.keeps_session)
        {
            environment.keep_sessions(sessions, left);
        }
        let (routing, route_warning) = match spec.model_choice {
            ModelChoice::Named => (Vec::new(), None),
            ModelChoice::Routed => self.route(&environment, &mut graph, spec, id, &context).await?,
        };
        let agent = environment.prepare(&graph).map_err(StartError::Models)?;
        let shared = RunShared::new(id, spec.principal.clone(), log, desk);
        let mut warnings = unusable;
        warnings.extend(route_warning);
        warnings.extend(wiring::warm_up(agent.orchestrator()).await.iter().map(ToString::to_string));
        warnings.extend(agent.reachable_agents().iter().flat_map(|agent| agent.missing_tools()));
        shared.warn(warnings);
        Ok(Prepared { agent, context, shared, routing })
    }

    fn environment(
        &self,
        spec: &RunSpec,
        config: Resolved,
        policy: haft_sandbox::Policy,
        (skills, variables): (AvailableSkills, Variables),
        generation: &Generation,
        hooks: &RunHooks,
    ) -> (Arc<RunEnvironment>, Vec<String>) {
        let face = McpFace {
            elicitation: match hooks.elicitations {
                Answers::ThroughHandle | Answers::By(_) => Elicitation::Offered,
                Answers::Denied => Elicitation::NotOffered,
            },
            principal: spec.principal.clone(),
            trace: self.shared.trace.clone(),
            parents: self.shared.parents.clone(),
            shared: Arc::clone(&self.shared.servers),
        };
        let servers = wiring::mcp_servers(&config, &policy, &face);
        let unusable =
            |(name, reason): &(String, String)| format!("MCP server `{name}` cannot be used: {reason}");
        let warnings = servers.unusable.iter().map(unusable).collect();
        let settings = ToolSettings { policy, timeout: None, config };
        let providers = [servers.providers(), generation.providers.clone()].concat();
        let environment = RunEnvironment::sharing(settings, providers, variables, skills, &generation.engine);
        if let Some((tape, recorder)) = &hooks.recorder {
            environment.record_on(Arc::clone(tape), Arc::clone(recorder));
        }
        if let Some(models) = hooks.models.as_ref().or(generation.models.as_ref()) {
            environment.ask_instead(Arc::clone(models));
        }
        (environment, warnings)
    }

    /// Lets the fast model choose between two models, unless a model is named. If the fast model fails, the run starts
    /// all the same.
    async fn route(
        &self,
        environment: &Arc<RunEnvironment>,
        graph: &mut AgentGraph,
        spec: &RunSpec,
        id: SessionId,
        context: &RunContext,
    ) -> Result<(Vec<Event>, Option<String>), StartError> {
        let choices = route::choices(&environment.config().models);
        let Some(choices) = choices.filter(|_| graph.first().agent.models.is_empty()) else {
            return Ok((Vec::new(), None));
        };
        let complex: ModelName = choices.1.clone();
        let fast = environment.models(std::slice::from_ref(&choices.0)).map_err(StartError::Models)?;
        let seen = Arc::new(Seen::default());
        let watchers = Watchers(vec![Arc::clone(&seen) as _, Arc::clone(&context.events)]);
        let chosen = route::choose(&*fast, choices, &spec.request, id, Arc::new(watchers)).await;
        let (chosen, warning) = match chosen {
            Ok(chosen) => (chosen, None),
            Err(error) => {
                let warning = format!("the fast model cannot choose: {error}; `{complex}` is asked");
                (complex, Some(warning))
            }
        };
        graph.ask_model(chosen.to_string());
        Ok((seen.take(), warning))
    }

    fn launch(&self, run: ActiveRun, shared: RunShared, functions: Functions) -> RunHandle {
        let shared = shared.with_meter(&run.task().scope.meter);
        if let Some(error) = run.unkept() {
            shared.warn([format!("the run cannot be resumed: {error}")]);
        }
        let shared = Arc::new(shared);
        self.runs().insert(shared.id, Arc::clone(&shared));
        let (driven, runtime) = (Arc::clone(&shared), self.clone());
        tokio::spawn(async move {
            let agent = Arc::clone(run.worker());
            driven.drive(run, functions).await;
            runtime.runs().remove(&driven.id);
            if let Err(error) = runtime.shared.stores.keep_grants(&driven.principal) {
                driven.warn([format!("the approval could not be stored: {error}")]);
            }
            let warnings = wiring::shut_down(agent.orchestrator()).await;
            driven.warn(warnings.iter().map(ToString::to_string));
            driven.close();
        });
        self.sweep_once();
        RunHandle::new(shared)
    }

    async fn log_and_desk(&self, id: SessionId, principal: &Principal, kept: bool) -> (EventLog, Arc<Desk>) {
        let log = match self.shared.stores.events.as_ref().filter(|_| kept) {
            Some(store) => {
                let key = RunKey { tenant: principal.tenant().to_owned(), run: id };
                let last = store.last(&key).await.unwrap_or(0);
                EventLog::stored(key, Arc::clone(store), last + 1)
            }
            None => EventLog::in_memory(),
        };
        let desk = Desk::new(log.clone());
        (log, desk)
    }

    /// Opens the output store of the session, so that a resumed run can still read its outputs.
    fn outputs(
        &self,
        id: SessionId,
        config: &Resolved,
    ) -> Result<Option<Arc<dyn haft_core::store::OutputStore>>, StartError> {
        if !config.tool_output.enabled {
            return Ok(None);
        }
        let root = self.shared.home.data().join("outputs");
        let store = FileStore::of_session(&root, id, config.tool_output.limits.clone());
        store.map(|store| Some(Arc::new(store) as _)).map_err(StartError::Outputs)
    }

    /// Returns a lookup that tries the secrets of the run first, then the variables of the process.
    fn variables(&self, secrets: &RunSecrets) -> Variables {
        let (secrets, process) = (secrets.clone(), Arc::clone(&self.shared.variables));
        Arc::new(move |name: &str| {
            let secret = secrets.get(name).map(|secret| secret.expose_secret().to_owned());
            secret.or_else(|| process(name))
        })
    }

    /// Removes old blobs and event logs in the background, once per process and without delaying a run.
    fn sweep_once(&self) {
        if self.shared.swept.swap(true, Ordering::Relaxed) {
            return;
        }
        let (shared, keep) = (Arc::clone(&self.shared), self.config().sessions.limits.keep);
        tokio::task::spawn_blocking(move || shared.stores.sweep(keep));
    }

    fn generation(&self) -> Arc<Generation> {
        Arc::clone(&self.shared.generation.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<RunShared>>> {
        self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the configuration with the servers of the run's skills, and the skills for the system text.
fn with_skills(
    generation: &Generation,
    spec: &RunSpec,
    variables: &dyn Fn(&str) -> Option<String>,
) -> (Resolved, AvailableSkills) {
    let mut config = Resolved::clone(&generation.config);
    let read = |source: &SkillSource| Skill::read(&source.file, &source.text, variables).ok();
    let active: Vec<Skill> = spec.skills.iter().filter_map(read).collect();
    skills::add_servers(&mut config, &active);
    let available = AvailableSkills::of(&generation.skills, &active, variables);
    (config, available)
}

fn functions_of(spec: &RunSpec) -> Functions {
    if spec.functions.is_empty() { Functions::None } else { Functions::OfCaller }
}

/// Collects events.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<Event>>);

impl Seen {
    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl EventSink for Seen {
    fn emit(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
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
