//! Decides whether to resume a session, and after what delay.

use std::time::Duration;

use super::ClaudeCodeSettings;
use super::reader::ClaudeFailure;

/// The maximum delay, unless the provider asks for a longer one.
const DELAY_MAX: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResumeDecision {
    Again { after: Duration },
    GiveUp,
}

/// Decides whether to resume a session. `resumed` is the number of resumes so far.
pub(super) fn decide(
    settings: &ClaudeCodeSettings,
    failed: &ClaudeFailure,
    session: Option<&str>,
    resumed: u32,
) -> ResumeDecision {
    let helps = match failed {
        ClaudeFailure::TurnsUsedUp | ClaudeFailure::Died(_) => true,
        ClaudeFailure::Refused(error) => error.is_retryable(),
        ClaudeFailure::NotStarted(_) => false,
    };
    if !helps || session.is_none() || resumed >= settings.resumes_max {
        return ResumeDecision::GiveUp;
    }
    let after = settings.resume_delay.saturating_mul(1 << resumed.min(16));
    let asked_for = match failed {
        ClaudeFailure::Refused(error) => error.retry_after.unwrap_or_default(),
        ClaudeFailure::TurnsUsedUp | ClaudeFailure::Died(_) | ClaudeFailure::NotStarted(_) => Duration::ZERO,
    };
    ResumeDecision::Again { after: after.min(DELAY_MAX).max(asked_for) }
}

#[cfg(test)]
mod tests {
    use haft_core::model_error::{ModelError, ModelErrorKind};

    use super::*;

    #[test]
    fn resume_delay_doubles_and_attempts_are_limited() {
        let settings = ClaudeCodeSettings::default();
        let waits: Vec<_> = (0..6)
            .map(|resumed| decide(&settings, &ClaudeFailure::TurnsUsedUp, Some("s"), resumed))
            .collect();
        let again = |seconds| ResumeDecision::Again { after: Duration::from_secs(seconds) };
        assert_eq!(waits, [again(2), again(4), again(8), again(16), again(32), ResumeDecision::GiveUp]);
    }

    #[test]
    fn only_transient_failures_with_a_session_are_resumed() {
        let settings = ClaudeCodeSettings::default();
        let refused = |kind| ClaudeFailure::Refused(ModelError::new(kind, "x"));
        let check = |failed: ClaudeFailure, session: Option<&str>, again: bool| {
            let decision = decide(&settings, &failed, session, 0);
            assert_eq!(decision != ResumeDecision::GiveUp, again, "{failed:?}");
        };
        check(ClaudeFailure::Died("x".into()), Some("s"), true);
        check(ClaudeFailure::Died("x".into()), None, false);
        check(ClaudeFailure::NotStarted("x".into()), Some("s"), false);
        check(refused(ModelErrorKind::Overloaded), Some("s"), true);
        check(refused(ModelErrorKind::Unauthorized), Some("s"), false);
    }
}
