//! Decodes a streamed response, whose chunks have the same shape as a whole one.

use haft_core::conversation::Format;
use haft_core::model_error::ModelError;

use super::response::{self, Response};
use crate::draft::Draft;
use crate::reading;
use crate::stream::FrameReader;
use crate::wire::Asked;

/// Reads chunks. The API sends no end event: the reply ends with the body, after a finish reason.
pub(super) struct Reader {
    draft: Draft,
}

impl Reader {
    pub(super) fn new(asked: &Asked) -> Self {
        Self { draft: Draft::new(Format::Gemini, asked) }
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
