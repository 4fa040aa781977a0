//! Parses Markdown tables, even while their text is still arriving.

use super::super::table::{Table, left};
use super::{TextCompleteness, inline_text};

/// The maximum number of bytes of a table that are held back for its layout. The rest of a longer table becomes another
/// table.
const TABLE_BYTES_MAX: usize = 64 << 10;

/// The rows of a table that is arriving.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MarkdownTable {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    bytes: usize,
    /// True if the last line of the text was a row without a line end.
    open_end: bool,
}

/// The first lines of a text, parsed as a table.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TableStart {
    /// The parser needs more text to decide whether a table begins.
    Undecided,
    NoTable,
    /// The header and the line below it, with their length in bytes.
    Table(MarkdownTable, usize),
}

impl MarkdownTable {
    /// Looks for a header and the line of dashes below it.
    pub(super) fn begin(text: &str, rest: TextCompleteness) -> TableStart {
        if !text.starts_with('|') {
            return TableStart::NoTable;
        }
        let undecided = rest == TextCompleteness::MayCome && text.len() <= TABLE_BYTES_MAX;
        let Some((header, below)) = text.split_once('\n') else {
            return if undecided { TableStart::Undecided } else { TableStart::NoTable };
        };
        let (dashes, end) = match below.split_once('\n') {
            Some((dashes, _)) => (dashes, header.len() + dashes.len() + 2),
            None if undecided && is_dashes_so_far(below) => return TableStart::Undecided,
            None => (below, text.len()),
        };
        if !is_dashes(dashes) {
            return TableStart::NoTable;
        }
        let table = Self {
            header: cells(header),
            bytes: end,
            open_end: !text[..end].ends_with('\n'),
            ..Self::default()
        };
        TableStart::Table(table, end)
    }

    /// Adds the next line and returns its length in bytes; `None` while the line is not complete. Returns 0 if the line
    /// is not a row, or if the table is full.
    pub(super) fn push(&mut self, text: &str, rest: TextCompleteness) -> Option<usize> {
        if !text.starts_with('|') || self.bytes > TABLE_BYTES_MAX {
            return Some(0);
        }
        let end = match text.find('\n') {
            Some(end) => end + 1,
            None if rest == TextCompleteness::MayCome && text.len() <= TABLE_BYTES_MAX => return None,
            None => text.len(),
        };
        self.rows.push(cells(&text[..end]));
        self.bytes += end;
        self.open_end = !text[..end].ends_with('\n');
        Some(end)
    }

    /// Returns the table for a terminal of this width.
    pub(super) fn render(&self, columns: usize) -> String {
        let mut table = Table::new(self.header.iter().map(|name| left(name.as_str()))).ruled();
        for row in &self.rows {
            table.row(row.iter().map(String::as_str));
        }
        let mut text = table.fitted(Some(columns));
        if self.open_end {
            text.truncate(text.trim_end_matches('\n').len());
        }
        text
    }
}

/// Splits a line into cells, without Markdown markers. `\|` is a bar inside a cell.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let inner = line.strip_prefix('|').unwrap_or(line);
    let inner = inner.strip_suffix('|').filter(|rest| !rest.ends_with('\\')).unwrap_or(inner);
    let mut cells = vec![String::new()];
    let mut before = ' ';
    for c in inner.chars() {
        if c == '|' && before != '\\' {
            cells.push(String::new());
        } else if let Some(cell) = cells.last_mut() {
            if c == '|' {
                cell.pop();
            }
            cell.push(c);
        }
        before = c;
    }
    // Markdown shows several spaces as one.
    let words = |cell: &String| inline_text(cell).split_whitespace().collect::<Vec<_>>().join(" ");
    cells.iter().map(words).collect()
}

/// Returns true if a line is the one below the header, such as `|---|:--:|`.
fn is_dashes(line: &str) -> bool {
    is_dashes_so_far(line) && line.contains('-') && line.trim_start().starts_with('|')
}

fn is_dashes_so_far(line: &str) -> bool {
    line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' ' | '\t' | '\r'))
}

#[cfg(test)]
mod tests {
    use super::super::MarkdownRenderer;

    fn rendered(text: &str, columns: usize) -> String {
        let mut markdown = MarkdownRenderer::new(columns);
        let shown = markdown.push(text);
        let shown = shown + &markdown.finish();
        anstream::adapter::strip_str(&shown).to_string()
    }

    const TABLE: &str = "\
| name | meaning |
|:-----|--------:|
| `read` | reads a **text** file or an image |
| a\\|b | x |
";

    #[test]
    fn markdown_table_becomes_aligned_columns() {
        let expected = "\
name │ meaning
─────┼──────────────────────────────
read │ reads a text file or an image
a|b  │ x
after
";
        assert_eq!(rendered(&format!("{TABLE}after\n"), 80), expected);
    }

    #[test]
    fn narrow_table_wraps_cells_between_words() {
        let expected = "\
name │ meaning
─────┼──────────────
read │ reads a text
     │ file or an
     │ image
a|b  │ x
";
        assert_eq!(rendered(TABLE, 20), expected);
        for columns in 1..100 {
            let shown = rendered(TABLE, columns);
            for word in ["name", "meaning", "read", "reads", "text", "image", "a|b"] {
                assert!(
                    shown.split([' ', '\n', ':']).any(|found| found == word),
                    "{columns}: {word}\n{shown}"
                );
            }
        }
    }

    #[test]
    fn table_whose_columns_do_not_fit_becomes_a_list() {
        assert_eq!(
            rendered("| a-long-name | b |\n|---|---|\n| some-long-word | x y |\n", 16),
            "\
• a-long-name:
  some-long-word
  b: x y
"
        );
    }

    #[test]
    fn lines_with_bars_outside_a_table_are_unchanged() {
        for text in ["| a | b |\n", "| a\n| b\n| c\n", "|", "|\n", "a | b\n---|---\n"] {
            assert_eq!(rendered(text, 80), text);
        }
    }
}
