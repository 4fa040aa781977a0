//! Validates arguments against the tool's schema. A provider only receives arguments that passed this check.

mod cost;
mod draft;
mod error_text;
mod retype;

use jsonschema::{PatternOptions, Validator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::arguments::ParsedArguments;
use crate::result::{ToolError, ToolErrorKind};

use cost::{CHECK_STEPS_MAX, SchemaCost};
pub use draft::SchemaDraft;

/// A tool's compiled input schema.
#[derive(Debug)]
pub enum Schema {
    /// The schema compiled, so arguments are checked against all of it.
    Checked(Box<CheckedSchema>),
    /// The schema is unusable, so validation accepts any object.
    Unchecked {
        /// The problem with the schema.
        reason: String,
    },
}

/// A schema that compiled.
#[derive(Debug)]
pub struct CheckedSchema {
    validator: Validator,
    written: Value,
    cost: SchemaCost,
}

/// The maximum size of a schema, in bytes of its JSON text. A larger schema is unusable.
pub const SCHEMA_BYTES_MAX: usize = 1024 * 1024;
/// The maximum nesting depth of a schema. A deeper schema is unusable.
pub(crate) const SCHEMA_DEPTH_MAX: usize = 64;

/// The maximum compiled size of one `pattern`, in bytes.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// The maximum number of backtracking steps for a `pattern` with look-around on one string.
const BACKTRACK_STEPS_MAX: usize = 10_000;

/// The maximum size of arguments for which all errors are listed, in bytes. The validator collects all errors before it
/// returns the first one, so for larger arguments haft requests only one error.
const ALL_COMPLAINTS_BYTES_MAX: usize = 256 * 1024;

/// The maximum number of errors in one message to a model.
const COMPLAINTS_MAX: usize = 20;

impl Schema {
    /// Calls [`compile_as`](Self::compile_as) with the default draft.
    pub fn compile(schema: &Value) -> Self {
        Self::compile_as(schema, SchemaDraft::default())
    }

    /// Compiles a schema. Never fails: an unusable schema becomes `Unchecked` with the reason. Never fetches a
    /// reference from the network or a file. `draft` applies to a schema that does not name its draft.
    pub fn compile_as(schema: &Value, draft: SchemaDraft) -> Self {
        match compile(schema, draft) {
            Ok((validator, cost)) => {
                Self::Checked(Box::new(CheckedSchema { validator, written: schema.clone(), cost }))
            }
            Err(reason) => Self::Unchecked { reason },
        }
    }

    /// Validates arguments. The error lists all problems.
    pub fn validate(&self, arguments: ParsedArguments) -> Result<ValidArguments, ToolError> {
        match self {
            Self::Checked(schema) => schema.validate(arguments),
            Self::Unchecked { .. } => {
                let object = object_of(arguments.into_value());
                Ok(ValidArguments { object, unvalidated: true, mended: Vec::new() })
            }
        }
    }

    /// Returns true if these arguments are valid for this tool. Returns false if haft cannot use the schema.
    pub fn accepts(&self, arguments: &ParsedArguments) -> bool {
        match self {
            Self::Checked(schema) => schema.accepts(arguments),
            Self::Unchecked { .. } => false,
        }
    }

    /// Returns a model's answer if it matches the schema. Otherwise parses strings as JSON and removes nulls, and
    /// returns the changed answer if it matches. `bytes` is the size of the answer's text.
    pub fn fit(&self, answer: Value, bytes: usize) -> Result<Value, String> {
        match self {
            Self::Checked(schema) => match self.check(&answer, bytes) {
                Ok(()) => Ok(answer),
                Err(wrong) if !schema.cost.is_within_step_limit(&schema.written, &answer, bytes) => {
                    Err(wrong)
                }
                Err(wrong) => retype::retype(schema, &answer, bytes).map(|fit| fit.value).ok_or(wrong),
            },
            Self::Unchecked { reason } => Err(reason.clone()),
        }
    }

    /// Validates a value that is not a set of arguments, such as a tool's output. The error describes the problem.
    /// `bytes` is the size of the value's text.
    pub fn check(&self, value: &Value, bytes: usize) -> Result<(), String> {
        match self {
            Self::Checked(schema) if !schema.cost.is_within_step_limit(&schema.written, value, bytes) => {
                Err(format!("checking the value takes more than {CHECK_STEPS_MAX} steps"))
            }
            Self::Checked(schema) if schema.validator.is_valid(value) => Ok(()),
            Self::Checked(schema) => {
                let message = schema.complaints(value, bytes);
                Err(message.replace("Error: the arguments ", "the value ").replace("Error: ", ""))
            }
            Self::Unchecked { reason } => Err(reason.clone()),
        }
    }
}

impl CheckedSchema {
    fn validate(&self, arguments: ParsedArguments) -> Result<ValidArguments, ToolError> {
        let bytes = arguments.bytes;
        let mut value = arguments.into_value();
        if !self.cost.is_within_step_limit(&self.written, &value, bytes) {
            return Err(ToolError::new(ToolErrorKind::InvalidArguments, cost_error_message()));
        }
        let mut mended = Vec::new();
        if !self.validator.is_valid(&value) {
            let Some(retyped) = retype::retype(self, &value, bytes) else {
                let message = self.complaints(&value, bytes);
                return Err(ToolError::new(ToolErrorKind::InvalidArguments, message));
            };
            (value, mended) = (retyped.value, retyped.places);
        }
        Ok(ValidArguments { object: object_of(value), unvalidated: false, mended })
    }

    /// Makes the same decision as `validate` but copies nothing: copying the arguments takes three times as long as the
    /// check.
    fn accepts(&self, arguments: &ParsedArguments) -> bool {
        let value = arguments.value();
        self.cost.is_within_step_limit(&self.written, value, arguments.bytes)
            && (self.validator.is_valid(value) || retype::retype(self, value, arguments.bytes).is_some())
    }

    fn complaints(&self, value: &Value, bytes: usize) -> String {
        if bytes > ALL_COMPLAINTS_BYTES_MAX {
            let first = self.validator.validate(value).err();
            return first.map(|error| error_text::describe(&error, &self.written)).unwrap_or_default();
        }
        let mut errors = self.validator.iter_errors(value);
        let mut lines: Vec<_> = errors
            .by_ref()
            .take(COMPLAINTS_MAX)
            .map(|error| error_text::describe(&error, &self.written))
            .collect();
        match errors.count() {
            0 => {}
            more => lines.push(format!("and {more} more")),
        }
        lines.join("\n")
    }
}

/// Arguments that passed `validate`, which is the only way to create them.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidArguments {
    object: Map<String, Value>,
    unvalidated: bool,
    mended: Vec<String>,
}

