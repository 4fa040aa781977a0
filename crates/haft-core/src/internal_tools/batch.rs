//! The batch tool: several tool calls inside one call, for models that make only one call in a turn.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::final_report::FINAL_REPORT;
use super::handoff::HANDOFF;
use crate::arguments::{ARGUMENTS_BYTES_MAX, ArgumentLimits, RawArguments};
use crate::model_request::ModelTool;

/// The tool name that the model calls.
pub const BATCH: &str = "agent__batch";

/// The maximum number of calls in a batch. It is far above the number of calls that a turn may make; `plan` rejects a
/// longer list.
pub const BATCH_CALLS_MAX: usize = 200;

/// The calls in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPlan {
    /// The calls, in the order of the list. Never empty.
    pub items: Vec<BatchItem>,
    /// The completeness of the list. If the list was cut off, the reply tells the model to send the rest again.
    pub extent: BatchCompleteness,
}

/// The completeness of the list that the model sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchCompleteness {
    /// The whole list of calls arrived.
    Whole,
    /// The text was cut off before the end of the list. The plan holds only the complete calls.
    CutOff,
}

/// One call in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchItem {
    /// The id that the model gave the call; without one, the index of the call in the batch.
    pub id: String,
    /// The tool name that the model wrote. It is not resolved yet.
    pub tool: String,
    /// The arguments of this call alone.
    pub arguments: RawArguments,
}

/// The outcome of one call in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchItemOutcome<'a> {
    /// The id of the [`BatchItem`].
    pub id: &'a str,
    /// The tool name that the model wrote.
    pub tool: &'a str,
    /// The output as text, or the error message.
    pub outcome: Result<String, String>,
}

#[derive(Deserialize)]
struct BatchItemJson {
    id: Option<Value>,
    tool: String,
    #[serde(default)]
    parameters: Map<String, Value>,
}

/// Returns the tool definition for the model.
pub fn tool() -> ModelTool {
    let schema = json!({
        "type": "object",
        "properties": {"calls": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": ["string", "integer"], "description": "Copied to the result; defaults to the position in the list."},
                    "tool": {"type": "string"},
                    "parameters": {"type": "object", "description": "The arguments of that tool."},
                },
                "required": ["tool", "parameters"],
            },
        }},
        "required": ["calls"],
    });
    let description = "Calls several tools at once; the results are in the order of the calls. \
                       A batch cannot contain a batch, a handoff or the final report.";
    ModelTool {
        name: BATCH.into(),
        description: description.into(),
        input_schema: Arc::new(schema),
        strict: false,
    }
}

/// Parses a call of the tool. The error text is for the model.
pub fn plan(arguments: &RawArguments) -> Result<BatchPlan, String> {
    let (calls, extent) = match serde_json::from_str::<Value>(arguments.as_text()) {
        Err(error) if error.is_eof() => (recover(arguments.as_text())?, BatchCompleteness::CutOff),
        Ok(_) | Err(_) => repaired(arguments)?,
    };
    if calls.is_empty() {
        return Err("`calls` is empty; name at least one call".into());
    }
    if calls.len() > BATCH_CALLS_MAX {
        return Err(format!("a batch has at most {BATCH_CALLS_MAX} calls; got {}", calls.len()));
    }
    let items = calls.into_iter().enumerate().map(|(at, call)| item(at, call)).collect::<Result<_, _>>()?;
    Ok(BatchPlan { items, extent })
}

/// Returns the reason why a tool cannot be called inside a batch, or `None` if it can.
pub fn refusal(tool: &str) -> Option<String> {
    [BATCH, FINAL_REPORT, HANDOFF]
        .contains(&tool)
        .then(|| format!("`{tool}` cannot be called inside a batch; call it on its own"))
}

