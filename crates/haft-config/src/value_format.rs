//! Values with more structure than their JSON type: their notation, the check, and the normal form.

use std::path::Path;

use haft_core::name::{GroupName, Namespace, QueueName};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::compaction::{self, CompactionStart};
use super::expand::{self, VariableSource};
use super::gateway::RESERVED_PROFILE;
use super::glob::tool_glob;
use super::rest::Secret;
use super::{duration, printable};

/// The context that the meaning of a value may depend on.
#[derive(Clone, Copy)]
pub(super) struct ValueContext<'a> {
    /// The directory that relative paths are resolved against.
    pub(super) directory: &'a Path,
    pub(super) variables: VariableSource<'a>,
}

/// Checks the text of a value and returns its normal form. The error is a sentence that says what was expected.
type ValueParser = fn(&str, ValueContext<'_>) -> Result<Value, String>;

/// One value format: its name in the schema, its description for users, and the function that parses the value.
pub(super) struct ValueFormat {
    name: &'static str,
    pub(super) expected: &'static str,
    pub(super) read: ValueParser,
}

const FORMATS: [ValueFormat; 16] = [
    ValueFormat { name: "haft-duration", expected: "a duration such as \"90s\"", read: millis },
    ValueFormat {
        name: "haft-ttl",
        expected: "a duration such as \"5m\", or \"off\"",
        read: |text, around| if text == "off" { Ok(json!("off")) } else { millis(text, around) },
    },
    ValueFormat {
        name: "haft-percent",
        expected: "a percentage from \"1%\" to \"100%\", or \"off\"",
        read: |text, _| text_if_valid(text, CompactionStart::parse(text)),
    },
    ValueFormat {
        name: "haft-template",
        expected: "a string that may contain ${VARIABLES}",
        read: |text, _| template(text),
    },
    ValueFormat { name: "haft-path", expected: "a path", read: path },
    ValueFormat { name: "haft-variable", expected: "a variable name", read: |text, _| variable(text) },
    ValueFormat {
        name: "haft-glob",
        expected: "a tool pattern",
        read: |text, _| text_if_valid(text, tool_glob(text)),
    },
    ValueFormat {
        name: "haft-client",
        expected: "a client name pattern",
        read: |text, _| text_if_valid(text, tool_glob(text)),
    },
    ValueFormat {
        name: "haft-profile",
        expected: "a name with the characters A-Z a-z 0-9 _ -",
        read: |text, _| profile(text),
    },
    ValueFormat { name: "haft-group", expected: "a group name", read: |text, _| group(text) },
    ValueFormat {
        name: "haft-queue",
        expected: "a queue name",
        read: |text, _| text_if_valid(text, QueueName::new(text)),
    },
    ValueFormat {
        name: "haft-member",
        expected: "a tool pattern, or @ and a group name",
        read: |text, _| match text.strip_prefix('@') {
            Some(name) => group(name).map(|_| json!(text)),
            None => text_if_valid(text, tool_glob(text)),
        },
    },
    ValueFormat {
        name: "haft-rest-name",
        expected: "a name with the characters A-Z a-z 0-9 _ -",
        read: |text, _| text_if_valid(text, Namespace::new(text)),
    },
    ValueFormat { name: "haft-url", expected: "a URL", read: |text, _| unexpanded(text) },
    ValueFormat { name: "haft-secret", expected: "a string", read: |text, _| unexpanded(text) },
    ValueFormat { name: "haft-spec", expected: "a path or a URL", read: spec },
];

impl ValueFormat {
    /// Returns the format that a schema names, if haft defines it.
    pub(super) fn of(schema: &Map<String, Value>) -> Option<&'static ValueFormat> {
        let name = schema.get("format")?.as_str()?;
        FORMATS.iter().find(|format| format.name == name)
    }
}

/// Returns true if the values of a schema are durations. In a file, a number means milliseconds.
pub(super) fn is_duration(schema: &Map<String, Value>) -> bool {
    schema.get("format").is_some_and(|format| format == "haft-duration" || format == "haft-ttl")
}

fn millis(text: &str, _: ValueContext<'_>) -> Result<Value, String> {
    let millis = duration::parse(text)?.as_millis();
    u64::try_from(millis).map(Value::from).map_err(|_| format!("the duration `{text}` is too long"))
}

