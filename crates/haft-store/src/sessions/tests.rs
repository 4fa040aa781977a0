mod lists;

use std::fs;
use std::sync::Arc;

use haft_core::conversation::{Conversation, Message};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_request::ModelRequest;
use haft_core::run::input::RunInput;
use haft_core::run::journal::{Durability, RunJournal};
use haft_core::run::{AbortReason, AgentRun, CallDecision, DriverReadings, RunPlan};
use haft_core::tool::CallId;
use serde_json::Value;

use super::*;

struct SessionsFixture {
    home: Home,
    _directory: tempfile::TempDir,
}

impl SessionsFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(&directory.path().join("home"));
        std::fs::create_dir_all(home.data()).unwrap();
        Self { home, _directory: directory }
    }

    fn sessions(&self) -> SessionStore {
        self.limited(1 << 20, Duration::from_hours(1))
    }

    fn limited(&self, bytes_max: u64, keep: Duration) -> SessionStore {
        SessionStore::of(&self.home, SessionLimits { bytes_max, keep })
    }

    fn file(&self, id: u128) -> PathBuf {
        self.sessions().path(SessionId(id))
    }
}

fn request() -> ModelRequest {
    let mut conversation = Conversation::default();
    conversation.push(Message::user("what time is it?\nplease")).unwrap();
    ModelRequest::new("m", Arc::new(conversation))
}

fn opened(id: u128) -> (SessionId, SessionStart) {
    let run = AgentRun::new(request(), RunPlan::default());
    let id = SessionId(id);
    (id, SessionStart::new(id, "what time is it?\nplease", Value::Null, run.snapshot()))
}

fn begin(sessions: &SessionStore, id: u128) -> SessionJournal {
    let (id, opened) = opened(id);
    sessions.open(id, opened).unwrap()
}

#[test]
fn session_file_has_private_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = SessionsFixture::new();
    let journal = begin(&fixture.sessions(), 1);
    let mode = fs::metadata(fixture.file(1)).unwrap().permissions().mode();
    assert_eq!((mode & 0o777, journal.session()), (0o600, SessionId(1)));
    let past = fixture.sessions().past(SessionId(1)).unwrap();
    assert_eq!((past.opened.title.as_str(), past.standing), ("what time is it?", SessionStatus::Open));
}

#[tokio::test]
async fn journal_is_synced_in_a_batch_only_at_the_end_of_its_run() {
    let fixture = SessionsFixture::new();
    let batch = SyncBatch::default();
    let journal = begin(&fixture.sessions().batching(batch.clone()), 1);
    journal.sync(Durability::Synced).await.unwrap();
    assert!(batch.files().is_empty(), "`Synced` does not wait for the batch");
    journal.append(&RunInput::Stepped(DriverReadings::default())).unwrap();
    journal.sync(Durability::Ended).await.unwrap();
    assert_eq!(batch.files(), [fixture.file(1)]);
    drop(journal);
    fixture.sessions().resume(SessionId(1), Takeover::Never).unwrap();
    batch.sync().await;
    assert!(batch.files().is_empty());
}

#[test]
fn busy_session_cannot_be_resumed_or_removed() {
    let fixture = SessionsFixture::new();
    let journal = begin(&fixture.sessions(), 1);
    let busy = fixture.sessions().resume(SessionId(1), Takeover::Never).unwrap_err();
    assert!(matches!(busy, SessionError::Busy { .. }), "{busy}");
    assert!(fixture.sessions().is_busy(SessionId(1)));
    assert!(matches!(fixture.sessions().remove(SessionId(1)), Err(SessionError::Busy { .. })));
    drop(journal);
    assert!(!fixture.sessions().is_busy(SessionId(1)));
    let resumed = fixture.sessions().resume(SessionId(1), Takeover::Never).unwrap();
    assert!(fixture.sessions().resume(SessionId(1), Takeover::Never).is_err());
    drop(resumed);
    fixture.sessions().remove(SessionId(1)).unwrap();
    assert_eq!(fixture.sessions().ids().unwrap(), []);
}

