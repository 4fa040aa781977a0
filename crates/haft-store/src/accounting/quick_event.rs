//! Reads the usual form of usage records without a JSON parser.
//!
//! A summary needs ten of the thirty fields of a line, and a parser spends most of its time on the others. haft writes
//! the fields in a fixed order, so a cursor that expects this order is several times as fast. Any other line, such as
//! one with an escape in a string, is left to the parser.

use super::partial::{PartialContent, PartialModelLine, PartialToolLine, SummedLine};

/// Reads a line in its usual form. Ignores the fields after the last one that a summary needs.
pub(super) fn read(line: &[u8]) -> Option<SummedLine<'_>> {
    // A line that a crash truncated does not have this end.
    let mut cursor = LineCursor { rest: line.strip_suffix(b"}}")? };
    cursor.number_after(br#"{"seq":"#)?;
    let at_ms = cursor.number_after(br#","at":"#)?;
    cursor.text_after(br#","run":"#)?;
    // Only the runs of sub-agents have this field.
    let _ = cursor.number_after(br#","parent":"#);
    cursor.number_after(br#","event":{"turn":"#)?;
    let content = match cursor.text_after(br#","type":"#)? {
        b"tool_finished" => PartialContent::Tool(tool_line(&mut cursor)?),
        b"model_finished" => PartialContent::Model(model_line(&mut cursor)?),
        _ => return None,
    };
    let principal = match cursor.rest {
        b"" => None,
        _ => Some(str::from_utf8(cursor.text_after(br#","principal":"#)?).ok()?),
    };
    Some(SummedLine { at_ms, principal, content })
}

fn tool_line<'a>(cursor: &mut LineCursor<'a>) -> Option<PartialToolLine<'a>> {
    cursor.text_after(br#","id":"#)?;
    cursor.number_after(br#","operation":"#)?;
    let tool = str::from_utf8(cursor.text_after(br#","tool":"#)?).ok()?;
    let is_error = cursor.is_present_after(br#","error_kind":"#)?;
    let latency_ms = cursor.number_after(br#","latency_ms":"#)?;
    let executed = cursor.flag_after(br#","executed":"#)?;
    let cached = cursor.flag_after(br#","cached":"#)?;
    cursor.number_after(br#","bytes_in":"#)?;
    let bytes_out = cursor.number_after(br#","bytes_out":"#)?;
    Some(PartialToolLine { tool, is_error, latency_ms, bytes_out, executed, cached })
}

fn model_line<'a>(cursor: &mut LineCursor<'a>) -> Option<PartialModelLine<'a>> {
    let model = str::from_utf8(cursor.text_after(br#","model":"#)?).ok()?;
    let (provider, model) = model.split_once('/')?;
    cursor.number_after(br#","attempt":"#)?;
    let is_error = cursor.is_present_after(br#","error_kind":"#)?;
    cursor.number_after(br#","latency_ms":"#)?;
    let [input_tokens, output_tokens, cache_read_tokens] = tokens(cursor)?;
    let cost_nano_usd = match cursor.skip(br#","cost_nano_usd":null"#) {
        Some(()) => None,
        None => Some(cursor.number_after(br#","cost_nano_usd":"#)?),
    };
    Some(PartialModelLine {
        provider,
        model,
        is_error,
        input_tokens,
        output_tokens,
        cache_read_tokens,
        cost_nano_usd,
    })
}

/// Reads the numbers of input tokens, output tokens and tokens read from a cache.
fn tokens(cursor: &mut LineCursor<'_>) -> Option<[u64; 3]> {
    if cursor.skip(br#","usage":null"#).is_some() {
        return Some([0; 3]);
    }
    let input = cursor.number_after(br#","usage":{"input_tokens":"#)?;
    let output = cursor.number_after(br#","output_tokens":"#)?;
    let cache_read = cursor.number_after(br#","cache_read_tokens":"#)?;
    cursor.number_after(br#","cache_write_tokens":"#)?;
    cursor.number_after(br#","reasoning_tokens":"#)?;
    cursor.skip(b"}")?;
    Some([input, output, cache_read])
}

/// The part of a line that is not read yet. If a method returns `None`, the line is left to the parser.
struct LineCursor<'a> {
    rest: &'a [u8],
}

impl<'a> LineCursor<'a> {
    fn skip(&mut self, expected: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(expected)?;
        Some(())
    }

    fn number_after(&mut self, field: &[u8]) -> Option<u64> {
        self.skip(field)?;
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        let add = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
        (digits > 0).then(|| number.iter().try_fold(0, add))?
    }

    fn flag_after(&mut self, field: &[u8]) -> Option<bool> {
        self.skip(field)?;
        let is_true = self.skip(b"true").is_some();
        (is_true || self.skip(b"false").is_some()).then_some(is_true)
    }

    /// Reads the string value of a field. Returns `None` if it has escapes.
    fn text_after(&mut self, field: &[u8]) -> Option<&'a [u8]> {
        self.skip(field)?;
        self.skip(b"\"")?;
        let end = memchr::memchr2(b'"', b'\\', self.rest)?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest.strip_prefix(b"\"")?;
        Some(text)
    }

    /// Reads a value that is `null` or a string. Returns true for a string.
    fn is_present_after(&mut self, field: &[u8]) -> Option<bool> {
        if self.text_after(field).is_some() {
            return Some(true);
        }
        self.skip(b"null")?;
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::super::partial::PartialLine;
    use super::*;

    const TOOL: &str = r#"{"seq":1,"at":5,"run":"r","event":{"turn":1,"type":"tool_finished","id":"c","operation":1,"tool":"read","error_kind":null,"latency_ms":2,"executed":true,"cached":false,"bytes_in":3,"bytes_out":4,"principal":"local","arguments_digest":"aa"}}"#;
    const MODEL: &str = r#"{"seq":2,"at":6,"run":"r","parent":7,"event":{"turn":1,"type":"model_finished","model":"p/m/n","attempt":1,"error_kind":"overloaded","latency_ms":2,"usage":{"input_tokens":10,"output_tokens":11,"cache_read_tokens":12,"cache_write_tokens":13,"reasoning_tokens":14},"cost_nano_usd":15,"principal":"local","request_id":"1"}}"#;

    fn read_quickly(line: &str) -> Option<String> {
        read(line.as_bytes()).map(|found| format!("{found:?}"))
    }

    fn parsed(line: &str) -> Option<String> {
        let mut line = line.as_bytes().to_vec();
        let line = PartialLine::parse(&mut line)?;
        Some(format!("{:?}", line.summed()?))
    }

    #[test]
    fn quick_reader_agrees_with_the_parser() {
        let check = |line: &str| {
            let found = read_quickly(line);
            assert!(found.is_some() && found == parsed(line), "{line}: {found:?}");
        };
        check(TOOL);
        check(&TOOL.replace(r#""error_kind":null"#, r#""error_kind":"denied""#));
        check(&TOOL.replace("true", "false").replace("read", "réad"));
        check(&TOOL.replace(r#","principal":"local","arguments_digest":"aa""#, ""));
        check(&TOOL.replace(r#""bytes_out":4"#, r#""bytes_out":18446744073709551615"#));
        check(MODEL);
        check(&MODEL.replace(r#""cost_nano_usd":15"#, r#""cost_nano_usd":null"#));
        let usage = MODEL.split_once(r#""usage":"#).unwrap().1.split_once("},").unwrap().0;
        check(&MODEL.replace(&format!("{usage}}}"), "null"));
    }

    #[test]
    fn quick_reader_leaves_unusual_lines_to_the_parser() {
        let check = |line: &str| assert_eq!(read_quickly(line), None, "{line}");
        check("");
        check("}}");
        check(&TOOL.replace("read", r#"re\"ad"#));
        check(&TOOL.replace(r#","cached":false"#, ""));
        check(&TOOL.replace("tool_finished", "tool_started"));
        check(&TOOL.replace(r#""bytes_out":4"#, r#""bytes_out":99999999999999999999"#));
        check(&TOOL.replace(r#""latency_ms":2"#, r#""latency_ms":2.5"#));
        check(r#"{"type":"lost","timestampMs":5,"lostLines":3}"#);
    }

    /// Tests every length of a line, because a crash may truncate a line at any byte.
    #[test]
    fn quick_reader_leaves_truncated_lines_to_the_parser() {
        for line in [TOOL, MODEL] {
            for end in 0..line.len() {
                assert_eq!(read_quickly(&line[..end]), None, "{}", &line[..end]);
            }
        }
    }
}
