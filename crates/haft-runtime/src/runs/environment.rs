//! The state that all runs of one process share: configuration, tools and model providers.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use haft_core::event_store::RunKey;
use haft_core::model_provider::ModelProvider;
use haft_core::position::SessionId;
use haft_core::provider::ToolProvider;
use haft_core::run::AgentRun;
use haft_core::tool::CallId;
use haft_engine::RunObserver;
use haft_models::cassette::{Recorder, Tape};
use haft_sandbox::SandboxPolicy;

use super::active_run::RunRequest;
use super::available_skills::AvailableSkills;
use super::partial_output::PartialOutputs;
use super::prepared_agent::{self, LinkedAgents, PreparedAgent};
use crate::models::{ModelProviders, ModelsError};
use crate::recordings::RunRecorder;
use crate::wiring::{EngineState, OrchestratorParts};
use haft_config::ResolvedConfig;
use haft_config::agents::AgentDefinition;
use haft_config::agents::graph::AgentGraph;
use haft_config::project_instructions::InstructionFile;
use haft_config::resolved::ModelName;
use haft_store::journals::{ClaimedJournal, JournalStore, Takeover};
use haft_store::sessions::line::SessionStart;
use haft_store::sessions::{SessionError, SessionHistory, SessionJournal};

/// Looks up the variables that hold the addresses and API keys of model providers.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Prepares agents. All agents of an environment share MCP servers, queues, cache, store and connections to models.
pub struct RunEnvironment {
    pub(super) parts: OrchestratorParts,
    variables: Variables,
    providers: ModelProviders,
    session_keeping: OnceLock<SessionKeeping>,
    recorder: OnceLock<(Arc<Tape>, Arc<RunRecorder>)>,
    /// The model provider that replaces the configured providers.
    models: OnceLock<Arc<dyn ModelProvider>>,
    skills: AvailableSkills,
    /// The instruction files of the project, for every agent.
    instructions: OnceLock<Vec<InstructionFile>>,
    /// The output of the calls that were interrupted when an earlier process ended, including calls of sub-agents.
    partial_outputs: OnceLock<PartialOutputs>,
}

/// The journal store, and the handling of sessions that an earlier process left unfinished.
struct SessionKeeping {
    journals: Arc<dyn JournalStore>,
    left_sessions: LeftSessions,
}

/// Selects whether sessions that an earlier process left unfinished are continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftSessions {
    /// A sub-agent always starts a new session.
    Ignored,
    /// This process resumes a run, so the unfinished sessions of its sub-agents continue too.
    Continued(Takeover),
}

/// The session that stores the journal of a run: a new session, or an unfinished one.
pub(super) enum RunSession {
    New,
    /// A session that another process began and did not finish.
    Left {
        past: Box<SessionHistory>,
        journal: SessionJournal,
    },
}

impl RunEnvironment {
    /// Builds an environment that shares queues, cache and connections to models with other environments.
    pub fn sharing(
        (policy, config): (SandboxPolicy, Arc<ResolvedConfig>),
        others: Vec<Arc<dyn ToolProvider>>,
        variables: Variables,
        skills: AvailableSkills,
        engine: &EngineState,
    ) -> Arc<Self> {
        Arc::new(Self {
            parts: OrchestratorParts::sharing(policy, config, others, engine),
            variables,
            providers: ModelProviders::sharing(engine.clients().clone(), engine.circuits().clone()),
            session_keeping: OnceLock::new(),
            recorder: OnceLock::new(),
            models: OnceLock::new(),
            skills,
            instructions: OnceLock::new(),
            partial_outputs: OnceLock::new(),
        })
    }

    /// Adds the instruction files of the project to the system text of every agent. Call this method before `prepare`.
    pub fn instruct(&self, files: Vec<InstructionFile>) {
        self.instructions.get_or_init(|| files);
    }

    pub(super) fn instructions(&self) -> &[InstructionFile] {
        self.instructions.get().map(Vec::as_slice).unwrap_or_default()
    }

    /// Passes the output of interrupted calls to the models of the resumed sessions. Call this method before the
    /// sessions are resumed.
    pub fn keep_partial_outputs(&self, outputs: PartialOutputs) {
        self.partial_outputs.get_or_init(|| outputs);
    }

    pub(super) fn partial_output(&self, session: SessionId, call: &CallId) -> Option<&str> {
        self.partial_outputs.get()?.of_call(session, call)
    }

    pub(super) fn skills(&self) -> &AvailableSkills {
        &self.skills
    }

    /// Returns the configuration that all runs of this environment use.
    pub fn config(&self) -> &Arc<ResolvedConfig> {
        self.parts.config()
    }

    /// Returns the sandbox policy of all processes that tools start.
    pub(crate) fn policy(&self) -> &SandboxPolicy {
        self.parts.policy()
    }

    pub(crate) fn variables(&self) -> &Variables {
        &self.variables
    }

    /// Makes all later runs of this environment store their sessions.
    pub fn keep_sessions(&self, journals: Arc<dyn JournalStore>, left_sessions: LeftSessions) {
        self.session_keeping.get_or_init(|| SessionKeeping { journals, left_sessions });
    }

