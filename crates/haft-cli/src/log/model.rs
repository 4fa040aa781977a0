//! Log lines of attempts at model requests.

use haft_core::approval::shown;
use haft_core::event::Event;
use haft_core::model_error::ModelErrorKind;
use haft_core::model_provider::{Attempt, ModelAccount, Next};
use haft_core::place::Place;

use super::Level;

/// One line: the start of an attempt, or its end.
pub(super) struct ModelLine<'e> {
    place: Place,
    attempt: &'e Attempt,
    /// `None` while the attempt is in progress.
    account: Option<&'e ModelAccount>,
}

impl<'e> ModelLine<'e> {
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

    /// Returns a warning for a failure that is retried or a cancelled attempt, and an error for a final failure.
    pub(super) fn level(&self) -> Level {
        match self.account.map(|account| (account.failure, account.next)) {
            None | Some((None, _)) => Level::Info,
            Some((Some(ModelErrorKind::Cancelled), _) | (Some(_), Next::Retry { .. })) => Level::Warn,
            Some((Some(_), Next::Nothing)) => Level::Error,
        }
    }

    pub(super) fn text(&self) -> String {
        let severity = match self.level() {
            Level::Error => "ERR",
            Level::Warn => "WRN",
            Level::Info | Level::Off => "INF",
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
            Next::Nothing => String::new(),
            Next::Retry { after } => format!(" (again after {} ms)", after.as_millis()),
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

    use haft_core::model_reply::Usage;
    use haft_core::price::Cost;
    use haft_core::provider::Principal;

    use super::*;

    fn finished(failure: Option<ModelErrorKind>, next: Next) -> Event {
        let usage = Some(Usage { input: 10, output: 2, ..Usage::default() });
        let cost = Some(Cost { nano_usd: 3_000 });
        let latency = Duration::from_millis(7);
        Event::ModelFinished {
            id: "1".into(),
            place: Place { turn: 2, ..Place::default() },
            attempt: Attempt { provider: "openai".into(), model: "m\u{1b}".into(), number: 1 },
            principal: Principal::local(),
            account: ModelAccount { failure, latency, first_event: None, usage, cost, next },
        }
    }

    #[test]
    fn a_line_says_how_it_went_and_what_it_cost() {
        let check =
            |event: &Event, expected: &str| assert_eq!(ModelLine::of(event).unwrap().text(), expected);
        let ok = finished(None, Next::Nothing);
        check(&ok, "INF 2 ← model openai:m\\u{1b} [7 ms, 10 tokens in, 2 out, $0.000003]");
        let retried =
            finished(Some(ModelErrorKind::Overloaded), Next::Retry { after: Duration::from_millis(5) });
        let text = ModelLine::of(&retried).unwrap().text();
        assert!(text.starts_with("WRN 2 ← ") && text.ends_with("(again after 5 ms)"), "{text}");
        let failed = finished(Some(ModelErrorKind::Unauthorized), Next::Nothing);
        assert_eq!(ModelLine::of(&failed).unwrap().level(), Level::Error);
    }
}
