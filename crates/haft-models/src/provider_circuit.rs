//! Circuit breakers: for a while, haft skips a model provider that keeps failing, if a fallback model can answer
//! instead.
//!
//! [`CircuitState`] decides, without IO and with a passed-in clock. [`ProviderCircuits`] holds the states of all
//! providers of a runtime. All runs share these states, because a provider that fails for one run usually fails for
//! all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use haft_core::model_error::ModelErrorKind;

/// The number of failed requests in a row after which haft skips a provider. Each of them was already retried.
pub const FAILURES_MAX: u32 = 5;

/// The time for which haft skips a provider before it tries one request.
pub const SKIP_TIME: Duration = Duration::from_secs(30);

/// The names of all states.
pub const CIRCUIT_STATES: [&str; 3] = ["closed", "open", "trial"];

/// The circuit-breaker state of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitState {
    /// haft sends requests to the provider.
    Closed {
        /// The number of failed requests since the last answer.
        failures: u32,
    },
    /// haft skips the provider until this time.
    Open { until: Instant },
    /// One request tests whether the provider works again. If that request reports no outcome until this time, for
    /// example because it was cancelled, haft allows another one.
    Trial { until: Instant },
}

/// The outcome of a request, reduced to its meaning for the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderOutcome {
    /// The provider answered. An error that the request or the account caused is an answer too.
    Answered,
    /// The provider could not be reached, or failed.
    Failed,
    /// The request ended before the provider answered or failed.
    Unknown,
}

impl ProviderOutcome {
    /// Returns the outcome of a request that failed with this error.
    pub fn of(kind: ModelErrorKind) -> Self {
        match kind {
            ModelErrorKind::Overloaded
            | ModelErrorKind::ServerFailed
            | ModelErrorKind::Unreachable
            | ModelErrorKind::Timeout
            | ModelErrorKind::Malformed => Self::Failed,
            ModelErrorKind::Unauthorized
            | ModelErrorKind::Forbidden
            | ModelErrorKind::UnknownModel
            | ModelErrorKind::InvalidRequest
            | ModelErrorKind::ContextTooLong
            | ModelErrorKind::ToolsUnsupported
            | ModelErrorKind::RequestTooLarge
            | ModelErrorKind::RateLimited
            | ModelErrorKind::QuotaExhausted
            | ModelErrorKind::Blocked
            | ModelErrorKind::ReplyTooLarge => Self::Answered,
            ModelErrorKind::NotRecorded | ModelErrorKind::Cancelled => Self::Unknown,
        }
    }
}

/// The decision whether haft sends a request to a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Ask,
    Skip,
}

impl CircuitState {
    /// Decides whether haft sends the next request to the provider. Also returns the new state.
    pub fn admit(self, now: Instant) -> (Self, Admission) {
        match self {
            Self::Closed { .. } => (self, Admission::Ask),
            Self::Open { until } | Self::Trial { until } if now < until => (self, Admission::Skip),
            Self::Open { .. } | Self::Trial { .. } => {
                (Self::Trial { until: now + SKIP_TIME }, Admission::Ask)
            }
        }
    }

    /// Returns the state after a request.
    #[must_use]
    pub fn after(self, outcome: ProviderOutcome, now: Instant) -> Self {
        let open = Self::Open { until: now + SKIP_TIME };
        match (outcome, self) {
            // A request that began before haft skipped the provider must not extend the pause when it fails.
            (ProviderOutcome::Unknown, _) | (ProviderOutcome::Failed, Self::Open { .. }) => self,
            (ProviderOutcome::Answered, _) => Self::Closed { failures: 0 },
            (ProviderOutcome::Failed, Self::Closed { failures }) if failures + 1 < FAILURES_MAX => {
                Self::Closed { failures: failures + 1 }
            }
            (ProviderOutcome::Failed, Self::Closed { .. } | Self::Trial { .. }) => open,
        }
    }

    /// Returns one of [`CIRCUIT_STATES`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed { .. } => "closed",
            Self::Open { .. } => "open",
            Self::Trial { .. } => "trial",
        }
    }
}

/// The circuit breaker of one provider. Clones share its state.
#[derive(Debug, Clone)]
pub struct ProviderCircuit(Arc<Mutex<CircuitState>>);

impl Default for ProviderCircuit {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(CircuitState::Closed { failures: 0 })))
    }
}

impl ProviderCircuit {
    pub(crate) fn admit(&self) -> Admission {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, admission) = state.admit(Instant::now());
        *state = next;
        admission
    }

    pub(crate) fn note(&self, outcome: ProviderOutcome) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.after(outcome, Instant::now());
    }

    fn name(&self) -> &'static str {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).name()
    }
}

/// The maximum number of addresses that a runtime remembers although no run uses them.
const UNUSED_MAX: usize = 1000;

/// The circuit breakers of a runtime, by the configured name and the base URL of the provider. Only providers that have
/// fallbacks or are fallbacks have one. Clones share the circuit breakers.
#[derive(Debug, Clone, Default)]
pub struct ProviderCircuits(Arc<Mutex<BTreeMap<(String, String), ProviderCircuit>>>);

