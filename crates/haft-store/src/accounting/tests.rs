use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::accounting_store::{AccountingLine, AccountingStore, AccountingSummary};
use haft_core::digest::Digest;
use haft_core::event::{CallAccount, CapturedContent, Event, EventSink, ToolReference};
use haft_core::event_log::{EventEnvelope, LogEvent};
use haft_core::home::Home;
use haft_core::model_provider::{AttemptFollowUp, ModelAccount, ModelAttempt};
use haft_core::output_store::StoreError;
use haft_core::position::{CallOperation, OperationId, RunPosition};
use haft_core::principal::Principal;
use haft_core::result::ToolErrorKind;
use haft_core::tool::CallId;
use serde_json::{Value, json};

use super::*;

/// Returns the events of a call whose content is captured, and of a model request.
fn events_of(principal: &Principal) -> [Event; 2] {
    let place = RunPosition::default();
    let account = CallAccount {
        principal: principal.clone(),
        executed: true,
        cached: false,
        untrusted: false,
        bytes_in: 3,
        bytes_out: 4,
        arguments: Digest::of_text("canary"),
        verdict: None,
        queue: None,
        handle: None,
    };
    let content = CapturedContent { arguments: "canary".into(), result: "canary".into() };
    let (latency, id) = (Duration::from_millis(2), OperationId(7));
    let model = ModelAccount {
        failure: None,
        latency,
        first_event: None,
        usage: None,
        cost: None,
        next: AttemptFollowUp::Nothing,
    };
    [
        Event::ToolFinished {
            operation: Arc::new(CallOperation { id, call: CallId("c".into()), place }),
            tool: ToolReference::Written("nosuch".into()),
            failure: Some(ToolErrorKind::UnknownTool),
            latency,
            account,
            content: Some(Arc::new(content)),
        },
        Event::ModelFinished {
            id: "r".into(),
            place,
            attempt: ModelAttempt { provider: "p".into(), model: "m/n".into(), number: 2 },
            principal: principal.clone(),
            account: model,
        },
    ]
}

fn events() -> [Event; 2] {
    events_of(&Principal::local())
}

fn call() -> Event {
    events().into_iter().next().unwrap()
}

/// Returns a line about a call at time 5.
fn line(tool: &str) -> AccountingLine {
    let text = r#"{"seq":1,"at":5,"run":"","event":{"turn":1,"type":"tool_finished","id":"1","operation":1,"tool":"TOOL",
        "error_kind":null,"latency_ms":2,"executed":true,"cached":false,"bytes_in":3,"bytes_out":4,"principal":"local",
        "arguments_digest":""}}"#;
    AccountingLine::Event(serde_json::from_str(&text.replace("TOOL", tool)).unwrap())
}

fn calls(summary: &AccountingSummary) -> u64 {
    summary.tools.iter().map(|tool| tool.calls).sum()
}

struct AccountingFixture {
    home: Home,
    _directory: tempfile::TempDir,
}

impl AccountingFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        fs::create_dir_all(home.data()).unwrap();
        Self { home, _directory: directory }
    }

    fn store(&self) -> Arc<FileAccounting> {
        Arc::new(FileAccounting::of(&self.home))
    }

    fn sink(&self, retry_pause: Duration) -> AccountingSink {
        AccountingSink::with_pause(self.store(), retry_pause)
    }

    fn path(&self) -> PathBuf {
        self.home.data().join("accounting.jsonl")
    }

    fn summary(&self) -> AccountingSummary {
        self.store().summarize_all(0).unwrap()
    }
}

/// Runs a test on every store. `test` gets a function that creates another writer of the same lines, which simulates
/// another process.
async fn on_all(test: impl AsyncFn(&dyn Fn() -> Box<dyn AccountingStore>)) {
    let fixture = AccountingFixture::new();
    test(&|| Box::new(FileAccounting::of(&fixture.home))).await;
    let memory = MemoryAccounting::default();
    test(&|| Box::new(memory.clone())).await;
}

#[tokio::test]
async fn usage_records_of_several_writers_are_summed() {
    on_all(async |writer| {
        let (one, other) = (writer(), writer());
        assert_eq!(one.summarize("t", 0).await.unwrap(), AccountingSummary::default());
        one.append("t", &[line("a"), line("b")]).await.unwrap();
        other.append("t", &[line("a"), AccountingLine::Lost { at_ms: 9, lines: 3 }]).await.unwrap();
        let summary = one.summarize("t", 0).await.unwrap();
        let tools: Vec<(&str, u64)> =
            summary.tools.iter().map(|tool| (tool.tool.as_str(), tool.calls)).collect();
        assert_eq!((tools, summary.lost_lines), (vec![("a", 2), ("b", 1)], 3));
        let later = other.summarize("t", 6).await.unwrap();
        assert_eq!((calls(&later), later.lost_lines, later.unreadable_lines), (0, 3, 0));
    })
    .await;
}

