//! The common part of all stream decoders: it splits bytes into frames, reads the frames, and emits the events of
//! good frames even if a later frame is malformed.

use haft_core::model_error::ModelError;
use haft_core::model_event::ModelEvent;

use crate::draft::ReplyDraft;
use crate::framing::{NdjsonDecoder, SseDecoder};
use crate::wire::StreamDecoder;

/// Splits bytes into frames of text.
pub(crate) trait FrameSplitter: Default + Send {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, ModelError>;
    fn finish(&mut self) -> Result<Option<String>, ModelError>;
}

/// Reads the frames of one format.
pub(crate) trait FrameReader: Send {
    /// Reads a frame, which is never empty or `[DONE]`.
    fn frame(&mut self, frame: &str) -> Result<(), ModelError>;

    /// Ends the reply, at `[DONE]` or at the end of the body.
    fn end(&mut self);

    fn draft(&mut self) -> &mut ReplyDraft;
}

/// A frame reader with its framing.
pub(crate) struct FramedDecoder<F, R> {
    frames: F,
    reader: R,
}

impl<F: FrameSplitter, R: FrameReader> FramedDecoder<F, R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { frames: F::default(), reader }
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

impl<F: FrameSplitter, R: FrameReader> StreamDecoder for FramedDecoder<F, R> {
    fn push(&mut self, bytes: &[u8], events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let read = self.frames.push(bytes).and_then(|frames| self.read(frames));
        events.append(&mut self.reader.draft().take());
        read
    }

    fn finish(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let read = self.frames.finish().and_then(|frame| self.read(frame));
        if read.is_ok() {
            self.reader.end();
        }
        events.append(&mut self.reader.draft().take());
        read
    }
}

impl FrameSplitter for SseDecoder {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, ModelError> {
        let events = self.push(bytes)?;
        Ok(events.into_iter().map(|event| event.data).collect())
    }

    fn finish(&mut self) -> Result<Option<String>, ModelError> {
        Ok(self.finish()?.map(|event| event.data))
    }
}

impl FrameSplitter for NdjsonDecoder {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, ModelError> {
        self.push(bytes)
    }

    fn finish(&mut self) -> Result<Option<String>, ModelError> {
        self.finish()
    }
}
