//! The calls that a server is working on. A request from the server (elicitation or sampling) is assigned to one of
//! these calls: the run of the call pays, and its principal answers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use haft_core::sampling::OriginatingCall;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::task::related_task;

/// One call that a server is working on.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) caller: OriginatingCall,
    /// The number of elicitation requests that were shown to a user during this call.
    pub(super) asked: AtomicU32,
    sampled: AtomicU32,
    /// The task that the server runs for this call, once it is known.
    task: OnceLock<String>,
    /// A channel that closes when the call ends.
    alive: watch::Receiver<()>,
}

impl InFlight {
    /// Counts one more sampling request, and returns its number.
    pub(super) fn count_sample(&self) -> u32 {
        self.sampled.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    pub(super) fn samples(&self) -> u32 {
        self.sampled.load(Ordering::Relaxed)
    }

    /// Sets the task of this call. A call has at most one task.
    pub(super) fn set_task(&self, id: &str) {
        let _ = self.task.set(id.to_owned());
    }

    /// Waits until the call has ended or was dropped.
    pub(super) async fn over(&self) {
        let mut alive = self.alive.clone();
        // The wait ends when the channel closes, at the end of the call; no value is ever sent.
        while alive.changed().await.is_ok() {}
    }
}

/// All calls that one server is working on.
#[derive(Debug, Default)]
pub(super) struct InFlightCalls(Mutex<Vec<Arc<InFlight>>>);

/// The call that a request from the server belongs to, if the request itself does not name its call.
#[derive(Debug, Clone)]
pub(super) enum RequestingCall {
    /// No tool call is in flight.
    None,
    Call(Arc<InFlight>),
    /// Calls of several runs are in flight, and the request does not show to which of them it belongs.
    Ambiguous,
}

impl InFlightCalls {
    /// Adds a call until the returned guard is dropped.
    pub(super) fn begin(&self, caller: OriginatingCall) -> InFlightGuard<'_> {
        let (end, alive) = watch::channel(());
        let call = Arc::new(InFlight {
            caller,
            asked: AtomicU32::new(0),
            sampled: AtomicU32::new(0),
            task: OnceLock::new(),
            alive,
        });
        self.lock().push(Arc::clone(&call));
        InFlightGuard { calls: self, call, _end: end }
    }

    /// Returns the newest call if all calls in flight belong to one run or one client of a gateway. With calls of several
    /// runs, returns `Ambiguous`, because a wrong guess would show the request of one principal to another.
    pub(super) fn asker(&self) -> RequestingCall {
        let calls = self.lock();
        let Some(last) = calls.last() else { return RequestingCall::None };
        if calls.iter().all(|call| is_same_client(&call.caller, &last.caller)) {
            RequestingCall::Call(Arc::clone(last))
        } else {
            RequestingCall::Ambiguous
        }
    }

    /// Returns the call that a request from the server belongs to. A request that names its task belongs to the call of
    /// this task, and to no other call.
    pub(super) fn asker_of(&self, params: Option<&RawValue>) -> RequestingCall {
        let Some(task) = related_task(params) else { return self.asker() };
        let calls = self.lock();
        let found = calls.iter().find(|call| call.task.get() == Some(&task));
        found.map_or(RequestingCall::None, |call| RequestingCall::Call(Arc::clone(call)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<InFlight>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if two calls belong to one run, or to one client of a gateway. Each call of such a client may have its
/// own context.
fn is_same_client(one: &OriginatingCall, two: &OriginatingCall) -> bool {
    let is_same_relay = match (&one.run.relay, &two.run.relay) {
        (Some(one), Some(two)) => std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(two)),
        _ => false,
    };
    is_same_relay || Arc::ptr_eq(&one.run, &two.run)
}

/// Keeps a call in the list while its future is alive.
#[derive(Debug)]
pub(super) struct InFlightGuard<'a> {
    calls: &'a InFlightCalls,
    pub(super) call: Arc<InFlight>,
    _end: watch::Sender<()>,
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.calls.lock().retain(|call| !Arc::ptr_eq(call, &self.call));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use haft_core::event::NoEvents;
    use haft_core::principal::Principal;
    use haft_core::provider::CallContext;
    use haft_core::run::context::RunContext;
    use haft_core::tool::CallId;

    use super::*;

    fn caller(id: &str, run: &Arc<RunContext>) -> OriginatingCall {
        OriginatingCall::of(&CallContext::new(CallId(id.into()), Arc::clone(run), None, Arc::new(NoEvents)))
    }

    fn asked_for(calls: &InFlightCalls) -> Arc<InFlight> {
        match calls.asker() {
            RequestingCall::Call(call) => call,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn server_request_belongs_to_the_newest_call_in_flight() {
        let (calls, run) = (InFlightCalls::default(), Arc::default());
        assert!(matches!(calls.asker(), RequestingCall::None));
        let one = calls.begin(caller("1", &run));
        let two = calls.begin(caller("2", &run));
        let asked = asked_for(&calls);
        assert!(Arc::ptr_eq(&asked, &two.call));
        assert!(asked.over().now_or_never().is_none());
        drop(two);
        assert!(asked.over().now_or_never().is_some());
        assert!(Arc::ptr_eq(&asked_for(&calls), &one.call));
    }

    #[test]
    fn server_request_that_names_a_task_belongs_to_the_call_of_the_task() {
        let calls = InFlightCalls::default();
        let run = || Arc::new(RunContext::default());
        let one = calls.begin(caller("1", &run()));
        let _two = calls.begin(caller("2", &run()));
        one.call.set_task("t-1");
        let of = |task: &str| {
            let text =
                format!(r#"{{"_meta":{{"io.modelcontextprotocol/related-task":{{"taskId":"{task}"}}}}}}"#);
            calls.asker_of(Some(&RawValue::from_string(text).unwrap()))
        };
        assert!(matches!(of("t-1"), RequestingCall::Call(call) if Arc::ptr_eq(&call, &one.call)));
        assert!(matches!(of("t-2"), RequestingCall::None), "an unknown task belongs to no call");
        assert!(matches!(calls.asker_of(None), RequestingCall::Ambiguous));
    }

    #[test]
    fn server_request_during_calls_of_two_runs_is_ambiguous() {
        let calls = InFlightCalls::default();
        let run = |subject: &str| {
            Arc::new(RunContext { principal: Principal::new("t", subject, ""), ..RunContext::default() })
        };
        let (anna, bert) = (run("anna"), run("bert"));
        let of_anna = calls.begin(caller("1", &anna));
        let of_bert = calls.begin(caller("2", &bert));
        assert!(matches!(calls.asker(), RequestingCall::Ambiguous));
        drop(of_bert);
        assert!(Arc::ptr_eq(&asked_for(&calls), &of_anna.call));
    }
}
