//! The operation tree: the work of each session, as a fold over events.
//!
//! A session has turns, and a turn has model attempts and operations. A sub-agent's session is below the operation that
//! started it. In the path `1-2.3-1`, `1-2` is operation 2 of turn 1, and `3-1` is operation 1 of turn 3 in the session
//! below it.

use std::collections::HashMap;
use std::time::Duration;

use crate::event::{CallAccount, Event, ToolReference};
use crate::internal_tools::is_own_tool;
use crate::model_event::{ModelEvent, PartStart};
use crate::model_provider::{ModelAccount, ModelAttempt};
use crate::position::{CallOperation, OperationId, RunPosition, SessionId};
use crate::price::Cost;
use crate::result::ToolErrorKind;
use crate::run::event::RunEvent;
use crate::run::{Compaction, RunNote};
use crate::tool::CallId;

/// The default maximum number of operations in the tree. Further operations are counted but not kept.
pub const OPERATIONS_MAX_DEFAULT: usize = 10_000;

/// The operations of all sessions, up to a limit.
#[derive(Debug, Clone)]
pub struct OpTree {
    operations: Vec<OperationNode>,
    sessions: Vec<SessionNode>,
    operations_max: usize,
    /// The index in `operations` of each operation that the tree keeps.
    kept: HashMap<OperationId, usize>,
    /// The index in `sessions` of each session, by session id.
    known: HashMap<SessionId, usize>,
    totals: OperationTotals,
    left_out: u64,
    /// The number of model attempts that the tree keeps.
    models: usize,
    /// The number of calls to the run's own tools that the tree keeps.
    own_calls: usize,
}

/// A session and its turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionNode {
    /// The session id that events and journals use.
    pub id: SessionId,
    standing: NodePlacement,
    turns: Vec<TurnNode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodePlacement {
    Root,
    /// The session is below an operation; the operation stores the session's index.
    Below,
}

/// A turn with its model attempts and its operations, each in the order of their first event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnNode {
    /// The turn, counted from 1; 0 for model requests before the first turn.
    pub number: u32,
    /// The attempts of all model requests in the turn.
    pub models: Vec<ModelNode>,
    /// The compactions of the conversation before the turn.
    pub compactions: Vec<Compaction>,
    /// The calls to the run's own tools: reports, status updates, batches and handoffs. The run answers them at once,
    /// so they have no duration.
    pub own_calls: Vec<OwnCallNode>,
    operations: Vec<usize>,
}

/// A call that the run answered itself, without a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCallNode {
    /// The id that the model gave the call. The ids of the calls inside a batch begin with this id and a dot.
    pub call: String,
    /// The name of the tool.
    pub tool: String,
}

/// One attempt to call a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelNode {
    /// The provider, the model and the number of the attempt.
    pub attempt: ModelAttempt,
    /// The figures of the attempt; `None` while it is running.
    pub account: Option<ModelAccount>,
}

/// One tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationNode {
    /// The path from the root session, such as `1-2.3-1`.
    pub path: String,
    /// The call id that the caller chose.
    pub call: String,
    /// The tool, if the name in the call could be resolved.
    pub tool: ToolReference,
    /// The time that the call spent in queues and waiting for approval, before the provider got it.
    pub waited: Duration,
    /// The progress of the call.
    pub state: OperationState,
    /// The indexes of the sessions that work for this operation.
    below: Vec<usize>,
}

/// The progress of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationState {
    /// The call waits or runs; it has not ended.
    Running,
    /// The call ended.
    Finished {
        /// The kind of error; `None` for success.
        failure: Option<ToolErrorKind>,
        /// The time since the call was requested.
        latency: Duration,
        /// The audit data of the call: sizes, digests and decisions.
        account: CallAccount,
    },
}

/// Sums over all finished calls, including those that the tree does not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationTotals {
    /// The number of finished calls, including the calls of sub-agents.
    pub calls: u64,
    /// The number of calls that failed.
    pub errors: u64,
    /// The number of calls that were answered from the cache.
    pub cached: u64,
    /// The total length of all arguments, in bytes.
    pub bytes_in: u64,
    /// The total size of all outputs and error messages, in bytes.
    pub bytes_out: u64,
    /// The summed latency of top-level calls. A sub-agent's calls are not added, because their time is already part of
    /// the call that started the sub-agent.
    pub latency: Duration,
    /// The number of model attempts. The fields below hold their known tokens and costs.
    pub requests: u64,
    /// All input tokens, including those from the provider's cache.
    pub tokens_in: u64,
    /// All output tokens, including reasoning.
    pub tokens_out: u64,
    /// The sum of all known costs.
    pub cost: Cost,
}

