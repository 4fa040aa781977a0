//! Shortens a JSON value to a limit. A notice replaces the omitted part of an array, an object or a string.

use std::io;

use serde_json::{Map, Value};

/// Returns the value unchanged if its text has at most `bytes_max` bytes, else a shortened value. Returns `None` if the
/// shortened value is still too long. The work is limited by `bytes_max`, not by the size of the value.
pub fn shorten_value(value: &Value, bytes_max: usize) -> Option<Value> {
    let shortened = shorten(value, bytes_max);
    bytes_within(&shortened, bytes_max).map(|_| shortened)
}

/// The maximum length of a notice in bytes, with quotes and a comma: a number of 20 digits and a few words.
const NOTICE_BYTES: usize = 64;

/// The minimum number of bytes for one part, enough for a number or a notice.
const PART_BYTES_MIN: usize = 2 * NOTICE_BYTES;

fn shorten(value: &Value, room: usize) -> Value {
    if bytes_within(value, room).is_some() {
        return value.clone();
    }
    match value {
        Value::String(text) => Value::String(shorten_string(text, room)),
        Value::Array(items) => Value::Array(shorten_array(items, room)),
        Value::Object(fields) => Value::Object(shorten_object(fields, room)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn shorten_string(text: &str, room: usize) -> String {
    let mut left = room.saturating_sub(NOTICE_BYTES);
    let fits = |(_, char): &(usize, char)| {
        let bytes = escaped_bytes(*char);
        let fits = bytes <= left;
        left = left.saturating_sub(bytes);
        fits
    };
    let end = text.char_indices().take_while(fits).last().map_or(0, |(at, char)| at + char.len_utf8());
    let missing = text[end..].chars().count();
    format!("{}… ({missing} more characters)", &text[..end])
}

fn shorten_array(items: &[Value], room: usize) -> Vec<Value> {
    let mut parts = SpaceDivision::new(room, items.len());
    let mut kept: Vec<Value> = items.iter().map_while(|item| parts.next(item, 0)).collect();
    if kept.len() < items.len() {
        kept.push(Value::String(format!("… ({} more items)", items.len() - kept.len())));
    }
    kept
}

fn shorten_object(fields: &Map<String, Value>, room: usize) -> Map<String, Value> {
    let mut parts = SpaceDivision::new(room, fields.len());
    let kept = fields.iter().map_while(|(key, value)| {
        let key_bytes = key.chars().map(escaped_bytes).sum::<usize>() + "\"\":".len();
        parts.next(value, key_bytes).map(|value| (key.clone(), value))
    });
    let mut kept: Map<String, Value> = kept.collect();
    if kept.len() < fields.len() {
        let missing = fields.len() - kept.len();
        kept.insert("…".into(), Value::String(format!("({missing} more keys)")));
    }
    kept
}

/// Divides the available bytes among parts. The bytes that a small part does not use are available for later parts.
struct SpaceDivision {
    left: usize,
    parts: usize,
}

impl SpaceDivision {
    fn new(room: usize, parts: usize) -> Self {
        Self { left: room.saturating_sub(NOTICE_BYTES), parts }
    }

    /// Returns the part, shortened if necessary, or `None` if no bytes are left for it. `around` is the size of the
    /// text around the part, such as its key.
    fn next(&mut self, part: &Value, around: usize) -> Option<Value> {
        let room = self.left.checked_sub(around + ",".len())?;
        let share = (room / self.parts.max(1)).max(PART_BYTES_MIN).min(room);
        let part = shorten(part, share);
        self.left = room.checked_sub(bytes_within(&part, room)?)?;
        self.parts = self.parts.saturating_sub(1);
        Some(part)
    }
}

/// Returns the number of bytes that a character takes inside a JSON string.
fn escaped_bytes(char: char) -> usize {
    match char {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

/// Returns the length of a value's text, or `None` if it exceeds `bytes_max`. Stops counting at the limit.
fn bytes_within(value: &Value, bytes_max: usize) -> Option<usize> {
    let mut room = RemainingBytes(bytes_max);
    serde_json::to_writer(&mut room, value).ok()?;
    Some(bytes_max - room.0)
}

struct RemainingBytes(usize);

impl io::Write for RemainingBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn shortened_string_ends_at_a_char_boundary_with_the_omitted_length() {
        let shortened = shorten_value(&json!("é".repeat(100)), 100).unwrap();
        assert_eq!(shortened, json!(format!("{}… (82 more characters)", "é".repeat(18))));
    }

    #[test]
    fn nested_values_share_the_byte_limit() {
        let value = json!({"a": vec!["x"; 500], "b": "short", "c": {"d": "y".repeat(5_000)}});
        let shortened = shorten_value(&value, 900).unwrap();
        assert_eq!(shortened["b"], "short");
        assert!(shortened["a"].as_array().unwrap().len() > 20, "{shortened}");
        assert!(shortened["c"]["d"].as_str().unwrap().len() > 100, "{shortened}");
    }

    #[test]
    fn omitted_keys_are_counted_in_the_result() {
        let many: Map<String, Value> = (0..100).map(|at| (format!("key{at:03}"), json!(at))).collect();
        let shortened = shorten_value(&Value::Object(many), 400).unwrap();
        let kept = shortened.as_object().unwrap().len() - 1;
        assert_eq!(shortened["…"], format!("({} more keys)", 100 - kept));
    }

    #[test]
    fn json_value_that_cannot_fit_is_not_shortened() {
        assert_eq!(shorten_value(&json!([1, 2, 3]), 3), None);
        assert_eq!(shorten_value(&json!(12_345), 3), None);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(|number| json!(number)),
            ".{0,60}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 200, 12, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..12).prop_map(Value::from),
                prop::collection::btree_map(".{0,10}", inner, 0..12)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn only_values_over_the_limit_are_shortened(value in value(), bytes_max in 0usize..3_000) {
            let text = value.to_string();
            match shorten_value(&value, bytes_max) {
                Some(shortened) if text.len() <= bytes_max => prop_assert_eq!(shortened, value),
                Some(shortened) => prop_assert!(shortened.to_string().len() <= bytes_max),
                None => prop_assert!(bytes_max < PART_BYTES_MIN, "no value of {} bytes: {}", bytes_max, text),
            }
        }
    }
}
