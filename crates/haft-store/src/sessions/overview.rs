//! The few facts about a session that a list shows.
//!
//! A list reads fifty journals, most of whose bytes are the content of messages. An overview skips these bytes: it parses
//! only the beginning of such lines. A line that it does not know is parsed as [`Past`](super::Past) parses it, with the same
//! errors; damage inside of a message is found when the session is shown or resumed.

use std::io::Read;

use haft_core::model_reply::Usage;
use haft_core::place::SessionId;
use haft_core::price::Cost;
use haft_core::run::event::Bill;
use haft_core::run::input::RunInput;

use super::header::Header;
use super::line::Line;
use super::past::Standing;
use super::quick_line::{ModelUse, QuickLine};
use super::read::{Lines, ReadError};
use crate::accounting::ModelRecord;

/// A session in a list. Each field is the one of [`Past`](super::Past).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    pub session: SessionId,
    pub title: String,
    pub began_ms: u64,
    pub last_ms: u64,
    pub standing: Standing,
    pub total: Bill,
}

impl Overview {
    pub(super) fn of<R: Read>(mut lines: Lines<R>) -> Result<Self, ReadError> {
        let Header { session, title, at_ms, origin: _ } = Header::of(&mut lines)?;
        let (began_ms, last_ms, standing) = (at_ms, at_ms, Standing::Open);
        let mut overview = Self { session, title, began_ms, last_ms, standing, total: Bill::default() };
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
            QuickLine::Requested { .. } => self.standing = Standing::Open,
            QuickLine::Other { .. } => {}
        }
    }

    fn take(&mut self, line: Line) -> Result<(), ReadError> {
        match line {
            Line::Session(_) => return Err(ReadError::Broken { problem: "it begins twice".into() }),
            Line::Resumed { at_ms, claim: _ } => {
                self.last_ms = at_ms;
                if let Standing::Cut { .. } = self.standing {
                    self.standing = Standing::Open;
                }
            }
            Line::Input { at_ms, input } => {
                self.last_ms = at_ms;
                let told =
                    input.into_input().map_err(|error| ReadError::Broken { problem: error.to_string() })?;
                self.take_told(&told);
            }
            Line::Begun { at_ms, .. } | Line::Note { at_ms, .. } => self.last_ms = at_ms,
            Line::Tool(record) => {
                self.last_ms = record.timestamp_ms;
                self.total.calls += 1;
            }
            Line::Model(record) => {
                self.last_ms = record.timestamp_ms;
                self.add_request(&ModelUse::of(&record));
            }
            Line::Finished { at_ms, reason, .. } => {
                self.last_ms = at_ms;
                if self.standing == Standing::Open {
                    self.standing = Standing::Finished { reason };
                }
            }
        }
        Ok(())
    }

    fn take_told(&mut self, told: &RunInput) {
        let reason = match told {
            RunInput::Requested(_) => {
                self.standing = Standing::Open;
                return;
            }
            RunInput::Failed(error) => error.kind.name(),
            RunInput::Aborted(why) => why.name(),
            RunInput::Replied(_)
            | RunInput::Ended(_)
            | RunInput::Stepped(_)
            | RunInput::ClientReplied(_)
            | RunInput::Judged { .. }
            | RunInput::Stopped => return,
        };
        // The first reason is the one that cut the run off.
        if !matches!(self.standing, Standing::Cut { .. }) {
            self.standing = Standing::Cut { reason: reason.into() };
        }
    }

    fn add_request(&mut self, used: &ModelUse) {
        self.total.add_request(Some(used.usage), used.cost);
    }
}

impl ModelUse {
    fn of(record: &ModelRecord) -> Self {
        let usage = Usage {
            input: record.input_tokens,
            output: record.output_tokens,
            cache_read: record.cache_read_tokens,
            cache_write: record.cache_write_tokens,
            reasoning: record.reasoning_tokens,
        };
        Self { usage, cost: record.cost_nano_usd.map(|nano_usd| Cost { nano_usd }) }
    }
}
