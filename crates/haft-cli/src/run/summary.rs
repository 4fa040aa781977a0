//! The end of a run: its exit code, and its messages.

use std::time::Duration;

use haft_core::duration_text::measured;
use haft_core::internal_tools::final_report::ReportStatus;
use haft_core::position::SessionId;
use haft_core::run::event::RunBill;
use haft_core::run::finish::{FinishClass, FinishReason, RunAnswer, RunFinish};

use crate::cli_error::CliError;
use crate::exit::ExitReason;
use crate::hints;
use crate::terminal::counted;

/// The number of turns and calls, the tokens, the cost and the time of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunSummary {
    pub(super) session: SessionId,
    pub(super) turns: u32,
    pub(super) took: Duration,
    pub(super) bill: RunBill,
    /// The number of denied calls.
    pub(super) denied: u64,
    pub(super) exit: ExitReason,
}

/// Returns the exit code. Only a run with a complete answer is a success.
pub(crate) fn exit(finish: &RunFinish, denied_calls: u64) -> ExitReason {
    let failed = if denied_calls > 0 { ExitReason::Denied } else { ExitReason::Failed };
    match (&finish.reason, finish.reason.row().class) {
        (FinishReason::ModelFailed(kind), _) => (*kind).into(),
        (_, FinishClass::Answered) => match &finish.answer {
            Some(RunAnswer::Report(report)) if report.status != ReportStatus::Success => failed,
            Some(RunAnswer::Text(_) | RunAnswer::Report(_)) => ExitReason::Success,
            None => failed,
        },
        (_, FinishClass::Limited) => ExitReason::Limit,
        (_, FinishClass::Budget) => ExitReason::Budget,
        (_, FinishClass::Interrupted) => ExitReason::Cancelled,
        (_, FinishClass::TimedOut) => ExitReason::Timeout,
        (_, FinishClass::Failed) => failed,
    }
}

fn hint(finish: &RunFinish) -> &'static str {
    match &finish.reason {
        FinishReason::ModelFailed(kind) => kind.row().hint,
        reason => hints::finish(reason).unwrap_or(reason.row().hint),
    }
}

/// Returns the details of the end, without a hint. The message of a model error ends with a hint, which is printed on a
/// separate line.
pub(crate) fn detail(finish: &RunFinish) -> &str {
    let whole = finish.detail.as_str();
    let detail = whole.strip_suffix(hint(finish)).map_or(whole, |detail| detail.trim_end_matches("; "));
    if detail.is_empty() { finish.reason.name() } else { detail }
}

/// Returns the error message for the user; `None` for a successful run.
pub(super) fn complaint(finish: &RunFinish, exit: ExitReason) -> Option<CliError> {
    let failed = |message: String| Some(CliError::new(exit, message));
    let (row, hint, detail) = (finish.reason.row(), hint(finish), detail(finish));
    match row.class {
        FinishClass::Answered if exit == ExitReason::Success => None,
        FinishClass::Answered => failed("the model reports that it did not complete the task".into()),
        // Add no hint: the line about the stored session already shows the next step.
        FinishClass::Interrupted => failed(format!("the run ended early: {detail}")),
        FinishClass::Limited | FinishClass::Budget | FinishClass::TimedOut | FinishClass::Failed => {
            failed(format!("the run ended early: {detail}")).map(|error| error.with_hint(hint))
        }
    }
}

/// Formats one line with turns, calls, tokens, cost and time.
pub(super) fn line(summary: &RunSummary) -> String {
    let RunBill { usage, cost, unpriced, calls, requests } = summary.bill;
    let price = match (unpriced, requests) {
        (0, 1..) => format!(", {cost}"),
        (unpriced, requests) if unpriced < requests => format!(", at least {cost}"),
        _ => String::new(),
    };
    let denied = match summary.denied {
        0 => String::new(),
        denied => format!(" ({denied} denied)"),
    };
    let cached = match usage.cache_read {
        0 => String::new(),
        cached => format!(" ({cached} cached, {} fresh)", usage.input.saturating_sub(cached)),
    };
    format!(
        "{}, {}{denied}, {} tokens read{cached}, {} written{price}, {}",
        counted(summary.turns, "turn"),
        counted(calls, "call"),
        usage.input,
        usage.output,
        measured(summary.took)
    )
}

