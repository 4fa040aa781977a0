//! What becomes of a tool's schema where a provider's grammar is smaller, and what is lost on the way.
//!
//! The original stays what arguments are checked against: a loss only means that the model is told less.

mod reference;
mod root;
mod walk;
mod words;

use std::fmt;

use serde_json::Value;

/// The grammars that providers accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grammar {
    /// JSON Schema, with a plain object at its root: OpenAI's tools that are not strict.
    Json,
    /// OpenAI's strict mode: closed objects, everything required.
    OpenaiStrict,
    /// Anthropic's tools: JSON Schema, with a plain object at its root.
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

    /// The rules of a grammar that is smaller than JSON Schema.
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

/// A grammar as data.
#[derive(Debug)]
struct Rules {
    /// Keywords that stay as they are; what is structure is handled by name.
    keeps: &'static [&'static str],
    /// The values of `format` that are accepted; `None` for all.
    formats: Option<&'static [&'static str]>,
    nulls: Nulls,
    objects: Objects,
    enums: Enums,
    types: Types,
    choices: Choices,
}

/// How it is said that a value may be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nulls {
    /// `type: [T, "null"]`, or a branch of `anyOf`.
    AsType,
    /// `nullable: true`.
    AsFlag,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Objects {
    /// `additionalProperties` is unknown.
    Open,
    /// `additionalProperties: false` everywhere.
    Closed,
    /// Closed, and every property is required; what was optional may be null.
    ClosedAndRequired,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enums {
    Any,
    /// Only strings, and no `const`.
    Strings,
}

/// Whether every schema must say its type, and an array what is in it; else what is assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Types {
    Optional,
    /// There is one type, so texts are assumed.
    Texts,
    /// There may be several, so whatever is neither list nor object is assumed.
    Scalars,
}

/// What may stand beside `anyOf`.
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

/// A schema in a provider's grammar.
#[derive(Debug, Clone, PartialEq)]
pub struct Downgraded {
    pub schema: Value,
    pub losses: Vec<Loss>,
}

/// Something of a schema that a grammar cannot say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Where, as a JSON pointer into the original.
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

/// Says a schema in a grammar. Never fails: what cannot be said is left out and reported.
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
