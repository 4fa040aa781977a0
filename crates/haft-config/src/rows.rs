//! The configuration as rows: every key with its value and origin.

use serde_json::{Map, Value};

use super::layers::{ConfigLayers, ConfigOrigin};
use super::position::child;
use super::renamed::OLD_NAME_OF;
use super::schema::{PASSED_OVER, schema};
use super::{duration, value_format};

/// One configuration key and its effective value.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigRow {
    pub key: String,
    /// The value; `None` if the key is not set and has no default.
    pub value: Option<Value>,
    pub unit: Option<String>,
    /// The position that set the value; `None` for a default.
    pub origin: Option<ConfigOrigin>,
}

/// Returns every key with a fixed name, and the keys that the files define.
pub(super) fn rows(layers: &ConfigLayers) -> Vec<ConfigRow> {
    let mut rows = Vec::new();
    fixed(schema(), &layers.value, "", layers, &mut rows);
    rows
}

/// Walks the schema and the values in parallel.
fn fixed(
    schema: &Value,
    values: &Map<String, Value>,
    path: &str,
    layers: &ConfigLayers,
    rows: &mut Vec<ConfigRow>,
) {
    let properties = schema["properties"].as_object().into_iter().flatten();
    for (key, property) in properties.filter(|(key, property)| is_listed(key, property)) {
        let (value, path) = (values.get(key), child(path, key));
        let none = Map::new();
        let inside = value.and_then(Value::as_object).unwrap_or(&none);
        if property["properties"].is_object() {
            fixed(property, inside, &path, layers, rows);
        } else if property["additionalProperties"].is_object() {
            add_operator_keys(&property["additionalProperties"], inside, &path, layers, rows);
        } else {
            rows.push(row(property, value, path, layers));
        }
    }
}

/// Adds the keys whose names the operator chose, such as server names. Inside each, only keys that are set or have a
/// default get a row.
fn add_operator_keys(
    schema: &Value,
    values: &Map<String, Value>,
    path: &str,
    layers: &ConfigLayers,
    rows: &mut Vec<ConfigRow>,
) {
    for (key, value) in values {
        let path = child(path, key);
        match value.as_object() {
            Some(inside) => {
                let from = rows.len();
                fixed(schema, inside, &path, layers, rows);
                let known = rows.split_off(from).into_iter().filter(|row| row.value.is_some());
                rows.extend(known);
            }
            None => rows.push(row(schema, Some(value), path, layers)),
        }
    }
}

/// Writes a duration as a person would write it in the file.
fn in_notation(value: Value, schema: &Value) -> Value {
    let is_duration = schema.as_object().is_some_and(value_format::is_duration);
    match value.as_u64().filter(|_| is_duration) {
        Some(millis) => duration::notation(millis).into(),
        None => value,
    }
}

fn is_listed(key: &str, property: &Value) -> bool {
    key != "$schema" && property.get(OLD_NAME_OF).is_none() && property.get(PASSED_OVER).is_none()
}

/// The text that `haft config show` prints in place of a secret value.
const HIDDEN: &str = "(hidden)";

fn row(schema: &Value, value: Option<&Value>, key: String, layers: &ConfigLayers) -> ConfigRow {
    let secret = schema["x-secret"] == true && value.is_some();
    let shown = || value.or_else(|| schema.get("default")).cloned();
    ConfigRow {
        value: if secret { Some(HIDDEN.into()) } else { shown().map(|value| in_notation(value, schema)) },
        unit: schema["x-unit"].as_str().map(str::to_owned),
        origin: value.and_then(|_| layers.origin(&key)).cloned(),
        key,
    }
}
