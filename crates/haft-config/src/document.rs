//! The table of keys in `docs/configuration.md`, generated from the schema. A test keeps the document equal to it.

use std::fmt::Write;

use serde_json::Value;

use super::expected::expected;
use super::schema::schema;

/// Builds the table, in Markdown.
pub(super) fn table() -> String {
    let mut table = String::from("| key | value | default | unit | |\n|---|---|---|---|---|\n");
    for key in keys() {
        let default = key.default.map_or_else(String::new, |default| format!("`{default}`"));
        let unit = key.unit.unwrap_or_default();
        let values = key.values.replace('"', "`").replace("one of ", "");
        let _ = writeln!(table, "| `{}` | {values} | {default} | {unit} | {} |", key.path, key.description);
    }
    table
}

/// A key of the configuration, as the document lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// The path of the key; names that the operator chooses are `<name>`, elements of lists `[]`.
    pub(super) path: String,
    pub(super) values: String,
    pub(super) default: Option<Value>,
    pub(super) unit: Option<String>,
    pub(super) description: String,
}

/// Returns every key, in the order of the schema.
pub(super) fn keys() -> Vec<Key> {
    let mut keys = Vec::new();
    inner_keys(schema(), "", &mut keys);
    keys
}

fn inner_keys(schema: &Value, path: &str, keys: &mut Vec<Key>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect(property, &path, keys);
    }
}

fn collect(schema: &Value, path: &str, keys: &mut Vec<Key>) {
    keys.push(key(schema, path));
    inner_keys(schema, path, keys);
    inner_keys(&schema["items"], &format!("{path}[]"), keys);
    inner_keys(&schema["additionalProperties"], &format!("{path}.<name>"), keys);
}

fn values(schema: &Value) -> String {
    let simple = schema["items"].is_object() && !schema["items"]["properties"].is_object();
    let of_items = simple.then(|| format!(", each {}", expected(&schema["items"])));
    format!("{}{}", expected(schema), of_items.unwrap_or_default())
}

fn key(schema: &Value, path: &str) -> Key {
    let text = |name: &str| schema[name].as_str().map(str::to_owned);
    Key {
        path: path.to_owned(),
        values: values(schema),
        default: schema.get("default").cloned(),
        unit: text("x-unit"),
        description: text("description").unwrap_or_default(),
    }
}
