//! Tells the operator's program about new approval requests, with the headers of the Standard Webhooks specification.
//!
//! A delivery never delays a response: it has a task of its own, and gives up after some attempts. The next process
//! begins again with the events that no receiver has accepted. An event contains no arguments, because those may contain
//! secrets of the client.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use haft_config::resolved::{ServeSettings, WebhookSecret, WebhookSettings};
use haft_store::pending_approvals::{PendingApprovalRecord, expires_ms};
use haft_tools::rest::{AllowedHosts, Method, RestBody, RestClient, RestRequest};
use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use ring::hmac;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use url::Url;

use crate::auth::now_ms;
use crate::metrics::Metrics;
use crate::server::ServerState;
use crate::waiting_calls::{CALL_SERVER_LABEL, UnapprovedCall};

/// The pauses before the second and each further attempt.
const RETRY_PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(30), Duration::from_mins(2)];

/// The maximum time of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of deliveries in progress. Further events wait for the next start of the server, because more
/// requests would not help a receiver that is this far behind.
const DELIVERIES_MAX: usize = 100;

/// Sends approval requests to the operator's webhook. Clones share one limit of deliveries in progress.
#[derive(Debug, Clone)]
pub(crate) struct Webhook {
    slots: Arc<Semaphore>,
    metrics: Metrics,
}

/// A receiver whose secret is known.
struct WebhookReceiver {
    url: Url,
    secret: WebhookSecret,
}

/// One event, ready to be signed.
struct WebhookEvent {
    id: String,
    /// The response that the event is about; `None` for the call of an MCP client.
    response: Option<String>,
    body: String,
}

impl Webhook {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { slots: Arc::new(Semaphore::new(DELIVERIES_MAX)), metrics }
    }

    /// Begins the delivery of new approval requests.
    pub(crate) fn announce(
        &self,
        state: &Arc<ServerState>,
        settings: &ServeSettings,
        record: &PendingApprovalRecord,
    ) {
        self.begin(state, settings, || approval_event(record, settings.approval_timeout));
    }

    /// Begins the delivery of the approval request of an MCP client.
    pub(crate) fn announce_call(
        &self,
        state: &Arc<ServerState>,
        settings: &ServeSettings,
        call: &UnapprovedCall,
    ) {
        self.begin(state, settings, || call_event(call, settings.approval_timeout));
    }

    /// Begins a delivery, if there is a receiver and a free slot.
    fn begin(
        &self,
        state: &Arc<ServerState>,
        settings: &ServeSettings,
        event: impl FnOnce() -> WebhookEvent,
    ) {
        let Some(receiver) = WebhookReceiver::of(settings) else { return };
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            return self.metrics.webhook("dropped");
        };
        begin_delivery(state, receiver, event(), slot);
    }

    /// Begins the delivery of approval requests that an earlier process has not delivered. Waits for a free slot,
    /// because after a restart more than [`DELIVERIES_MAX`] deliveries may be due.
    pub(crate) async fn announce_again(
        &self,
        state: &Arc<ServerState>,
        settings: &ServeSettings,
        record: &PendingApprovalRecord,
    ) {
        let Some(receiver) = WebhookReceiver::of(settings) else { return };
        // Waiting cannot fail, because the semaphore is never closed.
        let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else { return };
        begin_delivery(state, receiver, approval_event(record, settings.approval_timeout), slot);
    }
}

impl WebhookReceiver {
    fn of(settings: &ServeSettings) -> Option<Self> {
        match &settings.approval_webhook {
            Some(WebhookSettings { url, secret: Ok(secret) }) => {
                Some(Self { url: url.clone(), secret: secret.clone() })
            }
            Some(WebhookSettings { secret: Err(_), .. }) | None => None,
        }
    }
}

/// Delivers an event in a task of its own. The task holds the slot until the delivery ends.
fn begin_delivery(
    state: &Arc<ServerState>,
    receiver: WebhookReceiver,
    event: WebhookEvent,
    slot: OwnedSemaphorePermit,
) {
    let state = Arc::clone(state);
    tokio::spawn(async move {
        match deliver(&state, &receiver, &event).await {
            DeliveryEnd::Delivered => {
                state.metrics.webhook("delivered");
                if let Some(response) = event.response {
                    let marked = tokio::task::spawn_blocking(move || {
                        state.pending_approvals.mark_announced(&response);
                    });
                    // Ignore a failure: without the mark, the next process delivers the event a second time, with the
                    // same id.
                    let _ = marked.await;
                }
            }
            DeliveryEnd::GivenUp => state.metrics.webhook("given_up"),
            DeliveryEnd::Stopped => {}
        }
        drop(slot);
    });
}

