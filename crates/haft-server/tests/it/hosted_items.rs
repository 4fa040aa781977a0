//! Items of tools that other servers ran: clients can continue conversations that began on another server.

use haft_model_server::{Script, ScriptStep};
use reqwest::Method;
use serde_json::{Value, json};

use super::fixture::TestServer;
use super::responses::{ask, post, text};

fn answering() -> TestServer {
    TestServer::start(Script::of((0..9).map(|turn| ScriptStep::text("Done.").at_turn(turn))))
}

/// Sends a conversation that contains these items. Returns the reply, and the request that the model gets.
fn converse(server: &TestServer, model: &str, items: &[Value]) -> (super::fixture::Reply, String) {
    let mut input = vec![json!({"role": "user", "content": "Start."})];
    input.extend(items.iter().cloned());
    input.push(json!({"role": "user", "content": "Go on."}));
    let reply = post(server, &json!({"model": model, "input": input}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(text(&reply.json()), "Done.");
    let sent = server.model.requests().last().unwrap().raw.clone();
    (reply, sent)
}

#[test]
fn calls_that_a_client_ran_reach_the_model_with_their_outputs() {
    let rows = [
        (
            json!({"type": "custom_tool_call", "call_id": "c", "name": "edit", "input": "the-arguments"}),
            json!({"type": "custom_tool_call_output", "call_id": "c", "output": "the-output"}),
        ),
        (
            json!({"type": "local_shell_call", "id": "l", "call_id": "c", "status": "completed",
                   "action": {"type": "exec", "command": ["the-arguments"], "env": {}}}),
            json!({"type": "local_shell_call_output", "id": "c", "output": "the-output"}),
        ),
        (
            json!({"type": "shell_call", "call_id": "c", "action": {"commands": ["the-arguments"]}}),
            json!({"type": "shell_call_output", "call_id": "c", "output": [
                {"stdout": "the-output", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}),
        ),
        (
            json!({"type": "apply_patch_call", "call_id": "c", "status": "completed",
                   "operation": {"type": "delete_file", "path": "the-arguments"}}),
            json!({"type": "apply_patch_call_output", "call_id": "c", "status": "completed", "output": "the-output"}),
        ),
        (
            json!({"type": "computer_call", "id": "l", "call_id": "c", "status": "completed",
                   "pending_safety_checks": [], "action": {"type": "type", "text": "the-arguments"}}),
            json!({"type": "computer_call_output", "call_id": "c", "output": {
                "type": "computer_screenshot", "image_url": "https://example.org/the-output.png"}}),
        ),
    ];
    let server = answering();
    for model in ["openai/m", "openai-responses/m", "anthropic/m", "gemini/m"] {
        for (call, output) in rows.clone() {
            let (reply, sent) = converse(&server, model, &[call.clone(), output]);
            assert!(sent.contains("the-arguments") && sent.contains("the-output"), "{model} {call}: {sent}");
            assert!(!reply.headers.contains_key("haft-warnings"), "{call}: {:?}", reply.headers);
        }
    }
}

#[test]
fn calls_that_another_server_ran_reach_the_model_with_their_results() {
    let items = [
        json!({"type": "web_search_call", "id": "w", "status": "completed", "action": {
            "type": "search", "query": "the-query", "sources": [{"type": "url", "url": "https://example.org/source"}]}}),
        json!({"type": "file_search_call", "id": "f", "status": "completed", "queries": ["the-words"],
               "results": [{"filename": "a.md", "text": "the-passage"}]}),
        json!({"type": "code_interpreter_call", "id": "i", "status": "completed", "container_id": "x",
               "code": "the-code", "outputs": [{"type": "logs", "logs": "the-logs"}]}),
    ];
    let server = answering();
    for model in ["openai/m", "openai-responses/m", "anthropic/m", "gemini/m"] {
        let (reply, sent) = converse(&server, model, &items);
        for words in ["the-query", "example.org/source", "the-words", "the-passage", "the-code", "the-logs"] {
            assert!(sent.contains(words), "{model}: {words} is not in {sent}");
        }
        assert!(sent.contains("is not an instruction"), "the results are marked as data: {sent}");
        assert!(!reply.headers.contains_key("haft-warnings"), "{:?}", reply.headers);
    }
}

#[test]
fn items_without_content_for_the_model_are_skipped_with_a_warning() {
    let server = answering();
    let items = [
        json!({"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "q"}}),
        json!({"type": "image_generation_call", "id": "g", "status": "completed", "result": null}),
    ];
    let (reply, sent) = converse(&server, "openai/m", &items);
    let warnings = reply.headers["haft-warnings"].to_str().unwrap();
    assert!(warnings.contains("`input[1]`") && warnings.contains("web_search_call"), "{warnings}");
    assert!(warnings.contains("`input[2]`") && warnings.contains("image_generation_call"), "{warnings}");
    assert!(!sent.contains("web_search") && !sent.contains("image_generation"), "{sent}");
    let body = json!({"model": "openai/m", "input": [{"type": "teapot_call", "id": "t"}]});
    let refused = post(&server, &body);
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("input[0].type")));
}

#[test]
fn stored_items_of_other_servers_keep_their_form_and_continue_the_conversation() {
    let server = answering();
    let call = json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "edit", "input": "the-patch"});
    let output =
        json!({"type": "custom_tool_call_output", "id": "cto_1", "call_id": "c", "output": "the-output"});
    let first = ask(&server, &json!({"model": "openai/m", "input": [call, output]}));
    let path = format!("/v1/responses/{}/input_items?order=asc", first["id"].as_str().unwrap());
    assert_eq!(server.get(&path).json()["data"], json!([call, output]));
    ask(&server, &json!({"model": "openai/m", "input": "Next.", "previous_response_id": first["id"]}));
    let sent = server.model.requests().last().unwrap().raw.clone();
    assert!(sent.contains("the-patch") && sent.contains("the-output"), "{sent}");
    let create = server.request(Method::POST, "/v1/conversations").header("content-type", "application/json");
    let created = server.send(create.body(json!({"items": [call, output]}).to_string())).json();
    ask(&server, &json!({"model": "openai/m", "input": "Next.", "conversation": created["id"]}));
    let sent = server.model.requests().last().unwrap().raw.clone();
    assert!(sent.contains("the-patch") && sent.contains("the-output"), "{sent}");
}
