//! Access tokens from an issuer, in addition to API keys.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use haft_model_server::{Script, ScriptStep};
use haft_testkit::TokenIssuer;
use reqwest::Method;
use serde_json::{Value, json};

use super::fixture::{Reply, TestServer};
use super::limits::converse;

const AGENT: &str = "---\ndescription: Answers.\nmodels: openai/m\ntools: []\n---\nYou answer.\n";

/// Starts a server that accepts the tokens of an issuer.
fn server(issuer: &TokenIssuer) -> TestServer {
    let issuer = json!({
        "issuer": issuer.url(), "audience": ["haft"], "tenantClaim": "org",
        "scopes": {"haft": ["api"]}, "roles": {"operator": ["admin"]},
        "limits": {"requestsPerMinute": 100},
    });
    let serve = json!({"publicUrl": "https://haft.example", "issuers": [issuer]});
    let config = json!({"models": {"default": "openai/m"}, "serve": serve});
    TestServer::configured(Script::of([ScriptStep::text("Hello.")]), &config, &[("helper", AGENT)])
}

/// Returns the claims of a valid token after these changes; `null` removes a claim.
fn claims(changes: &Value) -> Value {
    let mut claims = json!({"aud": "haft", "sub": "anna", "org": "acme", "scope": "openid haft"});
    claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    claims
}

fn get(server: &TestServer, path: &str, token: &str) -> Reply {
    server.send(server.without_key(Method::GET, path).bearer_auth(token))
}

#[track_caller]
fn refused(server: &TestServer, token: &str, expected: &str) {
    let reply = get(server, "/v1/models", token);
    // After ten failures from one address, the status is 429, and the reply contains no reason.
    assert_eq!(reply.status, 401, "{}", reply.text);
    assert_eq!(reply.json()["error"]["code"], "invalid_token");
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains(expected), "{}", reply.text);
}

#[test]
fn issuer_tokens_and_api_keys_are_both_accepted() {
    let issuer = TokenIssuer::start();
    let server = server(&issuer);
    let token = issuer.token(claims(&json!({})));
    let reply = get(&server, "/v1/models", &token);
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(reply.headers["x-ratelimit-limit-requests"], "100");
    assert_eq!(server.get("/v1/models").status, 200, "API keys are still accepted");
    assert_eq!(get(&server, "/v1/models", "haft_wrong").status, 401);
    for _ in 0..5 {
        get(&server, "/v1/models", &token);
    }
    assert_eq!(issuer.key_requests(), 1, "the server caches the keys of the issuer");
    let lines = server.data_lines("access.jsonl");
    assert_eq!(lines[0]["principal"], "acme/anna");
    assert!(lines[0]["key"].as_str().unwrap().starts_with("jwt_"), "{}", lines[0]);
}

#[test]
fn tokens_that_are_forged_or_not_for_this_server_are_refused() {
    let issuer = TokenIssuer::start();
    let server = server(&issuer);
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let mut all = claims(&json!({"iss": issuer.url(), "exp": 4_000_000_000_u64}));
    let unsigned = format!("{}.{}.", part(&json!({"alg": "none"})), part(&all));
    refused(&server, &unsigned, "must be signed with one of");
    // The public key is not secret, so it must never be accepted as the secret of an HMAC.
    let signed = format!("{}.{}", part(&json!({"alg": "HS256", "kid": "key-1"})), part(&all));
    let secret = issuer.key_set()["keys"][0].to_string();
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    let tag = BASE64_URL_SAFE_NO_PAD.encode(ring::hmac::sign(&secret, signed.as_bytes()));
    refused(&server, &format!("{signed}.{tag}"), "must be signed with one of");
    let token = |changes: &Value| issuer.token(claims(changes));
    refused(&server, &token(&json!({"exp": 1_000})), "expired");
    refused(&server, &token(&json!({"exp": null})), "`exp`");
    refused(&server, &token(&json!({"aud": "other"})), "`aud`");
    refused(&server, &token(&json!({"iss": "https://other.example"})), "issuer");
    refused(&server, &token(&json!({"sub": null})), "`sub`");
    refused(&server, &token(&json!({"org": null})), "`org`");
    // Use the valid signature of other claims.
    let valid = issuer.token(claims(&json!({})));
    all["org"] = json!("other");
    let parts: Vec<&str> = valid.split('.').collect();
    refused(&server, &format!("{}.{}.{}", parts[0], part(&all), parts[2]), "signature");
    assert_eq!(get(&server, "/v1/models", &valid).status, 200);
}

