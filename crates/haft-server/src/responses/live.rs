//! Responses that continue without a connection: background responses, and responses with an idempotency key. Any
//! number of readers can follow one of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haft_core::principal::Principal;
use haft_runtime::RunHandle;
use serde_json::Value;
use tokio::sync::watch;

use super::drive::{ActiveResponse, EndedResponse};
use super::event_block::EventBlock;

/// The maximum number of events that a follower takes at once. A client that does not read keeps only these events in
/// memory.
const EVENTS_AT_ONCE: usize = 256;

/// The detached responses of this process, by id. A detached response continues without a connection.
#[derive(Debug, Default)]
pub(crate) struct LiveResponses {
    responses: Mutex<HashMap<String, Arc<LiveResponse>>>,
    /// The responses with an idempotency key whose runs are starting. The receivers wake up when the start ends.
    starting: Mutex<HashMap<String, watch::Receiver<()>>>,
}

/// The start of the run of a response with an idempotency key. Requests with the same key wait until it is dropped.
#[derive(Debug)]
pub(crate) struct StartingResponse {
    all: Arc<LiveResponses>,
    id: String,
    _starts: watch::Sender<()>,
}

impl Drop for StartingResponse {
    fn drop(&mut self) {
        // Remove the entry before the sender closes its channel: a request that wakes up must not find it.
        self.all.starting().remove(&self.id);
    }
}

/// One detached response, with all events so far.
#[derive(Debug)]
pub(crate) struct LiveResponse {
    owner: Principal,
    handle: RunHandle,
    request_digest: Option<String>,
    warnings: Vec<String>,
    state: Mutex<LiveState>,
    /// A change counter, which wakes up followers.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct LiveState {
    events: Vec<EventBlock>,
    ended: Option<EndedResponse>,
}

impl LiveResponses {
    /// Drives a response in a separate task. Removes it from the table when it has ended and is stored.
    pub(crate) fn detach(self: &Arc<Self>, mut active: ActiveResponse) -> Arc<LiveResponse> {
        let live = Arc::new(LiveResponse {
            owner: active.handle().principal().clone(),
            handle: active.handle().clone(),
            request_digest: active.request_digest(),
            warnings: active.warnings().to_vec(),
            state: Mutex::default(),
            changed: watch::Sender::new(0),
        });
        let id = active.id().to_owned();
        self.all().insert(id.clone(), Arc::clone(&live));
        let (all, driven) = (Arc::clone(self), Arc::clone(&live));
        tokio::spawn(async move {
            while let Some(events) = active.next().await {
                let blocks = active.blocks(&events);
                driven.change(|state| state.events.extend(blocks));
            }
            let ended = active.finished().await;
            // Remove the response from the table, because later readers find the stored response.
            all.all().remove(&id);
            driven.change(|state| state.ended = Some(ended));
        });
        live
    }

    /// Registers a response whose run is about to start.
    pub(crate) fn begin_start(self: &Arc<Self>, id: String) -> StartingResponse {
        let (starts, ended) = watch::channel(());
        self.starting().insert(id.clone(), ended);
        StartingResponse { all: Arc::clone(self), id, _starts: starts }
    }

    /// Waits until the start of a response has ended. Returns false if the response is not starting.
    pub(crate) async fn wait_for_start(&self, id: &str) -> bool {
        let Some(mut ended) = self.starting().get(id).cloned() else { return false };
        // The sender never sends a value, so this wait ends with an error when the sender is dropped.
        let _ = ended.changed().await;
        true
    }

    /// Returns true while the run of a response starts.
    pub(crate) fn is_starting(&self, id: &str) -> bool {
        self.starting().contains_key(id)
    }

    /// Stops all runs, so that the next process continues them. Calls in progress are interrupted.
    pub(crate) fn suspend_all(&self) {
        for live in self.all().values() {
            live.handle.suspend();
        }
    }

    /// Returns the response with this id, if it belongs to the principal.
    pub(crate) fn get(&self, owner: &Principal, id: &str) -> Option<Arc<LiveResponse>> {
        self.all().get(id).filter(|live| live.owner.is_subject_of(owner)).map(Arc::clone)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<LiveResponse>>> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn starting(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<()>>> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveResponse {
    /// Returns the id of the run.
    pub(crate) fn run(&self) -> String {
        self.handle.id().to_string()
    }

    pub(crate) fn request_digest(&self) -> Option<&str> {
        self.request_digest.as_deref()
    }

    /// Returns the warnings for the client that started the response.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Follows the stream, starting at an event number.
    pub(crate) fn follow(self: &Arc<Self>, from: usize) -> LiveFollower {
        LiveFollower { live: Arc::clone(self), next: from, changed: self.changed.subscribe() }
    }

    /// Cancels the run and waits for the final object.
    pub(crate) async fn cancel(&self) -> EndedResponse {
        self.request_cancel();
        self.ended().await
    }

    /// Cancels the run, and does not wait for its end.
    pub(crate) fn request_cancel(&self) {
        self.handle.cancel();
    }

    /// Waits for the final object.
    pub(crate) async fn ended(&self) -> EndedResponse {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(ended) = self.state().ended.clone() {
                return ended;
            }
            // Waiting cannot fail, because the sender lives as long as this response.
            let _ = changed.changed().await;
        }
    }

    /// Returns the current object: the first object of the stream, with the finished items.
    pub(crate) fn snapshot(&self) -> Value {
        let state = self.state();
        let mut response = first_object(&state.events);
        if state.events.iter().any(|event| event.kind() == "response.in_progress") {
            response["status"] = "in_progress".into();
        }
        let done = state.events.iter().filter(|event| event.kind() == "response.output_item.done");
        let mut items: Vec<Value> = done.map(EventBlock::data).collect();
        items.sort_by_key(|data| data["output_index"].as_u64());
        response["output"] = items.iter_mut().map(|data| data["item"].take()).collect();
        response
    }

    fn change(&self, change: impl FnOnce(&mut LiveState)) {
        change(&mut self.state());
        self.changed.send_modify(|count| *count += 1);
    }

    fn state(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the response object of the first event.
pub(crate) fn first_object(events: &[EventBlock]) -> Value {
    events.first().map(|event| event.data()["response"].take()).unwrap_or_default()
}

/// Reads the events of a detached response: first the past ones, then the new ones. Dropping it does not affect the
/// response.
#[derive(Debug)]
pub(crate) struct LiveFollower {
    live: Arc<LiveResponse>,
    next: usize,
    changed: watch::Receiver<u64>,
}

impl LiveFollower {
    /// Returns the next events; `None` after the last ones. Cancelling this future loses no events.
    pub(crate) async fn next(&mut self) -> Option<Vec<EventBlock>> {
        loop {
            self.changed.borrow_and_update();
            let (more, has_ended) = {
                let state = self.live.state();
                let more = state.events.get(self.next..).unwrap_or_default();
                (more[..more.len().min(EVENTS_AT_ONCE)].to_vec(), state.ended.is_some())
            };
            if !more.is_empty() {
                self.next += more.len();
                return Some(more);
            }
            if has_ended {
                return None;
            }
            // Waiting cannot fail, because the sender lives as long as `live`.
            let _ = self.changed.changed().await;
        }
    }
}
