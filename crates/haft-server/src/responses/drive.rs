//! A response in progress: the run behind it, and the fold of its events.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::conversation::Message;
use haft_core::stored::StoredMessage;
use haft_core::tool::ToolCall;
use haft_runtime::{EventSeq, ParkReason, RunEvents, RunHandle, RunState};
use haft_store::responses::NewResponse;
use serde_json::Value;

use super::fold::{ResponseFold, StreamEvent};
use super::object::ResponseEnd;
use crate::auth::{Caller, now_ms};
use crate::conversations;
use crate::server::ServerState;

/// A response whose run works. Dropping it cancels the run, because a client that has gone needs no answer.
pub(crate) struct ActiveResponse {
    state: Arc<ServerState>,
    handle: RunHandle,
    events: RunEvents,
    fold: ResponseFold,
    /// Resolves when the model calls functions of the client; `None` if it cannot, or has.
    parking: Option<BoxFuture<'static, Vec<ToolCall>>>,
    client_calls: Vec<ToolCall>,
    kept: KeptResponse,
    /// All events, for a response whose readers may come later.
    replayable: Vec<Value>,
    progress: ResponseProgress,
}

/// Everything that decides what remains of a response.
#[derive(Debug)]
pub(crate) struct KeptResponse {
    pub(crate) caller: Caller,
    /// The input items, as the wire shows them.
    pub(crate) input: Vec<Value>,
    pub(crate) storage: ResponseStorage,
    /// The conversation that gets the items.
    pub(crate) conversation: Option<String>,
}

/// The end of a response from which a connection continues, also if nothing is stored.
#[derive(Debug, Clone)]
pub(crate) struct LastResponse {
    pub(crate) id: String,
    pub(crate) messages: Vec<Message>,
    pub(crate) open_calls: Vec<String>,
}

/// The fate of a response after it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseStorage {
    Stored,
    /// Stored with its events, and from its beginning on.
    StoredForReplay,
    /// The client keeps the conversation itself.
    Discarded,
}

#[derive(Debug)]
enum ResponseProgress {
    New,
    Working,
    Ended(Box<EndedResponse>),
}

/// The final object of a response.
#[derive(Debug, Clone)]
pub(crate) struct EndedResponse {
    pub(crate) response: Value,
    pub(crate) end: ResponseEnd,
    pub(crate) tool_began: bool,
}

impl ActiveResponse {
    pub(crate) fn new(
        state: Arc<ServerState>,
        handle: RunHandle,
        fold: ResponseFold,
        kept: KeptResponse,
    ) -> Self {
        let events = handle.events(EventSeq::START);
        let parking = Some(parking(handle.clone()));
        Self {
            state,
            handle,
            events,
            fold,
            parking,
            client_calls: Vec::new(),
            kept,
            replayable: Vec::new(),
            progress: ResponseProgress::New,
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.fold.head().id
    }

    pub(crate) fn handle(&self) -> &RunHandle {
        &self.handle
    }

    /// Returns the conversation after the response; `None` before its end.
    pub(crate) fn continuation(&self) -> Option<LastResponse> {
        let conversation = self.handle.conversation()?;
        Some(LastResponse {
            id: self.fold.head().id.clone(),
            messages: conversation.messages().iter().map(|message| Message::clone(message)).collect(),
            open_calls: self.open_calls(),
        })
    }

    fn open_calls(&self) -> Vec<String> {
        self.client_calls.iter().map(|call| call.id.0.clone()).collect()
    }

    /// Stores the response before it has ended, so that it can be found from the moment that the client knows its id.
    pub(crate) async fn store_beginning(&mut self) {
        let response = self.fold.head().object("in_progress", &[], None, &ResponseEnd::default());
        self.store(&response).await;
    }

    /// Returns the next events of the stream; `None` after the last ones. Cancelling it loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Vec<StreamEvent>> {
        let events = self.next_events().await?;
        if self.kept.storage == ResponseStorage::StoredForReplay && !self.has_ended() {
            self.replayable.extend(events.iter().map(|event| event.data.clone()));
        }
        Some(events)
    }

    fn has_ended(&self) -> bool {
        matches!(self.progress, ResponseProgress::Ended(_))
    }

