//! The request body of an operation: chooses a content type and turns the body's fields into arguments.

use serde_json::{Map, Value, json};

use super::super::body::{BodyField, BodyKind, BodyPlan, BodyShape};
use super::super::parameter::{Explode, ParameterStyle};
use super::documents::Node;
use super::operation::MEDIA_TYPES_MAX;
use super::parameters::is_legal;
use super::schema::{Direction, SchemaInliner};

/// A request body, and the arguments that it is built from.
#[derive(Debug)]
pub(super) struct DescribedBody {
    pub(super) plan: BodyPlan,
    pub(super) properties: Map<String, Value>,
    pub(super) required: Vec<String>,
}

/// Returns the body of an operation, if it has one. `taken` are the names of the existing arguments.
pub(super) fn body(
    operation: &Node<'_>,
    schemas: &SchemaInliner,
    taken: &Map<String, Value>,
) -> Result<Option<DescribedBody>, String> {
    let Some(written) = operation.value.get("requestBody") else { return Ok(None) };
    let written = operation
        .with(written)
        .resolved()
        .map_err(|bad| format!("haft cannot read the request body: {bad}"))?;
    let Some(content) = written.get("content") else { return Ok(None) };
    let Some((media_type, media)) =
        content.members().take(MEDIA_TYPES_MAX).min_by_key(|(media_type, _)| rank(media_type))
    else {
        return Ok(None);
    };
    let kind = kind(media_type);
    let schema = media.get("schema").map(|schema| schemas.whole(&schema, Direction::Request));
    let (schema, fields) = prepared(kind, schema.unwrap_or_else(|| json!({})), &media);
    let media_type = if media_type.contains('*') { default_type(kind) } else { media_type }.to_owned();
    let needed = written.flag("required");
    if let Some((properties, required)) = flat(kind, &schema, needed, taken) {
        let fields = properties.keys().map(|name| field(name, &fields)).collect();
        let plan = BodyPlan { media_type, kind, shape: BodyShape::Flat { fields } };
        return Ok(Some(DescribedBody { plan, properties, required }));
    }
    let argument = free_name(taken);
    let required = if needed { vec![argument.clone()] } else { Vec::new() };
    let properties = Map::from_iter([(argument.clone(), schema)]);
    let plan = BodyPlan { media_type, kind, shape: BodyShape::Whole { argument, fields } };
    Ok(Some(DescribedBody { plan, properties, required }))
}

/// Ranks content types. The content type that models write best comes first.
fn rank(media_type: &str) -> usize {
    match media_type.split(';').next().unwrap_or_default().trim() {
        "application/json" => 0,
        "application/merge-patch+json" => 1,
        json if json.ends_with("+json") => 2,
        "*/*" => 3,
        "application/x-www-form-urlencoded" => 4,
        "multipart/form-data" => 5,
        text if text.starts_with("text/") => 6,
        xml if xml.ends_with("xml") || xml.ends_with("yaml") => 7,
        _ => 8,
    }
}

fn kind(media_type: &str) -> BodyKind {
    match rank(media_type) {
        0..=3 => BodyKind::Json,
        4 => BodyKind::Form,
        5 => BodyKind::Multipart,
        6 | 7 => BodyKind::Text,
        _ => BodyKind::Binary,
    }
}

fn default_type(kind: BodyKind) -> &'static str {
    match kind {
        BodyKind::Json => "application/json",
        BodyKind::Form => "application/x-www-form-urlencoded",
        BodyKind::Multipart => "multipart/form-data",
        BodyKind::Text => "text/plain",
        BodyKind::Binary => "application/octet-stream",
    }
}