/// Checks a text and keeps it unchanged. Variables are expanded on use, so that an unset variable affects only that
/// use.
fn template(text: &str) -> Result<Value, String> {
    let checked = expand::expand(text, &|_| Some(String::new()));
    checked.map(|_| json!(text)).map_err(|error| error.to_string())
}

/// Expands variables, replaces `~/` by the user's home, and resolves relative paths against the directory of the file.
fn path(text: &str, around: ValueContext<'_>) -> Result<Value, String> {
    let expanded = expand::expand(text, around.variables).map_err(|error| error.to_string())?;
    let expanded = match expanded.strip_prefix("~/") {
        Some(rest) => format!(
            "{}/{rest}",
            (around.variables)("HOME")
                .ok_or("haft cannot expand `~/`, because variable `HOME` is not set")?
        ),
        None => expanded,
    };
    if expanded.is_empty() || expanded.contains('\0') {
        return Err(format!("expected a path; got `{}`", printable::excerpt(&expanded)));
    }
    let path = around.directory.join(expanded);
    path.to_str().map(Value::from).ok_or_else(|| format!("the path `{}` is not UTF-8", path.display()))
}

/// Checks a text and keeps its variables. They are expanded on use, so that an unset variable affects only the entry
/// that uses it.
fn unexpanded(text: &str) -> Result<Value, String> {
    let any: VariableSource<'_> = &|_| Some(String::new());
    expand::expand(text, any).map(|_| json!(text)).map_err(|error| error.to_string())
}

/// Reads a URL, which may contain variables, or a path.
fn spec(text: &str, around: ValueContext<'_>) -> Result<Value, String> {
    let of_web = text.starts_with("http://") || text.starts_with("https://");
    if of_web { unexpanded(text) } else { path(text, around) }
}

fn profile(text: &str) -> Result<Value, String> {
    if text == RESERVED_PROFILE {
        return Err(format!(
            "the name `{text}` is reserved for the login pages at `/mcp/{text}`; choose another"
        ));
    }
    text_if_valid(text, Namespace::new(text))
}

fn variable(text: &str) -> Result<Value, String> {
    let named = expand::is_name(text).then(|| json!(text));
    named.ok_or_else(|| format!("expected a variable name; got `{}`", printable::excerpt(text)))
}

fn group(text: &str) -> Result<Value, String> {
    text_if_valid(text, GroupName::new(text))
}

/// Returns the unchanged text of a value if its parser accepted the text.
fn text_if_valid<T, E: ToString>(text: &str, parsed: Result<T, E>) -> Result<Value, String> {
    parsed.map(|_| json!(text)).map_err(|error| printable::printable(&error.to_string()))
}

