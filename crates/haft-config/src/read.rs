//! Checks the text of one file against the schema, and finds all errors in one pass.

use std::collections::BTreeMap;
use std::path::Path;

use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, ast, parse_to_ast};
use serde_json::{Map, Value};

use super::error::ConfigError;
use super::expand::VariableSource;
use super::expected::{expected, found};
use super::position::{Positions, child, item};
use super::renamed::{OLD_NAME_OF, OLD_UNIT_MS, OLD_WORDS};
use super::schema::{self, PASSED_OVER};
use super::value_format::{self, ANY_JSON, ValueContext, ValueFormat};
use super::{duration, printable};

/// The values of a file in their normal form, and the position of each key.
#[derive(Debug, Default)]
pub(super) struct ConfigLayer {
    pub(super) value: Map<String, Value>,
    pub(super) key_positions: BTreeMap<String, (usize, usize)>,
    /// Warnings about old names of keys and values in the file.
    pub(super) warnings: Vec<ConfigError>,
}

/// JSON with comments and trailing commas, and no other extensions: other programs read the same file.
const SYNTAX: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Reads the text of a file and checks it.
pub(super) fn read(
    file: &Path,
    text: &str,
    variables: VariableSource<'_>,
) -> Result<ConfigLayer, Vec<ConfigError>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let directory = file.parent().unwrap_or(Path::new("/"));
    let mut reader = ConfigFileReader {
        file,
        around: ValueContext { directory, variables },
        positions: Positions::new(text),
        key_positions: BTreeMap::new(),
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    let value = match parse_to_ast(text, &CollectOptions::default(), &SYNTAX) {
        Ok(parsed) => parsed.value,
        Err(error) => {
            reader.wrong(error.range().start, "", &syntax_error(&error));
            return Err(reader.errors);
        }
    };
    match value {
        Some(ast::Value::Object(object)) => {
            let value = reader.object(&object, schema::schema(), "");
            if reader.errors.is_empty() {
                Ok(ConfigLayer { value, key_positions: reader.key_positions, warnings: reader.warnings })
            } else {
                Err(reader.errors)
            }
        }
        Some(other) => {
            reader.wrong(other.start(), "", &format!("expected a JSON object; found {}", found(&other)));
            Err(reader.errors)
        }
        None => {
            reader.wrong(0, "", "the file is empty; expected a JSON object, at least {}");
            Err(reader.errors)
        }
    }
}

fn syntax_error(error: &jsonc_parser::errors::ParseError) -> String {
    let mut sentence = error.kind().to_string();
    if let Some(first) = sentence.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    sentence
}

struct ConfigFileReader<'a> {
    file: &'a Path,
    around: ValueContext<'a>,
    positions: Positions<'a>,
    key_positions: BTreeMap<String, (usize, usize)>,
    errors: Vec<ConfigError>,
    warnings: Vec<ConfigError>,
}

