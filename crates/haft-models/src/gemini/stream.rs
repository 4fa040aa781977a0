//! Decodes a streamed response. Its chunks have the same fields as a whole response.

use haft_core::model_error::ModelError;

use super::response::{self, GeminiResponse};
use crate::bounded_json;
use crate::draft::ReplyDraft;
use crate::stream::FrameReader;
use crate::wire::DecodeContext;

/// Decodes the chunks of a Gemini stream into a reply draft. The API sends no end event: the reply ends with the body,
/// after a finish reason.
pub(super) struct GeminiStreamReader {
    draft: ReplyDraft,
}

impl GeminiStreamReader {
    pub(super) fn new(decode_context: &DecodeContext) -> Self {
        Self { draft: response::new_draft(decode_context) }
    }
}

impl FrameReader for GeminiStreamReader {
    fn frame(&mut self, frame: &str) -> Result<(), ModelError> {
        let response: GeminiResponse<'_> = bounded_json::read_frame(frame)?;
        response::apply(&mut self.draft, &response)
    }

    fn end(&mut self) {
        self.draft.end();
    }

    fn draft(&mut self) -> &mut ReplyDraft {
        &mut self.draft
    }
}
