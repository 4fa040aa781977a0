//! Values that stand for something else: models write `"5"` for `5`, `"[1]"` for `[1]`, and `null` for what they leave out.
//!
//! A string is replaced, by the JSON it holds, only where the schema complains about it, and so is a null taken out of its
//! object. Nothing is changed at all unless the schema accepts the whole afterwards: no value that fits is ever touched,
//! and what is required is not left out.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::Location;
use serde_json::Value;

use super::{ALL_COMPLAINTS_BYTES_MAX, CheckedSchema, complaint};
use crate::arguments::ARGUMENTS_DEPTH_MAX;

/// What was inside a string may hold strings of the same kind; so often is looked.
const ROUNDS_MAX: usize = 4;

/// With more places to change than this, the value is wrong in another way.
const PLACES_MAX: usize = 64;

/// What the schema accepts, and where it differs from what was written.
pub(super) struct Retyped {
    pub(super) value: Value,
    pub(super) places: Vec<String>,
}

/// `None` when that does not help.
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

/// Where the schema complains about a string or a null, each place once.
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
    let new = found.len() <= PLACES_MAX && !found.contains(error.instance_path());
    match error.kind() {
        // What cannot be null there may be meant to be absent, whatever the complaint.
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

/// Whether something stood there that stands for something else.
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

/// Takes a member out of its object; an item of a list has its place and stays.
fn leave_out(value: &mut Value, pointer: &str) -> bool {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return false };
    let name = name.replace("~1", "/").replace("~0", "~");
    let object = value.pointer_mut(parent).and_then(Value::as_object_mut);
    object.is_some_and(|object| object.remove(&name).is_some())
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
