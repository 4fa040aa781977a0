//! Classifies a Markdown line by its first characters.

use super::TextCompleteness;

/// The kind of a line. Its marker is not shown, except for a fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MarkdownLine {
    Text,
    Heading,
    Item {
        indent: usize,
    },
    /// A quotation. The text after the marker is treated as the beginning of a line.
    Quote,
    Rule,
    /// A code fence. All lines after it are code, up to a line with the same marker or a longer one.
    Fence(String),
}

impl MarkdownLine {
    /// Classifies the line and returns the length of its marker in bytes; `None` while more text is needed to decide.
    pub(super) fn of(text: &str, rest: TextCompleteness) -> Option<(usize, Self)> {
        let begin = text.trim_start_matches(' ');
        let indent = text.len() - begin.len();
        let Some(mark) = begin.chars().next() else { return known(rest, (indent, MarkdownLine::Text)) };
        let run = begin.len() - begin.trim_start_matches(mark).len();
        let after = begin[run..].chars().next();
        let plain = Some((indent, MarkdownLine::Text));
        match (mark, after) {
            ('#' | '>' | '-' | '*' | '+' | '_' | '`' | '~', None) if rest == TextCompleteness::MayCome => {
                None
            }
            ('#', Some(' ')) if run <= 6 => Some((indent + run + 1, MarkdownLine::Heading)),
            ('>', _) => Some((indent + 1 + usize::from(begin[1..].starts_with(' ')), MarkdownLine::Quote)),
            ('-' | '*' | '+', Some(' ')) if run == 1 => Some((indent + 2, MarkdownLine::Item { indent })),
            ('-' | '*' | '_', None | Some('\n')) if run >= 3 => Some((indent + run, MarkdownLine::Rule)),
            ('`' | '~', _) if run >= 3 => fence(text, indent, &begin[..run], rest),
            _ => plain,
        }
    }
}

/// Detects the fence of a code block. A language name may follow the fence, so the decision needs the complete line. If
/// another backtick follows in the line, the line is text with inline code.
fn fence(text: &str, indent: usize, mark: &str, rest: TextCompleteness) -> Option<(usize, MarkdownLine)> {
    let end = text.find('\n');
    let taken = end.unwrap_or(text.len());
    if mark.starts_with('`') && text[indent + mark.len()..taken].contains('`') {
        return Some((indent, MarkdownLine::Text));
    }
    let parsed = (taken, MarkdownLine::Fence(mark.to_owned()));
    if end.is_some() { Some(parsed) } else { known(rest, parsed) }
}

/// A line between two fences.
pub(super) enum CodeLine {
    Code,
    /// The closing fence and its length in bytes.
    Close(usize),
}

impl CodeLine {
    /// Classifies the line; `None` while more text is needed to decide.
    pub(super) fn of(text: &str, mark: &str, rest: TextCompleteness) -> Option<Self> {
        let newline = text.find('\n');
        let end = newline.unwrap_or(text.len());
        let line = text[..end].trim();
        let is_run = line.chars().all(|c| mark.starts_with(c));
        let closes = is_run && line.len() >= mark.len();
        let parsed = if closes { CodeLine::Close(end) } else { CodeLine::Code };
        if newline.is_some() || !is_run { Some(parsed) } else { known(rest, parsed) }
    }
}

fn known<T>(rest: TextCompleteness, parsed: T) -> Option<T> {
    match rest {
        TextCompleteness::MayCome => None,
        TextCompleteness::IsThere => Some(parsed),
    }
}
