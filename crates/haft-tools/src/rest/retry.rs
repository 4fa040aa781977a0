//! Decides whether a failed request is retried, and after which delay.

use std::time::Duration;

use haft_core::settings::method::Method;
use haft_core::settings::models::RetryPolicy;

/// The outcome of one attempt to send a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestAttemptOutcome {
    /// The server answered with this status, and with this delay in its `Retry-After` header.
    Status(u16, Option<Duration>),
    /// The connection could not be opened, so nothing was sent.
    NotConnected,
    /// The connection broke after the request was sent.
    Broken,
}

/// The retry policy: at most two retries. If the server asks for a wait of more than 20 seconds, the model gets the
/// response instead of a retry.
const POLICY: RetryPolicy = RetryPolicy {
    attempts_max: 3,
    delay_first: Duration::from_millis(250),
    delay_max: Duration::from_secs(20),
    retry_after_max: Duration::from_secs(20),
};

/// Returns the delay after failed attempt `number`, counted from 1, or `None` for no retry. Only repeatable methods are
/// retried.
pub(super) fn delay(method: Method, number: u32, outcome: RestAttemptOutcome) -> Option<Duration> {
    let retry_after = match outcome {
        RestAttemptOutcome::Status(429 | 502 | 503 | 504, retry_after) => retry_after,
        RestAttemptOutcome::Status(..) => return None,
        RestAttemptOutcome::NotConnected | RestAttemptOutcome::Broken => None,
    };
    // Use no jitter: one run sends few requests to one service, so retries do not come in waves.
    if method.is_repeatable() { POLICY.delay(number, retry_after, 1.0) } else { None }
}

/// Parses `Retry-After`, which is a number of seconds or a date.
pub(super) fn retry_after(text: &str, now: jiff::Timestamp) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text.trim()).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_idempotent_requests_with_transient_failures_are_retried() {
        let check = |method: Method, number: u32, outcome: RestAttemptOutcome, expected: Option<u64>| {
            let expected = expected.map(Duration::from_millis);
            assert_eq!(delay(method, number, outcome), expected, "{method:?} {outcome:?}");
        };
        check(Method::Get, 1, RestAttemptOutcome::Status(503, None), Some(250));
        check(Method::Get, 2, RestAttemptOutcome::Status(503, None), Some(500));
        check(Method::Get, 3, RestAttemptOutcome::Status(503, None), None);
        check(Method::Delete, 1, RestAttemptOutcome::Broken, Some(250));
        check(Method::Get, 2, RestAttemptOutcome::Status(429, Some(Duration::from_secs(3))), Some(3125));
        check(Method::Get, 1, RestAttemptOutcome::Status(429, Some(Duration::from_mins(5))), None);
        check(Method::Get, 1, RestAttemptOutcome::Status(500, None), None);
        check(Method::Get, 1, RestAttemptOutcome::Status(404, None), None);
        check(Method::Post, 1, RestAttemptOutcome::Status(503, None), None);
        check(Method::Patch, 1, RestAttemptOutcome::NotConnected, None);
    }

    #[test]
    fn retry_after_is_parsed_as_seconds_or_http_date() {
        let now: jiff::Timestamp = "2024-10-21T07:28:00Z".parse().unwrap();
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(retry_after(text, now), expected.map(Duration::from_secs), "{text}");
        };
        check("7", Some(7));
        check("Mon, 21 Oct 2024 07:28:05 GMT", Some(5));
        check("Mon, 21 Oct 2024 07:27:00 GMT", Some(0));
        check("soon", None);
    }
}
