//! The W3C trace context of a request. It identifies the caller's span, which is the parent of the run's spans.

/// The maximum length of `tracestate`, in bytes. The specification asks to pass on at least this many.
const STATE_BYTES_MAX: usize = 512;

/// A valid `traceparent`, with the `tracestate` of the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    parent: String,
    state: Option<String>,
}

impl TraceContext {
    /// Reads the two headers. Returns `None` if `parent` is not valid, because the specification tells servers to begin
    /// a new trace then. Drops a state that is too long.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let state = state.filter(|state| state.len() <= STATE_BYTES_MAX).map(str::to_owned);
        is_valid(parent).then(|| Self { parent: parent.to_owned(), state })
    }

    /// Returns a value such as `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
    pub fn parent(&self) -> &str {
        &self.parent
    }

    /// Returns the data of tracing systems, in the form of `tracestate`.
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

/// Returns true for a valid `traceparent`. Later versions may add fields at the end; version `ff` does not exist.
fn is_valid(parent: &str) -> bool {
    let mut fields = parent.split('-');
    let [Some(version), Some(trace), Some(span), Some(flags)] = std::array::from_fn(|_| fields.next()) else {
        return false;
    };
    let is_known = version != "ff" && (version != "00" || fields.next().is_none());
    let is_hex = |field: &str, length: usize| {
        field.len() == length && field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |field: &str, length: usize| is_hex(field, length) && field.bytes().any(|byte| byte != b'0');
    is_known && is_hex(version, 2) && is_id(trace, 32) && is_id(span, 16) && is_hex(flags, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_trace_parents_are_accepted() {
        let check = |parent: &str, expected: bool| {
            assert_eq!(TraceContext::parse(parent, None).is_some(), expected, "{parent}");
        };
        check("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true);
        check("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", true);
        check("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", false);
        check("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false);
        check("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false);
        check("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false);
        check("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false);
        check("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", false);
        check("", false);
    }

    #[test]
    fn long_trace_state_is_dropped_without_the_parent() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let with = |state: &str| TraceContext::parse(parent, Some(state)).unwrap();
        assert_eq!(with("a=1").state(), Some("a=1"));
        assert_eq!(with(&"a".repeat(513)).state(), None);
    }
}
