//! What all stream decoders share: bytes are framed, frames are read, and what was read is said even when the next frame
//! cannot be.

use haft_core::model_error::ModelError;
use haft_core::model_event::ModelEvent;

use crate::draft::Draft;
use crate::framing::{NdjsonDecoder, SseDecoder};
use crate::wire::StreamDecoder;

/// Cuts bytes into frames of text.
pub(crate) trait Frames: Default + Send {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, ModelError>;
    fn finish(&mut self) -> Result<Option<String>, ModelError>;
}

/// Understands one format's frames.
pub(crate) trait FrameReader: Send {
    /// Never given an empty frame or `[DONE]`.
    fn frame(&mut self, frame: &str) -> Result<(), ModelError>;

    /// The reply is over: `[DONE]`, or the end of the body.
    fn end(&mut self);

    fn draft(&mut self) -> &mut Draft;
}

/// A reader behind its framing.
pub(crate) struct Framed<F, R> {
    frames: F,
    reader: R,
}

impl<F: Frames, R: FrameReader> Framed<F, R> {
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

impl<F: Frames, R: FrameReader> StreamDecoder for Framed<F, R> {
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

impl Frames for SseDecoder {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, ModelError> {
        let events = self.push(bytes)?;
        Ok(events.into_iter().map(|event| event.data).collect())
    }

    fn finish(&mut self) -> Result<Option<String>, ModelError> {
        Ok(self.finish()?.map(|event| event.data))
    }
}

impl Frames for NdjsonDecoder {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, ModelError> {
        self.push(bytes)
    }

    fn finish(&mut self) -> Result<Option<String>, ModelError> {
        self.finish()
    }
}
