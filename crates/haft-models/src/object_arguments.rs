//! Call arguments for formats in which they are an object and not a string.

use std::borrow::Cow;

use haft_core::arguments::RawArguments;
use serde_json::Value;

use crate::json_text;

/// Returns the model's own bytes if they are an object. Any other text is wrapped in an object, so that the model still
/// sees what it wrote. Parses the whole text, not only its syntax: a provider refuses each further request of a run that
/// repeats a lone surrogate or a number out of range.
pub(crate) fn object_json(arguments: &RawArguments) -> Cow<'_, str> {
    let text = arguments.as_text().trim();
    if text.is_empty() {
        return "{}".into();
    }
    if text.starts_with('{') && serde_json::from_str::<Value>(text).is_ok() {
        return text.into();
    }
    json_text::text_of(|object| object.put("arguments", text)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_arguments_are_wrapped_in_an_object_if_they_are_no_object() {
        for (written, sent) in [
            (r#"{ "b":1.0, "a" : 2 }"#, r#"{ "b":1.0, "a" : 2 }"#),
            ("", "{}"),
            (r#"{"a":"#, r#"{"arguments":"{\"a\":"}"#),
            ("[1]", r#"{"arguments":"[1]"}"#),
            (r#"{"a":"\ud800"}"#, r#"{"arguments":"{\"a\":\"\\ud800\"}"}"#),
            (r#"{"a":1e999}"#, r#"{"arguments":"{\"a\":1e999}"}"#),
        ] {
            assert_eq!(object_json(&RawArguments::from_text(written)), sent);
        }
    }
}