#[tokio::test]
async fn usage_records_are_visible_only_to_their_tenant() {
    on_all(async |writer| {
        let store = writer();
        let tenants = ["local", "acme", "acme/anna", "../local", "", "local.1"];
        for (at, tenant) in tenants.iter().enumerate() {
            let lines: Vec<AccountingLine> = (0..=at).map(|_| line("a")).collect();
            store.append(tenant, &lines).await.unwrap();
        }
        for (at, tenant) in tenants.iter().enumerate() {
            let summary = store.summarize(tenant, 0).await.unwrap();
            assert_eq!(calls(&summary), at as u64 + 1, "{tenant}");
        }
        assert_eq!(calls(&store.summarize("other", 0).await.unwrap()), 0);
    })
    .await;
}

#[tokio::test]
async fn accounting_sink_stores_each_event_under_its_tenant() {
    on_all(async |writer| {
        let sink = AccountingSink::new(writer().into());
        for event in events_of(&Principal::new("acme", "anna", "key")).into_iter().chain(events()) {
            sink.emit(event);
        }
        let store = writer();
        for tenant in ["local", "acme"] {
            let summary = store.summarize(tenant, 0).await.unwrap();
            assert_eq!((calls(&summary), summary.models[0].attempts), (1, 1), "{tenant}");
        }
    })
    .await;
}

/// Older versions wrote the lines of all tenants to one file.
#[tokio::test]
async fn usage_records_of_an_older_version_count_only_for_their_tenant() {
    let fixture = AccountingFixture::new();
    let AccountingLine::Event(event) = line("a") else { panic!("expected an event") };
    let new = serde_json::to_string(&event).unwrap();
    let old = r#"{"type":"tool","timestampMs":5,"status":"ok","errorKind":null,"tool":"a","callId":"1","principal":"local",
        "latencyMs":2,"bytesIn":3,"bytesOut":4,"executed":true,"cached":false,"argumentsDigest":""}"#;
    let mut lines = vec![new.clone(), old.replace('\n', "")];
    for principal in ["acme/anna", "acme/bert", "acme2/anna", "local/other"] {
        lines.extend(
            lines[..2].to_vec().iter().map(|line| line.replace(r#""local""#, &format!("{principal:?}"))),
        );
    }
    fs::write(fixture.path(), lines.join("\n")).unwrap();
    let store = fixture.store();
    for (tenant, expected) in [("local", 4), ("acme", 4), ("acme2", 2), ("anna", 0), ("", 0)] {
        assert_eq!(calls(&store.summarize(tenant, 0).await.unwrap()), expected, "{tenant}");
    }
    store.append("acme", &[line("a")]).await.unwrap();
    assert_eq!(calls(&store.summarize("acme", 0).await.unwrap()), 5);
    assert_eq!((calls(&fixture.summary()), fixture.summary().unreadable_lines), (11, 0));
}

#[test]
fn usage_records_have_audit_fields_and_no_content() {
    let fixture = AccountingFixture::new();
    let sink = fixture.sink(Duration::ZERO);
    for event in events() {
        sink.emit(event);
    }
    let text = fs::read_to_string(fixture.path()).unwrap();
    assert!(!text.contains("canary"), "{text}");
    let lines: Vec<EventEnvelope> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|line| line.seq).collect::<Vec<_>>(), [1, 2]);
    assert!(lines.iter().all(|line| line.at.is_some_and(|at| at > 0)), "{text}");
    let fields = |kind: &LogEvent, names: &[&str]| -> Vec<Value> {
        let value = serde_json::to_value(kind).unwrap();
        names.iter().map(|name| value[name].clone()).collect()
    };
    let tool = fields(&lines[0].event.kind, &["type", "tool", "error_kind", "principal", "operation"]);
    assert_eq!(
        tool,
        [json!("tool_finished"), json!("nosuch"), json!("unknown_tool"), json!("local"), json!(7)]
    );
    let model = fields(&lines[1].event.kind, &["type", "model", "attempt", "request_id"]);
    assert_eq!(model, [json!("model_finished"), json!("p/m/n"), json!(2), json!("r")]);
    let summary = fixture.summary();
    assert_eq!((summary.tools.len(), summary.models[0].model.as_str()), (1, "p/m/n"));
    assert_eq!(summary.unreadable_lines, 0);
}

