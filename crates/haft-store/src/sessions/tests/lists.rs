//! Tests of session lists, and of the removal of old sessions.

use haft_core::model_reply::{ModelReply, StopReason};
use haft_core::run::CallDecision;
use haft_core::run::input::CallEnd;
use haft_core::tool::CallId;

use super::super::line::SessionStart;
use super::*;
use crate::accounting::{ModelRecord, ToolRecord};

/// Writes a session without syncing it as `open` does, which would take seconds for hundreds of sessions.
fn write(fixture: &SessionsFixture, id: u128, change: impl FnOnce(&mut SessionStart)) {
    let (id, mut opened) = opened(id);
    change(&mut opened);
    let sessions = fixture.sessions();
    fs::create_dir_all(&sessions.root).unwrap();
    let line = serde_json::to_string(&SessionJournalLine::Session(Box::new(opened))).unwrap();
    fs::write(sessions.path(id), format!("{line}\n")).unwrap();
}

/// Makes a session look as if it was written some time ago.
fn age(fixture: &SessionsFixture, id: u128, age: Duration) {
    let file = File::options().write(true).open(fixture.file(id)).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

fn tool() -> SessionJournalLine {
    let text = r#"{"timestampMs":21,"status":"ok","errorKind":null,"tool":"bash","callId":"1","principal":"local",
        "latencyMs":2,"bytesIn":3,"bytesOut":4,"executed":true,"cached":false,"argumentsDigest":""}"#;
    SessionJournalLine::Tool(Box::new(serde_json::from_str::<ToolRecord>(text).unwrap()))
}

fn model(cost_nano_usd: Option<u64>) -> SessionJournalLine {
    let text = r#"{"timestampMs":31,"status":"ok","errorKind":null,"provider":"p","model":"m","requestId":"1","attempt":1,
        "principal":"local","latencyMs":2,"firstEventMs":1,"inputTokens":100,"outputTokens":20,"cacheReadTokens":3,
        "cacheWriteTokens":4,"reasoningTokens":5,"costNanoUsd":null,"retryAfterMs":null}"#;
    let record = serde_json::from_str::<ModelRecord>(text).unwrap();
    SessionJournalLine::Model(Box::new(ModelRecord { cost_nano_usd, ..record }))
}

fn told(at_ms: u64, told: &RunInput) -> SessionJournalLine {
    SessionJournalLine::Input { at_ms, input: haft_core::run::snapshot::StoredInput::of(told) }
}

/// Returns lines of every kind, in an order that reaches every state of a session.
fn all_lines() -> Vec<SessionJournalLine> {
    let reply = ModelReply {
        id: None,
        model: None,
        parts: Vec::new(),
        stop: StopReason::EndOfTurn,
        usage: None,
        notes: Vec::new(),
    };
    let failed = ModelError::new(ModelErrorKind::QuotaExhausted, "no more");
    let finished = |at_ms: u64| SessionJournalLine::Finished { at_ms, reason: "completed".into(), turns: 1 };
    vec![
        told(11, &RunInput::Stepped(DriverReadings::default())),
        model(Some(7)),
        told(12, &RunInput::Replied(reply)),
        SessionJournalLine::Begun { at_ms: 13, call: "1".into(), tool: "bash".into(), turn: 1, operation: 1 },
        tool(),
        told(14, &RunInput::Ended(vec![CallEnd::AwaitsApproval(CallId("1".into()))])),
        told(15, &RunInput::Decided { call: CallId("1".into()), decision: CallDecision::Allow }),
        told(16, &RunInput::ClientReplied(Vec::new())),
        SessionJournalLine::Note { at_ms: 17, turn: 1, note: "x".into(), compaction: None },
        told(18, &RunInput::Failed(failed)),
        told(19, &RunInput::Aborted(AbortReason::TimedOut)),
        finished(20),
        SessionJournalLine::Resumed { at_ms: 21, claim: None },
        told(22, &RunInput::Aborted(AbortReason::Interrupted)),
        SessionJournalLine::Resumed { at_ms: 23, claim: None },
        told(24, &RunInput::Stopped),
        finished(25),
        SessionJournalLine::Resumed { at_ms: 26, claim: None },
        told(27, &RunInput::Requested("more".into())),
        model(None),
        finished(28),
        told(29, &RunInput::Failed(ModelError::new(ModelErrorKind::QuotaExhausted, "no more"))),
        told(30, &RunInput::Requested("and more".into())),
    ]
}

