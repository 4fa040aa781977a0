//! Decodes a streamed response, with one line per chunk.

use haft_core::conversation::Format;
use haft_core::model_error::ModelError;

use super::response::{self, Response};
use crate::draft::Draft;
use crate::reading;
use crate::stream::FrameReader;
use crate::wire::Asked;

/// Reads lines.
pub(super) struct Reader {
    draft: Draft,
}

impl Reader {
    pub(super) fn new(asked: &Asked) -> Self {
        Self { draft: Draft::new(Format::Ollama, asked) }
    }
}

impl FrameReader for Reader {
    fn frame(&mut self, frame: &str) -> Result<(), ModelError> {
        let response: Response<'_> = reading::read(frame.as_bytes())?;
        response::apply(&mut self.draft, &response)
    }

    fn end(&mut self) {
        self.draft.end();
    }

    fn draft(&mut self) -> &mut Draft {
        &mut self.draft
    }
}
