//! Tests of the gateway over HTTP as an OAuth resource server.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use haft_testkit::{TestTree, TokenIssuer};
use serde_json::{Value, json};

use super::super::mcp::real::module;
use super::http::{GatewayServer, initialize, request};
use super::{configure, place};

/// Starts a gateway on a free port that accepts the tokens of an issuer. Returns it with its public address.
fn start(place: &TestTree, issuer: &TokenIssuer) -> (GatewayServer, String) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let public = format!("http://{free}");
    let scopes = json!({"tools": ["api"], "tools.all": ["api", "builtin-tools"]});
    let issuer = json!({"issuer": issuer.url(), "tenant": "acme", "scopes": scopes});
    let serve = json!({"publicUrl": public, "issuers": [issuer]});
    configure(place, &[("up", "good", &[])], &format!(", \"serve\": {serve}"));
    (GatewayServer::at(place, &free.to_string(), &[]), public)
}

#[test]
fn typescript_sdk_logs_in_at_the_issuer_that_the_gateway_names() {
    let (place, issuer) = (place(), TokenIssuer::start());
    let (server, public) = start(&place, &issuer);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp_clients/login_v1.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(server.url()).env("MCP_SDK", module()).stdin(Stdio::null());
    let ran = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let report: Value =
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}\n{stdout}\n{stderr}"));
    assert_eq!((&report["refused"], &report["echo"]), (&json!(true), &json!("echo: hi")), "{report}");
    // `tools` is the smallest scope that the challenge names. It does not include the shell.
    assert_eq!(report["scope"], "tools", "{report}");
    assert!(!report["tools"].as_array().unwrap().contains(&json!("bash")), "{report}");
    let resource = format!("{public}/mcp");
    assert_eq!((report["resource"].as_str(), issuer.resources()), (Some(&*resource), vec![resource.clone()]));
    // No file of the server contains the token of the client, so no log and no cache contains it.
    let token = &issuer.issued()[0];
    let signature = token.rsplit('.').next().unwrap();
    let found = Command::new("grep").args(["-rlF", signature]).arg(place.path("home")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn refused_request_names_the_token_issuer_and_the_required_scope() {
    let (place, issuer) = (place(), TokenIssuer::start());
    let (server, public) = start(&place, &issuer);
    let metadata = format!("{public}/.well-known/oauth-protected-resource/mcp");
    let bearer = |claims: Value| format!("Bearer {}", issuer.token(claims));
    let check = |token: Option<String>, status: u16, error: &str| {
        let headers: Vec<(&str, &str)> =
            token.iter().map(|token| ("Authorization", token.as_str())).collect();
        let reply = server.post(&headers, &initialize());
        let expected = format!("bearer {error}resource_metadata=\"{metadata}\", scope=\"tools\"");
        assert_eq!((reply.status(), reply.header("www-authenticate")), (status, expected));
    };
    check(None, 401, "");
    check(Some("Bearer haft_unknown".into()), 401, "");
    let (resource, other) = (format!("{public}/mcp"), "https://other.example/mcp");
    check(
        Some(bearer(json!({"aud": other, "sub": "anna", "scope": "tools"}))),
        401,
        "error=\"invalid_token\", ",
    );
    let unscoped = bearer(json!({"aud": resource, "sub": "anna", "scope": "openid"}));
    check(Some(unscoped), 403, "error=\"insufficient_scope\", ");
    let document = server.get("/.well-known/oauth-protected-resource/mcp").message();
    let expected = json!({
        "resource": resource, "authorization_servers": [issuer.url()], "scopes_supported": ["tools", "tools.all"],
        "bearer_methods_supported": ["header"], "resource_name": "haft",
    });
    assert_eq!(document, expected);
    let root = server.get("/.well-known/oauth-protected-resource").message();
    assert_eq!(root["resource"], public);
}

#[test]
fn session_accepts_every_token_of_its_subject_and_no_other_subject() {
    let (place, issuer) = (place(), TokenIssuer::start());
    let (server, public) = start(&place, &issuer);
    let bearer = |subject: &str, id: &str| {
        let claims = json!({"aud": format!("{public}/mcp"), "sub": subject, "scope": "tools", "jti": id});
        format!("Bearer {}", issuer.token(claims))
    };
    let session = server.session(&[("Authorization", &bearer("anna", "1"))]);
    let ping = |token: &str| {
        let headers = [("Authorization", token), ("Mcp-Session-Id", session.as_str())];
        server.post(&headers, &request(7, "ping", &json!({}))).status()
    };
    assert_eq!(ping(&bearer("anna", "2")), 200, "a client renews its token within a session");
    assert_eq!(ping(&bearer("bert", "3")), 404, "a subject cannot use the session of another subject");
}
