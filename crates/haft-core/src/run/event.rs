//! The events that a run emits.

use crate::event::Event;
use std::time::Duration;

use super::finish::RunFinish;
use super::note::RunNote;
use crate::model_event::ModelEvent;
use crate::model_reply::TokenUsage;
use crate::price::Cost;
use crate::result::ToolErrorKind;
use crate::tool::{CallId, ToolCall};

/// An event of a run. Unlike other events it contains messages and tool output, so it is meant for the caller of the
/// run; audit records leave it out.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// The first event of a run.
    Began(RunStart),
    /// The run sends a request to the model in this turn.
    Asked,
    /// A part of the model's reply arrived.
    Model(ModelEvent),
    /// The model requested this call, and the run executes it.
    Called(ToolCall),
    /// A call ended, and the model gets this text.
    Answered(CallAnswer),
    /// The run made a decision that observers may want to know about.
    Noted(RunNote),
    /// The last event of a run.
    Finished {
        /// The answer, and the reason the run ended.
        finish: RunFinish,
        /// The cost of the run and its sub-agents.
        bill: RunBill,
    },
}

impl RunEvent {
    /// Returns the stable name that all wire formats use.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Began(_) => "began",
            Self::Asked => "asked",
            Self::Model(_) => "said",
            Self::Called(_) => "called",
            Self::Answered(_) => "answered",
            Self::Noted(_) => "noted",
            Self::Finished { .. } => "finished",
        }
    }
}

/// The agent, the model and the request of a run that starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStart {
    /// The chain of agents, from the agent that was asked first to the agent of this run.
    pub path: Vec<String>,
    /// The model, as `provider/model`.
    pub model: String,
    /// The request that the agent works on.
    pub request: String,
    /// The names of the tools that the model sees.
    pub tools: Vec<String>,
    /// The purpose of the model's text.
    pub speaks: TextPurpose,
}

/// The purpose of the model's text, for the caller of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextPurpose {
    /// The text of the last reply is the answer itself.
    Answer,
    /// The text is not the answer: the answer is a structured report, or comes from another agent.
    Draft,
}

/// The end of a call, with the text that the model receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAnswer {
    /// The id that the model gave the call.
    pub call: CallId,
    /// The tool name as the model wrote it.
    pub name: String,
    /// The kind of error; `None` for success.
    pub failure: Option<ToolErrorKind>,
    /// The output, or the error message.
    pub text: String,
    /// The time since the call was requested.
    pub latency: Duration,
}

/// The cost of a run and its sub-agents so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunBill {
    /// The number of attempts to call a model, including failed ones.
    pub requests: u64,
    /// The sum of all reported tokens.
    pub usage: TokenUsage,
    /// The sum of all known costs.
    pub cost: Cost,
    /// The number of requests with unknown cost: the model has no price, or the provider reported no usage.
    pub unpriced: u64,
    /// The number of tool calls that ended, including failed ones.
    pub calls: u64,
}

impl RunBill {
    /// Sums up the cost of the events.
    pub fn of(events: &[Event]) -> Self {
        let mut bill = Self::default();
        for event in events {
            bill.add(event);
        }
        bill
    }

    /// Adds the cost of an event. Most events cost nothing.
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

    /// Adds one attempt to call a model.
    pub fn add_request(&mut self, usage: Option<TokenUsage>, cost: Option<Cost>) {
        self.requests += 1;
        self.usage = usage.map_or(self.usage, |more| sum(self.usage, more));
        match cost {
            Some(cost) => self.cost.nano_usd = self.cost.nano_usd.saturating_add(cost.nano_usd),
            None => self.unpriced += 1,
        }
    }

    /// Returns the sum of input and output tokens.
    pub fn tokens(&self) -> u64 {
        self.usage.input.saturating_add(self.usage.output)
    }
}

fn sum(one: TokenUsage, other: TokenUsage) -> TokenUsage {
    TokenUsage {
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
    fn bill_sums_usage_and_counts_unpriced_requests() {
        let mut bill = RunBill::default();
        let usage = TokenUsage { input: 10, output: 3, ..TokenUsage::default() };
        bill.add_request(Some(usage), Some(Cost { nano_usd: 7 }));
        bill.add_request(None, None);
        bill.add_request(Some(TokenUsage { input: u64::MAX, ..usage }), None);
        assert_eq!((bill.requests, bill.unpriced, bill.cost.nano_usd), (3, 2, 7));
        assert_eq!((bill.usage.output, bill.tokens()), (6, u64::MAX));
    }
}
