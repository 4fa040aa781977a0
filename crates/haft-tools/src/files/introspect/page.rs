//! The space that is left in one answer of `introspect`, and the list of entries that did not fit.

use std::path::Path;

use super::omitted::{self, OmissionReason, OmittedEntry};

/// The maximum length of an answer, in characters.
const TOTAL_CHARS_MAX: usize = 200_000;
/// The space reserved for the outer tags, the note and the list of entries left out.
const RESERVED_CHARS: usize = 10_000;

#[derive(Debug)]
pub(super) struct IntrospectPage {
    chars_left: usize,
    left_out: Vec<OmittedEntry>,
}

impl IntrospectPage {
    pub(super) fn new(left_out: Vec<OmittedEntry>) -> Self {
        Self { chars_left: TOTAL_CHARS_MAX - RESERVED_CHARS, left_out }
    }

    pub(super) fn chars_left(&self) -> usize {
        self.chars_left
    }

    /// Returns the text if all of it fits into the page, otherwise `None`: a part of a file would mislead the model.
    pub(super) fn admit(&mut self, path: &Path, text: String) -> Option<String> {
        let Some(chars_left) = self.chars_left.checked_sub(text.chars().count()) else {
            self.leave_out(OmittedEntry { path: path.to_owned(), reason: OmissionReason::TotalReached });
            return None;
        };
        self.chars_left = chars_left;
        Some(text)
    }

    pub(super) fn leave_out(&mut self, left_out: OmittedEntry) {
        self.left_out.push(left_out);
    }

    pub(super) fn left_out_section(&self) -> String {
        omitted::section(&self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_omits_an_entry_that_is_too_large_but_adds_later_ones() {
        let mut page = IntrospectPage { chars_left: 5, left_out: Vec::new() };
        assert_eq!(page.admit(Path::new("a"), "ääää".into()), Some("ääää".into()));
        assert_eq!(page.admit(Path::new("b"), "xx".into()), None);
        assert_eq!(page.admit(Path::new("c"), "x".into()), Some("x".into()));
        assert_eq!(page.left_out, [OmittedEntry { path: "b".into(), reason: OmissionReason::TotalReached }]);
    }

    #[test]
    fn reserved_space_is_enough_for_the_longest_list_of_omitted_entries() {
        let long = OmittedEntry { path: "<".repeat(4000).into(), reason: OmissionReason::RulesUnusable };
        let section = omitted::section(&vec![long; 1000]);
        assert!(section.chars().count() < RESERVED_CHARS - 1000, "{}", section.chars().count());
    }
}
