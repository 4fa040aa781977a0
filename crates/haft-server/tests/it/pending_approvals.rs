//! Approval requests that wait: their expiry, their metrics, and the webhook about them.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use haft_model_server::{Script, ScriptStep};
use haft_store::api_keys::KeyScope;
use haft_testkit::eventually;
use http::{HeaderMap, StatusCode};
use reqwest::Method;
use ring::hmac;
use serde_json::{Value, json};
use tokio::runtime::Runtime as Executor;

use super::approvals::{audited, code, types};
use super::fixture::{TestServer, scoped_key};
use super::responses::{ask, post as send, text};
use super::tool_server::ToolServer;

fn script() -> Script {
    let call = ScriptStep::call("docs__add", json!({"n": 7_654_321}));
    Script::of([call, ScriptStep::text("It was not made.")])
}

fn request() -> Value {
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "always"});
    json!({"model": "openai/m", "input": "Add a note.", "tools": [tool]})
}

fn metric(server: &TestServer, name: &str) -> f64 {
    found_metric(server, name).unwrap_or_else(|| panic!("{name} is not in the metrics"))
}

/// Returns the value of a metric; `None` if the server has not counted such an event yet.
fn found_metric(server: &TestServer, name: &str) -> Option<f64> {
    let admin = scoped_key(&server.store, &[KeyScope::Admin]);
    let reply = server.send(server.without_key(Method::GET, "/metrics").bearer_auth(admin));
    let row = reply.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    row.map(|value| value.parse().unwrap())
}

#[test]
fn unanswered_approval_request_denies_its_call_even_after_a_restart() {
    for is_restarted in [false, true] {
        let tools = ToolServer::start();
        let mut config = tools.config();
        config["serve"] = json!({"approvalTimeout": "2s"});
        let mut server = TestServer::configured(script(), &config, &[]);
        let first = ask(&server, &request());
        assert_eq!(types(&first), ["mcp_approval_request"], "{first}");
        let item = &first["output"][0];
        if is_restarted {
            server.restart();
        }
        eventually("the request expires", || metric(&server, "haft_approvals_expired_total") > 0.5);
        assert!(metric(&server, "haft_approvals_pending") < 0.5);
        assert!(metric(&server, "haft_approvals_oldest_age_seconds") < 0.001);
        let decided = audited(&server, "approval.decided");
        assert_eq!((&decided[0]["target"], &decided[0]["detail"]), (&item["id"], &json!("expired")));
        let answer =
            json!({"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": true});
        let late = json!({"model": "openai/m", "previous_response_id": first["id"], "input": [answer]});
        let late = send(&server, &late);
        assert_eq!((late.status, code(&late)), (400, json!("approval_request_expired")), "{}", late.text);
        assert_eq!(
            server.model.requests().len(),
            1,
            "the run has ended without another request to the model"
        );
        let next = json!({"model": "openai/m", "previous_response_id": first["id"], "input": "And?"});
        assert_eq!(text(&ask(&server, &next)), "It was not made.", "the conversation can continue");
        assert_eq!(tools.calls(), [] as [Value; 0]);
    }
}

#[test]
fn waiting_approval_request_is_in_the_metrics_until_it_is_answered() {
    let tools = ToolServer::start();
    let mut server = TestServer::configured(script(), &tools.config(), &[]);
    let first = ask(&server, &request());
    server.restart();
    assert!((metric(&server, "haft_approvals_pending") - 1.0).abs() < 0.5);
    assert!(metric(&server, "haft_approvals_oldest_age_seconds") > 0.0);
    let id = &first["output"][0]["id"];
    let answer = json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": false});
    ask(&server, &json!({"model": "openai/m", "previous_response_id": first["id"], "input": [answer]}));
    assert!(metric(&server, "haft_approvals_pending") < 0.5);
}

/// The secret of the example in the Standard Webhooks specification.
const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

type Deliveries = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// Handles a request of the webhook: refuses the first one, and accepts all others.
async fn receive(State(seen): State<Deliveries>, headers: HeaderMap, body: String) -> StatusCode {
    let mut seen = seen.lock().unwrap();
    seen.push((headers, body));
    if seen.len() == 1 { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::NO_CONTENT }
}

