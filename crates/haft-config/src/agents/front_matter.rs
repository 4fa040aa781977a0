//! Splits an agent file into its YAML and its text.

use super::error::AgentError;

/// The two parts of a file, with the line number at which each begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AgentFileParts<'t> {
    /// The YAML front matter; empty if the file has none.
    pub(super) yaml: &'t str,
    pub(super) yaml_line: usize,
    pub(super) body: &'t str,
    pub(super) body_line: usize,
}

/// Splits a file. Skips a first line such as `#!/usr/bin/env haft`. Without `---`, the whole file is text.
pub(super) fn split<'t>(file: &str, text: &'t str) -> Result<AgentFileParts<'t>, AgentError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (text, skipped) = match text.strip_prefix("#!").and_then(|text| text.split_once('\n')) {
        Some((_, rest)) => (rest, 1),
        None => (text, 0),
    };
    let Some(after) = fence(text) else {
        return Ok(AgentFileParts { yaml: "", yaml_line: 1, body: text, body_line: 1 + skipped });
    };
    let (mut at, mut lines) = (0, 0);
    for line in after.split_inclusive('\n') {
        lines += 1;
        if line.trim_end() == "---" {
            let body = &after[at + line.len()..];
            return Ok(AgentFileParts {
                yaml: &after[..at],
                yaml_line: 2 + skipped,
                body,
                body_line: 2 + skipped + lines,
            });
        }
        at += line.len();
    }
    let error = AgentError::new(file, 1 + skipped, "the front matter of the agent file is not closed");
    Err(error.with_hint(Some("end the front matter with a line `---`".into())))
}

/// Returns the text after a first line `---`; `None` if the text does not begin with one.
fn fence(text: &str) -> Option<&str> {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    (first.trim_end() == "---").then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_file_is_split_into_front_matter_and_body() {
        let check = |text: &str, expected: Result<(&str, usize, &str, usize), usize>| {
            let found = split("a.md", text);
            let found = found.map(|p| (p.yaml, p.yaml_line, p.body, p.body_line)).map_err(|error| error.line);
            assert_eq!(found, expected, "{text:?}");
        };
        check("---\na: 1\n---\nhi\n", Ok(("a: 1\n", 2, "hi\n", 4)));
        check("#!/usr/bin/env haft\n---\na: 1\n---\nhi", Ok(("a: 1\n", 3, "hi", 5)));
        check("\u{feff}---\r\na: 1\r\n---\r\nhi", Ok(("a: 1\r\n", 2, "hi", 4)));
        check("---\n---\n", Ok(("", 2, "", 3)));
        check("just text\n---\nmore", Ok(("", 1, "just text\n---\nmore", 1)));
        check("", Ok(("", 1, "", 1)));
        check("---\na: 1\n", Err(1));
        check("---", Err(1));
    }
}
