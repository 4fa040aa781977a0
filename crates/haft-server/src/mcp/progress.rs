//! Progress notifications: the progress of tools, and heartbeats while a call waits.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haft_core::event::{CallProgress, Event, EventSink};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::message;
use super::outbox::{MessageScope, Outbox};

/// The interval between two heartbeats of a call. Clients commonly give up after 60 seconds without progress.
pub(super) const HEARTBEAT_PAUSE: Duration = Duration::from_secs(15);

/// The increment of the progress value per heartbeat. It is so small that heartbeats never reach the next real value.
const HEARTBEAT_STEP: f64 = 1e-6;

/// The calls whose progress is reported, by the call ids that haft assigned.
#[derive(Debug)]
pub(super) struct ProgressRelay {
    out: Outbox,
    wanted: Mutex<HashMap<String, ProgressCounter>>,
}

/// The receiver of progress: the token of the client, and the id of its request.
#[derive(Debug)]
pub(super) struct ProgressTarget {
    pub(super) token: Box<RawValue>,
    pub(super) request: Box<RawValue>,
}

/// The progress of one call. The protocol requires that each value is greater than the previous one.
#[derive(Debug)]
struct ProgressCounter {
    token: Box<RawValue>,
    /// The id of the request that the call belongs to.
    request: Box<RawValue>,
    last: f64,
}

impl ProgressCounter {
    /// Returns the next notification. Progress with a text increments the value by one. A total is sent only for progress
    /// that is a fraction.
    fn next(&mut self, progress: Option<&CallProgress>) -> String {
        let (value, message) = match progress {
            None | Some(CallProgress::Output(_)) => (0.0, None),
            Some(CallProgress::Message(text)) => (self.last.floor() + 1.0, Some(text.clone())),
            Some(CallProgress::Part { fraction, message }) => (*fraction, message.clone()),
        };
        self.last = value.max(self.last + HEARTBEAT_STEP);
        let token: Value = serde_json::from_str(self.token.get()).unwrap_or_default();
        let mut params = json!({ "progressToken": token, "progress": self.last });
        if matches!(progress, Some(CallProgress::Part { .. })) {
            params["total"] = 1.into();
        }
        if let Some(message) = message {
            params["message"] = message.into();
        }
        message::notification("notifications/progress", &params)
    }
}

impl ProgressRelay {
    pub(super) fn new(out: Outbox) -> Self {
        Self { out, wanted: Mutex::default() }
    }

    /// Reports the progress of a call until the guard is dropped.
    pub(super) fn watch(&self, call: &str, wanted: Option<ProgressTarget>) -> Option<WatchedProgress<'_>> {
        let ProgressTarget { token, request } = wanted?;
        let counter = ProgressCounter { token, request, last: 0.0 };
        self.wanted().insert(call.to_owned(), counter);
        Some(WatchedProgress { relay: self, call: call.to_owned() })
    }

    /// Sends progress, or a heartbeat if `progress` is `None`. Drops it if the outbox is full.
    pub(super) fn send(&self, call: &str, progress: Option<&CallProgress>) {
        if let Some(counter) = self.wanted().get_mut(call) {
            let text = counter.next(progress);
            self.out.offer(MessageScope::Request(counter.request.clone()), text);
        }
    }

    fn wanted(&self) -> MutexGuard<'_, HashMap<String, ProgressCounter>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for ProgressRelay {
    fn emit(&self, event: Event) {
        if let Event::ToolProgress { operation, progress } = event {
            self.send(&operation.call.0, Some(&progress));
        }
    }
}

/// Stops reporting the progress of a call when dropped.
#[derive(Debug)]
pub(super) struct WatchedProgress<'a> {
    relay: &'a ProgressRelay,
    call: String,
}

impl WatchedProgress<'_> {
    /// Tells the client that the call continues, so that it does not give up while a user is asked.
    pub(super) fn beat(&self) {
        self.relay.send(&self.call, None);
    }
}

impl Drop for WatchedProgress<'_> {
    fn drop(&mut self) {
        self.relay.wanted().remove(&self.call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_always_increases_and_heartbeats_stay_below_the_next_value() {
        let token = RawValue::from_string("\"a\"".into()).unwrap();
        let mut counter = ProgressCounter { request: token.clone(), token, last: 0.0 };
        let part = |fraction| CallProgress::Part { fraction, message: Some("m".into()) };
        let steps = [
            None,
            None,
            Some(part(0.25)),
            None,
            Some(part(0.2)),
            Some(part(1.0)),
            Some(CallProgress::Message("x".into())),
        ];
        let mut last = 0.0;
        for step in &steps {
            let sent: Value = serde_json::from_str(&counter.next(step.as_ref())).unwrap();
            let progress = sent["params"]["progress"].as_f64().unwrap();
            assert!(progress > last, "{sent}");
            assert_eq!(sent["params"]["progressToken"], "a");
            last = progress;
        }
        assert!((last - 2.0).abs() < 0.001, "a message increments the progress by one: {last}");
    }
}
