//! Renders Markdown to a terminal while it arrives. Markers become bold, italic and colour.
//!
//! The first characters of a line determine its kind. Inside a line, only text after an opening marker is held back
//! until its end. A marker that is never closed is shown literally, so no word of an answer is lost.

mod line;
mod span;
mod table;

use line::{CodeLine, MarkdownLine};
use span::MarkdownSpan;
use table::{MarkdownTable, TableStart};

/// The maximum number of bytes that are held back to decide the meaning of a marker.
const HELD_BYTES_MAX: usize = 400;

/// The width of a horizontal rule.
const RULE_CHARS: usize = 40;

/// The assumed width of a terminal that does not report one.
const COLUMNS: usize = 80;

/// The escape code that resets all others.
const PLAIN: &str = "\x1b[0m";

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";

/// A renderer for one answer.
#[derive(Debug)]
pub(super) struct MarkdownRenderer {
    place: MarkdownPosition,
    /// Text that cannot be shown before more arrives.
    held: String,
    /// The character before the held text. A marker directly after a letter or digit does not open a span.
    before: char,
    /// The width of the terminal, for tables.
    columns: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum MarkdownPosition {
    LineStart,
    /// The renderer is inside a line. The field is the style of the line's text.
    Inside(&'static str),
    /// The renderer is at the start of a line in a code block. The field is the fence that opened the block.
    Code(String),
    /// The renderer is inside a line of a code block. The field is the fence that opened the block.
    CodeLine(String),
    /// The renderer has read some lines of a table. It shows the table when the table is complete.
    Table(MarkdownTable),
}

/// Selects whether more text may arrive (`MayCome`) or the text is complete (`IsThere`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextCompleteness {
    MayCome,
    IsThere,
}

impl Default for MarkdownRenderer {
    fn default() -> Self {
        Self::new(COLUMNS)
    }
}

/// Returns a text without Markdown markers.
fn inline_text(text: &str) -> String {
    let place = MarkdownPosition::Inside("");
    let mut markdown = MarkdownRenderer { place, ..MarkdownRenderer::default() };
    let shown = markdown.push(text) + &markdown.finish();
    anstream::adapter::strip_str(&shown).to_string()
}

impl MarkdownRenderer {
    /// Creates a renderer for a terminal of this width.
    pub(super) fn new(columns: usize) -> Self {
        Self { place: MarkdownPosition::LineStart, held: String::new(), before: '\n', columns }
    }

    /// Appends text and returns the part that can be shown now.
    pub(super) fn push(&mut self, text: &str) -> String {
        self.held.push_str(text);
        self.shown(TextCompleteness::MayCome)
    }

    /// Returns the remaining output at the end of the answer.
    pub(super) fn finish(&mut self) -> String {
        let mut shown = self.shown(TextCompleteness::IsThere);
        match &self.place {
            MarkdownPosition::Inside(style) if !style.is_empty() => shown.push_str(PLAIN),
            MarkdownPosition::Table(table) => shown.push_str(&table.render(self.columns)),
            MarkdownPosition::LineStart
            | MarkdownPosition::Inside(_)
            | MarkdownPosition::Code(_)
            | MarkdownPosition::CodeLine(_) => {}
        }
        *self = Self::new(self.columns);
        shown
    }

    fn shown(&mut self, rest: TextCompleteness) -> String {
        let mut shown = String::new();
        let held = std::mem::take(&mut self.held);
        let mut left = held.as_str();
        while !left.is_empty() {
            let taken = match self.table_step(left, rest, &mut shown) {
                TableStep::Taken(bytes) => bytes,
                TableStep::Undecided => break,
                TableStep::NoTable => {
                    let (seen, rest) = reach(left, rest);
                    let Some(bytes) = self.step(seen, rest, &mut shown) else { break };
                    bytes
                }
            };
            self.before = left[..taken].chars().next_back().unwrap_or(self.before);
            left = &left[taken..];
        }
        left.clone_into(&mut self.held);
        shown
    }

    /// Processes the next lines if they belong to a table.
    fn table_step(&mut self, text: &str, rest: TextCompleteness, shown: &mut String) -> TableStep {
        match &mut self.place {
            MarkdownPosition::LineStart => match MarkdownTable::begin(text, rest) {
                TableStart::Undecided => TableStep::Undecided,
                TableStart::NoTable => TableStep::NoTable,
                TableStart::Table(table, taken) => {
                    self.place = MarkdownPosition::Table(table);
                    TableStep::Taken(taken)
                }
            },
            MarkdownPosition::Table(table) => match table.push(text, rest) {
                Some(0) => {
                    shown.push_str(&table.render(self.columns));
                    self.place = MarkdownPosition::LineStart;
                    TableStep::Taken(0)
                }
                Some(taken) => TableStep::Taken(taken),
                None => TableStep::Undecided,
            },
            MarkdownPosition::Inside(_) | MarkdownPosition::Code(_) | MarkdownPosition::CodeLine(_) => {
                TableStep::NoTable
            }
        }
    }

