//! Allocates the names of imported tools: legal, unique, and short enough to leave space for the prefix of exposed
//! names.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use haft_core::name::{NAME_CHARS_MAX, ToolName};
use sha2::{Digest, Sha256};

use haft_core::settings::method::Method;

/// The length of the longest prefix. Exposed names begin with `rest__` or with `mcp__rest__`.
const EXPOSED_PREFIX_CHARS: usize = "mcp__rest__".len();

/// The maximum length of a name without that prefix.
const CHARS_MAX: usize = NAME_CHARS_MAX - EXPOSED_PREFIX_CHARS;

/// Allocates unique tool names.
#[derive(Debug, Default)]
pub(super) struct ToolNameAllocator {
    taken: HashSet<String>,
    /// The number of tools that asked for each name. Without this number, the search for a free suffix would start at 2
    /// each time, and many equal names would take quadratic time.
    requested: HashMap<String, usize>,
}

/// The maximum number of characters of an operation id that are used.
const ID_CHARS_MAX: usize = 1_000;

impl ToolNameAllocator {
    /// Returns `spec_operationId`, or method and path if there is no id. A repeated name gets a number, starting with
    /// `_2`.
    pub(super) fn give(&mut self, spec: &str, id: Option<&str>, method: Method, path: &str) -> ToolName {
        let id = id.map(|id| id.chars().take(ID_CHARS_MAX).collect::<String>());
        let id = id.filter(|id| !id.trim().is_empty());
        let own = id.map_or_else(|| of_path(method, path), |id| tidy(&id));
        let requested = fitted(&format!("{spec}_{own}"), CHARS_MAX);
        let times = self.requested.entry(requested.to_ascii_lowercase()).or_insert(0);
        *times += 1;
        let numbered = ((*times).max(2)..).map(|number: usize| {
            let suffix = format!("_{number}");
            format!("{}{suffix}", fitted(&requested, CHARS_MAX - suffix.len()))
        });
        let mut candidates = std::iter::once(requested.clone()).chain(numbered);
        // Compare names in lower case, because not all model providers distinguish names by case.
        let free = candidates.find(|name| self.taken.insert(name.to_ascii_lowercase())).unwrap_or(requested);
        ToolName::sanitize(&free)
    }
}

fn of_path(method: Method, path: &str) -> String {
    tidy(&format!("{}_{path}", method.name().to_ascii_lowercase()))
}

/// Replaces each sequence of illegal characters by one `_`, and drops the `_` at both ends.
fn tidy(text: &str) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let words: Vec<&str> = text.split(|c| !legal(c)).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "operation".into() } else { words.join("_") }
}

/// Shortens a name that is too long, and appends a hash of the whole name to keep it unique.
fn fitted(name: &str, chars_max: usize) -> String {
    if name.len() <= chars_max {
        return name.to_owned();
    }
    let digest = Sha256::digest(name.as_bytes());
    let hash = digest.iter().take(4).fold(String::new(), |mut hash, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hash, "{byte:02x}");
        hash
    });
    // The name is ASCII now, so a byte is a character.
    let kept: String = name.chars().take(chars_max - hash.len() - 1).collect();
    format!("{kept}_{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_name_is_built_from_the_operation_id_or_the_path() {
        let check = |id: Option<&str>, path: &str, expected: &str| {
            let name = ToolNameAllocator::default().give("pets", id, Method::Get, path);
            assert_eq!(name.as_str(), expected);
        };
        check(Some("getPetById"), "/x", "pets_getPetById");
        check(Some("repos/get-content.v2"), "/x", "pets_repos_get-content_v2");
        check(None, "/pets/{petId}/owner", "pets_get_pets_petId_owner");
        check(Some("  "), "/", "pets_get");
        check(Some("größe"), "/x", "pets_gr_e");
        check(Some("日本"), "/x", "pets_operation");
    }

    #[test]
    fn tool_names_are_unique_and_within_the_length_limit() {
        let mut names = ToolNameAllocator::default();
        let mut give = |id: &str| names.give("pets", Some(id), Method::Get, "/").to_string();
        assert_eq!(give("list"), "pets_list");
        assert_eq!(give("List"), "pets_List_2");
        assert_eq!(give("list!"), "pets_list_3");
        let (left, right) = (give(&"a".repeat(80)), give(&format!("{}b", "a".repeat(80))));
        assert_ne!(left, right);
        assert!(left.len() <= CHARS_MAX && right.len() <= CHARS_MAX, "{left} {right}");
        let again = give(&"a".repeat(80));
        assert!(again.ends_with("_2") && again.len() <= CHARS_MAX, "{again}");
    }
}
