//! What a line is, told by how it begins.

use super::Rest;

/// A line's kind. Its mark is not shown, but for that of a fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    Text,
    Heading,
    Item {
        indent: usize,
    },
    /// What follows is the beginning of a line again.
    Quote,
    Rule,
    /// Up to a line of this mark at least, everything is code.
    Fence(String),
}

impl Line {
    /// What begins here and how many bytes its mark takes; nothing while more must be seen.
    pub(super) fn of(text: &str, rest: Rest) -> Option<(usize, Self)> {
        let begin = text.trim_start_matches(' ');
        let indent = text.len() - begin.len();
        let Some(mark) = begin.chars().next() else { return known(rest, (indent, Line::Text)) };
        let run = begin.len() - begin.trim_start_matches(mark).len();
        let after = begin[run..].chars().next();
        let plain = Some((indent, Line::Text));
        match (mark, after) {
            ('#' | '>' | '-' | '*' | '+' | '_' | '`' | '~', None) if rest == Rest::MayCome => None,
            ('#', Some(' ')) if run <= 6 => Some((indent + run + 1, Line::Heading)),
            ('>', _) => Some((indent + 1 + usize::from(begin[1..].starts_with(' ')), Line::Quote)),
            ('-' | '*' | '+', Some(' ')) if run == 1 => Some((indent + 2, Line::Item { indent })),
            ('-' | '*' | '_', None | Some('\n')) if run >= 3 => Some((indent + run, Line::Rule)),
            ('`' | '~', _) if run >= 3 => fence(text, indent, &begin[..run], rest),
            _ => plain,
        }
    }
}

/// A fence may name a language, so it is known when its line is whole. A line with the mark in it again is inline code.
fn fence(text: &str, indent: usize, mark: &str, rest: Rest) -> Option<(usize, Line)> {
    let end = text.find('\n');
    let taken = end.unwrap_or(text.len());
    if mark.starts_with('`') && text[indent + mark.len()..taken].contains('`') {
        return Some((indent, Line::Text));
    }
    let told = (taken, Line::Fence(mark.to_owned()));
    if end.is_some() { Some(told) } else { known(rest, told) }
}

/// A line between two fences.
pub(super) enum CodeLine {
    Code,
    /// The fence that closes it, and how many bytes that takes.
    Close(usize),
}

impl CodeLine {
    /// Nothing while more must be seen.
    pub(super) fn of(text: &str, mark: &str, rest: Rest) -> Option<Self> {
        let newline = text.find('\n');
        let end = newline.unwrap_or(text.len());
        let line = text[..end].trim();
        let is_run = line.chars().all(|c| mark.starts_with(c));
        let closes = is_run && line.len() >= mark.len();
        let told = if closes { CodeLine::Close(end) } else { CodeLine::Code };
        if newline.is_some() || !is_run { Some(told) } else { known(rest, told) }
    }
}

fn known<T>(rest: Rest, told: T) -> Option<T> {
    match rest {
        Rest::MayCome => None,
        Rest::IsThere => Some(told),
    }
}
