use std::sync::Mutex as StdMutex;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::super::in_flight::Calls;
use super::super::ring::Ring;
use super::*;

/// A transport that records the sent messages; each test supplies the replies.
#[derive(Default)]
struct Recorded {
    sent: StdMutex<Vec<String>>,
    more: Notify,
}

impl Transport for Recorded {
    fn send(&self, message: Outgoing) -> Result<(), Failure> {
        self.sent.lock().unwrap().push(message.text);
        self.more.notify_one();
        Ok(())
    }

    fn forget(&self, _: RequestId) -> Forgotten {
        Forgotten::NotTold
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

fn connected() -> (Peer, Arc<Table>, Arc<Recorded>) {
    let host = Host {
        trace: None,
        server: "test".into(),
        elicitation: Elicitation::NotOffered,
        parents: None,
        roots: Vec::new(),
        sampling: None,
        calls: Calls::default(),
        asked: std::sync::atomic::AtomicU32::new(0),
        log: Arc::new(Ring::default()),
        withheld: Arc::default(),
        tools_changed: Arc::new(Notify::new()),
    };
    let table = Table::new(Arc::new(host));
    let transport = Arc::new(Recorded::default());
    let peer = Peer::new(Arc::clone(&table), Arc::clone(&transport) as Arc<dyn Transport>);
    (peer, table, transport)
}

fn ask(seconds: u64) -> Ask<'static> {
    Ask::new("tools/call", "\"name\":\"x\"", Duration::from_secs(seconds))
}

#[tokio::test]
async fn a_request_carries_its_members_and_a_progress_token_and_gets_its_reply() {
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

#[tokio::test(start_paused = true)]
async fn progress_is_patience_and_silence_cancels() {
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
    assert_eq!(*told.lock().unwrap(), vec![Progress::Message("1/3 m".into()); 3]);
    assert!(
        transport.sent.lock().unwrap()[1]
            .contains(r#""method":"notifications/cancelled","params":{"requestId":1"#)
    );
}

#[tokio::test]
async fn a_request_that_is_dropped_is_taken_back() {
    let (peer, table, transport) = connected();
    assert!(futures_util::FutureExt::now_or_never(peer.request(ask(60))).is_none());
    assert!(table.waiting().is_empty());
    assert_eq!(transport.sent.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn when_the_connection_ends_everybody_is_told_and_nobody_can_ask_any_more() {
    let (peer, table, _) = connected();
    let gone = async {
        tokio::task::yield_now().await;
        table.closed(Failure::Closed("gone".into()));
    };
    let (first, second, ()) = tokio::join!(peer.request(ask(60)), peer.request(ask(60)), gone);
    for result in [first, second, peer.request(ask(60)).await] {
        assert!(matches!(result, Err(PeerError::Failed(Failure::Closed(reason))) if reason == "gone"));
    }
}

#[tokio::test]
async fn pings_are_answered_and_sampling_is_refused() {
    let (_peer, table, transport) = connected();
    table.received(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#, None);
    transport.more.notified().await;
    table.received(r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}"#, None);
    transport.more.notified().await;
    let sent = transport.sent.lock().unwrap().clone();
    assert_eq!(sent[0], r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
    assert!(sent[1].starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601"#), "{sent:?}");
}
