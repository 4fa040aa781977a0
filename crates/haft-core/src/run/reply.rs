//! Interprets a model reply.

use super::calls::OpenCalls;
use super::final_report::{self, FinalReport, ReportSearch};
use super::finish::{FinishReason, RunAnswer, RunFinish};
use super::repeat::RepeatCheck;
use super::state::RunPhase;
use super::tool_choice;
use super::turn::{ClassifiedTurn, ClassifierInput};
use super::{AgentRun, FinalTurnReason, RunError, RunNote, UnusableText};
use crate::conversation::{MessagePart, PartBody};
use crate::internal_tools::final_report::{FINAL_REPORT, RunReport};
use crate::model_reply::{ModelReply, StopReason};
use crate::model_request::ToolChoice;
use crate::tool::ToolCall;

/// The number of times that the model may correct an invalid report.
const REPORT_REPAIRS_MAX: u32 = 1;

/// The number of consecutive turns with too many calls after which the next turn is the last one.
const CROWDED_TURNS_MAX: u32 = 2;

/// The number of consecutive turns with nothing but tool searches after which the run warns the model.
const SEARCH_TURNS_WARNED: u32 = 4;

/// The number of consecutive turns with nothing but tool searches after which the run ends.
const SEARCH_TURNS_MAX: u32 = 10;

/// The kind of a model reply: calls, text, a refusal, or a reply that was filtered, paused or empty.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReplyKind {
    Calls,
    Text,
    /// The model refused. The text is the refusal.
    Refusal(String),
    Filtered,
    Paused,
    Empty,
}

/// The reason why a reply is unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReplyFault {
    Empty,
    /// The stream of the reply ended too early.
    Cut,
    /// The reply reached the limit on output tokens.
    TooLong,
    Paused,
    /// The reply breaks the tool choice. The text is the message for the model.
    Choice(String),
    NoReport,
    BadReport(String),
}

impl ReplyKind {
    fn of(reply: &ModelReply) -> Self {
        if reply.calls().next().is_some() {
            return Self::Calls;
        }
        let refusal: String = reply.parts.iter().filter_map(MessagePart::as_refusal).collect();
        match &reply.stop {
            StopReason::Refusal => Self::Refusal(refusal),
            _ if !refusal.is_empty() => Self::Refusal(refusal),
            StopReason::Filtered => Self::Filtered,
            StopReason::Paused => Self::Paused,
            StopReason::EndOfTurn
            | StopReason::ToolCalls
            | StopReason::Length
            | StopReason::StopSequence
            | StopReason::CutOff
            | StopReason::Other(_) => {
                if reply.text().trim().is_empty() {
                    Self::Empty
                } else {
                    Self::Text
                }
            }
        }
    }
}

impl ReplyFault {
    /// Returns the message for the model, or `None` if the run only has to ask again.
    fn message(&self) -> Option<String> {
        match self {
            Self::Empty => Some("Your last reply was empty. Call a tool, or write your answer.".into()),
            Self::Cut => Some("Your last reply was cut off. Reply again, from the beginning.".into()),
            Self::TooLong => Some(
                "Your last reply was cut off by the length limit. Reply again, from the beginning and shorter."
                    .into(),
            ),
            Self::Paused => None,
            Self::Choice(words) => Some(format!("Your last reply was not accepted: {words}.")),
            Self::NoReport => Some("Your last reply does not end the run: it has no final report.".into()),
            Self::BadReport(problem) => Some(format!("Your final report was not accepted: {problem}")),
        }
    }

    /// Returns the use of the text of a reply without calls.
    fn text(&self) -> UnusableText {
        match self {
            // After these faults, the message tells the model to begin again, so the next reply replaces this text.
            Self::Cut | Self::TooLong | Self::BadReport(_) => UnusableText::Replaced,
            Self::Empty | Self::Paused | Self::Choice(_) | Self::NoReport => UnusableText::Unused,
        }
    }

