//! Tests of the gateway over HTTP as an OAuth resource server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use haft_testkit::{TestTree, TokenIssuer};
use serde_json::{Value, json};

use super::super::mcp::real::module;
use super::http::{GatewayServer, initialize, request, stateless};
use super::http_upstream::{HttpUpstream, UpstreamEra, UpstreamFault};
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

/// Starts a proxy in front of an upstream server. Returns its URL, and all bytes that the server gets.
fn recording_proxy(url: &str) -> (String, Arc<Mutex<Vec<u8>>>) {
    let upstream = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/mcp", listener.local_addr().unwrap());
    let recorded = Arc::<Mutex<Vec<u8>>>::default();
    let record = Arc::clone(&recorded);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(&upstream).unwrap();
            let (mut from_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from_server, &mut to_client));
            let record = Arc::clone(&record);
            std::thread::spawn(move || pass_and_record(client, server, &record));
        }
    });
    (address, recorded)
}

fn pass_and_record(mut from: TcpStream, mut to: TcpStream, record: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        record.lock().unwrap().extend(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

#[test]
fn upstream_server_gets_neither_the_key_nor_the_token_of_a_client() {
    let (place, issuer) = (place(), TokenIssuer::start());
    let (_, public) = start(&place, &issuer);
    for era in [UpstreamEra::Handshake, UpstreamEra::Stateless] {
        let (url, recorded) = recording_proxy(&HttpUpstream::start(era, UpstreamFault::None, 1));
        let mut config: Value = serde_json::from_str(&place.text("home/haft.json")).unwrap();
        config["mcpServers"] = json!({"up": {"url": url}});
        place.file("home/haft.json", &config.to_string());
        let server = GatewayServer::at(&place, public.trim_start_matches("http://"), &[]);
        let key = place.haft(&["keys", "create", "client"]).output().expect_code(0).stdout;
        let claims = json!({"aud": format!("{public}/mcp"), "sub": "anna", "scope": "tools"});
        for secret in [key.trim().to_owned(), issuer.token(claims)] {
            let bearer = format!("Bearer {secret}");
            let login = [("Authorization", bearer.as_str()), ("Cookie", "session=4711")];
            let session = server.session(&login);
            let own = [&login[..], &[("Mcp-Session-Id", session.as_str())]].concat();
            let call = json!({"name": "up__echo", "arguments": {"text": "hi"}});
            let called = server.post(&own, &request(2, "tools/call", &call)).message();
            assert_eq!(called["result"]["content"][0]["text"], "echo: hi", "{called}");
            let named = [&login[..], &[("Mcp-Name", "up__echo")]].concat();
            let called = stateless(&server, "tools/call", call, &named).message();
            assert_eq!(called["result"]["content"][0]["text"], "echo: hi", "{called}");
            let recorded = String::from_utf8_lossy(&recorded.lock().unwrap()).into_owned();
            assert!(recorded.contains("tools/call"), "{recorded}");
            assert!(!recorded.contains(&secret) && !recorded.contains("4711"), "{recorded}");
            assert!(!recorded.contains(&session), "{recorded}");
            assert!(!recorded.to_lowercase().contains("\r\nauthorization:"), "{recorded}");
        }
    }
}
