//! Shortens a text to a limit: JSON stays valid JSON, and any other text keeps its start and its end.

mod json;

pub use json::shorten_value;

/// The maximum size of a text that is shortened as JSON, in bytes. A parsed value takes many times the size of its
/// text, so a larger text is cut as plain text.
const JSON_BYTES_MAX: usize = 4 << 20;

/// Returns the text unchanged if it has at most `chars_max` characters, else a shortened text with a notice.
pub fn shorten(text: &str, chars_max: usize) -> String {
    if text.char_indices().nth(chars_max).is_none() {
        return text.to_owned();
    }
    shorten_json(text, chars_max).unwrap_or_else(|| head_and_tail(text, chars_max))
}

/// Returns the first and last characters of a text, `chars_max` in total, with a notice between them.
pub fn head_and_tail(text: &str, chars_max: usize) -> String {
    let chars_total = text.chars().count();
    if chars_total <= chars_max {
        return text.to_owned();
    }
    let (first, last) = (chars_max.div_ceil(2), chars_max / 2);
    let head_end = text.char_indices().nth(first).map_or(text.len(), |(at, _)| at);
    let tail_start = match last {
        0 => text.len(),
        last => text.char_indices().nth_back(last - 1).map_or(0, |(at, _)| at),
    };
    let (head, tail) = (&text[..head_end], &text[tail_start..]);
    format!(
        "{head}\n... (output truncated: {chars_total} total chars, showing first {first} and last {last})\n{tail}"
    )
}

/// Shortens a text as JSON. Returns `None` if the text is not JSON, or if no useful part of it fits.
fn shorten_json(text: &str, bytes_max: usize) -> Option<String> {
    let begins = text.trim_start().starts_with(['{', '[']);
    if !begins || text.len() > JSON_BYTES_MAX {
        return None;
    }
    let value = serde_json::from_str(text).ok()?;
    shorten_value(&value, bytes_max).map(|value| value.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn shortened_text_keeps_its_start_and_end() {
        let check = |text: &str, chars_max: usize, expected: &str| {
            assert_eq!(shorten(text, chars_max), expected);
        };
        check("", 0, "");
        check("short", 5, "short");
        check("äbcdefgö", 5, "äbc\n... (output truncated: 8 total chars, showing first 3 and last 2)\ngö");
        check("ab", 1, "a\n... (output truncated: 2 total chars, showing first 1 and last 0)\n");
        check("ab", 0, "\n... (output truncated: 2 total chars, showing first 0 and last 0)\n");
        check("[not json", 4, "[n\n... (output truncated: 9 total chars, showing first 2 and last 2)\non");
    }

    #[test]
    fn shortened_json_is_valid_json() {
        let text = format!("{{\"rows\": {:?}}}", (0..1_000).collect::<Vec<u32>>());
        let shortened = shorten(&text, 200);
        let value: Value = serde_json::from_str(&shortened).unwrap();
        let rows = value["rows"].as_array().unwrap();
        assert_eq!((&rows[0], &rows[1]), (&Value::from(0), &Value::from(1)));
        let left_out = 1_000 - (rows.len() - 1);
        assert_eq!(rows.last().unwrap(), &Value::from(format!("… ({left_out} more items)")));
    }

    #[test]
    fn json_too_large_to_parse_is_shortened_as_text() {
        let text = format!("[\"{}\"]", "x".repeat(JSON_BYTES_MAX));
        assert!(shorten(&text, 100).contains("output truncated"));
    }

    proptest! {
        #[test]
        fn head_and_tail_keep_at_most_the_requested_characters(text in ".{0,80}", chars_max in 0usize..60) {
            let shortened = head_and_tail(&text, chars_max);
            let kept: usize = shortened.split("\n... (output truncated").map(|part| part.chars().count()).sum();
            prop_assert!(kept <= chars_max + 100 || text.chars().count() <= chars_max);
            prop_assert!(shortened.starts_with(&text.chars().take(chars_max.div_ceil(2)).collect::<String>()));
        }
    }
}
