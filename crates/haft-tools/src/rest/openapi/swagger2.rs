//! Swagger 2.0, in the shape of `OpenAPI` 3. References keep working: what they lead to stays where it is.

use serde_json::{Map, Value, json};

use super::super::method::Method;

/// Rewrites a document of version 2.0; any other is left as it is.
pub(super) fn upgrade(document: &mut Value) {
    if document.get("swagger").and_then(Value::as_str).is_none_or(|version| !version.starts_with("2.")) {
        return;
    }
    let old = document.clone();
    let Some(root) = document.as_object_mut() else { return };
    root.remove("swagger");
    root.insert("openapi".into(), json!("3.0.3"));
    root.extend(servers(&old).map(|servers| ("servers".to_owned(), servers)));
    root.insert("components".into(), json!({ "securitySchemes": security_schemes(&old) }));
    let paths = root.get_mut("paths").and_then(Value::as_object_mut);
    for item in paths.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut) {
        path_item(item, &old);
    }
}

/// Without a host, the description's own; then the path alone is the server.
fn servers(old: &Value) -> Option<Value> {
    let path = old.get("basePath").and_then(Value::as_str).unwrap_or("");
    let schemes = old.get("schemes").and_then(Value::as_array);
    let scheme = match schemes.map(|schemes| schemes.contains(&json!("https"))) {
        Some(true) | None => "https",
        Some(false) => "http",
    };
    match old.get("host").and_then(Value::as_str) {
        Some(host) => Some(json!([{ "url": format!("{scheme}://{host}{path}") }])),
        None if path.is_empty() => None,
        None => Some(json!([{ "url": path }])),
    }
}

fn path_item(item: &mut Map<String, Value>, old: &Value) {
    let shared = item.remove("parameters");
    for method in Method::ALL {
        let operation = item.get_mut(&method.name().to_ascii_lowercase());
        if let Some(operation) = operation.and_then(Value::as_object_mut) {
            self::operation(operation, shared.as_ref(), old);
        }
    }
}

fn operation(operation: &mut Map<String, Value>, shared: Option<&Value>, old: &Value) {
    let listed = |key: &str| operation.get(key).or_else(|| old.get(key)).cloned().unwrap_or_default();
    let (consumes, produces) = (media_types(&listed("consumes")), media_types(&listed("produces")));
    let own = operation.get("parameters").and_then(Value::as_array).cloned().unwrap_or_default();
    let shared = shared.and_then(Value::as_array).cloned().unwrap_or_default();
    // Those of the path first: the operation's own replace them by name and place.
    let all: Vec<Value> = shared.into_iter().chain(own).map(|written| followed(written, old)).collect();
    let is = |written: &Value, place: &str| written.get("in").and_then(Value::as_str) == Some(place);
    let whole = all.iter().rfind(|written| is(written, "body"));
    let fields: Vec<&Value> = all.iter().filter(|written| is(written, "formData")).collect();
    let body = match whole {
        Some(written) => Some(whole_body(written, &consumes)),
        None if !fields.is_empty() => Some(form_body(&fields, &consumes)),
        None => None,
    };
    let rest = all.iter().filter(|written| !is(written, "body") && !is(written, "formData"));
    operation.insert("parameters".into(), rest.map(parameter).collect());
    operation.extend(body.map(|body| ("requestBody".to_owned(), body)));
    let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
    for response in responses.into_iter().flat_map(Map::values_mut) {
        *response = answer(followed(response.take(), old), &produces);
    }
}

/// What a reference within the document leads to; a reference to another file stays.
fn followed(written: Value, old: &Value) -> Value {
    let pointer =
        written.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    let target = pointer.and_then(|pointer| old.pointer(pointer)).cloned();
    target.unwrap_or(written)
}

