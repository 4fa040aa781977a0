//! Reports the lengths of the functions in the product.
//!
//! This is a report, not a rule: a flat `match` may be long, but three nested loops may not. The length is determined
//! by indentation, which rustfmt keeps regular.

use std::fs;
use std::path::Path;

use regex::Regex;

use crate::tidy::files;

/// The maximum number of lines of a function that needs no second look: about one screen.
const SCREEN_LINES: usize = 70;
/// The maximum number of functions that the report names.
const NAMED_MAX: usize = 5;

const FUNCTION: &str = r#"^(\s*)(?:pub(?:\([^)]*\))?\s+)?(?:const\s+)?(?:async\s+)?(?:unsafe\s+)?(?:extern\s+"[^"]*"\s+)?fn\s+(\w+)"#;

struct FunctionLength {
    lines: usize,
    name: String,
    place: String,
}

/// Prints the median, the ninetieth percentile, and the longest functions.
pub(crate) fn report() -> Result<(), String> {
    println!("==> function lengths");
    let pattern = Regex::new(FUNCTION).map_err(|error| error.to_string())?;
    let mut found: Vec<FunctionLength> = files(Path::new("."))
        .iter()
        .filter(|file| is_product(file))
        .flat_map(|file| {
            let text = fs::read_to_string(file).unwrap_or_default();
            functions(&pattern, &text)
                .into_iter()
                .map(|(name, line, lines)| FunctionLength {
                    lines,
                    name,
                    place: format!("{}:{line}", file.display()),
                })
                .collect::<Vec<_>>()
        })
        .collect();
    found.sort_by_key(|function| function.lines);
    let at = |share: usize| found.get(found.len() * share / 100).map_or(0, |function| function.lines);
    let long = found.iter().filter(|function| function.lines > SCREEN_LINES).count();
    println!(
        "{} functions: median {} lines, 90 % at most {}, {long} over {SCREEN_LINES}; the longest:",
        found.len(),
        at(50),
        at(90)
    );
    for function in found.iter().rev().take(NAMED_MAX) {
        println!("  {:3} lines  {}  {}", function.lines, function.name, function.place);
    }
    Ok(())
}

fn is_product(file: &Path) -> bool {
    let is_test = |part: &str| ["tests", "tests.rs", "benches", "examples"].contains(&part);
    file.extension().is_some_and(|extension| extension == "rs")
        && !file.iter().filter_map(|part| part.to_str()).any(is_test)
}

/// Returns the name, the first line and the number of lines of each function with a body. Tests at the end of a file
/// are left out.
fn functions(pattern: &Regex, text: &str) -> Vec<(String, usize, usize)> {
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let lines: Vec<&str> = product.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(groups) = pattern.captures(line) else { continue };
        if let Some(length) = length(&lines[at..], &groups[1]) {
            found.push((groups[2].to_owned(), at + 1, length));
        }
    }
    found
}

/// Returns the number of lines to the closing brace, or `None` for a signature without a body.
fn length(lines: &[&str], indent: &str) -> Option<usize> {
    let body = lines.iter().position(|line| line.ends_with(['{', '}', ';']))?;
    if lines[body].ends_with('{') {
        let close = format!("{indent}}}");
        return lines.iter().position(|line| line.starts_with(&close)).map(|end| end + 1);
    }
    lines[body].ends_with('}').then_some(body + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_from_signature_to_closing_brace() {
        let text = "fn one() { 1 }\n\nimpl A {\n    pub(crate) async fn two(\n        a: u8,\n    ) -> u8 {\n        let b = a;\n        b\n    }\n}\n\
                    trait B {\n    fn signature(&self);\n}\n#[cfg(test)]\nmod tests {\n    fn test() {}\n}\n";
        let found = functions(&Regex::new(FUNCTION).unwrap(), text);
        assert_eq!(found, [("one".to_owned(), 1, 1), ("two".to_owned(), 4, 6)]);
    }
}
