//! Tests with specs, journals and stores that are damaged, missing, full or of another version.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use haft_core::event_store::RunKey;
use haft_core::position::SessionId;
use haft_core::principal::Principal;
use haft_core::run::finish::FinishReason;
use haft_core::run::journal::{Epoch, JournalError};
use haft_model_server::ScriptStep;
use haft_runtime::runtime::{ResumeFailure, StartError};
use haft_runtime::spec::SpecError;
use haft_runtime::{
    ApprovalDecision, ParkReason, RunHandle, RunHooks, RunSecrets, RunSpec, RunState, Stores,
};
use haft_store::journals::{
    ClaimedJournal, JournalClaim, JournalStore, ListedRun, MemoryJournals, RunListPage, Takeover,
};
use haft_store::sessions::line::{SessionJournalLine, SessionStart};
use haft_store::sessions::{SessionError, SessionJournal};
use serde_json::json;

use crate::fixture::{RuntimeFixture, answer, asking, events, finished, note};

#[tokio::test]
async fn unknown_run_cannot_be_resumed_or_attached() {
    let fixture = RuntimeFixture::new([ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let error = runtime.resume(SessionId(7), None, RunSecrets::none()).await.unwrap_err();
    assert!(matches!(error, ResumeFailure::Session(_)), "{error}");
    assert!(runtime.attach(SessionId(7)).is_err());
}

#[tokio::test]
async fn resume_rejects_a_spec_of_another_version_or_without_agents() {
    let fixture = RuntimeFixture::new([ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    finished(&run).await;
    run.closed().await;
    let path = fixture.home().data().join(format!("sessions/{}.jsonl", run.id()));
    let text = std::fs::read_to_string(&path).unwrap();
    let other = text.replacen("\"version\":1,\"workspace\"", "\"version\":9,\"workspace\"", 1);
    assert_ne!(other, text);
    std::fs::write(&path, &other).unwrap();
    let more = || Some("more".to_owned());
    let error = runtime.resume(run.id(), more(), RunSecrets::none()).await.unwrap_err();
    assert!(matches!(error, ResumeFailure::Spec(SpecError::Version { found: 9 })), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
    std::fs::write(&path, &text).unwrap();
    std::fs::remove_dir_all(fixture.home().data().join("blobs")).unwrap();
    let error = runtime.resume(run.id(), more(), RunSecrets::none()).await.unwrap_err();
    assert!(matches!(error, ResumeFailure::Spec(SpecError::Sources { .. })), "{error}");
}

#[tokio::test]
async fn resume_ignores_an_incomplete_last_journal_line() {
    let fixture = RuntimeFixture::new([note("one"), ScriptStep::text("done"), ScriptStep::text("more done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    finished(&run).await;
    run.closed().await;
    let path = fixture.home().data().join(format!("sessions/{}.jsonl", run.id()));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"type\":\"told\",\"at_ms\":17");
    std::fs::write(&path, &bytes).unwrap();
    let run = runtime.resume(run.id(), Some("more".into()), RunSecrets::none()).await.unwrap();
    assert_eq!(answer(&finished(&run).await), "more done");
    assert_eq!(fixture.calls.count(), 1, "the resumed run repeated a call");
}

#[tokio::test]
async fn agent_with_json_input_rejects_a_plain_text_request() {
    let fixture = RuntimeFixture::new([ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let agent = "---\nmodels: openai/m\ninput: {format: json}\n---\n";
    let error = runtime.start(fixture.spec_of(agent, "not json"), RunSecrets::none()).await.unwrap_err();
    assert!(matches!(error, StartError::Input { .. }), "{error}");
    assert!(!error.to_string().contains("hint:"), "an error of the library contains a hint");
}

#[tokio::test]
async fn workspace_missing_or_containing_home_is_rejected() {
    let fixture = RuntimeFixture::new([ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    for directory in [fixture.directory.path().join("nowhere"), fixture.directory.path().to_owned()] {
        let mut spec = fixture.spec("go");
        spec.workspace.directory = directory;
        let error = runtime.start(spec, RunSecrets::none()).await.unwrap_err();
        assert!(matches!(error, StartError::Policy(_)), "{error}");
    }
}

/// The journal reaches its size limit in the middle of a run. After that, haft makes no call that changes data.
#[tokio::test]
async fn journal_at_its_size_limit_ends_the_run_before_the_next_call() {
    let config = json!({"sessions": {"maxBytes": 6000}});
    let long = "x".repeat(4_000);
    let fixture = RuntimeFixture::new([note(&long), note("two"), ScriptStep::text("done")]);
    let runtime = fixture.runtime(&config).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    let outcome = finished(&run).await;
    assert!(fixture.calls.count() <= 1, "{:?}", outcome.finish);
    assert!(outcome.finish.detail.contains("sessions.maxBytes"), "{:?}", outcome.finish);
}

#[tokio::test]
async fn unknown_model_provider_fails_before_any_request() {
    let fixture = RuntimeFixture::new([ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let mut spec: RunSpec = fixture.spec("go");
    spec.changes.models = vec!["nobody/m".into()];
    let error = runtime.start(spec, RunSecrets::none()).await.unwrap_err();
    assert!(matches!(error, StartError::Models(_)), "{error}");
    assert!(fixture.model.requests().is_empty());
}

#[tokio::test]
async fn unknown_agent_fails_before_any_request() {
    let fixture = RuntimeFixture::new([ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let mut spec = fixture.spec("go");
    spec.agents.first = "nowhere.md".into();
    let error = runtime.start(spec, RunSecrets::none()).await.unwrap_err();
    assert!(matches!(error, StartError::Agent(_)), "{error}");
    assert!(error.to_string().contains("nowhere.md"), "{error}");
    assert!(fixture.model.requests().is_empty());
}

async fn parked(run: &RunHandle) -> haft_core::approval::ApprovalId {
    match run.wait().await.unwrap() {
        RunState::Parked(ParkReason::Approval(pending)) => pending[0].id,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn journal_removed_during_a_run_ends_the_run_before_the_next_call() {
    let fixture = RuntimeFixture::new([note("one"), ScriptStep::text("done")]);
    let runtime = fixture.runtime(&asking()).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    let approval = parked(&run).await;
    std::fs::remove_dir_all(fixture.home().data()).unwrap();
    run.decide(approval, ApprovalDecision::Allow).unwrap();
    let outcome = finished(&run).await;
    assert_eq!(outcome.finish.reason, FinishReason::JournalFailed, "{:?}", outcome.finish);
    assert!(outcome.finish.detail.contains("the session file was removed"), "{:?}", outcome.finish);
    assert_eq!(fixture.calls.count(), 0);
}

/// The process with a parked run hangs, another process takes over the run, and then the first process continues with a
/// decision.
#[tokio::test]
async fn takeover_continues_event_numbers_and_stops_the_old_holder() {
    let fixture = RuntimeFixture::new([note("one"), ScriptStep::text("done")]);
    let old = fixture.runtime(&asking()).await;
    let run = old.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    let approval = parked(&run).await;
    run.events_stored().await;
    let new = fixture.runtime(&asking()).await;
    let hooks = RunHooks { takeover: Takeover::Allowed, ..RunHooks::default() };
    let spec = new.stored_spec(&Principal::local(), run.id()).await.unwrap();
    let taken = new.resume_with(run.id(), spec, None, RunSecrets::none(), hooks).await.unwrap();
    run.decide(approval, ApprovalDecision::Allow).unwrap();
    let outcome = finished(&run).await;
    assert_eq!(outcome.finish.reason, FinishReason::JournalFailed, "{:?}", outcome.finish);
    let approval = parked(&taken).await;
    assert_eq!(fixture.calls.count(), 0, "the old holder made the call after the takeover");
    taken.decide(approval, ApprovalDecision::Allow).unwrap();
    assert_eq!(answer(&finished(&taken).await), "done");
    taken.closed().await;
    let log = events(&taken).await;
    let numbers: Vec<u64> = log.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=log.len() as u64).collect::<Vec<_>>());
    run.closed().await;
    let seen = events(&run).await;
    assert_eq!(seen[..], log[..seen.len()], "a reader of the old holder saw an event that is not in the log");
}

#[tokio::test]
async fn run_that_cannot_be_stored_reports_a_warning_and_still_works() {
    let fixture = RuntimeFixture::new([note("one"), ScriptStep::text("done")]);
    std::fs::create_dir_all(fixture.home().data()).unwrap();
    // Put a file in place of the directory. A read-only directory would not be enough, because root could still create
    // files in it.
    std::fs::write(fixture.home().data().join("sessions"), "").unwrap();
    let runtime = fixture.runtime(&json!({})).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    assert_eq!(answer(&finished(&run).await), "done");
    let warnings = run.warnings().join("\n");
    assert!(warnings.contains("the run cannot be resumed"), "{warnings}");
}

#[tokio::test]
async fn run_continues_with_truncated_outputs_if_they_cannot_be_stored() {
    let fixture =
        RuntimeFixture::new([note("one"), ScriptStep::call("long", json!({})), ScriptStep::text("done")]);
    let mut config = asking();
    config["maxToolResponseBytes"] = json!(1_000);
    let runtime = fixture.runtime(&config).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    let approval = parked(&run).await;
    let outputs = fixture.home().data().join("outputs");
    std::fs::remove_dir_all(&outputs).unwrap();
    std::fs::write(&outputs, "").unwrap();
    run.decide(approval, ApprovalDecision::Allow).unwrap();
    assert_eq!(answer(&finished(&run).await), "done");
    let shown = format!("{:?}", fixture.model.requests()[2]);
    assert!(shown.contains("a line of a long text") && !shown.contains("session-"), "{shown}");
}

/// A journal store on a disk that is full after some lines.
#[derive(Debug)]
struct FullJournals {
    journals: MemoryJournals,
    lines_left: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct FullClaim {
    claim: Arc<dyn JournalClaim>,
    lines_left: Arc<AtomicUsize>,
}

impl JournalClaim for FullClaim {
    fn epoch(&self) -> Epoch {
        self.claim.epoch()
    }

    fn append(&self, lines: &[SessionJournalLine]) -> Result<(), JournalError> {
        let take = |left: usize| left.checked_sub(1);
        for line in lines {
            match self.lines_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
                Ok(_) => self.claim.append(std::slice::from_ref(line))?,
                Err(_) => return Err(JournalError::unavailable("No space left on device")),
            }
        }
        Ok(())
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async { Ok(()) })
    }
}

impl JournalStore for FullJournals {
    fn create<'a>(
        &'a self,
        key: &'a RunKey,
        opened: SessionStart,
    ) -> BoxFuture<'a, Result<SessionJournal, SessionError>> {
        Box::pin(async move {
            let claim = self.journals.create(key, opened).await?.into_claim();
            let claim = FullClaim { claim, lines_left: Arc::clone(&self.lines_left) };
            Ok(SessionJournal::new(key.run, Arc::new(claim)))
        })
    }

    fn claim<'a>(
        &'a self,
        key: &'a RunKey,
        takeover: Takeover,
    ) -> BoxFuture<'a, Result<ClaimedJournal, SessionError>> {
        self.journals.claim(key, takeover)
    }

    fn read<'a>(
        &'a self,
        key: &'a RunKey,
        from: usize,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionJournalLine>, SessionError>> {
        self.journals.read(key, from, count)
    }

    fn list<'a>(
        &'a self,
        principal: &'a Principal,
        page: RunListPage,
    ) -> BoxFuture<'a, Result<Vec<ListedRun>, SessionError>> {
        self.journals.list(principal, page)
    }

    fn remove<'a>(&'a self, key: &'a RunKey) -> BoxFuture<'a, Result<(), SessionError>> {
        self.journals.remove(key)
    }
}

/// Fills the disk after every possible number of lines. The run ends with a clear error, makes no call that is not in
/// the journal, and continues once there is space.
#[tokio::test]
async fn run_with_a_full_journal_loses_no_call_and_continues_later() {
    let mut lines = 0;
    loop {
        let steps = [note("one"), note("two"), ScriptStep::text("done")];
        let fixture = RuntimeFixture::new(steps);
        let (journals, lines_left) = (MemoryJournals::default(), Arc::new(AtomicUsize::new(lines)));
        let full = FullJournals { journals: journals.clone(), lines_left: Arc::clone(&lines_left) };
        let stores = |journals| Stores::at(&fixture.home()).with_journals(journals);
        let runtime = fixture.builder(&json!({})).stores(stores(Arc::new(full))).build().await.unwrap();
        let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
        let outcome = finished(&run).await;
        run.closed().await;
        if lines_left.load(Ordering::SeqCst) > 0 {
            assert_eq!(answer(&outcome), "done");
            break;
        }
        let made = fixture.calls.count();
        if outcome.finish.reason != FinishReason::Completed {
            assert_eq!(outcome.finish.reason, FinishReason::JournalFailed, "{lines}: {:?}", outcome.finish);
            assert!(outcome.finish.detail.contains("No space left"), "{lines}: {:?}", outcome.finish);
        }
        let room = fixture.builder(&json!({})).stores(stores(Arc::new(journals))).build().await.unwrap();
        match room.resume(run.id(), None, RunSecrets::none()).await {
            Ok(run) => {
                assert_eq!(answer(&finished(&run).await), "done", "{lines}");
                assert!(fixture.calls.count() <= 2, "after {lines} lines: a call was made twice");
            }
            // All lines except the end were stored.
            Err(ResumeFailure::Run(error)) => assert_eq!(made, 2, "{lines}: {error}"),
            Err(error) => panic!("{lines}: {error}"),
        }
        lines += 1;
    }
    assert!(lines > 5, "{lines}");
}