impl ConfigFileReader<'_> {
    fn value(&mut self, node: &ast::Value<'_>, schema: &Value, path: &str) -> Value {
        if schema.get(ANY_JSON).is_some() {
            return self.any(node, path);
        }
        match (node, schema["type"].as_str()) {
            (ast::Value::Object(object), Some("object")) => Value::Object(self.object(object, schema, path)),
            (ast::Value::Array(array), Some("array")) => self.list(array, schema, path),
            (node, _) => self.leaf(node, schema, path),
        }
    }

    fn object(&mut self, object: &ast::Object<'_>, schema: &Value, path: &str) -> Map<String, Value> {
        let begins = self.positions.at(object.start());
        let mut members = Map::new();
        for property in &object.properties {
            let (written, at) = (property.name.as_str(), property.start());
            let Some((key, inner)) = self.known(written, at, schema, path) else { continue };
            let inner_path = child(path, key);
            if let Some(first) =
                members.contains_key(key).then(|| self.key_positions.get(&inner_path)).flatten()
            {
                let message = format!("duplicate key; the same key is already in line {}", first.0);
                self.wrong(at, &inner_path, &message);
                continue;
            }
            let position = self.positions.at(at);
            self.key_positions.insert(inner_path.clone(), position);
            let value = self.value(&property.value, inner, &inner_path);
            let in_ms =
                |unit_ms: u64| value.as_u64().map(|number| Value::from(number.saturating_mul(unit_ms)));
            let in_ms = inner[OLD_UNIT_MS].as_u64().and_then(in_ms);
            members.insert(key.to_owned(), in_ms.unwrap_or(value));
        }
        for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(required) {
                self.push(begins, path, format!("the required key `{required}` is missing"), None);
            }
        }
        members
    }

    /// Returns the canonical key and its schema. For an unknown key, reports an error that suggests the most similar
    /// known key.
    fn known<'s>(
        &mut self,
        written: &'s str,
        at: usize,
        schema: &'s Value,
        path: &str,
    ) -> Option<(&'s str, &'s Value)> {
        if let Some(inner) = schema["properties"].get(written) {
            if inner.get(PASSED_OVER).is_some() {
                return None;
            }
            let Some(new) = inner[OLD_NAME_OF].as_str() else { return Some((written, inner)) };
            self.warn(
                at,
                &child(path, written),
                format!("the key `{written}` was renamed to `{new}`; use the new name"),
            );
            return Some((new, inner));
        }
        let inner_path = child(path, &printable::excerpt(written));
        if schema["additionalProperties"].is_object() {
            let format = schema["propertyNames"].as_object().and_then(ValueFormat::of);
            if let Some(Err(message)) = format.map(|format| (format.read)(written, self.around)) {
                self.wrong(at, &inner_path, &message);
                return None;
            }
            return Some((written, &schema["additionalProperties"]));
        }
        let known = schema["properties"].as_object().into_iter().flatten();
        let known = known
            .filter(|(_, inner)| inner.get(PASSED_OVER).is_none() && inner.get(OLD_NAME_OF).is_none())
            .map(|(key, _)| key);
        let known = known.filter(|_| self.errors.len() < HINTS_MAX);
        let hint = nearest(written, known).map(|key| format!("did you mean `{key}`?"));
        let position = self.positions.at(at);
        self.push(position, &inner_path, "unknown key".into(), hint);
        None
    }

    fn list(&mut self, array: &ast::Array<'_>, schema: &Value, path: &str) -> Value {
        let mut values = Vec::with_capacity(array.elements.len());
        for (index, element) in array.elements.iter().enumerate() {
            let inner_path = item(path, index);
            let position = self.positions.at(element.start());
            self.key_positions.insert(inner_path.clone(), position);
            values.push(self.value(element, &schema["items"], &inner_path));
        }
        Value::Array(values)
    }

    /// Keeps a JSON value that haft does not interpret.
    fn any(&mut self, node: &ast::Value<'_>, path: &str) -> Value {
        any(node, ANY_DEPTH_MAX).unwrap_or_else(|| {
            self.wrong(
                node.start(),
                path,
                &format!("expected a JSON value at most {ANY_DEPTH_MAX} levels deep"),
            );
            Value::Null
        })
    }

    /// Reads a value that contains no other values.
    fn leaf(&mut self, node: &ast::Value<'_>, schema: &Value, path: &str) -> Value {
        let format = schema.as_object().and_then(ValueFormat::of);
        self.warn_of_missing_unit(node, schema, path);
        if let (ast::Value::StringLit(text), Some(format)) = (node, format) {
            return (format.read)(&text.value, self.around).unwrap_or_else(|message| {
                self.wrong(node.start(), path, &message);
                Value::Null
            });
        }
        let renamed = |text: &ast::StringLit<'_>| {
            Some((text.value.to_string(), schema[OLD_WORDS].get(text.value.as_ref())?))
        };
        if let Some((old, new)) = node.as_string_lit().and_then(renamed) {
            self.warn(
                node.start(),
                path,
                format!("the value `{old}` was renamed to {new}; use the new value"),
            );
            return new.clone();
        }
        plain(node).filter(|value| fits(value, schema)).unwrap_or_else(|| {
            let message = format!("expected {}; found {}", expected(schema), found(node));
            let hint = nearest_word(node, schema);
            let position = self.positions.at(node.start());
            self.push(position, path, message, hint);
            Value::Null
        })
    }

    /// Warns about a number without a unit. On the command line such a number is in seconds, in a file it is in
    /// milliseconds, so a reader of the file may misread it.
    fn warn_of_missing_unit(&mut self, node: &ast::Value<'_>, schema: &Value, path: &str) {
        let written: &str = match node {
            ast::Value::NumberLit(number) => number.value,
            ast::Value::StringLit(text) => &text.value,
            _ => return,
        };
        // Skip a key with an old name, such as `requestTimeoutMs`: haft already warns about the old name, and the name
        // contains the unit.
        let is_old = schema.get(OLD_NAME_OF).is_some();
        if is_old || !schema.as_object().is_some_and(value_format::is_duration) {
            return;
        }
        if let Some(millis) = written.parse::<u64>().ok().filter(|millis| *millis > 0) {
            let notation = duration::notation(millis);
            self.warn(
                node.start(),
                path,
                format!("the duration `{millis}` has no unit and means milliseconds; write \"{notation}\""),
            );
        }
    }

    fn warn(&mut self, offset: usize, path: &str, message: String) {
        let (file, at) = (self.file.to_owned(), Some(self.positions.at(offset)));
        self.warnings.push(ConfigError { file, at, key: path.to_owned(), message, hint: None });
    }

    fn wrong(&mut self, offset: usize, path: &str, message: &str) {
        let position = self.positions.at(offset);
        self.push(position, path, message.to_owned(), None);
    }

    fn push(&mut self, position: (usize, usize), path: &str, message: String, hint: Option<String>) {
        let (file, key) = (self.file.to_owned(), path.to_owned());
        self.errors.push(ConfigError { file, at: Some(position), key, message, hint });
    }
}

