//! The requests of one run that wait for an answer from outside: approvals, elicitations, and functions that the caller
//! runs.
//!
//! `PendingDecisions` tells the engine that the decision comes later, so a waiting call holds no queue slot and has no
//! deadline; the run parks until the decision arrives.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use haft_core::approval::{ApprovalAnswer, ApprovalId, ApprovalRequest, Approver};
use haft_core::elicitation::{ElicitationAnswer, Elicitor};
use haft_core::event_log::LogEvent;
use haft_core::position::RunPosition;
use haft_core::run::CallDecision;
use haft_core::tool::ToolCall;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use crate::event_log::EventLog;

/// A user's decision about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// Allows the call once.
    Allow,
    /// Allows this call and all later calls with the same arguments, in this workspace.
    AllowExact,
    /// Allows this and all later commands that start with [`PendingApproval::prefix`], in this workspace.
    AllowPrefix,
    /// Allows this and all later calls in this workspace that [`PendingApproval::rules`] ask about.
    AllowRule,
    /// Denies the call. The model gets an error that says that the call was denied.
    Deny,
}

impl ApprovalDecision {
    /// Converts the decision into the answer for the engine. The engine asks for approval again when it makes the call.
    fn answer(self) -> ApprovalAnswer {
        match self {
            Self::Allow => ApprovalAnswer::AllowOnce,
            Self::AllowExact => ApprovalAnswer::AllowExact,
            Self::AllowPrefix => ApprovalAnswer::AllowPrefix,
            Self::AllowRule => ApprovalAnswer::AllowRule,
            Self::Deny => ApprovalAnswer::Deny,
        }
    }

    fn is_offered(self, pending: &PendingApproval) -> bool {
        match self {
            Self::Allow | Self::AllowExact | Self::Deny => true,
            Self::AllowPrefix => pending.prefix.is_some(),
            Self::AllowRule => !pending.rules.is_empty(),
        }
    }
}

/// A call that waits for a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingApproval {
    /// The id for [`RunHandle::decide`](crate::RunHandle::decide).
    pub id: ApprovalId,
    /// The exposed name of the tool.
    pub tool: String,
    /// The arguments that the tool would get; null if the model's text is not JSON.
    pub arguments: Value,
    /// The command prefix that may be allowed, such as `git status`; `None` if there is none, and for a call that was
    /// already waiting when an earlier process ended.
    pub prefix: Option<Vec<String>>,
    /// The rules that the user may allow for all later calls; empty if allowing them would not allow this call.
    pub rules: Vec<String>,
    /// The rule that requires approval, as text; empty for a call that was already waiting when an earlier process
    /// ended.
    pub why: String,
}

impl PendingApproval {
    fn event(&self) -> LogEvent {
        LogEvent::ApprovalRequested {
            approval: self.id.to_string(),
            tool: self.tool.clone(),
            arguments: self.arguments.clone(),
            why: self.why.clone(),
        }
    }
}

/// An elicitation request of an MCP server that waits for an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingElicitation {
    /// The id for [`RunHandle::answer`](crate::RunHandle::answer). In each run, ids start at 1.
    pub id: u64,
    /// The name of the server in the configuration.
    pub server: String,
    /// The request as the server sent it: `message`, `requestedSchema` or `url`.
    pub request: Value,
}

/// The reason why a decision or an answer could not be delivered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    /// No request with this id is pending.
    #[error("no approval with the id {id} is waiting for a decision")]
    NotPending {
        /// The id that the caller gave.
        id: String,
    },
    /// The approval was decided before; the first decision is final.
    #[error("the approval {id} has already been decided")]
    AlreadyDecided {
        /// The id that the caller gave.
        id: String,
    },
    /// The user chose to allow a prefix or a rule, but the call offers none. The call still waits.
    #[error("the approval {id} does not offer this decision; allow or deny the call once")]
    NotOffered {
        /// The id that the caller gave.
        id: String,
    },
}

/// The pending requests of one root run, including its sub-agents.
pub(crate) struct PendingDecisions {
    log: EventLog,
    state: Mutex<PendingDecisionsState>,
    /// A counter that is incremented whenever the pending requests change.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct PendingDecisionsState {
    /// The approval requests that the engine has made and for which the run has not parked yet.
    asked: BTreeMap<ApprovalId, ApprovalRequest>,
    approvals: BTreeMap<ApprovalId, (PendingApproval, oneshot::Sender<ApprovalDecision>)>,
    /// The answers for calls that were allowed and have not started yet.
    allowed: HashMap<ApprovalId, ApprovalAnswer>,
    decided: HashSet<ApprovalId>,
    elicitations: BTreeMap<u64, (PendingElicitation, oneshot::Sender<ElicitationAnswer>)>,
    next_elicitation: u64,
}

impl PendingDecisions {
    pub(crate) fn new(log: EventLog) -> Arc<Self> {
        Arc::new(Self { log, state: Mutex::default(), changed: watch::Sender::new(0) })
    }