    /// Renders the next part of the text and returns its length in bytes; `None` while its meaning is still ambiguous.
    fn step(&mut self, text: &str, rest: TextCompleteness, shown: &mut String) -> Option<usize> {
        match self.place.clone() {
            MarkdownPosition::LineStart => self.line_start(text, rest, shown),
            MarkdownPosition::Inside(style) => self.inside(text, rest, style, shown),
            MarkdownPosition::Code(fence) => self.code_start(text, rest, fence, shown),
            MarkdownPosition::CodeLine(fence) => Some(self.code_line(text, fence, shown)),
            // Only `table_step` handles a table.
            MarkdownPosition::Table(_) => None,
        }
    }

    fn line_start(&mut self, text: &str, rest: TextCompleteness, shown: &mut String) -> Option<usize> {
        let (taken, line) = MarkdownLine::of(text, rest)?;
        match line {
            MarkdownLine::Text => {
                shown.push_str(&text[..taken]);
                self.place = MarkdownPosition::Inside("");
            }
            MarkdownLine::Heading => {
                shown.push_str(BOLD);
                self.place = MarkdownPosition::Inside(BOLD);
            }
            MarkdownLine::Item { indent } => {
                shown.push_str(&" ".repeat(indent));
                shown.push_str("• ");
                self.place = MarkdownPosition::Inside("");
            }
            MarkdownLine::Quote => shown.extend([DIM, "│", PLAIN, " "]),
            MarkdownLine::Rule => shown.extend([DIM, &"─".repeat(RULE_CHARS), PLAIN]),
            MarkdownLine::Fence(fence) => {
                shown.extend([DIM, &text[..taken], PLAIN]);
                self.place = MarkdownPosition::Code(fence);
                return Some(taken + end_of_line(&text[taken..], shown));
            }
        }
        Some(taken)
    }

    fn inside(
        &mut self,
        text: &str,
        rest: TextCompleteness,
        style: &'static str,
        shown: &mut String,
    ) -> Option<usize> {
        let (taken, span) = MarkdownSpan::of(text, self.before, rest)?;
        span.show(style, shown);
        if span == MarkdownSpan::EndOfLine {
            self.place = MarkdownPosition::LineStart;
        }
        Some(taken)
    }

    fn code_start(
        &mut self,
        text: &str,
        rest: TextCompleteness,
        fence: String,
        shown: &mut String,
    ) -> Option<usize> {
        let taken = match CodeLine::of(text, &fence, rest)? {
            CodeLine::Code => return Some(self.code_line(text, fence, shown)),
            CodeLine::Close(taken) => taken,
        };
        shown.extend([DIM, &text[..taken], PLAIN]);
        self.place = MarkdownPosition::LineStart;
        Some(taken + end_of_line(&text[taken..], shown))
    }

    fn code_line(&mut self, text: &str, fence: String, shown: &mut String) -> usize {
        let taken = text.find('\n').map_or(text.len(), |at| at + 1);
        shown.push_str(&text[..taken]);
        self.place = if text[..taken].ends_with('\n') {
            MarkdownPosition::Code(fence)
        } else {
            MarkdownPosition::CodeLine(fence)
        };
        taken
    }
}

/// Returns the part of a text that is searched for the end of a marker. A marker whose end is further away is literal,
/// even if all the text has arrived: otherwise haft would search a text with many markers to its end for each marker,
/// in quadratic time.
fn reach(text: &str, rest: TextCompleteness) -> (&str, TextCompleteness) {
    if text.len() > HELD_BYTES_MAX {
        (&text[..text.ceil_char_boundary(HELD_BYTES_MAX + 1)], TextCompleteness::IsThere)
    } else {
        (text, rest)
    }
}

/// Writes the newline after a fence, if it has arrived, and returns its length.
fn end_of_line(text: &str, shown: &mut String) -> usize {
    let newline = usize::from(text.starts_with('\n'));
    shown.push_str(&text[..newline]);
    newline
}

/// The result of looking for the next lines of a table.
enum TableStep {
    /// The text does not belong to a table.
    NoTable,
    /// The renderer needs more text to decide whether a table begins or continues.
    Undecided,
    /// This many bytes belong to the table.
    Taken(usize),
}

#[cfg(test)]
mod tests;
