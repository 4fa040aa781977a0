//! A provider that answers from a recording.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{StreamExt, future, stream};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{ModelContext, ModelProvider, ReplyStream};
use haft_core::model_request::ModelRequest;

use super::error::RecordingProblem;
use super::exchange::RecordedExchange;
use super::fingerprint::{FingerprintCache, RequestFingerprints};
use super::reply_event::ReplayEvent;
use super::{Recording, RecordingError, TYPE_EXCHANGE, difference, normalize};
use crate::conversation_cache::ConversationCache;

/// The rule that matches a recorded exchange to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchRule {
    /// The requests are equal except for system prompt, dates and local paths.
    Digest,
    /// The requests are at the same turn, after calls to the same tools. This rule is for live tools, whose outputs
    /// differ from the recorded ones.
    Turn,
}

/// Replays each recorded reply once and without delay. If several replies match, replays them in recorded order.
/// Reports attempts again with their recorded latency and cost, so the caller must not add these attempts to the usage
/// records a second time.
pub struct Replayer {
    matching: MatchRule,
    exchanges: Vec<RecordedExchange>,
    played: Mutex<Vec<bool>>,
    known: ConversationCache<FingerprintCache>,
}

impl Replayer {
    pub fn new(recording: &Recording, matching: MatchRule) -> Result<Self, RecordingError> {
        let exchanges: Vec<RecordedExchange> = recording
            .of_type(TYPE_EXCHANGE)
            .map(|line| RecordedExchange::read(recording, line))
            .collect::<Result<_, _>>()?;
        if exchanges.is_empty() {
            return Err(RecordingError::new(recording.path(), RecordingProblem::NoModel));
        }
        let played = Mutex::new(vec![false; exchanges.len()]);
        Ok(Self { matching, exchanges, played, known: ConversationCache::default() })
    }

    /// Returns the model in the first recorded request.
    pub fn model(&self) -> Option<String> {
        Some(self.first_request()?.model)
    }

    /// Returns the first recorded request.
    pub fn first_request(&self) -> Option<ModelRequest> {
        self.exchanges.first()?.request(|_| None).ok()
    }

    /// Returns the first request with this id. Returns `None` if that request continues another exchange.
    pub fn request_with_id(&self, id: &str) -> Option<ModelRequest> {
        self.exchanges.iter().find(|exchange| exchange.asked == id)?.request(|_| None).ok()
    }

    /// Returns the number of exchanges that have not been replayed yet.
    pub fn left(&self) -> usize {
        let played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        played.iter().filter(|played| !**played).count()
    }

    fn answer(&self, id: &str, request: &ModelRequest) -> Result<Vec<ReplayEvent>, ModelError> {
        let mut known = self.known.take(&request.conversation);
        let prints = known.prints(request);
        self.known.put(known);
        let Some(exchange) = self.find(id, &prints) else { return Err(self.miss(request, &prints)) };
        exchange.reply().map_err(|problem| ModelError::new(ModelErrorKind::Malformed, problem))
    }

    /// Returns the best match that was not replayed yet, and marks it as replayed. Among equal matches, prefers the
    /// exchange with the same caller id.
    fn find(&self, id: &str, prints: &RequestFingerprints) -> Option<&RecordedExchange> {
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || self.exchanges.iter().enumerate().filter(|(at, _)| !played[*at]);
        let fits = |exchange: &RecordedExchange| match self.matching {
            MatchRule::Digest => exchange.prints.digest == prints.digest,
            MatchRule::Turn => {
                (exchange.prints.turn, &exchange.prints.called) == (prints.turn, &prints.called)
            }
        };
        let is_exact = |one: &RecordedExchange| fits(one) && one.prints.exact == prints.exact;
        let own_exact = open().find(|(_, one)| is_exact(one) && one.asked == id);
        let exact = || open().find(|(_, one)| is_exact(one));
        let own = || open().find(|(_, one)| fits(one) && one.asked == id);
        let same = || open().find(|(_, one)| fits(one) && one.prints.digest == prints.digest);
        let any = || open().find(|(_, one)| fits(one));
        let (at, exchange) = own_exact.or_else(exact).or_else(own).or_else(same).or_else(any)?;
        played[at] = true;
        Some(exchange)
    }

