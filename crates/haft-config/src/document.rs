//! The list of keys in `docs/configuration.md`, generated from the schema. A test checks that the page is up to date.

use serde_json::Value;

use super::expected::expected;
use super::renamed::OLD_NAME_OF;
use super::schema::schema;

/// The maximum line length of `docs/configuration.md`.
const LINE_CHARS_MAX: usize = 110;

/// Builds the list in Markdown. A table is not used, because its rows could not be wrapped.
pub(super) fn key_list() -> String {
    keys().iter().map(entry).collect()
}

fn entry(key: &DocumentedKey) -> String {
    let values = key.values.replace('"', "`").replace("one of ", "");
    let unit = key.unit.as_deref().filter(|unit| !values.contains(*unit));
    let unit = unit.map_or_else(String::new, |unit| format!(", in {unit}"));
    let default = key.default.as_ref().map_or_else(String::new, |default| format!(", default `{default}`"));
    wrapped(&format!("- `{}` ({values}{unit}{default}): {}", key.path, key.description))
}

/// Wraps a list item, and indents all lines except the first.
fn wrapped(item: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in item.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > LINE_CHARS_MAX {
            text.push_str("\n  ");
            column = 2;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += width;
    }
    text.push('\n');
    text
}

/// A key of the configuration, as the page lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DocumentedKey {
    /// The path of the key. Names that the operator chooses are `<name>`, and list elements are `[]`.
    pub(super) path: String,
    pub(super) values: String,
    pub(super) default: Option<Value>,
    pub(super) unit: Option<String>,
    pub(super) description: String,
}

/// Returns every key, in the order of the schema.
pub(super) fn keys() -> Vec<DocumentedKey> {
    let mut keys = Vec::new();
    inner_keys(schema(), "", &mut keys);
    keys
}

fn inner_keys(schema: &Value, path: &str, keys: &mut Vec<DocumentedKey>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if property.get(OLD_NAME_OF).is_some() {
            continue;
        }
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect(property, &path, keys);
    }
}

fn collect(schema: &Value, path: &str, keys: &mut Vec<DocumentedKey>) {
    keys.push(key(schema, path));
    inner_keys(schema, path, keys);
    inner_keys(&schema["items"], &format!("{path}[]"), keys);
    inner_keys(&schema["additionalProperties"], &format!("{path}.<name>"), keys);
}

fn values(schema: &Value) -> String {
    let items = &schema["items"];
    let simple = items.is_object() && !items["properties"].is_object();
    if simple { list_of(&expected(items)) } else { expected(schema) }
}

/// Describes a list by the description of one item: "a path" becomes "a list of paths".
fn list_of(item: &str) -> String {
    if let Some(words) = item.strip_prefix("one of ") {
        return format!("a list with any of {words}");
    }
    let item = item.strip_prefix("a ").or_else(|| item.strip_prefix("an ")).unwrap_or(item);
    let (noun, clause) = item.split_at(item.find(" that ").unwrap_or(item.len()));
    format!("a list of {noun}s{clause}")
}

fn key(schema: &Value, path: &str) -> DocumentedKey {
    let text = |name: &str| schema[name].as_str().map(str::to_owned);
    DocumentedKey {
        path: path.to_owned(),
        values: values(schema),
        default: schema.get("default").cloned(),
        unit: text("x-unit"),
        description: text("description").unwrap_or_default(),
    }
}
