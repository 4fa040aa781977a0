//! Checks the length of lines in Markdown files, so that a reader can compare two versions of a page in a terminal.

use std::path::Path;

/// The maximum length of a line of text, in characters.
const LINE_CHARS_MAX: usize = 110;

/// The maximum length of a row of a table, in characters. A row cannot be wrapped. A longer explanation belongs below
/// the table.
const ROW_CHARS_MAX: usize = 300;

/// Reports the lines that are too long. Skips code blocks, because a command cannot be wrapped, and the files of other
/// programs that tests read.
pub(crate) fn check(file: &Path, text: &str, slips: &mut Vec<String>) {
    let is_markdown = file.extension().is_some_and(|extension| extension == "md");
    if !is_markdown || file.components().any(|part| part.as_os_str() == "fixtures") {
        return;
    }
    for (number, length) in long_lines(text) {
        slips.push(format!(
            "{}:{number}: the line has {length} characters; the maximum is {LINE_CHARS_MAX}, and {ROW_CHARS_MAX} in a \
             table",
            file.display()
        ));
    }
}

/// Returns the number and the length of each line that is too long.
fn long_lines(text: &str) -> Vec<(usize, usize)> {
    let mut in_code = false;
    let mut long = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let most = if line.starts_with('|') { ROW_CHARS_MAX } else { LINE_CHARS_MAX };
        let length = line.chars().count();
        if !in_code && length > most {
            long.push((at + 1, length));
        }
    }
    long
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_of_text_and_tables_are_reported() {
        let line = |length: usize| "x".repeat(length);
        let check =
            |text: String, expected: &[(usize, usize)]| assert_eq!(long_lines(&text), expected, "{text}");
        check(format!("{}\n{}", line(110), line(111)), &[(2, 111)]);
        check("…".repeat(110), &[]);
        check(format!("|{}\n|{}", line(299), line(300)), &[(2, 301)]);
        check(format!("```console\n{}\n```\n{}", line(500), line(120)), &[(4, 120)]);
    }
}