    /// Restores a decision from the journal: an earlier process recorded the decision, but did not make the call.
    pub(crate) fn allow(&self, id: ApprovalId) {
        self.state().allowed.insert(id, ApprovalAnswer::AllowOnce);
    }

    pub(crate) fn approvals(&self) -> Vec<PendingApproval> {
        self.state().approvals.values().map(|(pending, _)| pending.clone()).collect()
    }

    pub(crate) fn elicitations(&self) -> Vec<PendingElicitation> {
        self.state().elicitations.values().map(|(pending, _)| pending.clone()).collect()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn decide(&self, id: ApprovalId, decision: ApprovalDecision) -> Result<(), DecideError> {
        let mut state = self.state();
        if state.approvals.get(&id).is_some_and(|(pending, _)| !decision.is_offered(pending)) {
            return Err(DecideError::NotOffered { id: id.to_string() });
        }
        let Some((_, waiting)) = state.approvals.remove(&id) else {
            let id_text = id.to_string();
            return Err(if state.decided.contains(&id) {
                DecideError::AlreadyDecided { id: id_text }
            } else {
                DecideError::NotPending { id: id_text }
            });
        };
        state.decided.insert(id);
        // Ignore a send error: a run that was cancelled in the meantime does not wait any more.
        let _ = waiting.send(decision);
        drop(state);
        self.changed.send_modify(|count| *count += 1);
        Ok(())
    }

    pub(crate) fn answer(&self, id: u64, answer: ElicitationAnswer) -> Result<(), DecideError> {
        let waiting = self.state().elicitations.remove(&id);
        let (_, waiting) = waiting.ok_or_else(|| DecideError::NotPending { id: id.to_string() })?;
        let _ = waiting.send(answer);
        self.changed.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Registers a call and returns the channel that delivers its decision.
    fn wait_for(
        &self,
        id: ApprovalId,
        place: RunPosition,
        call: &ToolCall,
    ) -> oneshot::Receiver<ApprovalDecision> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        let request = state.asked.remove(&id);
        let pending = match request {
            Some(ApprovalRequest { tool, arguments, prefix, rules, why, .. }) => {
                PendingApproval { id, tool, arguments: Value::Object(arguments), prefix, rules, why }
            }
            None => PendingApproval {
                id,
                tool: call.name.clone(),
                arguments: serde_json::from_str(call.arguments.as_text()).unwrap_or_default(),
                prefix: None,
                rules: Vec::new(),
                why: String::new(),
            },
        };
        self.log.append(place, pending.event());
        state.approvals.insert(id, (pending, sender));
        drop(state);
        self.changed.send_modify(|count| *count += 1);
        receiver
    }

    fn state(&self) -> MutexGuard<'_, PendingDecisionsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Approver for PendingDecisions {
    fn name(&self) -> &'static str {
        "caller"
    }

    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer> {
        let mut state = self.state();
        let answer = state.allowed.remove(&request.id).unwrap_or_else(|| {
            state.asked.insert(request.id, request.clone());
            ApprovalAnswer::Later
        });
        Box::pin(async move { answer })
    }

    fn resolve<'a>(
        &'a self,
        id: ApprovalId,
        place: RunPosition,
        call: &'a ToolCall,
    ) -> BoxFuture<'a, CallDecision> {
        Box::pin(async move {
            let decision = self.wait_for(id, place, call).await.unwrap_or(ApprovalDecision::Deny);
            let allowed = decision != ApprovalDecision::Deny;
            if allowed {
                self.state().allowed.insert(id, decision.answer());
            }
            self.log.append(place, LogEvent::ApprovalDecided { approval: id.to_string(), allowed });
            if allowed { CallDecision::Allow } else { CallDecision::Deny }
        })
    }
}

impl Elicitor for PendingDecisions {
    fn elicit<'a>(&'a self, server: &'a str, request: Value) -> BoxFuture<'a, ElicitationAnswer> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        state.next_elicitation += 1;
        let id = state.next_elicitation;
        let pending = PendingElicitation { id, server: server.to_owned(), request };
        state.elicitations.insert(id, (pending, sender));
        drop(state);
        self.changed.send_modify(|count| *count += 1);
        Box::pin(async move {
            let withdrawn = ElicitationGuard { desk: self, id };
            let answer = receiver.await.unwrap_or(ElicitationAnswer::Cancelled);
            drop(withdrawn);
            answer
        })
    }
}

/// Removes an elicitation request on drop, when its call has ended.
struct ElicitationGuard<'a> {
    desk: &'a PendingDecisions,
    id: u64,
}

impl Drop for ElicitationGuard<'_> {
    fn drop(&mut self) {
        if self.desk.state().elicitations.remove(&self.id).is_some() {
            self.desk.changed.send_modify(|count| *count += 1);
        }
    }
}

impl fmt::Debug for PendingDecisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingDecisions")
            .field("approvals", &self.state().approvals.len())
            .finish_non_exhaustive()
    }
}
