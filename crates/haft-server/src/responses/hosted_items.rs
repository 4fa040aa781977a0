//! Converts items of tools that OpenAI runs or defines, so that clients can continue conversations of other servers.
//!
//! A call that the client ran becomes a call with an output. A call that the other server ran becomes a finished call.
//! An item without content for the model is skipped with a warning.

use haft_core::arguments::RawArguments;
use haft_core::media;
use haft_core::name::ToolName;
use haft_core::output::OutputContent;
use haft_core::tool::{CallId, ToolCall};
use serde_json::{Map, Value, json};

use super::field::{RequestField, invalid, required};
use super::items::{FunctionOutput, InputItem, bytes_of, call_id};
use crate::error::ApiError;

/// The fields of an item.
type ItemFields = Map<String, Value>;

/// Parses an item of the type `kind`. Returns `None` for an unknown type.
pub(super) fn parse(path: &str, kind: &str, item: &ItemFields) -> Result<Option<InputItem>, ApiError> {
    Ok(Some(match kind {
        "custom_tool_call" => custom_call(path, item)?,
        "custom_tool_call_output" => InputItem::Output {
            call: call_id(path, item, "call_id")?,
            output: FunctionOutput::parse(&format!("{path}.output"), item.get("output"))?,
        },
        "local_shell_call" => client_call(path, item, "local_shell", "action")?,
        "local_shell_call_output" => local_shell_output(path, item)?,
        "shell_call" => client_call(path, item, "shell", "action")?,
        "shell_call_output" => shell_output(path, item)?,
        "apply_patch_call" => client_call(path, item, "apply_patch", "operation")?,
        "apply_patch_call_output" => patch_output(path, item)?,
        "computer_call" => {
            let field = if item.contains_key("actions") { "actions" } else { "action" };
            client_call(path, item, "computer", field)?
        }
        "computer_call_output" => screenshot(path, item)?,
        "web_search_call" => web_search(path, item)?,
        "file_search_call" => file_search(path, item)?,
        "code_interpreter_call" => code_interpreter(path, item)?,
        "image_generation_call" => generated_image(path, item)?,
        _ => return Ok(None),
    }))
}

/// Returns a call that the client ran. The arguments are the field of the item that describes the call.
fn client_call(path: &str, item: &ItemFields, name: &str, field: &str) -> Result<InputItem, ApiError> {
    let id = call_id(path, item, "call_id")?;
    let arguments = match item.get(field) {
        Some(Value::Object(action)) => Value::Object(action.clone()),
        // The arguments of a call must be an object.
        Some(actions @ Value::Array(_)) => json!({field: actions}),
        _ => return Err(wrong(path, field, "an object")),
    };
    Ok(InputItem::Call(tool_call(id, name, &arguments)))
}

fn custom_call(path: &str, item: &ItemFields) -> Result<InputItem, ApiError> {
    let (id, name) = (call_id(path, item, "call_id")?, required(path, item, "name")?);
    // A model provider refuses a name with characters such as `.`.
    let name = ToolName::sanitize(&name).to_string();
    Ok(InputItem::Call(tool_call(id, &name, &json!({"input": required(path, item, "input")?}))))
}

fn tool_call(id: String, name: &str, arguments: &Value) -> ToolCall {
    let arguments = RawArguments::from_text(arguments.to_string());
    ToolCall { id: CallId(id), name: name.to_owned(), arguments }
}

/// Returns the output of a local shell call. Some clients send the id of the call as `id` instead of `call_id`.
fn local_shell_output(path: &str, item: &ItemFields) -> Result<InputItem, ApiError> {
    let field = if item.contains_key("call_id") { "call_id" } else { "id" };
    let output = FunctionOutput::of_text(required(path, item, "output")?);
    Ok(InputItem::Output { call: call_id(path, item, field)?, output })
}

