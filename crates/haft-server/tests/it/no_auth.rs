//! Tests of a server that requires no keys.

use haft_model_server::{Script, ScriptStep};
use haft_server::AuthMode;
use reqwest::Method;
use serde_json::json;

use super::fixture::{ServerOptions, TestServer};
use super::responses::{ask, text};
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

#[test]
fn server_without_keys_denies_calls_that_the_operators_rules_ask_about() {
    let tools = ToolServer::start();
    let mut config = tools.config();
    config["policy"] = json!({"rules": [{"tool": "docs__add", "decision": "ask"}]});
    let script = Script::of([ScriptStep::call("docs__add", json!({"n": 1})), ScriptStep::text("Denied.")]);
    let server = TestServer::configured_with(script, &config, options());
    let tool = json!({"type": "mcp", "server_label": "docs"});
    let response = ask(&server, &json!({"model": "openai/m", "input": "Add a note.", "tools": [tool]}));
    assert_eq!((text(&response), tools.calls().len()), ("Denied.", 0), "{response}");
    assert!(!response.to_string().contains("mcp_approval_request"), "{response}");
}
