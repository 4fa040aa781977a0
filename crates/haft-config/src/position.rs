//! Positions and key paths in a file.

/// Converts byte offsets to lines and columns. If the offsets are ascending, all conversions together take one pass
/// over the text, however long its lines are.
#[derive(Debug)]
pub(super) struct Positions<'t> {
    text: &'t str,
    offset: usize,
    line: usize,
    column: usize,
}

impl<'t> Positions<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, offset: 0, line: 1, column: 1 }
    }

    /// Returns the line and column of an offset, both counted from 1. Columns are counted in characters.
    pub(super) fn at(&mut self, offset: usize) -> (usize, usize) {
        if offset < self.offset {
            *self = Self::new(self.text);
        }
        let passed = self.text.get(self.offset..offset).unwrap_or_default();
        for c in passed.chars() {
            self.column += 1;
            if c == '\n' {
                self.line += 1;
                self.column = 1;
            }
        }
        self.offset = offset;
        (self.line, self.column)
    }
}

/// Returns the path of a key inside another key. Keys that are not plain words are quoted.
pub(super) fn child(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-$".contains(c));
    match (path.is_empty(), plain) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{key:?}]"),
    }
}

/// Returns the path of an element of a list.
pub(super) fn item(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_are_counted_in_characters() {
        let text = "ab\nüc\r\n\nd";
        let mut positions = Positions::new(text);
        let mut check = |offset, expected| assert_eq!(positions.at(offset), expected, "{offset}");
        check(0, (1, 1));
        check(1, (1, 2));
        check(3, (2, 1));
        check(5, (2, 2));
        check(text.len() - 1, (4, 1));
        check(1, (1, 2));
    }

    #[test]
    fn key_paths_quote_non_word_keys() {
        assert_eq!(child("", "tools"), "tools");
        assert_eq!(child("tools", "git*"), "tools[\"git*\"]");
        assert_eq!(child("tools[\"git*\"]", "timeout"), "tools[\"git*\"].timeout");
        assert_eq!(item("policy.rules", 2), "policy.rules[2]");
    }
}
