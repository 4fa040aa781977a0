//! Parses only the fields of a usage record that a summary (`summary.rs`) adds up. Strings borrow from the line.
//!
//! Parsing a whole [`EventEnvelope`](haft_core::event_log::EventEnvelope) copies a dozen strings. This module reads
//! only the fields that a summary needs, and copies a string only if it has escapes. It reads the lines of older
//! versions, which have fields in camel case and no envelope, and the events that [`quick_event`](super::quick_event)
//! cannot read.

use std::borrow::Cow;

use serde::Deserialize;

const CALL_START: &[u8] = br#"{"type":"tool","#;

/// The name of the first field that no summary needs. A quote inside a JSON string has a backslash, so this text cannot
/// occur inside a string.
const CALL_REST: &[u8] = br#","argumentsDigest":"#;

/// The fields that a summary needs: an envelope has `at` and `event`, and a line without an envelope has some of
/// the others.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartialLine<'a> {
    at: Option<u64>,
    #[serde(borrow)]
    event: Option<PartialEvent<'a>>,
    #[serde(rename = "type", borrow)]
    kind: Option<BorrowedText<'a>>,
    timestamp_ms: Option<u64>,
    #[serde(borrow)]
    status: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    tool: Option<BorrowedText<'a>>,
    latency_ms: Option<u64>,
    bytes_out: Option<u64>,
    executed: Option<bool>,
    cached: Option<bool>,
    #[serde(borrow)]
    provider: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    model: Option<BorrowedText<'a>>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_tokens: Option<u64>,
    cost_nano_usd: Option<u64>,
    lost_lines: Option<u64>,
    #[serde(borrow)]
    principal: Option<BorrowedText<'a>>,
}

/// The fields of an event that a summary needs.
#[derive(Debug, Deserialize)]
struct PartialEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: BorrowedText<'a>,
    #[serde(borrow)]
    error_kind: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    tool: Option<BorrowedText<'a>>,
    latency_ms: Option<u64>,
    bytes_out: Option<u64>,
    executed: Option<bool>,
    cached: Option<bool>,
    /// The model as `provider/model`.
    #[serde(borrow)]
    model: Option<BorrowedText<'a>>,
    usage: Option<PartialUsage>,
    cost_nano_usd: Option<u64>,
    #[serde(borrow)]
    principal: Option<BorrowedText<'a>>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
struct PartialUsage {
    #[serde(rename = "input_tokens")]
    input: u64,
    #[serde(rename = "output_tokens")]
    output: u64,
    #[serde(rename = "cache_read_tokens")]
    cache_read: u64,
}

/// A borrowed string. This wrapper is necessary, because serde borrows a `Cow` inside a struct, but not directly inside
/// an `Option`.
#[derive(Debug, Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

/// The fields of a line that a summary needs.
#[derive(Debug)]
pub(super) struct SummedLine<'a> {
    /// The time, in milliseconds since 1970.
    pub(super) at_ms: u64,
    /// The principal: `local`, or `TENANT/SUBJECT`.
    pub(super) principal: Option<&'a str>,
    pub(super) content: PartialContent<'a>,
}

/// The content of a line, by its kind.
#[derive(Debug)]
pub(super) enum PartialContent<'a> {
    Tool(PartialToolLine<'a>),
    Model(PartialModelLine<'a>),
    Lost { lines: u64 },
}

/// The fields of a call.
#[derive(Debug)]
pub(super) struct PartialToolLine<'a> {
    pub(super) tool: &'a str,
    pub(super) is_error: bool,
    pub(super) latency_ms: u64,
    pub(super) bytes_out: u64,
    pub(super) executed: bool,
    pub(super) cached: bool,
}

/// The fields of a model request.
#[derive(Debug)]
pub(super) struct PartialModelLine<'a> {
    pub(super) provider: &'a str,
    pub(super) model: &'a str,
    pub(super) is_error: bool,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) cache_read_tokens: u64,
    pub(super) cost_nano_usd: Option<u64>,
}

impl<'a> PartialLine<'a> {
    /// Parses a line. Overwrites a byte in a line of an older version, to end the line before the fields that no
    /// summary needs: parsing these fields would take half of the time.
    pub(super) fn parse(line: &'a mut [u8]) -> Option<Self> {
        let line = match summed_fields_end(line) {
            Some(end) => {
                line[end] = b'}';
                &line[..=end]
            }
            None => line,
        };
        // Checking the whole line for UTF-8 at once is faster than checking each string in it.
        serde_json::from_str(std::str::from_utf8(line).ok()?).ok()
    }

