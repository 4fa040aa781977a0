//! A response in progress: the run behind it, and the fold of its events.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::stored::StoredMessage;
use haft_core::tool::ToolCall;
use haft_runtime::{EventSeq, ParkReason, RunEvents, RunHandle, RunState};
use haft_store::responses::NewResponse;
use serde_json::Value;

use super::fold::{ResponseFold, StreamEvent};
use super::object::ResponseEnd;
use crate::auth::now_ms;
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
    input: Vec<Value>,
    storage: ResponseStorage,
    progress: ResponseProgress,
}

/// The fate of a response after it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseStorage {
    Stored,
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
        input: Vec<Value>,
        storage: ResponseStorage,
    ) -> Self {
        let events = handle.events(EventSeq::START);
        let parking = Some(parking(handle.clone()));
        let (client_calls, progress) = (Vec::new(), ResponseProgress::New);
        Self { state, handle, events, fold, parking, client_calls, input, storage, progress }
    }

    /// Returns the next events of the stream; `None` after the last ones. Cancelling it loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Vec<StreamEvent>> {
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
        self.store(&response).await;
        let tool_began = self.fold.tool_began();
        self.progress = ResponseProgress::Ended(Box::new(EndedResponse { response, end, tool_began }));
        events
    }

    /// Stores the response before the client learns that it has ended, so that a follow-up request finds it.
    async fn store(&mut self, response: &Value) {
        if self.storage == ResponseStorage::Discarded {
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
            input: self.input.clone(),
            messages: messages.unwrap_or_default(),
            open_calls: self.client_calls.iter().map(|call| call.id.0.clone()).collect(),
        };
        let (store, owner) = (self.state.responses.clone(), self.handle.principal().clone());
        // The disk must not hold up the other requests of this thread.
        let _ = tokio::task::spawn_blocking(move || store.put(&owner, new)).await;
    }
}

impl Drop for ActiveResponse {
    fn drop(&mut self) {
        if !matches!(self.progress, ResponseProgress::Ended(_)) {
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
