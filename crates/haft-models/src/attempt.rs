//! Reports the cost and timing of each attempt to get a model reply when the attempt ends, whether it succeeds, fails
//! or is cancelled.

use std::time::Duration;

use haft_core::model_error::ModelErrorKind;
use haft_core::model_event::{ModelEvent, PartDelta};
use haft_core::model_provider::{AttemptFollowUp, ModelAccount, ModelAttempt, ModelContext};
use haft_core::model_reply::TokenUsage;
use haft_core::price::{Cost, Price};
use tokio::time::Instant;

/// The average number of bytes in a token of text and code. It is used to estimate the usage if a provider does not
/// report it.
const BYTES_PER_TOKEN: u64 = 4;

/// An attempt in progress. An attempt that is dropped before `succeeded` or `failed` is reported as cancelled.
#[derive(Debug)]
pub(crate) struct RunningAttempt {
    cx: ModelContext,
    attempt: ModelAttempt,
    price: Option<Price>,
    began: Instant,
    first_event: Option<Duration>,
    usage: Option<TokenUsage>,
    /// The size of the prompt in bytes. If the provider reports no usage, haft estimates the usage from the sizes of
    /// the prompt and the reply.
    prompt_bytes: u64,
    reply_bytes: u64,
    /// The cost that the provider itself reported. This cost has priority over the cost that haft computes from the
    /// price.
    cost: Option<Cost>,
    reported: bool,
}

impl RunningAttempt {
    pub(crate) fn start(cx: ModelContext, attempt: ModelAttempt, price: Option<Price>) -> Self {
        cx.attempt_started(&attempt);
        Self {
            cx,
            attempt,
            price,
            began: Instant::now(),
            first_event: None,
            usage: None,
            prompt_bytes: 0,
            reply_bytes: 0,
            cost: None,
            reported: false,
        }
    }

    /// Sets the size of the prompt. Without this size, haft does not estimate a missing usage.
    pub(crate) fn sent(&mut self, prompt_bytes: usize) {
        self.prompt_bytes = prompt_bytes as u64;
    }

    pub(crate) fn see(&mut self, event: &ModelEvent) {
        self.first_event.get_or_insert_with(|| self.began.elapsed());
        match event {
            ModelEvent::Usage(usage) => self.usage = Some(*usage),
            ModelEvent::PartDelta { delta: PartDelta::Text(text) | PartDelta::Summary(text), .. } => {
                self.reply_bytes += text.len() as u64;
            }
            ModelEvent::Started { .. }
            | ModelEvent::PartStarted { .. }
            | ModelEvent::PartDelta { .. }
            | ModelEvent::PartFinished { .. }
            | ModelEvent::Noted(_)
            | ModelEvent::Finished { .. } => {}
        }
    }

    /// Returns the reported usage. If a reply started but reported no usage, returns an estimate, because a budget must
    /// hold for every provider.
    fn counted_usage(&self) -> Option<TokenUsage> {
        let began = self.first_event.is_some() && self.prompt_bytes > 0;
        let estimate = || TokenUsage {
            input: self.prompt_bytes.div_ceil(BYTES_PER_TOKEN),
            output: self.reply_bytes.div_ceil(BYTES_PER_TOKEN),
            ..TokenUsage::default()
        };
        self.usage.or_else(|| began.then(estimate))
    }

    pub(crate) fn spent(&mut self, usage: Option<TokenUsage>, cost: Option<Cost>) {
        (self.usage, self.cost) = (usage, cost);
    }

    pub(crate) fn succeeded(&mut self) {
        self.report(None, AttemptFollowUp::Nothing);
    }

    pub(crate) fn failed(&mut self, kind: ModelErrorKind, next: AttemptFollowUp) {
        self.report(Some(kind), next);
    }

    fn report(&mut self, failure: Option<ModelErrorKind>, next: AttemptFollowUp) {
        // Report only once: `Drop` runs after `succeeded` and `failed` too.
        if std::mem::replace(&mut self.reported, true) {
            return;
        }
        let usage = self.counted_usage();
        let priced = self.price.zip(usage).map(|(price, usage)| price.cost(&usage));
        let cost = self.cost.or(priced);
        let first_event = self.first_event;
        let latency = self.began.elapsed();
        let account = ModelAccount { failure, latency, first_event, usage, cost, next };
        self.cx.attempt_finished(&self.attempt, account);
    }
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        self.report(Some(ModelErrorKind::Cancelled), AttemptFollowUp::Nothing);
    }
}
