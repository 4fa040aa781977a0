//! What a run tells those who watch it while it goes on.

use crate::event::Event;
use std::time::Duration;

use super::finish::Finish;
use super::note::RunNote;
use crate::model_event::ModelEvent;
use crate::model_reply::Usage;
use crate::price::Cost;
use crate::result::ToolErrorKind;
use crate::tool::{CallId, ToolCall};

/// Something that happened in a run. Unlike other events these hold what is said: they are for whoever asked, and no
/// record keeps them unless it was made for that.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// The first event of a run.
    Began(Began),
    /// The model is asked for a reply of this turn.
    Asked,
    Said(ModelEvent),
    /// The model asked for this call, and it may be made.
    Called(ToolCall),
    Answered(Answered),
    Noted(RunNote),
    /// The last event of a run.
    Finished {
        finish: Finish,
        bill: Bill,
    },
}

impl RunEvent {
    /// The stable name on every wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Began(_) => "began",
            Self::Asked => "asked",
            Self::Said(_) => "said",
            Self::Called(_) => "called",
            Self::Answered(_) => "answered",
            Self::Noted(_) => "noted",
            Self::Finished { .. } => "finished",
        }
    }
}

/// Who begins to work on what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Began {
    /// The agents above, from the one that was asked first, and the one whose run it is.
    pub path: Vec<String>,
    /// As `provider/model`.
    pub model: String,
    pub request: String,
    /// The names of the tools that the model is shown.
    pub tools: Vec<String>,
    pub speaks: Speaks,
}

/// What the words of a run are to whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// Those of its last reply are the answer, as they are written.
    Answer,
    /// The answer is given as a report, or by somebody else.
    Draft,
}

/// How a call ended, as the model is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    pub call: CallId,
    pub name: String,
    /// `None` for success.
    pub failure: Option<ToolErrorKind>,
    pub text: String,
    pub latency: Duration,
}

/// What a run and its descendants cost so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bill {
    /// Attempts at models, those that failed included.
    pub requests: u64,
    pub usage: Usage,
    pub cost: Cost,
    /// Requests whose cost nobody knows: without a price, or without a word about usage.
    pub unpriced: u64,
    pub calls: u64,
}

impl Bill {
    /// Of what was seen.
    pub fn of(events: &[Event]) -> Self {
        let mut bill = Self::default();
        for event in events {
            bill.add(event);
        }
        bill
    }

    pub fn add(&mut self, event: &Event) {
        match event {
            Event::ModelFinished { account, .. } => self.add_request(account.usage, account.cost),
            Event::ToolFinished { .. } => self.calls += 1,
            Event::ToolStarted { .. }
            | Event::ToolProgress { .. }
            | Event::ModelStarted { .. }
            | Event::Run { .. } => {}
        }
    }

    pub fn add_request(&mut self, usage: Option<Usage>, cost: Option<Cost>) {
        self.requests += 1;
        self.usage = usage.map_or(self.usage, |more| sum(self.usage, more));
        match cost {
            Some(cost) => self.cost.nano_usd = self.cost.nano_usd.saturating_add(cost.nano_usd),
            None => self.unpriced += 1,
        }
    }

    pub fn tokens(&self) -> u64 {
        self.usage.input.saturating_add(self.usage.output)
    }
}

fn sum(one: Usage, other: Usage) -> Usage {
    Usage {
        input: one.input.saturating_add(other.input),
        output: one.output.saturating_add(other.output),
        cache_read: one.cache_read.saturating_add(other.cache_read),
        cache_write: one.cache_write.saturating_add(other.cache_write),
        reasoning: one.reasoning.saturating_add(other.reasoning),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_adds_up_and_says_what_it_does_not_know() {
        let mut bill = Bill::default();
        let usage = Usage { input: 10, output: 3, ..Usage::default() };
        bill.add_request(Some(usage), Some(Cost { nano_usd: 7 }));
        bill.add_request(None, None);
        bill.add_request(Some(Usage { input: u64::MAX, ..usage }), None);
        assert_eq!((bill.requests, bill.unpriced, bill.cost.nano_usd), (3, 2, 7));
        assert_eq!((bill.usage.output, bill.tokens()), (6, u64::MAX));
    }
}