fn approval_event(record: &PendingApprovalRecord, lifetime: Duration) -> WebhookEvent {
    let expires_ms = record.expires_ms(lifetime);
    let requests = record
        .requests
        .iter()
        .map(|request| json!({"id": request.id, "server_label": request.server_label, "name": request.name}));
    let body = json!({
        "type": "approval.requested",
        "timestamp": time_text(record.since_ms),
        "data": {
            "response": record.response, "run": record.run, "tenant": record.tenant, "subject": record.subject,
            "expires_at": time_text(expires_ms), "requests": requests.collect::<Vec<Value>>(),
        },
    });
    // Use the same id in each attempt, so that a receiver can detect repeated deliveries.
    let response = record.response.clone();
    WebhookEvent { id: format!("msg_{response}"), response: Some(response), body: body.to_string() }
}

/// Returns the event about a call of an MCP client. The call belongs to no response and no run.
fn call_event(call: &UnapprovedCall, lifetime: Duration) -> WebhookEvent {
    let UnapprovedCall { id, principal, tool, since_ms, .. } = call;
    let request = json!({"id": id, "server_label": CALL_SERVER_LABEL, "name": tool});
    let body = json!({
        "type": "approval.requested",
        "timestamp": time_text(*since_ms),
        "data": {
            "response": null, "run": null, "tenant": principal.tenant(), "subject": principal.subject(),
            "expires_at": time_text(expires_ms(*since_ms, lifetime)), "requests": [request],
        },
    });
    WebhookEvent { id: format!("msg_{id}"), response: None, body: body.to_string() }
}

fn time_text(milliseconds: u64) -> String {
    let time = i64::try_from(milliseconds).ok().and_then(|time| Timestamp::from_millisecond(time).ok());
    time.unwrap_or(Timestamp::MAX).to_string()
}

/// The result of a delivery.
enum DeliveryEnd {
    Delivered,
    /// All attempts have failed.
    GivenUp,
    /// The server stopped before the next attempt.
    Stopped,
}

/// Sends the event until the receiver accepts it, all attempts have failed, or the server stops.
async fn deliver(state: &ServerState, receiver: &WebhookReceiver, event: &WebhookEvent) -> DeliveryEnd {
    let client = RestClient::new(AllowedHosts::named(&receiver.url));
    let mut pauses = RETRY_PAUSES.iter();
    loop {
        let request = signed(receiver, event, now_ms() / 1000);
        match timeout(ATTEMPT_TIMEOUT, client.send(&request)).await {
            Ok(Ok(reply)) if reply.status().is_success() => return DeliveryEnd::Delivered,
            Ok(Ok(_) | Err(_)) | Err(_) => state.metrics.webhook("attempt_failed"),
        }
        let Some(pause) = pauses.next() else { return DeliveryEnd::GivenUp };
        tokio::select! {
            () = sleep(*pause) => {}
            () = state.stopped() => return DeliveryEnd::Stopped,
        }
    }
}

/// Returns the request with its signature. The signature covers the time, so that a recorded request cannot be used
/// later.
fn signed(receiver: &WebhookReceiver, event: &WebhookEvent, now_s: u64) -> RestRequest {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &receiver.secret.0);
    let content = format!("{}.{now_s}.{}", event.id, event.body);
    let signature = format!("v1,{}", STANDARD.encode(hmac::sign(&key, content.as_bytes())));
    let texts = [
        ("webhook-id", event.id.clone()),
        ("webhook-timestamp", now_s.to_string()),
        ("webhook-signature", signature),
    ];
    let headers = texts.into_iter().filter_map(|(name, value)| {
        Some((HeaderName::from_static(name), HeaderValue::from_str(&value).ok()?))
    });
    RestRequest {
        method: Method::Post,
        url: receiver.url.clone(),
        headers: headers.collect(),
        body: Some(RestBody {
            media_type: "application/json".into(),
            bytes: event.body.clone().into_bytes(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification.
    #[test]
    fn webhook_signature_matches_the_example_of_the_specification() {
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let url = "https://example.com/hook".parse().unwrap();
        let receiver = WebhookReceiver { url, secret: WebhookSecret(secret) };
        let event = WebhookEvent {
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek".into(),
            response: Some("resp_1".into()),
            body: "{\"test\": 2432232314}".into(),
        };
        let request = signed(&receiver, &event, 1_614_265_330);
        let texts: Vec<&str> = request.headers.iter().map(|(_, value)| value.to_str().unwrap()).collect();
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(texts, ["msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", expected]);
    }

    #[test]
    fn webhook_event_names_the_call_and_has_no_arguments() {
        let record = PendingApprovalRecord {
            response: "resp_1".into(),
            run: "r".into(),
            tenant: "acme".into(),
            subject: "anna".into(),
            credential_id: "k".into(),
            since_ms: 1_000,
            requests: Vec::new(),
            is_announced: false,
        };
        let event = approval_event(&record, Duration::from_mins(1));
        let body: Value = serde_json::from_str(&event.body).unwrap();
        assert_eq!(body["timestamp"], "1970-01-01T00:00:01Z");
        assert_eq!(body["data"]["expires_at"], "1970-01-01T00:01:01Z");
        assert!(!event.body.contains("\"k\""), "the event does not contain the key of the client");
    }
}
