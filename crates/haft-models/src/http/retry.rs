//! Decides whether and when to retry a failed request, as a pure function.

use std::time::Duration;

use haft_core::model_error::ModelError;
use haft_core::settings::models::RetryPolicy;

/// Returns the delay before the next attempt, or `None` to give up. A retry cannot help if the quota is spent, the key
/// is wrong or the request is invalid.
pub fn delay(policy: &RetryPolicy, error: &ModelError, number: u32, jitter: f64) -> Option<Duration> {
    if error.kind.row().retryable { policy.delay(number, error.retry_after, jitter) } else { None }
}

#[cfg(test)]
mod tests {
    use haft_core::model_error::ModelErrorKind;

    use super::*;

    const POLICY: RetryPolicy = RetryPolicy {
        attempts_max: 4,
        delay_first: Duration::from_secs(1),
        delay_max: Duration::from_secs(3),
        retry_after_max: Duration::from_mins(1),
    };

    fn check(kind: ModelErrorKind, retry_after: Option<u64>, number: u32, expected: Option<u64>) {
        let retry_after = retry_after.map(Duration::from_secs);
        let error = ModelError { retry_after, ..ModelError::new(kind, "x") };
        let expected = expected.map(Duration::from_millis);
        assert_eq!(delay(&POLICY, &error, number, 1.0), expected, "{kind:?} {retry_after:?} {number}");
    }

    #[test]
    fn retry_delay_doubles_up_to_a_maximum_and_attempts_are_limited() {
        check(ModelErrorKind::Overloaded, None, 1, Some(1000));
        check(ModelErrorKind::ServerFailed, None, 2, Some(2000));
        check(ModelErrorKind::Unreachable, None, 3, Some(3000));
        check(ModelErrorKind::Unreachable, None, 4, None);
    }

    #[test]
    fn retry_after_is_the_minimum_delay_or_prevents_the_retry() {
        check(ModelErrorKind::RateLimited, Some(10), 1, Some(10_250));
        check(ModelErrorKind::RateLimited, Some(60), 1, Some(60_250));
        check(ModelErrorKind::RateLimited, Some(61), 1, None);
    }

    #[test]
    fn non_retryable_errors_are_not_retried() {
        for kind in ModelErrorKind::ALL.into_iter().filter(|kind| !kind.row().retryable) {
            check(kind, None, 1, None);
        }
        check(ModelErrorKind::QuotaExhausted, Some(1), 1, None);
    }

    #[test]
    fn jitter_at_most_halves_the_delay() {
        let error = ModelError::new(ModelErrorKind::Overloaded, "x");
        assert_eq!(delay(&POLICY, &error, 1, 0.0), Some(Duration::from_millis(500)));
    }
}
