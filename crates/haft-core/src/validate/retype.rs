//! Strings that stand for something else: models write `"5"` for `5` and `"[1]"` for `[1]`.
//!
//! A string is replaced only where the schema complains about it, by the JSON it holds, and nothing is replaced at all
//! unless the schema accepts the whole afterwards. So no value that fits is ever touched.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::Location;
use serde_json::Value;

use super::{ALL_COMPLAINTS_BYTES_MAX, CheckedSchema, complaint};
use crate::arguments::ARGUMENTS_DEPTH_MAX;

/// What was inside a string may hold strings of the same kind; so often is looked.
const ROUNDS_MAX: usize = 4;

/// With more strings to replace than this, the arguments are wrong in another way.
const PLACES_MAX: usize = 64;

/// What the schema accepts, and where it differs from what was written.
pub(super) struct Retyped {
    pub(super) value: Value,
    pub(super) places: Vec<String>,
}

/// `None` when replacing strings does not help.
pub(super) fn retype(schema: &CheckedSchema, written: &Value, bytes: usize) -> Option<Retyped> {
    let mut value = written.clone();
    let mut places = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let found = suspects(schema, &value, bytes);
        if places.len() + found.len() > PLACES_MAX {
            return None;
        }
        let before = places.len();
        for location in found {
            if replace(&mut value, &location) {
                places.push(complaint::place(&location));
            }
        }
        // What was inside the strings counts like what was outside.
        let bearable = super::is_within(&value, ARGUMENTS_DEPTH_MAX)
            && schema.cost.is_bearable(&schema.written, &value, bytes);
        if places.len() == before || !bearable {
            return None;
        }
        if schema.validator.is_valid(&value) {
            return Some(Retyped { value, places });
        }
    }
    None
}

/// Where the schema complains about a string, each place once.
fn suspects(schema: &CheckedSchema, value: &Value, bytes: usize) -> Vec<Location> {
    let mut found = Vec::new();
    if bytes > ALL_COMPLAINTS_BYTES_MAX {
        schema.validator.validate(value).err().iter().for_each(|error| look(error, &mut found));
    } else {
        schema.validator.iter_errors(value).for_each(|error| look(&error, &mut found));
    }
    found
}

fn look(error: &ValidationError<'_>, found: &mut Vec<Location>) {
    match error.kind() {
        ValidationErrorKind::Type { .. }
        | ValidationErrorKind::Enum { .. }
        | ValidationErrorKind::Constant { .. } => {
            let new = found.len() <= PLACES_MAX && !found.contains(error.instance_path());
            found.extend((new && error.instance().is_string()).then(|| error.instance_path().clone()));
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            context.iter().flatten().for_each(|inner| look(inner, found));
        }
        _ => {}
    }
}

/// Whether a string stood there that holds something else than a string.
fn replace(value: &mut Value, location: &Location) -> bool {
    let Some(place) = value.pointer_mut(location.as_str()) else { return false };
    match place.as_str().and_then(meant) {
        Some(meant) => {
            *place = meant;
            true
        }
        None => false,
    }
}

/// What a string says that is not meant as a string.
fn meant(text: &str) -> Option<Value> {
    match text.trim() {
        // As Python writes them.
        "True" => Some(Value::Bool(true)),
        "False" => Some(Value::Bool(false)),
        "None" => Some(Value::Null),
        text => serde_json::from_str(text)
            .ok()
            .filter(|value: &Value| !value.is_string() && !is_rounded(value, text)),
    }
}

/// An integer with more digits than a number keeps would come out as another one; it may be an identifier.
fn is_rounded(value: &Value, text: &str) -> bool {
    value.is_f64() && !text.contains(['.', 'e', 'E'])
}
