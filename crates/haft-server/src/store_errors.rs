//! Reports data that the server could not store: in the metrics, and to the operator.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::metrics::Metrics;
use crate::operator_log::OperatorLog;

/// The minimum time between two warnings about the same store. Without it, a full disk would cause a warning for every
/// response.
const WARNING_PAUSE: Duration = Duration::from_mins(1);

/// The stores of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StoreKind {
    Responses,
    Conversations,
    Approvals,
    IdempotencyKeys,
    Spending,
}

impl StoreKind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Responses, Self::Conversations, Self::Approvals, Self::IdempotencyKeys, Self::Spending];

    /// Returns the label of the store in the metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::Conversations => "conversations",
            Self::Approvals => "approvals",
            Self::IdempotencyKeys => "idempotency_keys",
            Self::Spending => "spending",
        }
    }

    fn content(self) -> &'static str {
        match self {
            Self::Responses => "a response",
            Self::Conversations => "the items of a conversation",
            Self::Approvals => "an approval request",
            Self::IdempotencyKeys => "an idempotency key",
            Self::Spending => "the monthly cost of a key",
        }
    }
}

/// Counts the failed writes of a server, and warns its operator.
#[derive(Debug)]
pub(crate) struct StoreErrors {
    metrics: Metrics,
    log: OperatorLog,
    /// The time of the last warning about each store.
    warned: Mutex<BTreeMap<StoreKind, Instant>>,
}

impl StoreErrors {
    pub(crate) fn new(metrics: Metrics, log: OperatorLog) -> Self {
        Self { metrics, log, warned: Mutex::default() }
    }

    /// Counts a failed write. Warns the operator, at most once in [`WARNING_PAUSE`] for each store.
    pub(crate) fn note(&self, kind: StoreKind, error: &dyn Display) {
        self.metrics.store_error(kind);
        if self.is_due(kind, Instant::now()) {
            self.log.warn(&format!(
                "the server cannot store {}: {error}; check the disk of haft's data directory",
                kind.content()
            ));
        }
    }

    fn is_due(&self, kind: StoreKind, now: Instant) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let last = warned.get(&kind);
        let is_due = last.is_none_or(|last| now.saturating_duration_since(*last) >= WARNING_PAUSE);
        if is_due {
            warned.insert(kind, now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn operator_gets_one_warning_per_minute_and_store() {
        let errors = StoreErrors::new(Metrics::default(), OperatorLog::default());
        let start = Instant::now();
        assert!(errors.is_due(StoreKind::Responses, start));
        assert!(!errors.is_due(StoreKind::Responses, start + Duration::from_secs(59)));
        assert!(errors.is_due(StoreKind::Conversations, start), "each store has its own warnings");
        assert!(errors.is_due(StoreKind::Responses, start + WARNING_PAUSE));
    }

    #[test]
    fn warning_names_the_content_and_the_error() {
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&warnings);
        let log = OperatorLog::new(move |message| written.lock().unwrap().push(message.to_owned()));
        let errors = StoreErrors::new(Metrics::default(), log);
        for _ in 0..3 {
            errors.note(StoreKind::Responses, &"no space");
        }
        let expected =
            "the server cannot store a response: no space; check the disk of haft's data directory";
        assert_eq!(*warnings.lock().unwrap(), [expected]);
    }
}