    /// Finds the session for a run. The session id of a sub-agent is derived from the session of the run that calls it,
    /// so a resumed run finds the unfinished sessions of its sub-agents again. If a session with that id has a
    /// different request or agent, the run gets a random id.
    pub(super) async fn session_for(
        &self,
        run_request: &mut RunRequest,
        agent: &AgentDefinition,
    ) -> RunSession {
        let Some(SessionKeeping { journals, left_sessions }) = self.session_keeping.get() else {
            return RunSession::New;
        };
        let key = key_of(run_request);
        if let Err(SessionError::NotFound { .. }) = journals.read(&key, 0, 1).await {
            return RunSession::New;
        }
        let left = match left_sessions {
            LeftSessions::Continued(takeover) => journals.claim(&key, *takeover).await.ok(),
            LeftSessions::Ignored => None,
        };
        match left {
            Some(ClaimedJournal { past, journal, .. })
                if past.opened.is_for(&run_request.request, &agent.name) =>
            {
                RunSession::Left { past: Box::new(past), journal }
            }
            _ => {
                run_request.place.session = SessionId(uuid::Uuid::new_v4().as_u128());
                RunSession::New
            }
        }
    }

    /// Opens the journal of a new session; returns `None` if sessions are not stored.
    pub(super) async fn open_session(
        &self,
        run_request: &RunRequest,
        prepared_agent: &PreparedAgent,
        run: &AgentRun,
    ) -> Option<Result<SessionJournal, SessionError>> {
        let SessionKeeping { journals, .. } = self.session_keeping.get()?;
        Some(journals.create(&key_of(run_request), opened(run_request, prepared_agent, run)).await)
    }

    /// Prepares every agent of a graph, and returns the one that receives the request. An agent that names no model
    /// uses the models of that first agent.
    pub fn prepare(self: &Arc<Self>, graph: &AgentGraph) -> Result<Arc<PreparedAgent>, ModelsError> {
        let names = prepared_agent::model_names(&graph.first().agent, self.config())?;
        // Check only configured models, because a model provider of the embedding program may report its cost itself.
        if self.models.get().is_none() {
            crate::pricing::check_prices(graph, self.config())?;
        }
        let models = names.iter().map(ToString::to_string).collect();
        let first = graph.first_file().to_owned();
        GraphPreparation { environment: self, graph, models, done: HashMap::new() }.prepared_agent(&first)
    }

    /// Records the models, tools and clocks of all later runs. Call this method before `prepare`.
    pub fn record_on(&self, tape: Arc<Tape>, recorder: Arc<RunRecorder>) {
        self.recorder.get_or_init(|| (tape, recorder));
    }

    /// Uses this provider instead of the configured models. Call this method before `prepare`, which binds agents to
    /// models.
    pub fn replace_models(&self, models: Arc<dyn ModelProvider>) {
        self.models.get_or_init(|| models);
    }

    /// Returns the observer that records runs, if there is one.
    pub(super) fn observer(&self) -> Option<Arc<dyn RunObserver>> {
        self.recorder().map(|recorder| Arc::clone(recorder) as _)
    }

    pub(super) fn recorder(&self) -> Option<&Arc<RunRecorder>> {
        self.recorder.get().map(|(_, recorder)| recorder)
    }

    /// Returns the provider of the first model, with the other models as fallbacks.
    pub fn models(&self, names: &[ModelName]) -> Result<Box<dyn ModelProvider>, ModelsError> {
        let Self { parts, providers, variables, .. } = self;
        let models: Box<dyn ModelProvider> = match self.models.get() {
            Some(models) => Box::new(Arc::clone(models)),
            None => providers.chain(Some(parts.policy()), self.config(), names, &**variables)?,
        };
        Ok(match self.recorder.get() {
            Some((tape, _)) => Box::new(Recorder::new(models, Arc::clone(tape))),
            None => models,
        })
    }
}

fn key_of(run_request: &RunRequest) -> RunKey {
    RunKey { tenant: run_request.context.principal.tenant().to_owned(), run: run_request.place.session }
}

/// Returns the first line of a run's journal.
pub(super) fn opened(
    run_request: &RunRequest,
    prepared_agent: &PreparedAgent,
    run: &AgentRun,
) -> SessionStart {
    let id = run_request.place.session;
    let mut opened = SessionStart::new(id, &run_request.request, run_request.spec.clone(), run.snapshot());
    let principal = &run_request.context.principal;
    opened.principal = Some((principal.tenant().to_owned(), principal.subject().to_owned()));
    opened.agent.clone_from(&prepared_agent.agent().name);
    opened.model = Some(prepared_agent.model().to_string());
    let works_for_another = run_request.place.origin != id;
    opened.origin = works_for_another.then(|| run_request.place.origin.to_string());
    opened
}

/// Prepares the agents of a graph, sub-agents first. A graph has no cycles, so the recursion ends.
struct GraphPreparation<'a> {
    environment: &'a Arc<RunEnvironment>,
    graph: &'a AgentGraph,
    models: Vec<String>,
    done: HashMap<PathBuf, Arc<PreparedAgent>>,
}

impl GraphPreparation<'_> {
    fn prepared_agent(&mut self, file: &Path) -> Result<Arc<PreparedAgent>, ModelsError> {
        if let Some(done) = self.done.get(file) {
            return Ok(Arc::clone(done));
        }
        let node = self.graph.node(file).ok_or(ModelsError::NoModel)?;
        let links = LinkedAgents {
            below: self.all(&node.agents)?,
            destinations: self.all(&node.destinations)?,
            handoff: node.handoff.as_ref().map(|file| self.prepared_agent(file)).transpose()?,
        };
        let mut agent = node.agent.clone();
        if agent.models.is_empty() {
            agent.models.clone_from(&self.models);
        }
        let prepared_agent = PreparedAgent::new(self.environment, agent, links)?;
        self.done.insert(file.to_owned(), Arc::clone(&prepared_agent));
        Ok(prepared_agent)
    }

    fn all(&mut self, files: &[PathBuf]) -> Result<Vec<Arc<PreparedAgent>>, ModelsError> {
        files.iter().map(|file| self.prepared_agent(file)).collect()
    }
}

impl fmt::Debug for RunEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunEnvironment").field("parts", &self.parts).finish_non_exhaustive()
    }
}
