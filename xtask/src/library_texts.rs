//! Finds advice about the command line in the string literals of the libraries.
//!
//! A program that embeds haft shows the errors of the libraries to its own users. Therefore an error message of a
//! library must not mention a `haft` command or contain a `hint:`; `haft-cli/src/hints.rs` adds these.

use std::path::Path;

/// The crates whose string literals are checked.
const LIBRARIES: [&str; 8] = [
    "haft-config",
    "haft-core",
    "haft-engine",
    "haft-models",
    "haft-runtime",
    "haft-sandbox",
    "haft-store",
    "haft-tools",
];

/// The command-line words that no string literal of these crates may contain.
const ADVICE: [&str; 2] = ["hint:", "`haft "];

/// The files that may contain these words, each with the reason.
const ALLOWED: [(&str, &str); 1] =
    [("crates/haft-config/src/error.rs", "`hint:` precedes the nearest key or value of a file")];

/// Reports each string literal in a library that contains advice about the command line.
pub(crate) fn check(file: &Path, text: &str, slips: &mut Vec<String>) {
    let file = file.strip_prefix(".").unwrap_or(file);
    if !is_of_a_library(file) || ALLOWED.iter().any(|(allowed, _)| file == Path::new(allowed)) {
        return;
    }
    for (line, literal) in literals(without_tests(text)) {
        if let Some(advice) = ADVICE.iter().find(|advice| literal.contains(**advice)) {
            slips.push(format!(
                "{}:{line}: a string of a library contains {advice:?}; move the hint to haft-cli/src/hints.rs",
                file.display()
            ));
        }
    }
}

/// Returns true for a source file of a library, unless it contains only tests.
fn is_of_a_library(file: &Path) -> bool {
    let is_test = |part: &str| part == "tests" || part == "tests.rs";
    let mut parts = file.iter().filter_map(|part| part.to_str());
    file.extension().is_some_and(|extension| extension == "rs")
        && parts.next() == Some("crates")
        && parts.next().is_some_and(|name| LIBRARIES.contains(&name))
        && parts.next() == Some("src")
        && !parts.any(is_test)
}

/// Returns the text before the tests, which are the last part of a file.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

/// Returns the string literals in a source text, each with the line in which it starts. Skips comments, and leaves
/// escapes as they are written.
fn literals(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = text[at..].find(['"', '/', '\'', 'r']).map(|next| at + next) {
        let rest = &text[next..];
        let end = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(end) = raw_end(rest) {
            found.push((line_of(text, next), &rest[..end]));
            end
        } else if rest.starts_with('"') {
            let end = quoted_end(rest);
            found.push((line_of(text, next), &rest[..end]));
            end
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
            // This is a character literal, not the start of a string.
            rest[1..].find('\'').map_or(1, |end| end + 2)
        } else {
            1
        };
        at = next + end;
    }
    found
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Returns the end of a raw string such as `r#"…"#`.
fn raw_end(text: &str) -> Option<usize> {
    let hashes = text.strip_prefix('r')?.bytes().take_while(|byte| *byte == b'#').count();
    let inside = text[1 + hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = inside.find(&close).unwrap_or(inside.len().saturating_sub(close.len()));
    Some((1 + hashes + 1 + end + close.len()).min(text.len()))
}

/// Returns the end of a string that starts with a quotation mark.
fn quoted_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: &str = "./crates/haft-store/src/a.rs";

    fn slips(file: &str, text: &str) -> Vec<String> {
        let mut slips = Vec::new();
        check(Path::new(file), text, &mut slips);
        slips
    }

    #[test]
    fn cli_hint_in_a_library_string_is_reported_with_its_line() {
        let text = "let a = \"x\";\nlet b = \"no \\\" file\\nhint: `haft run`\";\n";
        let found = slips(LIBRARY, text);
        assert!(found.len() == 1 && found[0].starts_with("crates/haft-store/src/a.rs:2: "), "{found:?}");
        assert_eq!(slips(LIBRARY, "let c = r#\"a \" `haft x`\"#;").len(), 1);
        assert_eq!(slips(LIBRARY, "let c = '\"'; let d = \"`haft x`\";").len(), 1);
    }

    #[test]
    fn cli_hints_in_comments_tests_and_other_crates_are_allowed() {
        let check =
            |file: &str, text: &str| assert_eq!(slips(file, text), Vec::<String>::new(), "{file} {text}");
        check(
            LIBRARY,
            "let a = A { hint: None }; // \"hint: x\"\n/* \"`haft x`\" */ let c = '\"'; // `haft x`\"",
        );
        check(LIBRARY, "fn a() {}\n#[cfg(test)]\nmod tests {\n    const A: &str = \"hint: x\";\n}\n");
        check("./crates/haft-store/src/a/tests.rs", "const A: &str = \"hint: x\";");
        check("./crates/haft-cli/src/a.rs", "const A: &str = \"hint: x\";");
        check("./crates/haft-config/src/error.rs", "const A: &str = \"hint: x\";");
    }
}
