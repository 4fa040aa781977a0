//! Compares two texts line by line and prints the differences for a person. The comparison uses the full texts; only
//! a shortened list of lines has a limit.

use crate::approval::escaped;

/// The maximum number of entries in the table of a comparison. Texts that need more are shown as completely replaced
/// between their first and their last difference.
const TABLE_ENTRIES_MAX: usize = 4_000_000;

/// The length from which a line is split at the ends of its sentences, in characters. Many descriptions are one long
/// line, and a reader could not find a small change in it.
const LINE_CHARS_MAX: usize = 160;

/// The maximum length of a piece in which no sentence ends, in characters. A longer piece is split anyway.
const PIECE_CHARS_MAX: usize = 400;

/// The number of equal lines that are printed before and after a difference.
const CONTEXT_LINES: usize = 2;

/// The maximum length of a printed comparison, in characters.
const PRINTED_CHARS_MAX: usize = 16_000;

/// The part of `PRINTED_CHARS_MAX` that is reserved for the end of the comparison, where an author may hide a change.
const PRINTED_TAIL_CHARS: usize = 4_000;

/// A line, or a piece of a long line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LinePiece<'a> {
    text: &'a str,
    end: PieceEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PieceEnd {
    Line,
    WithinLine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiffLine<'a> {
    Equal(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// The part of a text or a comparison that is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrintedExtent {
    Full,
    /// Only the beginning and the end, if the text is long.
    Shortened,
}

/// Returns the differences of two texts as lines for a person, with a few equal lines around them.
pub(super) fn differences(from: Option<&str>, to: Option<&str>, extent: PrintedExtent) -> Vec<String> {
    let (from, to) = (from.map(pieces).unwrap_or_default(), to.map(pieces).unwrap_or_default());
    let lines = printed(&compared(&from, &to));
    match extent {
        PrintedExtent::Full => lines,
        PrintedExtent::Shortened => shortened(lines),
    }
}

fn pieces(text: &str) -> Vec<LinePiece<'_>> {
    let mut pieces = Vec::new();
    for line in text.split('\n') {
        let mut rest = line;
        let is_long = line.char_indices().nth(LINE_CHARS_MAX).is_some();
        while let Some(at) = is_long.then(|| break_of(rest)).flatten() {
            let (text, after) = rest.split_at(at);
            pieces.push(LinePiece { text, end: PieceEnd::WithinLine });
            rest = after;
        }
        pieces.push(LinePiece { text: rest, end: PieceEnd::Line });
    }
    pieces
}

/// Returns the byte offset at which a long line is split: after its first sentence, or after `PIECE_CHARS_MAX`
/// characters. The offset depends only on the text before it, so that equal sentences become equal pieces.
fn break_of(line: &str) -> Option<usize> {
    let mut before = ' ';
    for (count, (at, c)) in line.char_indices().enumerate() {
        if count == PIECE_CHARS_MAX || (c != ' ' && before == ' ' && ends_sentence(&line[..at])) {
            return Some(at);
        }
        before = c;
    }
    None
}

fn ends_sentence(text: &str) -> bool {
    text.trim_end_matches(' ').ends_with(['.', '!', '?', ';', ':'])
}

