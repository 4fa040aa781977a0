//! Translates tool schemas into the more limited schema languages of providers, and reports the parts that are lost.
//!
//! haft still validates arguments against the original schema. A loss only means that the model sees less of the
//! original schema.

mod keywords;
mod reference;
mod repair;
mod root;
mod walk;

use std::fmt;

use serde_json::Value;

/// The schema languages that providers accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SchemaDialect {
    /// JSON Schema with a plain object at its root, for OpenAI's tools without strict mode.
    Json,
    /// OpenAI's strict mode: objects are closed, and all properties are required.
    OpenaiStrict,
    /// Anthropic's tools: JSON Schema with a plain object at its root.
    Anthropic,
    /// Anthropic's structured output.
    AnthropicOutput,
    Gemini,
    Ollama,
}

haft_core::name_table!(SchemaDialect {
    Json: "openai",
    OpenaiStrict: "openai-strict",
    Anthropic: "anthropic",
    AnthropicOutput: "anthropic-output",
    Gemini: "gemini",
    Ollama: "ollama",
});

impl SchemaDialect {
    /// Returns the rules of a language that is more limited than JSON Schema, or `None` for full JSON Schema.
    fn rules(self) -> Option<&'static SchemaRules> {
        match self {
            SchemaDialect::Json | SchemaDialect::Anthropic => None,
            SchemaDialect::OpenaiStrict => Some(&OPENAI_STRICT),
            SchemaDialect::AnthropicOutput => Some(&ANTHROPIC_OUTPUT),
            SchemaDialect::Gemini => Some(&GEMINI),
            SchemaDialect::Ollama => Some(&OLLAMA),
        }
    }
}

/// The rules of a schema language, as data.
#[derive(Debug)]
struct SchemaRules {
    /// Keywords that are kept unchanged. `walk.rs` handles structural keywords by name.
    keeps: &'static [&'static str],
    /// The accepted values of `format`; `None` accepts all.
    formats: Option<&'static [&'static str]>,
    nulls: NullNotation,
    objects: ObjectRule,
    enums: EnumRule,
    types: TypeRule,
    choices: AnyOfSiblings,
}

/// The notation for a value that may be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NullNotation {
    /// Written as `type: [T, "null"]`, or as a branch in `anyOf`.
    AsType,
    /// Written as `nullable: true`.
    AsFlag,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectRule {
    /// The provider does not support `additionalProperties`.
    Open,
    /// Every object has `additionalProperties: false`.
    Closed,
    /// Every object is closed, and every property is required. An optional property becomes nullable.
    ClosedAndRequired,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EnumRule {
    Any,
    /// Enum values must be strings, and `const` is not allowed.
    Strings,
}

/// The rule for schemas without a type and arrays without items: the provider accepts them, or haft fills in an assumed
/// type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TypeRule {
    Optional,
    /// A schema has a single type. A missing type becomes `string`.
    Texts,
    /// A schema may have several types. A missing type becomes string, number and boolean.
    Scalars,
}

/// The keywords that are allowed next to `anyOf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnyOfSiblings {
    Anything,
    Nothing,
}

const OPENAI_STRICT: SchemaRules = SchemaRules {
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
    nulls: NullNotation::AsType,
    objects: ObjectRule::ClosedAndRequired,
    enums: EnumRule::Any,
    types: TypeRule::Scalars,
    choices: AnyOfSiblings::Anything,
};

const ANTHROPIC_OUTPUT: SchemaRules = SchemaRules {
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
    nulls: NullNotation::AsType,
    objects: ObjectRule::Closed,
    enums: EnumRule::Any,
    types: TypeRule::Optional,
    choices: AnyOfSiblings::Anything,
};

const GEMINI: SchemaRules = SchemaRules {
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
    nulls: NullNotation::AsFlag,
    objects: ObjectRule::Open,
    enums: EnumRule::Strings,
    types: TypeRule::Texts,
    choices: AnyOfSiblings::Nothing,
};

const OLLAMA: SchemaRules = SchemaRules {
    keeps: &["description"],
    formats: Some(&[]),
    nulls: NullNotation::AsType,
    objects: ObjectRule::Open,
    enums: EnumRule::Any,
    types: TypeRule::Optional,
    choices: AnyOfSiblings::Anything,
};

/// A tool schema, translated into the schema language of a provider.
#[derive(Debug, Clone, PartialEq)]
pub struct DowngradedSchema {
    pub schema: Value,
    pub losses: Vec<SchemaLoss>,
}

/// A part of the original schema that the provider's schema language cannot express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaLoss {
    /// The location of the part, as a JSON pointer into the original schema.
    pub at: String,
    pub keyword: String,
    pub why: &'static str,
}

impl fmt::Display for SchemaLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.at.is_empty() { "/" } else { &self.at };
        write!(f, "{at}: `{}`: {}", self.keyword, self.why)
    }
}

/// Translates a schema. Never fails: unsupported parts are dropped and reported as losses.
pub fn downgrade(schema: &Value, grammar: SchemaDialect) -> DowngradedSchema {
    let mut losses = Vec::new();
    let repaired = repair::repaired(schema.clone(), grammar, &mut losses);
    let plain = root::as_object(&repaired, &mut losses);
    let schema = match grammar.rules() {
        None => root::with_items(plain),
        Some(rules) => {
            let (said, mut lost) = walk::walk(&plain, rules);
            losses.append(&mut lost);
            root::with_properties(said)
        }
    };
    DowngradedSchema { schema, losses }
}

/// Returns the parts of a tool's schema that would make the provider reject every request with this tool. haft removes
/// these parts before it sends the tool.
pub fn defects(schema: &Value, grammar: SchemaDialect) -> Vec<SchemaLoss> {
    let mut losses = Vec::new();
    repair::repaired(schema.clone(), grammar, &mut losses);
    losses
}

#[cfg(test)]
mod tests;
