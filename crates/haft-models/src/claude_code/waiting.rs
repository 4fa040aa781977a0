//! A `claude` process that waits for the results of its calls, between two requests of a conversation.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use haft_core::conversation::{Message, PartBody, Role, ToolReply};
use haft_core::framing::LineSplitter;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::CALL_WAIT_MAX;
use super::allowed::AllowedActions;
use super::control::CommandCall;
use super::process::RunningCommand;
use super::prompt::labelled;
use super::reader::ClaudeOutputReader;

/// The state of a process that waits for results. Dropping it kills the process.
pub(super) struct WaitingCommand {
    pub(super) command: Box<dyn RunningCommand>,
    pub(super) lines: LineSplitter,
    /// Lines that the process printed after its calls.
    pub(super) unread: VecDeque<String>,
    pub(super) reader: ClaudeOutputReader,
    pub(super) calls: Vec<CommandCall>,
    pub(super) allowed: AllowedActions,
}

impl WaitingCommand {
    /// Sends the results in the new messages. If a result is missing, ends the process and returns `None`.
    pub(super) fn continued(mut self, new: &[Arc<Message>]) -> Option<Self> {
        let replies = replies(new);
        for line in result_lines(&self.calls, &replies, new)? {
            self.command.write(line);
        }
        let is_allowed = |call: &CommandCall| {
            call.is_of_hook() && replies.iter().any(|reply| reply.call == call.id && !reply.is_error)
        };
        self.calls.drain(..).filter(is_allowed).for_each(|call| self.allowed.add(call));
        self.reader.next_reply();
        Some(self)
    }
}

fn replies(new: &[Arc<Message>]) -> Vec<&ToolReply> {
    let parts = new.iter().flat_map(|message| &message.parts);
    parts
        .filter_map(|part| match &part.body {
            PartBody::Reply(reply) => Some(reply),
            _ => None,
        })
        .collect()
}

/// Returns the line with the result of each call. Adds user messages that arrived meanwhile to the last result, because
/// a separate message would begin another turn of Claude Code.
fn result_lines(calls: &[CommandCall], replies: &[&ToolReply], new: &[Arc<Message>]) -> Option<Vec<Vec<u8>>> {
    let others = new.iter().filter(|message| matches!(message.role, Role::User | Role::System));
    let note = labelled(others.map(AsRef::as_ref));
    let last = calls.len().checked_sub(1)?;
    let line = |(at, call): (usize, &CommandCall)| {
        let reply = replies.iter().find(|reply| reply.call == call.id)?;
        Some(call.result(reply, if at == last { &note } else { "" }))
    };
    calls.iter().enumerate().map(line).collect()
}

/// The interval at which haft checks whether the run of a waiting process still exists.
const RUN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Holds a waiting process for a limited time, and only while a run can send the results.
pub(super) struct WaitingSlot {
    command: Arc<Mutex<Option<WaitingCommand>>>,
    expiry: AbortHandle,
}

impl WaitingSlot {
    /// Keeps the command until its time limit, or until the run drops `last`, the last message that the session has
    /// seen. The session itself holds one reference to this message.
    pub(super) fn new(command: WaitingCommand, last: Weak<Message>) -> Self {
        let command = Arc::new(Mutex::new(Some(command)));
        let weak = Arc::downgrade(&command);
        let expiry = tokio::spawn(async move {
            let _ = timeout(CALL_WAIT_MAX, until_run_is_gone(last)).await;
            let command = weak.upgrade();
            drop(command.and_then(|command| command.lock().unwrap_or_else(PoisonError::into_inner).take()));
        });
        Self { command, expiry: expiry.abort_handle() }
    }

    /// Returns the process, unless it waited too long.
    pub(super) fn take(self) -> Option<WaitingCommand> {
        self.command.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Waits until the run has dropped the message, so that only the session still holds it. The run was then cancelled or
/// failed. No later request can send the results, because it would have to contain this message.
async fn until_run_is_gone(last: Weak<Message>) {
    loop {
        // Sleep before the first check: the request that ended with the calls still holds the message too, and drops it
        // soon.
        sleep(RUN_CHECK_INTERVAL).await;
        if last.strong_count() <= 1 {
            return;
        }
    }
}

impl Drop for WaitingSlot {
    fn drop(&mut self) {
        self.expiry.abort();
    }
}

impl fmt::Debug for WaitingSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingSlot").finish_non_exhaustive()
    }
}