/// Returns the result of the whole batch for the model.
pub fn reply(ends: &[BatchItemOutcome<'_>], extent: BatchCompleteness) -> String {
    let results: Vec<Value> = ends.iter().map(result).collect();
    let mut reply = json!({"results": results});
    if extent == BatchCompleteness::CutOff {
        let note = "the batch was cut off; only its complete calls were made: send the rest again";
        reply["note"] = note.into();
    }
    reply.to_string()
}

fn result(end: &BatchItemOutcome<'_>) -> Value {
    let BatchItemOutcome { id, tool, outcome } = end;
    match outcome {
        Ok(output) => json!({"id": id, "tool": tool, "ok": true, "output": output}),
        Err(message) => json!({"id": id, "tool": tool, "ok": false, "error": message}),
    }
}

/// Parses text that is JSON or nearly JSON; `RawArguments::parse` repairs it by the same rules as all arguments. If the
/// text was cut off, the repair would complete the last call, so that call is left out.
fn repaired(arguments: &RawArguments) -> Result<(Vec<Value>, BatchCompleteness), String> {
    let parsed = arguments.parse(&ArgumentLimits::default()).map_err(|error| error.to_string())?;
    let wrong = || "`calls` must be a list of {\"tool\": …, \"parameters\": {…}}".to_owned();
    let mut calls: Vec<Value> = match parsed.object().get("calls") {
        Some(Value::Array(calls)) => calls.clone(),
        // Also accept a list that the model encoded as a JSON string.
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| wrong())?,
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            return Err(wrong());
        }
    };
    if !parsed.cut_off() {
        return Ok((calls, BatchCompleteness::Whole));
    }
    calls.pop();
    if calls.is_empty() { Err(cut_off_early()) } else { Ok((calls, BatchCompleteness::CutOff)) }
}

fn cut_off_early() -> String {
    "the batch was cut off before its first call was complete; send fewer calls at once".to_owned()
}

/// Returns the complete calls of a list that was cut off. It never returns a partial call: with a truncated path, a
/// delete would remove the wrong file.
fn recover(text: &str) -> Result<Vec<Value>, String> {
    if text.len() > ARGUMENTS_BYTES_MAX {
        return Err(cut_off_early());
    }
    let (_, behind) = text.split_once("\"calls\"").ok_or_else(cut_off_early)?;
    let list = behind.trim_start().strip_prefix(':').map(str::trim_start);
    let mut rest = list.and_then(|list| list.strip_prefix('[')).ok_or_else(cut_off_early)?;
    let mut calls = Vec::new();
    loop {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let Some(Ok(call)) = values.next() else { break };
        calls.push(call);
        rest = rest[values.byte_offset()..].trim_start_matches(|c: char| c == ',' || c.is_whitespace());
    }
    if calls.is_empty() { Err(cut_off_early()) } else { Ok(calls) }
}

