//! Tool-call arguments as the caller sent them, and their parser: strict JSON first, then a bounded set of repairs.

mod excerpt;
mod repair;

use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::json_depth;
use crate::result::{ToolError, ToolErrorKind};

pub use excerpt::LineColumn;

/// The caller's original text. It is kept byte for byte, because haft sends it back to the model unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawArguments(String);

/// The limits on the size and depth of arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgumentLimits {
    /// The maximum length of the arguments text, in bytes.
    pub bytes_max: usize,
    /// The maximum nesting depth of objects and arrays. `parse` never allows more than [`NESTING_MAX`].
    pub depth_max: usize,
}

/// The maximum length of the arguments text, in bytes, if the embedding program sets no limit.
pub const ARGUMENTS_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The maximum nesting depth of arguments if the embedding program sets no limit.
pub(crate) const ARGUMENTS_DEPTH_MAX: usize = 64;

/// The maximum nesting depth that `serde_json` parses. It parses recursively, and returns an error beyond this depth.
pub const NESTING_MAX: usize = 127;

impl Default for ArgumentLimits {
    fn default() -> Self {
        Self { bytes_max: ARGUMENTS_BYTES_MAX, depth_max: ARGUMENTS_DEPTH_MAX }
    }
}

/// Arguments that are a JSON object, not yet validated against the tool's schema.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedArguments {
    /// The arguments, always an object. They are stored as a `Value`, because the validator needs a `&Value`.
    value: Value,
    /// The size of the original text, in bytes.
    pub(crate) bytes: usize,
    repairs: Vec<&'static str>,
    cut_off: bool,
}

impl ParsedArguments {
    /// Returns the arguments. No schema has checked them yet.
    pub fn object(&self) -> &Map<String, Value> {
        static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        self.value.as_object().unwrap_or(&EMPTY)
    }

    /// Returns the arguments as a JSON value, which is always an object.
    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    pub(crate) fn into_value(self) -> Value {
        self.value
    }

    /// Returns the repairs that the parser made, in order. The list is empty if the text was valid JSON.
    pub fn repairs(&self) -> &[&'static str] {
        &self.repairs
    }

    /// Returns true if the text ended inside a value, so that a part of what the caller meant to send is missing.
    pub fn cut_off(&self) -> bool {
        self.cut_off
    }
}

impl RawArguments {
    /// Creates the arguments from text that a model wrote. The text may be invalid JSON.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Creates the arguments from a value, as compact JSON.
    pub fn from_value(value: &Value) -> Self {
        Self(value.to_string())
    }

    /// Returns the text exactly as it was given.
    pub fn as_text(&self) -> &str {
        &self.0
    }

    /// Appends the next chunk of streamed text.
    pub fn push_text(&mut self, more: &str) {
        self.0.push_str(more);
    }

    /// Parses the text as a JSON object, with repairs if needed. The result lists every repair. Returns an error if the
    /// text has no safe repair.
    pub fn parse(&self, limits: &ArgumentLimits) -> Result<ParsedArguments, ArgumentsError> {
        let bytes = self.0.len();
        if bytes > limits.bytes_max {
            return Err(ArgumentsError::TooLarge { bytes, bytes_max: limits.bytes_max });
        }
        if self.0.trim().is_empty() {
            return ParsedValue::repaired(Value::Object(Map::new()), EMPTY_TEXT).into_object(bytes);
        }
        let depth_max = limits.depth_max.min(NESTING_MAX);
        read(&self.0, depth_max)?.unwrapped(depth_max)?.into_object(bytes)
    }
}

/// The reason why arguments were rejected. The message is for the model that sent them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentsError {
    /// The text is longer than the limit. It was not parsed.
    #[error("the arguments have {bytes} bytes; the limit is {bytes_max}")]
    TooLarge {
        /// The length of the arguments text, in bytes.
        bytes: usize,
        /// The limit from [`ArgumentLimits`].
        bytes_max: usize,
    },
    /// Objects and arrays nest deeper than the limit.
    #[error("the arguments nest too deep: more than {depth_max} levels at {spot}")]
    TooDeep {
        /// The limit from [`ArgumentLimits`], at most [`NESTING_MAX`].
        depth_max: usize,
        /// The position at which the nesting exceeds the limit.
        spot: LineColumn,
    },
    /// The text is not JSON, and no repair can make it JSON.
    #[error("the arguments are not valid JSON: {problem} at {spot}; send one JSON object")]
    NotJson {
        /// The syntax that was expected and the syntax that was found, in words for the model.
        problem: String,
        /// The position of the first error in the arguments text.
        spot: LineColumn,
    },
    /// The text is JSON, but not an object.
    #[error("the arguments must be a JSON object; got {found}; send {{\"name\": value, ...}}")]
    NotAnObject {
        /// The kind of the JSON value, such as `an array`.
        found: &'static str,
    },
}

