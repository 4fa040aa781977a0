//! Lays out tables for the width of the terminal, without breaking words.

use unicode_width::UnicodeWidthStr;

use super::terminal;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// A table that is printed after all its rows are known.
#[derive(Debug, Clone)]
pub(super) struct Table {
    columns: Vec<Column>,
    lines: Vec<TableLine>,
    style: TableStyle,
}

/// A column with its heading.
#[derive(Debug, Clone)]
pub(super) struct Column {
    heading: String,
    side: CellSide,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellSide {
    Left,
    /// Right alignment is for numbers.
    Right,
}

#[derive(Debug, Clone)]
enum TableLine {
    Row(Vec<String>),
    /// A sentence that spans all columns.
    Note(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableStyle {
    /// Two spaces between columns.
    Spaced,
    /// Lines between columns and below the headings, with colours.
    Ruled,
}

impl TableStyle {
    fn separator(self) -> &'static str {
        match self {
            Self::Spaced => "  ",
            Self::Ruled => " │ ",
        }
    }
}

/// Returns a column of words.
pub(super) fn left(heading: impl Into<String>) -> Column {
    Column { heading: heading.into(), side: CellSide::Left }
}

/// Returns a column of numbers.
pub(super) fn right(heading: impl Into<String>) -> Column {
    Column { heading: heading.into(), side: CellSide::Right }
}

impl Table {
    pub(super) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), lines: Vec::new(), style: TableStyle::Spaced }
    }

    /// Draws lines between the columns.
    pub(super) fn ruled(self) -> Self {
        Self { style: TableStyle::Ruled, ..self }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.lines.push(TableLine::Row(cells.into_iter().map(Into::into).collect()));
    }

    /// Adds a line that spans all columns, such as the name of a group of rows.
    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.lines.push(TableLine::Note(text.into()));
    }

    /// Returns the text of the table for standard output. Lines for a terminal fit its width. A program gets one line
    /// per row.
    pub(super) fn text(&self) -> String {
        self.fitted(terminal::table_columns())
    }

    /// Returns the text for a terminal of this width, or one line per row for `None`.
    pub(super) fn fitted(&self, columns_max: Option<usize>) -> String {
        let columns_max = columns_max.unwrap_or(usize::MAX);
        let (natural, least) = (self.widest(UnicodeWidthStr::width), self.widest(longest_word));
        let gaps = self.style.separator().width() * natural.len().saturating_sub(1);
        match widths(&natural, &least, columns_max.saturating_sub(gaps)) {
            Some(widths) => self.as_grid(&widths, columns_max),
            None => self.as_list(columns_max),
        }
    }

    fn rows(&self) -> impl Iterator<Item = &[String]> {
        self.lines.iter().filter_map(|line| match line {
            TableLine::Row(cells) => Some(cells.as_slice()),
            TableLine::Note(_) => None,
        })
    }

    fn headings(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.heading.clone()).collect()
    }

    /// Returns the maximum of `measure` for each column.
    fn widest(&self, measure: fn(&str) -> usize) -> Vec<usize> {
        let headings = self.headings();
        let count = self.rows().map(<[String]>::len).fold(headings.len(), usize::max);
        let mut widest = vec![0; count];
        for row in std::iter::once(headings.as_slice()).chain(self.rows()) {
            for (widest, cell) in widest.iter_mut().zip(row) {
                *widest = measure(cell).max(*widest);
            }
        }
        widest
    }

    fn as_grid(&self, widths: &[usize], columns_max: usize) -> String {
        let mut text = String::new();
        let (bold, dim, plain) = match self.style {
            TableStyle::Spaced => ("", "", ""),
            TableStyle::Ruled => (BOLD, DIM, PLAIN),
        };
        for line in self.row_lines(&self.headings(), widths) {
            text.extend([bold, &line, plain, "\n"]);
        }
        if self.style == TableStyle::Ruled {
            let dashes: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            text.extend([dim, &dashes.join("─┼─"), plain, "\n"]);
        }
        for line in &self.lines {
            let lines = match line {
                TableLine::Row(cells) => self.row_lines(cells, widths),
                TableLine::Note(note) => wrapped(note, columns_max),
            };
            for line in &lines {
                text.extend([line.as_str(), "\n"]);
            }
        }
        text
    }

    /// Returns the lines of one row. A cell that is too wide continues on the next line.
    fn row_lines(&self, row: &[String], widths: &[usize]) -> Vec<String> {
        let empty = String::new();
        let cells: Vec<Vec<String>> = widths
            .iter()
            .enumerate()
            .map(|(column, width)| wrapped(row.get(column).unwrap_or(&empty), *width))
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or_default();
        let line = |at: usize| {
            let parts = cells.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
                let part = cell.get(at).unwrap_or(&empty);
                self.padded(column, part, *width)
            });
            parts.collect::<Vec<_>>().join(self.style.separator()).trim_end().to_owned()
        };
        (0..height).map(line).collect()
    }

    fn padded(&self, column: usize, part: &str, width: usize) -> String {
        let space = " ".repeat(width.saturating_sub(part.width()));
        match self.columns.get(column).map_or(CellSide::Left, |column| column.side) {
            CellSide::Left => format!("{part}{space}"),
            CellSide::Right => format!("{space}{part}"),
        }
    }

    /// Shows each row as a list of its cells, if the columns do not fit next to each other.
    fn as_list(&self, columns_max: usize) -> String {
        if self.lines.is_empty() {
            return wrapped(&self.headings().join(" "), columns_max).join("\n") + "\n";
        }
        let mut text = String::new();
        for line in &self.lines {
            match line {
                TableLine::Row(cells) => self.list_row(cells, columns_max, &mut text),
                TableLine::Note(note) => {
                    for line in &wrapped(note, columns_max) {
                        text.extend([line.as_str(), "\n"]);
                    }
                }
            }
        }
        text
    }

    fn list_row(&self, cells: &[String], columns_max: usize, text: &mut String) {
        let mut mark = "• ";
        for (column, cell) in cells.iter().enumerate().filter(|(_, cell)| !cell.is_empty()) {
            let name =
                self.columns.get(column).map(|column| format!("{}: ", column.heading)).unwrap_or_default();
            for line in wrapped(&format!("{name}{cell}"), columns_max.saturating_sub(2)) {
                text.extend([mark, &line, "\n"]);
                mark = "  ";
            }
        }
    }
}

