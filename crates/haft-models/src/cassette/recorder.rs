//! A provider that wraps another provider and records its requests and replies.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{StreamExt, stream};
use haft_core::event::{Event, EventSink};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{ModelContext, ModelProvider, ReplyStream};
use haft_core::model_reply::ReplyFold;
use haft_core::model_request::ModelRequest;
use haft_core::stored::{StoredEvent, StoredModelError, StoredRequest};
use tokio::time::Instant;

use super::exchange::{EarlierExchange, ExchangeLine};
use super::fingerprint::FingerprintCache;
use super::reply_event::{StoredAccount, StoredAttempt, StoredMoment, StoredReplyEvent};
use super::{TYPE_EXCHANGE, Tape};
use crate::conversation_cache::ConversationCache;

/// Writes an exchange when its reply ends, even if the caller cancels the reply. The recorder wraps all other
/// providers, so a recording does not depend on the wire format, on the way in which tools are passed to the model, or
/// on the fallback model that answered.
pub struct Recorder<P> {
    inner: P,
    tape: Arc<Tape>,
    known: ConversationCache<FingerprintCache>,
}

impl<P: ModelProvider> Recorder<P> {
    pub fn new(inner: P, tape: Arc<Tape>) -> Self {
        Self { inner, tape, known: ConversationCache::default() }
    }

    fn write(&self, asked: &str, request: ModelRequest, reply: &[StoredMoment]) {
        let mut known = self.known.take(&request.conversation);
        let prints = known.prints(&request);
        let exchange = self.tape.next_number();
        let before = known.written.as_ref();
        let continues = before.map(|(exchange, request)| EarlierExchange {
            exchange: *exchange,
            messages: request.conversation.messages().len(),
        });
        let new = continues.map_or(0, |continues| continues.messages);
        let written = ExchangeLine {
            exchange,
            provider: self.inner.name(),
            asked,
            turn: prints.turn,
            called: &prints.called,
            digest: prints.digest.to_string(),
            exact: prints.exact.to_string(),
            continues,
            request: StoredRequest::after(&request, before.map(|(_, request)| request), new),
            reply,
        };
        self.tape.write(TYPE_EXCHANGE, &written);
        known.written = Some((exchange, request));
        self.known.put(known);
    }
}

impl<P: ModelProvider> ModelProvider for Recorder<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn ask(&self, request: ModelRequest, cx: &ModelContext) -> ReplyStream<'_> {
        let notes = Arc::new(ReplyTimeline { began: Instant::now(), moments: Mutex::default() });
        let watched = cx.through(|events| Arc::new(AttemptRecorder { notes: Arc::clone(&notes), events }));
        let replies = self.inner.ask(request.clone(), &watched);
        let (asked, fold) = (Arc::clone(&cx.id), ReplyFold::default());
        let entry =
            ExchangeInProgress { recorder: self, asked, request: Some(request), notes, fold, over: None };
        stream::unfold(ReplyInProgress { replies, entry }, async |mut under_way| {
            under_way.entry.over.get_or_insert(ReplyHasEnded::No);
            let next = under_way.replies.next().await;
            under_way.entry.see(next.as_ref());
            Some((next?, under_way))
        })
        .boxed()
    }
}

/// Tells whether a reply has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplyHasEnded {
    No,
    Yes,
}

/// A reply in progress. `replies` must be the first field, because fields drop in order. Dropping `replies` reports the
/// cancelled attempt, and dropping `entry` then writes the exchange with this attempt.
struct ReplyInProgress<'a, P: ModelProvider> {
    replies: ReplyStream<'a>,
    entry: ExchangeInProgress<'a, P>,
}

/// An exchange in progress. Dropping this value writes the exchange.
struct ExchangeInProgress<'a, P: ModelProvider> {
    recorder: &'a Recorder<P>,
    asked: Arc<str>,
    request: Option<ModelRequest>,
    notes: Arc<ReplyTimeline>,
    fold: ReplyFold,
    /// Tells whether the reply has ended; `None` until the caller polls the reply for the first time. An unpolled reply
    /// is not recorded, because no request was sent.
    over: Option<ReplyHasEnded>,
}