impl From<ArgumentsError> for ToolError {
    fn from(error: ArgumentsError) -> Self {
        ToolError::new(ToolErrorKind::InvalidArguments, format!("Error: {error}"))
    }
}

const EMPTY_TEXT: &str = "read an empty text as {}";
const DOUBLE_ENCODED: &str = "unwrapped the arguments object from a JSON string";

/// A parsed value and the repairs that were needed to parse it.
struct ParsedValue {
    value: Value,
    repairs: Vec<&'static str>,
    cut_off: bool,
}

impl ParsedValue {
    fn strict(value: Value) -> Self {
        Self { value, repairs: Vec::new(), cut_off: false }
    }

    fn repaired(value: Value, repair: &'static str) -> Self {
        Self { value, repairs: vec![repair], cut_off: false }
    }

    /// Unwraps an object that the model JSON-encoded twice, as some models do. Unwraps one level only, so a text with
    /// many nested encodings costs no more than two parses.
    fn unwrapped(self, depth_max: usize) -> Result<Self, ArgumentsError> {
        match &self.value {
            Value::String(text) if text.trim_start().starts_with('{') => {
                let mut inner = read(text, depth_max)?;
                inner.repairs.splice(0..0, self.repairs.into_iter().chain([DOUBLE_ENCODED]));
                inner.cut_off |= self.cut_off;
                Ok(inner)
            }
            _ => Ok(self),
        }
    }

    fn into_object(self, bytes: usize) -> Result<ParsedArguments, ArgumentsError> {
        let Self { value, repairs, cut_off } = self;
        match value {
            Value::Object(_) => Ok(ParsedArguments { value, bytes, repairs, cut_off }),
            Value::Null => Err(ArgumentsError::NotAnObject { found: "null" }),
            Value::Bool(_) => Err(ArgumentsError::NotAnObject { found: "a boolean" }),
            Value::Number(_) => Err(ArgumentsError::NotAnObject { found: "a number" }),
            Value::String(_) => Err(ArgumentsError::NotAnObject { found: "a string" }),
            Value::Array(_) => Err(ArgumentsError::NotAnObject { found: "an array" }),
        }
    }
}

fn read(text: &str, depth_max: usize) -> Result<ParsedValue, ArgumentsError> {
    match serde_json::from_str(text) {
        Ok(value) => check_depth(text, depth_max).map(|()| ParsedValue::strict(value)),
        Err(error) => parse_repaired(text, depth_max, &error),
    }
}

fn parse_repaired(
    text: &str,
    depth_max: usize,
    strict: &serde_json::Error,
) -> Result<ParsedValue, ArgumentsError> {
    let Some(start) = repair::start(text) else {
        return Err(not_json(text, strict));
    };
    let mended = repair::mend(text, start, depth_max).map_err(|stuck| stuck.into_error(text, depth_max))?;
    match serde_json::from_str(&mended.text) {
        Ok(value) => Ok(ParsedValue { value, repairs: mended.repairs, cut_off: mended.cut_off }),
        Err(_) => Err(not_json(text, strict)),
    }
}

fn not_json(text: &str, error: &serde_json::Error) -> ArgumentsError {
    let spot = LineColumn::at_line(text, error.line(), error.column());
    let whole = error.to_string();
    // `LineColumn` prints the position, so drop serde_json's own " at line X column Y".
    let problem = whole.split_once(" at line ").map_or(whole.as_str(), |(problem, _)| problem);
    ArgumentsError::NotJson { problem: problem.to_owned(), spot }
}

fn check_depth(text: &str, depth_max: usize) -> Result<(), ArgumentsError> {
    match json_depth::first_too_deep(text.as_bytes(), depth_max) {
        Some(at) => Err(ArgumentsError::TooDeep { depth_max, spot: LineColumn::at(text, at) }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
