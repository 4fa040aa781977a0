//! Progress notifications: the progress of tools, and heartbeats while a call waits.

use std::time::Duration;

use haft_core::event::{CallProgress, ProgressAmount};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::message;

/// The interval between two heartbeats of a call. Clients commonly give up after 60 seconds without progress.
pub(super) const HEARTBEAT_PAUSE: Duration = Duration::from_secs(15);

/// The increment of the progress value per heartbeat. It is so small that heartbeats never reach the next real value.
const HEARTBEAT_STEP: f64 = 1e-6;

/// The increment of the progress value per message. It is so small that messages do not reach the amounts of a server,
/// which are usually whole numbers.
const MESSAGE_STEP: f64 = 1e-3;

/// The progress of one call. The protocol requires that each value is greater than the previous one.
#[derive(Debug)]
pub(super) struct ProgressCounter {
    token: Box<RawValue>,
    last: f64,
    /// The total in the last progress of the call that had one; `None` before that.
    total: Option<f64>,
}

impl ProgressCounter {
    /// Creates the counter for the token of a request.
    pub(super) fn new(token: Box<RawValue>) -> Self {
        Self { token, last: 0.0, total: None }
    }

    /// Returns the next notification. Amounts of a server are passed on while they grow.
    pub(super) fn next(&mut self, progress: Option<&CallProgress>) -> String {
        let (value, total, message) = match progress {
            None | Some(CallProgress::Output(_)) => (0.0, None, None),
            Some(CallProgress::Message(text)) => (self.after(MESSAGE_STEP), self.total, Some(text.clone())),
            Some(CallProgress::Part { fraction, message }) => (*fraction, Some(1.0), message.clone()),
            Some(CallProgress::Amount(ProgressAmount { done, total, message })) => {
                (*done, *total, message.clone())
            }
        };
        self.total = total.or(self.total);
        self.last = value.max(self.after(HEARTBEAT_STEP));
        let token: Value = serde_json::from_str(self.token.get()).unwrap_or_default();
        let mut params = json!({ "progressToken": token, "progress": self.last });
        if let Some(total) = total {
            params["total"] = total.into();
        }
        if let Some(message) = message {
            params["message"] = message.into();
        }
        message::notification("notifications/progress", &params)
    }

    /// Returns a value after the last one. A large value plus a small step is the same value, for example a number of bytes
    /// beyond 16 GiB, so this returns at least the next number.
    fn after(&self, step: f64) -> f64 {
        (self.last + step).max(self.last.next_up())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_always_increases_and_heartbeats_stay_below_the_next_value() {
        let token = RawValue::from_string("\"a\"".into()).unwrap();
        let mut counter = ProgressCounter::new(token);
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
        assert!((1.001..1.01).contains(&last), "a message increments the progress a little: {last}");
    }

    #[test]
    fn progress_increases_after_an_amount_beside_which_a_step_is_lost() {
        let mut counter = ProgressCounter::new(RawValue::from_string("1".into()).unwrap());
        let amount = ProgressAmount { done: 2e16, total: None, message: None };
        let mut last = 0.0;
        for step in [
            Some(CallProgress::Amount(ProgressAmount { done: 2e10, ..amount.clone() })),
            None,
            Some(CallProgress::Amount(amount)),
            None,
            Some(CallProgress::Message("m".into())),
        ] {
            let sent: Value = serde_json::from_str(&counter.next(step.as_ref())).unwrap();
            let progress = sent["params"]["progress"].as_f64().unwrap();
            assert!(progress > last, "{sent}");
            last = progress;
        }
    }

    #[test]
    fn amounts_and_totals_of_a_server_are_passed_on_while_they_grow() {
        let token = RawValue::from_string("7".into()).unwrap();
        let mut counter = ProgressCounter::new(token);
        let amount = |done, total| {
            Some(CallProgress::Amount(ProgressAmount { done, total: Some(total), message: None }))
        };
        let mut check = |progress: Option<CallProgress>, (value, total): (f64, Option<f64>)| {
            let sent: Value = serde_json::from_str(&counter.next(progress.as_ref())).unwrap();
            let params = &sent["params"];
            assert!((params["progress"].as_f64().unwrap() - value).abs() < 0.0005, "{sent}");
            assert_eq!(params["total"].as_f64(), total, "{sent}");
        };
        check(amount(10.0, 300.0), (10.0, Some(300.0)));
        check(None, (10.0, None));
        check(amount(120.0, 300.0), (120.0, Some(300.0)));
        // The protocol requires that the value grows.
        check(amount(60.0, 300.0), (120.0, Some(300.0)));
        check(Some(CallProgress::Message("m".into())), (120.001, Some(300.0)));
        check(amount(300.0, 300.0), (300.0, Some(300.0)));
    }
}