/// Makes the file of usage records unwritable in three ways, each time followed by a repair: a full disk, a file in
/// place of the directory, and a removed directory.
#[test]
fn sink_writes_usage_records_when_their_directory_becomes_writable() {
    let check = |break_it: fn(&AccountingFixture), repair: fn(&AccountingFixture)| {
        let fixture = AccountingFixture::new();
        let sink = fixture.sink(Duration::ZERO);
        sink.emit(call());
        break_it(&fixture);
        for _ in 0..3 {
            sink.emit(call());
        }
        repair(&fixture);
        sink.emit(call());
        let summary = fixture.summary();
        assert_eq!((calls(&summary), summary.lost_lines, summary.unreadable_lines), (5, 0, 0));
    };
    check(
        |fixture| {
            // `/dev/full` fails every write, like a full disk.
            fs::rename(fixture.path(), fixture.path().with_extension("saved")).unwrap();
            symlink("/dev/full", fixture.path()).unwrap();
        },
        |fixture| fs::rename(fixture.path().with_extension("saved"), fixture.path()).unwrap(),
    );
    check(
        |fixture| {
            // Root may write to a read-only directory, so put a regular file in place of the directory.
            fs::rename(fixture.home.data(), fixture.home.root().join("saved")).unwrap();
            fs::write(fixture.home.data(), "").unwrap();
        },
        |fixture| {
            fs::remove_file(fixture.home.data()).unwrap();
            fs::rename(fixture.home.root().join("saved"), fixture.home.data()).unwrap();
        },
    );
}

#[test]
fn usage_records_that_cannot_be_written_at_first_are_written_later() {
    let fixture = AccountingFixture::new();
    fs::create_dir(fixture.path()).unwrap();
    fixture.store().check_writable().unwrap_err();
    let sink = fixture.sink(Duration::ZERO);
    sink.emit(call());
    fs::remove_dir(fixture.path()).unwrap();
    fixture.store().check_writable().unwrap();
    sink.emit(call());
    assert_eq!((calls(&fixture.summary()), fixture.summary().lost_lines), (2, 0));
}

#[test]
fn failed_write_is_not_retried_before_the_pause_ends() {
    let fixture = AccountingFixture::new();
    symlink("/dev/full", fixture.path()).unwrap();
    let sink = fixture.sink(Duration::from_hours(1));
    sink.emit(call());
    fs::remove_file(fixture.path()).unwrap();
    sink.emit(call());
    assert!(!fixture.path().exists(), "the sink does not retry before the pause ends");
    drop(sink);
    assert_eq!(calls(&fixture.summary()), 2, "dropping the sink writes the pending records");
}

#[test]
fn usage_records_over_the_pending_limit_are_dropped_and_counted() {
    let fixture = AccountingFixture::new();
    symlink("/dev/full", fixture.path()).unwrap();
    let sink = fixture.sink(Duration::from_hours(1));
    for _ in 0..1_003 {
        sink.emit(call());
    }
    fs::remove_file(fixture.path()).unwrap();
    drop(sink);
    let summary = fixture.summary();
    assert_eq!((calls(&summary), summary.lost_lines, summary.unreadable_lines), (1_000, 3, 0));
}

/// A store that answers after the task has yielded, like a store behind a network.
#[derive(Default)]
struct SlowAccounting {
    inner: MemoryAccounting,
    fails: AtomicBool,
}

impl AccountingStore for SlowAccounting {
    fn append<'a>(
        &'a self,
        tenant: &'a str,
        lines: &'a [AccountingLine],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            if self.fails.load(Ordering::Relaxed) {
                return Err(StoreError::Unavailable { reason: "the connection was reset".into() });
            }
            self.inner.append(tenant, lines).await
        })
    }

    fn summarize<'a>(
        &'a self,
        tenant: &'a str,
        since_ms: u64,
    ) -> BoxFuture<'a, Result<AccountingSummary, StoreError>> {
        self.inner.summarize(tenant, since_ms)
    }
}

#[tokio::test]
async fn slow_accounting_store_gets_every_usage_record_in_the_background() {
    let store = Arc::new(SlowAccounting::default());
    let sink = AccountingSink::with_pause(Arc::clone(&store) as _, Duration::from_hours(1));
    sink.emit(call());
    sink.emit(call());
    sink.flush().await;
    assert_eq!(calls(&store.summarize("local", 0).await.unwrap()), 2);
    store.fails.store(true, Ordering::Relaxed);
    sink.emit(call());
    sink.flush().await;
    sink.emit(call());
    store.fails.store(false, Ordering::Relaxed);
    sink.flush().await;
    assert_eq!(calls(&store.summarize("local", 0).await.unwrap()), 4);
}
