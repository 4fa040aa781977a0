//! Splits response bodies into frames. A frame is the data of a server-sent event, or a line.

use haft_core::framing::{FrameTooLarge, LineSplitter, SseDecoder, StreamLimits};
use haft_core::model_error::ModelError;

use crate::bounded_json::{self, REPLY_BYTES_MAX};

/// The maximum size of a single frame, in bytes. A generated image arrives in one event.
pub const FRAME_BYTES_MAX: usize = 32 * 1024 * 1024;

const LIMITS: StreamLimits =
    StreamLimits { frame_bytes_max: FRAME_BYTES_MAX, stream_bytes_max: REPLY_BYTES_MAX };

/// The framing of one streamed reply.
#[derive(Debug)]
pub enum Framing {
    Sse(SseDecoder),
    /// Each frame is one line with a JSON document.
    Lines(LineSplitter),
}

impl Framing {
    pub fn sse() -> Self {
        Self::Sse(SseDecoder::new(LIMITS))
    }

    pub fn lines() -> Self {
        Self::Lines(LineSplitter::new(LIMITS))
    }

    /// Adds bytes and returns the frames that they complete. A frame may be blank.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, ModelError> {
        match self {
            Self::Sse(events) => {
                events.push(bytes).map(|events| events.into_iter().map(|event| event.data).collect())
            }
            Self::Lines(lines) => lines.push(bytes),
        }
        .map_err(too_large)
    }

    /// Ends the stream, and returns the last frame if the stream did not terminate it.
    pub fn finish(&mut self) -> Result<Option<String>, ModelError> {
        match self {
            Self::Sse(events) => events.finish().map(|event| event.map(|event| event.data)),
            Self::Lines(lines) => lines.finish(),
        }
        .map_err(too_large)
    }
}

fn too_large(_: FrameTooLarge) -> ModelError {
    bounded_json::too_large()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_with_an_endless_line_is_too_large() {
        for mut frames in [Framing::sse(), Framing::lines()] {
            let piece = vec![b'x'; 1024 * 1024];
            let refused = (0..40).find_map(|_| frames.push(&piece).err());
            assert!(refused.unwrap().message.contains("larger than"));
        }
    }
}