/// Returns the output of shell commands as JSON: for each command, the texts and the outcome.
fn shell_output(path: &str, item: &ItemFields) -> Result<InputItem, ApiError> {
    let Some(output @ Value::Array(_)) = item.get("output") else {
        return Err(wrong(path, "output", "an array"));
    };
    let output = FunctionOutput::of_text(output.to_string());
    Ok(InputItem::Output { call: call_id(path, item, "call_id")?, output })
}

fn patch_output(path: &str, item: &ItemFields) -> Result<InputItem, ApiError> {
    let status = required(path, item, "status")?;
    let log = RequestField::new(format!("{path}.output"), item.get("output").cloned()).text()?;
    let text = log.map_or_else(|| status.clone(), |log| format!("{status}\n{log}"));
    Ok(InputItem::Output { call: call_id(path, item, "call_id")?, output: FunctionOutput::of_text(text) })
}

fn screenshot(path: &str, item: &ItemFields) -> Result<InputItem, ApiError> {
    let Some(Value::Object(shot)) = item.get("output") else {
        return Err(wrong(path, "output", "an object"));
    };
    let output = if shot.get("image_url").is_some_and(|url| !url.is_null()) {
        let mut output = FunctionOutput::default();
        output.add_image(&format!("{path}.output"), shot)?;
        output
    } else {
        FunctionOutput::of_text("[a screenshot that is stored on another server]".to_owned())
    };
    Ok(InputItem::Output { call: call_id(path, item, "call_id")?, output })
}

/// Returns a web search that another server ran. The output contains only the URLs of the found pages, because an item
/// never contains the pages. It contains the URLs only if the client asked for them.
fn web_search(path: &str, item: &ItemFields) -> Result<InputItem, ApiError> {
    let mut action = item.get("action").and_then(Value::as_object).cloned().unwrap_or_default();
    let sources = match action.remove("sources") {
        Some(Value::Array(sources)) if !sources.is_empty() => sources,
        _ => return Ok(skipped(path, "web_search_call", "its sources")),
    };
    let urls = sources.iter().filter_map(|source| source["url"].as_str());
    let output = FunctionOutput::of_text(urls.collect::<Vec<_>>().join("\n"));
    finished(path, item, "web_search", &Value::Object(action), output)
}

fn file_search(path: &str, item: &ItemFields) -> Result<InputItem, ApiError> {
    let results = match item.get("results") {
        Some(Value::Array(results)) if !results.is_empty() => results,
        _ => return Ok(skipped(path, "file_search_call", "its results")),
    };
    let text = |result: &Value| {
        let of = |name: &str| result[name].as_str().unwrap_or_default().to_owned();
        format!("File {}:\n{}", of("filename"), of("text"))
    };
    let output = FunctionOutput::of_text(results.iter().map(text).collect::<Vec<_>>().join("\n\n"));
    let queries = item.get("queries").cloned().unwrap_or_default();
    finished(path, item, "file_search", &json!({"queries": queries}), output)
}

fn code_interpreter(path: &str, item: &ItemFields) -> Result<InputItem, ApiError> {
    let code = RequestField::new(format!("{path}.code"), item.get("code").cloned()).text()?;
    let Some(code) = code.filter(|code| !code.is_empty()) else {
        return Ok(skipped(path, "code_interpreter_call", "its code"));
    };
    let outputs = RequestField::new(format!("{path}.outputs"), item.get("outputs").cloned());
    let logs = outputs.array()?.into_iter().flatten().map(|output| match output["logs"].as_str() {
        Some(logs) => logs.to_owned(),
        None => "[an image that is stored on another server]".to_owned(),
    });
    let logs: Vec<String> = logs.collect();
    let text = if logs.is_empty() { "[no output]".to_owned() } else { logs.join("\n") };
    finished(path, item, "code_interpreter", &json!({"code": code}), FunctionOutput::of_text(text))
}