fn media_types(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn whole_body(written: &Value, consumes: &[String]) -> Value {
    let default = ["application/json".to_owned()];
    let consumes = if consumes.is_empty() { &default } else { consumes };
    let schema = written.get("schema").cloned().unwrap_or_else(|| json!({}));
    json!({ "required": written.get("required") == Some(&json!(true)), "content": content(consumes, &schema) })
}

fn form_body(fields: &[&Value], consumes: &[String]) -> Value {
    let file = fields.iter().any(|field| field.get("type") == Some(&json!("file")));
    let multipart = file || consumes.iter().any(|kind| kind == "multipart/form-data");
    let kind = if multipart { "multipart/form-data" } else { "application/x-www-form-urlencoded" };
    let name = |field: &Value| field.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let properties: Map<String, Value> = fields.iter().map(|field| (name(field), schema_of(field))).collect();
    let required: Vec<String> =
        fields.iter().filter(|field| is_required(field)).map(|field| name(field)).collect();
    let encoding: Map<String, Value> = fields
        .iter()
        .filter_map(|field| {
            let (style, explode) = collection(field)?;
            Some((name(field), json!({ "style": style, "explode": explode })))
        })
        .collect();
    let needed = !required.is_empty();
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    json!({ "required": needed, "content": { kind: { "schema": schema, "encoding": encoding } } })
}

fn is_required(written: &Value) -> bool {
    written.get("required") == Some(&json!(true))
}

fn content(kinds: &[String], schema: &Value) -> Value {
    let media = kinds.iter().map(|kind| (kind.clone(), json!({ "schema": schema })));
    Value::Object(media.collect())
}

/// The type of a parameter stands at the parameter itself.
fn parameter(written: &Value) -> Value {
    if written.get("schema").is_some() || written.get("$ref").is_some() {
        return written.clone();
    }
    let mut new = json!({ "schema": schema_of(written) });
    for key in ["name", "in", "description", "required"] {
        if let Some(value) = written.get(key) {
            new[key] = value.clone();
        }
    }
    if let Some((style, explode)) = collection(written) {
        new["style"] = json!(style);
        new["explode"] = json!(explode);
    }
    new
}

fn schema_of(written: &Value) -> Value {
    let mut schema = written.as_object().cloned().unwrap_or_default();
    for key in ["name", "in", "required", "collectionFormat", "allowEmptyValue"] {
        schema.remove(key);
    }
    if schema.get("type") == Some(&json!("file")) {
        schema.insert("type".into(), json!("string"));
        schema.insert("format".into(), json!("binary"));
    }
    Value::Object(schema)
}

/// How a list is written; commas unless it says otherwise.
fn collection(written: &Value) -> Option<(&'static str, bool)> {
    if written.get("type") != Some(&json!("array")) {
        return None;
    }
    let query = matches!(written.get("in").and_then(Value::as_str), Some("query" | "formData"));
    Some(match written.get("collectionFormat").and_then(Value::as_str) {
        Some("multi") => ("form", true),
        Some("ssv") => ("spaceDelimited", false),
        Some("pipes") => ("pipeDelimited", false),
        Some(_) | None if query => ("form", false),
        Some(_) | None => ("simple", false),
    })
}

fn answer(mut written: Value, produces: &[String]) -> Value {
    let default = ["application/json".to_owned()];
    let produces = if produces.is_empty() { &default } else { produces };
    if let Some(schema) = written.as_object_mut().and_then(|members| members.remove("schema")) {
        written["content"] = content(produces, &schema);
    }
    written
}

fn security_schemes(old: &Value) -> Value {
    let mut schemes = old.get("securityDefinitions").cloned().unwrap_or_else(|| json!({}));
    for scheme in schemes.as_object_mut().into_iter().flat_map(Map::values_mut) {
        match scheme.get("type").and_then(Value::as_str) {
            Some("basic") => *scheme = json!({ "type": "http", "scheme": "basic" }),
            Some("oauth2") if scheme.get("flow") == Some(&json!("application")) => {
                let url = scheme.get("tokenUrl").cloned().unwrap_or_default();
                *scheme = json!({ "type": "oauth2", "flows": { "clientCredentials": { "tokenUrl": url } } });
            }
            Some(_) | None => {}
        }
    }
    schemes
}
