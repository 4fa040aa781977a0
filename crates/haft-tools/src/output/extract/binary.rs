//! Answers queries about stored binary outputs.

use std::fmt::Write;

use haft_core::digest::Digest;
use haft_core::output::described;

use super::{Extract, ExtractError};

/// The maximum number of bytes in one hex dump.
const HEX_BYTES_MAX: usize = 4_096;

/// The number of bytes in one line of a hex dump.
const HEX_LINE_BYTES: usize = 32;

/// Answers `stats` and `bytes`, the latter as a hex dump. Refuses all other queries: bytes are never shown as text.
pub(super) fn answer(extract: &Extract, content: &[u8]) -> Result<String, ExtractError> {
    match extract {
        Extract::Stats => Ok(about(content)),
        Extract::Bytes { start, end } => hex(content, *start, *end),
        Extract::Lines { .. }
        | Extract::FirstLines(_)
        | Extract::LastLines(_)
        | Extract::Grep(_)
        | Extract::Jq(_)
        | Extract::Schema => Err(ExtractError(format!("{}: {HOW_TO_ASK}", about(content)))),
    }
}

/// Returns the type, the size and the digest of the bytes.
pub fn about(content: &[u8]) -> String {
    format!("{}, sha256 {}", described("binary", None, content), Digest::of_bytes(content))
}

/// The hint after a refusal: the queries that binary content supports.
pub(crate) const HOW_TO_ASK: &str =
    "the output is not text; ask for `stats`, or for `bytes 0-64` in hexadecimal";

fn hex(content: &[u8], start: usize, end: usize) -> Result<String, ExtractError> {
    let end = end.min(content.len()).min(start.saturating_add(HEX_BYTES_MAX));
    let wanted = content.get(start..end).ok_or_else(|| {
        ExtractError(format!("byte {start} is beyond the end: the output has {} bytes", content.len()))
    })?;
    let mut text = String::new();
    for line in wanted.chunks(HEX_LINE_BYTES) {
        let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = writeln!(text, "{}", digits.join(" "));
    }
    let _ = write!(text, "(bytes {start}-{end} of {}, in hexadecimal)", content.len());
    Ok(text)
}
