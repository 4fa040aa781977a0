//! Tests of OAuth client credentials: a token is fetched once, used, renewed, and never shown.

use std::io::Write;
use std::net::TcpStream;

use haft_testkit::{HaftOutput, SpanCollector, TestTree, TestUser};
use serde_json::json;

use super::canned::{CannedServer, answer};

const ID: &str = "client-of-ours";
const SECRET: &str = "s3cret-of-the-client";

/// The client id and the client secret in base64, as haft sends them to the token endpoint.
const BASIC: &str = "Y2xpZW50LW9mLW91cnM6czNjcmV0LW9mLXRoZS1jbGllbnQ=";

/// Starts a server that issues tokens `t0ken-number-0`, `t0ken-number-1` and so on.
fn tokens(life_seconds: u32) -> CannedServer {
    CannedServer::with(move |before, stream| {
        let granted = json!({ "access_token": format!("t0ken-number-{before}"), "expires_in": life_seconds });
        say(stream, &answer("200 OK", "Content-Type: application/json\r\n", &granted.to_string()));
    })
}

fn say(stream: &mut TcpStream, text: &str) {
    let _ = stream.write_all(text.as_bytes());
}

/// Calls two operations that need the token, one after the other in one process.
fn call(api: &CannedServer, tokens: &CannedServer, operations: &[&str]) -> HaftOutput {
    let tree = TestTree::new(TestUser::Ourselves);
    let secured = |method: &str| json!({ method: { "operationId": method, "security": [{ "login": [] }] } });
    tree.file(
        "home/api.json",
        &json!({
            "openapi": "3.1.0",
            "paths": { "/a": secured("get"), "/b": secured("post") },
            "components": { "securitySchemes": { "login": { "type": "oauth2", "flows": {} } } },
        })
        .to_string(),
    );
    let login = json!({
        "clientId": ID, "clientSecret": "${CLIENT_SECRET}", "scopes": ["read", "write"],
        "tokenUrl": format!("{}/token", tokens.url()),
    });
    let spec = json!({
        "spec": tree.path("home/api.json"), "baseUrl": api.url(), "auth": { "login": login },
    });
    tree.file("home/haft.json", &json!({ "openapiSpecs": { "api": spec } }).to_string());
    let lines = operations
        .iter()
        .enumerate()
        .map(|(id, operation)| format!("{{\"id\":{id},\"tool\":\"rest__api_{operation}\",\"args\":{{}}}}\n"));
    let collector = SpanCollector::start();
    let ran = tree
        .haft(&["call", "--stdin", "--jobs", "1", "-v", "--tree"])
        .env("CLIENT_SECRET", SECRET)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint())
        .stdin(lines.collect::<String>())
        .output();
    let kept = format!("{}{:?}", tree.text("home/data/accounting.jsonl"), collector.spans());
    let said = format!("{}{}{kept}", ran.stdout, ran.stderr);
    for secret in [SECRET, "t0ken-number", BASIC] {
        assert!(!said.contains(secret), "{secret}: {said}");
    }
    ran
}

/// Returns the tokens in the requests.
fn carried(api: &CannedServer) -> Vec<String> {
    let heads = api.heads().into_iter();
    let line = |head: String| {
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("authorization: "));
        line.unwrap_or_default().rsplit('-').next().unwrap_or_default().to_owned()
    };
    heads.map(line).collect()
}

fn fine() -> CannedServer {
    CannedServer::new(answer("200 OK", "Content-Type: application/json\r\n", "{\"ok\": true}"))
}

#[test]
fn oauth_token_is_requested_once_and_reused_until_expiry() {
    let (api, long) = (fine(), tokens(3600));
    call(&api, &long, &["get", "post", "get"]).expect_code(0);
    assert_eq!(carried(&api), ["0", "0", "0"]);
    let asked = long.heads();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].contains(&format!("authorization: Basic {BASIC}")), "{asked:?}");
    assert!(asked[0].ends_with("grant_type=client_credentials&scope=read%20write"), "{asked:?}");
    // haft no longer uses a token that is about to expire.
    let (api, short) = (fine(), tokens(20));
    call(&api, &short, &["get", "get"]).expect_code(0);
    assert_eq!(carried(&api), ["0", "1"]);
}

#[test]
fn rejected_oauth_token_is_renewed_once() {
    let api = CannedServer::with(|before, stream| {
        let text = if before == 0 { answer("401 No", "", "who?") } else { answer("200 OK", "", "welcome") };
        say(stream, &text);
    });
    let ran = call(&api, &tokens(3600), &["post", "get"]).expect_code(0);
    assert!(ran.stdout.contains("welcome"), "{}", ran.stdout);
    assert_eq!(carried(&api), ["0", "1", "1"]);
    let never = CannedServer::new(answer("401 No", "", "who?"));
    let ran = call(&never, &tokens(3600), &["get"]);
    assert!(ran.stdout.contains("HTTP 401: who?"), "{}", ran.stdout);
    assert_eq!(carried(&never), ["0", "1"]);
}

#[test]
fn echoed_oauth_credentials_are_redacted() {
    let echo = format!("you are {ID} with {SECRET}");
    let refusing = CannedServer::new(answer("400 Bad", "", &echo));
    let ran = call(&fine(), &refusing, &["get"]);
    assert!(
        ran.stdout.contains("returned no access token: HTTP 400; check clientId and clientSecret"),
        "{ran:?}"
    );
    for status in ["200 OK", "500 Oops"] {
        let repeating = CannedServer::new(answer(status, "", "you sent Bearer t0ken-number-0"));
        let ran = call(&repeating, &tokens(3600), &["get"]);
        assert!(ran.stdout.contains("you sent [redacted]"), "{ran:?}");
    }
    let page = CannedServer::new(answer("200 OK", "Content-Type: text/html\r\n", "<html>log in"));
    let ran = call(&fine(), &page, &["get"]);
    assert!(ran.stdout.contains("the response has no `access_token`"), "{ran:?}");
}
