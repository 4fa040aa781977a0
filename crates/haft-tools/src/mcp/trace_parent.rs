//! The W3C trace context of a request, which makes a server's own spans children of ours.

use haft_core::position::{CallOperation, SessionId};
use haft_core::trace_context::TraceContext;

use super::message::RequestId;

/// Looks up the spans of running calls. The tracing backend implements this trait.
pub trait TraceParents: Send + Sync {
    /// Returns a value such as `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`; `None` when the call has no
    /// span.
    fn of(&self, operation: &CallOperation) -> Option<String>;

    /// Makes the span of a caller the parent of the run that this session starts or continues next.
    fn adopt(&self, session: SessionId, caller: &TraceContext);

    /// Forgets the span of the caller, because the work for this session ends without a run.
    fn release(&self, session: SessionId);
}

/// Returns the trace context of a call if there is no tracing backend: the session id becomes the trace id, and the
/// operation the span id. It is marked as not sampled, because no backend records it.
pub(super) fn of_session(operation: &CallOperation) -> Option<String> {
    let SessionId(session) = operation.place.session;
    (session != 0).then(|| written(session, operation.id.0))
}

/// Returns the trace context of a request that belongs to no call, within the connection's own trace.
pub(super) fn of_connection(connection: u128, request: RequestId) -> String {
    written(connection, request)
}

fn written(trace: u128, number: u64) -> String {
    // Spread the number over all digits: span ids should look random, and zero is not valid.
    let span = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1);
    format!("00-{trace:032x}-{span:016x}-00")
}

#[cfg(test)]
mod tests {
    use haft_core::position::{OperationId, RunPosition};
    use haft_core::tool::CallId;

    use super::*;

    #[test]
    fn traceparent_has_the_session_as_trace_and_operation_as_span() {
        let operation = |session, id| CallOperation {
            id: OperationId(id),
            call: CallId("c".into()),
            place: RunPosition::first(SessionId(session)),
        };
        assert_eq!(of_session(&operation(0, 1)), None);
        let (one, other) = (of_session(&operation(7, 1)).unwrap(), of_session(&operation(7, 2)).unwrap());
        assert_eq!(one, "00-00000000000000000000000000000007-3c6ef372fe94f82a-00");
        assert_ne!(one, other);
        assert_eq!(
            of_session(&operation(7, u64::MAX)).unwrap(),
            "00-00000000000000000000000000000007-0000000000000001-00"
        );
    }
}
