//! Which trace a request belongs to, written as the W3C says, so that a server's own spans can stand below ours.

use haft_core::place::{Operation, SessionId};

use super::message::RequestId;

/// Knows the span of a call that is under way. Whatever makes spans implements it.
pub trait TraceParents: Send + Sync {
    /// Such as `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`; nothing when the call has no span.
    fn of(&self, operation: &Operation) -> Option<String>;
}

/// The trace of a call when nobody makes spans: its session, and in it the operation. Not sampled, for nobody has it.
pub(super) fn of_session(operation: &Operation) -> Option<String> {
    let SessionId(session) = operation.place.session;
    (session != 0).then(|| written(session, operation.id.0))
}

/// The trace of what is asked for no call: the connection's own.
pub(super) fn of_connection(connection: u128, request: RequestId) -> String {
    written(connection, request)
}

fn written(trace: u128, number: u64) -> String {
    // Spread over all digits: a span's number is expected to look like chance, and must not be zero.
    let span = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1);
    format!("00-{trace:032x}-{span:016x}-00")
}

#[cfg(test)]
mod tests {
    use haft_core::place::{OperationId, Place};
    use haft_core::tool::CallId;

    use super::*;

    #[test]
    fn a_trace_is_the_session_and_a_span_the_operation() {
        let operation = |session, id| Operation {
            id: OperationId(id),
            call: CallId("c".into()),
            place: Place::first(SessionId(session)),
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
