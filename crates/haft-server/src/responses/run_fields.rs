//! The fields of a response that its run fixes. A run that continues after an approval keeps its model, its tools and
//! its settings, so the next response repeats these fields of the response that waited, and not those of the request
//! with the answers.

use serde_json::{Map, Value};

use super::field::invalid;
use super::object::ResponseHead;
use super::request::{self, CreateRequest, Truncation, WarningItems};
use crate::error::ApiError;

/// The fields that the run fixes, besides `model`.
const RUN_FIELDS: [&str; 15] = [
    "instructions",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "reasoning",
    "max_output_tokens",
    "max_tool_calls",
    "service_tier",
];

/// Returns the fields of a response that waits for approvals.
pub(super) fn of_head(head: &ResponseHead) -> Map<String, Value> {
    let mut fields = of_object(&head.echo);
    fields.insert("model".into(), head.model.clone().into());
    fields
}

/// Returns the fields of a stored response.
pub(super) fn of_stored(response: &Value) -> Map<String, Value> {
    let Value::Object(object) = response else { return Map::new() };
    let mut fields = of_object(object);
    fields.extend(object.get("model").map(|model| ("model".to_owned(), model.clone())));
    fields
}

fn of_object(object: &Map<String, Value>) -> Map<String, Value> {
    let field = |name: &&str| Some(((*name).to_owned(), object.get(*name)?.clone()));
    RUN_FIELDS.iter().filter_map(field).collect()
}

/// Refuses a request that names another model than the run that it continues.
pub(super) fn check_model(request: &CreateRequest, fields: &Map<String, Value>) -> Result<(), ApiError> {
    match (&request.model, fields.get("model").and_then(Value::as_str)) {
        (Some(asked), Some(own)) if asked != own => {
            let message = format!(
                "the run of these approval requests uses the model `{own}`; leave `model` out, or send the same model"
            );
            Err(invalid("model", message))
        }
        _ => Ok(()),
    }
}

/// Puts the fields of the run into a request that continues it. Returns warnings about the fields that the request sets
/// to other values.
pub(super) fn restore(request: &mut CreateRequest, fields: Map<String, Value>) -> Vec<String> {
    let warnings = ignored(&request.echo, &fields);
    match request.warning_items {
        WarningItems::Included => request.shown_warnings.extend(warnings.iter().cloned()),
        WarningItems::Omitted => {}
    }
    request.truncation = match fields.get("truncation").and_then(Value::as_str) {
        Some("auto") => Some(Truncation::Auto),
        Some(_) => Some(Truncation::Disabled),
        None => request.truncation,
    };
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("model", Value::String(model)) => request.model = Some(model),
            (_, value) => drop(request.echo.insert(name, value)),
        }
    }
    warnings
}

fn ignored(echo: &Map<String, Value>, fields: &Map<String, Value>) -> Vec<String> {
    let defaults = request::defaults();
    let is_set = |name: &&str| {
        let asked = echo.get(*name);
        fields.contains_key(*name) && asked != fields.get(*name) && asked != defaults.get(*name)
    };
    let warning = |name: &str| format!("`{name}` has no effect, because an approved run keeps its settings");
    RUN_FIELDS.iter().filter(|name| is_set(name)).map(|name| warning(name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(fields: Value) -> CreateRequest {
        let Value::Object(mut body) = fields else { panic!("not an object") };
        body.insert("input".into(), "x".into());
        request::parse(body).unwrap()
    }

    #[test]
    fn request_that_continues_a_run_repeats_the_fields_of_the_run() {
        let first = request(json!({"model": "a/b", "temperature": 0.5, "max_tool_calls": 3}));
        let mut fields = of_object(&first.echo);
        fields.insert("model".into(), "a/b".into());
        let restored = |asked: Value| {
            let mut asked = request(asked);
            let warnings = restore(&mut asked, fields.clone());
            (asked, warnings)
        };
        let (same, warnings) = restored(json!({"max_tool_calls": 3, "metadata": {"k": "v"}}));
        assert_eq!((same.model.as_deref(), &same.echo["temperature"]), (Some("a/b"), &json!(0.5)));
        assert_eq!((&same.echo["metadata"], warnings.len()), (&json!({"k": "v"}), 0));
        let tools = json!([{"type": "function", "name": "f"}]);
        let (other, warnings) = restored(json!({"temperature": 1.5, "tools": tools}));
        assert_eq!((&other.echo["temperature"], &other.echo["tools"]), (&json!(0.5), &json!([])));
        assert!(warnings[0].contains("`tools`") && warnings[1].contains("`temperature`"), "{warnings:?}");
        assert_eq!(check_model(&request(json!({"model": "a/b"})), &fields).err(), None);
        assert_eq!(check_model(&request(json!({})), &fields).err(), None);
        let error = check_model(&request(json!({"model": "a/c"})), &fields).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("model"));
    }
}
