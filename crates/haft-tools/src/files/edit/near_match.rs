//! Looks for a near match if `edit` did not find the text to replace, and describes its line and its difference.

/// Returns why `old` was not found, if only line breaks or white space differ.
pub(super) fn hint(text: &str, old: &str) -> Option<String> {
    if let Some(line) = line_ignoring_line_ends(text, old) {
        return Some(format!("the same text is at line {line} with other line endings: {}", line_ends(text)));
    }
    let line = line_ignoring_white_space(text, old)?;
    Some(format!(
        "the same text is at line {line} with other white space; copy that text exactly, with its indentation"
    ))
}

fn line_ignoring_line_ends(text: &str, old: &str) -> Option<usize> {
    let text = text.replace("\r\n", "\n");
    let position = text.find(&old.replace("\r\n", "\n"))?;
    Some(line_number(&text[..position]))
}

fn line_ends(text: &str) -> &'static str {
    if text.contains("\r\n") {
        "the file has CRLF, so write \\r\\n in old_string and new_string"
    } else {
        "the file has LF, so write \\n in old_string and new_string"
    }
}

fn line_ignoring_white_space(text: &str, old: &str) -> Option<usize> {
    let pattern = without_white_space(old);
    if pattern.is_empty() {
        return None;
    }
    let position = without_white_space(text).find(&pattern)?;
    Some(line_number(&text[..position_with_white_space(text, position)?]))
}

fn without_white_space(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Converts a position in the text without white space to the position in `text`.
fn position_with_white_space(text: &str, position: usize) -> Option<usize> {
    let mut passed = 0;
    for (index, c) in text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
        if passed == position {
            return Some(index);
        }
        passed += c.len_utf8();
    }
    None
}

fn line_number(before: &str) -> usize {
    before.matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, old: &str, expected: Option<&str>) {
        let hint = hint(text, old);
        match expected {
            None => assert_eq!(hint, None),
            Some(part) => assert!(hint.as_deref().is_some_and(|hint| hint.contains(part)), "{hint:?}"),
        }
    }

    #[test]
    fn hint_names_the_line_that_differs_only_in_white_space_or_line_ends() {
        check("a\r\nb\r\nc\r\n", "b\nc", Some("line 2 with other line endings: the file has CRLF"));
        check("a\nb\nc\n", "b\r\nc", Some("line 2 with other line endings: the file has LF"));
        check("fn a() {\n\tlet ä = 1;\n}\n", "    let ä = 1;\n", Some("line 2 with other white space"));
        check("ä\n\n x  y", "x y", Some("line 3 with other white space"));
        check("abc", "xyz", None);
        check("abc", "   ", None);
        check("", "a", None);
    }
}
