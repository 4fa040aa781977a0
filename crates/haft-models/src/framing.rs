//! The limits of the streams in which models reply.

use haft_core::framing::{Framing, StreamLimits};

use crate::bounded_json::REPLY_BYTES_MAX;

/// The maximum size of a single frame, in bytes. A generated image arrives in one event.
pub const FRAME_BYTES_MAX: usize = 32 * 1024 * 1024;

const LIMITS: StreamLimits =
    StreamLimits { frame_bytes_max: FRAME_BYTES_MAX, stream_bytes_max: REPLY_BYTES_MAX };

/// Returns the framing of a reply in server-sent events.
pub fn sse() -> Framing {
    Framing::sse(LIMITS)
}

/// Returns the framing of a reply in lines, each with a JSON document.
pub fn lines() -> Framing {
    Framing::lines(LIMITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_with_an_endless_line_is_too_large() {
        for mut frames in [sse(), lines()] {
            let piece = vec![b'x'; 1024 * 1024];
            assert!((0..40).any(|_| frames.push(&piece).is_err()));
        }
    }
}
