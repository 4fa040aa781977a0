//! Agents that equal runs share: preparing one reads files, compiles schemas and may start servers.
//!
//! Runs share an agent only if everything that it was prepared from is equal: texts, workspace, principal and the
//! generation of the configuration. Approvals, outputs, events and budgets belong to the context of each run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haft_config::agents::graph::AgentGraphSource;
use haft_config::project_instructions::InstructionFile;
use haft_core::principal::Principal;
use haft_engine::CatalogWarning;
use haft_tools::mcp::{ElicitationSupport, McpProvider};

use crate::runs::PreparedAgent;
use crate::sampling::ModelSampler;
use crate::spec::{AgentChanges, RunSpec, SkillSource, WorkspaceSpec};
use crate::wiring;

/// The longest time that new runs join an agent. A later one prepares it again, and so sees secrets, credentials and
/// links that appeared in the meantime.
const AGENT_AGE_MAX: Duration = Duration::from_mins(1);

/// The most agents that a runtime shares at once. Runs of further ones prepare their own.
const SHARED_AGENTS_MAX: usize = 256;

/// Everything that an agent is prepared from, besides the generation of the configuration.
struct AgentKey {
    agents: AgentGraphSource,
    changes: AgentChanges,
    skills: Vec<SkillSource>,
    instructions: Vec<InstructionFile>,
    workspace: WorkspaceSpec,
    principal: Principal,
    circumstances: RunCircumstances,
}

/// The parts of an agent's key that do not come from the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunCircumstances {
    pub(super) elicitation: ElicitationSupport,
    pub(super) keeps_sessions: bool,
}

impl AgentKey {
    fn of(spec: &RunSpec, circumstances: RunCircumstances) -> Self {
        Self {
            agents: spec.agents.clone(),
            changes: spec.changes.clone(),
            skills: spec.skills.clone(),
            instructions: spec.instructions.clone(),
            workspace: spec.workspace.clone(),
            principal: spec.principal.clone(),
            circumstances,
        }
    }

    /// Compares without building a key, because most runs of a server find their agent.
    fn is_of(&self, spec: &RunSpec, circumstances: RunCircumstances) -> bool {
        self.circumstances == circumstances
            && self.principal == spec.principal
            && self.workspace == spec.workspace
            && self.changes == spec.changes
            && self.agents == spec.agents
            && self.skills == spec.skills
            && self.instructions == spec.instructions
    }
}

/// A prepared agent, with the parts of it that every run needs.
pub(super) struct RunnableAgent {
    pub(super) agent: Arc<PreparedAgent>,
    pub(super) sampler: Arc<ModelSampler>,
    /// Warnings about servers that cannot be used. Each run reports them.
    pub(super) warnings: Vec<String>,
    pub(super) servers: Vec<Arc<McpProvider>>,
}

/// The agents of one generation of the configuration.
#[derive(Debug)]
pub(super) struct SharedAgents {
    /// The time that an agent without a run keeps its servers and workers.
    idle_for: Duration,
    entries: Mutex<Vec<SharedEntry>>,
}

struct SharedEntry {
    key: AgentKey,
    runnable: Arc<RunnableAgent>,
    prepared: Instant,
    runs: usize,
    /// Counts the runs that have ended, so that the task that waits for the idle time sees later ones.
    ended: u64,
    /// True once a newer one has replaced it; the last run then shuts it down.
    retired: bool,
}

impl std::fmt::Debug for SharedEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedEntry").field("runs", &self.runs).finish_non_exhaustive()
    }
}

/// The consequence of the end of a run.
enum LeftAgent {
    /// Other runs use the agent.
    InUse,
    /// It waits for another run; the number is that of ended runs.
    Idle(u64),
    /// No run will use it again.
    Unused,
}

impl SharedAgents {
    pub(super) fn new(idle_for: Duration) -> Arc<Self> {
        Arc::new(Self { idle_for, entries: Mutex::default() })
    }

    /// Returns no agents, for the next generation of the configuration.
    pub(super) fn renewed(&self) -> Arc<Self> {
        Self::new(self.idle_for)
    }

    /// Returns an agent that was prepared for an equal run.
    pub(super) fn join(
        self: &Arc<Self>,
        spec: &RunSpec,
        circumstances: RunCircumstances,
    ) -> Option<AgentLease> {
        let mut entries = self.entries();
        let entry = entries.iter_mut().find(|entry| {
            !entry.retired
                && entry.key.is_of(spec, circumstances)
                && entry.prepared.elapsed() < AGENT_AGE_MAX
                // The tools of a server that was not ready in time stay hidden in this agent.
                && !entry.runnable.servers.iter().any(|server| server.is_late())
        })?;
        entry.runs += 1;
        Some(AgentLease { runnable: Arc::clone(&entry.runnable), of: Some(Arc::clone(self)) })
    }

