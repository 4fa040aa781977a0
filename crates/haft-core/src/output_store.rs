//! The store for outputs that are too large for the conversation.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::digest::Digest;
use crate::event_store::RunKey;
use crate::settings::outputs::StoreLimits;
use crate::tokens::Tokens;

/// The name of a stored output: a session and a file in it, never a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handle {
    session: String,
    file: String,
}

/// The prefix of a session's directory, which makes a handle recognizable.
const SESSION_PREFIX: &str = "session-";

impl Handle {
    /// Creates a handle from the random names of a session and of a file in it.
    pub fn new(session: &str, file: &str) -> Option<Self> {
        let known = is_name(session) && is_name(file);
        known.then(|| Self { session: session.to_owned(), file: file.to_owned() })
    }

    /// Parses `session-NAME/NAME`. All other text is invalid, in particular names with dots and slashes.
    pub fn parse(text: &str) -> Option<Self> {
        let (session, file) = text.strip_prefix(SESSION_PREFIX)?.split_once('/')?;
        Self::new(session, file)
    }

    /// Returns the random name of the session that stored the output.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Returns the random name of the output within its session.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the session's directory below the root of a store.
    pub fn directory(session: &str) -> String {
        format!("{SESSION_PREFIX}{session}")
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SESSION_PREFIX}{}/{}", self.session, self.file)
    }
}

/// Returns true if the text has the length and the characters of a random name.
fn is_name(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Opens the output stores of runs. The tenant comes first in the key, so that no run can reach another tenant's
/// outputs.
pub trait OutputStores: Send + Sync {
    /// Opens the outputs of a run, including those that earlier processes stored for it.
    fn open(&self, key: &RunKey, limits: &StoreLimits) -> Result<Arc<dyn OutputStore>, StoreError>;
}

/// Stores outputs for a limited time and within size limits.
pub trait OutputStore: Send + Sync {
    /// Starts an output. The output gets its handle when it is finished. If the spool is dropped before that, nothing
    /// is stored.
    fn begin(&self) -> Result<Box<dyn Spool>, StoreError>;

    /// Reads the bytes in this range, up to the end of the output. Reads only outputs of the store's own session.
    fn read_range<'a>(
        &'a self,
        handle: &'a Handle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Vec<u8>, StoreError>>;

    /// Reopens a finished output of the store's own session, to append to it. Keeps the bytes that `entry` counts and
    /// drops the bytes after them, which a writer stored but did not record before it stopped. The handle stays the
    /// same.
    fn reopen(&self, entry: &StoreEntry) -> Result<Box<dyn Spool>, StoreError>;

    /// Removes an output of the store's own session.
    fn delete<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Returns true if the store holds no output. An implementation must only read memory, not do IO.
    fn is_empty(&self) -> bool;
}

/// The range of bytes that covers a whole output.
pub const WHOLE_OUTPUT: Range<u64> = 0..u64::MAX;

/// An output that is being written to the store.
pub trait Spool: Send {
    /// Writes the bytes that fit and drops the rest, which [`StoreEntry::complete`] reports.
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError>;

    /// Completes the output and returns its handle.
    fn finish(self: Box<Self>) -> Result<StoreEntry, StoreError>;
}

/// An output in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreEntry {
    /// The handle for reading the output.
    pub handle: Handle,
    /// The size of the stored content, in bytes.
    pub bytes: u64,
    /// The number of lines in the stored content, including a last line without a newline.
    pub lines: u64,
    /// True if the store holds the whole output, without dropped bytes.
    pub complete: bool,
}

/// The reason why an output was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreReason {
    /// The output exceeds its size limit.
    SizeCap,
    /// The output does not fit into the remaining context.
    TokenBudget,
    /// The output would fit, but other calls of the turn have reserved the remaining context.
    ReserveFailed,
    /// The output is binary, and no model can read it.
    NotText,
}

impl StoreReason {
    /// Returns the stable name that all wire formats use.
    pub fn name(self) -> &'static str {
        match self {
            StoreReason::SizeCap => "size_cap",
            StoreReason::TokenBudget => "token_budget",
            StoreReason::ReserveFailed => "reserve_failed",
            StoreReason::NotText => "not_text",
        }
    }
}

/// The maximum length of the preview of a stored output, in characters.
pub const PREVIEW_CHARS_MAX: usize = 1_000;

/// The beginnings of the texts that refer to a stored output; see [`StoredOutput::notice`]. The text for media begins
/// with a bracket.
pub const STORED_BEGINNINGS: [&str; 4] =
    ["Tool output is too large (", "All of it is stored (", "Only its beginning is stored (", "["];

/// The text before the handle in a reference to a stored output.
pub const HANDLE_ARGUMENT: &str = "tool_output(handle = \"session-";

/// The line before the preview of a stored text.
pub const PREVIEW_LINE: &str = "\nIt begins:\n";

/// The replacement for an output that was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOutput {
    /// The handle and size of the stored output.
    pub stored: StoreEntry,
    /// The reason why the output was stored.
    pub reason: StoreReason,
    /// The part of the stored output that the model sees.
    pub glimpse: OutputPreview,
}

/// The part of a stored output that the model sees without a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputPreview {
    /// The number of tokens and the beginning of the text.
    Text {
        /// The number of tokens in the whole text.
        tokens: Tokens,
        /// The beginning of the stored text.
        preview: String,
    },
    /// A description of the bytes, and their digest.
    Media {
        /// The kind, the size and the dimensions in words.
        description: String,
        /// The digest of the stored bytes.
        digest: Digest,
    },
    /// The number of tokens. The content before this part already shows the beginning of the text.
    Shown {
        /// The number of tokens in the whole text.
        tokens: Tokens,
    },
}

