//! Placeholders for words that only the conversation contains, such as a handle or an id. A script cannot contain such
//! words in advance.

use serde_json::Value;

use crate::parsed_request::ParsedRequest;
use crate::script::{ScriptPart, ScriptStep};

const OPEN: &str = "{{word ";
const CLOSE: &str = "}}";

/// Returns the step with its `{{word PREFIX}}` placeholders replaced by the first word that starts with the prefix. In
/// call arguments, the word comes from the last tool result, or from the last user message if there is no tool result;
/// each string may contain one placeholder. In text, the word comes from the system prompt. A placeholder without a
/// match stays unchanged.
pub(crate) fn recalled(step: &ScriptStep, asked: &ParsedRequest) -> ScriptStep {
    let talk = &asked.talk;
    let latest = talk.tool_results.last().unwrap_or(&talk.last_user);
    let mut step = step.clone();
    for part in &mut step.say {
        match part {
            ScriptPart::Call(call) => fill(&mut call.arguments, latest),
            ScriptPart::Text(text) => {
                while let Some(filled) = filled(text, &talk.system) {
                    *text = filled;
                }
            }
            ScriptPart::Json(_)
            | ScriptPart::Cited(_)
            | ScriptPart::Refusal(_)
            | ScriptPart::Reasoning(_)
            | ScriptPart::Redacted(_) => {}
        }
    }
    step
}

fn fill(value: &mut Value, latest: &str) {
    match value {
        Value::String(text) => {
            if let Some(filled) = filled(text, latest) {
                *text = filled;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, latest)),
        Value::Object(fields) => fields.values_mut().for_each(|field| fill(field, latest)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn filled(text: &str, latest: &str) -> Option<String> {
    let (before, rest) = text.split_once(OPEN)?;
    let (beginning, after) = rest.split_once(CLOSE)?;
    let at = latest.find(beginning)?;
    let ends = |c: char| !(c.is_ascii_alphanumeric() || "-_/.".contains(c));
    let word = &latest[at..];
    let word = &word[..word.find(ends).unwrap_or(word.len())];
    Some(format!("{before}{word}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_placeholder_is_filled_from_the_request_text() {
        let check = |text: &str, latest: &str, expected: Option<&str>| {
            assert_eq!(filled(text, latest).as_deref(), expected, "{text}");
        };
        check("{{word session-}}", "call it (handle = \"session-1/a-2\")", Some("session-1/a-2"));
        check("<{{word id_}}>", "the id_7, and more", Some("<id_7>"));
        check("{{word none}}", "nothing", None);
        check("plain", "plain", None);
    }
}