/// Starts a receiver that answers with this status, on a port of its own.
fn receiver(executor: &Executor, status: &Arc<Mutex<StatusCode>>, seen: &Deliveries) -> String {
    let listener = executor.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (status, seen) = (Arc::clone(status), Arc::clone(seen));
    let answer = move |headers: HeaderMap, body: String| {
        seen.lock().unwrap().push((headers, body));
        std::future::ready(*status.lock().unwrap())
    };
    let app = Router::new().route("/hook", post(answer));
    executor.spawn(async move { axum::serve(listener, app).await });
    url
}

#[test]
fn undelivered_webhook_event_is_sent_once_after_a_restart() {
    let (executor, seen) = (Executor::new().unwrap(), Deliveries::default());
    let status = Arc::new(Mutex::new(StatusCode::SERVICE_UNAVAILABLE));
    let url = receiver(&executor, &status, &seen);
    let tools = ToolServer::start();
    let mut config = tools.config();
    config["serve"] = json!({"approvalWebhook": {"url": url, "secret": format!("whsec_{SECRET}")}});
    let mut server = TestServer::configured(script(), &config, &[]);
    let first = ask(&server, &request());
    eventually("the first attempt fails", || !seen.lock().unwrap().is_empty());
    server.restart();
    *status.lock().unwrap() = StatusCode::NO_CONTENT;
    let file = server.data().join("approvals-pending").join(first["id"].as_str().unwrap());
    eventually("the next process delivers the event", || {
        std::fs::read_to_string(&file).unwrap().contains("is_announced")
    });
    let deliveries = seen.lock().unwrap().clone();
    let id = |at: usize| deliveries[at].0["webhook-id"].to_str().unwrap().to_owned();
    assert_eq!(id(0), id(deliveries.len() - 1), "the receiver can tell that it is the same event");
    assert!(deliveries.last().unwrap().1.contains(first["id"].as_str().unwrap()));
    server.restart();
    // The delivery for another response shows that the new process has already sent all older events.
    let second = ask(&server, &request());
    eventually("the new event is delivered", || {
        seen.lock().unwrap().last().unwrap().1.contains(second["id"].as_str().unwrap())
    });
    assert_eq!(seen.lock().unwrap().len(), deliveries.len() + 1, "the old event is not sent again");
}

#[test]
fn webhook_gets_signed_approval_requests_without_arguments() {
    let (executor, seen) = (Executor::new().unwrap(), Deliveries::default());
    let listener = executor.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let app = Router::new().route("/hook", post(receive)).with_state(Arc::clone(&seen));
    executor.spawn(async move { axum::serve(listener, app).await });
    let tools = ToolServer::start();
    let mut config = tools.config();
    config["serve"] = json!({"approvalWebhook": {"url": url, "secret": format!("whsec_{SECRET}")}});
    let server = TestServer::configured(script(), &config, &[]);
    let first = ask(&server, &request());
    eventually("the second attempt is accepted", || seen.lock().unwrap().len() == 2);
    let deliveries = seen.lock().unwrap().clone();
    let id = |at: usize| deliveries[at].0["webhook-id"].to_str().unwrap();
    assert_eq!(id(0), id(1), "a receiver can tell a repeated delivery from a new one");
    let (headers, body) = &deliveries[1];
    let header = |name: &str| headers[name].to_str().unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(SECRET).unwrap());
    let signed = format!("{}.{}.{body}", id(1), header("webhook-timestamp"));
    let signature = STANDARD.decode(header("webhook-signature").strip_prefix("v1,").unwrap()).unwrap();
    assert!(hmac::verify(&key, signed.as_bytes(), &signature).is_ok());
    assert!(!body.contains("7654321"), "{body}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&body["type"], &body["data"]["response"]), (&json!("approval.requested"), &first["id"]));
    let asked = &body["data"]["requests"][0];
    assert_eq!((&asked["id"], &asked["name"]), (&first["output"][0]["id"], &json!("add")));
}

#[test]
fn failing_webhook_delays_no_response() {
    let tools = ToolServer::start();
    let mut config = tools.config();
    // Use a port without a listener, so that every delivery fails.
    let webhook = json!({"url": "http://127.0.0.1:9/hook", "secret": format!("whsec_{SECRET}")});
    config["serve"] = json!({ "approvalWebhook": webhook });
    let server = TestServer::configured(script(), &config, &[]);
    assert_eq!(types(&ask(&server, &request())), ["mcp_approval_request"]);
    eventually("the attempt is counted", || {
        found_metric(&server, "haft_webhooks_total{outcome=\"attempt_failed\"}")
            .is_some_and(|count| count > 0.5)
    });
}
