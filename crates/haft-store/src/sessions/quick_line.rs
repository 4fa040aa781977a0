//! Parses only the beginning of a line, so that a list of sessions does not parse whole journals.

use haft_core::model_reply::TokenUsage;
use haft_core::price::Cost;
use serde::Deserialize;

/// A line of which [`SessionOverview`](super::SessionOverview) needs only a few fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum QuickLine {
    Tool {
        at_ms: u64,
    },
    Model {
        at_ms: u64,
        used: ModelUse,
    },
    /// A further request of the user.
    Requested {
        at_ms: u64,
    },
    /// A line that session lists do not use.
    Other {
        at_ms: u64,
    },
}

/// The tokens and the cost of a model request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelUse {
    pub(super) usage: TokenUsage,
    pub(super) cost: Option<Cost>,
}

/// The beginnings of input lines that do not affect a list.
const OTHER_INPUTS: [&str; 9] = [
    r#"{"stepped":"#,
    r#"{"replied":"#,
    r#"{"ended":"#,
    r#"{"client_replied":"#,
    r#"{"judged":"#,
    r#"{"archived":"#,
    r#"{"summarized":"#,
    r#"{"summary_failed":"#,
    r#""stopped""#,
];

impl QuickLine {
    /// Parses a line. Returns `None` for a line that must be parsed as a whole, including every unusual line.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let rest = line.strip_suffix(b"}")?.strip_prefix(br#"{"type":""#)?;
        if let Some(rest) = rest.strip_prefix(br#"told","at_ms":"#) {
            let (at_ms, rest) = number(rest)?;
            return Self::input(at_ms, rest.strip_prefix(br#","told":"#)?);
        }
        if let Some(rest) = rest.strip_prefix(br#"begun","at_ms":"#) {
            return Some(Self::Other { at_ms: number(rest)?.0 });
        }
        if let Some(rest) = rest.strip_prefix(br#"tool","timestampMs":"#) {
            return Some(Self::Tool { at_ms: number(rest)?.0 });
        }
        rest.starts_with(br#"model""#).then(|| Self::model(line))?
    }

    fn input(at_ms: u64, input: &[u8]) -> Option<Self> {
        if input.starts_with(br#"{"requested":"#) {
            return Some(Self::Requested { at_ms });
        }
        let is_other = OTHER_INPUTS.iter().any(|other| input.starts_with(other.as_bytes()));
        is_other.then_some(Self::Other { at_ms })
    }

    fn model(line: &[u8]) -> Option<Self> {
        let line: QuickModelLine = serde_json::from_slice(line).ok()?;
        let usage = TokenUsage {
            input: line.input_tokens,
            output: line.output_tokens,
            cache_read: line.cache_read_tokens,
            cache_write: line.cache_write_tokens,
            reasoning: line.reasoning_tokens,
        };
        let cost = line.cost_nano_usd.map(|nano_usd| Cost { nano_usd });
        Some(Self::Model { at_ms: line.timestamp_ms, used: ModelUse { usage, cost } })
    }
}

/// The part of a [`ModelRecord`](crate::accounting::ModelRecord) that has no strings.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct QuickModelLine {
    timestamp_ms: u64,
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    reasoning_tokens: u64,
    cost_nano_usd: Option<u64>,
}

/// Parses a number, and returns it with the text after it.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = text.split_at(end);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_line_leaves_unusual_lines_to_the_parser() {
        let check = |line: &str, expected: Option<QuickLine>| {
            assert_eq!(QuickLine::parse(line.as_bytes()), expected, "{line}");
        };
        let (at_ms, other) = (7, Some(QuickLine::Other { at_ms: 7 }));
        check(r#"{"type":"told","at_ms":7,"told":{"replied":{"x":1}}}"#, other.clone());
        check(r#"{"type":"told","at_ms":7,"told":"stopped"}"#, other.clone());
        check(r#"{"type":"told","at_ms":7,"told":{"requested":"x"}}"#, Some(QuickLine::Requested { at_ms }));
        check(r#"{"type":"told","at_ms":7,"told":{"failed":{}}}"#, None);
        check(r#"{"type":"told","at_ms":7,"told":{"slept":{}}}"#, None);
        check(r#"{"type":"told","at_ms":7,"told":{"replied":{"x":1"#, None);
        check(r#"{"type":"told","at_ms":,"told":{"replied":{"x":1}}}"#, None);
        check(r#"{"type":"begun","at_ms":7,"call":"1"}"#, other);
        check(r#"{"type":"tool","timestampMs":7,"status":"ok"}"#, Some(QuickLine::Tool { at_ms }));
        check(r#"{"type":"model","timestampMs":7}"#, None);
        check(r#"{"type":"finished","at_ms":7}"#, None);
        check("", None);
    }
}
