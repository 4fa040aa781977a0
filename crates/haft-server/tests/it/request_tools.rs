//! The tools of a request: names of MCP servers, tool choices, and tools of the server.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use haft_model_server::{ModelServer, Script, ScriptStep};
use haft_store::api_keys::KeyScope;
use reqwest::Method;
use serde_json::{Value, json};

use super::approvals::types;
use super::fixture::{Reply, TestServer, scoped_key};
use super::open_responses::data;
use super::responses::{ask, check_extras, events, post, python, text};
use super::tool_server::ToolServer;

/// Returns the names of the tools in the last request to the model.
fn offered(server: &TestServer) -> Vec<String> {
    let sent = server.model.requests().last().unwrap().body.clone();
    let tools = sent["tools"].as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| tool["name"].as_str().or(tool["function"]["name"].as_str()).map(str::to_owned);
    let mut names: Vec<String> = tools.iter().filter_map(name).collect();
    names.sort();
    names
}

/// Returns the configuration of a server with an MCP server `my.docs`.
fn dotted(tools: &ToolServer, naming: &str) -> Value {
    json!({
        "models": {"default": "openai/m"}, "naming": naming, "mcpServers": {"my.docs": {"url": tools.url()}},
    })
}

const SCHEMES: [(&str, &str); 4] =
    [("double", "my_docs__add"), ("claude", "mcp__my_docs__add"), ("single", "my_docs_add"), ("bare", "add")];

#[test]
fn label_of_a_configured_server_works_in_every_naming_scheme() {
    for (naming, exposed) in SCHEMES {
        let tools = ToolServer::start();
        let script = Script::of([
            ScriptStep::call(exposed, json!({"n": 1})),
            ScriptStep::text("Done."),
            ScriptStep::text("Bye."),
        ]);
        let server = TestServer::configured(script, &dotted(&tools, naming), &[]);
        let tool = json!({"type": "mcp", "server_label": "my.docs", "allowed_tools": ["add"]});
        let first = ask(&server, &json!({"model": "openai/m", "input": "Add.", "tools": [tool]}));
        assert_eq!(offered(&server), [exposed], "{naming}");
        let call = &first["output"][0];
        assert_eq!((&call["type"], &call["output"]), (&json!("mcp_call"), &json!("noted")), "{first}");
        assert_eq!((&call["server_label"], &call["name"]), (&json!("my.docs"), &json!("add")), "{naming}");
        let mut input = first["output"].as_array().unwrap().clone();
        input.push(json!({"role": "user", "content": "Thanks."}));
        ask(&server, &json!({"model": "openai/m", "input": input, "tools": []}));
        let sent = server.model.requests().last().unwrap().raw.clone();
        assert!(sent.contains("\"my_docs__add\"") && !sent.contains("my.docs__add"), "{sent}");
    }
}

#[test]
fn failed_mcp_call_has_the_error_type_of_the_openai_sdk() {
    let tools = ToolServer::start();
    tools.fail_with("the disk is full");
    let steps = [
        ScriptStep::call("docs__add", json!({"n": 1})),
        ScriptStep::text("It failed."),
        ScriptStep::text("The disk is full."),
    ];
    let server = TestServer::configured(Script::of(steps), &tools.config(), &[]);
    let seen = python(&server, "failed_call", "openai/m");
    assert_eq!(seen["types"], json!(["McpCall", "McpToolExecutionError"]));
    assert_eq!(seen["call"], json!(["failed", null]));
    assert_eq!(seen["content"], json!([{"type": "text", "text": "the disk is full"}]));
    check_extras(&seen);
    let sent = server.model.requests().last().unwrap().raw.clone();
    assert!(sent.contains("the disk is full") && !sent.contains("mcp_tool_execution_error"), "{sent}");
    let body = json!({
        "model": "openai/m", "input": "Add.", "stream": true, "tools": [{"type": "mcp", "server_label": "docs"}],
    });
    let streamed = data(&events(&post(&server, &body)));
    let done = streamed.iter().find(|event| event["item"]["status"] == "failed").unwrap();
    assert_eq!(done["item"]["error"]["type"], "mcp_tool_execution_error");
}