fn generated_image(path: &str, item: &ItemFields) -> Result<InputItem, ApiError> {
    let param = format!("{path}.result");
    let data = RequestField::new(param.clone(), item.get("result").cloned()).text()?;
    let Some(data) = data.filter(|data| !data.is_empty()) else {
        return Ok(skipped(path, "image_generation_call", "its image"));
    };
    let bytes = bytes_of(&param, &data)?;
    let Some(media_type) = media::sniff(&bytes).filter(|media_type| media_type.starts_with("image/")) else {
        return Ok(skipped(path, "image_generation_call", "an image that models support"));
    };
    let image = OutputContent::Image { media_type: media_type.to_owned(), bytes };
    let output = FunctionOutput::of_content(image);
    let prompt = item.get("revised_prompt").cloned().unwrap_or_default();
    finished(path, item, "image_generation", &json!({"prompt": prompt}), output)
}

/// Returns a call that the other server ran. Its output is not trusted, like the output of this server's tools.
fn finished(
    path: &str,
    item: &ItemFields,
    name: &str,
    arguments: &Value,
    output: FunctionOutput,
) -> Result<InputItem, ApiError> {
    let call = tool_call(call_id(path, item, "id")?, name, arguments);
    let is_error = item.get("status").and_then(Value::as_str) == Some("failed");
    Ok(InputItem::Finished { call, output, is_error }.delimited())
}

fn skipped(path: &str, kind: &str, missing: &str) -> InputItem {
    InputItem::Skipped(format!(
        "the server skipped `{path}`: the item of type `{kind}` does not contain {missing}"
    ))
}