impl ValidArguments {
    /// Returns the arguments after repair, as the provider gets them.
    pub fn value(&self) -> &Map<String, Value> {
        &self.object
    }

    /// Returns true if the schema was unusable, so that the check only ensured that the arguments are an object.
    pub fn unvalidated(&self) -> bool {
        self.unvalidated
    }

    /// Returns the paths of corrected values, such as `limit` or `edits[0].line`. At each path, a string was replaced
    /// by the JSON value in the string, or a null was removed.
    pub fn mended(&self) -> &[String] {
        &self.mended
    }

    /// Deserializes the arguments into the tool's own type.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        T::deserialize(&self.object).map_err(|error| {
            let message = format!("Error: the arguments do not match the tool's parameters: {error}");
            ToolError::new(ToolErrorKind::InvalidArguments, message)
        })
    }
}

/// Returns the object in the arguments, which are always an object.
fn object_of(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

fn cost_error_message() -> String {
    format!(
        "Error: checking these arguments against the tool's schema takes more than {CHECK_STEPS_MAX} steps; \
         nothing was done; send smaller arguments"
    )
}

fn compile(schema: &Value, draft: SchemaDraft) -> Result<(Validator, SchemaCost), String> {
    if !is_within(schema, SCHEMA_DEPTH_MAX) {
        return Err(format!("the schema nests deeper than {SCHEMA_DEPTH_MAX} levels"));
    }
    if !is_small(schema) {
        return Err(format!("the schema is larger than {SCHEMA_BYTES_MAX} bytes"));
    }
    let validator = build(schema, draft)
        .map_err(|error| format!("the schema does not compile: {}", error.masked_with("it")))?;
    Ok((validator, SchemaCost::of(schema, draft.of(schema))?))
}

fn build(schema: &Value, draft: SchemaDraft) -> Result<Validator, jsonschema::ValidationError<'_>> {
    // The default engine matches patterns in linear time. Only a schema that needs look-around gets the backtracking
    // engine, with a step limit.
    let linear = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
    let backtracking = PatternOptions::fancy_regex()
        .backtrack_limit(BACKTRACK_STEPS_MAX)
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX);
    let draft = draft.of(schema).map(SchemaDraft::known);
    let options = || {
        let options = jsonschema::options().offline().should_validate_formats(true);
        match draft {
            Some(draft) => options.with_draft(draft),
            None => options,
        }
    };
    options()
        .with_pattern_options(linear)
        .build(schema)
        .or_else(|_| options().with_pattern_options(backtracking).build(schema))
}

/// Checks the nesting depth without recursion, because an untrusted author decides how deep the value is.
fn is_within(value: &Value, depth_max: usize) -> bool {
    let mut level = vec![value];
    for _ in 0..depth_max {
        level = level.into_iter().flat_map(children).collect();
        if level.is_empty() {
            return true;
        }
    }
    false
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(object) => object.values().collect(),
        Value::Array(items) => items.iter().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn is_small(schema: &Value) -> bool {
    serde_json::to_writer(BoundedWriter(SCHEMA_BYTES_MAX), schema).is_ok()
}

/// A writer that fails after this many bytes, so that a large schema is not serialized in full.
struct BoundedWriter(usize);

impl std::io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
