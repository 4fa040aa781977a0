//! The position of a call: its session, its turn, and the parent operation.

use std::fmt;

use crate::digest::write_hex;
use crate::tool::CallId;

/// Identifies a session. The id of a root run is random by default. The id of a sub-agent's session is a digest of the
/// session and the call above it, so that a resumed run finds it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId(pub u128);

/// Writes the id in the form of a UUID. Does not use formatting macros, which are slow: every event contains at least
/// two ids, and formatting them took 5 % of the time of a turn.
impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [b'-'; 36];
        let bytes = self.0.to_be_bytes();
        for (begin, group) in [(0, 0..4), (9, 4..6), (14, 6..8), (19, 8..10), (24, 10..16)] {
            write_hex(&bytes[group], &mut text[begin..]);
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Identifies an operation within one process. Call ids cannot do this, because clients choose them and may repeat
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OperationId(pub u64);

/// The position of a call. The run sets it, never the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunPosition {
    /// The session whose turn makes the call.
    pub session: SessionId,
    /// The turn, counted from 1.
    pub turn: u32,
    /// The operation for which this session works: the call that started a sub-agent. It is the same for all turns of
    /// the session.
    pub parent: Option<OperationId>,
    /// The session of the original request. For a session without a parent it is the session itself.
    pub origin: SessionId,
}

impl RunPosition {
    /// Returns the position of the first turn in a session without a parent.
    pub const fn first(session: SessionId) -> Self {
        Self { session, turn: 1, parent: None, origin: session }
    }

    /// Returns the position of the first turn in a session that works for an operation of this session.
    #[must_use]
    pub const fn below(&self, session: SessionId, operation: OperationId) -> Self {
        Self { session, turn: 1, parent: Some(operation), origin: self.origin }
    }
}

impl Default for RunPosition {
    fn default() -> Self {
        Self::first(SessionId(0))
    }
}

/// One call, as events identify it. All events of the call share this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOperation {
    /// The number of the call within this process.
    pub id: OperationId,
    /// The id that the client gave the call, truncated for display.
    pub call: CallId,
    /// The session and turn of the call.
    pub place: RunPosition,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_id_prints_as_a_hyphenated_uuid() {
        let session = SessionId(0x0123_4567_89ab_4def_8123_4567_89ab_cdef);
        assert_eq!(session.to_string(), "01234567-89ab-4def-8123-456789abcdef");
        assert_eq!(SessionId(1).to_string(), "00000000-0000-0000-0000-000000000001");
    }
}
