//! Translates tool schemas into the smaller schema languages of providers, and reports the losses.
//!
//! Arguments are still validated against the original schema: a loss only means that the model knows less about it.

mod reference;
mod root;
mod walk;
mod words;

use std::fmt;

use serde_json::Value;

/// The schema languages that providers accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grammar {
    /// JSON Schema with a plain object at its root: OpenAI's tools without strict mode.
    Json,
    /// OpenAI's strict mode: closed objects, all properties required.
    OpenaiStrict,
    /// Anthropic's tools: JSON Schema with a plain object at its root.
    Anthropic,
    /// Anthropic's structured output.
    AnthropicOutput,
    Gemini,
    Ollama,
}

impl Grammar {
    pub const ALL: [Grammar; 6] = [
        Grammar::Json,
        Grammar::OpenaiStrict,
        Grammar::Anthropic,
        Grammar::AnthropicOutput,
        Grammar::Gemini,
        Grammar::Ollama,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Grammar::Json => "openai",
            Grammar::OpenaiStrict => "openai-strict",
            Grammar::Anthropic => "anthropic",
            Grammar::AnthropicOutput => "anthropic-output",
            Grammar::Gemini => "gemini",
            Grammar::Ollama => "ollama",
        }
    }

    /// Returns the rules of a language that is smaller than JSON Schema, or `None` for full JSON Schema.
    fn rules(self) -> Option<&'static Rules> {
        match self {
            Grammar::Json | Grammar::Anthropic => None,
            Grammar::OpenaiStrict => Some(&OPENAI_STRICT),
            Grammar::AnthropicOutput => Some(&ANTHROPIC_OUTPUT),
            Grammar::Gemini => Some(&GEMINI),
            Grammar::Ollama => Some(&OLLAMA),
        }
    }
}

/// The rules of a schema language, as data.
#[derive(Debug)]
struct Rules {
    /// Keywords that are kept unchanged. Structural keywords are handled by name in `walk.rs`.
    keeps: &'static [&'static str],
    /// The accepted values of `format`; `None` accepts all.
    formats: Option<&'static [&'static str]>,
    nulls: Nulls,
    objects: Objects,
    enums: Enums,
    types: Types,
    choices: Choices,
}

/// The notation for a value that may be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nulls {
    /// `type: [T, "null"]`, or a branch of `anyOf`.
    AsType,
    /// `nullable: true`.
    AsFlag,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Objects {
    /// `additionalProperties` is not supported.
    Open,
    /// `additionalProperties: false` everywhere.
    Closed,
    /// Closed, and every property is required; an optional one becomes nullable.
    ClosedAndRequired,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enums {
    Any,
    /// Only strings, and no `const`.
    Strings,
}

/// The rule for schemas without a type and arrays without items: accepted, or filled in with an assumed type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Types {
    Optional,
    /// A schema has a single type; a missing one becomes `string`.
    Texts,
    /// A schema may have several types; a missing one becomes string, number and boolean.
    Scalars,
}

/// The keywords that are allowed beside `anyOf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choices {
    Anything,
    Nothing,
}

const OPENAI_STRICT: Rules = Rules {
    keeps: &[
        "title",
        "description",
        "pattern",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minItems",
        "maxItems",
    ],
    formats: Some(&["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"]),
    nulls: Nulls::AsType,
    objects: Objects::ClosedAndRequired,
    enums: Enums::Any,
    types: Types::Scalars,
    choices: Choices::Anything,
};

const ANTHROPIC_OUTPUT: Rules = Rules {
    keeps: &["title", "description", "default"],
    formats: Some(&[
        "date-time",
        "time",
        "date",
        "duration",
        "email",
        "hostname",
        "uri",
        "ipv4",
        "ipv6",
        "uuid",
    ]),
    nulls: Nulls::AsType,
    objects: Objects::Closed,
    enums: Enums::Any,
    types: Types::Optional,
    choices: Choices::Anything,
};

const GEMINI: Rules = Rules {
    keeps: &[
        "title",
        "description",
        "nullable",
        "pattern",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "propertyOrdering",
    ],
    formats: Some(&["enum", "date-time", "float", "double", "int32", "int64"]),
    nulls: Nulls::AsFlag,
    objects: Objects::Open,
    enums: Enums::Strings,
    types: Types::Texts,
    choices: Choices::Nothing,
};

const OLLAMA: Rules = Rules {
    keeps: &["description"],
    formats: Some(&[]),
    nulls: Nulls::AsType,
    objects: Objects::Open,
    enums: Enums::Any,
    types: Types::Optional,
    choices: Choices::Anything,
};

/// A schema in a provider's language.
#[derive(Debug, Clone, PartialEq)]
pub struct Downgraded {
    pub schema: Value,
    pub losses: Vec<Loss>,
}

/// A part of a schema that the language cannot express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// A JSON pointer into the original schema.
    pub at: String,
    pub keyword: String,
    pub why: &'static str,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.at.is_empty() { "/" } else { &self.at };
        write!(f, "{at}: `{}` {}", self.keyword, self.why)
    }
}

/// Translates a schema. Never fails: unsupported parts are dropped and reported as losses.
pub fn downgrade(schema: &Value, grammar: Grammar) -> Downgraded {
    let mut losses = Vec::new();
    let plain = root::as_object(schema, &mut losses);
    let schema = match grammar.rules() {
        None => root::with_items(plain),
        Some(rules) => {
            let (said, mut lost) = walk::walk(&plain, rules);
            losses.append(&mut lost);
            root::with_properties(said)
        }
    };
    Downgraded { schema, losses }
}

#[cfg(test)]
mod tests;
