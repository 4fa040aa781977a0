//! Parses one JSON or YAML document, within limits, and drops the parts that no tool needs.

use std::cell::Cell;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The maximum size of a document, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The maximum number of values in all documents of one API. Dropped values are not counted, and a YAML alias is
/// counted each time it is used. The limit bounds memory: small values take many times the memory of their text.
pub(super) const VALUES_MAX: usize = 1_500_000;

/// The maximum nesting depth of YAML. Its parser needs much more stack than the JSON parser, which stops at 128.
const YAML_DEPTH_MAX: usize = 64;

/// The reason why the bytes are not a valid document, as a message for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DocumentError(pub String);

/// Parses a document. Drops examples and extensions, which make up most of a large document.
pub(super) fn parse(bytes: &[u8], values_left: &Cell<usize>) -> Result<Value, DocumentError> {
    if bytes.len() > DOCUMENT_BYTES_MAX {
        return Err(DocumentError(format!(
            "the OpenAPI document is larger than {DOCUMENT_BYTES_MAX} bytes; reduce it to the operations that you need"
        )));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let value = match first {
        Some(b'{') => json(bytes, values_left),
        Some(b'<') => Err(DocumentError(
            "expected an OpenAPI document in JSON or YAML; found what looks like HTML or XML".into(),
        )),
        Some(_) => yaml(bytes, values_left),
        None => Err(DocumentError("the OpenAPI document is empty".into())),
    }?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(DocumentError("expected an object at the top level of the OpenAPI document".into()))
    }
}

/// Parses JSON. Falls back to YAML, because flow-style YAML can begin with a brace too.
fn json(bytes: &[u8], values_left: &Cell<usize>) -> Result<Value, DocumentError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let before = values_left.get();
    let parsed =
        PruningDeserializer { context: ObjectKeyKind::Keywords, values_left }.deserialize(&mut deserializer);
    parsed.and_then(|value| deserializer.end().map(|()| value)).or_else(|error| {
        let no_json = || DocumentError(format!("the OpenAPI document is not valid JSON: {error}"));
        // The document has too many values. Do not try YAML, because the document would exceed the limit again.
        if values_left.replace(before) == 0 {
            return Err(no_json());
        }
        yaml(bytes, values_left).map_err(|_| no_json())
    })
}

fn yaml(bytes: &[u8], values_left: &Cell<usize>) -> Result<Value, DocumentError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| DocumentError(format!("the OpenAPI document is not UTF-8: {error}")))?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: VALUES_MAX,
            max_events: 2 * VALUES_MAX,
            max_depth: YAML_DEPTH_MAX,
            flow_nesting_limit: YAML_DEPTH_MAX,
            max_documents: 1,
        },
        strict_booleans: true,
        with_snippet: false,
    };
    let parsed = serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        PruningDeserializer { context: ObjectKeyKind::Keywords, values_left }.deserialize(deserializer)
    });
    parsed.map_err(|error| {
        DocumentError(format!("the OpenAPI document is not valid YAML: {}", first_line(&error.to_string())))
    })
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}

/// The kind of keys in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectKeyKind {
    /// Keywords of the specification; some of them are dropped.
    Keywords,
    /// Names that the document's author chose. None of them is dropped.
    Names,
    /// A value that the document's author wrote, such as a default. It is kept unchanged.
    Verbatim,
}

impl ObjectKeyKind {
    fn keeps(self, key: &str) -> bool {
        match self {
            ObjectKeyKind::Names | ObjectKeyKind::Verbatim => true,
            ObjectKeyKind::Keywords => {
                !(matches!(
                    key,
                    "example" | "examples" | "externalDocs" | "xml" | "callbacks" | "webhooks" | "links"
                ) || key.starts_with("x-"))
            }
        }
    }