#[test]
fn call_that_reached_no_tool_has_a_protocol_error() {
    let tools = ToolServer::start();
    let steps = [ScriptStep::call("docs__add", json!({"n": "x"})), ScriptStep::text("It failed.")];
    let server = TestServer::configured(Script::of(steps), &tools.config(), &[]);
    let body =
        json!({"model": "openai/m", "input": "Add.", "tools": [{"type": "mcp", "server_label": "docs"}]});
    let call = ask(&server, &body)["output"][0].clone();
    assert_eq!((&call["type"], &call["status"]), (&json!("mcp_call"), &json!("failed")), "{call}");
    assert_eq!(
        (&call["error"]["type"], &call["error"]["code"]),
        (&json!("mcp_protocol_error"), &json!(-32602))
    );
    assert_eq!(tools.calls(), [] as [Value; 0]);
}

#[test]
fn approval_filter_names_tools_in_every_naming_scheme() {
    for (naming, exposed) in SCHEMES {
        let tools = ToolServer::start();
        let script = Script::of([ScriptStep::call(exposed, json!({"n": 1})), ScriptStep::text("Done.")]);
        let server = TestServer::configured(script, &dotted(&tools, naming), &[]);
        let filter = json!({"always": {"tool_names": ["add"]}});
        let tool = json!({"type": "mcp", "server_label": "my.docs", "require_approval": filter});
        let first = ask(&server, &json!({"model": "openai/m", "input": "Add.", "tools": [tool]}));
        assert_eq!(types(&first), ["mcp_approval_request"], "{naming}");
        let item = &first["output"][0];
        assert_eq!((&item["server_label"], &item["name"]), (&json!("my.docs"), &json!("add")), "{naming}");
        let answer =
            json!({"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": true});
        let body = json!({"model": "openai/m", "previous_response_id": first["id"], "input": [answer]});
        assert_eq!((types(&ask(&server, &body)), tools.calls().len()), (vec!["mcp_call", "message"], 1));
    }
}

#[test]
fn tool_choice_names_mcp_tools_in_every_naming_scheme() {
    for (naming, exposed) in SCHEMES {
        let tools = ToolServer::start();
        let script = Script::of([ScriptStep::call(exposed, json!({"n": 1})), ScriptStep::text("Done.")]);
        let server = TestServer::configured(script, &dotted(&tools, naming), &[]);
        let tool = json!({"type": "mcp", "server_label": "my.docs"});
        let forced = json!({"type": "mcp", "server_label": "my.docs", "name": "add"});
        let body = json!({"model": "openai/m", "input": "Add.", "tools": [tool], "tool_choice": forced});
        assert_eq!(types(&ask(&server, &body)), ["mcp_call", "message"], "{naming}");
        let sent = server.model.requests()[0].body["tool_choice"].to_string();
        assert!(sent.contains(&format!("\"{exposed}\"")), "{naming}: {sent}");
        let unknown = json!({"type": "mcp", "server_label": "my.docs", "name": "remove"});
        let body = json!({"model": "openai/m", "input": "Add.", "tools": [tool], "tool_choice": unknown});
        let reply = post(&server, &body);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("tool_choice")));
    }
}

#[test]
fn server_whose_namespace_belongs_to_another_server_is_refused() {
    let tools = ToolServer::start();
    let servers = json!({"my docs": {"url": tools.url()}, "my.docs": {"url": tools.url()}});
    let config = json!({"models": {"default": "openai/m"}, "mcpServers": servers});
    let server = TestServer::configured(Script::of([]), &config, &[]);
    let tool = json!({"type": "mcp", "server_label": "my.docs"});
    let reply = post(&server, &json!({"model": "openai/m", "input": "Add.", "tools": [tool]}));
    let error = reply.json()["error"].clone();
    assert_eq!((reply.status, &error["param"]), (400, &json!("tools[0].server_label")), "{error}");
}

#[test]
fn choosing_a_server_forces_a_call_to_any_of_its_tools() {
    let tools = ToolServer::start();
    let other = json!({"type": "function", "name": "other", "parameters": {"type": "object"}});
    let script = Script::of([
        ScriptStep::call("my_docs__look", json!({"n": 1})),
        ScriptStep::call("other", json!({})),
        ScriptStep::text("Done."),
    ]);
    let server = TestServer::configured(script, &dotted(&tools, "double"), &[]);
    let choice = json!({"type": "mcp", "server_label": "my.docs"});
    let body = json!({
        "model": "openai/m", "input": "Look.", "tools": [{"type": "mcp", "server_label": "my.docs"}, other],
        "tool_choice": choice,
    });
    let response = ask(&server, &body);
    assert_eq!(response["tool_choice"], choice);
    assert_eq!(types(&response)[0], "mcp_call", "{response}");
    assert!(!types(&response).contains(&"function_call"), "the choice excludes the function: {response}");
    let sent = server.model.requests()[0].body["tool_choice"].clone();
    assert!(sent.to_string().contains("my_docs__add") && !sent.to_string().contains("other"), "{sent}");
}

