//! Parses JSON with comments and trailing commas.

use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::{Map, Value};

use crate::read::{ANY_DEPTH_MAX, any};

/// Parses the top-level object of a file.
pub(super) fn object(text: &str) -> Result<Map<String, Value>, String> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default())
        .map_err(|error| format!("the file is not valid JSON: {error}"))?;
    match parsed.value.as_ref().and_then(|value| any(value, ANY_DEPTH_MAX)) {
        Some(Value::Object(object)) => Ok(object),
        Some(_) | None => Err("the file does not contain a JSON object".into()),
    }
}
