//! Reports the cost and timing of each attempt when it ends, whether it succeeds, fails or is cancelled.

use std::time::Duration;

use haft_core::model_error::ModelErrorKind;
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{AttemptFollowUp, ModelAccount, ModelAttempt, ModelContext};
use haft_core::model_reply::TokenUsage;
use haft_core::price::{Cost, Price};
use tokio::time::Instant;

/// An attempt in progress. Dropping it before `succeeded` or `failed` reports it as cancelled.
#[derive(Debug)]
pub(crate) struct RunningAttempt {
    cx: ModelContext,
    attempt: ModelAttempt,
    price: Option<Price>,
    began: Instant,
    first_event: Option<Duration>,
    usage: Option<TokenUsage>,
    /// The cost that the provider itself reported. It takes precedence over the cost computed from the price.
    cost: Option<Cost>,
    told: bool,
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
            cost: None,
            told: false,
        }
    }

    pub(crate) fn see(&mut self, event: &ModelEvent) {
        self.first_event.get_or_insert_with(|| self.began.elapsed());
        if let ModelEvent::Usage(usage) = event {
            self.usage = Some(*usage);
        }
    }

    pub(crate) fn spent(&mut self, usage: Option<TokenUsage>, cost: Option<Cost>) {
        (self.usage, self.cost) = (usage, cost);
    }

    pub(crate) fn succeeded(&mut self) {
        self.tell(None, AttemptFollowUp::Nothing);
    }

    pub(crate) fn failed(&mut self, kind: ModelErrorKind, next: AttemptFollowUp) {
        self.tell(Some(kind), next);
    }

    fn tell(&mut self, failure: Option<ModelErrorKind>, next: AttemptFollowUp) {
        // A guard reports once: `Drop` runs after `succeeded` and `failed` too.
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let priced = self.price.zip(self.usage).map(|(price, usage)| price.cost(&usage));
        let cost = self.cost.or(priced);
        let (first_event, usage) = (self.first_event, self.usage);
        let latency = self.began.elapsed();
        let account = ModelAccount { failure, latency, first_event, usage, cost, next };
        self.cx.attempt_finished(&self.attempt, account);
    }
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        self.tell(Some(ModelErrorKind::Cancelled), AttemptFollowUp::Nothing);
    }
}