#[test]
fn session_is_found_by_id_prefix() {
    let fixture = SessionsFixture::new();
    for id in [0xabcd_1234 << 96, 0xabcd_9999 << 96] {
        drop(begin(&fixture.sessions(), id));
    }
    let check = |word: &str, expected: &str| {
        let found = match fixture.sessions().find(word) {
            Ok(id) => id.to_string(),
            Err(error) => error.to_string().lines().next().unwrap().to_owned(),
        };
        assert!(found.starts_with(expected), "{word}: {found}");
    };
    check("abcd1", "abcd1234-");
    check("ABCD9", "abcd9999-");
    check("abcd", "the ids of 2 sessions begin with `abcd`");
    check("abc", "`abc` is too short for a session id");
    check("ffff", "there is no session `ffff`");
}

#[test]
fn incomplete_last_line_is_dropped_on_resume() {
    let fixture = SessionsFixture::new();
    let journal = begin(&fixture.sessions(), 1);
    journal.append(&RunInput::Stepped(DriverReadings::default())).unwrap();
    let before = fs::metadata(fixture.file(1)).unwrap().len();
    journal.append(&RunInput::Aborted(AbortReason::Interrupted)).unwrap();
    drop(journal);
    let whole = fs::read(fixture.file(1)).unwrap();
    for cut in usize::try_from(before).unwrap()..whole.len() {
        fs::write(fixture.file(1), &whole[..cut]).unwrap();
        let claimed = fixture.sessions().resume(SessionId(1), Takeover::Never).unwrap();
        assert_eq!(claimed.past.standing, SessionStatus::Open, "{cut}");
        drop(claimed);
        let text = fs::read_to_string(fixture.file(1)).unwrap();
        assert_eq!(text.lines().filter(|line| line.contains("resumed")).count(), 1);
        assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{text}");
    }
}

#[test]
fn error_for_a_damaged_session_names_the_line() {
    let fixture = SessionsFixture::new();
    let journal = begin(&fixture.sessions(), 1);
    journal.append(&RunInput::Stepped(DriverReadings::default())).unwrap();
    drop(journal);
    let whole = fs::read_to_string(fixture.file(1)).unwrap();
    let check = |text: String, expected: &str| {
        fs::write(fixture.file(1), &text).unwrap();
        let error = fixture.sessions().resume(SessionId(1), Takeover::Never).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(fs::read_to_string(fixture.file(1)).unwrap() == text);
    };
    check(
        whole.replacen("\"told\"", "\"tolt\"", 1),
        "line 2 of the journal is not valid: unknown variant `tolt`",
    );
    check(format!("{whole}\0\0garbage\n{{}}\n"), "line 3");
    check(whole.replacen("\"version\":2", "\"version\":9", 1), "version 9");
    check("{}\n".into(), "not a session header");
    check(String::new(), "the journal is empty");
    let first = whole.lines().next().unwrap();
    check(format!("{first}\n{first}\n"), "second header line");
}

#[test]
fn resumed_run_asks_the_model_again_after_an_interruption_or_model_failure() {
    let check = |input: RunInput, expected: SessionStatus| {
        let fixture = SessionsFixture::new();
        let journal = begin(&fixture.sessions(), 1);
        journal.append(&RunInput::Stepped(DriverReadings::default())).unwrap();
        journal.append(&input).unwrap();
        journal.append(&RunInput::Stepped(DriverReadings::default())).unwrap();
        drop(journal);
        let ClaimedJournal { past, journal, .. } =
            fixture.sessions().resume(SessionId(1), Takeover::Never).unwrap();
        assert_eq!(past.standing, expected);
        let mut run = past.run(request()).unwrap().run;
        let step = run.next_step(&DriverReadings::default());
        assert!(matches!(step, haft_core::run::RunStep::CallModel(_)), "{step:?}");
        drop(journal);
        assert_eq!(fixture.sessions().past(SessionId(1)).unwrap().standing, SessionStatus::Open);
    };
    check(RunInput::Aborted(AbortReason::Interrupted), SessionStatus::Cut { reason: "interrupted".into() });
    let error = ModelError::new(ModelErrorKind::QuotaExhausted, "no more");
    check(RunInput::Failed(error), SessionStatus::Cut { reason: "quota_exhausted".into() });
}

