//! The calls that a server is at: on whose account it may ask for something, and how often.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use haft_core::event::EventSink;
use haft_core::place::{OperationId, Place};
use haft_core::provider::{CallContext, Principal};
use haft_core::run::scope::RunScope;
use tokio::sync::watch;

/// On whose account something is done for a server: the call that it works for.
#[derive(Clone)]
pub struct OnBehalf {
    pub principal: Principal,
    pub operation: OperationId,
    /// Where the call stands.
    pub place: Place,
    /// The run that the call is made for; none for a call that stands alone.
    pub scope: Option<Arc<RunScope>>,
    /// Who watches the call, and counts what its run costs.
    pub events: Arc<dyn EventSink>,
}

impl OnBehalf {
    pub fn of(cx: &CallContext) -> Self {
        let operation = cx.operation();
        Self {
            principal: cx.principal.clone(),
            operation: operation.id,
            place: operation.place,
            scope: cx.scope.clone(),
            events: Arc::clone(cx.events()),
        }
    }
}

impl fmt::Debug for OnBehalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnBehalf").field("operation", &self.operation).finish_non_exhaustive()
    }
}

/// One call that a server is at.
#[derive(Debug)]
pub(super) struct Underway {
    pub(super) caller: OnBehalf,
    /// How often a person was asked for it.
    pub(super) asked: AtomicU32,
    sampled: AtomicU32,
    /// Ends with the call.
    alive: watch::Receiver<()>,
}

impl Underway {
    /// Counts one more request for a model; the number that it is.
    pub(super) fn count_sample(&self) -> u32 {
        self.sampled.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    pub(super) fn samples(&self) -> u32 {
        self.sampled.load(Ordering::Relaxed)
    }

    /// Waits until nobody waits for the call any more.
    pub(super) async fn over(&self) {
        let mut alive = self.alive.clone();
        // Nothing is ever sent; only its end is heard.
        while alive.changed().await.is_ok() {}
    }
}

/// All calls that one server is at.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<Vec<Arc<Underway>>>);

impl Calls {
    /// A call begins; it is over when what is given is dropped.
    pub(super) fn begin(&self, caller: OnBehalf) -> Begun<'_> {
        let (end, alive) = watch::channel(());
        let call = Arc::new(Underway { caller, asked: AtomicU32::new(0), sampled: AtomicU32::new(0), alive });
        self.lock().push(Arc::clone(&call));
        Begun { calls: self, call, _end: end }
    }

    /// The call that a question belongs to which does not say so itself: the one that began last.
    pub(super) fn last(&self) -> Option<Arc<Underway>> {
        self.lock().last().cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Underway>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call for as long as somebody waits for it.
#[derive(Debug)]
pub(super) struct Begun<'a> {
    calls: &'a Calls,
    pub(super) call: Arc<Underway>,
    _end: watch::Sender<()>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.calls.lock().retain(|call| !Arc::ptr_eq(call, &self.call));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use haft_core::event::NoEvents;
    use haft_core::tool::CallId;

    use super::*;

    pub(crate) fn caller(id: &str) -> OnBehalf {
        OnBehalf::of(&CallContext::new(CallId(id.into()), Principal::local(), None, Arc::new(NoEvents)))
    }

    #[test]
    fn a_question_belongs_to_the_call_that_began_last_and_is_not_over() {
        let calls = Calls::default();
        assert!(calls.last().is_none());
        let one = calls.begin(caller("1"));
        let two = calls.begin(caller("2"));
        let asked = calls.last().unwrap();
        assert!(Arc::ptr_eq(&asked, &two.call));
        assert!(asked.over().now_or_never().is_none());
        drop(two);
        assert!(asked.over().now_or_never().is_some());
        assert!(Arc::ptr_eq(&calls.last().unwrap(), &one.call));
    }
}
