//! The next span inside a line: plain words, or text between two markers.

use super::{BOLD, PLAIN, TextCompleteness};

const ITALIC: &str = "\x1b[3m";
const CODE: &str = "\x1b[36m";

/// A part of a line: plain words, or text between two markers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MarkdownSpan<'a> {
    Words(&'a str),
    Code(&'a str),
    Emphasis { style: &'static str, text: &'a str },
    EndOfLine,
}

impl<'a> MarkdownSpan<'a> {
    /// Returns the length in bytes of the first span, and the span; `None` while more text is needed to decide.
    pub(super) fn of(text: &'a str, before: char, rest: TextCompleteness) -> Option<(usize, Self)> {
        let words = text.find(['\n', '*', '_', '`', '\\']).unwrap_or(text.len());
        if words > 0 {
            return Some((words, MarkdownSpan::Words(&text[..words])));
        }
        match text.chars().next()? {
            '\n' => Some((1, MarkdownSpan::EndOfLine)),
            '\\' => escaped(text, rest),
            mark => between(text, mark, before, rest),
        }
    }

    /// Appends the span to the output, and restores `style`, the style of the line, after it.
    pub(super) fn show(&self, style: &str, shown: &mut String) {
        match self {
            MarkdownSpan::Words(words) => shown.push_str(words),
            MarkdownSpan::Code(code) => shown.extend([CODE, code, PLAIN, style]),
            MarkdownSpan::Emphasis { style: own, text } => {
                let both = format!("{style}{own}");
                shown.push_str(own);
                show_nested_spans(text, &both, shown);
                shown.extend([PLAIN, style]);
            }
            MarkdownSpan::EndOfLine if style.is_empty() => shown.push('\n'),
            MarkdownSpan::EndOfLine => shown.extend([PLAIN, "\n"]),
        }
    }
}

/// Shows the text between two markers, which may contain further markers.
fn show_nested_spans(text: &str, style: &str, shown: &mut String) {
    let (mut left, mut before) = (text, ' ');
    while let Some((taken, span)) = MarkdownSpan::of(left, before, TextCompleteness::IsThere) {
        span.show(style, shown);
        before = left[..taken].chars().next_back().unwrap_or(before);
        left = &left[taken..];
    }
}

fn escaped(text: &str, rest: TextCompleteness) -> Option<(usize, MarkdownSpan<'_>)> {
    match text[1..].chars().next() {
        Some(mark) if mark.is_ascii_punctuation() => Some((2, MarkdownSpan::Words(&text[1..2]))),
        None if rest == TextCompleteness::MayCome => None,
        Some(_) | None => Some((1, MarkdownSpan::Words(&text[..1]))),
    }
}

fn between(
    text: &str,
    mark: char,
    before: char,
    rest: TextCompleteness,
) -> Option<(usize, MarkdownSpan<'_>)> {
    let run = text.len() - text.trim_start_matches(mark).len();
    let itself = Some((run, MarkdownSpan::Words(&text[..run])));
    let line_end = text.find('\n');
    let line = &text[..line_end.unwrap_or(text.len())];
    let opens = mark == '`' || opens(&line[run..], before);
    if (line.len() > run || line_end.is_some()) && !opens {
        return itself;
    }
    match closing(line, mark, run) {
        // The next character decides whether this marker closes the span, so wait for the character.
        Some(close) if close + run == text.len() && rest == TextCompleteness::MayCome => None,
        Some(close) if mark == '`' => Some((close + run, MarkdownSpan::Code(&line[run..close]))),
        Some(close) => {
            Some((close + run, MarkdownSpan::Emphasis { style: style(run), text: &line[run..close] }))
        }
        None if line_end.is_some() || rest == TextCompleteness::IsThere => itself,
        None => None,
    }
}

/// Returns false for a marker inside a word or before a space: `snake_case`, `2 * 3`.
fn opens(after: &str, before: char) -> bool {
    !before.is_alphanumeric() && after.chars().next().is_some_and(|next| !next.is_whitespace())
}

/// Returns the offset of the closing marker: a sequence of `mark` with the same length as the opening one.
fn closing(line: &str, mark: char, run: usize) -> Option<usize> {
    let mut at = run;
    while let Some(found) = line[at..].find(mark) {
        let begin = at + found;
        let length = line[begin..].len() - line[begin..].trim_start_matches(mark).len();
        let after = line[begin + length..].chars().next();
        let closes = mark == '`'
            || (!line[..begin].ends_with(char::is_whitespace) && !after.is_some_and(char::is_alphanumeric));
        if length == run && closes && begin > run {
            return Some(begin);
        }
        at = begin + length;
    }
    None
}

fn style(run: usize) -> &'static str {
    match run {
        1 => ITALIC,
        2 => BOLD,
        _ => "\x1b[1;3m",
    }
}