#[test]
fn api_refuses_a_token_for_the_gateway() {
    let issuer = TokenIssuer::start();
    let server = server(&issuer);
    let token = |audience: &str| issuer.token(claims(&json!({ "aud": audience })));
    assert_eq!(get(&server, "/v1/models", &token("https://haft.example")).status, 200);
    refused(&server, &token("https://haft.example/mcp"), "`aud`");
}

#[test]
fn websocket_refuses_requests_after_its_token_expires() {
    let issuer = TokenIssuer::start();
    let server = server(&issuer);
    let now_s = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    // The server tolerates a clock difference of a minute, so it accepts this token for some more seconds.
    let end = now_s() + 10;
    let token = issuer.token(claims(&json!({"exp": end - 60})));
    let create = || json!({"type": "response.create", "model": "helper", "input": "Hi"});
    let until_end = || haft_testkit::eventually("the token expires", || now_s() > end);
    let messages = [create(), create()];
    let seen = server.executor.block_on(converse(&server.url, &token, &messages, until_end));
    assert_eq!(seen[0]["type"], "response.completed", "{seen:?}");
    assert_eq!(seen[1]["status"], 401, "{seen:?}");
}

#[test]
fn token_above_the_size_limit_is_refused() {
    let issuer = TokenIssuer::start();
    let server = server(&issuer);
    refused(&server, &issuer.token(claims(&json!({"more": "x".repeat(17_000)}))), "more than 16384 bytes");
    assert_eq!(issuer.key_requests(), 0);
}

#[test]
fn unknown_key_ids_cause_at_most_one_fetch_in_ten_seconds() {
    let issuer = TokenIssuer::start();
    let server = server(&issuer);
    // The server fetches the keys only when the first token arrives, so the issuer can still add a key here.
    issuer.add_key();
    let began = Instant::now();
    assert_eq!(get(&server, "/v1/models", &issuer.token(claims(&json!({})))).status, 200);
    for number in 0..40 {
        let header = json!({"alg": "ES256", "kid": format!("made-up-{number}")});
        let status = get(&server, "/v1/models", &issuer.signed(&header, claims(&json!({})))).status;
        assert!(status == 401 || status == 429, "{status}");
    }
    let fetches_max = 1 + began.elapsed().as_secs() / 10;
    assert!(
        u64::from(issuer.key_requests()) <= fetches_max,
        "the server fetches the keys at most every ten seconds"
    );
}

#[test]
fn no_token_is_accepted_if_the_issuer_keys_cannot_be_fetched() {
    let issuer = TokenIssuer::start();
    let server = server(&issuer);
    issuer.set_down(true);
    let token = issuer.token(claims(&json!({})));
    let reply = get(&server, "/v1/models", &token);
    assert_eq!(reply.status, 503, "{}", reply.text);
    let after: u64 = reply.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=11).contains(&after), "{after}");
    assert_eq!(server.get("/v1/models").status, 200, "API keys need no issuer");
}

#[test]
fn scopes_come_only_from_the_configured_mapping() {
    let issuer = TokenIssuer::start();
    let server = server(&issuer);
    let status = |path: &str, changes: &Value| get(&server, path, &issuer.token(claims(changes))).status;
    assert_eq!(status("/v1/models", &json!({"scope": "openid"})), 403);
    assert_eq!(status("/v1/models", &json!({"scope": "api admin"})), 403);
    assert_eq!(status("/metrics", &json!({})), 403);
    assert_eq!(status("/metrics", &json!({"roles": ["operator"]})), 200);
}

#[test]
fn equal_subjects_of_two_tenants_share_no_data() {
    let issuer = TokenIssuer::start();
    let server = server(&issuer);
    let token = |org: &str| issuer.token(claims(&json!({ "org": org })));
    let (acme, other) = (token("acme"), token("other"));
    let request = server.without_key(Method::POST, "/v1/responses").bearer_auth(&acme);
    let body = json!({"model": "helper", "input": "Hi"}).to_string();
    let made = server.send(request.header("content-type", "application/json").body(body));
    assert_eq!(made.status, 200, "{}", made.text);
    let path = format!("/v1/responses/{}", made.json()["id"].as_str().unwrap());
    assert_eq!((get(&server, &path, &acme).status, get(&server, &path, &other).status), (200, 404));
    // A later token of the same subject can still read the response.
    assert_eq!(get(&server, &path, &issuer.token(claims(&json!({"jti": "2"})))).status, 200);
    refused(&server, &token("local"), "which no token may use");
}
