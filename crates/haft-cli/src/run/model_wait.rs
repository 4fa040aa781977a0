//! The wait for a model: the status line, and the lines about failed requests.

use std::time::{Duration, Instant};

use haft_core::duration_text::measured;
use haft_core::model_error::ModelErrorKind;
use haft_core::model_provider::{AttemptFollowUp, ModelAccount, ModelAttempt};

use crate::terminal;

/// The time before the wait is shown. Most replies begin earlier, and a line that appears only briefly is distracting.
const SHOWN_AFTER: Duration = Duration::from_millis(500);

/// A model request whose reply has not shown any text yet.
#[derive(Debug)]
pub(super) struct ModelWait {
    model: String,
    phase: WaitPhase,
    began: Instant,
}

#[derive(Debug, PartialEq, Eq)]
enum WaitPhase {
    Asked,
    Thinking,
    /// The next attempt starts at this time.
    Retry {
        at: Instant,
        kind: ModelErrorKind,
    },
    /// This model failed, and no further attempt was announced.
    Failed(ModelErrorKind),
}

impl ModelWait {
    /// Starts the wait for an attempt that has begun.
    pub(super) fn started(attempt: &ModelAttempt, now: Instant) -> Self {
        Self { model: name(attempt), phase: WaitPhase::Asked, began: now }
    }

    /// Starts the wait after a failed attempt; returns `None` if the attempt succeeded.
    pub(super) fn failed(attempt: &ModelAttempt, account: &ModelAccount, now: Instant) -> Option<Self> {
        let kind = account.failure?;
        let phase = match account.next {
            AttemptFollowUp::Retry { after } => WaitPhase::Retry { at: now + after, kind },
            AttemptFollowUp::Nothing => WaitPhase::Failed(kind),
        };
        Some(Self { model: name(attempt), phase, began: now })
    }

    /// Records that the model has begun to reason.
    pub(super) fn think(&mut self) {
        self.phase = WaitPhase::Thinking;
    }

    /// Returns the text of the status line and the elapsed time; `None` while there is nothing to show.
    pub(super) fn status(&self, now: Instant) -> Option<(String, String)> {
        let model = &self.model;
        let waited = now.saturating_duration_since(self.began);
        let text = match self.phase {
            WaitPhase::Asked | WaitPhase::Thinking if waited < SHOWN_AFTER => return None,
            WaitPhase::Asked => format!("waiting for {model}"),
            WaitPhase::Thinking => format!("{model} is thinking"),
            WaitPhase::Retry { at, kind } => {
                let left = at.saturating_duration_since(now);
                return Some((format!("{model}: {}; next attempt in", kind.name()), measured(left)));
            }
            WaitPhase::Failed(_) => return None,
        };
        Some((text, measured(waited)))
    }

    /// Returns the line for a wait that the user must see: an attempt failed and another one follows.
    pub(super) fn retry_line(&self) -> Option<String> {
        let WaitPhase::Retry { at, kind } = self.phase else { return None };
        let after = measured(at.saturating_duration_since(self.began));
        Some(format!("{}: {} ({}); next attempt in {after}", self.model, kind.name(), kind.row().hint))
    }

    /// Returns the line for a model that replaces another one after a failure.
    pub(super) fn fallback_line(&self, next: &ModelAttempt) -> Option<String> {
        let WaitPhase::Failed(kind) = self.phase else { return None };
        let next = name(next);
        (next != self.model).then(|| format!("{}: {}; haft asks {next} instead", self.model, kind.name()))
    }
}

fn name(attempt: &ModelAttempt) -> String {
    terminal::harmless(&format!("{}/{}", attempt.provider, attempt.model))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(model: &str) -> ModelAttempt {
        ModelAttempt { provider: "openai".into(), model: model.into(), number: 1 }
    }

    fn failed(next: AttemptFollowUp, now: Instant) -> ModelWait {
        let failure = Some(ModelErrorKind::Overloaded);
        let latency = Duration::ZERO;
        let account = ModelAccount { failure, latency, first_event: None, usage: None, cost: None, next };
        ModelWait::failed(&attempt("m"), &account, now).unwrap()
    }

    #[test]
    fn wait_line_names_the_model_and_the_waiting_time() {
        let now = Instant::now();
        let mut wait = ModelWait::started(&attempt("m"), now);
        assert_eq!(wait.status(now), None);
        let later = now + Duration::from_secs(2);
        assert_eq!(wait.status(later), Some(("waiting for openai/m".into(), "2 s".into())));
        wait.think();
        assert_eq!(wait.status(later), Some(("openai/m is thinking".into(), "2 s".into())));
        assert_eq!((wait.retry_line(), wait.fallback_line(&attempt("n"))), (None, None));
    }

    #[test]
    fn retry_line_states_the_reason_and_the_delay() {
        let now = Instant::now();
        let wait = failed(AttemptFollowUp::Retry { after: Duration::from_secs(3) }, now);
        let line = wait.retry_line().unwrap();
        assert!(
            line.starts_with("openai/m: overloaded (") && line.ends_with("next attempt in 3 s"),
            "{line}"
        );
        let status = wait.status(now + Duration::from_secs(1));
        assert_eq!(status, Some(("openai/m: overloaded; next attempt in".into(), "2 s".into())));
    }

    #[test]
    fn fallback_line_names_the_next_model() {
        let wait = failed(AttemptFollowUp::Nothing, Instant::now());
        let line = wait.fallback_line(&attempt("n"));
        assert_eq!(line.as_deref(), Some("openai/m: overloaded; haft asks openai/n instead"));
        assert_eq!(wait.fallback_line(&attempt("m")), None);
    }
}
