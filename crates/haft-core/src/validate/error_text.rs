//! The messages about invalid arguments: one sentence per error, for the model that sent the arguments.

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::paths::{Location, LocationSegment};
use serde_json::Value;

/// The maximum number of characters of a wrong value or name that a message shows.
const EXCERPT_CHARS_MAX: usize = 60;
const LISTED_MAX: usize = 20;
const FORMS_MAX: usize = 5;
const MESSAGE_CHARS_MAX: usize = 400;

/// Returns one line with the parameter, the expected value and the actual value.
pub(super) fn describe(error: &ValidationError<'_>, schema: &Value) -> String {
    format!("Error: {}", excerpt(&sentence(error, schema), MESSAGE_CHARS_MAX))
}

fn sentence(error: &ValidationError<'_>, schema: &Value) -> String {
    let path = path(error.instance_path());
    let got = found(error.instance());
    match error.kind() {
        ValidationErrorKind::Required { property } => required(error, schema, property),
        ValidationErrorKind::Type { kind } => format!("{path} must be {}; got {got}", types(kind)),
        ValidationErrorKind::Enum { options } => {
            format!("{path} must be one of {}; got {got}", values(options))
        }
        ValidationErrorKind::Constant { expected_value } => {
            format!("{path} must be {}; got {got}", excerpt(&expected_value.to_string(), EXCERPT_CHARS_MAX))
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => unknown(error, schema, unexpected),
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            format!("{path} matches none of the allowed schemas ({}); got {got}", forms(context, schema))
        }
        ValidationErrorKind::Pattern { pattern } => {
            format!("{path} must match the pattern {}; got {got}", excerpt(pattern, EXCERPT_CHARS_MAX))
        }
        ValidationErrorKind::Format { format } => format!("{path} must be a valid {format}; got {got}"),
        // The validator's own messages are good for the other kinds. `masked_with` removes the value, which may be
        // huge.
        _ => format!("{}; got {got}", error.masked_with(path)),
    }
}

fn required(error: &ValidationError<'_>, schema: &Value, property: &Value) -> String {
    let name = property.as_str().unwrap_or_default();
    let path = path(&error.instance_path().join(name));
    let declared = owner(error, schema)
        .and_then(|owner| owner.get("properties")?.get(name))
        .and_then(|property| type_of(property, schema));
    match declared {
        Some(declared) => format!("{path} parameter is required ({declared})"),
        None => format!("{path} parameter is required"),
    }
}

fn unknown(error: &ValidationError<'_>, schema: &Value, unexpected: &[String]) -> String {
    let names = |names: &mut dyn Iterator<Item = &String>| {
        names.take(LISTED_MAX).map(|name| excerpt(name, EXCERPT_CHARS_MAX)).collect::<Vec<_>>().join("', '")
    };
    let place = match error.instance_path() {
        root if root.is_empty() => String::new(),
        nested => format!(" in {}", path(nested)),
    };
    let known = owner(error, schema).and_then(|owner| owner.get("properties")?.as_object());
    let known = match known {
        Some(known) if !known.is_empty() => format!("known parameters are '{}'", names(&mut known.keys())),
        Some(_) | None => "no parameters are allowed here".to_owned(),
    };
    format!("unknown parameter '{}'{place}; {known}", names(&mut unexpected.iter()))
}

/// Returns the schema that contains the failing keyword.
fn owner<'s>(error: &ValidationError<'_>, schema: &'s Value) -> Option<&'s Value> {
    let pointer = error.schema_path().as_str();
    let (owner, _keyword) = pointer.rsplit_once('/')?;
    schema.pointer(owner)
}

/// Returns the type that a schema requires, if it can be named in a few words.
fn type_of(property: &Value, schema: &Value) -> Option<String> {
    let property = match property.get("$ref").and_then(Value::as_str) {
        Some(reference) => schema.pointer(reference.strip_prefix('#')?)?,
        None => property,
    };
    match (property.get("type"), property.get("enum")) {
        (_, Some(options)) => Some(format!("one of {}", values(options))),
        (Some(Value::String(name)), None) => Some(excerpt(name, EXCERPT_CHARS_MAX)),
        (Some(Value::Array(names)), None) => {
            Some(names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "))
        }
        (_, None) => None,
    }
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => kind.to_string(),
        TypeKind::Multiple(kinds) => {
            kinds.iter().map(|kind| kind.to_string()).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn values(options: &Value) -> String {
    let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let listed: Vec<_> = options
        .iter()
        .take(LISTED_MAX)
        .map(|option| excerpt(&option.to_string(), EXCERPT_CHARS_MAX))
        .collect();
    match options.len().saturating_sub(LISTED_MAX) {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}

/// Joins the first error of each `anyOf` or `oneOf` branch. To match the branch, the model has to correct at least this
/// error.
fn forms(context: &[Vec<ValidationError<'_>>], schema: &Value) -> String {
    let firsts = context.iter().filter_map(|errors| errors.first());
    firsts.take(FORMS_MAX).map(|error| sentence(error, schema)).collect::<Vec<_>>().join(" | ")
}

/// Returns a path such as `'a.b[0]'`, or words for the arguments as a whole.
fn path(location: &Location) -> String {
    let path = place(location);
    if path.is_empty() { "the arguments".into() } else { format!("'{path}'") }
}

/// Returns the path of a value, such as `edits[0].line`.
pub(super) fn place(location: &Location) -> String {
    let path = location.segments().fold(String::new(), |path, segment| match segment {
        LocationSegment::Index(index) => format!("{path}[{index}]"),
        LocationSegment::Property(name) if path.is_empty() => name.into_owned(),
        LocationSegment::Property(name) => format!("{path}.{name}"),
    });
    excerpt(&path, EXCERPT_CHARS_MAX)
}

/// Describes a value: its type, and an excerpt if it is a scalar. For an object or array it gives only the size.
fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => format!("boolean {value}"),
        Value::Number(number) => format!("number {number}"),
        Value::String(text) => format!("string {}", Value::from(excerpt(text, EXCERPT_CHARS_MAX))),
        Value::Array(items) => format!("array of {} items", items.len()),
        Value::Object(object) => format!("object of {} properties", object.len()),
    }
}

fn excerpt(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}
