//! Moves parts of an output to the output store.

use std::borrow::Cow;

use haft_core::digest::Digest;
use haft_core::output::{OutputContent, ToolOutput, described};
use haft_core::output_store::{
    OutputPreview, OutputStore, PREVIEW_CHARS_MAX, StoreEntry, StoreError, StoreReason, StoredOutput, preview,
};
use haft_core::tokens::Tokens;
use serde_json::{Value, json};

use super::FitResources;
use super::links::LinkRoom;
use super::truncate::PIECES_MAX;
use crate::call_record::CallRecord;
use crate::size::json_bytes;

/// The maximum size of all images, audio and binary data in an output, in bytes. Common model providers reject more.
pub(super) const MEDIA_BYTES_MAX: usize = 5 * 1024 * 1024;

/// The maximum number of parts of one output that get their own handle. Further parts are only described.
const MEDIA_HANDLES_MAX: usize = 20;

/// The remaining space for the images and audio in an output.
struct MediaRoom {
    bytes: usize,
    handles: usize,
}

/// Moves parts of an output to the store, and records this in the receipt.
pub(super) struct OutputOffload<'a> {
    pub(super) record: &'a mut CallRecord,
    pub(super) means: FitResources<'a>,
}

impl OutputOffload<'_> {
    /// Stores the text of an output. Returns `None` if storing fails or if the whole text is already stored.
    pub(super) fn text(&mut self, output: &ToolOutput, reason: StoreReason) -> Option<StoredOutput> {
        if self.is_stored(&output.content) {
            return None;
        }
        let text = text_of(&output.content);
        let stored = self.put(text.as_bytes())?;
        let glimpse = OutputPreview::Text {
            // This is the same estimate as in `stats` of the stored output, so that both numbers agree.
            tokens: Tokens::by_length(stored.bytes),
            preview: preview(&text, PREVIEW_CHARS_MAX),
        };
        Some(self.noted(StoredOutput { stored, reason, glimpse }))
    }

    /// Returns true if the tool limited its own output and has already stored all of it. For a failed call only the
    /// receipt shows this, because its message is a single text.
    fn is_stored(&self, content: &[OutputContent]) -> bool {
        let noted = self.record.receipt.notes.get("stored").is_some_and(|note| note["tokens"].is_u64());
        noted
            || content
                .iter()
                .any(|content| matches!(content, OutputContent::Stored(stored) if stored.is_text()))
    }

    /// Stores binary data that no model can read, and images and audio that do not fit.
    pub(super) fn media(
        &mut self,
        content: Vec<OutputContent>,
        bytes_max: usize,
        reason: StoreReason,
    ) -> Vec<OutputContent> {
        let mut room = MediaRoom { bytes: bytes_max, handles: MEDIA_HANDLES_MAX };
        content.into_iter().map(|content| self.piece(content, &mut room, reason)).collect()
    }

    fn piece(&mut self, content: OutputContent, room: &mut MediaRoom, reason: StoreReason) -> OutputContent {
        let (what, media_type, bytes, reason) = match &content {
            OutputContent::Text(_)
            | OutputContent::Link(_)
            | OutputContent::Resource { .. }
            | OutputContent::FoundTools(_)
            | OutputContent::Stored(_) => {
                return content;
            }
            OutputContent::Image { media_type, bytes } => ("image", Some(media_type.as_str()), bytes, reason),
            OutputContent::Audio { media_type, bytes } => ("audio", Some(media_type.as_str()), bytes, reason),
            OutputContent::Binary { media_type, bytes, .. } => {
                ("binary", media_type.as_deref(), bytes, StoreReason::NotText)
            }
        };
        if reason != StoreReason::NotText
            && let Some(left) = room.bytes.checked_sub(bytes.len())
        {
            room.bytes = left;
            return content;
        }
        let description = described(what, media_type, bytes);
        let has_handle = room.handles > 0;
        room.handles = room.handles.saturating_sub(1);
        match has_handle.then(|| self.put(bytes)).flatten() {
            Some(stored) => {
                let glimpse = OutputPreview::Media { description, digest: Digest::of_bytes(bytes) };
                OutputContent::Stored(Box::new(self.noted(StoredOutput { stored, reason, glimpse })))
            }
            None => OutputContent::Text(format!("[{description}; left out: {}]", omission_reason(reason))),
        }
    }

    /// Writes to the store. If the store fails, only the part that is not shown is lost; the call does not fail. The
    /// receipt records the error.
    fn put(&mut self, bytes: &[u8]) -> Option<StoreEntry> {
        match put(self.means.store?, bytes) {
            Ok(stored) => Some(stored),
            Err(error) => {
                self.record.note("store", json!(error.to_string()));
                None
            }
        }
    }

    fn noted(&mut self, stored: StoredOutput) -> StoredOutput {
        let note = stored.noted();
        let notes = &mut self.record.receipt.notes;
        match notes.get_mut("stored") {
            None => drop(notes.insert("stored", note)),
            Some(Value::Array(all)) => all.push(note),
            Some(one) => *one = json!([one.take(), note]),
        }
        stored
    }
}