#[test]
fn model_cannot_call_a_tool_outside_the_allowed_tools() {
    let tools = ToolServer::start();
    let script = Script::of([ScriptStep::call("my_docs__add", json!({"n": 1})), ScriptStep::text("Done.")]);
    let server = TestServer::configured(script, &dotted(&tools, "double"), &[]);
    let listed = json!([
        {"type": "mcp", "server_label": "my.docs", "name": "look"}, {"type": "web_search"},
        {"type": "function", "name": "f"},
    ]);
    let body = json!({
        "model": "openai/m", "input": "Add.",
        "tools": [{"type": "mcp", "server_label": "my.docs"}, {"type": "function", "name": "f"}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": listed},
    });
    let reply = post(&server, &body);
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert!(reply.headers["haft-warnings"].to_str().unwrap().contains("web_search"));
    assert_eq!(tools.calls(), [] as [Value; 0], "the call is refused");
    assert_eq!(offered(&server), ["f", "my_docs__add", "my_docs__look"], "the model still sees all tools");
    let refused = server.model.requests().last().unwrap().raw.clone();
    assert!(refused.contains("is not allowed"), "{refused}");
}

/// A PNG image with one pixel, in base64.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[test]
fn image_in_the_output_of_a_function_reaches_the_model() {
    let script = Script::of([ScriptStep::call("view", json!({})), ScriptStep::text("A red dot.")]);
    let server = TestServer::configured(script, &json!({"models": {"default": "openai/m"}}), &[]);
    let tools = json!([{"type": "function", "name": "view"}]);
    let first = ask(&server, &json!({"model": "openai/m", "input": "Look.", "tools": tools}));
    let output = json!([
        {"type": "input_text", "text": "The screen."},
        {"type": "input_image", "image_url": format!("data:image/png;base64,{PIXEL}")},
    ]);
    let item =
        json!({"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": output});
    let body =
        json!({"model": "openai/m", "input": [item], "previous_response_id": first["id"], "tools": tools});
    assert_eq!(text(&ask(&server, &body)), "A red dot.");
    let sent = server.model.requests().last().unwrap().raw.clone();
    assert!(sent.contains(PIXEL) && sent.contains("The screen."), "{sent}");
}

/// Sends a request with another key.
fn post_with(server: &TestServer, key: &str, body: &Value) -> Reply {
    let request = server.without_key(Method::POST, "/v1/responses").bearer_auth(key);
    server.send(request.header("content-type", "application/json").body(body.to_string()))
}

#[test]
fn tool_type_with_the_haft_prefix_selects_a_builtin_tool_a_group_or_an_mcp_tool() {
    let check = |kind: &str, called: &str, shown: &[&str], item: &str| {
        let tools = ToolServer::start();
        let script = Script::of([ScriptStep::call(called, json!({})), ScriptStep::text("Done.")]);
        let mut config = tools.config();
        config["groups"] = json!({"clock": ["current_*"]});
        let server = TestServer::configured(script, &config, &[]);
        let key = scoped_key(&server.store, &[KeyScope::Api, KeyScope::BuiltinTools]);
        let reply =
            post_with(&server, &key, &json!({"model": "openai/m", "input": "x", "tools": [{"type": kind}]}));
        assert_eq!(reply.status, 200, "{}", reply.text);
        let response = reply.json();
        assert_eq!(types(&response), [item, "message"], "{kind}");
        assert_eq!(response["output"][0]["status"], "completed", "{response}");
        assert_eq!(offered(&server), shown, "{kind}");
    };
    check("haft:current_date", "current_date", &["current_date"], "haft:tool_call");
    check("haft:clock", "current_date", &["current_date"], "haft:tool_call");
    check("haft:docs__look", "docs__look", &["docs__look"], "mcp_call");
    check("haft:docs", "docs__look", &["docs__add", "docs__look"], "mcp_call");
}

#[test]
fn tool_choice_with_the_haft_prefix_forces_a_call_of_this_tool() {
    let script = Script::of([ScriptStep::call("current_date", json!({})), ScriptStep::text("Done.")]);
    let server = TestServer::configured(script, &json!({"models": {"default": "openai/m"}}), &[]);
    let key = scoped_key(&server.store, &[KeyScope::Api, KeyScope::BuiltinTools]);
    let body = |choice: &str| {
        let tools = json!([{"type": "haft:current_date"}, {"type": "function", "name": "f"}]);
        json!({"model": "openai/m", "input": "x", "tools": tools, "tool_choice": {"type": choice}})
    };
    let reply = post_with(&server, &key, &body("haft:current_date"));
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(types(&reply.json()), ["haft:tool_call", "message"], "{}", reply.text);
    assert_eq!(reply.json()["tool_choice"], json!({"type": "haft:current_date"}));
    let sent = server.model.requests()[0].body["tool_choice"].to_string();
    assert!(sent.contains("\"current_date\""), "{sent}");
    let unknown = post_with(&server, &key, &body("haft:nothing"));
    assert_eq!((unknown.status, &unknown.json()["error"]["param"]), (400, &json!("tool_choice")));
}

#[test]
fn tool_choice_with_the_name_of_a_group_forces_a_call_of_one_of_its_tools() {
    let check = |choice: &Value| {
        let tools = ToolServer::start();
        let script = Script::of([ScriptStep::call("docs__look", json!({})), ScriptStep::text("Done.")]);
        let mut config = tools.config();
        config["groups"] = json!({"reading": ["docs__*"]});
        let server = TestServer::configured(script, &config, &[]);
        let key = scoped_key(&server.store, &[KeyScope::Api, KeyScope::BuiltinTools]);
        let tools = json!([{"type": "haft:reading"}, {"type": "haft:current_date"}]);
        let body = json!({"model": "openai/m", "input": "x", "tools": tools, "tool_choice": choice});
        let reply = post_with(&server, &key, &body);
        assert_eq!(reply.status, 200, "{}", reply.text);
        let response = reply.json();
        assert_eq!((types(&response), &response["tool_choice"]), (vec!["mcp_call", "message"], choice));
        let sent = &server.model.requests()[0].body["tool_choice"];
        let allowed = sent["allowed_tools"]["tools"].as_array().unwrap();
        let names: Vec<_> = allowed.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
        assert_eq!(
            (sent["allowed_tools"]["mode"].as_str(), names),
            (Some("required"), vec!["docs__add", "docs__look"])
        );
    };
    check(&json!({"type": "haft:reading"}));
    check(&json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "haft:reading"}]}));
}