#[test]
fn session_over_byte_limit_ends_with_a_complete_line() {
    let fixture = SessionsFixture::new();
    let size = {
        drop(begin(&fixture.sessions(), 1));
        fs::metadata(fixture.file(1)).unwrap().len()
    };
    let journal = begin(&fixture.limited(size + 10, Duration::MAX), 2);
    let full = journal.append(&RunInput::Stepped(DriverReadings::default())).unwrap_err();
    assert!(full.to_string().contains("sessions.maxBytes"), "{full}");
    assert!(journal.append(&RunInput::Stopped).is_err(), "a full journal accepts no further line");
    assert_eq!(fs::metadata(fixture.file(2)).unwrap().len(), size);
}

#[test]
fn sweep_removes_old_sessions_except_running_ones() {
    let fixture = SessionsFixture::new();
    drop(begin(&fixture.sessions(), 1));
    let working = begin(&fixture.sessions(), 2);
    let later = SystemTime::now() + Duration::from_hours(2);
    let sessions = fixture.sessions();
    sessions.sweep(&sessions.ids_in_random_order().unwrap(), later, Duration::ZERO);
    assert_eq!(fixture.sessions().ids().unwrap(), [SessionId(2)]);
    drop(working);
}

#[tokio::test]
async fn concurrent_syncs_of_one_journal_succeed() {
    let fixture = SessionsFixture::new();
    let journal = begin(&fixture.sessions(), 1);
    journal.append(&RunInput::Stopped).unwrap();
    let (one, other) = tokio::join!(journal.sync(Durability::Synced), journal.sync(Durability::Synced));
    assert_eq!((one, other), (Ok(()), Ok(())));
}

#[test]
fn work_time_excludes_waiting_for_approvals_clients_or_a_resume() {
    let line = |at_ms: u64, input: RunInput| SessionJournalLine::Input {
        at_ms,
        input: haft_core::run::snapshot::StoredInput::of(&input),
    };
    let decided = || RunInput::Decided { call: CallId("1".into()), decision: CallDecision::Allow };
    let (_, mut start) = opened(1);
    start.at_ms = 1_000;
    let worked = |lines: Vec<SessionJournalLine>| {
        let first = SessionJournalLine::Session(Box::new(start.clone()));
        SessionHistory::of([first].into_iter().chain(lines).map(Ok)).unwrap().worked()
    };
    let check = |lines: Vec<SessionJournalLine>, expected_ms: u64| {
        assert_eq!(worked(lines), Duration::from_millis(expected_ms));
    };
    check(vec![line(1_300, RunInput::Stopped)], 300);
    check(vec![line(1_300, RunInput::Stopped), line(9_300, decided())], 300);
    check(vec![line(9_300, decided()), line(9_400, RunInput::Stopped)], 100);
    check(vec![line(9_300, RunInput::ClientReplied(Vec::new())), line(9_350, RunInput::Stopped)], 50);
    let resumed = SessionJournalLine::Resumed { at_ms: 50_000, claim: None };
    check(vec![line(1_300, RunInput::Stopped), resumed, line(50_020, RunInput::Stopped)], 320);
}

#[test]
fn removed_session_is_not_claimed_by_a_process_that_waited_for_its_lock() {
    let fixture = SessionsFixture::new();
    let path = fixture.home.data().join("session");
    fs::write(&path, "").unwrap();
    let file = File::open(&path).unwrap();
    check_linked(&file, SessionId(1)).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(matches!(check_linked(&file, SessionId(1)), Err(SessionError::NotFound { .. })));
}
