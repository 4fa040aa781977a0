//! Log lines of model requests.

use haft_core::approval::shown;
use haft_core::event::Event;
use haft_core::model_error::ModelErrorKind;
use haft_core::model_provider::{AttemptFollowUp, ModelAccount, ModelAttempt};
use haft_core::position::RunPosition;

use super::LogLevel;

/// One line: the start of a model request, or its end.
pub(super) struct ModelLogLine<'e> {
    place: RunPosition,
    attempt: &'e ModelAttempt,
    /// The figures of the finished request; `None` while the request is in progress.
    account: Option<&'e ModelAccount>,
}

impl<'e> ModelLogLine<'e> {
    pub(super) fn of(event: &'e Event) -> Option<Self> {
        match event {
            Event::ModelStarted { place, attempt, .. } => {
                Some(Self { place: *place, attempt, account: None })
            }
            Event::ModelFinished { place, attempt, account, .. } => {
                Some(Self { place: *place, attempt, account: Some(account) })
            }
            Event::ToolStarted { .. }
            | Event::ToolProgress { .. }
            | Event::ToolFinished { .. }
            | Event::Run { .. } => None,
        }
    }

    /// Returns `warn` for a failure that is retried and for a cancelled request, and `error` for a final failure.
    pub(super) fn level(&self) -> LogLevel {
        match self.account.map(|account| (account.failure, account.next)) {
            None | Some((None, _)) => LogLevel::Info,
            Some((Some(ModelErrorKind::Cancelled), _) | (Some(_), AttemptFollowUp::Retry { .. })) => {
                LogLevel::Warn
            }
            Some((Some(_), AttemptFollowUp::Nothing)) => LogLevel::Error,
        }
    }

    pub(super) fn text(&self) -> String {
        let severity = match self.level() {
            LogLevel::Error => "ERR",
            LogLevel::Warn => "WRN",
            LogLevel::Info | LogLevel::Off => "INF",
        };
        let (turn, name) = (self.place.turn, self.name());
        let number = self.attempt.number;
        let Some(account) = self.account else {
            let again = if number > 1 { format!(" [attempt {number}]") } else { String::new() };
            return format!("{severity} {turn} → model {name}{again}");
        };
        let mut facts = vec![format!("{} ms", account.latency.as_millis())];
        facts.extend(account.usage.map(|usage| format!("{} tokens in, {} out", usage.input, usage.output)));
        facts.extend(account.cost.map(|cost| cost.to_string()));
        let failure = account.failure.map(|kind| format!(" {}: {}", kind.name(), kind.row().hint));
        let next = match account.next {
            AttemptFollowUp::Nothing => String::new(),
            AttemptFollowUp::Retry { after } => format!(" (again after {} ms)", after.as_millis()),
        };
        format!(
            "{severity} {turn} ← model {name} [{}]{}{next}",
            facts.join(", "),
            failure.unwrap_or_default()
        )
    }

    fn name(&self) -> String {
        shown(&format!("{}:{}", self.attempt.provider, self.attempt.model))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use haft_core::model_reply::TokenUsage;
    use haft_core::price::Cost;
    use haft_core::provider::Principal;

    use super::*;

    fn finished(failure: Option<ModelErrorKind>, next: AttemptFollowUp) -> Event {
        let usage = Some(TokenUsage { input: 10, output: 2, ..TokenUsage::default() });
        let cost = Some(Cost { nano_usd: 3_000 });
        let latency = Duration::from_millis(7);
        Event::ModelFinished {
            id: "1".into(),
            place: RunPosition { turn: 2, ..RunPosition::default() },
            attempt: ModelAttempt { provider: "openai".into(), model: "m\u{1b}".into(), number: 1 },
            principal: Principal::local(),
            account: ModelAccount { failure, latency, first_event: None, usage, cost, next },
        }
    }

    #[test]
    fn model_log_line_has_level_tokens_cost_and_retry_delay() {
        let check =
            |event: &Event, expected: &str| assert_eq!(ModelLogLine::of(event).unwrap().text(), expected);
        let ok = finished(None, AttemptFollowUp::Nothing);
        check(&ok, "INF 2 ← model openai:m\\u{1b} [7 ms, 10 tokens in, 2 out, $0.000003]");
        let retried = finished(
            Some(ModelErrorKind::Overloaded),
            AttemptFollowUp::Retry { after: Duration::from_millis(5) },
        );
        let text = ModelLogLine::of(&retried).unwrap().text();
        assert!(text.starts_with("WRN 2 ← ") && text.ends_with("(again after 5 ms)"), "{text}");
        let failed = finished(Some(ModelErrorKind::Unauthorized), AttemptFollowUp::Nothing);
        assert_eq!(ModelLogLine::of(&failed).unwrap().level(), LogLevel::Error);
    }
}
