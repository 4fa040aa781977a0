//! Agents that equal runs share, because preparing an agent reads files, compiles schemas and may start servers.
//!
//! Runs share an agent only if all its inputs are equal: texts, workspace, principal and the generation of the
//! configuration. Approvals, outputs, events and budgets belong to the context of each run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use haft_config::agents::graph::AgentGraphSource;
use haft_config::project_instructions::InstructionFile;
use haft_core::digest::Digest;
use haft_core::principal::Principal;
use haft_core::provider::ToolProvider as _;
use haft_engine::CatalogWarning;
use haft_tools::mcp::{ElicitationSupport, McpProvider};

use super::{OutputStorage, SessionStorage};
use crate::definition_watch::ComparedDefinitions;
use crate::handle::ServerListing;
use crate::runs::PreparedAgent;
use crate::sampling::ModelSampler;
use crate::spec::{AgentChanges, RunSpec, SkillSource, WorkspaceSpec};
use crate::wiring;

/// The maximum age at which new runs join a shared agent. Later runs prepare it again, so that they see secrets,
/// credentials and links that appeared in the meantime.
const AGENT_AGE_MAX: Duration = Duration::from_mins(1);

/// The maximum number of agents that a runtime shares at once. Runs of further agents prepare their own.
const SHARED_AGENTS_MAX: usize = 256;

/// The inputs that an agent is prepared from, except for the generation of the configuration.
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
    pub(super) sessions: SessionStorage,
    pub(super) output_storage: OutputStorage,
    /// The digest of the MCP servers that the caller named, with their headers; `None` if the caller named none.
    pub(super) requested_servers: Option<Digest>,
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

    /// Returns true if this is the key of a run with this spec. Compares the fields without building a key, because
    /// most runs of a server find an existing agent.
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

/// A prepared agent, with the other parts that every run of it needs.
pub(super) struct RunnableAgent {
    pub(super) agent: Arc<PreparedAgent>,
    pub(super) sampler: Arc<ModelSampler>,
    /// Warnings about servers that cannot be used. Each run reports them.
    pub(super) warnings: Vec<String>,
    pub(super) servers: Vec<Arc<McpProvider>>,
    /// The servers that the caller named.
    pub(super) requested: Vec<RequestedProvider>,
    pub(super) warm_up: ToolWarmUp,
    pub(super) compared: ComparedDefinitions,
}

/// Selects whether each run waits until the tools of its agent are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolWarmUp {
    /// The agent has MCP servers that must start, or tools of the embedding program that must prepare themselves.
    EachRun,
    /// All tools are ready from the beginning.
    NotNeeded,
}

impl RunnableAgent {
    /// Returns the labels of the servers that the caller named.
    pub(super) fn requested_labels(&self) -> Vec<String> {
        self.requested.iter().map(|server| server.label.clone()).collect()
    }
}

/// A server that the caller named, or the reason why it cannot be used.
pub(super) struct RequestedProvider {
    pub(super) label: String,
    pub(super) provider: Result<Arc<McpProvider>, String>,
}

impl RequestedProvider {
    /// Returns the tools of the server, after its start.
    pub(super) fn listing(&self) -> ServerListing {
        let tools = self.provider.as_ref().map_err(Clone::clone).and_then(|provider| {
            let status = provider.server().status();
            match status.state {
                "ready" | "degraded" => Ok(provider.tools()),
                state => Err(status
                    .reason
                    .unwrap_or_else(|| format!("the MCP server is not ready; its state is {state}"))),
            }
        });
        ServerListing { label: self.label.clone(), tools }
    }
}

/// The agents of one generation of the configuration.
#[derive(Debug)]
pub(super) struct SharedAgents {
    /// The time for which an agent without runs keeps its servers and workers.
    idle_for: Duration,
    /// True after a reload or a shutdown. No further run joins these agents then.
    is_closed: AtomicBool,
    entries: Mutex<Vec<SharedEntry>>,
}

struct SharedEntry {
    key: AgentKey,
    runnable: Arc<RunnableAgent>,
    prepared: Instant,
    runs: usize,
    /// The time at which the last run of this agent ended.
    idle_since: Instant,
    /// True while a task waits for the idle time. There is one task for each agent, not for each run, because thousands
    /// of runs may end within the idle time.
    is_timed: bool,
    /// True after a newer agent has replaced this one; the last run then shuts it down.
    retired: bool,
}

impl std::fmt::Debug for SharedEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedEntry").field("runs", &self.runs).finish_non_exhaustive()
    }
}

/// The state of a shared agent after one of its runs has ended.
enum LeftAgent {
    /// Other runs use the agent, or may still join it.
    Kept,
    /// No run uses the agent, and no task waits for its idle time yet, so the caller must start such a task.
    Untimed,
    /// No run will use the agent again.
    Unused,
}

/// The state of an agent at the end of its idle time.
enum IdleAgent {
    /// Another task has shut down the agent.
    Gone,
    /// A run uses the agent, or has used it during the idle time. The idle time can end after this duration at the
    /// earliest.
    UsedSince(Duration),
    Over(Arc<RunnableAgent>),
}