#[test]
fn tool_type_with_the_haft_prefix_and_an_invalid_name_is_refused() {
    let server = TestServer::configured(Script::of([]), &json!({"models": {"default": "openai/m"}}), &[]);
    let key = scoped_key(&server.store, &[KeyScope::Api, KeyScope::BuiltinTools]);
    for kind in ["haft:Nothing", "haft:", "haft:mcp:docs__*", "haft:a[b"] {
        let tools = json!([{"type": "haft:current_date"}, {"type": kind}]);
        let reply = post_with(&server, &key, &json!({"model": "openai/m", "input": "x", "tools": tools}));
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, &error["param"]), (400, &json!("tools[1].type")), "{kind}: {error}");
    }
    assert_eq!(server.model.requests().len(), 0);
}

#[test]
fn allowed_tools_of_a_server_are_selected_by_their_effects() {
    let tools = ToolServer::start();
    let script = Script::of([ScriptStep::call("docs__add", json!({"n": 1})), ScriptStep::text("Done.")]);
    let server = TestServer::configured(script, &tools.config(), &[]);
    let check = |allowed: Value, expected: &[&str]| {
        let tool = json!({"type": "mcp", "server_label": "docs", "allowed_tools": allowed});
        ask(&server, &json!({"model": "openai/m", "input": "x", "tools": [tool]}));
        assert_eq!(offered(&server), expected, "{allowed}");
    };
    check(json!({"read_only": true}), &["docs__look"]);
    assert_eq!(tools.calls(), [] as [Value; 0], "the model cannot call a tool that changes something");
    check(json!({"read_only": false}), &["docs__add"]);
    check(json!({"read_only": true, "tool_names": ["add"]}), &[]);
    check(json!({"tool_names": ["add"]}), &["docs__add"]);
}

