//! Markdown on its way to a terminal: shown as it arrives, its marks turned into weight and colour.
//!
//! What a line is shows in its first characters; inside it, only what stands between a mark and its end is held back. A
//! mark that is never closed is shown as it was written, so no word of an answer is lost.

mod line;
mod span;

use line::{CodeLine, Line};
use span::Span;

/// The most that is held back to find out what a mark means.
const HELD_BYTES_MAX: usize = 400;

/// How long a line between two parts of a text is.
const RULE_CHARS: usize = 40;

/// The codes that end all others.
const PLAIN: &str = "\x1b[0m";

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";

/// An answer that is being shown.
#[derive(Debug)]
pub(super) struct Markdown {
    place: Place,
    /// What cannot be shown before more is known.
    held: String,
    /// The character before it, by which a mark is told from a letter's neighbour.
    before: char,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    LineStart,
    /// Inside a line whose text has this style.
    Inside(&'static str),
    /// At the start of a line between two fences; the text is the one that opened it.
    Code(String),
    /// Inside such a line.
    CodeLine(String),
}

/// Whether more may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    MayCome,
    IsThere,
}

impl Default for Markdown {
    fn default() -> Self {
        Self { place: Place::LineStart, held: String::new(), before: '\n' }
    }
}

impl Markdown {
    /// What can be shown now that this was said, too.
    pub(super) fn push(&mut self, text: &str) -> String {
        self.held.push_str(text);
        self.shown(Rest::MayCome)
    }

    /// What is left when nothing more is said.
    pub(super) fn finish(&mut self) -> String {
        let mut shown = self.shown(Rest::IsThere);
        if matches!(self.place, Place::Inside(style) if !style.is_empty()) {
            shown.push_str(PLAIN);
        }
        *self = Self::default();
        shown
    }

    fn shown(&mut self, rest: Rest) -> String {
        let mut shown = String::new();
        let held = std::mem::take(&mut self.held);
        let mut left = held.as_str();
        while !left.is_empty() {
            let (seen, rest) = reach(left, rest);
            let Some(taken) = self.step(seen, rest, &mut shown) else { break };
            self.before = left[..taken].chars().next_back().unwrap_or(self.before);
            left = &left[taken..];
        }
        left.clone_into(&mut self.held);
        shown
    }

    /// How much of the text was shown; nothing while it may still mean two things.
    fn step(&mut self, text: &str, rest: Rest, shown: &mut String) -> Option<usize> {
        match self.place.clone() {
            Place::LineStart => self.line_start(text, rest, shown),
            Place::Inside(style) => self.inside(text, rest, style, shown),
            Place::Code(fence) => self.code_start(text, rest, fence, shown),
            Place::CodeLine(fence) => Some(self.code_line(text, fence, shown)),
        }
    }

    fn line_start(&mut self, text: &str, rest: Rest, shown: &mut String) -> Option<usize> {
        let (taken, line) = Line::of(text, rest)?;
        match line {
            Line::Text => {
                shown.push_str(&text[..taken]);
                self.place = Place::Inside("");
            }
            Line::Heading => {
                shown.push_str(BOLD);
                self.place = Place::Inside(BOLD);
            }
            Line::Item { indent } => {
                shown.push_str(&" ".repeat(indent));
                shown.push_str("• ");
                self.place = Place::Inside("");
            }
            Line::Quote => shown.extend([DIM, "│", PLAIN, " "]),
            Line::Rule => shown.extend([DIM, &"─".repeat(RULE_CHARS), PLAIN]),
            Line::Fence(fence) => {
                shown.extend([DIM, &text[..taken], PLAIN]);
                self.place = Place::Code(fence);
                return Some(taken + end_of_line(&text[taken..], shown));
            }
        }
        Some(taken)
    }

    fn inside(&mut self, text: &str, rest: Rest, style: &'static str, shown: &mut String) -> Option<usize> {
        let (taken, span) = Span::of(text, self.before, rest)?;
        span.show(style, shown);
        if span == Span::EndOfLine {
            self.place = Place::LineStart;
        }
        Some(taken)
    }

    fn code_start(&mut self, text: &str, rest: Rest, fence: String, shown: &mut String) -> Option<usize> {
        let taken = match CodeLine::of(text, &fence, rest)? {
            CodeLine::Code => return Some(self.code_line(text, fence, shown)),
            CodeLine::Close(taken) => taken,
        };
        shown.extend([DIM, &text[..taken], PLAIN]);
        self.place = Place::LineStart;
        Some(taken + end_of_line(&text[taken..], shown))
    }

    fn code_line(&mut self, text: &str, fence: String, shown: &mut String) -> usize {
        let taken = text.find('\n').map_or(text.len(), |at| at + 1);
        shown.push_str(&text[..taken]);
        self.place = if text[..taken].ends_with('\n') { Place::Code(fence) } else { Place::CodeLine(fence) };
        taken
    }
}

/// How much of a text decides what comes next. Whatever would be held back for longer means nothing but itself, also when all of
/// it is there already: else each of many marks would be looked for to the end.
fn reach(text: &str, rest: Rest) -> (&str, Rest) {
    if text.len() > HELD_BYTES_MAX {
        (&text[..text.ceil_char_boundary(HELD_BYTES_MAX + 1)], Rest::IsThere)
    } else {
        (text, rest)
    }
}

/// The newline that ends a fence, where it is there.
fn end_of_line(text: &str, shown: &mut String) -> usize {
    let newline = usize::from(text.starts_with('\n'));
    shown.push_str(&text[..newline]);
    newline
}

#[cfg(test)]
mod tests;