    async fn next_events(&mut self) -> Option<Vec<StreamEvent>> {
        match self.progress {
            ResponseProgress::New => {
                self.progress = ResponseProgress::Working;
                return Some(self.fold.start());
            }
            ResponseProgress::Ended(_) => return None,
            ResponseProgress::Working => {}
        }
        loop {
            let event = match &mut self.parking {
                None => self.events.next().await,
                Some(parking) => tokio::select! {
                    biased;
                    event = self.events.next() => event,
                    calls = parking => {
                        self.parking = None;
                        self.client_calls = calls;
                        // The follow-up request starts a run of its own, so this one needs no place to wait in.
                        self.handle.cancel();
                        continue;
                    }
                },
            };
            match event {
                Some(Ok(event)) => {
                    let events = self.fold.apply(&event);
                    if !events.is_empty() {
                        return Some(events);
                    }
                }
                // A reader this far behind lost text; the final object of the run is still complete.
                Some(Err(_)) => {}
                None => return Some(self.finish().await),
            }
        }
    }

    /// Works to the end and returns the final object.
    pub(crate) async fn finished(mut self) -> EndedResponse {
        while self.next().await.is_some() {}
        match &self.progress {
            ResponseProgress::Ended(ended) => EndedResponse::clone(ended),
            ResponseProgress::New | ResponseProgress::Working => EndedResponse {
                response: Value::Null,
                end: ResponseEnd::failed("server_error", "server_error", "the response has no end"),
                tool_began: false,
            },
        }
    }

    async fn finish(&mut self) -> Vec<StreamEvent> {
        let outcome = self.handle.finished().await;
        let mut events = Vec::new();
        let end = match outcome {
            Ok(_) if !self.client_calls.is_empty() => {
                let calls = std::mem::take(&mut self.client_calls);
                events = self.fold.client_calls(&calls);
                self.client_calls = calls;
                ResponseEnd::completed()
            }
            Ok(outcome) => ResponseEnd::of(&outcome.finish),
            Err(defect) => ResponseEnd::failed("server_error", "server_error", defect.to_string()),
        };
        let end = ResponseEnd { completed_s: (end.status == "completed").then(|| now_ms() / 1000), ..end };
        let (response, last) = self.fold.end(&end);
        events.extend(last);
        if self.kept.storage == ResponseStorage::StoredForReplay {
            self.replayable.extend(events.iter().map(|event| event.data.clone()));
        }
        self.store(&response).await;
        self.extend_conversation(&response).await;
        let tool_began = self.fold.tool_began();
        self.progress = ResponseProgress::Ended(Box::new(EndedResponse { response, end, tool_began }));
        events
    }

    /// Adds the input and the output to the conversation. One that was deleted meanwhile stays deleted.
    async fn extend_conversation(&mut self, response: &Value) {
        let Some(id) = self.kept.conversation.clone() else { return };
        let output = response["output"].as_array().cloned().unwrap_or_default();
        let items = self.kept.input.iter().cloned().chain(output).collect();
        let (state, caller) = (Arc::clone(&self.state), self.kept.caller.clone());
        let _ = conversations::append(&state, &caller, &id, items).await;
    }

    /// Stores the response before the client learns that it has ended, so that a follow-up request finds it.
    async fn store(&mut self, response: &Value) {
        if self.kept.storage == ResponseStorage::Discarded {
            return;
        }
        let messages = self.handle.conversation().map(|conversation| {
            conversation.messages().iter().map(|message| StoredMessage::of(message)).collect()
        });
        let new = NewResponse {
            id: self.fold.head().id.clone(),
            run: self.handle.id().to_string(),
            created_ms: self.fold.head().created_s * 1000,
            response: response.clone(),
            input: self.kept.input.clone(),
            messages: messages.unwrap_or_default(),
            open_calls: self.open_calls(),
            events: self.replayable.clone(),
        };
        let (store, owner) = (self.state.responses.clone(), self.handle.principal().clone());
        // The disk must not hold up the other requests of this thread.
        let _ = tokio::task::spawn_blocking(move || store.put(&owner, new)).await;
    }
}

impl Drop for ActiveResponse {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.handle.cancel();
        }
    }
}

/// Waits until the run needs its caller. Approvals and questions are denied, so that only functions can be the reason.
fn parking(handle: RunHandle) -> BoxFuture<'static, Vec<ToolCall>> {
    Box::pin(async move {
        match handle.wait().await {
            Ok(RunState::Parked(ParkReason::ClientOutputs(calls))) => calls,
            Ok(_) | Err(_) => std::future::pending().await,
        }
    })
}