#[test]
fn settings_without_effect_are_named_in_the_warnings() {
    let (_model, server) = with_vllm(&Script::of([ScriptStep::text("x")]));
    let body = json!({
        "model": "vllm/m", "input": "x", "text": {"verbosity": "low"}, "reasoning": {"summary": "concise"},
        "tools": [{"type": "function", "name": "f", "strict": true}],
    });
    let reply = post(&server, &body);
    let warnings = reply.headers["haft-warnings"].to_str().unwrap();
    for name in ["text.verbosity", "reasoning.summary", "tools[0].strict"] {
        assert!(warnings.contains(name), "{warnings}");
    }
    let tool = &reply.json()["tools"][0];
    assert_eq!((&tool["description"], &tool["parameters"]), (&Value::Null, &Value::Null));
    assert!(tool.as_object().unwrap().contains_key("description"), "{tool}");
}

/// Starts a server with a further model provider that supports few settings, and the model server of this provider.
fn with_vllm(script: &Script) -> (ModelServer, TestServer) {
    let model = ModelServer::start(script.clone()).unwrap();
    let vllm = json!({"kind": "vllm", "baseUrl": format!("{}/v1", model.url())});
    let config = json!({"models": {"default": "openai/m"}, "providers": {"vllm": vllm}});
    (model, TestServer::configured(script.clone(), &config, &[]))
}

/// A function whose schema follows the rules of strict mode.
fn strict_function() -> Value {
    let schema = json!({
        "type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"],
        "additionalProperties": false,
    });
    json!({"type": "function", "name": "weather", "parameters": schema, "strict": true})
}

#[test]
fn verbosity_summary_and_strict_reach_models_that_support_them() {
    let body = json!({
        "input": "x", "text": {"verbosity": "low"}, "reasoning": {"effort": "low", "summary": "detailed"},
        "tools": [strict_function()], "include": ["haft.warnings"],
    });
    let rows = [
        ("openai-responses/gpt-5", &[][..]),
        ("openai/gpt-5", &["reasoning.summary"]),
        ("vllm/m", &["tools[0].strict", "text.verbosity", "reasoning.summary"]),
    ];
    for (model, unsupported) in rows {
        let (vllm, server) = with_vllm(&Script::of([ScriptStep::text("Hi.")]));
        let mut body = body.clone();
        body["model"] = model.into();
        let reply = post(&server, &body);
        let response = reply.json();
        assert_eq!((reply.status, &response["status"]), (200, &json!("completed")), "{response}");
        let header = reply.headers.get("haft-warnings").map_or("", |text| text.to_str().unwrap());
        for field in ["tools[0].strict", "text.verbosity", "reasoning.summary"] {
            assert_eq!(header.contains(field), unsupported.contains(&field), "{model}: {header}");
        }
        let shown =
            response["output"].as_array().unwrap().iter().filter(|item| item["type"] == "haft:warning");
        assert_eq!(shown.count(), unsupported.len(), "{response}");
        assert_eq!(response["text"]["verbosity"], "low", "{response}");
        assert_eq!(response["reasoning"], json!({"effort": "low", "summary": "detailed"}));
        assert_eq!(response["tools"][0]["strict"], true, "{response}");
        let requests = if model.starts_with("vllm") { vllm.requests() } else { server.model.requests() };
        let sent = &requests[0].body;
        let (verbosity, summary, strict) = if model.starts_with("openai-responses") {
            (&sent["text"]["verbosity"], &sent["reasoning"]["summary"], &sent["tools"][0]["strict"])
        } else {
            (&sent["verbosity"], &Value::Null, &sent["tools"][0]["function"]["strict"])
        };
        let expected =
            |field: &str, value: Value| if unsupported.contains(&field) { Value::Null } else { value };
        assert_eq!(*verbosity, expected("text.verbosity", json!("low")), "{sent}");
        assert_eq!(*summary, expected("reasoning.summary", json!("detailed")), "{sent}");
        assert_eq!(*strict, expected("tools[0].strict", json!(true)), "{sent}");
    }
}