impl ProviderCircuits {
    /// Returns the circuit breaker of a provider at this base URL. Each address has its own, because runs can use
    /// different addresses for one provider, and a failing server says nothing about another server.
    pub fn of(&self, provider: &str, base_url: &str) -> ProviderCircuit {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= UNUSED_MAX {
            all.retain(|_, circuit| Arc::strong_count(&circuit.0) > 1);
        }
        all.entry((provider.to_owned(), base_url.to_owned())).or_default().clone()
    }

    /// Returns the providers and base URLs that have a circuit breaker.
    pub fn addresses(&self) -> Vec<(String, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Returns each provider with the name of its state. For a provider with several addresses, returns the worst of
    /// their states.
    pub fn states(&self) -> Vec<(String, &'static str)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rank = |name: &str| ["closed", "trial", "open"].iter().position(|state| *state == name);
        let mut states: BTreeMap<String, &'static str> = BTreeMap::new();
        for ((provider, _), circuit) in &*all {
            let (name, worst) = (circuit.name(), states.entry(provider.clone()).or_insert("closed"));
            if rank(name) > rank(worst) {
                *worst = name;
            }
        }
        states.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERED: ProviderOutcome = ProviderOutcome::Answered;
    const FAILED: ProviderOutcome = ProviderOutcome::Failed;
    const UNKNOWN: ProviderOutcome = ProviderOutcome::Unknown;

    fn closed(failures: u32) -> CircuitState {
        CircuitState::Closed { failures }
    }

    #[test]
    fn provider_is_skipped_after_five_failures_in_a_row() {
        let now = Instant::now();
        let open = CircuitState::Open { until: now + SKIP_TIME };
        let check = |outcomes: &[ProviderOutcome], expected: CircuitState| {
            let state = outcomes.iter().fold(closed(0), |state, outcome| state.after(*outcome, now));
            assert_eq!(state, expected, "{outcomes:?}");
        };
        check(&[FAILED; 4], closed(4));
        check(&[FAILED; 5], open);
        check(&[FAILED; 9], open);
        check(&[FAILED, FAILED, FAILED, FAILED, ANSWERED, FAILED], closed(1));
        check(&[FAILED, FAILED, UNKNOWN, FAILED, FAILED, FAILED], open);
        check(&[FAILED, FAILED, FAILED, FAILED, FAILED, ANSWERED], closed(0));
    }

    #[test]
    fn skipped_provider_gets_one_trial_request_after_the_pause() {
        let start = Instant::now();
        let (soon, later) = (start + SKIP_TIME / 2, start + SKIP_TIME);
        let (open, trial) =
            (CircuitState::Open { until: later }, CircuitState::Trial { until: later + SKIP_TIME });
        let check = |state: CircuitState, now: Instant, expected: (CircuitState, Admission)| {
            assert_eq!(state.admit(now), expected, "{state:?}");
        };
        check(closed(4), soon, (closed(4), Admission::Ask));
        check(open, soon, (open, Admission::Skip));
        check(open, later, (trial, Admission::Ask));
        check(trial, later, (trial, Admission::Skip));
        // The trial was cancelled and never reported its outcome.
        let (late, next) = (later + SKIP_TIME, CircuitState::Trial { until: later + 2 * SKIP_TIME });
        check(trial, late, (next, Admission::Ask));
        assert_eq!(trial.after(ANSWERED, late), closed(0));
        assert_eq!(trial.after(FAILED, late), CircuitState::Open { until: late + SKIP_TIME });
        assert_eq!(trial.after(UNKNOWN, late), trial);
    }

    #[test]
    fn only_provider_faults_count_as_failures() {
        let faults = ModelErrorKind::ALL.into_iter().filter(|kind| ProviderOutcome::of(*kind) == FAILED);
        let names: Vec<&str> = faults.map(ModelErrorKind::name).collect();
        assert_eq!(names, ["overloaded", "server_failed", "unreachable", "timeout", "malformed"]);
        assert_eq!(ProviderOutcome::of(ModelErrorKind::Cancelled), UNKNOWN);
        assert_eq!(ProviderOutcome::of(ModelErrorKind::InvalidRequest), ANSWERED);
    }

    #[test]
    fn addresses_of_a_provider_have_separate_states() {
        let circuits = ProviderCircuits::default();
        let fail = |url: &str, count: u32| {
            (0..count).for_each(|_| circuits.of("p", url).note(FAILED));
        };
        fail("http://a/", FAILURES_MAX);
        fail("http://b/", FAILURES_MAX - 1);
        assert_eq!(circuits.of("p", "http://a/").admit(), Admission::Skip);
        assert_eq!(circuits.of("p", "http://b/").admit(), Admission::Ask);
        assert_eq!(circuits.states(), [("p".to_owned(), "open")], "the worst address");
    }

    #[test]
    fn number_of_unused_addresses_is_limited() {
        let circuits = ProviderCircuits::default();
        let used = circuits.of("p", "used");
        (0..FAILURES_MAX).for_each(|_| used.note(FAILED));
        (0..3 * UNUSED_MAX).for_each(|number| drop(circuits.of("p", &number.to_string())));
        assert!(circuits.0.lock().unwrap().len() <= UNUSED_MAX);
        assert_eq!(circuits.of("p", "used").admit(), Admission::Skip);
    }

    #[test]
    fn circuit_states_contains_the_name_of_every_state() {
        let until = Instant::now();
        let states = [closed(0), CircuitState::Open { until }, CircuitState::Trial { until }];
        assert_eq!(states.map(CircuitState::name), CIRCUIT_STATES);
    }
}
