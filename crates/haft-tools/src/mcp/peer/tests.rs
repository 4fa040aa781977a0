use std::sync::Mutex as StdMutex;

use futures_util::future::BoxFuture;
use haft_core::client_relay::{ClientRelay, RelayedLog, RelayedRequest};
use haft_core::elicitation::{ElicitationAnswer, Elicitor};
use haft_core::event::NoEvents;
use haft_core::provider::CallContext;
use haft_core::redact::SecretRedactor;
use haft_core::run::context::RunContext;
use haft_core::sampling::OriginatingCall;
use haft_core::settings::mcp::{SamplingConsent, SamplingLimits};
use haft_core::tool::CallId;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::super::host::{ElicitationSupport, RelayedCapabilities};
use super::super::in_flight::InFlightCalls;
use super::super::log_ring::LogRing;
use super::super::sampling::SamplingPolicy;
use super::*;

/// A transport that records the sent messages; each test supplies the replies.
#[derive(Default)]
struct RecordingTransport {
    sent: StdMutex<Vec<String>>,
    more: Notify,
}

impl Transport for RecordingTransport {
    fn send(&self, message: McpOutgoingMessage) -> Result<(), TransportFailure> {
        self.sent.lock().unwrap().push(message.text);
        self.more.notify_one();
        Ok(())
    }

