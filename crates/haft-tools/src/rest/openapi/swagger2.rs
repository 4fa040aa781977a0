//! Converts Swagger 2.0 to `OpenAPI` 3. Leaves the targets of references in place, so that references stay valid.

use serde_json::{Map, Value, json};

use haft_core::settings::method::Method;

/// Converts a document of version 2.0; leaves other versions unchanged.
pub(super) fn upgrade(document: &mut Value) {
    if document.get("swagger").and_then(Value::as_str).is_none_or(|version| !version.starts_with("2.")) {
        return;
    }
    let Some(root) = document.as_object_mut() else { return };
    // Remove the paths from the document, so that the rest can be borrowed; a clone would double the memory.
    let mut paths = root.remove("paths").unwrap_or_default();
    root.remove("swagger");
    root.insert("openapi".into(), json!("3.0.3"));
    let old = &*document;
    for item in paths.as_object_mut().into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut) {
        path_item(item, old);
    }
    let (servers, schemes) = (servers(old), security_schemes(old));
    let Some(root) = document.as_object_mut() else { return };
    root.insert("paths".into(), paths);
    root.extend(servers.map(|servers| ("servers".to_owned(), servers)));
    root.insert("components".into(), json!({ "securitySchemes": schemes }));
}

/// Returns the servers. Without `host`, the server is `basePath` on the host of the document.
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
    let listed = |key: &str| media_type(operation.get(key).or_else(|| old.get(key))).to_owned();
    let (consumes, produces) = (listed("consumes"), listed("produces"));
    let own = operation.remove("parameters");
    // The parameters of the path come first, because the operation's own parameters override them by name and location.
    let all = [shared, own.as_ref()].into_iter().flatten().filter_map(Value::as_array).flatten();
    let all: Vec<InlineOrReference<'_>> = all.map(|written| InlineOrReference::of(written, old)).collect();
    let fields: Vec<&InlineOrReference<'_>> =
        all.iter().filter(|written| written.is_in("formData")).collect();
    let body = match all.iter().rfind(|written| written.is_in("body")) {
        Some(written) => Some(written.whole_body(&consumes)),
        None if !fields.is_empty() => Some(form_body(&fields, &consumes)),
        None => None,
    };
    let rest = all.iter().filter(|written| !written.is_in("body") && !written.is_in("formData"));
    let rest: Value = rest.map(InlineOrReference::parameter).collect();
    let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
    for response in responses.into_iter().flat_map(Map::values_mut) {
        *response = InlineOrReference::of(response, old).answer(&produces);
    }
    operation.insert("parameters".into(), rest);
    operation.extend(body.map(|body| ("requestBody".to_owned(), body)));
}

/// A parameter or response that is either inline or a reference. The target of a reference is never copied, because a
/// thousand references may point to one large value.
struct InlineOrReference<'a> {
    here: &'a Value,
    reference: Option<&'a str>,
    value: &'a Value,
}

impl<'a> InlineOrReference<'a> {
    /// Resolves a reference within the document. Keeps a reference to another file, or to a value below `paths`.
    fn of(here: &'a Value, old: &'a Value) -> Self {
        let reference = here.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| old.pointer(reference.strip_prefix('#')?));
        Self { here, reference: reference.filter(|_| target.is_some()), value: target.unwrap_or(here) }
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.value.get(key).and_then(Value::as_str)
    }

    fn is_in(&self, place: &str) -> bool {
        self.text("in") == Some(place)
    }

    fn is_required(&self) -> bool {
        self.value.get("required") == Some(&Value::Bool(true))
    }

    /// Returns the value of `schema`, or a reference to it.
    fn schema(&self) -> Option<Value> {
        let schema = self.value.get("schema")?;
        Some(match self.reference {
            Some(reference) => json!({ "$ref": format!("{reference}/schema") }),
            None => schema.clone(),
        })
    }

    /// Returns the schema of a parameter whose type is on the parameter itself.
    fn own_schema(&self) -> Value {
        match (self.text("type"), self.reference) {
            (Some("file"), _) => {
                json!({ "type": "string", "format": "binary", "description": self.description() })
            }
            (_, Some(reference)) => json!({ "$ref": reference }),
            (_, None) => {
                let mut schema = self.value.as_object().cloned().unwrap_or_default();
                for key in ["name", "in", "required", "collectionFormat", "allowEmptyValue"] {
                    schema.remove(key);
                }
                Value::Object(schema)
            }
        }
    }

    fn description(&self) -> Option<String> {
        self.text("description").map(|text| text.chars().take(DESCRIPTION_CHARS_MAX).collect())
    }

    fn whole_body(&self, consumes: &str) -> Value {
        let schema = self.schema().unwrap_or_else(|| json!({}));
        json!({ "required": self.is_required(), "content": { consumes: { "schema": schema } } })
    }

    fn parameter(&self) -> Value {
        if self.value.get("schema").is_some() || self.value.get("$ref").is_some() {
            return self.here.clone();
        }
        let mut new = json!({ "schema": self.own_schema(), "required": self.is_required() });
        for key in ["name", "in"] {
            if let Some(text) = self.text(key) {
                new[key] = json!(text);
            }
        }
        if let Some(text) = self.description() {
            new["description"] = json!(text);
        }
        if let Some((style, explode)) = self.collection() {
            new["style"] = json!(style);
            new["explode"] = json!(explode);
        }
        new
    }

    /// Returns `style` and `explode` of a list: commas, unless `collectionFormat` names another format.
    fn collection(&self) -> Option<(&'static str, bool)> {
        if self.text("type") != Some("array") {
            return None;
        }
        let query = self.is_in("query") || self.is_in("formData");
        Some(match self.text("collectionFormat") {
            Some("multi") => ("form", true),
            Some("ssv") => ("spaceDelimited", false),
            Some("pipes") => ("pipeDelimited", false),
            Some(_) | None if query => ("form", false),
            Some(_) | None => ("simple", false),
        })
    }

    fn answer(&self, produces: &str) -> Value {
        match self.schema() {
            Some(schema) => {
                json!({ "description": self.description(), "content": { produces: { "schema": schema } } })
            }
            None => self.here.clone(),
        }
    }
}

/// The maximum number of characters of a description that the conversion copies; the model sees fewer.
const DESCRIPTION_CHARS_MAX: usize = 2_000;

const JSON: &str = "application/json";

/// Returns JSON if the list contains it, otherwise the first content type; only one can be sent or requested.
fn media_type(list: Option<&Value>) -> &str {
    let mut all = list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let first = all.clone().next().unwrap_or(JSON);
    all.find(|kind| *kind == JSON || kind.ends_with("+json")).unwrap_or(first)
}

fn form_body(fields: &[&InlineOrReference<'_>], consumes: &str) -> Value {
    let file = fields.iter().any(|field| field.text("type") == Some("file"));
    let multipart = file || consumes == "multipart/form-data";
    let kind = if multipart { "multipart/form-data" } else { "application/x-www-form-urlencoded" };
    let name = |field: &InlineOrReference<'_>| field.text("name").unwrap_or_default().to_owned();
    let properties: Map<String, Value> =
        fields.iter().map(|field| (name(field), field.own_schema())).collect();
    let required: Vec<String> =
        fields.iter().filter(|field| field.is_required()).map(|field| name(field)).collect();
    let encoding: Map<String, Value> = fields
        .iter()
        .filter_map(|field| {
            let (style, explode) = field.collection()?;
            Some((name(field), json!({ "style": style, "explode": explode })))
        })
        .collect();
    let needed = !required.is_empty();
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    json!({ "required": needed, "content": { kind: { "schema": schema, "encoding": encoding } } })
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