    fn reason(&self) -> FinishReason {
        match self {
            Self::Empty => FinishReason::EmptyReplies,
            Self::Cut | Self::Paused => FinishReason::CutReplies,
            Self::TooLong => FinishReason::MaxOutputTokens,
            Self::Choice(_) => FinishReason::ToolChoiceUnmet,
            Self::NoReport => FinishReason::NoReport,
            Self::BadReport(_) => FinishReason::InvalidReport,
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Empty => "the model's replies were empty".into(),
            Self::Cut => "the model's replies were cut off".into(),
            Self::TooLong => "the reply reached the output token limit".into(),
            Self::Paused => "the provider paused repeatedly".into(),
            Self::Choice(words) => words.clone(),
            Self::NoReport => "the model answered without a final report".into(),
            Self::BadReport(problem) => problem.clone(),
        }
    }
}

impl AgentRun {
    pub(super) fn take_reply(&mut self, reply: ModelReply) -> Result<(), RunError> {
        match ReplyKind::of(&reply) {
            ReplyKind::Calls => self.take_calls(reply),
            ReplyKind::Text => self.take_text(reply),
            ReplyKind::Refusal(words) => self.take_end(reply, FinishReason::Refused, words),
            ReplyKind::Filtered => self.take_end(reply, FinishReason::Filtered, String::new()),
            ReplyKind::Paused => self.take_fault(reply, &ReplyFault::Paused),
            ReplyKind::Empty if reply.stop == StopReason::Length => {
                self.take_fault(reply, &ReplyFault::TooLong)
            }
            ReplyKind::Empty => self.take_fault(reply, &ReplyFault::Empty),
        }
    }

    fn take_end(&mut self, reply: ModelReply, reason: FinishReason, detail: String) -> Result<(), RunError> {
        let answer = self.fallback(reply.text());
        self.keep(reply)?;
        self.end(RunFinish::new(reason).with_answer(answer).with_detail(detail));
        Ok(())
    }

    fn take_text(&mut self, reply: ModelReply) -> Result<(), RunError> {
        if let Some(words) = tool_choice::unmet_choice_message(&self.choice())
            && !self.wants_report()
        {
            return self.take_fault(reply, &ReplyFault::Choice(words));
        }
        let text = self.joined(&reply);
        let cut = match reply.stop {
            StopReason::Length => Some(ReplyFault::TooLong),
            StopReason::CutOff => Some(ReplyFault::Cut),
            StopReason::EndOfTurn
            | StopReason::ToolCalls
            | StopReason::StopSequence
            | StopReason::Refusal
            | StopReason::Filtered
            | StopReason::Paused
            | StopReason::Other(_) => None,
        };
        match (&self.plan.report, cut) {
            (FinalReport::Xml { shape, nonce }, cut) => {
                match (final_report::find(shape, nonce, &text, &reply.stop), cut) {
                    (ReportSearch::Report(report), _) => self.take_answer(reply, RunAnswer::Report(report)),
                    (ReportSearch::Invalid(problem), _) => {
                        self.take_fault(reply, &ReplyFault::BadReport(problem))
                    }
                    (ReportSearch::Cut | ReportSearch::Nothing, Some(ReplyFault::TooLong)) => {
                        self.take_part(reply, text)
                    }
                    (ReportSearch::Cut, _) | (ReportSearch::Nothing, Some(_)) => {
                        self.take_fault(reply, &ReplyFault::Cut)
                    }
                    (ReportSearch::Nothing, None) => self.take_fault(reply, &ReplyFault::NoReport),
                }
            }
            (FinalReport::None | FinalReport::Text(_), Some(ReplyFault::TooLong)) => {
                self.take_part(reply, text)
            }
            (FinalReport::None | FinalReport::Text(_) | FinalReport::Tool(_), Some(fault)) => {
                self.take_fault(reply, &fault)
            }
            (FinalReport::Tool(shape), None) if !shape.format().is_structured() => {
                self.take_fault(reply, &ReplyFault::NoReport)
            }
            // Accept a text that matches the schema even without the report tool: the caller needs the data, and the
            // retry would cost another request.
            (FinalReport::Tool(shape) | FinalReport::Text(shape), None) => {
                match shape.read_text(None, unfenced(&text)) {
                    Ok(report) => self.take_answer(reply, RunAnswer::Report(report)),
                    Err(problem) => self.take_fault(reply, &ReplyFault::BadReport(problem)),
                }
            }
            (FinalReport::None, None) => self.take_answer(reply, RunAnswer::Text(text)),
        }
    }