    fn miss(&self, request: &ModelRequest, prints: &RequestFingerprints) -> ModelError {
        let message = match self.matching {
            MatchRule::Digest => self.nearest(request, prints),
            MatchRule::Turn => self.turns(prints),
        };
        ModelError::new(ModelErrorKind::NotRecorded, message)
    }

    /// Describes the most similar recorded request, and how it differs.
    fn nearest(&self, request: &ModelRequest, prints: &RequestFingerprints) -> String {
        let same = self.exchanges.iter().filter(|exchange| exchange.prints.digest == prints.digest).count();
        if same > 0 {
            let times = if same == 1 { "once".to_owned() } else { format!("{same} times") };
            return format!(
                "the recording has no more replies to this request: it was recorded {times}, and the replay sent it once more"
            );
        }
        let actual = normalize::request(request);
        let requests = self.requests();
        let recorded = self.exchanges.iter().filter_map(|exchange| {
            let request = normalize::request(requests.get(&exchange.number)?);
            Some((difference::similarity(&request, &actual), exchange, request))
        });
        // If several requests are equally similar, use the first one.
        let nearest = recorded.reduce(|best, next| if next.0 > best.0 { next } else { best });
        let Some((_, exchange, recorded)) = nearest else {
            return "no recorded request matches, and haft can read none of the recorded requests".into();
        };
        let line = exchange.line;
        match difference::differences(&recorded, &actual).join("; ").as_str() {
            // The digest was computed before redaction, so the stored request differs from the original only in the
            // redacted secret.
            "" => {
                format!(
                    "no recorded request matches; the request on line {line} of the recording differs only in a secret \
                     that was redacted"
                )
            }
            differences => {
                format!(
                    "no recorded request matches; the most similar request is on line {line}, where {differences}"
                )
            }
        }
    }

    fn turns(&self, prints: &RequestFingerprints) -> String {
        let after = |called: &[String]| match called {
            [] => "after no calls".to_owned(),
            names => format!("after calls to {}", names.join(", ")),
        };
        let actual = format!("turn {} {}", prints.turn, after(&prints.called));
        let same_turn = self.exchanges.iter().filter(|exchange| exchange.prints.turn == prints.turn);
        let recorded: Vec<String> = same_turn
            .map(|exchange| format!("line {} {}", exchange.line, after(&exchange.prints.called)))
            .collect();
        match recorded.as_slice() {
            [] => {
                let last = self.exchanges.iter().map(|exchange| exchange.prints.turn).max().unwrap_or(0);
                format!("no recorded request matches {actual}: the recording ends with turn {last}")
            }
            [..] => format!(
                "no recorded request matches {actual}: the recording has this turn on {}",
                recorded.join(", ")
            ),
        }
    }

    /// Returns every readable request in full, by the number of its exchange.
    fn requests(&self) -> HashMap<u64, ModelRequest> {
        let mut requests: HashMap<u64, ModelRequest> = HashMap::new();
        for exchange in &self.exchanges {
            if let Ok(request) = exchange.request(|number| requests.get(&number)) {
                requests.insert(exchange.number, request);
            }
        }
        requests
    }
}

impl ModelProvider for Replayer {
    fn name(&self) -> &str {
        self.exchanges.first().map_or("recording", |exchange| &exchange.provider)
    }

    fn ask(&self, request: ModelRequest, cx: &ModelContext) -> ReplyStream<'_> {
        let (id, cx) = (Arc::clone(&cx.id), cx.clone());
        stream::once(async move { self.answer(&id, &request) })
            .flat_map(|answer| match answer {
                Ok(happenings) => stream::iter(happenings),
                Err(error) => stream::iter(vec![ReplayEvent::Error(error)]),
            })
            .filter_map(move |happening| future::ready(deliver(happening, &cx)))
            .boxed()
    }
}

fn deliver(happening: ReplayEvent, cx: &ModelContext) -> Option<Result<ModelEvent, ModelError>> {
    match happening {
        ReplayEvent::Attempt(attempt) => cx.attempt_started(&attempt),
        ReplayEvent::Account(attempt, account) => cx.attempt_finished(&attempt, account),
        ReplayEvent::Event(event) => return Some(Ok(event)),
        ReplayEvent::Error(error) => return Some(Err(error)),
    }
    None
}

impl std::fmt::Debug for Replayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replayer")
            .field("matching", &self.matching)
            .field("exchanges", &self.exchanges.len())
            .finish_non_exhaustive()
    }
}
