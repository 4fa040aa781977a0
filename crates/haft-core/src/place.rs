//! Where in the work a call stands: its session, its turn, and the call it was made for.

use std::fmt;

use crate::tool::CallId;

/// A session: what lives across the turns of one asker. Random, so that no two are the same anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId(pub u128);

/// In groups of digits, as such numbers are usually written.
impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        write!(f, "{}-{}-", &digits[..8], &digits[8..12])?;
        write!(f, "{}-{}-{}", &digits[12..16], &digits[16..20], &digits[20..])
    }
}

/// Tells the operations of one process apart. The ids of calls cannot: askers choose them and may choose one twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OperationId(pub u64);

/// Where a call stands. The run decides it, never the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    pub session: SessionId,
    /// Counted from one.
    pub turn: u32,
    /// The operation that this session works for: the call of a sub-agent. All places of a session name the same one.
    pub parent: Option<OperationId>,
    /// The session in which the request was first made; its own when the session works for nobody else.
    pub origin: SessionId,
}

impl Place {
    /// The first turn of a session that works for nobody else.
    pub const fn first(session: SessionId) -> Self {
        Self { session, turn: 1, parent: None, origin: session }
    }

    /// The first turn of a session that works for an operation of this one.
    #[must_use]
    pub const fn below(&self, session: SessionId, operation: OperationId) -> Self {
        Self { session, turn: 1, parent: Some(operation), origin: self.origin }
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::first(SessionId(0))
    }
}

/// One call, as those who watch know it. Shared by all its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    pub id: OperationId,
    /// As the asker named it, shortened to what is worth repeating.
    pub call: CallId,
    pub place: Place,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_written_in_groups() {
        let session = SessionId(0x0123_4567_89ab_4def_8123_4567_89ab_cdef);
        assert_eq!(session.to_string(), "01234567-89ab-4def-8123-456789abcdef");
        assert_eq!(SessionId(1).to_string(), "00000000-0000-0000-0000-000000000001");
    }
}
