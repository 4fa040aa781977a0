//! Tests of a server that requires no keys.

use haft_model_server::{Script, ScriptStep};
use haft_server::AuthMode;
use reqwest::Method;
use serde_json::{Value, json};

use super::fixture::{ServerOptions, TestServer, key};
use super::responses::{ask, post, text};
use super::tool_server::ToolServer;

fn options() -> ServerOptions {
    ServerOptions { auth: AuthMode::NoAuth, ..ServerOptions::default() }
}

#[test]
fn server_without_keys_has_no_native_api_and_no_metrics() {
    let server = TestServer::with_options(Script::of([ScriptStep::text("Hello.")]), options());
    let status = |method: Method, path: &str| server.send(server.without_key(method, path)).status;
    assert_eq!(status(Method::GET, "/v1/models"), 200);
    for path in ["/api/v1", "/api/v1/runs", "/api/v1/approvals", "/api/v1/tools", "/api/v1/stats"] {
        assert_eq!(status(Method::GET, path), 404, "{path}");
    }
    assert_eq!(status(Method::POST, "/api/v1/runs"), 404);
    assert_eq!(status(Method::GET, "/metrics"), 403);
    // A key has no effect: even a key with all scopes must not open these routes.
    assert_eq!((server.get("/api/v1/runs").status, server.get("/metrics").status), (404, 403));
}

/// The reason that the model sees if a call needs approval.
const NEEDS_KEYS: &str = "a server without API keys denies calls that need approval";

fn add_a_note() -> Script {
    Script::of([ScriptStep::call("docs__add", json!({"n": 1})), ScriptStep::text("Denied.")])
}

/// Returns the requests for which the call needs approval: by a rule, by the request, and by the default for servers that
/// a request names.
fn asking(tools: &ToolServer) -> [(&'static str, Value, Value); 3] {
    let rule = json!({"rules": [{"tool": "docs__add", "decision": "ask"}]});
    let configured = tools.config();
    let ruled = json!({"mcpServers": configured["mcpServers"], "policy": rule});
    let url = json!({"type": "mcp", "server_label": "docs", "server_url": tools.url()});
    let always = json!({"type": "mcp", "server_label": "docs", "require_approval": "always"});
    [
        ("rule", ruled, json!({"type": "mcp", "server_label": "docs"})),
        ("request", configured, always),
        ("server_url", json!({"serve": {"serverUrls": "any"}}), url),
    ]
}

#[test]
fn server_without_keys_denies_every_call_that_needs_approval() {
    for store in [true, false] {
        let tools = ToolServer::start();
        for (by, config, tool) in asking(&tools) {
            let server = TestServer::configured_with(add_a_note(), &config, options());
            let body = json!({"model": "openai/m", "input": "Add a note.", "tools": [tool], "store": store});
            let response = ask(&server, &body);
            assert_eq!((text(&response), tools.calls().len()), ("Denied.", 0), "{by}: {response}");
            assert!(!response.to_string().contains("mcp_approval_request"), "{by}: {response}");
            let sent = server.model.requests().last().unwrap().raw.clone();
            assert!(sent.contains(NEEDS_KEYS), "{by}: {sent}");
        }
    }
}

#[test]
fn server_without_keys_makes_calls_that_need_no_approval() {
    let tools = ToolServer::start();
    let config = json!({"serve": {"serverUrls": "any"}});
    let server = TestServer::configured_with(add_a_note(), &config, options());
    let tool = json!({
        "type": "mcp", "server_label": "docs", "server_url": tools.url(), "require_approval": "never",
    });
    ask(&server, &json!({"model": "openai/m", "input": "Add a note.", "tools": [tool]}));
    assert_eq!(tools.calls(), [json!({"n": 1})]);
}

#[test]
fn server_without_keys_refuses_answers_to_approval_requests_of_a_server_with_keys() {
    let tools = ToolServer::start();
    let mut server = TestServer::configured(add_a_note(), &tools.config(), &[]);
    // Requests to the server without keys belong to the local user, so the waiting response must be this user's.
    server.key = key(&server.store, "local", "local", None);
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "always"});
    let first = ask(&server, &json!({"model": "openai/m", "input": "Add a note.", "tools": [tool]}));
    let item = first["output"][0]["id"].as_str().unwrap_or_else(|| panic!("{first}"));
    server.restart_with(options());
    let id = first["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/v1/responses/{id}")).status, 200, "the response is visible");
    let answer = json!({"type": "mcp_approval_response", "approval_request_id": item, "approve": true});
    let refused = post(&server, &json!({"model": "openai/m", "previous_response_id": id, "input": [answer]}));
    assert_eq!(refused.status, 403, "{}", refused.text);
    let error = &refused.json()["error"];
    assert_eq!((&error["code"], &error["param"]), (&json!("approvals_need_keys"), &json!("input[0]")));
    assert_eq!(tools.calls().len(), 0);
}
