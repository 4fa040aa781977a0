//! Call arguments for formats in which they are an object and not a string.

use std::borrow::Cow;

use haft_core::arguments::RawArguments;
use serde_json::value::RawValue;

use crate::json_text;

/// Returns the model's own bytes if they are an object. Any other text is wrapped in an object, so that the model still
/// sees what it wrote.
pub(crate) fn object_json(arguments: &RawArguments) -> Cow<'_, str> {
    let text = arguments.as_text().trim();
    if text.is_empty() {
        return "{}".into();
    }
    if text.starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok() {
        return text.into();
    }
    json_text::text_of(|object| object.put("arguments", text)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_arguments_that_are_not_an_object_are_wrapped_in_one() {
        for (written, sent) in [
            (r#"{ "b":1.0, "a" : 2 }"#, r#"{ "b":1.0, "a" : 2 }"#),
            ("", "{}"),
            (r#"{"a":"#, r#"{"arguments":"{\"a\":"}"#),
            ("[1]", r#"{"arguments":"[1]"}"#),
        ] {
            assert_eq!(object_json(&RawArguments::from_text(written)), sent);
        }
    }
}
