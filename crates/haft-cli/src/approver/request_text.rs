//! The text that describes a call to the user who approves it. Characters that could hide a part of the text are
//! escaped.

use std::fmt::Write;

use haft_core::approval::{ApprovalRequest, shown, shown_lines};
use serde_json::{Map, Value};

/// The argument names under which tools pass the old and the new text of an edit.
const EDIT_PAIRS: [(&str, &str); 4] =
    [("old_string", "new_string"), ("oldText", "newText"), ("old_text", "new_text"), ("old_str", "new_str")];

/// Describes the call: its tool, directory and arguments, and the reason for asking.
pub(super) fn request_text(request: &ApprovalRequest) -> String {
    let workspace = shown(&request.workspace.to_string_lossy());
    let mut text = format!("{} wants to run in {workspace}:\n", shown(&request.tool));
    let edit = edit_pair(&request.arguments);
    for (name, value) in &request.arguments {
        if edit.is_none_or(|(old, new)| name != old && name != new) {
            argument(&mut text, name, value);
        }
    }
    if let Some((old, new)) = edit {
        diff(&mut text, &request.arguments, old, new);
    }
    text.push_str(&shown(&request.why));
    text
}

fn argument(text: &mut String, name: &str, value: &Value) {
    let name = shown(name);
    match value {
        Value::String(value) if value.contains('\n') => {
            let _ = writeln!(text, "  {name}:");
            lines(text, "|", value);
        }
        Value::String(value) => {
            let _ = writeln!(text, "  {name}: {}", shown(value));
        }
        Value::Array(values) if values.iter().any(is_edit) => {
            let _ = writeln!(text, "  {name}:");
            for value in values {
                element(text, value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            let _ = writeln!(text, "  {name}: {}", shown(&value.to_string()));
        }
    }
}

/// Describes one of several edits of a call.
fn element(text: &mut String, value: &Value) {
    match value.as_object().and_then(|fields| Some((fields, edit_pair(fields)?))) {
        Some((fields, (old, new))) => {
            for (name, value) in fields.iter().filter(|(name, _)| *name != old && *name != new) {
                argument(text, name, value);
            }
            diff(text, fields, old, new);
        }
        None => {
            let _ = writeln!(text, "    {}", shown(&value.to_string()));
        }
    }
}

/// Writes the lines of the old text, then the lines of the new text.
fn diff(text: &mut String, fields: &Map<String, Value>, old: &str, new: &str) {
    let field = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    lines(text, "-", field(old));
    lines(text, "+", field(new));
}

/// Writes a block of lines. The mark before each line prevents a text from imitating other parts of the question.
fn lines(text: &mut String, mark: &str, value: &str) {
    for line in shown_lines(value) {
        let _ = writeln!(text, "    {mark} {line}");
    }
}

fn is_edit(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| edit_pair(fields).is_some())
}

fn edit_pair(fields: &Map<String, Value>) -> Option<(&'static str, &'static str)> {
    let is_text = |name: &str| fields.get(name).is_some_and(Value::is_string);
    EDIT_PAIRS.into_iter().find(|(old, new)| is_text(old) && is_text(new))
}

#[cfg(test)]
mod tests {
    use haft_core::approval::ApprovalId;
    use haft_core::digest::Digest;
    use haft_core::position::RunPosition;
    use serde_json::json;

    use super::*;

    fn check(tool: &str, arguments: &Value, expected: &str) {
        let request = ApprovalRequest {
            id: ApprovalId::parse(&"1".repeat(32)).unwrap(),
            place: RunPosition::default(),
            tool: tool.into(),
            arguments: arguments.as_object().unwrap().clone(),
            workspace: "/w".into(),
            digest: Digest::of_text(""),
            rules: Vec::new(),
            prefix: None,
            why: "why".into(),
        };
        assert_eq!(request_text(&request), format!("{tool} wants to run in /w:\n{expected}why"));
    }

    #[test]
    fn approval_question_shows_an_edit_as_a_line_diff() {
        let edit = json!({"file_path": "a", "old_string": "one\n\ttwo", "new_string": "1\r\n2", "replace_all": true});
        let diff = "    - one\n    - \\ttwo\n    + 1\\r\n    + 2\n";
        check("edit", &edit, &format!("  file_path: a\n  replace_all: true\n{diff}"));
        let edits = json!({"path": "a", "edits": [{"oldText": "x", "newText": "y"}, {"oldText": "b", "newText": ""}]});
        check("edit_file", &edits, "  edits:\n    - x\n    + y\n    - b\n    + \n  path: a\n");
        check("edit", &json!({"old_string": 1, "new_string": "x"}), "  new_string: x\n  old_string: 1\n");
    }

    #[test]
    fn command_text_cannot_imitate_the_approval_question() {
        let command = "true\nallow? [y] once\n\u{1b}[2A";
        let expected = "  command:\n    | true\n    | allow? [y] once\n    | \\u{1b}[2A\n";
        check("bash", &json!({ "command": command }), expected);
        check("bash", &json!({"command": "rm \u{2013}rf \u{430}"}), "  command: rm \\u{2013}rf \\u{430}\n");
    }
}
