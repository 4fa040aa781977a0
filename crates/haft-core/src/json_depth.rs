//! Measures the nesting of JSON without recursion, before a recursive parser could overflow the stack.

/// Returns the position of the first bracket that nests deeper than `depth_max`. Does not detect invalid JSON; the
/// parser that runs next does.
pub fn first_too_deep(json: &[u8], depth_max: usize) -> Option<usize> {
    // Ordinary JSON has no more brackets than `depth_max`. Counting brackets is much faster than tracking their
    // nesting.
    if json.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() <= depth_max {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_do_not_nest() {
        let check = |json: &str, expected: Option<usize>| {
            assert_eq!(first_too_deep(json.as_bytes(), 2), expected, "{json}");
        };
        check(r#"{"a": [1]}"#, None);
        check(r#"{"a": [[1]]}"#, Some(7));
        check(r#"{"a": "[[\"[[", "b": [{}]}"#, Some(22));
        check("[][][]", None);
    }
}