    /// Returns `None` for an unknown kind of line, and if a field that this kind needs is missing.
    pub(super) fn summed(&self) -> Option<SummedLine<'_>> {
        let principal = match &self.event {
            Some(event) => &event.principal,
            None => &self.principal,
        };
        Some(SummedLine {
            at_ms: self.at.or(self.timestamp_ms)?,
            principal: principal.as_ref().map(|principal| &*principal.0),
            content: self.content()?,
        })
    }

    fn content(&self) -> Option<PartialContent<'_>> {
        if let Some(event) = &self.event {
            return event.content();
        }
        match &*self.kind.as_ref()?.0 {
            "tool" => self.tool_line().map(PartialContent::Tool),
            "model" => self.model_line().map(PartialContent::Model),
            "lost" => Some(PartialContent::Lost { lines: self.lost_lines? }),
            _ => None,
        }
    }

    fn tool_line(&self) -> Option<PartialToolLine<'_>> {
        Some(PartialToolLine {
            tool: &self.tool.as_ref()?.0,
            is_error: self.is_error()?,
            latency_ms: self.latency_ms?,
            bytes_out: self.bytes_out?,
            executed: self.executed?,
            cached: self.cached?,
        })
    }

    fn model_line(&self) -> Option<PartialModelLine<'_>> {
        Some(PartialModelLine {
            provider: &self.provider.as_ref()?.0,
            model: &self.model.as_ref()?.0,
            is_error: self.is_error()?,
            input_tokens: self.input_tokens?,
            output_tokens: self.output_tokens?,
            cache_read_tokens: self.cache_read_tokens?,
            cost_nano_usd: self.cost_nano_usd,
        })
    }

    fn is_error(&self) -> Option<bool> {
        Some(self.status.as_ref()?.0 != "ok")
    }
}

impl PartialEvent<'_> {
    fn content(&self) -> Option<PartialContent<'_>> {
        match &*self.kind.0 {
            "tool_finished" => self.tool_line().map(PartialContent::Tool),
            "model_finished" => self.model_line().map(PartialContent::Model),
            _ => None,
        }
    }

    fn tool_line(&self) -> Option<PartialToolLine<'_>> {
        Some(PartialToolLine {
            tool: &self.tool.as_ref()?.0,
            is_error: self.error_kind.is_some(),
            latency_ms: self.latency_ms?,
            bytes_out: self.bytes_out?,
            executed: self.executed?,
            cached: self.cached?,
        })
    }

    fn model_line(&self) -> Option<PartialModelLine<'_>> {
        let (provider, model) = self.model.as_ref()?.0.split_once('/')?;
        let usage = self.usage.unwrap_or_default();
        Some(PartialModelLine {
            provider,
            model,
            is_error: self.error_kind.is_some(),
            input_tokens: usage.input,
            output_tokens: usage.output,
            cache_read_tokens: usage.cache_read,
            cost_nano_usd: self.cost_nano_usd,
        })
    }
}

/// Returns the end of the fields that a summary needs, if the line is complete.
fn summed_fields_end(line: &[u8]) -> Option<usize> {
    let is_whole_call = line.starts_with(CALL_START) && line.ends_with(b"}");
    is_whole_call.then(|| memchr::memmem::find(line, CALL_REST))?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tool and the bytes of a call.
    fn call(line: &str) -> Option<(String, u64)> {
        let mut line = line.as_bytes().to_vec();
        match PartialLine::parse(&mut line)?.content()? {
            PartialContent::Tool(line) => Some((line.tool.to_owned(), line.bytes_out)),
            PartialContent::Model(_) | PartialContent::Lost { .. } => None,
        }
    }

    #[test]
    fn tool_record_is_parsed_without_its_audit_fields() {
        let line = |tool: &str, rest: &str| {
            format!(
                r#"{{"type":"tool","timestampMs":1,"status":"ok","tool":"{tool}","latencyMs":2,"bytesOut":3,"executed":true,
                "cached":false{rest}"#
            )
        };
        let rest = r#","argumentsDigest":"aa","turn":1}"#;
        let expected = |tool: &str| Some((tool.to_owned(), 3));
        assert_eq!(call(&line("read", rest)), expected("read"));
        assert_eq!(call(&line("read", "}")), expected("read"), "fields in another order are parsed");
        let quoted = r#"a\",\"argumentsDigest\":b"#;
        assert_eq!(
            call(&line(quoted, rest)),
            expected(r#"a","argumentsDigest":b"#),
            "a tool name that looks like a field is parsed"
        );
        assert_eq!(call(&line("read", &rest[..rest.len() - 1])), None, "an incomplete line is rejected");
        assert_eq!(call(&line("read", r#","turn":1"#)), None);
    }

    #[test]
    fn event_is_parsed_with_fields_in_any_order() {
        let line = |tool: &str, rest: &str| {
            format!(
                r#"{{"seq":1,"at":1,"run":"r","event":{{"turn":1,"type":"tool_finished","id":"1","operation":1,"tool":"{tool}",
                "error_kind":null,"latency_ms":2,"executed":true,"cached":false,"bytes_in":1,"bytes_out":3{rest}"#
            )
        };
        let rest = r#","principal":"local","arguments_digest":"aa"}}"#;
        let expected = |tool: &str| Some((tool.to_owned(), 3));
        assert_eq!(call(&line("read", rest)), expected("read"));
        assert_eq!(call(&line("read", "}}")), expected("read"), "a line without audit fields is parsed");
        let quoted = r#"a\",\"principal\":b"#;
        assert_eq!(
            call(&line(quoted, rest)),
            expected(r#"a","principal":b"#),
            "a tool name that looks like a field is parsed"
        );
        assert_eq!(call(&line("read", &rest[..rest.len() - 1])), None, "an incomplete line is rejected");
        assert_eq!(call(&line("read", r#","principal":"#)), None);
        let sorted = r#"{"at":1,"event":{"cached":false,"type":"tool_finished","executed":true,"latency_ms":2,"tool":"read",
            "bytes_out":3,"principal":"local"},"run":"r","seq":1}"#;
        assert_eq!(call(sorted), expected("read"), "fields in another order are parsed");
        let other = line("read", rest).replace("tool_finished", "tool_started");
        assert_eq!(call(&other), None, "an event of another kind is not a call");
    }
}