/// Breaks a line between words for the terminal. Further lines are indented to `column`, where the text begins.
pub(super) fn hanging(line: &str, column: usize) -> String {
    let fitted = terminal::table_columns().and_then(|columns_max| {
        let (label, text) = line.split_at_checked(column)?;
        let lines = wrapped(text, columns_max.saturating_sub(column));
        Some(format!("{label}{}", lines.join(&format!("\n{}", " ".repeat(column)))))
    });
    fitted.unwrap_or_else(|| line.to_owned())
}

/// Divides the width among the columns. Returns `None` if the longest words do not fit.
fn widths(natural: &[usize], least: &[usize], room: usize) -> Option<Vec<usize>> {
    if natural.iter().sum::<usize>() <= room {
        return Some(natural.to_vec());
    }
    let mut widths = least.to_vec();
    let mut left = room.checked_sub(least.iter().sum())?;
    // Add one character at a time, so that a long column does not take all the space.
    while left > 0 {
        let before = left;
        for (width, natural) in widths.iter_mut().zip(natural) {
            if *width < *natural && left > 0 {
                *width += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    Some(widths)
}

/// Breaks a text into lines of at most this width, at spaces. Keeps the spaces inside a line, because they may be
/// significant in a command.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn longest_word(cell: &str) -> usize {
    cell.split(' ').map(UnicodeWidthStr::width).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([left("TOOL"), right("CALLS"), left("LAST COMMAND")]);
        table.row(["bash", "12", "git  log --oneline"]);
        table.note("a sentence about the row above");
        table.row(["docs__read", "7", "a"]);
        table
    }

    #[test]
    fn wide_table_has_one_line_per_row_and_right_aligned_numbers() {
        let expected = "\
TOOL        CALLS  LAST COMMAND
bash           12  git  log --oneline
a sentence about the row above
docs__read      7  a
";
        assert_eq!(table().fitted(None), expected);
        assert_eq!(table().fitted(Some(38)), expected);
    }

    #[test]
    fn narrow_table_wraps_cells_and_notes_between_words() {
        let expected = "\
TOOL        CALLS  LAST
                   COMMAND
bash           12  git  log
                   --oneline
a sentence about the row
above
docs__read      7  a
";
        assert_eq!(table().fitted(Some(29)), expected);
    }

    #[test]
    fn table_breaks_no_word_at_any_width() {
        let words = ["TOOL", "CALLS", "COMMAND", "bash", "12", "--oneline", "sentence", "docs__read"];
        for columns in 1..60 {
            let shown = table().fitted(Some(columns));
            for word in words {
                let found = shown.split([' ', '\n', ':']).any(|found| found == word);
                assert!(found, "{columns}: {word}\n{shown}");
            }
            let widest = shown.lines().map(UnicodeWidthStr::width).max().unwrap_or_default();
            assert!(widest <= columns.max("  docs__read".len()), "{columns}: {widest}\n{shown}");
        }
    }
}
