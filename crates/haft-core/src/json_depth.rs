//! Measures the nesting of JSON without recursion, before a recursive parser could overflow the stack.

/// Returns the position of the first bracket that nests deeper than `depth_max`. Does not detect invalid JSON; the
/// parser that runs next does.
pub fn first_too_deep(json: &[u8], depth_max: usize) -> Option<usize> {
    // JSON with at most `depth_max` brackets cannot nest too deep. Most JSON passes this check, which is much faster
    // than tracking the nesting.
    if brackets(json) <= depth_max {
        return None;
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    json.iter().position(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > depth_max
    })
}

/// Counts opening brackets. Each block is so short that its count fits in a `u8`, so the compiler can vectorize the
/// loop. `[` and `{` differ in one bit, so one comparison with this bit set finds both.
fn brackets(json: &[u8]) -> usize {
    let in_piece = |piece: &[u8]| piece.iter().map(|byte| u8::from(byte | 0x20 == b'{')).sum::<u8>();
    json.chunks(usize::from(u8::MAX)).map(|piece| usize::from(in_piece(piece))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_depth_counts_objects_and_arrays() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(brackets(&all), 2);
        assert_eq!(brackets("[{".repeat(1_000).as_bytes()), 2_000);
    }

    #[test]
    fn json_depth_ignores_brackets_in_strings() {
        let check = |json: &str, expected: Option<usize>| {
            assert_eq!(first_too_deep(json.as_bytes(), 2), expected, "{json}");
        };
        check(r#"{"a": [1]}"#, None);
        check(r#"{"a": [[1]]}"#, Some(7));
        check(r#"{"a": "[[\"[[", "b": [{}]}"#, Some(22));
        check("[][][]", None);
    }
}
