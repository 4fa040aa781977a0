//! Where outputs go that are too large to carry along.

use std::fmt;

/// The name of a stored output: a session and a file in it, never a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handle {
    session: String,
    file: String,
}

/// Before a session's own name, so that a handle tells what it is.
const SESSION_PREFIX: &str = "session-";

impl Handle {
    /// From the two random names a store made.
    pub fn new(session: &str, file: &str) -> Option<Self> {
        let known = is_name(session) && is_name(file);
        known.then(|| Self { session: session.to_owned(), file: file.to_owned() })
    }

    /// Reads `session-NAME/NAME`; anything else, dots and slashes above all, is no handle.
    pub fn parse(text: &str) -> Option<Self> {
        let (session, file) = text.strip_prefix(SESSION_PREFIX)?.split_once('/')?;
        Self::new(session, file)
    }

    pub fn session(&self) -> &str {
        &self.session
    }

    pub fn file(&self) -> &str {
        &self.file
    }

    /// The directory of the session below a store's root.
    pub fn directory(session: &str) -> String {
        format!("{SESSION_PREFIX}{session}")
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SESSION_PREFIX}{}/{}", self.session, self.file)
    }
}

/// What a random name is made of; it is as long as one.
fn is_name(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Keeps outputs for a while, within bounds.
pub trait OutputStore: Send + Sync {
    /// Begins an output. Until it is finished it is nobody's, and dropping it leaves nothing behind.
    fn begin(&self) -> Result<Box<dyn Spool>, StoreError>;

    fn read(&self, handle: &Handle) -> Result<Vec<u8>, StoreError>;
}

/// An output on its way into the store.
pub trait Spool: Send {
    /// Takes what fits and lets the rest go; [`Stored::complete`] tells.
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError>;

    fn finish(self: Box<Self>) -> Result<Stored, StoreError>;
}

/// An output in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub handle: Handle,
    pub bytes: u64,
    pub lines: u64,
    /// Whether all of it is there.
    pub complete: bool,
}

/// Bytes per token, near enough for prose and code.
const BYTES_PER_TOKEN: u64 = 4;

/// How much of the beginning is shown in place of the output.
const PREVIEW_CHARS: usize = 1_000;

impl Stored {
    /// What the model is told in place of the output: the handle, the sizes, how to ask, and the beginning.
    pub fn told(&self, reason: &str, text: &str) -> String {
        let Self { bytes, lines, complete, .. } = self;
        let tokens = bytes / BYTES_PER_TOKEN;
        let cut = if *complete { "" } else { " Only the beginning could be kept." };
        let preview: String = text.chars().take(PREVIEW_CHARS).collect();
        format!(
            "Tool output is too large ({bytes} bytes, {lines} lines, about {tokens} tokens; {reason}).{cut}\n{}\nIt begins:\n{preview}",
            self.how_to_ask()
        )
    }

    /// The call that asks about it.
    pub fn how_to_ask(&self) -> String {
        format!(
            "Call tool_output(handle = \"{}\", extract = \"what to extract\"). `extract` understands: lines 10-40, first 50 lines, \
             last 50 lines, bytes 0-4096, grep [-i] [-B n] [-A n] PATTERN, jq FILTER, schema, stats.",
            self.handle
        )
    }
}

/// Why the store could not help. Written for the model and the operator alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// Never there, swept away, or of another session: the answer is the same.
    NotFound,
    Unavailable {
        reason: String,
    },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::NotFound => f.write_str("no such stored output; it may have expired"),
            StoreError::Unavailable { reason } => write!(f, "the output store failed: {reason}"),
        }
    }
}

impl std::error::Error for StoreError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_two_random_names_and_nothing_else() {
        let name = "0a1b2c3d-0000-4000-8000-000000000000";
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
