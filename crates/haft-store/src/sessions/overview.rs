//! The few fields of a session that a list shows.
//!
//! A list reads fifty journals, most of whose bytes are the content of messages. An overview skips these bytes: it
//! parses only the beginning of such lines. Other lines are parsed as [`SessionHistory`](super::SessionHistory) parses
//! them, with the same errors. Damage inside a message is detected when the session is shown or resumed.

use std::io::Read;

use haft_core::model_reply::TokenUsage;
use haft_core::position::SessionId;
use haft_core::price::Cost;
use haft_core::run::event::RunBill;
use haft_core::run::input::RunInput;

use super::header::SessionHeader;
use super::history::SessionStatus;
use super::line::SessionJournalLine;
use super::quick_line::{ModelUse, QuickLine};
use super::read::{JournalLines, ReadError};
use crate::accounting::ModelRecord;

/// A session in a list. The fields mean the same as in [`SessionHistory`](super::SessionHistory).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOverview {
    pub session: SessionId,
    pub title: String,
    pub began_ms: u64,
    pub last_ms: u64,
    pub standing: SessionStatus,
    pub total: RunBill,
}

impl SessionOverview {
    pub(super) fn of<R: Read>(mut lines: JournalLines<R>) -> Result<Self, ReadError> {
        let SessionHeader { session, title, at_ms, origin: _ } = SessionHeader::of(&mut lines)?;
        let (began_ms, last_ms, standing) = (at_ms, at_ms, SessionStatus::Open);
        let mut overview = Self { session, title, began_ms, last_ms, standing, total: RunBill::default() };
        while let Some(line) = lines.next_bytes()? {
            match QuickLine::parse(line) {
                Some(quick) => overview.take_quick(quick),
                None => overview.take(lines.parse_last()?)?,
            }
        }
        Ok(overview)
    }

    fn take_quick(&mut self, line: QuickLine) {
        let (QuickLine::Tool { at_ms }
        | QuickLine::Model { at_ms, .. }
        | QuickLine::Requested { at_ms }
        | QuickLine::Other { at_ms }) = &line;
        self.last_ms = *at_ms;
        match line {
            QuickLine::Tool { .. } => self.total.calls += 1,
            QuickLine::Model { used, .. } => self.add_request(&used),
            QuickLine::Requested { .. } => self.standing = SessionStatus::Open,
            QuickLine::Other { .. } => {}
        }
    }

    fn take(&mut self, line: SessionJournalLine) -> Result<(), ReadError> {
        match line {
            SessionJournalLine::Session(_) => {
                return Err(ReadError::Broken { problem: "the journal has a second header line".into() });
            }
            SessionJournalLine::Resumed { at_ms, claim: _ } => {
                self.last_ms = at_ms;
                if let SessionStatus::Cut { .. } = self.standing {
                    self.standing = SessionStatus::Open;
                }
            }
            SessionJournalLine::Input { at_ms, input } => {
                self.last_ms = at_ms;
                let input =
                    input.into_input().map_err(|error| ReadError::Broken { problem: error.to_string() })?;
                self.take_input(&input);
            }
            SessionJournalLine::Begun { at_ms, .. } | SessionJournalLine::Note { at_ms, .. } => {
                self.last_ms = at_ms;
            }
            SessionJournalLine::Tool(record) => {
                self.last_ms = record.timestamp_ms;
                self.total.calls += 1;
            }
            SessionJournalLine::Model(record) => {
                self.last_ms = record.timestamp_ms;
                self.add_request(&ModelUse::of(&record));
            }
            SessionJournalLine::Finished { at_ms, reason, .. } => {
                self.last_ms = at_ms;
                if self.standing == SessionStatus::Open {
                    self.standing = SessionStatus::Finished { reason };
                }
            }
        }
        Ok(())
    }

    fn take_input(&mut self, input: &RunInput) {
        let reason = match input {
            RunInput::Requested(_) => {
                self.standing = SessionStatus::Open;
                return;
            }
            RunInput::Failed(error) => error.kind.name(),
            RunInput::Aborted(why) => why.name(),
            RunInput::Replied(_)
            | RunInput::Ended(_)
            | RunInput::Stepped(_)
            | RunInput::ClientReplied(_)
            | RunInput::Decided { .. }
            | RunInput::Appended(_)
            | RunInput::Stopped
            | RunInput::Archived(_)
            | RunInput::Summarized(_)
            | RunInput::SummaryFailed(_) => return,
        };
        // Keep the first reason, because it interrupted the run; later ends belong to the shutdown.
        if !matches!(self.standing, SessionStatus::Cut { .. }) {
            self.standing = SessionStatus::Cut { reason: reason.into() };
        }
    }

    fn add_request(&mut self, used: &ModelUse) {
        self.total.add_request(Some(used.usage), used.cost);
    }
}

impl ModelUse {
    fn of(record: &ModelRecord) -> Self {
        let usage = TokenUsage {
            input: record.input_tokens,
            output: record.output_tokens,
            cache_read: record.cache_read_tokens,
            cache_write: record.cache_write_tokens,
            reasoning: record.reasoning_tokens,
        };
        Self { usage, cost: record.cost_nano_usd.map(|nano_usd| Cost { nano_usd }) }
    }
}
