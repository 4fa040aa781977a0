//! Splits a skill into keys and text, detects the format of the keys, and finds the line of a key.

use serde_json::{Map, Value};

/// The two parts of a skill file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SkillFileParts<'t> {
    pub(super) keys: &'t str,
    pub(super) language: FrontMatterLanguage,
    pub(super) body: &'t str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrontMatterLanguage {
    Toml,
    Yaml,
}

/// The line at which the keys begin, after the fence on line 1.
pub(super) const KEYS_LINE: usize = 2;

/// Splits a file, or returns the reason why it cannot be split.
pub(super) fn split(text: &str) -> Result<SkillFileParts<'_>, &'static str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (first, after) = text.split_once('\n').unwrap_or((text, ""));
    let fence @ ("+++" | "---") = first.trim_end() else {
        return Err("a skill must begin with front matter between two lines `---` (YAML) or `+++` (TOML)");
    };
    let mut at = 0;
    for line in after.split_inclusive('\n') {
        if line.trim_end() == fence {
            let keys = &after[..at];
            return Ok(SkillFileParts {
                keys,
                language: language(fence, keys),
                body: &after[at + line.len()..],
            });
        }
        at += line.len();
    }
    Err("the front matter is not closed; end it with a line that equals its first line (`---` or `+++`)")
}

/// Detects the format of the keys. Some existing skills have TOML between `---`, so the first line decides.
fn language(fence: &str, keys: &str) -> FrontMatterLanguage {
    let first = keys.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let is_toml = first.is_some_and(|line| {
        line.starts_with('[')
            || line.find('=').is_some_and(|at| line.find(':').is_none_or(|colon| at < colon))
    });
    if fence == "+++" || is_toml { FrontMatterLanguage::Toml } else { FrontMatterLanguage::Yaml }
}

/// Parses the keys in either format. An error has its line within the keys, counted from 1.
pub(super) fn values(parts: &SkillFileParts<'_>) -> Result<Map<String, Value>, (usize, String)> {
    match parts.language {
        FrontMatterLanguage::Toml => toml::from_str(parts.keys).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = 1 + parts.keys.get(..at).unwrap_or_default().matches('\n').count();
            (line, one_line(error.message()))
        }),
        FrontMatterLanguage::Yaml => crate::yaml::from_str(parts.keys).map_err(|error| {
            let error = error.without_snippet();
            let line = error.location().and_then(|location| usize::try_from(location.line()).ok());
            (line.unwrap_or(1), one_line(&error.to_string()))
        }),
    }
}

/// Returns the first line of an error text, without the position. The caller reports the position separately, as a line
/// number of the file.
fn one_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.split(" at line ").next().unwrap_or_default().to_owned()
}

/// Returns the line number of a key, given with its parent keys. Searches the text, because neither parser returns
/// positions; this is precise enough for an error message.
pub(super) fn line_of(keys: &str, path: &[&str]) -> usize {
    let lines: Vec<&str> = keys.lines().collect();
    let mut at = 0;
    for key in path {
        let named = |line: &&str| contains_key_word(line.split([':', '=']).next().unwrap_or_default(), key);
        let anywhere = |line: &&str| contains_key_word(line, key);
        let rest = lines.get(at..).unwrap_or_default();
        let found = rest.iter().position(named).or_else(|| rest.iter().position(anywhere));
        at += found.unwrap_or(0);
    }
    KEYS_LINE + at
}

fn contains_key_word(line: &str, key: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    line.match_indices(key).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + key.len()..]);
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_is_split_and_detected_as_yaml_or_toml() {
        let check = |text: &str, expected: Option<(&str, FrontMatterLanguage, &str)>| {
            let found = split(text).ok().map(|parts| (parts.keys, parts.language, parts.body));
            assert_eq!(found, expected, "{text:?}");
        };
        check("---\nname: a\n---\nhi", Some(("name: a\n", FrontMatterLanguage::Yaml, "hi")));
        check("---\nname = \"a: b\"\n---\n", Some(("name = \"a: b\"\n", FrontMatterLanguage::Toml, "")));
        check("---\n# c\n[mcp.x]\n---\n", Some(("# c\n[mcp.x]\n", FrontMatterLanguage::Toml, "")));
        check("---\nurl: http://h?a=b\n---\n", Some(("url: http://h?a=b\n", FrontMatterLanguage::Yaml, "")));
        check("+++\n+++\n", Some(("", FrontMatterLanguage::Toml, "")));
        check("\u{feff}---\r\na: 1\r\n---\r\nhi", Some(("a: 1\r\n", FrontMatterLanguage::Yaml, "hi")));
        for bad in ["", "name: a", "---\nname: a", "---\nname: a\n+++\n", " ---\n---\n"] {
            check(bad, None);
        }
    }

    #[test]
    fn line_of_key_is_found_by_path() {
        let keys = "name = \"mcp\"\ndescription = \"command\"\n\n[mcp.x]\nargs = []\ncommand = \"a\"\n";
        let check = |path: &[&str], expected| assert_eq!(line_of(keys, path), expected, "{path:?}");
        check(&["name"], 2);
        check(&["mcp", "x", "command"], 7);
        check(&["mcp", "x", "args"], 6);
        check(&["gone"], 2);
    }
}