fn put(store: &dyn OutputStore, bytes: &[u8]) -> Result<StoreEntry, StoreError> {
    let mut spool = store.begin()?;
    spool.write(bytes)?;
    spool.finish()
}

fn omission_reason(reason: StoreReason) -> String {
    match reason {
        StoreReason::SizeCap => format!("images and audio may take at most {MEDIA_BYTES_MAX} bytes in total"),
        StoreReason::TokenBudget | StoreReason::ReserveFailed => {
            "the model's context window has no space for this content".into()
        }
        StoreReason::NotText => "the content is not text, and haft could not store it".into(),
    }
}

/// Returns an output in which a handle replaces the stored text. Other content stays, and so do the links that `links`
/// keeps, because a client can follow only links, and not their text in the store.
pub(super) fn replace_text_with_handle(
    stored: StoredOutput,
    content: Vec<OutputContent>,
    mut links: LinkRoom,
) -> ToolOutput {
    let rest = content.into_iter().filter(|content| !is_text(content) || links.keeps(content));
    let content = std::iter::once(OutputContent::Stored(Box::new(stored))).chain(rest).collect();
    ToolOutput { content, ..ToolOutput::default() }
}

/// Returns true if an output stays unchanged under a limit in bytes or characters. Only then does the server's JSON
/// still describe the output. Bytes that no model can read stay only if the caller gets the server's JSON.
pub(super) fn fits_unchanged(output: &ToolOutput, max: usize) -> bool {
    let in_store = |content: &OutputContent| match content {
        OutputContent::Stored(_) => true,
        OutputContent::Binary { .. } => output.raw.is_none(),
        OutputContent::Text(_)
        | OutputContent::Image { .. }
        | OutputContent::Audio { .. }
        | OutputContent::Link(_)
        | OutputContent::Resource { .. }
        | OutputContent::FoundTools(_) => false,
    };
    let media = |content: &OutputContent| match content {
        OutputContent::Image { bytes, .. }
        | OutputContent::Audio { bytes, .. }
        | OutputContent::Binary { bytes, .. } => bytes.len(),
        OutputContent::Text(_)
        | OutputContent::Link(_)
        | OutputContent::Resource { .. }
        | OutputContent::FoundTools(_)
        | OutputContent::Stored(_) => 0,
    };
    output.content.len() <= PIECES_MAX
        && !output.content.iter().any(in_store)
        && output.content.iter().map(media).sum::<usize>() <= MEDIA_BYTES_MAX
        && text_bytes(&output.content) <= max
        && output.structured.as_ref().is_none_or(|value| json_bytes(value) <= max)
}

/// Returns the size of the text of an output, in bytes.
pub(super) fn text_bytes(content: &[OutputContent]) -> usize {
    let bytes = |content: &OutputContent| match content {
        OutputContent::Text(text) => text.len(),
        OutputContent::FoundTools(found) => found.text.len(),
        OutputContent::Link(_) | OutputContent::Resource { .. } | OutputContent::Binary { .. } => {
            content.as_text().len()
        }
        OutputContent::Image { .. } | OutputContent::Audio { .. } | OutputContent::Stored(_) => 0,
    };
    content.iter().map(bytes).sum()
}

/// Returns the text of an output that can be stored or truncated.
pub(super) fn text_of(content: &[OutputContent]) -> Cow<'_, str> {
    let texts: Vec<_> = content.iter().filter(|content| is_text(content)).collect();
    match texts.as_slice() {
        // Most outputs are a single text, which may be large, so it is borrowed.
        [OutputContent::Text(text)] => text.into(),
        texts => texts.iter().map(|content| content.as_text()).collect::<Vec<_>>().join("\n").into(),
    }
}

fn is_text(content: &OutputContent) -> bool {
    match content {
        OutputContent::Text(_)
        | OutputContent::Link(_)
        | OutputContent::Resource { .. }
        | OutputContent::FoundTools(_)
        | OutputContent::Binary { .. } => true,
        OutputContent::Image { .. } | OutputContent::Audio { .. } | OutputContent::Stored(_) => false,
    }
}
