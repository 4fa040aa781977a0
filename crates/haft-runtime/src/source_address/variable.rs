//! An environment variable in the address that identifies an MCP server in a lock file: its name, and its value as the
//! configuration contains it. A value that may be a secret becomes a digest.
//!
//! A placeholder such as `***` would not be enough: a variable such as `UV_INDEX` decides which code runs, so a changed
//! value must change the address even if the value looks like a secret.

use haft_core::digest::Digest;
use haft_core::redact::names_a_secret;

use super::{HIDDEN, plain_url};

/// The number of hexadecimal digits of a digest in an address.
const DIGEST_DIGITS: usize = 16;

/// The maximum length of a value in an address, in bytes. A longer value becomes a digest.
const VALUE_BYTES_MAX: usize = 200;

/// The length from which letters mixed with digits may be a secret, in characters.
const MIXED_CHARS_MIN: usize = 6;

/// The length from which letters or digits without a separator may be a secret, in characters.
const UNBROKEN_CHARS_MIN: usize = 20;

/// Parts of names that suggest a secret, in addition to the names that haft redacts everywhere. They would redact too
/// much in logs; here, a needless digest only makes an address harder to read.
const FURTHER_SECRET_NAMES: [&str; 4] = ["dsn", "pass", "private", "pwd"];

/// Returns `NAME=VALUE` for the address.
pub(super) fn assignment(name: &str, value: &str) -> String {
    format!("{name}={}", shown(name, value))
}

/// Returns `NAME=VALUE` for a person. Hides a value, or the parts of a URL, that may be secret.
pub fn public_assignment(name: &str, value: &str) -> String {
    match visibility(name, value) {
        ValueVisibility::Whole => format!("{name}={value}"),
        ValueVisibility::Url(public) => format!("{name}={public} (partly hidden)"),
        ValueVisibility::Hidden => format!("{name}={HIDDEN}"),
    }
}

/// The part of a value that cannot be a secret.
enum ValueVisibility {
    Whole,
    /// The URL without its user information, query and fragment.
    Url(String),
    Hidden,
}

fn shown(name: &str, value: &str) -> String {
    match visibility(name, value) {
        ValueVisibility::Whole => value.to_owned(),
        // Print the URL without its secrets before the digest, because a digest alone does not show the host.
        ValueVisibility::Url(public) => format!("{public} {}", digest(name, value)),
        ValueVisibility::Hidden => digest(name, value),
    }
}

fn visibility(name: &str, value: &str) -> ValueVisibility {
    let literal = without_references(value);
    let public = plain_url(value);
    let is_public = |text: &str| text.len() <= VALUE_BYTES_MAX && !may_contain_secret(text);
    if literal.is_empty() {
        ValueVisibility::Whole
    } else if suggests_secret(name) || !is_public(&without_references(&public)) {
        ValueVisibility::Hidden
    } else if literal == without_references(&public) || is_empty_userinfo(&literal) {
        ValueVisibility::Whole
    } else {
        ValueVisibility::Url(public)
    }
}

fn digest(name: &str, value: &str) -> String {
    let digest = Digest::of_parts([name.as_bytes(), value.as_bytes()]).to_string();
    format!("(digest {})", &digest[..DIGEST_DIGITS])
}

/// Returns the text without references such as `${NAME}`. Keeps the default of `${NAME:-default}`.
fn without_references(value: &str) -> String {
    let mut literal = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, behind) = after.split_once('}').unwrap_or((after, ""));
        literal.push_str(before);
        literal.push_str(inside.split_once(":-").map_or("", |(_, default)| default));
        rest = behind;
    }
    literal + rest
}

/// Returns true for a URL whose user and password are both references, such as `https://${USER}:${PASSWORD}@host`.
/// Without the references, only the separators `:` and `@` are left, which are no secret.
fn is_empty_userinfo(literal: &str) -> bool {
    let without = literal.replacen("://:@", "://", 1).replacen("://@", "://", 1);
    plain_url(&without) == without
}

fn suggests_secret(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    names_a_secret(text) || FURTHER_SECRET_NAMES.iter().any(|part| lower.contains(part))
}

/// Returns true for a text that names a secret, that contains several URLs of which one may have a user, or that contains
/// a word like a generated password.
fn may_contain_secret(text: &str) -> bool {
    let may_have_user = text.contains("://") && text.contains('@');
    suggests_secret(text) || may_have_user || text.split(|c: char| !c.is_alphanumeric()).any(looks_generated)
}

fn looks_generated(word: &str) -> bool {
    let length = word.chars().count();
    let is_mixed = word.chars().any(char::is_alphabetic) && word.chars().any(char::is_numeric);
    length >= UNBROKEN_CHARS_MIN || is_mixed && length >= MIXED_CHARS_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_shows_its_written_value_unless_it_may_be_a_secret() {
        let written = |name: &str, value: &str| {
            assert_eq!(assignment(name, value), format!("{name}={value}"));
        };
        written("LOG_LEVEL", "debug");
        written("EMPTY", "");
        written("PYTHONPATH", "/opt/tools/lib:./src");
        written("UV_INDEX_URL", "https://pypi.example.com/simple");
        written("API_TOKEN", "${API_TOKEN}");
        written("API_TOKEN", "${env:MY_TOKEN}");
        written("INDEX", "https://${USER}:${PASSWORD}@pypi.example.com/simple");
        written("INDEX", "${INDEX:-https://pypi.example.com/simple}");
        written("VERSION", "3.12");

        let hidden = |name: &str, value: &str, expected: &str| {
            let shown = assignment(name, value);
            let (before, digest) = shown.split_once("(digest ").unwrap_or_else(|| panic!("{shown}"));
            assert_eq!(before.trim_end(), format!("{name}={expected}"), "{value}");
            assert_eq!(digest.len(), DIGEST_DIGITS + 1, "{shown}");
        };
        hidden("API_TOKEN", "plain", "");
        hidden("API_TOKEN", "Bearer ${TOKEN}", "");
        hidden("API_TOKEN", "${TOKEN:-plain}", "");
        hidden("MYSQL_PWD", "hunter", "");
        hidden("A", "s3cret", "");
        hidden("A", "sk-proj-abcDEF123456", "");
        hidden("A", "ghpabcdefghijklmnopqrstuv", "");
        hidden("A", "user=me;password=x", "");
        hidden("A", &"a ".repeat(VALUE_BYTES_MAX), "");
        hidden("INDEXES", "https://a.example/simple https://me:pw@b.example/simple", "");
        hidden("URL", "postgres://me:s3cret@db.example.com/data", "postgres://db.example.com/data");
        hidden("URL", "https://example.com/mcp?q=1", "https://example.com/mcp");
        hidden("URL", "https://hooks.example.com/T00/B1A2C3D4E5", "");
    }

    #[test]
    fn digest_changes_with_the_name_and_the_value() {
        let shown = [("A", "s3cret"), ("A", "s3creT"), ("B", "s3cret")];
        let shown = shown.map(|(name, value)| digest(name, value));
        assert!(shown[0] != shown[1] && shown[0] != shown[2], "{shown:?}");
        assert_eq!(shown[0], digest("A", "s3cret"));
    }
}
