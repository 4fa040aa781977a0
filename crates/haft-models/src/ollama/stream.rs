//! Decodes a streamed response, with one line per chunk.

use haft_core::conversation::ModelApiFormat;
use haft_core::model_error::ModelError;

use super::response::{self, OllamaResponse};
use crate::bounded_json;
use crate::draft::ReplyDraft;
use crate::stream::FrameReader;
use crate::wire::DecodeContext;

/// Decodes the lines of an Ollama stream into a reply draft.
pub(super) struct OllamaStreamReader {
    draft: ReplyDraft,
}

impl OllamaStreamReader {
    pub(super) fn new(decode_context: &DecodeContext) -> Self {
        Self { draft: ReplyDraft::new(ModelApiFormat::Ollama, decode_context) }
    }
}

impl FrameReader for OllamaStreamReader {
    fn frame(&mut self, frame: &str) -> Result<(), ModelError> {
        let response: OllamaResponse<'_> = bounded_json::read_frame(frame)?;
        response::apply(&mut self.draft, &response)
    }

    fn end(&mut self) {
        self.draft.end();
    }

    fn draft(&mut self) -> &mut ReplyDraft {
        &mut self.draft
    }
}
