//! Decides which links of an output stay links when its text is shortened.

use haft_core::output::OutputContent;

/// The maximum number of links that stay. A client rarely shows more.
const LINKS_MAX: usize = 100;

/// The remaining space for the links of a shortened output.
pub(super) struct LinkRoom {
    links: usize,
    bytes: usize,
}

impl LinkRoom {
    /// Creates the space for links under a limit of the whole text. The links get at most half of it, so that they never
    /// replace all of the text.
    pub(super) fn of(text_max: usize) -> Self {
        Self { links: LINKS_MAX, bytes: text_max / 2 }
    }

    /// Creates no space: all links become part of the text.
    pub(super) fn none() -> Self {
        Self { links: 0, bytes: 0 }
    }

    /// Takes the space for a link, and returns true if the link stays. Returns false for other content.
    pub(super) fn keeps(&mut self, content: &OutputContent) -> bool {
        let bytes_left = match content {
            OutputContent::Link(_) => self.bytes.checked_sub(content.as_text().len()),
            OutputContent::Text(_)
            | OutputContent::Image { .. }
            | OutputContent::Audio { .. }
            | OutputContent::Resource { .. }
            | OutputContent::Binary { .. }
            | OutputContent::FoundTools(_)
            | OutputContent::Stored(_) => None,
        };
        match (self.links.checked_sub(1), bytes_left) {
            (Some(links), Some(bytes)) => {
                *self = Self { links, bytes };
                true
            }
            (None, _) | (_, None) => false,
        }
    }
}