/// The maximum nesting depth of a value that haft does not interpret.
pub(super) const ANY_DEPTH_MAX: usize = 64;

/// Returns a value that haft does not interpret; `None` if it is nested deeper than `depth`.
pub(super) fn any(node: &ast::Value<'_>, depth: usize) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    match node {
        ast::Value::StringLit(text) => Some(Value::from(text.value.as_ref())),
        ast::Value::NumberLit(number) => serde_json::from_str(number.value).ok(),
        ast::Value::BooleanLit(flag) => Some(Value::from(flag.value)),
        ast::Value::NullKeyword(_) => Some(Value::Null),
        ast::Value::Array(array) => array
            .elements
            .iter()
            .map(|element| any(element, depth))
            .collect::<Option<Vec<_>>>()
            .map(Value::Array),
        ast::Value::Object(object) => {
            let member = |property: &ast::ObjectProp<'_>| {
                Some((property.name.as_str().to_owned(), any(&property.value, depth)?))
            };
            object.properties.iter().map(member).collect::<Option<Map<_, _>>>().map(Value::Object)
        }
    }
}

fn plain(node: &ast::Value<'_>) -> Option<Value> {
    match node {
        ast::Value::StringLit(text) => Some(Value::from(text.value.as_ref())),
        ast::Value::NumberLit(number) => number_of(number.value),
        ast::Value::BooleanLit(flag) => Some(Value::from(flag.value)),
        ast::Value::Object(_) | ast::Value::Array(_) | ast::Value::NullKeyword(_) => None,
    }
}

fn number_of(text: &str) -> Option<Value> {
    let whole = text.parse::<u64>().ok().map(Value::from);
    whole.or_else(|| text.parse::<f64>().ok().filter(|number| *number >= 0.0).map(Value::from))
}

fn fits(value: &Value, schema: &Value) -> bool {
    let of_type = |name: &Value| match value {
        Value::String(_) => name == "string",
        Value::Number(number) => name == "number" || name == "integer" && number.is_u64(),
        Value::Bool(_) => name == "boolean",
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    };
    let typed = match &schema["type"] {
        Value::Array(names) => names.iter().any(of_type),
        name => of_type(name),
    };
    let in_range = value.as_u64().is_none_or(|number| {
        number >= schema["minimum"].as_u64().unwrap_or(0)
            && number <= schema["maximum"].as_u64().unwrap_or(u64::MAX)
    });
    typed && in_range && schema["enum"].as_array().is_none_or(|words| words.contains(value))
}

fn nearest_word(node: &ast::Value<'_>, schema: &Value) -> Option<String> {
    let written = node.as_string_lit()?;
    let words = schema["enum"].as_array()?.iter().filter_map(Value::as_str);
    nearest(&written.value, words).map(|word| format!("did you mean \"{word}\"?"))
}

/// The maximum number of errors with hints. After this many errors the file is probably not a configuration, and hints
/// only cost time.
const HINTS_MAX: usize = 100;

/// The maximum length of a text that is compared with keys, in bytes. No key is this long.
const WRITTEN_BYTES_MAX: usize = 128;

/// The minimum similarity (0 to 1) of a suggestion.
const SIMILARITY_MIN: f64 = 0.6;

/// Returns the known key that is most similar to the written one.
pub fn nearest<'k, K: AsRef<str> + ?Sized + 'k>(
    written: &str,
    known: impl Iterator<Item = &'k K>,
) -> Option<&'k K> {
    if written.len() > WRITTEN_BYTES_MAX {
        return None;
    }
    let written = written.to_ascii_lowercase().replace(['-', '_'], "");
    known
        .map(|key| {
            (strsim::normalized_damerau_levenshtein(&key.as_ref().to_ascii_lowercase(), &written), key)
        })
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        // Of equally similar words, use the first: words are listed from the most restrictive to the most permissive.
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map(|(_, key)| key)
}

#[cfg(test)]
mod tests;
