//! The stored form of usage records: the JSON of the event, or a record of lost lines.

use std::io;

use haft_core::accounting_store::AccountingLine;
use serde::Serialize;

/// Records that lines before this one were lost. The record is about the file and not about a run, so it is not an
/// event.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "lost", rename_all = "camelCase")]
struct LostRecord {
    /// The time, in milliseconds since 1970.
    timestamp_ms: u64,
    lost_lines: u64,
}

/// Serializes each line, with its line end.
pub(super) fn to_bytes(lines: &[AccountingLine]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for line in lines {
        match line {
            AccountingLine::Event(event) => serde_json::to_writer(&mut bytes, event)?,
            AccountingLine::Lost { at_ms, lines } => {
                let lost = LostRecord { timestamp_ms: *at_ms, lost_lines: *lines };
                serde_json::to_writer(&mut bytes, &lost)?;
            }
        }
        bytes.push(b'\n');
    }
    Ok(bytes)
}