impl Default for OpTree {
    fn default() -> Self {
        Self::new(OPERATIONS_MAX_DEFAULT)
    }
}

impl OpTree {
    /// Creates an empty tree that keeps at most this many operations. Further operations are only counted.
    pub fn new(operations_max: usize) -> Self {
        Self {
            operations: Vec::new(),
            sessions: Vec::new(),
            operations_max,
            kept: HashMap::new(),
            known: HashMap::new(),
            totals: OperationTotals::default(),
            left_out: 0,
            models: 0,
            own_calls: 0,
        }
    }

    /// Adds an event. Events of one call must arrive in order.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::ToolStarted { operation, tool, waited } => {
                if let Some(node) = self.place(operation, tool) {
                    node.waited = *waited;
                }
            }
            Event::ModelStarted { place, attempt, .. } => self.ask(*place, attempt),
            Event::ModelFinished { place, attempt, account, .. } => {
                self.totals.add_model(account);
                self.answer(*place, attempt, account);
            }
            Event::ToolProgress { .. } => {}
            Event::Run { place, event } => match &**event {
                RunEvent::Noted(RunNote::Compacted(compaction)) => self.compact(*place, *compaction),
                RunEvent::Model(ModelEvent::PartStarted { part: PartStart::Call { id, name }, .. }) => {
                    self.add_own_call(*place, id, name);
                }
                _ => {}
            },
            Event::ToolFinished { operation, tool, failure, latency, account, .. } => {
                self.totals.add(operation, *failure, *latency, account);
                match self.place(operation, tool) {
                    Some(node) => {
                        let account = account.clone();
                        node.state =
                            OperationState::Finished { failure: *failure, latency: *latency, account };
                    }
                    None => self.left_out += 1,
                }
            }
        }
    }

    /// Adds a call that the model wrote, if the run answers it itself. If the model request is repeated, the call is
    /// still added only once.
    pub fn add_own_call(&mut self, place: RunPosition, id: &CallId, name: &str) {
        if !is_own_tool(name) || self.own_calls >= self.operations_max {
            return;
        }
        let above = place.parent.and_then(|parent| self.kept.get(&parent).copied());
        let own_calls = &mut self.turn(place, above).own_calls;
        if own_calls.iter().all(|known| known.call != id.0) {
            own_calls.push(OwnCallNode { call: id.0.clone(), tool: name.to_owned() });
            self.own_calls += 1;
        }
    }

    /// Returns the sessions that are not below an operation.
    pub fn roots(&self) -> impl Iterator<Item = &SessionNode> {
        self.sessions.iter().filter(|session| session.standing == NodePlacement::Root)
    }

    /// Returns the turns of a session, in the order of their first event.
    pub fn turns<'t>(&'t self, session: &'t SessionNode) -> &'t [TurnNode] {
        &session.turns
    }

    /// Returns the kept operations of a turn, in the order of their first event.
    pub fn operations<'t>(&'t self, turn: &'t TurnNode) -> impl Iterator<Item = &'t OperationNode> {
        turn.operations.iter().filter_map(|&position| self.operations.get(position))
    }

    /// Returns the sessions below an operation.
    pub fn below<'t>(&'t self, operation: &'t OperationNode) -> impl Iterator<Item = &'t SessionNode> {
        operation.below.iter().filter_map(|&position| self.sessions.get(position))
    }

    /// Returns the path of an operation, or `None` if the tree does not keep it.
    pub fn path(&self, operation: OperationId) -> Option<&str> {
        let position = self.kept.get(&operation)?;
        self.operations.get(*position).map(|node| node.path.as_str())
    }

    /// Returns the totals of all finished calls.
    pub fn totals(&self) -> OperationTotals {
        self.totals
    }

    /// Returns the number of finished operations that the tree counted but did not keep.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the node of an operation, and creates it at the first event. Returns `None` if the tree is full.
    fn place(&mut self, operation: &CallOperation, tool: &ToolReference) -> Option<&mut OperationNode> {
        let position = match self.kept.get(&operation.id) {
            Some(&position) => position,
            None if self.operations.len() < self.operations_max => self.keep(operation, tool),
            None => return None,
        };
        self.operations.get_mut(position)
    }

    fn keep(&mut self, operation: &CallOperation, tool: &ToolReference) -> usize {
        let position = self.operations.len();
        let above = operation.place.parent.and_then(|parent| self.kept.get(&parent).copied());
        let turn = self.turn(operation.place, above);
        // The call has reached a provider, whose tool may have the same name as one of the run's own tools. Remove the
        // node of the own tool, so that the tree shows the call only once.
        turn.own_calls.retain(|own| own.call != operation.call.0);
        turn.operations.push(position);
        let last = format!("{}-{}", turn.number, turn.operations.len());
        let path = match above.and_then(|above| self.operations.get(above)) {
            Some(above) => format!("{}.{last}", above.path),
            None => last,
        };
        self.kept.insert(operation.id, position);
        self.operations.push(OperationNode {
            path,
            call: operation.call.0.clone(),
            tool: tool.clone(),
            waited: Duration::ZERO,
            state: OperationState::Running,
            below: Vec::new(),
        });
        position
    }

    fn ask(&mut self, place: RunPosition, attempt: &ModelAttempt) {
        if self.models < self.operations_max {
            self.models += 1;
            let above = place.parent.and_then(|parent| self.kept.get(&parent).copied());
            let node = ModelNode { attempt: attempt.clone(), account: None };
            self.turn(place, above).models.push(node);
        }
    }

    /// Adds a compaction. It is included in the tree's limit on model attempts.
    fn compact(&mut self, place: RunPosition, compaction: Compaction) {
        if self.models < self.operations_max {
            self.models += 1;
            let above = place.parent.and_then(|parent| self.kept.get(&parent).copied());
            self.turn(place, above).compactions.push(compaction);
        }
    }

    fn answer(&mut self, place: RunPosition, attempt: &ModelAttempt, account: &ModelAccount) {
        let above = place.parent.and_then(|parent| self.kept.get(&parent).copied());
        let models = &mut self.turn(place, above).models;
        let open = |node: &&mut ModelNode| node.account.is_none() && node.attempt == *attempt;
        if let Some(node) = models.iter_mut().rev().find(open) {
            node.account = Some(account.clone());
        }
    }

    fn turn(&mut self, place: RunPosition, parent: Option<usize>) -> &mut TurnNode {
        let at = match self.known.get(&place.session) {
            Some(&at) => at,
            None => self.open(place.session, parent),
        };
        let turns = &mut self.sessions[at].turns;
        match turns.binary_search_by_key(&place.turn, |turn| turn.number) {
            Ok(found) => &mut turns[found],
            Err(gap) => {
                turns.insert(gap, TurnNode::new(place.turn));
                &mut turns[gap]
            }
        }
    }

    fn open(&mut self, session: SessionId, parent: Option<usize>) -> usize {
        let at = self.sessions.len();
        let standing = match parent.and_then(|parent| self.operations.get_mut(parent)) {
            Some(parent) => {
                parent.below.push(at);
                NodePlacement::Below
            }
            None => NodePlacement::Root,
        };
        self.sessions.push(SessionNode { id: session, standing, turns: Vec::new() });
        self.known.insert(session, at);
        at
    }
}

impl TurnNode {
    fn new(number: u32) -> Self {
        Self {
            number,
            models: Vec::new(),
            compactions: Vec::new(),
            own_calls: Vec::new(),
            operations: Vec::new(),
        }
    }
}

impl OperationTotals {
    fn add_model(&mut self, account: &ModelAccount) {
        let usage = account.usage.unwrap_or_default();
        self.requests += 1;
        self.tokens_in = self.tokens_in.saturating_add(usage.input);
        self.tokens_out = self.tokens_out.saturating_add(usage.output);
        let cost = account.cost.unwrap_or_default().nano_usd;
        self.cost.nano_usd = self.cost.nano_usd.saturating_add(cost);
    }

    fn add(
        &mut self,
        operation: &CallOperation,
        failure: Option<ToolErrorKind>,
        latency: Duration,
        account: &CallAccount,
    ) {
        self.calls += 1;
        self.errors += u64::from(failure.is_some());
        self.cached += u64::from(account.cached);
        self.bytes_in += account.bytes_in as u64;
        self.bytes_out += account.bytes_out as u64;
        if operation.place.parent.is_none() {
            self.latency += latency;
        }
    }
}

#[cfg(test)]
mod tests;