#[test]
fn attachments_of_function_outputs_reach_the_model() {
    let server = TestServer::start(Script::of([ScriptStep::text("Unused."), ScriptStep::text("A cat.")]));
    let call = json!({"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"});
    let parts = json!([
        {"type": "input_text", "text": "Found."},
        {"type": "input_image", "image_url": "https://example.org/cat.png"},
        {"type": "input_file", "filename": "cat.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
        {"type": "input_file", "filename": "cat.txt", "file_data": "data:text/plain;base64,bWVvdw=="},
    ]);
    let output = json!({"type": "function_call_output", "call_id": "c1", "output": parts});
    let input = json!([{"role": "user", "content": "What is it?"}, call, output]);
    let response = ask(&server, &json!({"model": "openai/m", "input": input}));
    let messages = server.model.requests()[0].body["messages"].clone();
    let reply = messages[2]["content"].as_str().unwrap();
    assert!(reply.contains("Found.") && reply.contains("meow"), "{messages}");
    let attached = &messages[3];
    assert_eq!(attached["role"], "user", "{messages}");
    assert_eq!(attached["content"][1]["image_url"]["url"], "https://example.org/cat.png", "{messages}");
    assert_eq!(attached["content"][2]["file"]["filename"], "cat.pdf", "{messages}");
    let path = format!("/v1/responses/{}/input_items", response["id"].as_str().unwrap());
    assert_eq!(server.get(&path).json()["data"][0]["output"], parts, "clients read their items unchanged");
}

/// The maximum time until a request with a hostile schema is answered, even on a busy machine. A validator without a limit
/// would need longer than any test.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// Returns schemas that could occupy the server for a long time, or make it send requests to the canary.
fn hostile_schemas(canary: &TcpListener) -> Vec<(&'static str, Value)> {
    let url = format!("http://{}/schema.json", canary.local_addr().unwrap());
    let object = |property: Value| json!({"type": "object", "properties": {"n": property}});
    let branches: Vec<Value> =
        (0..10_000).map(|number| json!({"required": [format!("p{number}")]})).collect();
    let doubled = |level: usize| {
        let Some(below) = level.checked_sub(1) else { return json!({"type": "integer"}) };
        let lower = json!({"$ref": format!("#/$defs/d{below}")});
        json!({"allOf": [lower, lower], "anyOf": [lower, lower]})
    };
    let definitions: serde_json::Map<String, Value> =
        (0..60).map(|level| (format!("d{level}"), doubled(level))).collect();
    let mut doubling = object(json!({"$ref": "#/$defs/d59"}));
    doubling["$defs"] = definitions.into();
    vec![
        ("10,000 branches", json!({"type": "object", "properties": {"n": {}}, "anyOf": branches})),
        ("a property with 10,000 branches", object(json!({"anyOf": branches}))),
        ("doubling references", doubling),
        ("a loop", json!({"type": "object", "properties": {"n": {"$ref": "#/properties/n"}}})),
        ("a remote reference", object(json!({"$ref": url}))),
        ("a remote dynamic reference", object(json!({"$dynamicRef": format!("{url}#meta")}))),
        ("a relative reference to a remote base", {
            let mut schema = object(json!({"$ref": "other.json"}));
            schema["$id"] = url.clone().into();
            schema
        }),
        ("a remote meta-schema", {
            let mut schema = object(json!({"type": "integer"}));
            schema["$schema"] = url.into();
            schema
        }),
    ]
}

#[test]
fn hostile_schemas_neither_delay_the_reply_nor_cause_requests_to_their_urls() {
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    canary.set_nonblocking(true).unwrap();
    for (what, schema) in hostile_schemas(&canary) {
        let tools = ToolServer::start();
        tools.describe(schema.clone());
        let steps = [ScriptStep::call("docs__look", json!({"n": 1})), ScriptStep::text("{\"n\":1}")];
        let server = TestServer::configured(Script::of(steps), &tools.config(), &[]);
        let mcp = json!({"type": "mcp", "server_label": "docs"});
        let function = json!({"type": "function", "name": "f", "parameters": schema});
        let format = json!({"type": "json_schema", "name": "n", "schema": schema});
        let bodies = [
            ("MCP tool", json!({"tools": [mcp]})),
            ("function", json!({"tools": [function]})),
            ("format", json!({"text": {"format": format}})),
        ];
        for (place, mut body) in bodies {
            body["model"] = "openai/m".into();
            body["input"] = "Look.".into();
            let began = Instant::now();
            let reply = post(&server, &body);
            let elapsed = began.elapsed();
            println!("{what}, {place}: {} after {elapsed:?}", reply.status);
            assert!(elapsed < ANSWERED_WITHIN, "{what}, {place}: {elapsed:?}");
            assert!([200, 400, 500].contains(&reply.status), "{what}, {place}: {}", reply.text);
            let hit = canary.accept();
            assert!(hit.is_err(), "{what}, {place}: a request came from {hit:?}");
        }
        assert_eq!(server.get("/v1/models").status, 200, "{what}");
    }
}

#[test]
fn empty_list_of_allowed_tools_allows_all_tools() {
    let steps = || [ScriptStep::call("weather", json!({"town": "Oslo"}))];
    let tools = json!([{"type": "function", "name": "weather"}]);
    let run = |allowed: Option<Value>| {
        let server = TestServer::start(Script::of(steps()));
        let mut body = json!({"model": "openai/m", "input": "x", "tools": tools});
        body.as_object_mut().unwrap().extend(allowed.map(|allowed| ("allowed_tools".to_owned(), allowed)));
        let response = ask(&server, &body);
        let sent = server.model.requests()[0].body.clone();
        (response["output"][0]["type"].clone(), response["tool_choice"].clone(), sent)
    };
    let usual = run(None);
    assert_eq!((&usual.0, &usual.1), (&json!("function_call"), &json!("auto")));
    assert_eq!(run(Some(json!([]))), usual);
}

/// Returns the functions `f` and `g`.
fn functions() -> Value {
    json!([{"type": "function", "name": "f"}, {"type": "function", "name": "g"}])
}

fn plain(steps: impl IntoIterator<Item = ScriptStep>) -> TestServer {
    TestServer::start(Script::of(steps))
}

#[test]
fn top_level_allowed_tools_apply_together_with_every_tool_choice() {
    let listed = json!([{"type": "function", "name": "f"}, {"type": "function", "name": "g"}]);
    for choice in [json!("auto"), json!({"type": "auto"}), json!({"type": "allowed_tools", "tools": listed})]
    {
        let server = plain([ScriptStep::call("g", json!({})), ScriptStep::text("Done.")]);
        let body = json!({
            "model": "openai/m", "input": "x", "tools": functions(), "tool_choice": choice, "allowed_tools": ["f"],
        });
        let response = ask(&server, &body);
        assert_eq!((types(&response), text(&response)), (vec!["message"], "Done."), "{choice}: {response}");
        let refused = server.model.requests().last().unwrap().raw.clone();
        assert!(refused.contains("is not allowed"), "{choice}: {refused}");
    }
}

#[test]
fn allowed_tools_apply_in_the_turns_after_a_forced_call() {
    let forced = json!({"type": "function", "name": "docs__look"});
    let rows = [
        json!({"tool_choice": forced}),
        json!({"forced_tool": forced}),
        json!({"tool_choice": {"forced_tool": forced}}),
        json!({"tool_choice": {"type": "mcp", "server_label": "docs", "name": "look"}}),
    ];
    for row in rows {
        let tools = ToolServer::start();
        let look = ScriptStep::call("docs__look", json!({"n": 1}));
        let script =
            Script::of([look, ScriptStep::call("docs__add", json!({"n": 2})), ScriptStep::text("Done.")]);
        let server = TestServer::configured(script, &tools.config(), &[]);
        let mut body = json!({
            "model": "openai/m", "input": "x", "tools": [{"type": "mcp", "server_label": "docs"}],
            "allowed_tools": ["docs__look"],
        });
        body.as_object_mut().unwrap().extend(row.as_object().unwrap().clone());
        let response = ask(&server, &body);
        assert_eq!((types(&response), text(&response)), (vec!["mcp_call", "message"], "Done."), "{row}");
        assert_eq!(tools.calls(), [json!({"n": 1})], "{row}: the call in the second turn is refused");
    }
}

#[test]
fn choice_that_contradicts_the_allowed_tools_calls_no_model() {
    let rows = [
        json!({"tool_choice": {"type": "function", "name": "g"}, "allowed_tools": ["f"]}),
        json!({"forced_tool": {"type": "function", "name": "g"}, "allowed_tools": ["f"]}),
        json!({
            "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]},
            "allowed_tools": ["f"],
        }),
        json!({"tool_choice": "auto", "allowed_tools": ["nothing"]}),
        json!({"tool_choice": {"type": "function", "name": "f"}, "allowed_tools": ["f", "nothing"]}),
        json!({"tool_choice": "required", "tools": []}),
    ];
    for row in rows {
        let server = plain([]);
        let mut body = json!({"model": "openai/m", "input": "x", "tools": functions()});
        body.as_object_mut().unwrap().extend(row.as_object().unwrap().clone());
        let reply = post(&server, &body);
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, &error["param"]), (400, &json!("tool_choice")), "{row}: {error}");
        assert_eq!(server.model.requests().len(), 0, "{row}");
    }
}