    /// Returns the text of a reply, appended to the text that the reply continues.
    fn joined(&self, reply: &ModelReply) -> String {
        format!("{}{}", self.state.partial.as_deref().unwrap_or_default(), reply.text())
    }

    /// Keeps a text that reached the limit on output tokens, and lets the model continue it.
    fn take_part(&mut self, reply: ModelReply, text: String) -> Result<(), RunError> {
        self.keep(reply)?;
        if let Some(finish) = self.give_up(&ReplyFault::TooLong, UnusableText::Continued) {
            self.end(finish.with_answer(self.fallback(text)));
            return Ok(());
        }
        self.state.partial = Some(text);
        self.add_instruction(
            "Your last reply was cut off by the length limit. Continue exactly where it stopped, and repeat \
             nothing.",
        );
        Ok(())
    }

    /// Returns true if the model may call only the final report. A missing report then gets its own message, which is
    /// clearer than the one about the tool choice.
    fn wants_report(&self) -> bool {
        self.choice() == ToolChoice::Named(FINAL_REPORT.into())
    }

    fn take_answer(&mut self, reply: ModelReply, answer: RunAnswer) -> Result<(), RunError> {
        self.keep(reply)?;
        self.count_turn();
        self.end(self.answered(answer));
        Ok(())
    }

    fn answered(&self, answer: RunAnswer) -> RunFinish {
        let reason = match self.state.final_turn {
            None => FinishReason::Completed,
            // The model answered on its own, without asking for another call, so the turn limit had no effect on the
            // answer.
            Some(FinalTurnReason::LastTurn) if !self.state.wanted_more => FinishReason::Completed,
            Some(why) => why.answered(),
        };
        RunFinish::new(reason).with_answer(Some(answer))
    }

    fn take_fault(&mut self, reply: ModelReply, fault: &ReplyFault) -> Result<(), RunError> {
        let answer = self.fallback(reply.text());
        self.keep(reply)?;
        if let ReplyFault::BadReport(_) = fault {
            self.state.counts.bad_reports += 1;
        }
        if let Some(finish) = self.give_up(fault, fault.text()) {
            self.end(finish.with_answer(answer));
        } else if let Some(words) = fault.message() {
            self.add_instruction(self.with_final_instruction(words));
        }
        Ok(())
    }

    /// Returns the text of an unusable reply as the answer, unless a program expects data. A program must not get text
    /// that does not match its schema.
    fn fallback(&self, text: String) -> Option<RunAnswer> {
        (!text.trim().is_empty() && !self.plan.report.is_structured()).then_some(RunAnswer::Text(text))
    }

    /// Counts an attempt; `text` is the use of the text of the reply. Returns the end of the run if this was the last
    /// attempt.
    fn give_up(&mut self, fault: &ReplyFault, text: UnusableText) -> Option<RunFinish> {
        self.state.wanted_more |= matches!(fault, ReplyFault::Choice(_));
        let counts = &mut self.state.counts;
        counts.attempts += 1;
        counts.long_replies = if *fault == ReplyFault::TooLong { counts.long_replies + 1 } else { 0 };
        let is_bad_report = matches!(fault, ReplyFault::BadReport(_));
        // A spent budget pays for one request, but not for a second attempt.
        let exhausted = self.state.final_turn == Some(FinalTurnReason::Budget)
            || counts.attempts >= self.plan.limits.attempts_max
            || counts.long_replies > self.plan.limits.continuations_max
            || is_bad_report && counts.bad_reports > REPORT_REPAIRS_MAX;
        if !exhausted {
            let (attempt, why) = (counts.attempts, fault.detail());
            self.notes.push(RunNote::AskedAgain { attempt, why, text });
            return None;
        }
        let why = self.state.final_turn.and_then(FinalTurnReason::unanswered);
        Some(RunFinish::new(why.unwrap_or_else(|| fault.reason())).with_detail(fault.detail()))
    }