impl StoredOutput {
    /// Returns the text for the model: the handle, the sizes, instructions for querying, and a description of the
    /// output or its beginning.
    pub fn notice(&self) -> String {
        let StoreEntry { handle, bytes, lines, .. } = &self.stored;
        let (reason, cut) = (self.reason.name(), self.stored.cut());
        let lines = if *lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") };
        match &self.glimpse {
            OutputPreview::Text { tokens, preview } => {
                let begins =
                    if preview.is_empty() { String::new() } else { format!("{PREVIEW_LINE}{preview}") };
                format!(
                    "Tool output is too large ({bytes} bytes, {lines}, {tokens} tokens; {reason}).{cut}\n{}{begins}",
                    self.stored.query_instruction()
                )
            }
            OutputPreview::Media { description, digest } => format!(
                "[{description}, sha256 {digest}; {reason}; stored as {handle}.{cut} \
                 tool_output(handle = \"{handle}\", extract = \"stats\") describes it.]"
            ),
            OutputPreview::Shown { tokens } => {
                let what = if self.stored.complete { "All of it" } else { "Only its beginning" };
                format!(
                    "{what} is stored ({bytes} bytes, {lines}, {tokens} tokens; {reason}).\n{}",
                    self.stored.query_instruction()
                )
            }
        }
    }

    /// Returns true if the text of an output was stored, false for media.
    pub fn is_text(&self) -> bool {
        match self.glimpse {
            OutputPreview::Text { .. } | OutputPreview::Shown { .. } => true,
            OutputPreview::Media { .. } => false,
        }
    }

    /// Returns the note about the stored output for the call receipt.
    pub fn noted(&self) -> Value {
        let StoreEntry { handle, bytes, lines, complete } = &self.stored;
        let tokens = match &self.glimpse {
            OutputPreview::Text { tokens, .. } | OutputPreview::Shown { tokens } => Some(tokens.count()),
            OutputPreview::Media { .. } => None,
        };
        json!({
            "handle": handle.to_string(), "reason": self.reason.name(), "bytes": bytes, "lines": lines,
            "tokens": tokens, "complete": complete,
        })
    }
}

impl StoreEntry {
    /// Returns a sentence that says that the output is incomplete, or an empty text if it is complete.
    pub fn cut(&self) -> &'static str {
        if self.complete { "" } else { " Only the beginning could be kept." }
    }

    /// Returns the instruction for querying the output.
    pub fn query_instruction(&self) -> String {
        format!(
            "Call tool_output(handle = \"{}\", extract = \"what to extract\"). `extract` understands: lines 10-40, first 50 lines, \
             last 50 lines, bytes 0-4096, grep [-i] [-B n] [-A n] PATTERN, jq FILTER, schema, stats.",
            self.handle
        )
    }
}

/// Returns the beginning of a text, as a preview.
pub fn preview(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

/// An error of the store, for the model and the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The output never existed, has expired, or belongs to another session. The error does not distinguish these.
    #[error("no stored output has this handle; it may have expired")]
    NotFound,
    /// The store cannot be used, for example because the disk is full.
    #[error("the output store failed: {reason}")]
    Unavailable {
        /// The cause, in words for the operator.
        reason: String,
    },
    /// Another process now runs this run, so this process must not store anything more for it.
    #[error("another process has taken over the run, so this process stores no more outputs")]
    Fenced,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "0a1b2c3d-0000-4000-8000-000000000000";

    #[test]
    fn stored_output_placeholder_has_handle_size_reason_and_usage() {
        let stored =
            StoreEntry { handle: Handle::new(NAME, NAME).unwrap(), bytes: 20_000, lines: 7, complete: false };
        let check = |reason: StoreReason, glimpse: OutputPreview, parts: &[&str]| {
            let notice = StoredOutput { stored: stored.clone(), reason, glimpse }.notice();
            let handle = format!("handle = \"session-{NAME}/{NAME}\"");
            for part in parts.iter().copied().chain([handle.as_str(), "tool_output"]) {
                assert!(notice.contains(part), "`{part}` is missing in: {notice}");
            }
            assert!(!notice.contains("All of it"), "{notice}");
        };
        let tokens = Tokens::Counted(4_000);
        check(
            StoreReason::TokenBudget,
            OutputPreview::Text { tokens, preview: "To be".into() },
            &[
                "20000 bytes, 7 lines, 4000 tokens; token_budget). Only the beginning could be kept.",
                "It begins:\nTo be",
                "jq FILTER",
            ],
        );
        check(
            StoreReason::SizeCap,
            OutputPreview::Shown { tokens },
            &["Only its beginning is stored (20000 bytes, 7 lines, 4000 tokens; size_cap).", "grep"],
        );
        let digest = Digest::of_bytes(b"x");
        check(
            StoreReason::NotText,
            OutputPreview::Media { description: "image: image/png, 9 bytes".into(), digest },
            &[
                "[image: image/png, 9 bytes, sha256 2d711642b726b044",
                "not_text",
                "Only the beginning could be kept",
            ],
        );
    }

    #[test]
    fn handle_parser_accepts_only_two_well_formed_names() {
        let name = NAME;
        let whole = format!("session-{name}/{name}");
        assert_eq!(Handle::parse(&whole).unwrap().to_string(), whole);
        for bad in [
            "",
            "session-/",
            "session-../../config.toml",
            &format!("session-{name}/../{name}"),
            &format!("session-{name}/{name}\0"),
            &format!("session-{name}/%2e%2e%2f{name}"),
            &format!("/session-{name}/{name}"),
            &format!("session-{name}/{}", name.replace('0', ".")),
        ] {
            assert_eq!(Handle::parse(bad), None, "{bad:?}");
        }
    }
}
