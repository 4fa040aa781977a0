//! Reads `.env` files: lines of `NAME=value`, with comments and quotes.

use std::collections::BTreeMap;

use crate::expand::is_name;

/// Returns the variables of a file, or the number of the first line that defines no variable. If a name occurs twice,
/// the last value is used.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, usize> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate().map(|(at, line)| (at, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(at, line)| variable(line).ok_or(at + 1)).collect()
}

fn variable(line: &str) -> Option<(String, String)> {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    is_name(name).then(|| (name.to_owned(), unquoted(value.trim())))
}

/// Returns the value without its quotes. A value without quotes ends at a comment.
fn unquoted(value: &str) -> String {
    for quote in ['"', '\''] {
        if let Some((inside, _)) = value.strip_prefix(quote).and_then(|rest| rest.rsplit_once(quote)) {
            return if quote == '"' {
                inside.replace("\\n", "\n").replace("\\\"", "\"")
            } else {
                inside.into()
            };
        }
    }
    value.split_once(" #").map_or(value, |(before, _)| before.trim_end()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_file_lines_define_variables_with_or_without_quotes() {
        let check = |line: &str, expected: &str| assert_eq!(parse(line).unwrap()["A"], expected, "{line}");
        check("A=1", "1");
        check("# first\n\n export A = two words # last ", "two words");
        check("A=\"x # y\\n\" # z", "x # y\n");
        check("A='$B\\n'", "$B\\n");
        check("A=#fragment", "#fragment");
        check("A=", "");
        check("A=1\nA=2", "2");
        assert_eq!(parse("A=1\nnonsense"), Err(2));
        assert_eq!(parse("1A=1"), Err(1));
    }
}