/// Returns a schema that a model can fill in, and the serialization of the form fields.
fn prepared(kind: BodyKind, schema: Value, media: &Node<'_>) -> (Value, Vec<BodyField>) {
    match kind {
        BodyKind::Json => (schema, Vec::new()),
        BodyKind::Text => {
            (json!({ "type": "string", "description": "The request body, as text" }), Vec::new())
        }
        BodyKind::Binary => (
            json!({ "type": "string", "contentEncoding": "base64", "description": "The request body, as base64" }),
            Vec::new(),
        ),
        BodyKind::Form | BodyKind::Multipart => form(kind, schema, media),
    }
}

fn form(kind: BodyKind, mut schema: Value, media: &Node<'_>) -> (Value, Vec<BodyField>) {
    let mut fields = Vec::new();
    let encodings = media.get("encoding");
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten();
    for (name, property) in properties {
        let encoding = encodings.as_ref().and_then(|encodings| encodings.get(name));
        let style = match encoding.as_ref().and_then(|encoding| encoding.text("style")) {
            Some("deepObject") => ParameterStyle::DeepObject,
            Some("spaceDelimited") => ParameterStyle::SpaceDelimited,
            Some("pipeDelimited") => ParameterStyle::PipeDelimited,
            None if property["type"] == "object" => ParameterStyle::Json,
            Some(_) | None => ParameterStyle::Form,
        };
        let explode =
            encoding.as_ref().and_then(|encoding| encoding.value.get("explode")).and_then(Value::as_bool);
        let explode =
            if explode.unwrap_or(style == ParameterStyle::Form) { Explode::Yes } else { Explode::No };
        let binary = kind == BodyKind::Multipart && as_base64(property);
        fields.push(BodyField { name: name.clone(), style, explode, binary });
    }
    (schema, fields)
}

/// Changes the schema of a file, or of a list of files, to base64 text. Returns false for any other schema.
fn as_base64(property: &mut Value) -> bool {
    let inner = if property["type"] == "array" { property.get_mut("items") } else { Some(property) };
    let Some(Value::Object(inner)) = inner else { return false };
    let is_file = inner.get("format").is_some_and(|format| format == "binary")
        || inner.get("contentMediaType").is_some_and(|kind| kind == "application/octet-stream");
    if is_file {
        inner.remove("format");
        inner.remove("contentMediaType");
        inner.insert("contentEncoding".into(), json!("base64"));
        let own = inner.get("description").and_then(Value::as_str).unwrap_or("A file");
        let description = format!("{} (as base64)", own.trim_end_matches('.'));
        inner.insert("description".into(), json!(description));
    }
    is_file
}

fn field(name: &str, fields: &[BodyField]) -> BodyField {
    let known = fields.iter().find(|field| field.name == name).cloned();
    known.unwrap_or_else(|| BodyField {
        name: name.to_owned(),
        style: ParameterStyle::Form,
        explode: Explode::Yes,
        binary: false,
    })
}

/// Returns the fields as separate arguments, if these can express the same bodies: the schema is a plain object without
/// further keywords, and no field name is already used by another argument.
fn flat(
    kind: BodyKind,
    schema: &Value,
    needed: bool,
    taken: &Map<String, Value>,
) -> Option<(Map<String, Value>, Vec<String>)> {
    let members = schema.as_object()?;
    let plain = members.iter().all(|(key, value)| match key.as_str() {
        "type" => value == "object",
        "properties" | "required" | "description" => true,
        "additionalProperties" => *value == Value::Bool(false) || kind != BodyKind::Json,
        _ => false,
    });
    let properties = members.get("properties")?.as_object()?;
    let names = members.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: Vec<String> = names.filter_map(Value::as_str).map(str::to_owned).collect();
    let free = |name: &String| is_legal(name) && !taken.contains_key(name);
    let same = plain
        && !properties.is_empty()
        && properties.keys().all(free)
        && required.iter().all(|name| properties.contains_key(name))
        // Separate arguments cannot express an optional body with required fields: the call must give either none or
        // all of these fields.
        && (needed || required.is_empty())
        // Separate arguments cannot express a required body without required fields: a call without arguments would
        // send no body instead of `{}`.
        && !(needed && required.is_empty() && kind == BodyKind::Json);
    same.then(|| (properties.clone(), required))
}