impl SharedAgents {
    pub(super) fn new(idle_for: Duration) -> Arc<Self> {
        Arc::new(Self { idle_for, is_closed: AtomicBool::new(false), entries: Mutex::default() })
    }

    /// Returns an empty set of agents, for the next generation of the configuration.
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
                // Do not share an agent with a server that is still starting: a new run would wait up to
                // `mcp.readyWait` for it, but a shared agent would not wait again.
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
            idle_since: Instant::now(),
            is_timed: false,
            retired: false,
        });
        AgentLease { runnable, of: Some(Arc::clone(self)) }
    }

    /// Shuts down the agents that no run uses. Each other agent is shut down after its last run.
    pub(super) async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let idle: Vec<SharedEntry> = self.entries().extract_if(.., |entry| entry.runs == 0).collect();
        for entry in idle {
            wiring::shut_down(entry.runnable.agent.orchestrator()).await;
        }
    }

    /// Records that a run of the agent has ended, and returns the new state of the agent.
    fn leave(&self, agent: &Arc<RunnableAgent>) -> LeftAgent {
        let mut entries = self.entries();
        let found = entries.iter_mut().enumerate().find(|(_, entry)| Arc::ptr_eq(&entry.runnable, agent));
        let Some((at, entry)) = found else { return LeftAgent::Unused };
        entry.runs -= 1;
        if entry.runs > 0 {
            return LeftAgent::Kept;
        }
        if self.idle_for.is_zero() || self.is_closed.load(Ordering::Acquire) || entry.retired {
            entries.swap_remove(at);
            return LeftAgent::Unused;
        }
        entry.idle_since = Instant::now();
        if std::mem::replace(&mut entry.is_timed, true) { LeftAgent::Kept } else { LeftAgent::Untimed }
    }

    /// Waits until no run has used the agent for the idle time. Then shuts the agent down, unless another task has
    /// already done this.
    async fn end_idle(&self, agent: Weak<RunnableAgent>) {
        let mut wait = self.idle_for;
        loop {
            tokio::time::sleep(wait).await;
            match self.take_idle(&agent) {
                IdleAgent::Gone => return,
                IdleAgent::UsedSince(left) => wait = left,
                IdleAgent::Over(idle) => {
                    wiring::shut_down(idle.agent.orchestrator()).await;
                    return;
                }
            }
        }
    }

    /// Removes an agent whose idle time is over.
    fn take_idle(&self, agent: &Weak<RunnableAgent>) -> IdleAgent {
        let mut entries = self.entries();
        let is_it = |entry: &SharedEntry| std::ptr::eq(Arc::as_ptr(&entry.runnable), agent.as_ptr());
        let Some(at) = entries.iter().position(is_it) else { return IdleAgent::Gone };
        let left = self.idle_for.saturating_sub(entries[at].idle_since.elapsed());
        match (entries[at].runs, left.is_zero()) {
            (0, true) => IdleAgent::Over(entries.swap_remove(at).runnable),
            (_, true) => IdleAgent::UsedSince(self.idle_for),
            (_, false) => IdleAgent::UsedSince(left),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<SharedEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shut_down_later(agent: Arc<RunnableAgent>) {
    tokio::spawn(async move { wiring::shut_down(agent.agent.orchestrator()).await });
}

/// The use of a shared agent by one run. Dropping this value releases the agent.
pub(super) struct AgentLease {
    runnable: Arc<RunnableAgent>,
    /// The set to which the shared agent belongs; `None` for an agent that only this run uses, and after the run has
    /// released the agent.
    of: Option<Arc<SharedAgents>>,
}

impl AgentLease {
    /// Creates the lease of an agent that only one run uses.
    pub(super) fn alone(runnable: Arc<RunnableAgent>) -> Self {
        Self { runnable, of: None }
    }

    pub(super) fn runnable(&self) -> &RunnableAgent {
        &self.runnable
    }

    /// Ends the use of the agent by this run. After its last run, the agent is shut down, at once or after the idle
    /// time.
    pub(super) async fn end(mut self) -> Vec<CatalogWarning> {
        let left = self.of.take().map_or(LeftAgent::Unused, |of| self.leave(&of));
        match left {
            LeftAgent::Unused => wiring::shut_down(self.runnable.agent.orchestrator()).await,
            LeftAgent::Kept | LeftAgent::Untimed => Vec::new(),
        }
    }

    fn leave(&self, of: &Arc<SharedAgents>) -> LeftAgent {
        let left = of.leave(&self.runnable);
        if matches!(left, LeftAgent::Untimed) {
            let (of, agent) = (Arc::clone(of), Arc::downgrade(&self.runnable));
            tokio::spawn(async move { of.end_idle(agent).await });
        }
        left
    }
}

/// Releases the agent if `end` was not called, for example because the run could not begin. Does not wait for the
/// servers to stop.
impl Drop for AgentLease {
    fn drop(&mut self) {
        if let Some(of) = self.of.take() {
            self.leave(&of);
        }
    }
}
