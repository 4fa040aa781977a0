//! Checks that every test named in the security model exists.

use std::fs;
use std::path::{Path, PathBuf};

/// The page that names a test for each promise.
const PAGE: &str = "docs/security-model.md";

/// The minimum number of tests that the page names. If fewer are found, this check no longer parses the page correctly.
const NAMES_MIN: usize = 40;

/// Reports each test that the page names and that does not exist, and each promise without a test.
pub(crate) fn check(files: &[PathBuf], slips: &mut Vec<String>) {
    let Ok(page) = fs::read_to_string(PAGE) else { return slips.push(format!("xtask cannot read {PAGE}")) };
    let promises = promises(&page);
    for promise in promises.iter().filter(|promise| promise.tests.is_empty()) {
        slips.push(format!("{PAGE}: this promise names no test: {}", promise.text));
    }
    let names: Vec<&str> = promises.into_iter().flat_map(|promise| promise.tests).collect();
    if names.len() < NAMES_MIN {
        slips.push(format!("{PAGE}: found {} test names, expected at least {NAMES_MIN}", names.len()));
    }
    let read = |file: &Path| fs::read_to_string(file).unwrap_or_default();
    let missing = names.iter().filter(|name| !files.iter().any(|file| is_in(name, file, read)));
    slips.extend(missing.map(|name| format!("{PAGE}: the test `{name}` does not exist")));
}

/// A promise of the page, which is an item of a list.
struct NamedPromise<'a> {
    /// The first line of the item.
    text: &'a str,
    tests: Vec<&'a str>,
}

/// Reads the promises: items of the lists in the section about attackers, with one line for each test.
fn promises(page: &str) -> Vec<NamedPromise<'_>> {
    let section = page.lines().skip_while(|line| *line != "## Attackers and protections").skip(1);
    let mut promises: Vec<NamedPromise<'_>> = Vec::new();
    for line in section.take_while(|line| !line.starts_with("## ")) {
        if let Some(text) = line.strip_prefix("- ") {
            promises.push(NamedPromise { text, tests: Vec::new() });
        } else if let (Some(promise), Some(name)) = (promises.last_mut(), line.strip_prefix("  - `")) {
            promise.tests.push(name.trim_end_matches('`'));
        }
    }
    promises
}

/// Returns true if the file is the module of the test and contains the test. A module `tests` may be part of its
/// parent's file.
fn is_in(name: &str, file: &Path, read: impl Fn(&Path) -> String) -> bool {
    let Some((module, test)) = name.rsplit_once("::") else { return false };
    let path = module.replace("::", "/");
    let inline = path.strip_suffix("/tests").unwrap_or(&path);
    let has_path = |path: &str| file.to_string_lossy().ends_with(&format!("/{path}.rs"));
    (has_path(&path) || has_path(inline)) && has_test(&read(file), test)
}

/// Returns true if the text has a function with this name and a test attribute.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let is_function = |line: &str| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ")
            .and_then(|line| line.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('('))
    };
    let has_attribute = |at: usize| {
        let above =
            lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        above.into_iter().any(|line| line.contains("test"))
    };
    (0..lines.len()).any(|at| is_function(lines[at]) && has_attribute(at)) || is_in_table(&lines, name)
}

/// Returns true if a test table, `checks!(function { … });`, has a row with this name.
fn is_in_table(lines: &[&str], name: &str) -> bool {
    let is_row = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':'));
    let tables = lines.iter().enumerate().filter(|(_, line)| line.starts_with("checks!("));
    tables.flat_map(|(at, _)| lines[at..].iter().take_while(|line| **line != "});")).any(is_row)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "- Before.\n## Attackers and protections\n### One\n- It `holds`,\n  always.\n  - `a::b::one`\n  - \
                        `a::tests::two`\n- It does not.\n## Not promised\n- More.\n";

    #[test]
    fn tests_are_read_from_the_items_below_their_promise() {
        let found = promises(PAGE);
        let pairs: Vec<(&str, Vec<&str>)> =
            found.into_iter().map(|found| (found.text, found.tests)).collect();
        assert_eq!(pairs, [("It `holds`,", vec!["a::b::one", "a::tests::two"]), ("It does not.", vec![])]);
    }

    #[test]
    fn test_is_found_only_in_the_file_that_its_path_names() {
        let text = "    #[test]\n    /// Why.\n    fn one() {\n#[tokio::test]\nasync fn two() {\nfn helper() {\nchecks!(helper {\n    \
             three: 3;\n});\nlabel: 4;";
        let check = |name: &str, file: &str, expected: bool| {
            assert_eq!(is_in(name, Path::new(file), |_| text.to_owned()), expected, "{name} {file}");
        };
        check("a::b::one", "crates/x/src/a/b.rs", true);
        check("a::tests::two", "crates/x/src/a.rs", true);
        check("a::tests::two", "crates/x/src/a/tests.rs", true);
        check("a::b::one", "crates/x/src/other/b.rs", false);
        check("a::b::three", "crates/x/src/a/b.rs", true);
        check("a::b::label", "crates/x/src/a/b.rs", false);
        check("a::b::four", "crates/x/src/a/b.rs", false);
        check("a::b::helper", "crates/x/src/a/b.rs", false);
        check("a::b::on", "crates/x/src/a/b.rs", false);
    }
}
