//! The common part of all stream decoders: splits bytes into frames, decodes the frames, and emits the events of valid
//! frames even if a later frame is malformed.

use haft_core::framing::{FrameTooLarge, Framing};
use haft_core::model_error::ModelError;
use haft_core::model_event::ModelEvent;

use crate::bounded_json;
use crate::draft::ReplyDraft;
use crate::wire::StreamDecoder;

/// Decodes the frames of one format.
pub(crate) trait FrameReader: Send {
    /// Decodes a frame. The frame is never empty or `[DONE]`.
    fn frame(&mut self, frame: &str) -> Result<(), ModelError>;

    /// Ends the reply, at `[DONE]` or at the end of the body.
    fn end(&mut self);

    fn draft(&mut self) -> &mut ReplyDraft;
}

/// The frame decoder of a format, with its framing.
pub(crate) struct FramedDecoder<R> {
    frames: Framing,
    reader: R,
}

impl<R: FrameReader> FramedDecoder<R> {
    pub(crate) fn new(frames: Framing, reader: R) -> Self {
        Self { frames, reader }
    }

    fn read(&mut self, frames: impl IntoIterator<Item = String>) -> Result<(), ModelError> {
        for frame in frames {
            match frame.trim() {
                "" => {}
                _ if self.reader.draft().has_ended() => {}
                "[DONE]" => self.reader.end(),
                frame => self.reader.frame(frame)?,
            }
        }
        Ok(())
    }
}

impl<R: FrameReader> StreamDecoder for FramedDecoder<R> {
    fn push(&mut self, bytes: &[u8], events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let read = self.frames.push(bytes).map_err(too_large).and_then(|frames| self.read(frames));
        events.append(&mut self.reader.draft().take());
        read
    }

    fn finish(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let read = self.frames.finish().map_err(too_large).and_then(|frame| self.read(frame));
        if read.is_ok() {
            self.reader.end();
        }
        events.append(&mut self.reader.draft().take());
        read
    }
}

fn too_large(_: FrameTooLarge) -> ModelError {
    bounded_json::too_large()
}
