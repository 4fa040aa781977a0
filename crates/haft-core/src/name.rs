//! Names that are validated on construction and trusted afterwards.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// The maximum length of a function name that model providers accept, in characters.
pub const NAME_CHARS_MAX: usize = 64;

/// The number of bytes in the hash suffix. It is small, so that long names stay readable.
const HASH_BYTES: usize = 4;

/// The maximum number of characters of a rejected name that an error shows.
const EXCERPT_CHARS_MAX: usize = 80;

/// Defines a type for names that consist of one set of legal characters.
macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $legal:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Creates a name after checking the text. The error lists the allowed characters.
            pub fn new(text: &str) -> Result<Self, NameError> {
                check($what, text, &$legal).map(|()| Self(text.into()))
            }

            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

name_type! {
    /// The name of a tool, as a provider or a model writes it: `[A-Za-z0-9_-]`, 1 to 64 characters.
    ToolName, "tool name", STRICT
}
name_type! {
    /// The namespace of a tool: the name of a server or a spec, or the namespace of built-in tools. It becomes a part
    /// of exposed names.
    Namespace, "namespace", STRICT
}
name_type! {
    /// The name of a set of tools that the operator allows or denies together.
    GroupName, "group name", DOTTED
}
name_type! {
    /// The name of a queue in which calls wait for a slot.
    QueueName, "queue name", DOTTED
}

impl ToolName {
    /// Returns the most similar valid name. A hash of the whole text keeps long names distinct after truncation.
    pub fn sanitize(text: &str) -> Self {
        Self(sanitize(text).into())
    }
}

impl Namespace {
    /// Returns the most similar valid namespace, in the same case.
    pub fn sanitize(text: &str) -> Self {
        Self(sanitize(text).into())
    }
}

/// The error for a text that is not a valid name. It states the rule for this kind of name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {what} must be 1 to {NAME_CHARS_MAX} characters of {rule}; got `{found}`")]
pub struct NameError {
    what: &'static str,
    rule: &'static str,
    found: String,
}

struct NameAlphabet {
    rule: &'static str,
    legal: fn(char) -> bool,
}

const STRICT: NameAlphabet = NameAlphabet { rule: "A-Z a-z 0-9 _ -", legal: is_strict };
const DOTTED: NameAlphabet = NameAlphabet { rule: "A-Z a-z 0-9 _ - .", legal: |c| is_strict(c) || c == '.' };

fn is_strict(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn check(what: &'static str, text: &str, alphabet: &NameAlphabet) -> Result<(), NameError> {
    // All legal characters are ASCII, so the byte count equals the character count.
    let fits = (1..=NAME_CHARS_MAX).contains(&text.len()) && text.chars().all(alphabet.legal);
    if fits {
        return Ok(());
    }
    let found = text.chars().take(EXCERPT_CHARS_MAX).collect();
    Err(NameError { what, rule: alphabet.rule, found })
}

fn sanitize(text: &str) -> String {
    let mut name: String =
        text.chars().take(NAME_CHARS_MAX + 1).map(|c| if is_strict(c) { c } else { '_' }).collect();
    if name.is_empty() {
        return "_".into();
    }
    if name.len() > NAME_CHARS_MAX {
        let suffix = hash_suffix(text);
        name.truncate(NAME_CHARS_MAX - suffix.len());
        name.push_str(&suffix);
    }
    name
}

fn hash_suffix(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(HASH_BYTES).fold(String::from("_"), |mut suffix, byte| {
        // Writing to a string cannot fail.
        let _ = write!(suffix, "{byte:02x}");
        suffix
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tool_names_allow_only_64_ascii_word_characters() {
        let check = |text: &str, legal: bool| assert_eq!(ToolName::new(text).is_ok(), legal, "{text:?}");
        check("bash", true);
        check("A-z_09", true);
        check(&"x".repeat(64), true);
        check(&"x".repeat(65), false);
        check("", false);
        check("a b", false);
        check("a.b", false);
        check("é", false);
    }

    #[test]
    fn group_and_queue_names_may_contain_dots() {
        assert_eq!(QueueName::new("gpu.small").unwrap().as_str(), "gpu.small");
        assert!(GroupName::new("files.read").is_ok());
        assert!(Namespace::new("files.read").is_err());
    }

    #[test]
    fn name_error_states_the_rule_and_the_rejected_name() {
        let error = ToolName::new("a b").unwrap_err();
        assert_eq!(error.to_string(), "a tool name must be 1 to 64 characters of A-Z a-z 0-9 _ -; got `a b`");
    }

    #[test]
    fn sanitize_replaces_illegal_characters_and_shortens() {
        let check = |text: &str, expected: &str| assert_eq!(ToolName::sanitize(text).as_str(), expected);
        check("bash", "bash");
        check("", "_");
        check("my.tool/v2", "my_tool_v2");
        check("größe", "gr__e");
        check(&"x".repeat(64), &"x".repeat(64));
        check(&"x".repeat(65), &format!("{}_9537c5fd", "x".repeat(55)));
    }

    proptest! {
        #[test]
        fn sanitized_names_are_legal_and_deterministic(text in ".{0,200}") {
            let name = ToolName::sanitize(&text);
            prop_assert!(ToolName::new(name.as_str()).is_ok());
            prop_assert_eq!(name, ToolName::sanitize(&text));
        }

        #[test]
        fn sanitize_leaves_legal_names_unchanged(text in "[A-Za-z0-9_-]{1,64}") {
            let name = ToolName::sanitize(&text);
            prop_assert_eq!(name.as_str(), text);
        }

        #[test]
        fn sanitized_long_names_stay_distinct(
            stem in "[a-z.]{60,80}",
            left in "[a-z./]{5,20}",
            right in "[a-z./]{5,20}",
        ) {
            prop_assume!(left != right);
            let name = |end: &str| ToolName::sanitize(&format!("{stem}{end}"));
            prop_assert_ne!(name(&left), name(&right));
        }
    }
}