fn free_name(taken: &Map<String, Value>) -> String {
    let names = ["body", "request_body", "request_body_content"];
    names.into_iter().find(|name| !taken.contains_key(*name)).unwrap_or("body").to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::documents;
    use super::*;

    fn described(media_type: &str, media: &Value, needed: bool, taken: &Value) -> DescribedBody {
        let operation = json!({ "requestBody": { "required": needed, "content": { media_type: media } } });
        let documents = documents(&json!({ "operation": operation }));
        let root = documents.root();
        let node = root.with(&root.value["operation"]);
        body(&node, &SchemaInliner::default(), taken.as_object().unwrap()).unwrap().unwrap()
    }

    fn object() -> Value {
        json!({"schema": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}, "b": {}}}})
    }

    #[test]
    fn body_fields_become_arguments_only_without_ambiguity() {
        let check = |media: &Value, needed: bool, taken: Value, expected: &[&str]| {
            let found = described("application/json", media, needed, &taken);
            let names: Vec<&str> = found.properties.keys().map(String::as_str).collect();
            assert_eq!(names, expected, "{media} {needed} {taken}");
        };
        check(&object(), true, json!({}), &["a", "b"]);
        check(&object(), false, json!({}), &["body"]);
        check(&object(), true, json!({"a": {}}), &["body"]);
        check(&object(), true, json!({"a": {}, "body": {}}), &["request_body"]);
        check(&json!({"schema": {"type": "array", "items": {}}}), true, json!({}), &["body"]);
        check(
            &json!({"schema": {"type": "object", "additionalProperties": true, "properties": {"a": {}}}}),
            false,
            json!({}),
            &["body"],
        );
        check(&json!({"schema": {"oneOf": [{}, {}]}}), true, json!({}), &["body"]);
        check(&json!({}), true, json!({}), &["body"]);
        check(
            &json!({"schema": {"type": "object", "properties": {"a[b]": {}}}}),
            false,
            json!({}),
            &["body"],
        );
    }

    #[test]
    fn content_type_selects_the_body_encoding() {
        let check = |media_type: &str, expected: BodyKind, sent: &str| {
            let found = described(media_type, &object(), true, &json!({}));
            assert_eq!((found.plan.kind, found.plan.media_type.as_str()), (expected, sent), "{media_type}");
        };
        check("application/json", BodyKind::Json, "application/json");
        check("application/vnd.x+json", BodyKind::Json, "application/vnd.x+json");
        check("*/*", BodyKind::Json, "application/json");
        check("application/x-www-form-urlencoded", BodyKind::Form, "application/x-www-form-urlencoded");
        check("multipart/form-data", BodyKind::Multipart, "multipart/form-data");
        check("text/plain", BodyKind::Text, "text/plain");
        check("application/xml", BodyKind::Text, "application/xml");
        check("application/octet-stream", BodyKind::Binary, "application/octet-stream");
        check("application/x-unheard-of", BodyKind::Binary, "application/x-unheard-of");
    }

    #[test]
    fn binary_body_fields_are_base64_arguments() {
        let media = json!({"schema": {"type": "object", "required": ["f"], "properties": {
            "f": {"type": "string", "format": "binary"},
            "l": {"type": "array", "items": {"type": "string", "format": "binary"}}, "t": {"type": "string"},
        }}});
        let found = described("multipart/form-data", &media, true, &json!({}));
        assert_eq!(found.properties["f"]["contentEncoding"], "base64");
        assert_eq!(found.properties["l"]["items"]["contentEncoding"], "base64");
        let BodyShape::Flat { fields } = found.plan.shape else { unreachable!("the body is not flat") };
        let binary: Vec<bool> = fields.iter().map(|field| field.binary).collect();
        assert_eq!(binary, [true, true, false]);
    }
}