    fn with_final_instruction(&self, words: String) -> String {
        let rule = self.plan.report.final_instruction();
        match (self.state.final_turn, &self.plan.report) {
            (Some(_), _) => format!("{words} {rule}"),
            (None, FinalReport::Text(_) | FinalReport::Tool(_) | FinalReport::Xml { .. }) => {
                format!("{words} {}", self.plan.report.rule())
            }
            (None, FinalReport::None) => words,
        }
    }

    fn take_calls(&mut self, reply: ModelReply) -> Result<(), RunError> {
        let calls: Vec<ToolCall> = reply.calls().cloned().collect();
        let choice = self.choice();
        let rules = ClassifierInput {
            plan: &self.plan,
            counts: &self.state.counts,
            choice: &choice,
            stop: &reply.stop,
        };
        let mut turn = ClassifiedTurn::of(rules, &calls);
        turn.take_report(self.report_in(&reply));
        let answer = self.fallback(reply.text());
        let cut = if reply.stop == StopReason::Length { ReplyFault::TooLong } else { ReplyFault::Cut };
        self.keep(reply)?;
        self.note(&turn);
        self.state.partial = None;
        if turn.useful == 0 {
            self.take_wasted(turn, cut, answer);
        } else {
            self.take_turn(turn, &calls);
        }
        Ok(())
    }

    /// Returns a report that the model wrote as text in a reply with calls. The run accepts it after the calls have
    /// ended.
    fn report_in(&self, reply: &ModelReply) -> Option<RunReport> {
        let FinalReport::Xml { shape, nonce } = &self.plan.report else { return None };
        match final_report::find(shape, nonce, &reply.text(), &reply.stop) {
            ReportSearch::Report(report) => Some(report),
            ReportSearch::Invalid(_) | ReportSearch::Cut | ReportSearch::Nothing => None,
        }
    }

    fn note(&mut self, turn: &ClassifiedTurn) {
        self.notes.extend(turn.statuses.iter().cloned().map(RunNote::Status));
        let refused = turn.refused.iter().cloned();
        self.notes.extend(refused.map(|(tool, why)| RunNote::Refused { tool, why }));
    }

    /// Handles a reply in which every call broke the rules: the run asks again within the same turn.
    fn take_wasted(&mut self, turn: ClassifiedTurn, cut: ReplyFault, answer: Option<RunAnswer>) {
        let fault = match (turn.bad_report, turn.refused.into_iter().next()) {
            (Some(problem), _) => {
                self.state.counts.bad_reports += 1;
                ReplyFault::BadReport(problem)
            }
            (None, Some(_)) if turn.cut > 0 => cut,
            (None, Some((_, why))) => ReplyFault::Choice(why),
            (None, None) => ReplyFault::Empty,
        };
        self.state.ending =
            self.give_up(&fault, UnusableText::Unused).map(|finish| finish.with_answer(answer));
        // The results of the calls explain the fault. Only in the last turn the run repeats the instruction.
        if self.state.final_turn.is_some() {
            self.state.pending_instructions.push(self.plan.report.final_instruction());
        }
        self.state.phase = RunPhase::Calls(OpenCalls(turn.calls));
    }

    fn take_turn(&mut self, turn: ClassifiedTurn, calls: &[ToolCall]) {
        self.count_turn();
        self.state.counts.tool_turns += 1;
        self.state.counts.tool_calls = self.state.counts.tool_calls.saturating_add(turn.let_through);
        self.force(&turn);
        let searched = self.count_searches(&turn);
        self.state.ending = self.ending(&turn);
        let mut open = OpenCalls(turn.calls);
        let calls: Vec<ToolCall> = calls.iter().map(|call| self.plan.unwrapped(call)).collect();
        match self.state.repeats.turn(calls.iter()) {
            RepeatCheck::Moving => {}
            RepeatCheck::Circling { tool, times } => self.warn_of_repeats(tool, times),
            RepeatCheck::Stuck { tool, times } => self.end_repeated_calls(&mut open, &tool, times),
        }
        self.limit_searches(&mut open, searched);
        self.state.phase = RunPhase::Calls(open);
    }

