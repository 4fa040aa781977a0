//! Compares two requests: a similarity score, and a readable list of differences.

use serde_json::Value;

/// The maximum number of differences that are listed.
const DIFFERENCES_MAX: usize = 3;

/// The length of the excerpt around the first character that differs, in characters.
const EXCERPT_CHARS_MAX: usize = 60;

/// Returns a similarity score; higher is more similar. Messages weigh more than settings, and equal messages at the
/// beginning weigh most, because conversations with the same beginning are probably the same.
pub(super) fn similarity(recorded: &Value, actual: &Value) -> usize {
    let messages = |value: &Value| value["messages"].as_array().cloned().unwrap_or_default();
    let (recorded_messages, actual_messages) = (messages(recorded), messages(actual));
    let pairs = || recorded_messages.iter().zip(&actual_messages);
    let from_the_beginning = pairs().take_while(|(one, other)| one == other).count();
    let equal = pairs().filter(|(one, other)| one == other).count();
    let as_long = usize::from(recorded_messages.len() == actual_messages.len());
    let (Some(one), Some(other)) = (recorded.as_object(), actual.as_object()) else { return 0 };
    let settings = one.iter().filter(|(key, value)| other.get(*key) == Some(value)).count();
    (from_the_beginning * 4 + equal * 2 + as_long) * 32 + settings
}

/// Returns the first few differences between two requests, each with its path.
pub(super) fn differences(recorded: &Value, actual: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(&mut found, "", recorded, actual);
    found
}

fn walk(found: &mut Vec<String>, path: &str, recorded: &Value, actual: &Value) {
    if found.len() >= DIFFERENCES_MAX || recorded == actual {
        return;
    }
    match (recorded, actual) {
        (Value::Object(one), Value::Object(other)) => {
            for (key, value) in one {
                walk(found, &below(path, key), value, other.get(key).unwrap_or(&Value::Null));
            }
            for (key, value) in other.iter().filter(|(key, _)| !one.contains_key(*key)) {
                walk(found, &below(path, key), &Value::Null, value);
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            for (at, (value, other)) in one.iter().zip(other).enumerate() {
                walk(found, &format!("{path}[{at}]"), value, other);
            }
            if one.len() != other.len() && found.len() < DIFFERENCES_MAX {
                found.push(format!("`{path}` has {} items instead of {}", one.len(), other.len()));
            }
        }
        (Value::String(one), Value::String(other)) => {
            let (one, other) = excerpts(one, other);
            found.push(format!("`{path}` is `{one}` instead of `{other}`"));
        }
        (_, _) => found.push(format!("`{path}` is {} instead of {}", short(recorded), short(actual))),
    }
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Returns excerpts of both texts that begin shortly before their first difference.
fn excerpts(one: &str, other: &str) -> (String, String) {
    let same = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let from = same.saturating_sub(EXCERPT_CHARS_MAX / 3);
    (excerpt(one, from), excerpt(other, from))
}

fn excerpt(text: &str, from: usize) -> String {
    let before = if from > 0 { "…" } else { "" };
    let shown: String = text.chars().skip(from).take(EXCERPT_CHARS_MAX).collect();
    let after = if text.chars().count() > from + EXCERPT_CHARS_MAX { "…" } else { "" };
    format!("{before}{shown}{after}")
}

fn short(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        _ => format!("`{}`", excerpt(&value.to_string(), 0)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_name_the_path_and_both_values() {
        let check = |recorded: Value, actual: Value, expected: &[&str]| {
            assert_eq!(differences(&recorded, &actual), expected);
        };
        check(json!({"a": 1}), json!({"a": 1}), &[]);
        check(json!({"a": 1}), json!({"a": null}), &["`a` is `1` instead of nothing"]);
        check(json!({"a": {}}), json!({"a": {"b": true}}), &["`a.b` is nothing instead of `true`"]);
        check(json!({"m": ["x", "y"]}), json!({"m": ["x"]}), &["`m` has 2 items instead of 1"]);
        check(
            json!({"m": [{"t": "one"}]}),
            json!({"m": [{"t": "two"}]}),
            &["`m[0].t` is `one` instead of `two`"],
        );
        let long = "a".repeat(100);
        let (one, other) = (format!("{long}b{long}"), format!("{long}c"));
        let told = differences(&json!(one), &json!(other)).join("");
        assert!(told.contains(&format!("…{}b", "a".repeat(20))) && told.chars().count() < 180, "{told}");
    }

    #[test]
    fn shared_message_prefix_makes_a_request_more_similar() {
        let request = |messages: &[&str], choice: &str| json!({"messages": messages, "tool_choice": choice});
        let actual = request(&["a", "b", "c"], "auto");
        let nearer = similarity(&request(&["a", "b", "x"], "none"), &actual);
        let farther = similarity(&request(&["x", "b", "c"], "auto"), &actual);
        assert!(nearer > farther);
    }
}
