//! The background responses of an earlier process that this process has not continued yet.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haft_core::principal::Principal;
use haft_store::responses::UnfinishedResponse;

use crate::rate_limit::ResponseSlot;

/// The responses to continue, by id.
#[derive(Debug, Default)]
pub(crate) struct Continuations(Mutex<HashMap<String, Arc<Continuation>>>);

/// A response that this process must continue.
#[derive(Debug)]
pub(crate) struct Continuation {
    pub(crate) unfinished: UnfinishedResponse,
    /// True if a client has cancelled the response.
    is_cancelled: AtomicBool,
    /// The lock is held while the response is being continued, so that only one task continues it.
    pub(crate) progress: tokio::sync::Mutex<ContinuationProgress>,
}

#[derive(Debug)]
pub(crate) enum ContinuationProgress {
    /// The response does not continue yet. The slot counts it towards the limit of its key, until the continuation
    /// takes the slot; `None` if the slot was taken or the response has none.
    Waiting(Option<ResponseSlot>),
    /// The response continues, or has ended.
    Done,
}

impl Continuation {
    pub(crate) fn new(unfinished: UnfinishedResponse, slot: Option<ResponseSlot>) -> Self {
        Self {
            unfinished,
            is_cancelled: AtomicBool::new(false),
            progress: tokio::sync::Mutex::new(ContinuationProgress::Waiting(slot)),
        }
    }

    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }

    fn belongs_to(&self, owner: &Principal) -> bool {
        self.unfinished.principal().is_subject_of(owner)
    }
}

impl Continuations {
    pub(crate) fn add(&self, continuation: Continuation) {
        self.all().insert(continuation.unfinished.id.clone(), Arc::new(continuation));
    }

    /// Returns the response with this id, if it belongs to the principal.
    pub(crate) fn get(&self, owner: &Principal, id: &str) -> Option<Arc<Continuation>> {
        self.all().get(id).filter(|one| one.belongs_to(owner)).map(Arc::clone)
    }

    /// Returns the id of the response that a run of this principal creates.
    pub(crate) fn of_run(&self, owner: &Principal, run: &str) -> Option<String> {
        let all = self.all();
        let found = all.values().find(|one| one.unfinished.run == run && one.belongs_to(owner));
        found.map(|one| one.unfinished.id.clone())
    }

    pub(crate) fn waiting(&self) -> Vec<Arc<Continuation>> {
        self.all().values().map(Arc::clone).collect()
    }

    pub(crate) fn remove(&self, id: &str) {
        self.all().remove(id);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Continuation>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