#[test]
fn tool_choice_none_and_required_are_enforced() {
    let call = || ScriptStep::call("f", json!({}));
    let body = |choice: &str| json!({"model": "openai/m", "input": "x", "tools": functions(), "tool_choice": choice});
    let server = plain([call(), ScriptStep::text("Done.")]);
    let response = ask(&server, &body("none"));
    assert_eq!((types(&response), text(&response)), (vec!["message"], "Done."), "{response}");
    let server = plain([ScriptStep::text("No."), call()]);
    let response = ask(&server, &body("required"));
    assert_eq!(types(&response).last(), Some(&"function_call"), "{response}");
    assert_eq!(server.model.requests()[0].body["tool_choice"], "required");
}

#[test]
fn allowed_tools_without_a_usable_entry_permit_no_call() {
    for listed in [json!([]), json!([{"type": "web_search"}])] {
        let server = plain([ScriptStep::call("f", json!({})), ScriptStep::text("Done.")]);
        let choice = json!({"type": "allowed_tools", "mode": "auto", "tools": listed});
        let body = json!({"model": "openai/m", "input": "x", "tools": functions(), "tool_choice": choice});
        assert_eq!(types(&ask(&server, &body)), ["message"], "{listed}");
        assert_eq!(server.model.requests()[0].body["tool_choice"], "none", "{listed}");
    }
}