impl<P: ModelProvider> ExchangeInProgress<'_, P> {
    fn see(&mut self, next: Option<&Result<ModelEvent, ModelError>>) {
        match next {
            Some(Ok(event)) => {
                self.notes.add(StoredReplyEvent::Event(StoredEvent::of(event)));
                self.fold.apply(event);
            }
            Some(Err(error)) => {
                self.notes.add(StoredReplyEvent::Error(StoredModelError::of(error)));
                self.over = Some(ReplyHasEnded::Yes);
            }
            None => self.over = Some(ReplyHasEnded::Yes),
        }
    }

    /// Returns the recorded events to write. Redaction would miss a secret that is split over several deltas, so the
    /// text of a reply with a secret is written as one delta.
    fn reply(&mut self) -> Vec<StoredMoment> {
        let moments = self.notes.take();
        let whole = std::mem::take(&mut self.fold).finish().into_events();
        let whole: Vec<StoredEvent> = whole.iter().map(StoredEvent::of).collect();
        let json = serde_json::to_string(&whole).unwrap_or_default();
        if !self.recorder.tape.holds_secret(&json) {
            return moments;
        }
        let at = moments.iter().position(|StoredMoment(_, what)| matches!(what, StoredReplyEvent::Event(_)));
        let (before, rest) = moments.split_at(at.unwrap_or(0));
        let others = rest.iter().filter(|StoredMoment(_, what)| !matches!(what, StoredReplyEvent::Event(_)));
        let whole = whole.into_iter().map(|event| StoredMoment(0, StoredReplyEvent::Event(event)));
        before.iter().cloned().chain(whole).chain(others.cloned()).collect()
    }
}

impl<P: ModelProvider> Drop for ExchangeInProgress<'_, P> {
    fn drop(&mut self) {
        let (Some(request), Some(over)) = (self.request.take(), self.over) else { return };
        if over == ReplyHasEnded::No {
            let error = ModelError::new(
                ModelErrorKind::Cancelled,
                "the request was cancelled before the reply ended",
            );
            self.notes.add(StoredReplyEvent::Error(StoredModelError::of(&error)));
        }
        let reply = self.reply();
        self.recorder.write(&self.asked, request, &reply);
    }
}

/// The events recorded so far, each with its time, in order.
struct ReplyTimeline {
    began: Instant,
    moments: Mutex<Vec<StoredMoment>>,
}

impl ReplyTimeline {
    fn add(&self, what: StoredReplyEvent) {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moments.lock().unwrap_or_else(PoisonError::into_inner).push(StoredMoment(ms, what));
    }

    fn take(&self) -> Vec<StoredMoment> {
        std::mem::take(&mut self.moments.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An event sink that records attempts and forwards every event.
struct AttemptRecorder {
    notes: Arc<ReplyTimeline>,
    events: Arc<dyn EventSink>,
}

impl EventSink for AttemptRecorder {
    fn emit(&self, event: Event) {
        match &event {
            Event::ModelStarted { attempt, .. } => {
                self.notes.add(StoredReplyEvent::Attempt(StoredAttempt::of(attempt)));
            }
            Event::ModelFinished { attempt, account, .. } => {
                let (attempt, account) = (StoredAttempt::of(attempt), StoredAccount::of(account));
                self.notes.add(StoredReplyEvent::Account(attempt, account));
            }
            Event::ToolStarted { .. }
            | Event::ToolProgress { .. }
            | Event::ToolFinished { .. }
            | Event::Run { .. } => {}
        }
        self.events.emit(event);
    }
}

impl<P: ModelProvider> std::fmt::Debug for Recorder<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("inner", &self.inner.name())
            .field("tape", &self.tape)
            .finish_non_exhaustive()
    }
}