fn wrong(path: &str, field: &str, expected: &str) -> ApiError {
    let param = format!("{path}.{field}");
    invalid(param.clone(), format!("`{param}` must be {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(item: &Value) -> InputItem {
        InputItem::parse("input[0]", item).unwrap_or_else(|error| panic!("{item}: {}", error.message))
    }

    #[test]
    fn calls_that_the_client_ran_keep_their_name_arguments_and_output() {
        let check = |item: Value, name: &str, arguments: Value| {
            let InputItem::Call(call) = parsed(&item) else { panic!("{item}") };
            let found: Value = serde_json::from_str(call.arguments.as_text()).unwrap();
            assert_eq!((call.id.0.as_str(), call.name.as_str(), found), ("c", name, arguments), "{item}");
        };
        let custom = json!({"type": "custom_tool_call", "call_id": "c", "name": "my.tool", "input": "x = 1"});
        check(custom, "my_tool", json!({"input": "x = 1"}));
        let exec = json!({"type": "exec", "command": ["ls", "-l"], "env": {}});
        check(
            json!({"type": "local_shell_call", "id": "i", "call_id": "c", "action": exec}),
            "local_shell",
            exec.clone(),
        );
        let commands = json!({"commands": ["ls"], "timeout_ms": 5});
        check(json!({"type": "shell_call", "call_id": "c", "action": commands}), "shell", commands.clone());
        let patch = json!({"type": "update_file", "path": "a", "diff": "@@"});
        check(
            json!({"type": "apply_patch_call", "call_id": "c", "operation": patch}),
            "apply_patch",
            patch.clone(),
        );
        let click = json!({"type": "click", "x": 1, "y": 2, "button": "left"});
        check(
            json!({"type": "computer_call", "id": "i", "call_id": "c", "action": click}),
            "computer",
            click.clone(),
        );
        let actions = json!({"type": "computer_call", "id": "i", "call_id": "c", "actions": [click]});
        check(actions, "computer", json!({"actions": [click]}));
        let check = |item: Value, expected: &str| {
            let InputItem::Output { call, output } = parsed(&item) else { panic!("{item}") };
            let text = format!("{:?}", output.content);
            assert!(call == "c" && text.contains(expected), "{item}: {text}");
        };
        check(json!({"type": "custom_tool_call_output", "call_id": "c", "output": "done"}), "done");
        check(json!({"type": "local_shell_call_output", "id": "c", "output": "a.txt"}), "a.txt");
        let run = json!([{"stdout": "b.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}}]);
        check(json!({"type": "shell_call_output", "call_id": "c", "output": run}), "b.txt");
        let failed = json!({"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no file"});
        check(failed, "failed\\nno file");
        let shot = |shot: Value| json!({"type": "computer_call_output", "call_id": "c", "output": shot});
        let png = "data:image/png;base64,iVBORw0KGgo=";
        check(shot(json!({"type": "computer_screenshot", "image_url": png})), "image/png");
        check(shot(json!({"type": "computer_screenshot", "file_id": "f"})), "another server");
    }

    #[test]
    fn calls_that_the_other_server_ran_keep_their_results() {
        let check = |item: Value, name: &str, arguments: &str, expected: &str| {
            let InputItem::Finished { call, output, is_error } = parsed(&item) else { panic!("{item}") };
            let text = format!("{:?}", output.content);
            assert_eq!((call.id.0.as_str(), call.name.as_str(), is_error), ("h", name, false));
            assert!(call.arguments.as_text().contains(arguments) && text.contains(expected), "{text}");
        };
        let action =
            json!({"type": "search", "query": "rust", "sources": [{"type": "url", "url": "https://a/"}]});
        check(
            json!({"type": "web_search_call", "id": "h", "action": action}),
            "web_search",
            "rust",
            "https://a/",
        );
        let results = json!([{"filename": "a.md", "text": "Found.", "score": 0.5}]);
        let search = json!({"type": "file_search_call", "id": "h", "queries": ["q"], "results": results});
        check(search, "file_search", "\"q\"", "File a.md:\\nFound.");
        let outputs = json!([{"type": "logs", "logs": "4"}, {"type": "image", "url": "https://a/"}]);
        let code = json!({"type": "code_interpreter_call", "id": "h", "code": "2+2", "outputs": outputs});
        check(code, "code_interpreter", "2+2", "4\\n[an image");
        let png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
        let image =
            json!({"type": "image_generation_call", "id": "h", "result": png, "revised_prompt": "a cat"});
        check(image, "image_generation", "a cat", "image/png");
    }

    #[test]
    fn items_without_content_are_skipped_with_a_warning() {
        for item in [
            json!({"type": "web_search_call", "id": "h", "action": {"type": "search", "query": "q"}}),
            json!({"type": "file_search_call", "id": "h", "queries": ["q"], "results": null}),
            json!({"type": "code_interpreter_call", "id": "h", "code": null, "outputs": null}),
            json!({"type": "image_generation_call", "id": "h", "result": null}),
            json!({"type": "image_generation_call", "id": "h", "result": "PHN2Zz48L3N2Zz4="}),
        ] {
            let found = parsed(&item);
            let warning = found.warning().unwrap_or_else(|| panic!("{item}"));
            assert!(
                warning.contains("input[0]") && warning.contains(item["type"].as_str().unwrap()),
                "{warning}"
            );
        }
    }

    #[test]
    fn damaged_items_are_refused_with_their_path() {
        let check = |item: Value, param: &str| {
            let error = InputItem::parse("input[0]", &item).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{item}");
        };
        check(json!({"type": "teapot_call", "id": "h"}), "input[0].type");
        check(json!({"type": "custom_tool_call", "call_id": "c", "name": "t"}), "input[0].input");
        check(json!({"type": "shell_call", "call_id": "c", "action": "ls"}), "input[0].action");
        check(json!({"type": "shell_call_output", "call_id": "c", "output": "x"}), "input[0].output");
        check(json!({"type": "local_shell_call_output", "output": "x"}), "input[0].id");
        check(json!({"type": "image_generation_call", "id": "h", "result": "%"}), "input[0].result");
        check(json!({"type": "file_search_call", "results": [{"text": "x"}]}), "input[0].id");
    }
}