#[test]
fn request_cannot_loosen_the_tool_choice_or_the_parallel_calls_of_its_agent() {
    let agent = |key: &str| format!("---\nmodels: openai/m\ntools: []\n{key}\n---\nYou answer.\n");
    let (silent, single) = (agent("toolChoice: none"), agent("parallelToolCalls: false"));
    let agents = [("silent", silent.as_str()), ("single", single.as_str())];
    let start = || {
        let script = Script::of([ScriptStep::call("f", json!({})), ScriptStep::text("Done.")]);
        TestServer::configured(script, &json!({"models": {"default": "openai/m"}}), &agents)
    };
    let server = start();
    let listed = json!({"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}]});
    let body = json!({"model": "silent", "input": "x", "tools": functions(), "tool_choice": listed});
    assert_eq!(types(&ask(&server, &body)), ["message"]);
    let server = start();
    for choice in [json!("required"), json!({"type": "function", "name": "f"})] {
        let body = json!({"model": "silent", "input": "x", "tools": functions(), "tool_choice": choice});
        let reply = post(&server, &body);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("tool_choice")), "{choice}");
    }
    assert_eq!(server.model.requests().len(), 0);
    let body = json!({"model": "single", "input": "x", "tools": functions(), "parallel_tool_calls": true});
    ask(&server, &body);
    assert_eq!(server.model.requests()[0].body["parallel_tool_calls"], false);
}

#[test]
fn choice_of_a_skipped_custom_tool_is_ignored_with_a_warning() {
    let server = plain([ScriptStep::text("Done.")]);
    let custom = json!({"type": "custom", "name": "patch"});
    let body = json!({"model": "openai/m", "input": "x", "tools": [custom], "tool_choice": custom});
    let reply = post(&server, &body);
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert!(reply.headers["haft-warnings"].to_str().unwrap().contains("`tool_choice`"));
}

#[test]
fn names_of_earlier_function_calls_are_valid_for_every_provider() {
    let server = plain([ScriptStep::text("Done.").at_turn(1)]);
    let call = |name: &str| {
        json!([
            {"role": "user", "content": "x"},
            {"type": "function_call", "call_id": "c", "name": name, "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "y"},
        ])
    };
    ask(&server, &json!({"model": "openai/m", "input": call("my.tool")}));
    let sent = server.model.requests().last().unwrap().raw.clone();
    assert!(sent.contains("\"my_tool\"") && !sent.contains("my.tool"), "{sent}");
    let reply = post(&server, &json!({"model": "openai/m", "input": call("")}));
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("input[1].name")));
}