    /// Makes the next turn the last one, if there is a reason.
    fn force(&mut self, turn: &ClassifiedTurn) {
        let counts = &mut self.state.counts;
        counts.crowded_turns = if turn.too_many > 0 { counts.crowded_turns + 1 } else { 0 };
        if turn.beyond_run > 0 {
            self.state.forced = Some(FinalTurnReason::MaxToolCalls);
        } else if counts.crowded_turns >= CROWDED_TURNS_MAX {
            self.state.forced = Some(FinalTurnReason::MaxToolCallsPerTurn);
        } else if turn.is_complete() {
            self.state.forced = Some(FinalTurnReason::TaskComplete);
        }
    }

    fn ending(&mut self, turn: &ClassifiedTurn) -> Option<RunFinish> {
        if let Some(handoff) = &turn.handoff {
            return Some(RunFinish::new(FinishReason::Handoff(handoff.clone())));
        }
        if let Some(report) = &turn.report {
            return Some(self.answered(RunAnswer::Report(report.clone())));
        }
        let problem = turn.bad_report.as_ref()?;
        self.state.counts.bad_reports += 1;
        let exhausted = self.state.counts.bad_reports > REPORT_REPAIRS_MAX;
        exhausted.then(|| RunFinish::new(FinishReason::InvalidReport).with_detail(problem.clone()))
    }

    /// Updates and returns the number of consecutive turns in which the model only searched for tools.
    fn count_searches(&mut self, turn: &ClassifiedTurn) -> u32 {
        let counts = &mut self.state.counts;
        let only_searched = turn.searches > 0 && turn.searches == turn.useful;
        counts.search_turns = if only_searched { counts.search_turns.saturating_add(1) } else { 0 };
        counts.search_turns
    }

    /// Warns a model that keeps searching with different words, and ends the run if it does not stop.
    fn limit_searches(&mut self, open: &mut OpenCalls, turns: u32) {
        if turns >= SEARCH_TURNS_MAX {
            open.refuse_all("Error: the run was stopped because it only searches for tools");
            let detail = format!("the model only searched for tools in {turns} turns in a row");
            let doom = RunFinish::new(FinishReason::DoomLoop).with_detail(detail);
            self.state.ending.get_or_insert(doom);
        } else if turns >= SEARCH_TURNS_WARNED {
            self.state.pending_instructions.push(format!(
                "You only searched for tools in {turns} turns in a row. Call a tool that you found, or answer with what \
                 you have."
            ));
        }
    }

    fn warn_of_repeats(&mut self, tool: String, times: u32) {
        self.state.pending_instructions.push(format!(
            "You called `{tool}` with the same arguments in {times} turns in a row. The answer will not change: \
             do something else, or answer with what you have."
        ));
        self.notes.push(RunNote::Circling { tool, times });
    }

    fn end_repeated_calls(&mut self, open: &mut OpenCalls, tool: &str, times: u32) {
        open.refuse_all("Error: the run was stopped because it repeats itself; the call was not made");
        let detail = format!("`{tool}` was called with the same arguments in {times} turns in a row");
        let doom = RunFinish::new(FinishReason::DoomLoop).with_detail(detail);
        // If the same reply holds an answer or a handoff, the run ends with that instead.
        self.state.ending.get_or_insert(doom);
    }

    fn count_turn(&mut self) {
        self.state.counts.turns = self.state.counts.turns.saturating_add(1);
        self.state.counts.attempts = 0;
        self.state.counts.long_replies = 0;
    }

    /// Appends the reply to the conversation, unless it has no content that a later request could send.
    fn keep(&mut self, reply: ModelReply) -> Result<(), RunError> {
        let is_kept = reply.parts.iter().any(|part| match &part.body {
            PartBody::Text { text, .. } | PartBody::Refusal(text) => !text.trim().is_empty(),
            PartBody::Call(_)
            | PartBody::Opaque
            | PartBody::Image(_)
            | PartBody::Audio(_)
            | PartBody::File { .. } => true,
            PartBody::Reasoning(_) | PartBody::Reply(_) => false,
        });
        if !is_kept {
            return Ok(());
        }
        self.push_message(reply.into_message()).map_err(RunError::Misfit)
    }
}

/// Returns a text without the Markdown fence that models put around JSON.
fn unfenced(text: &str) -> &str {
    let inner = text.trim().strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    match inner.and_then(|inner| inner.split_once('\n')) {
        Some(("" | "json", body)) => body,
        Some(_) | None => text,
    }
}