    fn below(self, key: &str) -> ObjectKeyKind {
        match (self, key) {
            (ObjectKeyKind::Verbatim, _)
            | (ObjectKeyKind::Keywords, "enum" | "const" | "default" | "required" | "security") => {
                ObjectKeyKind::Verbatim
            }
            (
                ObjectKeyKind::Keywords,
                "properties"
                | "patternProperties"
                | "$defs"
                | "definitions"
                | "dependentSchemas"
                | "schemas"
                | "parameters"
                | "responses"
                | "requestBodies"
                | "headers"
                | "securitySchemes"
                | "securityDefinitions"
                | "paths"
                | "pathItems"
                | "content"
                | "encoding"
                | "variables"
                | "scopes"
                | "mapping",
            ) => ObjectKeyKind::Names,
            (ObjectKeyKind::Keywords | ObjectKeyKind::Names, _) => ObjectKeyKind::Keywords,
        }
    }
}

/// A deserializer that drops unneeded values while it reads, so that they never take memory.
struct PruningDeserializer<'a> {
    context: ObjectKeyKind,
    values_left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for PruningDeserializer<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.values_left.get().checked_sub(1);
        let left = left.ok_or_else(|| {
            D::Error::custom(format!(
                "the OpenAPI document has more than {VALUES_MAX} JSON values; reduce it to the operations that you need"
            ))
        })?;
        self.values_left.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PruningDeserializer<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut kept = Vec::new();
        // `parameters` may also be a list. A list has no names; its elements are objects with keywords.
        let context =
            if self.context == ObjectKeyKind::Names { ObjectKeyKind::Keywords } else { self.context };
        while let Some(item) = items.next_element_seed(PruningDeserializer { context, ..self })? {
            kept.push(item);
        }
        Ok(Value::Array(kept))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if self.context.keeps(&key) {
                let value = members
                    .next_value_seed(PruningDeserializer { context: self.context.below(&key), ..self })?;
                kept.insert(key, value);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Value::Object(kept))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(bytes: &[u8]) -> Result<Value, DocumentError> {
        super::parse(bytes, &Cell::new(VALUES_MAX))
    }

    #[test]
    fn document_parser_drops_extensions_and_examples_but_no_names() {
        let written = json!({
            "x-logo": 1, "example": 1,
            "paths": {"x-path": {"get": {"x-y": 1, "parameters": [{"name": "a", "example": 2}]}}},
            "components": {"schemas": {"example": {
                "properties": {"example": {"type": "string", "example": "e"}, "x-real": {}},
                "default": {"example": 1}, "enum": [{"x-a": 1}],
            }}},
        });
        let expected = json!({
            "paths": {"x-path": {"get": {"parameters": [{"name": "a"}]}}},
            "components": {"schemas": {"example": {
                "properties": {"example": {"type": "string"}, "x-real": {}},
                "default": {"example": 1}, "enum": [{"x-a": 1}],
            }}},
        });
        assert_eq!(parse(written.to_string().as_bytes()), Ok(expected));
    }

    #[test]
    fn yaml_document_parses_like_json() {
        let text = "openapi: 3.0.0\npaths:\n  /a:\n    get:\n      responses:\n        200: {description: yes}\n      deprecated: true\n";
        let expected = json!({
            "openapi": "3.0.0",
            "paths": {"/a": {"get": {"responses": {"200": {"description": "yes"}}, "deprecated": true}}},
        });
        assert_eq!(parse(text.as_bytes()), Ok(expected));
    }

    #[test]
    fn oversized_nested_or_invalid_documents_are_rejected() {
        let bomb = (1..12).fold("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, level| {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            format!("{text}a{level}: &a{level} [{aliases}]\n")
        });
        let deep = format!("{}{}", "{\"a\":".repeat(5_000), "1");
        let check = |bytes: &[u8], expected: &str| {
            let error = parse(bytes).unwrap_err();
            assert!(error.0.contains(expected), "{expected}: {error}");
        };
        let many = format!("{{\"a\":[{}0]}}", "0,".repeat(VALUES_MAX));
        check(many.as_bytes(), "more than 1500000 JSON values");
        check(bomb.as_bytes(), "not valid YAML");
        check(deep.as_bytes(), "not valid JSON");
        check("[".repeat(100_000).as_bytes(), "not valid YAML");
        check(&vec![b' '; DOCUMENT_BYTES_MAX + 1], "larger than");
        check(b"", "empty");
        check(b"  \n", "empty");
        check(b"<!doctype html>", "HTML");
        check(b"just text", "an object");
        check(b"a: \xff", "not UTF-8");
        check(b"[1]", "an object");
    }
}