    fn forget(&self, _: RequestId) -> ForgetOutcome {
        ForgetOutcome::NeedsCancellation
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

fn connected() -> (Peer, Arc<PendingRequests>, Arc<RecordingTransport>) {
    connected_with(None)
}

fn connected_with(sampling: Option<SamplingPolicy>) -> (Peer, Arc<PendingRequests>, Arc<RecordingTransport>) {
    connected_to(host(sampling))
}

fn host(sampling: Option<SamplingPolicy>) -> Host {
    Host {
        trace: None,
        server: "test".into(),
        elicitation: ElicitationSupport::NotOffered,
        parents: None,
        roots: Vec::new(),
        sampling,
        calls: InFlightCalls::default(),
        log: Arc::new(LogRing::default()),
        withheld: Arc::default(),
        address: SecretRedactor::default(),
        tools_changed: Arc::new(Notify::new()),
        news: tokio::sync::broadcast::Sender::new(1),
        watched: Arc::default(),
        log_levels: Arc::default(),
        only_client: std::sync::OnceLock::new(),
        relayed: RelayedCapabilities::default(),
    }
}

fn connected_to(host: Host) -> (Peer, Arc<PendingRequests>, Arc<RecordingTransport>) {
    let table = PendingRequests::new(Arc::new(host));
    let transport = Arc::new(RecordingTransport::default());
    let peer = Peer::new(Arc::clone(&table), Arc::clone(&transport) as Arc<dyn Transport>);
    (peer, table, transport)
}

fn ask(seconds: u64) -> PeerRequest<'static> {
    PeerRequest::new("tools/call", "\"name\":\"x\"", Duration::from_secs(seconds))
}

#[tokio::test]
async fn request_sends_traceparent_and_progress_token_and_gets_its_reply() {
    let (peer, table, transport) = connected();
    let answer = async {
        transport.more.notified().await;
        table.received(r#"{"jsonrpc":"2.0","id":99,"result":"stray"}"#, None);
        table.received(r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#, None);
    };
    let (result, ()) = tokio::join!(peer.request(ask(60)), answer);
    assert_eq!(result.unwrap().get(), r#"{"a":1}"#);
    let sent = transport.sent.lock().unwrap().join("");
    let (head, rest) = sent.split_once(r#""_meta":{"traceparent":"00-"#).unwrap();
    assert_eq!(head, r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","#);
    assert!(rest.ends_with(r#"-00","progressToken":1}}}"#), "{rest}");
    assert_eq!(peer.noise(), 1);
}

#[tokio::test]
async fn error_of_a_server_shows_neither_its_address_nor_our_secrets() {
    let withheld = Arc::new(SecretRedactor::of(["s3cret-of-mine"]));
    let address = SecretRedactor::of(["internal.example:8443"]);
    let (peer, table, transport) = connected_to(Host { withheld, address, ..host(None) });
    let answer = async {
        transport.more.notified().await;
        let error = r#"{"code":-32002,"message":"https://internal.example:8443/mcp refused s3cret-of-mine",
            "data":{"token":"s3cret-of-mine","url":"https://internal.example:8443/login"}}"#;
        table.received(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#), None);
    };
    let (result, ()) = tokio::join!(peer.request(ask(60)), answer);
    let Err(PeerError::Rpc(error)) = result else { panic!("{result:?}") };
    assert_eq!(error.message, "https://[redacted]/mcp refused [redacted]");
    let data = serde_json::json!({"token": "[redacted]", "url": "https://internal.example:8443/login"});
    assert_eq!(error.data, Some(data), "a URL in `data` is kept, because the user may have to open it");
}

#[tokio::test(start_paused = true)]
async fn request_is_cancelled_only_after_a_timeout_without_progress() {
    let (peer, table, transport) = connected();
    let begun = Instant::now();
    let told = StdMutex::new(Vec::new());
    let tell = |progress| told.lock().unwrap().push(progress);
    let answer = async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(8)).await;
            table.received(
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"total":3,"message":"m"}}"#,
                None,
            );
        }
    };
    let mut ask = ask(10);
    ask.progress = Some(&tell);
    let (result, ()) = tokio::join!(peer.request(ask), answer);
    assert!(matches!(result, Err(PeerError::Silent(_))));
    assert_eq!(begun.elapsed(), Duration::from_secs(34));
    let amount =
        CallProgress::Amount(ProgressAmount { done: 1.0, total: Some(3.0), message: Some("m".into()) });
    assert_eq!(*told.lock().unwrap(), vec![amount; 3]);
    assert!(
        transport.sent.lock().unwrap()[1]
            .contains(r#""method":"notifications/cancelled","params":{"requestId":1"#)
    );
}

#[tokio::test]
async fn dropped_request_sends_a_cancellation() {
    let (peer, table, transport) = connected();
    assert!(futures_util::FutureExt::now_or_never(peer.request(ask(60))).is_none());
    assert!(table.waiting().is_empty());
    assert_eq!(transport.sent.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn closed_connection_fails_pending_and_later_requests() {
    let (peer, table, _) = connected();
    let gone = async {
        tokio::task::yield_now().await;
        table.closed(TransportFailure::Closed("gone".into()));
    };
    let (first, second, ()) = tokio::join!(peer.request(ask(60)), peer.request(ask(60)), gone);
    for result in [first, second, peer.request(ask(60)).await] {
        assert!(
            matches!(result, Err(PeerError::Failed(TransportFailure::Closed(reason))) if reason == "gone")
        );
    }
}

#[tokio::test]
async fn haft_answers_a_ping_and_refuses_unconfigured_sampling() {
    let (_peer, table, transport) = connected();
    table.received(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#, None);
    transport.more.notified().await;
    table.received(r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}"#, None);
    transport.more.notified().await;
    let sent = transport.sent.lock().unwrap().clone();
    assert_eq!(sent[0], r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
    assert!(sent[1].starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601"#), "{sent:?}");
}

/// A user who answers every elicitation request with this word.
struct AcceptingElicitor(&'static str);

impl Elicitor for AcceptingElicitor {
    fn elicit<'a>(&'a self, _: &'a str, _: Value) -> BoxFuture<'a, ElicitationAnswer> {
        Box::pin(async { ElicitationAnswer::Accepted(json!({ "word": self.0 })) })
    }
}

/// Returns a call of a run whose user answers with this word.
fn caller(word: &'static str) -> OriginatingCall {
    let run = RunContext { elicitor: Some(Arc::new(AcceptingElicitor(word))), ..RunContext::default() };
    OriginatingCall::of(&CallContext::new(CallId("1".into()), Arc::new(run), None, Arc::new(NoEvents)))
}

/// Returns the reply to one request from the server.
async fn reply_to(method: &str, table: &Arc<PendingRequests>, transport: &RecordingTransport) -> String {
    let params = json!({ "message": "?", "messages": [{ "role": "user", "content": { "type": "text", "text": "?" } }] });
    let question = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    table.received(&question.to_string(), None);
    transport.more.notified().await;
    transport.sent.lock().unwrap().pop().unwrap()
}

#[tokio::test]
async fn server_request_is_declined_if_no_run_or_several_runs_have_calls_in_flight() {
    let settings = SamplingLimits {
        consent: SamplingConsent::Given,
        model: None,
        output_tokens_max: 100,
        requests_per_call_max: 2,
    };
    let (_peer, table, transport) = connected_with(Some(SamplingPolicy { settings }));
    for method in ["elicitation/create", "sampling/createMessage"] {
        let reply = reply_to(method, &table, &transport).await;
        assert!(
            reply.contains(r#""code":-1,"message":"the request belongs to no tool call"#),
            "{method}: {reply}"
        );
        let _anna = table.host.calls.begin(caller("anna"));
        let _bert = table.host.calls.begin(caller("bert"));
        let reply = reply_to(method, &table, &transport).await;
        assert!(reply.contains(r#""code":-1,"message":"tool calls of several runs"#), "{method}: {reply}");
    }
}

#[tokio::test]
async fn elicitation_goes_to_the_user_of_the_run_in_flight() {
    let (_peer, table, transport) = connected();
    for word in ["anna", "bert"] {
        let _call = table.host.calls.begin(caller(word));
        let reply = reply_to("elicitation/create", &table, &transport).await;
        let accepted = json!({ "action": "accept", "content": { "word": word } });
        assert_eq!(serde_json::from_str::<Value>(&reply).unwrap()["result"], accepted);
    }
    let alone = CallContext::new(CallId("1".into()), Arc::default(), None, Arc::new(NoEvents));
    let _call = table.host.calls.begin(OriginatingCall::of(&alone));
    let reply = reply_to("elicitation/create", &table, &transport).await;
    assert!(reply.contains(r#"{"action":"decline"}"#), "{reply}");
}

/// A client of a gateway that records the log messages and questions that it gets.
#[derive(Default)]
struct RecordingClient(StdMutex<Vec<String>>);

impl ClientRelay for RecordingClient {
    fn relay<'a>(&'a self, request: RelayedRequest<'a>) -> BoxFuture<'a, Result<Box<RawValue>, String>> {
        self.0.lock().unwrap().push(format!("{} {}", request.method, request.params));
        Box::pin(async { RawValue::from_string("{}".into()).map_err(|error| error.to_string()) })
    }

    fn log(&self, record: RelayedLog<'_>) {
        self.0.lock().unwrap().push(record.params.to_owned());
    }

    fn log_level(&self, _: &CallId) -> Option<&'static str> {
        Some("info")
    }
}

fn call_of_client(client: &Arc<RecordingClient>) -> OriginatingCall {
    let run = RunContext { relay: Some(Arc::clone(client) as _), ..RunContext::default() };
    OriginatingCall::of(&CallContext::new(CallId("1".into()), Arc::new(run), None, Arc::new(NoEvents)))
}

#[tokio::test]
async fn message_on_a_reply_stream_belongs_to_the_call_of_its_request() {
    let relayed = RelayedCapabilities { sampling: true, ..RelayedCapabilities::default() };
    let (peer, table, transport) = connected_to(Host { relayed, ..host(None) });
    let mut news = table.host.news.subscribe();
    let clients = [Arc::<RecordingClient>::default(), Arc::default()];
    let calls = clients.each_ref().map(|client| table.host.calls.begin(call_of_client(client)));
    let requests = calls.each_ref().map(|call| {
        let mut request = ask(60);
        request.call = Some(Arc::clone(&call.call));
        peer.request(request)
    });
    let log = |level: &str, stream: Option<RequestId>| {
        let params = format!(r#"{{"level":"{level}"}}"#);
        let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{params}}}"#);
        table.received(&text, stream);
    };
    let serve = async {
        transport.more.notified().await;
        while transport.sent.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        log("info", Some(1));
        log("error", Some(2));
        log("debug", None);
        log("alert", Some(3));
        let question = r#"{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"a":2}}"#;
        table.received(question, Some(2));
        while transport.sent.lock().unwrap().len() < 3 {
            tokio::task::yield_now().await;
        }
        table.received(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Some(1));
        table.received(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#, Some(2));
    };
    let [one, two] = requests;
    let (one, two, ()) = tokio::join!(one, two, serve);
    assert!(one.is_ok() && two.is_ok());
    let told = |client: usize| clients[client].0.lock().unwrap().clone();
    assert_eq!(told(0), [r#"{"level":"info"}"#]);
    assert_eq!(told(1), [r#"{"level":"error"}"#, r#"sampling/createMessage {"a":2}"#]);
    assert!(news.try_recv().is_err(), "no client gets a record that calls of two clients may have caused");
    drop(calls);
    log("notice", None);
    assert!(news.try_recv().is_ok(), "all clients get a record outside of calls");
}
