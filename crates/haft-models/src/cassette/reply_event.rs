//! Timestamped events of a recorded reply: the attempts and their figures, stream events, and the final error if there
//! was one.

use std::sync::Arc;
use std::time::Duration;

use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{AttemptFollowUp, ModelAccount, ModelAttempt};
use haft_core::price::Cost;
use haft_core::stored::{StoredError, StoredEvent, StoredModelError, StoredUsage, find};
use serde::{Deserialize, Serialize};

/// The time since the request in milliseconds, and the event at that time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredMoment(pub(super) u64, pub(super) StoredReplyEvent);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredReplyEvent {
    /// haft sent a request to the provider.
    Attempt(StoredAttempt),
    /// An attempt to get a reply ended.
    Account(StoredAttempt, StoredAccount),
    Event(StoredEvent),
    /// The error that ended the reply. It is always the last entry.
    Error(StoredModelError),
}

/// A recorded event in the types of `haft-core`, ready for replay.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ReplayEvent {
    Attempt(ModelAttempt),
    Account(ModelAttempt, ModelAccount),
    Event(ModelEvent),
    Error(ModelError),
}

/// The stored form of an attempt to call one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredAttempt {
    provider: String,
    model: String,
    number: u32,
}

/// The stored form of the latency, usage and cost of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredAccount {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    latency_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_event_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<StoredUsage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost_nano_usd: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_us: Option<u64>,
}

impl StoredReplyEvent {
    pub(super) fn into_replay_event(self) -> Result<ReplayEvent, StoredError> {
        Ok(match self {
            Self::Attempt(attempt) => ReplayEvent::Attempt(attempt.into_attempt()),
            Self::Account(attempt, account) => {
                ReplayEvent::Account(attempt.into_attempt(), account.into_account()?)
            }
            Self::Event(event) => ReplayEvent::Event(event.into_event()?),
            Self::Error(error) => ReplayEvent::Error(error.into_error()?),
        })
    }
}

impl StoredAttempt {
    pub fn of(attempt: &ModelAttempt) -> Self {
        let ModelAttempt { provider, model, number } = attempt;
        Self { provider: provider.as_ref().into(), model: model.as_ref().into(), number: *number }
    }

    pub fn into_attempt(self) -> ModelAttempt {
        ModelAttempt { provider: Arc::from(self.provider), model: Arc::from(self.model), number: self.number }
    }
}

impl StoredAccount {
    pub fn of(account: &ModelAccount) -> Self {
        let ModelAccount { failure, latency, first_event, usage, cost, next } = account;
        Self {
            failure: failure.map(|kind| kind.name().to_owned()),
            latency_us: micros(*latency),
            first_event_us: first_event.map(micros),
            usage: usage.as_ref().map(StoredUsage::of),
            cost_nano_usd: cost.map(|cost| cost.nano_usd),
            retry_after_us: match next {
                AttemptFollowUp::Nothing => None,
                AttemptFollowUp::Retry { after } => Some(micros(*after)),
            },
        }
    }

    pub fn into_account(self) -> Result<ModelAccount, StoredError> {
        let kind = |name: &String| find("model error", &ModelErrorKind::ALL, ModelErrorKind::name, name);
        Ok(ModelAccount {
            failure: self.failure.as_ref().map(kind).transpose()?,
            latency: Duration::from_micros(self.latency_us),
            first_event: self.first_event_us.map(Duration::from_micros),
            usage: self.usage.map(StoredUsage::into_usage),
            cost: self.cost_nano_usd.map(|nano_usd| Cost { nano_usd }),
            next: self.retry_after_us.map_or(AttemptFollowUp::Nothing, |after| AttemptFollowUp::Retry {
                after: Duration::from_micros(after),
            }),
        })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