/// Defines types for keys whose value is one of a few words. Each word names a variant of a setting.
macro_rules! words {
    ($($vis:vis $name:ident for $setting:ident { $($word:literal $variant:ident),+ $(,)? })+) => { $(
        #[derive(Debug, Clone, Copy, serde::Deserialize, schemars::JsonSchema)]
        $vis enum $name {
            $(#[serde(rename = $word)] $variant),+
        }

        impl From<$name> for $setting {
            fn from(word: $name) -> Self {
                match word {
                    $($name::$variant => Self::$variant),+
                }
            }
        }
    )+ };
}
pub(crate) use words;

/// Defines types for `written.rs`, each with one value format.
macro_rules! formatted {
    ($($(#[$doc:meta])* $name:ident($inner:ty): $schema:tt)+) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Deserialize)]
        #[serde(transparent)]
        pub(super) struct $name(pub(super) $inner);

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )+ };
}

formatted! {
    /// A duration, converted to milliseconds.
    Millis(u64): { "type": ["integer", "string"], "minimum": 1, "pattern": duration::PATTERN, "format": "haft-duration" }
    /// A duration, converted to milliseconds, or `off`.
    Ttl(TtlForm): { "type": ["integer", "string"], "minimum": 1, "pattern": format!("^off$|{}", duration::PATTERN), "format": "haft-ttl" }
    /// A percentage or `off`.
    PercentText(String): { "type": "string", "pattern": compaction::PATTERN, "format": "haft-percent" }
    /// A path, expanded and made absolute.
    PathText(String): { "type": "string", "format": "haft-path" }
    /// The name of an environment variable.
    Environment(String): { "type": "string", "format": "haft-variable" }
    /// A pattern for tool names or operation names.
    GlobText(String): { "type": "string", "format": "haft-glob" }
    /// A pattern for the names of MCP clients.
    ClientText(String): { "type": "string", "format": "haft-client" }
    /// A text that may contain variables; they are expanded on use.
    TemplateText(String): { "type": "string", "format": "haft-template" }
    GroupText(String): { "type": "string", "format": "haft-group" }
    QueueText(String): { "type": "string", "format": "haft-queue" }
    /// A pattern for tool names, or `@group`.
    MemberText(String): { "type": "string", "format": "haft-member" }
    /// A URL that may contain variables; they are expanded on use.
    UrlText(String): { "type": "string", "format": "haft-url" }
    /// A text that is never shown and may contain variables.
    SecretText(Secret): { "type": "string", "format": "haft-secret", "x-secret": true }
    /// A URL, or a path that was made absolute.
    SpecText(String): { "type": "string", "format": "haft-spec" }
}

/// The normalized form of a [`Ttl`].
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum TtlForm {
    Millis(u64),
    Off(#[expect(dead_code, reason = "`off` is the only possible text")] String),
}

/// JSON that haft does not interpret.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct AnyJson(pub(super) Value);

/// Marks a key whose value is kept without interpretation.
pub(super) const ANY_JSON: &str = "x-any-json";

impl JsonSchema for AnyJson {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AnyJson".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-any-json": true })
    }
}

/// Returns the schema for maps whose keys are tool patterns. The functions below do the same for maps whose keys are
/// names.
pub(super) fn tool_globs() -> Value {
    json!({ "format": "haft-glob" })
}

pub(super) fn group_names() -> Value {
    json!({ "format": "haft-group" })
}

pub(super) fn rest_names() -> Value {
    json!({ "format": "haft-rest-name" })
}

pub(super) fn profile_names() -> Value {
    json!({ "format": "haft-profile" })
}

pub(super) fn queue_names() -> Value {
    json!({ "format": "haft-queue" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: &str, text: &str) -> Result<Value, String> {
        let variables: VariableSource<'_> = &|name| (name == "HOME").then(|| "/home/u".to_owned());
        let around = ValueContext { directory: Path::new("/etc/haft"), variables };
        let format = FORMATS.iter().find(|row| row.name == format).unwrap();
        (format.read)(text, around)
    }

    #[test]
    fn config_values_with_a_format_are_normalized() {
        let check = |format, text, expected: Value| assert_eq!(read(format, text), Ok(expected), "{text}");
        check("haft-duration", "90s", json!(90_000));
        check("haft-ttl", "off", json!("off"));
        check("haft-ttl", "1.5h", json!(5_400_000));
        check("haft-percent", "85%", json!("85%"));
        check("haft-percent", "off", json!("off"));
        check("haft-path", "/a", json!("/a"));
        check("haft-path", "b", json!("/etc/haft/b"));
        check("haft-path", "~/c", json!("/home/u/c"));
        check("haft-path", "${HOME}/d", json!("/home/u/d"));
        check("haft-path", "${NONE:-e}", json!("/etc/haft/e"));
        check("haft-member", "@web", json!("@web"));
        check("haft-member", "git*", json!("git*"));
    }

    #[test]
    fn config_values_that_violate_their_format_are_rejected() {
        let bad = [
            ("haft-duration", "off"),
            ("haft-duration", "soon"),
            ("haft-percent", "85"),
            ("haft-percent", "0%"),
            ("haft-percent", "101%"),
            ("haft-path", ""),
            ("haft-path", "${NONE}"),
            ("haft-variable", "A=B"),
            ("haft-glob", "["),
            ("haft-group", "a b"),
            ("haft-queue", ""),
            ("haft-member", "@"),
        ];
        for (format, text) in bad {
            assert!(read(format, text).is_err(), "{format} {text}");
        }
    }
}
