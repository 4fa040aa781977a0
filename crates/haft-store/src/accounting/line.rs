//! The stored form of accounting lines: the JSON of the event, or a record of lost lines.

use std::io;

use haft_core::accounting_store::AccountingLine;
use serde::Serialize;

/// A gap before this line. It is about the file and belongs to no run, so it is not an event.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "lost", rename_all = "camelCase")]
struct LostRecord {
    /// Milliseconds since 1970.
    timestamp_ms: u64,
    lost_lines: u64,
}

/// Writes each line with its end.
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