#[test]
fn session_overview_matches_a_full_read_after_every_line() {
    let fixture = SessionsFixture::new();
    write(&fixture, 1, |opened| opened.title = r#"a title, "run": and all"#.into());
    let mut states = Vec::new();
    for line in all_lines() {
        let text = fs::read_to_string(fixture.file(1)).unwrap();
        let line = serde_json::to_string(&line).unwrap();
        fs::write(fixture.file(1), format!("{text}{line}\n")).unwrap();
        let past = fixture.sessions().past(SessionId(1)).unwrap();
        let expected = past.overview();
        assert_eq!(fixture.sessions().overview(SessionId(1)).unwrap(), expected, "after {line}");
        states.push(expected.standing);
    }
    let cut = |reason: &str| SessionStatus::Cut { reason: reason.into() };
    for state in
        [cut("quota_exhausted"), cut("interrupted"), SessionStatus::Finished { reason: "completed".into() }]
    {
        assert!(states.contains(&state), "{state:?}");
    }
}

#[test]
fn session_overview_reports_the_same_errors_as_a_full_read() {
    let fixture = SessionsFixture::new();
    drop(begin(&fixture.sessions(), 1));
    let first = fs::read_to_string(fixture.file(1)).unwrap();
    let stepped = serde_json::to_string(&told(1, &RunInput::Stepped(DriverReadings::default()))).unwrap();
    let check = |text: String| {
        fs::write(fixture.file(1), &text).unwrap();
        let past = fixture.sessions().past(SessionId(1)).unwrap_err().to_string();
        assert_eq!(fixture.sessions().overview(SessionId(1)).unwrap_err().to_string(), past, "{text}");
    };
    check(String::new());
    check("{}\n".into());
    check(first.replacen("\"version\":2", "\"version\":9", 1));
    check(first.replacen("00000000-", "zzzzzzzz-", 1));
    check(format!("{first}{}\n", stepped.replacen("stepped", "slept", 1)));
    check(format!("{first}{stepped}\n\0\0garbage\n"));
    check(format!("{first}{first}"));
}

#[test]
fn session_overview_ignores_an_incomplete_last_line() {
    let fixture = SessionsFixture::new();
    drop(begin(&fixture.sessions(), 1));
    let whole = fs::read_to_string(fixture.file(1)).unwrap();
    let before = fixture.sessions().overview(SessionId(1)).unwrap();
    let line = serde_json::to_string(&model(Some(1))).unwrap();
    fs::write(fixture.file(1), format!("{whole}{line}")).unwrap();
    assert_eq!(fixture.sessions().overview(SessionId(1)).unwrap(), before);
}

#[test]
fn newest_roots_skip_sub_agent_sessions() {
    let fixture = SessionsFixture::new();
    for id in 1..=40_u128 {
        // Every fourth session is a root session; the first one is the oldest.
        let root = SessionId(id.next_multiple_of(4)).to_string();
        write(&fixture, id, |opened| opened.origin = Some(root).filter(|_| id % 4 != 0));
        age(&fixture, id, Duration::from_secs(100 - u64::try_from(id).unwrap()));
    }
    let sessions = fixture.sessions();
    assert_eq!(sessions.newest_roots(3).unwrap(), [40, 36, 32].map(SessionId));
    assert_eq!(sessions.newest_roots(100).unwrap().len(), 10);
    assert_eq!(sessions.newest().unwrap(), Some(SessionId(40)));
    assert_eq!(sessions.below(SessionId(8)).unwrap(), [7, 6, 5].map(SessionId));
    fs::write(fixture.file(39), "not a session\n").unwrap();
    assert_eq!(
        sessions.newest_roots(1).unwrap(),
        [SessionId(39)],
        "an unreadable session is listed as a root"
    );
}

#[test]
fn session_header_is_readable_even_if_its_run_is_damaged() {
    let fixture = SessionsFixture::new();
    write(&fixture, 1, |opened| opened.origin = Some(SessionId(7).to_string()));
    let text = fs::read_to_string(fixture.file(1)).unwrap();
    fs::write(fixture.file(1), text.replacen("\"run\":{", "\"run\":{{{{", 1)).unwrap();
    assert!(fixture.sessions().opened(SessionId(1)).is_err());
    assert_eq!(fixture.sessions().below(SessionId(7)).unwrap(), [SessionId(1)]);
}

#[test]
fn process_sweeps_sessions_once_per_interval() {
    let fixture = SessionsFixture::new();
    let sessions = fixture.limited(1 << 20, Duration::from_mins(1));
    for id in 1..=600 {
        write(&fixture, id, |_| {});
        age(&fixture, id, Duration::from_hours(1));
    }
    drop(begin(&sessions, 1_000));
    assert!(sessions.ids().unwrap().len() <= 346, "`begin` itself makes the first sweep step");
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while sessions.ids().unwrap() != [SessionId(1_000)] {
        assert!(std::time::Instant::now() < deadline, "the sweep thread did not remove the old sessions");
        std::thread::yield_now();
    }
    write(&fixture, 1, |_| {});
    age(&fixture, 1, Duration::from_hours(1));
    sessions.sweep_when_due();
    assert!(sessions.has(SessionId(1)), "a second sweep in the interval removes nothing");
    fixture.limited(1 << 20, Duration::from_mins(1)).sweep_when_due();
    assert!(sessions.has(SessionId(1)), "another `SessionStore` shares the interval");
}

#[test]
fn sessions_without_an_age_limit_are_never_swept() {
    let fixture = SessionsFixture::new();
    write(&fixture, 1, |_| {});
    age(&fixture, 1, Duration::from_hours(24 * 365));
    fixture.limited(1, Duration::MAX).sweep_when_due();
    assert!(fixture.sessions().has(SessionId(1)));
    fixture.limited(1, Duration::from_mins(1)).sweep_when_due();
    assert!(!fixture.sessions().has(SessionId(1)), "a store without an age limit starts no interval");
}