    /// Shares an agent with later runs, in place of an older one with the same key.
    pub(super) fn insert(
        self: &Arc<Self>,
        spec: &RunSpec,
        circumstances: RunCircumstances,
        runnable: RunnableAgent,
    ) -> AgentLease {
        let runnable = Arc::new(runnable);
        let mut entries = self.entries();
        for same in entries.iter_mut().filter(|entry| entry.key.is_of(spec, circumstances)) {
            same.retired = true;
        }
        let is_unused = |entry: &SharedEntry| {
            entry.runs == 0 && (entry.retired || entry.prepared.elapsed() >= AGENT_AGE_MAX)
        };
        let unused = entries.extract_if(.., |entry| is_unused(entry));
        unused.for_each(|old| shut_down_later(old.runnable));
        if entries.len() >= SHARED_AGENTS_MAX {
            return AgentLease::alone(runnable);
        }
        entries.push(SharedEntry {
            key: AgentKey::of(spec, circumstances),
            runnable: Arc::clone(&runnable),
            prepared: Instant::now(),
            runs: 1,
            ended: 0,
            retired: false,
        });
        AgentLease { runnable, of: Some(Arc::clone(self)) }
    }

    /// Shuts down the agents that no run uses.
    pub(super) async fn shut_down_idle(&self) {
        let idle: Vec<SharedEntry> = self.entries().extract_if(.., |entry| entry.runs == 0).collect();
        for entry in idle {
            wiring::shut_down(entry.runnable.agent.orchestrator()).await;
        }
    }

    /// Counts the end of a run.
    fn leave(&self, agent: &Arc<RunnableAgent>) -> LeftAgent {
        let mut entries = self.entries();
        let found = entries.iter_mut().enumerate().find(|(_, entry)| Arc::ptr_eq(&entry.runnable, agent));
        let Some((at, entry)) = found else { return LeftAgent::Unused };
        entry.runs -= 1;
        entry.ended += 1;
        match entry.runs {
            0 if self.idle_for.is_zero() || entry.retired => {
                entries.swap_remove(at);
                LeftAgent::Unused
            }
            0 => LeftAgent::Idle(entry.ended),
            _ => LeftAgent::InUse,
        }
    }

    /// Removes an agent that no run has used since this number of ended runs.
    fn take_idle(&self, agent: &Arc<RunnableAgent>, ended: u64) -> Option<Arc<RunnableAgent>> {
        let mut entries = self.entries();
        let is_idle = |entry: &SharedEntry| {
            Arc::ptr_eq(&entry.runnable, agent) && (entry.runs, entry.ended) == (0, ended)
        };
        let at = entries.iter().position(is_idle)?;
        Some(entries.swap_remove(at).runnable)
    }

    fn entries(&self) -> MutexGuard<'_, Vec<SharedEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shut_down_later(agent: Arc<RunnableAgent>) {
    tokio::spawn(async move { wiring::shut_down(agent.agent.orchestrator()).await });
}

/// The use of an agent by one run.
pub(super) struct AgentLease {
    runnable: Arc<RunnableAgent>,
    /// `None` for an agent of this run alone, and once the run has left.
    of: Option<Arc<SharedAgents>>,
}

impl AgentLease {
    /// Uses an agent that no other run can join.
    pub(super) fn alone(runnable: Arc<RunnableAgent>) -> Self {
        Self { runnable, of: None }
    }

    pub(super) fn runnable(&self) -> &RunnableAgent {
        &self.runnable
    }

    /// Ends the use. The last run shuts the agent down, at once or after the idle time.
    pub(super) async fn end(mut self) -> Vec<CatalogWarning> {
        let left = self.of.take().map_or(LeftAgent::Unused, |of| self.leave(&of));
        match left {
            LeftAgent::Unused => wiring::shut_down(self.runnable.agent.orchestrator()).await,
            LeftAgent::InUse | LeftAgent::Idle(_) => Vec::new(),
        }
    }

    fn leave(&self, of: &Arc<SharedAgents>) -> LeftAgent {
        let left = of.leave(&self.runnable);
        if let LeftAgent::Idle(ended) = left {
            let (of, runnable) = (Arc::clone(of), Arc::clone(&self.runnable));
            tokio::spawn(async move {
                tokio::time::sleep(of.idle_for).await;
                if let Some(idle) = of.take_idle(&runnable, ended) {
                    wiring::shut_down(idle.agent.orchestrator()).await;
                }
            });
        }
        left
    }
}

/// A run that could not begin leaves the agent without waiting for its servers to end.
impl Drop for AgentLease {
    fn drop(&mut self) {
        if let Some(of) = self.of.take() {
            self.leave(&of);
        }
    }
}
