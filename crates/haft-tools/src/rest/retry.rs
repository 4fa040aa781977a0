//! Decides whether a failed request is retried, and after which delay.

use std::time::Duration;

use haft_core::settings::method::Method;

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestAttemptOutcome {
    /// A response with this status and the delay from its `Retry-After` header.
    Status(u16, Option<Duration>),
    /// No connection: nothing was sent.
    NotConnected,
    /// The connection broke after the request was sent.
    Broken,
}

/// The number of retries.
const AGAIN_MAX: u32 = 2;

/// The delay before the first retry; it doubles with each further one.
const WAIT_FIRST: Duration = Duration::from_millis(250);

/// The longest delay. If the server asks for a longer one, the model gets the response instead of a retry.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Returns the delay before a retry, or `None` for no retry. Only repeatable methods are retried.
pub(super) fn wait(method: Method, sent_again: u32, came: RestAttemptOutcome) -> Option<Duration> {
    if !method.is_repeatable() || sent_again >= AGAIN_MAX {
        return None;
    }
    let asked = match came {
        RestAttemptOutcome::Status(429 | 502 | 503 | 504, asked) => asked,
        RestAttemptOutcome::Status(..) => return None,
        RestAttemptOutcome::NotConnected | RestAttemptOutcome::Broken => None,
    };
    let wait = asked.unwrap_or(WAIT_FIRST * 2_u32.pow(sent_again));
    (wait <= WAIT_MAX).then_some(wait)
}

/// Parses `Retry-After` in either form: seconds, or a date.
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
        let check = |method: Method, sent: u32, came: RestAttemptOutcome, expected: Option<u64>| {
            assert_eq!(wait(method, sent, came), expected.map(Duration::from_millis), "{method:?} {came:?}");
        };
        check(Method::Get, 0, RestAttemptOutcome::Status(503, None), Some(250));
        check(Method::Get, 1, RestAttemptOutcome::Status(503, None), Some(500));
        check(Method::Get, 2, RestAttemptOutcome::Status(503, None), None);
        check(Method::Delete, 0, RestAttemptOutcome::Broken, Some(250));
        check(Method::Get, 0, RestAttemptOutcome::Status(429, Some(Duration::from_secs(3))), Some(3000));
        check(Method::Get, 0, RestAttemptOutcome::Status(429, Some(Duration::from_mins(5))), None);
        check(Method::Get, 0, RestAttemptOutcome::Status(500, None), None);
        check(Method::Get, 0, RestAttemptOutcome::Status(404, None), None);
        check(Method::Post, 0, RestAttemptOutcome::Status(503, None), None);
        check(Method::Patch, 0, RestAttemptOutcome::NotConnected, None);
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