fn item(at: usize, call: Value) -> Result<BatchItem, String> {
    let written: BatchItemJson =
        serde_json::from_value(call).map_err(|error| format!("call {at} of the batch: {error}"))?;
    let id = match written.id {
        Some(Value::String(id)) => id,
        Some(Value::Number(id)) => id.to_string(),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => at.to_string(),
    };
    Ok(BatchItem {
        id,
        tool: written.tool,
        arguments: RawArguments::from_value(&Value::Object(written.parameters)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Result<&[(&str, &str, &str)], &str>) {
        match (plan(&RawArguments::from_text(text)), expected) {
            (Ok(plan), Ok(expected)) => {
                let found: Vec<_> = plan
                    .items
                    .iter()
                    .map(|item| (item.id.as_str(), item.tool.as_str(), item.arguments.as_text()))
                    .collect();
                assert_eq!(found, expected, "{text}");
            }
            (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
            (found, expected) => panic!("{text}: expected {expected:?}, found {found:?}"),
        }
    }

    #[test]
    fn batch_calls_without_an_id_are_numbered() {
        check(
            r#"{"calls": [{"tool": "a", "parameters": {"x": 1}}, {"id": "k", "tool": "b"}, {"id": 7, "tool": "c", "parameters": {}}]}"#,
            Ok(&[("0", "a", r#"{"x":1}"#), ("k", "b", "{}"), ("7", "c", "{}")]),
        );
        check(r#"{"calls": "[{\"tool\": \"a\"}]"}"#, Ok(&[("0", "a", "{}")]));
        check(r#"{"calls": [{"tool": "a"},]}"#, Ok(&[("0", "a", "{}")]));
    }

    #[test]
    fn invalid_batch_is_rejected_with_the_reason() {
        check("{}", Err("must be a list"));
        check(r#"{"calls": {}}"#, Err("must be a list"));
        check(r#"{"calls": []}"#, Err("at least one"));
        check(
            &json!({"calls": vec![json!({"tool": "a"}); BATCH_CALLS_MAX + 1]}).to_string(),
            Err("at most 200 calls; got 201"),
        );
        check(r#"{"calls": [{"parameters": {}}]}"#, Err("call 0 of the batch: missing field `tool`"));
        check(r#"{"calls": [{"tool": "a", "parameters": "x"}]}"#, Err("call 0"));
    }

    #[test]
    fn truncated_batch_runs_only_its_complete_calls() {
        let first = ("0", "a", r#"{"x":1}"#);
        check(
            r#"{"calls": [{"tool": "a", "parameters": {"x": 1}}, {"tool": "rm", "parameters": {"path": "/tm"#,
            Ok(&[first]),
        );
        check(
            r#"{"calls": [{"tool": "a", "parameters": {"x": 1}}, {"tool": "b"}"#,
            Ok(&[first, ("1", "b", "{}")]),
        );
        check(r#"{"calls": [{"tool": "a", "par"#, Err("cut off before its first call"));
        check(r#"{"cal"#, Err("cut off before its first call"));
        assert_eq!(
            plan(&RawArguments::from_text(r#"{"calls": [{"tool": "a"}"#)).unwrap().extent,
            BatchCompleteness::CutOff
        );
    }

    /// A newline inside a string is not valid JSON, so the repair code reads the text and closes open strings.
    #[test]
    fn truncated_batch_that_needs_a_repair_runs_only_its_complete_calls() {
        let cut = "{\"calls\": [{\"tool\": \"a\", \"parameters\": {\"x\": \"1\n2\"}}, {\"tool\": \"rm\", \"parameters\": {\"path\": \"/tm";
        check(cut, Ok(&[("0", "a", r#"{"x":"1\n2"}"#)]));
        assert_eq!(plan(&RawArguments::from_text(cut)).unwrap().extent, BatchCompleteness::CutOff);
        let first = "{\"calls\": [{\"tool\": \"rm\", \"parameters\": {\"path\": \"/a\n/tm";
        check(first, Err("cut off before its first call"));
    }

    #[test]
    fn nested_batch_final_report_and_handoff_are_refused_inside_a_batch() {
        for tool in [BATCH, FINAL_REPORT, HANDOFF] {
            assert!(refusal(tool).is_some(), "{tool}");
        }
        assert_eq!(refusal("read"), None);
    }

    #[test]
    fn batch_results_are_in_call_order() {
        let ends = [
            BatchItemOutcome { id: "0", tool: "a", outcome: Ok("one".into()) },
            BatchItemOutcome { id: "1", tool: "b", outcome: Err("no".into()) },
        ];
        let expected = json!({"results": [
            {"id": "0", "tool": "a", "ok": true, "output": "one"},
            {"id": "1", "tool": "b", "ok": false, "error": "no"},
        ]});
        assert_eq!(serde_json::from_str::<Value>(&reply(&ends, BatchCompleteness::Whole)).unwrap(), expected);
        assert!(reply(&ends, BatchCompleteness::CutOff).contains("cut off"));
    }

    proptest! {
        #[test]
        fn batch_cut_at_any_point_yields_no_partial_call(cut in 0_usize..150) {
            let text = r#"{"calls": [{"tool": "a", "parameters": {"x": "one, two"}}, {"tool": "b", "parameters": {"y": [1, 2]}}]}"#;
            let whole = plan(&RawArguments::from_text(text)).unwrap().items;
            let text: String = text.chars().take(cut).collect();
            if let Ok(plan) = plan(&RawArguments::from_text(text)) {
                prop_assert!(whole.starts_with(&plan.items));
            }
        }
    }
}
