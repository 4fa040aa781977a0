//! The progress and log messages of calls, and the requests of the client that get them. A call may outlive the request
//! that began it: a repeated request continues the call, or the call is a task.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use haft_core::event::{CallProgress, Event, EventSink};

use super::client_log::McpLogLevel;
use super::message;
use super::outbox::{MessageScope, Outbox};
use super::progress::ProgressCounter;

/// The requests that get the notices of one call. A notice is a progress notification or a log message.
#[derive(Debug, Default)]
pub(super) struct CallNotices(Mutex<NoticeState>);

#[derive(Debug, Default)]
struct NoticeState {
    /// The number that the next added receiver gets. The guard of a receiver removes it by its number.
    next: u64,
    receivers: Vec<(u64, NoticeReceiver)>,
    status: Option<ProgressText>,
}

/// The last progress text of a call, with its time.
#[derive(Debug, Clone)]
pub(super) struct ProgressText {
    pub(super) text: String,
    pub(super) at: SystemTime,
}

/// The notices that one request wants, and the place where they are sent.
#[derive(Debug)]
pub(super) struct NoticeReceiver {
    pub(super) out: Outbox,
    pub(super) scope: MessageScope,
    /// The progress that was sent to the request; `None` if the request has no progress token.
    pub(super) progress: Option<ProgressCounter>,
    /// The least severe level of log messages; `None` if the request asks for no level.
    pub(super) log_level: Option<McpLogLevel>,
}

impl NoticeReceiver {
    /// Sends progress, or a heartbeat if `progress` is `None`. Drops the notification if the outbox is full.
    fn send(&mut self, progress: Option<&CallProgress>) {
        if let Some(counter) = &mut self.progress {
            self.out.offer(self.scope.clone(), counter.next(progress));
        }
    }
}

impl CallNotices {
    /// Sends the notices to one more receiver, until the guard is dropped.
    pub(super) fn add(self: &Arc<Self>, receiver: NoticeReceiver) -> ReceivingRequest {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let wants_progress = receiver.progress.is_some();
        state.receivers.push((number, receiver));
        ReceivingRequest { notices: Arc::clone(self), number, wants_progress }
    }

    /// Returns the last progress text.
    pub(super) fn status(&self) -> Option<ProgressText> {
        self.lock().status.clone()
    }

    /// Returns the least severe level of log messages that a receiver asks for.
    pub(super) fn log_level(&self) -> Option<McpLogLevel> {
        self.lock().receivers.iter().filter_map(|(_, receiver)| receiver.log_level).min()
    }

    /// Sends a log message to the receivers that ask for its level.
    pub(super) fn log(&self, level: McpLogLevel, params: &str) {
        for (_, receiver) in &self.lock().receivers {
            if receiver.log_level.is_some_and(|wanted| level >= wanted) {
                let text = message::raw_notification("notifications/message", params);
                receiver.out.offer(receiver.scope.clone(), text);
            }
        }
    }

    fn progress(&self, progress: &CallProgress) {
        let mut state = self.lock();
        if let Some(text) = text_of(progress) {
            state.status = Some(ProgressText { text: text.to_owned(), at: SystemTime::now() });
        }
        state.receivers.iter_mut().for_each(|(_, receiver)| receiver.send(Some(progress)));
    }

    fn lock(&self) -> MutexGuard<'_, NoticeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text_of(progress: &CallProgress) -> Option<&str> {
    match progress {
        CallProgress::Message(text) => Some(text),
        CallProgress::Part { message, .. } => message.as_deref(),
        CallProgress::Amount(amount) => amount.message.as_deref(),
        CallProgress::Output(_) => None,
    }
}

/// A request that gets the notices of a call until this value is dropped.
#[derive(Debug)]
pub(super) struct ReceivingRequest {
    notices: Arc<CallNotices>,
    number: u64,
    wants_progress: bool,
}

impl ReceivingRequest {
    pub(super) fn wants_progress(&self) -> bool {
        self.wants_progress
    }

    /// Tells the client that the call continues, so that it does not give up while a user is asked.
    pub(super) fn beat(&self) {
        let mut state = self.notices.lock();
        if let Some((_, receiver)) = state.receivers.iter_mut().find(|(number, _)| *number == self.number) {
            receiver.send(None);
        }
    }
}

impl Drop for ReceivingRequest {
    fn drop(&mut self) {
        self.notices.lock().receivers.retain(|(number, _)| *number != self.number);
    }
}

/// The calls of one connection whose notices are sent, by the call ids that haft assigned.
#[derive(Debug, Default)]
pub(super) struct NoticeTable(Mutex<HashMap<String, Arc<CallNotices>>>);

impl NoticeTable {
    /// Sends the notices of a call to its receivers, until the guard is dropped.
    pub(super) fn watch(self: &Arc<Self>, call: &str) -> WatchedCall {
        let notices = Arc::<CallNotices>::default();
        self.lock().insert(call.to_owned(), Arc::clone(&notices));
        WatchedCall { table: Arc::clone(self), call: call.to_owned(), notices }
    }

    pub(super) fn of_call(&self, call: &str) -> Option<Arc<CallNotices>> {
        self.lock().get(call).cloned()
    }

    pub(super) fn progress(&self, call: &str, progress: &CallProgress) {
        if let Some(notices) = self.of_call(call) {
            notices.progress(progress);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<CallNotices>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for NoticeTable {
    fn emit(&self, event: Event) {
        if let Event::ToolProgress { operation, progress } = event {
            self.progress(&operation.call.0, &progress);
        }
    }
}

/// A call whose notices are sent until this value is dropped.
#[derive(Debug)]
pub(super) struct WatchedCall {
    table: Arc<NoticeTable>,
    call: String,
    pub(super) notices: Arc<CallNotices>,
}

impl Drop for WatchedCall {
    fn drop(&mut self) {
        self.table.lock().remove(&self.call);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::value::RawValue;
    use tokio::sync::mpsc;

    use super::super::outbox::OutMessage;
    use super::*;

    /// Returns a receiver with its messages.
    pub(in crate::mcp) fn receiver(
        token: Option<&str>,
        log_level: Option<McpLogLevel>,
    ) -> (NoticeReceiver, mpsc::Receiver<OutMessage>) {
        let (out, messages) = Outbox::new();
        let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
        let progress = token.map(|token| ProgressCounter::new(raw(token)));
        (NoticeReceiver { out, scope: MessageScope::Request(raw("7")), progress, log_level }, messages)
    }

    #[test]
    fn notices_of_a_call_reach_the_request_that_continues_it() {
        let table = Arc::<NoticeTable>::default();
        let watched = table.watch("c");
        let progress = |text: &str| table.progress("c", &CallProgress::Message(text.into()));
        let (first, mut first_messages) = receiver(Some("\"one\""), None);
        let (second, mut second_messages) = receiver(Some("\"two\""), None);
        let first = watched.notices.add(first);
        progress("a");
        drop(first);
        progress("b");
        let second = watched.notices.add(second);
        progress("c");
        second.beat();
        assert!(first_messages.try_recv().unwrap().text.contains("\"one\""));
        assert!(first_messages.try_recv().is_err(), "the first request has ended");
        assert!(second_messages.try_recv().unwrap().text.contains("\"message\":\"c\""));
        assert!(second_messages.try_recv().unwrap().text.contains("\"two\""));
        assert_eq!(watched.notices.status().unwrap().text, "c");
        drop(watched);
        progress("d");
        assert!(second_messages.try_recv().is_err(), "the call has ended");
    }
}
