//! The only way to arguments that a provider may see: they were checked against the tool's schema.

mod complaint;
mod cost;
mod draft;
mod retype;

use jsonschema::{PatternOptions, Validator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::arguments::ParsedArguments;
use crate::result::{ToolError, ToolErrorKind};

use cost::{CHECK_STEPS_MAX, Cost};
pub use draft::Draft;

/// A tool's input schema, ready to check arguments.
#[derive(Debug)]
pub enum Schema {
    Checked(Box<CheckedSchema>),
    /// The schema cannot be used; arguments are only known to be an object.
    Unchecked {
        reason: String,
    },
}

/// A schema that compiled.
#[derive(Debug)]
pub struct CheckedSchema {
    validator: Validator,
    written: Value,
    cost: Cost,
}

pub const SCHEMA_BYTES_MAX: usize = 1024 * 1024;
pub const SCHEMA_DEPTH_MAX: usize = 64;

/// The compiled size of one `pattern`.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// How far a `pattern` with look-around may backtrack on one string.
const BACKTRACK_STEPS_MAX: usize = 10_000;

/// The validator collects every complaint before it gives the first, so of larger arguments only one is asked for.
const ALL_COMPLAINTS_BYTES_MAX: usize = 256 * 1024;

/// More complaints than this in one message help no model.
const COMPLAINTS_MAX: usize = 20;

impl Schema {
    /// As [`compile_as`](Self::compile_as) the draft that holds when nobody says otherwise.
    pub fn compile(schema: &Value) -> Self {
        Self::compile_as(schema, Draft::default())
    }

    /// Never fails: what cannot be checked says why. No reference is fetched from a network or a file. `draft` is for a
    /// schema that names none.
    pub fn compile_as(schema: &Value, draft: Draft) -> Self {
        match compile(schema, draft) {
            Ok((validator, cost)) => {
                Self::Checked(Box::new(CheckedSchema { validator, written: schema.clone(), cost }))
            }
            Err(reason) => Self::Unchecked { reason },
        }
    }

    /// Checks arguments; the error names everything that is wrong with them.
    pub fn validate(&self, arguments: ParsedArguments) -> Result<ValidArguments, ToolError> {
        match self {
            Self::Checked(schema) => schema.validate(arguments),
            Self::Unchecked { .. } => {
                Ok(ValidArguments { object: arguments.object, unvalidated: true, mended: Vec::new() })
            }
        }
    }

    /// Whether it can be said that these arguments are for this tool. A schema that cannot be used says nothing.
    pub fn accepts(&self, arguments: &ParsedArguments) -> bool {
        match self {
            Self::Checked(schema) => schema.validate(arguments.clone()).is_ok(),
            Self::Unchecked { .. } => false,
        }
    }

    /// What a model's answer means: itself when it fits, else what it fits as when strings are read for what they hold
    /// and nulls for what was left out. `bytes` is the size of its text.
    pub fn fit(&self, answer: Value, bytes: usize) -> Result<Value, String> {
        match self {
            Self::Checked(schema) => match self.check(&answer, bytes) {
                Ok(()) => Ok(answer),
                Err(wrong) if !schema.cost.is_bearable(&schema.written, &answer, bytes) => Err(wrong),
                Err(wrong) => retype::retype(schema, &answer, bytes).map(|fit| fit.value).ok_or(wrong),
            },
            Self::Unchecked { reason } => Err(reason.clone()),
        }
    }

    /// Checks any other value, for example what a tool gave; says what is wrong with it. `bytes` is the size of its text.
    pub fn check(&self, value: &Value, bytes: usize) -> Result<(), String> {
        match self {
            Self::Checked(schema) if !schema.cost.is_bearable(&schema.written, value, bytes) => {
                Err(format!("to check it takes more than {CHECK_STEPS_MAX} steps"))
            }
            Self::Checked(schema) if schema.validator.is_valid(value) => Ok(()),
            Self::Checked(schema) => {
                let told = schema.complaints(value, bytes);
                Err(told.replace("Error: the arguments ", "the value ").replace("Error: ", ""))
            }
            Self::Unchecked { reason } => Err(reason.clone()),
        }
    }
}

impl CheckedSchema {
    fn validate(&self, arguments: ParsedArguments) -> Result<ValidArguments, ToolError> {
        let mut value = Value::Object(arguments.object);
        if !self.cost.is_bearable(&self.written, &value, arguments.bytes) {
            return Err(ToolError::new(ToolErrorKind::InvalidArguments, too_costly()));
        }
        let mut mended = Vec::new();
        if !self.validator.is_valid(&value) {
            let Some(retyped) = retype::retype(self, &value, arguments.bytes) else {
                let message = self.complaints(&value, arguments.bytes);
                return Err(ToolError::new(ToolErrorKind::InvalidArguments, message));
            };
            (value, mended) = (retyped.value, retyped.places);
        }
        let object = value.as_object_mut().map(std::mem::take).unwrap_or_default();
        Ok(ValidArguments { object, unvalidated: false, mended })
    }

    fn complaints(&self, value: &Value, bytes: usize) -> String {
        if bytes > ALL_COMPLAINTS_BYTES_MAX {
            let first = self.validator.validate(value).err();
            return first.map(|error| complaint::describe(&error, &self.written)).unwrap_or_default();
        }
        let mut errors = self.validator.iter_errors(value);
        let mut lines: Vec<_> = errors
            .by_ref()
            .take(COMPLAINTS_MAX)
            .map(|error| complaint::describe(&error, &self.written))
            .collect();
        match errors.count() {
            0 => {}
            more => lines.push(format!("and {more} more")),
        }
        lines.join("\n")
    }
}

/// Arguments that passed `validate`. There is no other way to make them.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidArguments {
    object: Map<String, Value>,
    unvalidated: bool,
    mended: Vec<String>,
}

