//! The JSON Schema of `haft.json`, generated from `written.rs`.

use std::sync::LazyLock;

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::{Map, Value, json};

use super::value_format::{self, ANY_JSON};
use super::written::RawConfig;
use super::{duration, renamed};

/// Returns the schema. All subschemas are inlined, so that code that reads it need not follow references.
pub fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(make);
    &SCHEMA
}

fn make() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<RawConfig>();
    schema.insert("title".into(), json!("haft.json"));
    RecursiveTransform(refine).transform(&mut schema);
    let mut schema = schema.to_value();
    renamed::add_old_names(&mut schema);
    schema
}

/// Removes details of the derived schema that only a deserializer needs: that an absent key may be null, and the bit
/// width of a number.
fn refine(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    if let Some(types) = object.get_mut("type") {
        one_type(types);
    }
    if let Some(Value::Array(words)) = object.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    if object.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
        object.remove("format");
    }
    if value_format::is_duration(object) {
        write_default_as_duration(object);
    }
    // If `PASSED_OVER` is on a single key, keep it there. If it is on an object, it is a list of keys: remove it, and
    // add each of these keys to the properties as an ignored key.
    let is_list = object.get(PASSED_OVER).is_some_and(Value::is_array);
    let passed_over = is_list.then(|| object.remove(PASSED_OVER)).flatten();
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        add_ignored_keys(properties, passed_over.as_ref());
    }
}

/// Writes the default of a duration as a person would write it in the file: five minutes as `5m`, not as 300000.
fn write_default_as_duration(object: &mut Map<String, Value>) {
    object.remove("x-unit");
    if let Some(millis) = object.get("default").and_then(Value::as_u64) {
        object.insert("default".into(), json!(duration::notation(millis)));
    }
}

/// Marks a key that belongs to other programs, which haft accepts and ignores. On an object, the mark is the list of
/// such keys.
pub(super) const PASSED_OVER: &str = "x-passed-over";

fn add_ignored_keys(properties: &mut Map<String, Value>, keys: Option<&Value>) {
    let keys = keys.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let schema = json!({ "description": "Data for other programs; haft ignores this key", ANY_JSON: true, PASSED_OVER: true });
    properties.extend(keys.map(|key| (key.to_owned(), schema.clone())));
}

fn one_type(types: &mut Value) {
    let Value::Array(names) = types else { return };
    names.retain(|name| name != "null");
    if let [only] = names.as_slice() {
        *types = only.clone();
    }
}
