//! The first line of a session, without the run state in it.

use std::io::Read;

use haft_core::position::SessionId;
use serde::Deserialize;

use super::line::{SessionJournalLine, VERSION, VERSION_OLDEST};
use super::read::{JournalLines, ReadError};

/// The fields of [`SessionStart`](super::line::SessionStart) that lists need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionHeader {
    pub(super) session: SessionId,
    pub(super) at_ms: u64,
    pub(super) title: String,
    /// The session that received the original request; `None` if it is this one.
    pub(super) origin: Option<String>,
}

/// The fields of `SessionStart` that may be large. They come after the fields of the header.
const LARGE_FIELDS: [&str; 4] = [r#","spec":"#, r#","principal":"#, r#","order":"#, r#","run":"#];

#[derive(Debug, Deserialize)]
struct HeaderFields {
    #[serde(rename = "type")]
    kind: String,
    version: u32,
    id: String,
    at_ms: u64,
    title: String,
    #[serde(default)]
    origin: Option<String>,
}

impl SessionHeader {
    /// Reads the first line. Parses the whole line if it is unusual, so that errors are the same as for a full read.
    pub(super) fn of<R: Read>(lines: &mut JournalLines<R>) -> Result<Self, ReadError> {
        let first = lines.next_bytes()?.ok_or(ReadError::Empty)?;
        if let Some(header) = Self::quick(first) {
            return Ok(header);
        }
        let SessionJournalLine::Session(opened) = lines.parse_last()? else {
            return Err(ReadError::NoHeader);
        };
        let id = uuid::Uuid::parse_str(&opened.id);
        let id = id.map_err(|error| ReadError::Broken {
            problem: format!("the journal contains an invalid session id: {error}"),
        })?;
        let (at_ms, title, origin) = (opened.at_ms, opened.title, opened.origin);
        Ok(Self { session: SessionId(id.as_u128()), at_ms, title, origin })
    }

    /// Cuts off the line before its large fields. The first match is a field of the line itself: quotes inside a string
    /// are escaped, and no earlier field is an object.
    fn quick(line: &[u8]) -> Option<Self> {
        let end =
            LARGE_FIELDS.iter().filter_map(|field| memchr::memmem::find(line, field.as_bytes())).min()?;
        let fields = [&line[..end], b"}"].concat();
        let fields: HeaderFields = serde_json::from_slice(&fields).ok()?;
        let is_known = fields.kind == "session" && (VERSION_OLDEST..=VERSION).contains(&fields.version);
        let id = uuid::Uuid::parse_str(&fields.id).ok().filter(|_| is_known)?;
        let HeaderFields { at_ms, title, origin, .. } = fields;
        Some(Self { session: SessionId(id.as_u128()), at_ms, title, origin })
    }
}