fn compared<'a>(from: &[LinePiece<'a>], to: &[LinePiece<'a>]) -> Vec<DiffLine<'a>> {
    let start = from.iter().zip(to).take_while(|(from, to)| from == to).count();
    let (rest_from, rest_to) = (&from[start..], &to[start..]);
    let end = rest_from.iter().rev().zip(rest_to.iter().rev()).take_while(|(from, to)| from == to).count();
    let (middle_from, middle_to) = (&rest_from[..rest_from.len() - end], &rest_to[..rest_to.len() - end]);
    let mut lines: Vec<DiffLine> = from[..start].iter().map(|piece| DiffLine::Equal(piece.text)).collect();
    if middle_from.len().saturating_mul(middle_to.len()) <= TABLE_ENTRIES_MAX {
        aligned(&mut lines, middle_from, middle_to);
    } else {
        lines.extend(middle_from.iter().map(|piece| DiffLine::Removed(piece.text)));
        lines.extend(middle_to.iter().map(|piece| DiffLine::Added(piece.text)));
    }
    lines.extend(to[to.len() - end..].iter().map(|piece| DiffLine::Equal(piece.text)));
    lines
}

/// Appends a comparison that keeps a longest common subsequence of the pieces.
fn aligned<'a>(lines: &mut Vec<DiffLine<'a>>, from: &[LinePiece<'a>], to: &[LinePiece<'a>]) {
    let width = to.len() + 1;
    // The entry at (row, column) is the number of common pieces of `from[row..]` and `to[column..]`.
    let mut table = vec![0_u32; (from.len() + 1) * width];
    for row in (0..from.len()).rev() {
        for column in (0..to.len()).rev() {
            table[row * width + column] = if from[row] == to[column] {
                table[(row + 1) * width + column + 1] + 1
            } else {
                table[(row + 1) * width + column].max(table[row * width + column + 1])
            };
        }
    }
    let (mut row, mut column) = (0, 0);
    while row < from.len() && column < to.len() {
        if from[row] == to[column] {
            lines.push(DiffLine::Equal(from[row].text));
            (row, column) = (row + 1, column + 1);
        } else if table[(row + 1) * width + column] >= table[row * width + column + 1] {
            lines.push(DiffLine::Removed(from[row].text));
            row += 1;
        } else {
            lines.push(DiffLine::Added(to[column].text));
            column += 1;
        }
    }
    lines.extend(from[row..].iter().map(|piece| DiffLine::Removed(piece.text)));
    lines.extend(to[column..].iter().map(|piece| DiffLine::Added(piece.text)));
}

/// Prints the differences and the equal lines near them. Each printed line of a text begins with spaces or a sign, so
/// that a text cannot imitate a notice.
fn printed(lines: &[DiffLine]) -> Vec<String> {
    let is_changed = |line: &DiffLine| !matches!(line, DiffLine::Equal(_));
    let near = |at: usize| {
        let end = lines.len().min(at + CONTEXT_LINES + 1);
        lines[at.saturating_sub(CONTEXT_LINES)..end].iter().any(is_changed)
    };
    let (mut printed, mut skipped) = (Vec::new(), 0);
    for (at, line) in lines.iter().enumerate() {
        if !near(at) {
            skipped += 1;
            continue;
        }
        push_skipped(&mut printed, &mut skipped);
        printed.push(match line {
            DiffLine::Equal(text) => format!("      {}", escaped(text)),
            DiffLine::Removed(text) => format!("    - {}", escaped(text)),
            DiffLine::Added(text) => format!("    + {}", escaped(text)),
        });
    }
    push_skipped(&mut printed, &mut skipped);
    printed
}

fn push_skipped(printed: &mut Vec<String>, skipped: &mut usize) {
    match std::mem::take(skipped) {
        0 => {}
        1 => printed.push("    … 1 equal line".into()),
        count => printed.push(format!("    … {count} equal lines")),
    }
}