impl ValidArguments {
    pub fn value(&self) -> &Map<String, Value> {
        &self.object
    }

    /// Whether the schema could not be used, so that they are only known to be an object.
    pub fn unvalidated(&self) -> bool {
        self.unvalidated
    }

    /// Where a string stood for what was meant and was replaced by it, or a null for nothing and was left out: `limit`,
    /// `edits[0].line`.
    pub fn mended(&self) -> &[String] {
        &self.mended
    }

    /// The arguments as a type of the tool.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        T::deserialize(&self.object).map_err(|error| {
            let message = format!("Error: the arguments do not fit the tool: {error}");
            ToolError::new(ToolErrorKind::InvalidArguments, message)
        })
    }
}

fn too_costly() -> String {
    format!(
        "Error: to check these arguments against the tool's schema takes more than {CHECK_STEPS_MAX} steps; \
         nothing was done; send smaller arguments"
    )
}

fn compile(schema: &Value, draft: Draft) -> Result<(Validator, Cost), String> {
    if !is_within(schema, SCHEMA_DEPTH_MAX) {
        return Err(format!("the schema nests deeper than {SCHEMA_DEPTH_MAX} levels"));
    }
    if !is_small(schema) {
        return Err(format!("the schema is larger than {SCHEMA_BYTES_MAX} bytes"));
    }
    let validator = build(schema, draft)
        .map_err(|error| format!("the schema does not compile: {}", error.masked_with("it")))?;
    Ok((validator, Cost::of(schema, draft.of(schema))?))
}

fn build(schema: &Value, draft: Draft) -> Result<Validator, jsonschema::ValidationError<'_>> {
    // Patterns run in linear time; only a schema that needs look-around gets the engine that backtracks, on a leash.
    let linear = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
    let backtracking = PatternOptions::fancy_regex()
        .backtrack_limit(BACKTRACK_STEPS_MAX)
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX);
    let draft = draft.of(schema).map(Draft::known);
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

/// Looks without recursion, because whoever wrote the value decides how deep it is.
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
    serde_json::to_writer(Room(SCHEMA_BYTES_MAX), schema).is_ok()
}

/// Takes so many bytes and no more.
struct Room(usize);

impl std::io::Write for Room {
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
