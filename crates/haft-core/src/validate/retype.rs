//! Corrects values of the wrong type: models write `"5"` for `5`, `"[1]"` for `[1]`, and `null` for a parameter that
//! they omit.
//!
//! A string is replaced by the JSON it holds, and a null is removed from its object, only if the schema rejects that
//! value. The corrections are used only if the schema then accepts the whole value. A valid value therefore never
//! changes, and a required parameter is never removed.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::Location;
use serde_json::Value;

use super::{ALL_COMPLAINTS_BYTES_MAX, CheckedSchema, error_text};
use crate::arguments::ARGUMENTS_DEPTH_MAX;

/// The maximum number of passes. A parsed string may contain strings that must be parsed too.
const ROUNDS_MAX: usize = 4;

/// The maximum number of corrections. If more values are wrong, the arguments have a different problem.
const PLACES_MAX: usize = 64;

/// A value that the schema accepts, and the paths of the corrections.
pub(super) struct CoercedValue {
    pub(super) value: Value,
    pub(super) places: Vec<String>,
}

/// Corrects a value. Returns `None` if the corrections do not make it valid.
pub(super) fn retype(schema: &CheckedSchema, written: &Value, bytes: usize) -> Option<CoercedValue> {
    let mut value = written.clone();
    let mut places = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let found = rejected_locations(schema, &value, bytes);
        if places.len() + found.len() > PLACES_MAX {
            return None;
        }
        let before = places.len();
        for location in found {
            if replace(&mut value, &location) {
                places.push(error_text::place(&location));
            }
        }
        // JSON from inside of strings has not passed the limits on depth and validation cost yet.
        let bearable = super::is_within(&value, ARGUMENTS_DEPTH_MAX)
            && schema.cost.is_within_step_limit(&schema.written, &value, bytes);
        if places.len() == before || !bearable {
            return None;
        }
        if schema.validator.is_valid(&value) {
            return Some(CoercedValue { value, places });
        }
    }
    None
}

/// Returns the paths of the strings and nulls that the schema rejects, without duplicates.
fn rejected_locations(schema: &CheckedSchema, value: &Value, bytes: usize) -> Vec<Location> {
    let mut found = Vec::new();
    if bytes > ALL_COMPLAINTS_BYTES_MAX {
        schema.validator.validate(value).err().iter().for_each(|error| look(error, &mut found));
    } else {
        schema.validator.iter_errors(value).for_each(|error| look(&error, &mut found));
    }
    found
}

fn look(error: &ValidationError<'_>, found: &mut Vec<Location>) {
    let new = found.len() <= PLACES_MAX && !found.contains(error.instance_path());
    match error.kind() {
        // For any kind of error, an invalid null may mean an omitted parameter.
        _ if error.instance().is_null() => found.extend(new.then(|| error.instance_path().clone())),
        ValidationErrorKind::Type { .. }
        | ValidationErrorKind::Enum { .. }
        | ValidationErrorKind::Constant { .. } => {
            found.extend((new && error.instance().is_string()).then(|| error.instance_path().clone()));
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            context.iter().flatten().for_each(|inner| look(inner, found));
        }
        _ => {}
    }
}

/// Corrects the value at a path. Returns false if the value needs no correction or has none.
fn replace(value: &mut Value, location: &Location) -> bool {
    let Some(place) = value.pointer_mut(location.as_str()) else { return false };
    match place {
        Value::Null => leave_out(value, location.as_str()),
        Value::String(text) => match meant(text) {
            Some(meant) => {
                *place = meant;
                true
            }
            None => false,
        },
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Removes a member from its object. Does not remove list items, because the positions of the others would shift.
fn leave_out(value: &mut Value, pointer: &str) -> bool {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return false };
    let name = name.replace("~1", "/").replace("~0", "~");
    let object = value.pointer_mut(parent).and_then(Value::as_object_mut);
    object.is_some_and(|object| object.remove(&name).is_some())
}

/// Returns the JSON value in a string, if the model did not mean a string.
fn meant(text: &str) -> Option<Value> {
    match text.trim() {
        // Models that know Python well write its literals in place of the JSON ones.
        "True" => Some(Value::Bool(true)),
        "False" => Some(Value::Bool(false)),
        "None" => Some(Value::Null),
        text => serde_json::from_str(text)
            .ok()
            .filter(|value: &Value| !value.is_string() && !is_rounded(value, text)),
    }
}

/// Returns true for an integer with too many digits for a JSON number. It may be an identifier, and converting it would
/// change its value.
fn is_rounded(value: &Value, text: &str) -> bool {
    value.is_f64() && !text.contains(['.', 'e', 'E'])
}