/// Removes lines from the middle of a comparison that is too long, and says how many.
fn shortened(mut lines: Vec<String>) -> Vec<String> {
    let size = |line: &String| line.chars().count();
    if lines.iter().map(size).sum::<usize>() <= PRINTED_CHARS_MAX {
        return lines;
    }
    let within = |limit: usize| {
        let mut total = 0;
        move |line: &&String| {
            total += size(line);
            total <= limit
        }
    };
    let head = lines.iter().take_while(within(PRINTED_CHARS_MAX - PRINTED_TAIL_CHARS)).count();
    let tail = lines[head..].iter().rev().take_while(within(PRINTED_TAIL_CHARS)).count();
    let end = lines.len() - tail;
    let characters: usize = lines[head..end].iter().map(size).sum();
    let notice =
        format!("    … {} lines of this comparison with {characters} characters are not shown", end - head);
    lines.splice(head..end, [notice]);
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(from: &str, to: &str, expected: &[&str]) {
        assert_eq!(differences(Some(from), Some(to), PrintedExtent::Full), expected, "{from} -> {to}");
    }

    #[test]
    fn comparison_keeps_the_order_of_lines() {
        check("a\nb", "a\nb", &["    … 2 equal lines"]);
        check("a\nb", "b\na", &["    - a", "      b", "    + a"]);
        check("a", "a\na", &["      a", "    + a"]);
        check("a\nx\nb", "a\ny\nb", &["      a", "    - x", "    + y", "      b"]);
        check(
            "1\n2\n3\n4\n5\n6",
            "1\n2\n3\n4\n5\nsix",
            &["    … 3 equal lines", "      4", "      5", "    - 6", "    + six"],
        );
        assert_eq!(differences(None, Some("a"), PrintedExtent::Full), ["    + a"]);
        assert_eq!(differences(Some(""), None, PrintedExtent::Full), ["    - "]);
    }

    #[test]
    fn long_line_is_compared_sentence_by_sentence() {
        let sentences =
            |word: &str| format!("{}{word} it. {}", "Adds one. ".repeat(40), "Then ends. ".repeat(40));
        check(
            &sentences("Show"),
            &sentences("Hide"),
            &[
                "    … 38 equal lines",
                "      Adds one. ",
                "      Adds one. ",
                "    - Show it. ",
                "    + Hide it. ",
                "      Then ends. ",
                "      Then ends. ",
                "    … 38 equal lines",
            ],
        );
    }

    #[test]
    fn long_comparison_says_how_much_is_not_shown() {
        let text = (0..4_000).map(|at| format!("line {at}")).collect::<Vec<_>>().join("\n");
        let shown = differences(None, Some(&text), PrintedExtent::Shortened);
        assert!(shown.iter().map(|line| line.chars().count()).sum::<usize>() < PRINTED_CHARS_MAX + 100);
        assert!(shown.iter().any(|line| line.starts_with("    … ") && line.ends_with("are not shown")));
        assert_eq!(shown[0], "    + line 0");
        assert_eq!(shown[shown.len() - 1], "    + line 3999");
        let full = differences(None, Some(&text), PrintedExtent::Full);
        assert_eq!(full.len(), 4_000);
        assert_eq!(full[2_000], "    + line 2000");
    }

    #[test]
    fn texts_are_shown_as_replaced_if_their_comparison_needs_a_large_table() {
        let numbered = |name: &str| (0..3_000).map(|at| format!("{name}{at}")).collect::<Vec<_>>().join("\n");
        let shown = differences(Some(&numbered("a")), Some(&numbered("b")), PrintedExtent::Shortened);
        assert!(shown[0].starts_with("    - a0") && shown.iter().any(|line| line == "    + b2999"));
    }

    proptest! {
        #[test]
        fn comparison_contains_both_texts(from in "[ab .\n]{0,300}", to in "[ab .\n]{0,300}") {
            let (from, to) = (pieces(&from), pieces(&to));
            let lines = compared(&from, &to);
            let old = lines.iter().filter_map(|line| match line {
                DiffLine::Equal(text) | DiffLine::Removed(text) => Some(*text),
                DiffLine::Added(_) => None,
            });
            let new = lines.iter().filter_map(|line| match line {
                DiffLine::Equal(text) | DiffLine::Added(text) => Some(*text),
                DiffLine::Removed(_) => None,
            });
            prop_assert!(old.eq(from.iter().map(|piece| piece.text)));
            prop_assert!(new.eq(to.iter().map(|piece| piece.text)));
            let is_equal = lines.iter().all(|line| matches!(line, DiffLine::Equal(_)));
            prop_assert_eq!(is_equal, from == to);
        }
    }
}