/// Returns the line about the stored state of an interrupted run, and how to continue it.
pub(super) fn stored_line(summary: &RunSummary) -> String {
    format!(
        "the run is stored with {} and {}; `haft resume last` continues it (session {})",
        counted(summary.turns, "turn"),
        counted(summary.bill.calls, "call"),
        &summary.session.to_string()[..8]
    )
}

#[cfg(test)]
mod tests {
    use haft_core::model_error::ModelErrorKind;
    use haft_core::model_reply::TokenUsage;

    use super::*;

    fn finish(reason: FinishReason, answer: Option<&str>) -> RunFinish {
        let answer = answer.map(|text| RunAnswer::Text(text.into()));
        RunFinish { reason, answer, detail: String::new(), ended_ms: None, retry_after: None }
    }

    #[test]
    fn only_completed_run_with_answer_exits_successfully() {
        let check = |reason: FinishReason, answer: Option<&str>, denied: u64, expected: ExitReason| {
            let finish = finish(reason, answer);
            assert_eq!(exit(&finish, denied), expected, "{finish:?}");
            assert_eq!(complaint(&finish, expected).is_none(), expected == ExitReason::Success);
        };
        check(FinishReason::Completed, Some("x"), 0, ExitReason::Success);
        check(FinishReason::Completed, Some("x"), 1, ExitReason::Success);
        check(FinishReason::Completed, None, 0, ExitReason::Failed);
        check(FinishReason::MaxTurns, Some("x"), 0, ExitReason::Limit);
        check(FinishReason::ContextFull, Some("x"), 0, ExitReason::Limit);
        check(FinishReason::Budget, Some("x"), 0, ExitReason::Budget);
        check(FinishReason::Aborted, None, 0, ExitReason::Cancelled);
        check(FinishReason::TimedOut, None, 0, ExitReason::Timeout);
        check(FinishReason::DoomLoop, None, 0, ExitReason::Failed);
        check(FinishReason::DoomLoop, None, 2, ExitReason::Denied);
        check(FinishReason::ModelFailed(ModelErrorKind::Unauthorized), None, 0, ExitReason::Unauthorized);
        check(FinishReason::ModelFailed(ModelErrorKind::QuotaExhausted), None, 3, ExitReason::Quota);
    }

    #[test]
    fn summary_marks_cost_with_unpriced_requests_as_minimum() {
        let mut bill = RunBill::default();
        let summary = |bill, denied| {
            let (session, took) = (SessionId(1), Duration::from_millis(1500));
            RunSummary { session, turns: 1, took, bill, denied, exit: ExitReason::Success }
        };
        let line_of = |bill| line(&summary(bill, 0));
        assert_eq!(line(&summary(bill, 2)), "1 turn, 0 calls (2 denied), 0 tokens read, 0 written, 1.5 s");
        assert_eq!(line_of(bill), "1 turn, 0 calls, 0 tokens read, 0 written, 1.5 s");
        let usage = TokenUsage { input: 50, cache_read: 40, ..TokenUsage::default() };
        let cached = line_of(RunBill { usage, ..bill });
        assert!(cached.contains(", 50 tokens read (40 cached, 10 fresh), 0 written, "), "{cached}");
        bill.add_request(None, Some(haft_core::price::Cost { nano_usd: 2_000 }));
        assert!(line_of(bill).contains(", $0.000002, "));
        bill.add_request(None, None);
        assert!(line_of(bill).contains(", at least $0.000002, "));
    }
}
