//! Decides if and when a failed request is sent again, as a pure function.

use std::time::Duration;

use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::settings::models::RetryPolicy;

/// The reaction to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    GiveUp,
    Again { after: Duration },
}

/// Decides after attempt `number`, counted from 1. `jitter` is between 0 and 1; it spreads out the retries of
/// clients that failed at the same time.
pub fn decide(policy: &RetryPolicy, error: &ModelError, number: u32, jitter: f64) -> RetryDecision {
    let wanted = error.retry_after.unwrap_or_default();
    if !is_worth_it(error.kind) || number >= policy.attempts_max || wanted > policy.retry_after_max {
        return RetryDecision::GiveUp;
    }
    let backoff = policy.delay_first.saturating_mul(1 << (number - 1).min(16)).min(policy.delay_max);
    let spread = backoff.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0));
    // The provider's delay is a lower bound. The jitter on top keeps clients that got the same delay from returning
    // all at once.
    RetryDecision::Again { after: if wanted.is_zero() { spread } else { wanted + spread / 4 } }
}

/// Returns whether a retry can succeed. It cannot for a spent quota, a wrong key or an invalid request.
fn is_worth_it(kind: ModelErrorKind) -> bool {
    kind.row().retryable
}

#[cfg(test)]
mod tests {
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
        let expected = match expected {
            Some(millis) => RetryDecision::Again { after: Duration::from_millis(millis) },
            None => RetryDecision::GiveUp,
        };
        assert_eq!(decide(&POLICY, &error, number, 1.0), expected, "{kind:?} {retry_after:?} {number}");
    }

    #[test]
    fn retry_delay_doubles_up_to_a_maximum_and_attempts_are_limited() {
        check(ModelErrorKind::Overloaded, None, 1, Some(1000));
        check(ModelErrorKind::ServerFailed, None, 2, Some(2000));
        check(ModelErrorKind::Unreachable, None, 3, Some(3000));
        check(ModelErrorKind::Unreachable, None, 4, None);
    }

    #[test]
    fn retry_after_is_the_minimum_delay_and_too_long_means_no_retry() {
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
        let least = decide(&POLICY, &error, 1, 0.0);
        assert_eq!(least, RetryDecision::Again { after: Duration::from_millis(500) });
    }
}
