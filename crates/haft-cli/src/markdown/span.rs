//! The next piece inside a line: plain words, or text between two markers.

use super::{BOLD, PLAIN, Rest};

const ITALIC: &str = "\x1b[3m";
const CODE: &str = "\x1b[36m";

/// A piece of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Span<'a> {
    Words(&'a str),
    Code(&'a str),
    Emphasis { style: &'static str, text: &'a str },
    EndOfLine,
}

impl<'a> Span<'a> {
    /// Returns the length in bytes of the first piece, and the piece; `None` while more text is needed to decide.
    pub(super) fn of(text: &'a str, before: char, rest: Rest) -> Option<(usize, Self)> {
        let words = text.find(['\n', '*', '_', '`', '\\']).unwrap_or(text.len());
        if words > 0 {
            return Some((words, Span::Words(&text[..words])));
        }
        match text.chars().next()? {
            '\n' => Some((1, Span::EndOfLine)),
            '\\' => escaped(text, rest),
            mark => between(text, mark, before, rest),
        }
    }

    /// Appends the piece to the output, and restores `style`, the style of the line, after it.
    pub(super) fn show(&self, style: &str, shown: &mut String) {
        match self {
            Span::Words(words) => shown.push_str(words),
            Span::Code(code) => shown.extend([CODE, code, PLAIN, style]),
            Span::Emphasis { style: own, text } => {
                let both = format!("{style}{own}");
                shown.push_str(own);
                show_whole(text, &both, shown);
                shown.extend([PLAIN, style]);
            }
            Span::EndOfLine if style.is_empty() => shown.push('\n'),
            Span::EndOfLine => shown.extend([PLAIN, "\n"]),
        }
    }
}

/// Shows the text between two markers, which may contain further markers.
fn show_whole(text: &str, style: &str, shown: &mut String) {
    let (mut left, mut before) = (text, ' ');
    while let Some((taken, span)) = Span::of(left, before, Rest::IsThere) {
        span.show(style, shown);
        before = left[..taken].chars().next_back().unwrap_or(before);
        left = &left[taken..];
    }
}

fn escaped(text: &str, rest: Rest) -> Option<(usize, Span<'_>)> {
    match text[1..].chars().next() {
        Some(mark) if mark.is_ascii_punctuation() => Some((2, Span::Words(&text[1..2]))),
        None if rest == Rest::MayCome => None,
        Some(_) | None => Some((1, Span::Words(&text[..1]))),
    }
}

fn between(text: &str, mark: char, before: char, rest: Rest) -> Option<(usize, Span<'_>)> {
    let run = text.len() - text.trim_start_matches(mark).len();
    let itself = Some((run, Span::Words(&text[..run])));
    let line_end = text.find('\n');
    let line = &text[..line_end.unwrap_or(text.len())];
    let opens = mark == '`' || opens(&line[run..], before);
    if (line.len() > run || line_end.is_some()) && !opens {
        return itself;
    }
    match closing(line, mark, run) {
        // The next character decides whether this marker closes the span, so wait for it.
        Some(close) if close + run == text.len() && rest == Rest::MayCome => None,
        Some(close) if mark == '`' => Some((close + run, Span::Code(&line[run..close]))),
        Some(close) => Some((close + run, Span::Emphasis { style: style(run), text: &line[run..close] })),
        None if line_end.is_some() || rest == Rest::IsThere => itself,
        None => None,
    }
}

/// Returns false for a marker inside a word or before a space: `snake_case`, `2 * 3`.
fn opens(after: &str, before: char) -> bool {
    !before.is_alphanumeric() && after.chars().next().is_some_and(|next| !next.is_whitespace())
}

/// Returns the offset of the closing marker, a run of the same length.
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
