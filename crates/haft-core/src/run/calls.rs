//! The open calls of one turn.

use super::RunError;
use crate::conversation::{Message, ToolReply};
use crate::internal_tools::batch::{self, BatchCompleteness, BatchItemOutcome};
use crate::output::OutputContent;
use crate::tool::{CallId, ToolCall};

/// A call, its position in the reply, and its state.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OpenCall {
    pub(super) call: ToolCall,
    pub(super) position: CallPosition,
    pub(super) state: CallState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallPosition {
    /// The call is directly in the reply.
    Turn,
    /// The call is inside a batch. `parent` is the index of the batch, and `item` the id that the model gave the call
    /// in the batch.
    Batch { parent: usize, item: String },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallState {
    /// The call waits for the driver.
    New,
    /// The driver is running the call.
    Running,
    /// The call waits for a user's approval.
    Approval,
    /// The client runs the call.
    Client,
    /// The call is a batch, which ends when its inner calls have ended.
    Batch(BatchCompleteness),
    Ended(ToolReply),
}

/// The party whose action the turn needs next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AwaitedParty {
    Tools(Vec<ToolCall>),
    Approval(Vec<ToolCall>),
    Client(Vec<ToolCall>),
    Nobody,
}

/// The party that sent the result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultSender {
    Tools,
    Approval,
    Client,
}

/// All calls of one turn, in the model's order. A batch is followed by its inner calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct OpenCalls(pub(super) Vec<OpenCall>);

impl OpenCalls {
    /// Returns the party that must act next. Calls that the engine runs come first, so that a user or a client is asked
    /// only when all other calls have ended.
    pub(super) fn waiting(&self) -> AwaitedParty {
        let ours = self.in_state(|state| matches!(state, CallState::New | CallState::Running));
        if !ours.is_empty() {
            return AwaitedParty::Tools(ours);
        }
        let approval = self.in_state(|state| *state == CallState::Approval);
        if !approval.is_empty() {
            return AwaitedParty::Approval(approval);
        }
        let client = self.in_state(|state| *state == CallState::Client);
        if client.is_empty() { AwaitedParty::Nobody } else { AwaitedParty::Client(client) }
    }

    pub(super) fn mark_new_running(&mut self) {
        for open in self.0.iter_mut().filter(|open| open.state == CallState::New) {
            open.state = CallState::Running;
        }
    }

    pub(super) fn given_out(&self) -> Vec<ToolCall> {
        self.in_state(|state| *state == CallState::Running)
    }

    /// Ends the calls that have not started, except for the first `keep` of them.
    pub(super) fn refuse_new(&mut self, keep: usize, why: &str) {
        self.end_where(keep, |state| *state == CallState::New, why);
    }

    /// Ends the calls that wait for a user or a client.
    pub(super) fn refuse_waiting(&mut self, why: &str) {
        self.end_where(0, |state| matches!(state, CallState::Approval | CallState::Client), why);
    }

    pub(super) fn refuse_all(&mut self, why: &str) {
        self.end_where(0, |state| !matches!(state, CallState::Ended(_) | CallState::Batch(_)), why);
    }

    fn end_where(&mut self, keep: usize, which: fn(&CallState) -> bool, why: &str) {
        for open in self.0.iter_mut().filter(|open| which(&open.state)).skip(keep) {
            open.state = CallState::Ended(ToolReply::error(&open.call, why));
        }
    }

    /// Records results, either all or none: if one result is unexpected, nothing changes.
    pub(super) fn answer(
        &mut self,
        from: ResultSender,
        answers: Vec<(CallId, CallState)>,
    ) -> Result<(), RunError> {
        let mut indexes = Vec::with_capacity(answers.len());
        for (id, _) in &answers {
            let index = self.index_of(from, id)?;
            if indexes.contains(&index) {
                return Err(RunError::AnsweredTwice { call: id.clone() });
            }
            indexes.push(index);
        }
        for (index, (_, state)) in indexes.into_iter().zip(answers) {
            self.0[index].state = state;
        }
        Ok(())
    }

    fn index_of(&self, from: ResultSender, id: &CallId) -> Result<usize, RunError> {
        let index = self.0.iter().position(|open| open.call.id == *id);
        let index = index.ok_or_else(|| RunError::UnknownCall { call: id.clone() })?;
        match (from, &self.0[index].state) {
            (ResultSender::Tools, CallState::Running)
            | (ResultSender::Approval, CallState::Approval)
            | (ResultSender::Client, CallState::Client) => Ok(index),
            (_, CallState::Ended(_)) => Err(RunError::AnsweredTwice { call: id.clone() }),
            (
                _,
                CallState::New
                | CallState::Running
                | CallState::Approval
                | CallState::Client
                | CallState::Batch(_),
            ) => Err(RunError::UnknownCall { call: id.clone() }),
        }
    }

    /// Returns the results of all calls in the turn as one message. A call without a result gets an error.
    pub(super) fn into_message(self) -> Message {
        let ends = self.0.iter().enumerate().filter(|(_, open)| open.position == CallPosition::Turn);
        Message::tool(ends.map(|(at, open)| self.reply(at, open)).collect())
    }

    fn reply(&self, at: usize, open: &OpenCall) -> ToolReply {
        match &open.state {
            CallState::Ended(reply) => reply.clone(),
            CallState::Batch(extent) => {
                ToolReply::text(&open.call, batch::reply(&self.batch_outcomes(at), *extent))
            }
            CallState::New | CallState::Running | CallState::Approval | CallState::Client => {
                ToolReply::error(&open.call, "the call was not made")
            }
        }
    }

    fn batch_outcomes(&self, batch: usize) -> Vec<BatchItemOutcome<'_>> {
        let inside = self.0.iter().filter_map(|open| match &open.position {
            CallPosition::Batch { parent, item } if *parent == batch => Some((item, open)),
            CallPosition::Batch { .. } | CallPosition::Turn => None,
        });
        inside
            .map(|(id, open)| BatchItemOutcome { id, tool: &open.call.name, outcome: outcome(&open.state) })
            .collect()
    }

    fn in_state(&self, which: impl Fn(&CallState) -> bool) -> Vec<ToolCall> {
        self.0.iter().filter(|open| which(&open.state)).map(|open| open.call.clone()).collect()
    }
}

fn outcome(state: &CallState) -> Result<String, String> {
    match state {
        CallState::Ended(reply) => {
            let text = reply.content.iter().map(OutputContent::as_text).collect::<Vec<_>>().join("\n");
            if reply.is_error { Err(text) } else { Ok(text) }
        }
        CallState::New
        | CallState::Running
        | CallState::Approval
        | CallState::Client
        | CallState::Batch(_) => Err("the call was not made".into()),
    }
}
