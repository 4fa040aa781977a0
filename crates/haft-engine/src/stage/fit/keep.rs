//! Putting into the store what is not carried along.

use haft_core::digest::Digest;
use haft_core::output::{Content, ToolOutput, described};
use haft_core::store::{
    Glimpse, OutputStore, PREVIEW_CHARS_MAX, StoreError, StoreReason, Stored, StoredOutput, preview,
};
use haft_core::tokens::tokens_of;
use serde_json::{Value, json};

use super::Means;
use crate::record::CallRecord;

/// What all images and sounds of an output may take together; common model providers refuse larger ones.
pub(super) const MEDIA_BYTES_MAX: usize = 5 * 1024 * 1024;

/// Puts parts of an output into the store, and notes it on the receipt.
pub(super) struct Keeping<'a> {
    pub(super) record: &'a mut CallRecord,
    pub(super) means: Means<'a>,
}

impl Keeping<'_> {
    /// Stores the text of an output; `None` when it cannot be, or when the whole of it is stored already.
    pub(super) fn text(&mut self, output: &ToolOutput, reason: StoreReason) -> Option<StoredOutput> {
        if output.content.iter().any(|content| matches!(content, Content::Stored(_)))
            || self.record.receipt.notes.contains_key("stored")
        {
            return None;
        }
        let text = text_of(&output.content);
        let stored = self.put(text.as_bytes())?;
        let glimpse = Glimpse::Text {
            tokens: tokens_of(self.means.counter, &text),
            preview: preview(&text, PREVIEW_CHARS_MAX),
        };
        Some(self.noted(StoredOutput { stored, reason, glimpse }))
    }

    /// Stores bytes that no model reads, and images and sounds for which there is no room.
    pub(super) fn media(
        &mut self,
        content: Vec<Content>,
        bytes_max: usize,
        reason: StoreReason,
    ) -> Vec<Content> {
        let mut bytes_left = bytes_max;
        content.into_iter().map(|content| self.piece(content, &mut bytes_left, reason)).collect()
    }

    fn piece(&mut self, content: Content, bytes_left: &mut usize, reason: StoreReason) -> Content {
        let (what, media_type, bytes, reason) = match &content {
            Content::Text(_) | Content::Resource { .. } | Content::Stored(_) => return content,
            Content::Image { media_type, bytes } => ("image", Some(media_type.as_str()), bytes, reason),
            Content::Audio { media_type, bytes } => ("audio", Some(media_type.as_str()), bytes, reason),
            Content::Binary { media_type, bytes, .. } => {
                ("binary", media_type.as_deref(), bytes, StoreReason::NotText)
            }
        };
        if reason != StoreReason::NotText
            && let Some(left) = bytes_left.checked_sub(bytes.len())
        {
            *bytes_left = left;
            return content;
        }
        let description = described(what, media_type, bytes);
        match self.put(bytes) {
            Some(stored) => {
                let glimpse = Glimpse::Media { description, digest: Digest::of_bytes(bytes) };
                Content::Stored(Box::new(self.noted(StoredOutput { stored, reason, glimpse })))
            }
            None => Content::Text(format!("[{description}; left out: {}]", why_left_out(reason))),
        }
    }

    /// A store that fails costs what is not shown, never the call; the receipt says why.
    fn put(&mut self, bytes: &[u8]) -> Option<Stored> {
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

fn put(store: &dyn OutputStore, bytes: &[u8]) -> Result<Stored, StoreError> {
    let mut spool = store.begin()?;
    spool.write(bytes)?;
    spool.finish()
}

fn why_left_out(reason: StoreReason) -> String {
    match reason {
        StoreReason::SizeCap => format!("images and audio may take {MEDIA_BYTES_MAX} bytes in all"),
        StoreReason::TokenBudget | StoreReason::ReserveFailed => {
            "the model's context has no room for it".into()
        }
        StoreReason::NotText => "it is not text, and it could not be stored".into(),
    }
}

/// What stands for an output whose text was stored; images and sounds stay.
pub(super) fn in_place_of_text(stored: StoredOutput, content: Vec<Content>) -> ToolOutput {
    let media = content.into_iter().filter(is_media);
    let content = std::iter::once(Content::Stored(Box::new(stored))).chain(media).collect();
    ToolOutput { content, structured: None }
}

/// The bytes of what is shown as text.
pub(super) fn text_bytes(content: &[Content]) -> usize {
    let bytes = |content: &Content| match content {
        Content::Text(text) => text.len(),
        Content::Resource { .. } | Content::Binary { .. } | Content::Stored(_) => content.as_text().len(),
        Content::Image { .. } | Content::Audio { .. } => 0,
    };
    content.iter().map(bytes).sum()
}

/// What is shown as text.
pub(super) fn text_of(content: &[Content]) -> String {
    let texts = content.iter().filter(|content| !is_media(content));
    texts.map(Content::as_text).collect::<Vec<_>>().join("\n")
}

pub(super) fn is_media(content: &Content) -> bool {
    match content {
        Content::Image { .. } | Content::Audio { .. } => true,
        Content::Text(_) | Content::Resource { .. } | Content::Binary { .. } | Content::Stored(_) => false,
    }
}
