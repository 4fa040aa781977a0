//! Tests of start, events, cancel, attach, list, idempotency keys and reload.

use std::sync::atomic::Ordering;
use std::time::Duration;

use haft_config::ResolvedConfig;
use haft_core::conversation::{Message, MessagePart, Role};
use haft_core::principal::Principal;
use haft_core::run::finish::FinishReason;
use haft_model_server::{RequestExpectation, ResponsePace, ScriptPart, ScriptStep};
use haft_runtime::runtime::{RunListPage, StartError};
use haft_runtime::{EventSeq, RunSecrets, RunSpec};
use serde_json::json;

use crate::fixture::{RuntimeFixture, answer, events, finished, kinds, note};

#[tokio::test]
async fn run_emits_numbered_schema_valid_events_in_order() {
    let fixture = RuntimeFixture::new([note("one"), ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    let outcome = finished(&run).await;
    assert_eq!((answer(&outcome).as_str(), outcome.turns, fixture.calls.count()), ("done", 2, 1));
    let events = events(&run).await;
    assert_eq!(
        kinds(&events),
        [
            "run_started",
            "turn_started",
            "model_finished",
            "tool_call",
            "tool_started",
            "tool_finished",
            "tool_result",
            "turn_started",
            "model_finished",
            "run_finished"
        ]
    );
    let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    let schema = jsonschema::validator_for(&haft_core::event_log::schema()).unwrap();
    for event in &events {
        assert!(schema.is_valid(&serde_json::to_value(&**event).unwrap()), "{event:?}");
    }
}

#[tokio::test]
async fn event_reader_can_start_at_any_sequence_number() {
    let fixture = RuntimeFixture::new([note("one"), ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    let mut late = run.events(EventSeq(4));
    let first = late.next().await.unwrap().unwrap();
    assert_eq!(first.seq, 4);
    finished(&run).await;
    let all = events(&run).await;
    let mut rest = vec![first];
    while let Some(event) = late.next().await {
        rest.push(event.unwrap());
    }
    assert_eq!(rest, all[3..]);
}

#[tokio::test]
async fn run_can_be_attached_again_after_its_handle_is_dropped() {
    let fixture = RuntimeFixture::new([note("one"), ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    let id = run.id();
    drop(run);
    let again = runtime.attach(id).unwrap();
    assert_eq!(answer(&finished(&again).await), "done");
    again.closed().await;
    assert!(runtime.attach(id).is_err(), "a finished run cannot be attached");
}

#[tokio::test]
async fn cancel_aborts_a_run_waiting_for_its_model() {
    let slow = ResponsePace { first_byte_milliseconds: 60_000, ..ResponsePace::default() };
    let fixture = RuntimeFixture::new([ScriptStep::text("never").at_pace(slow)]);
    let runtime = fixture.runtime(&json!({})).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    run.cancel();
    assert_eq!(finished(&run).await.finish.reason, FinishReason::Aborted);
}

#[tokio::test]
async fn run_that_is_asked_to_end_completes_its_turn_and_stays_resumable() {
    let both = ScriptStep::say([
        ScriptPart::call("note", json!({"text": "one"})),
        ScriptPart::call("note", json!({"text": "two"})),
    ]);
    let fixture = RuntimeFixture::new([both, ScriptStep::text("continued")]);
    let runtime = fixture.runtime(&json!({})).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    run.end_after_turn();
    assert_eq!(finished(&run).await.finish.reason, FinishReason::Steered);
    assert_eq!(fixture.calls.count(), 2, "the run completes both calls of its turn");
    let conversation = run.conversation().unwrap();
    assert_eq!(conversation.open_calls().count(), 0);
    run.closed().await;
    let again = runtime.resume(run.id(), Some("And now?".into()), RunSecrets::none()).await.unwrap();
    assert_eq!(answer(&finished(&again).await), "continued");
}

#[tokio::test]
async fn equal_idempotency_keys_start_one_run() {
    let fixture = RuntimeFixture::new([note("one"), ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let spec = RunSpec { idempotency_key: Some("k".into()), ..fixture.spec("go") };
    let first = runtime.start(spec.clone(), RunSecrets::none()).await.unwrap();
    let second = runtime.start(spec.clone(), RunSecrets::none()).await.unwrap();
    assert_eq!(first.id(), second.id());
    finished(&second).await;
    first.closed().await;
    assert_eq!(fixture.calls.count(), 1);
    let later = runtime.start(spec.clone(), RunSecrets::none()).await.unwrap_err();
    assert!(matches!(later, StartError::AlreadyStarted { run } if run == first.id()), "{later}");
    let other = RunSpec { principal: Principal::new("t", "other", ""), ..spec };
    assert!(runtime.start(other, RunSecrets::none()).await.is_ok(), "another principal can use the same key");
}

#[tokio::test]
async fn failed_start_releases_the_idempotency_key() {
    let fixture = RuntimeFixture::new([ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let mut spec = RunSpec { idempotency_key: Some("k".into()), ..fixture.spec("go") };
    let directory = std::mem::replace(&mut spec.workspace.directory, "/nonexistent".into());
    assert!(runtime.start(spec.clone(), RunSecrets::none()).await.is_err());
    spec.workspace.directory = directory;
    assert!(runtime.start(spec, RunSecrets::none()).await.is_ok());
}

#[tokio::test]
async fn run_list_is_per_principal_paged_and_newest_first() {
    let fixture = RuntimeFixture::new((0..4).map(|_| ScriptStep::text("done")));
    let runtime = fixture.runtime(&json!({})).await;
    let anna = Principal::new("acme", "anna", "");
    for request in ["first", "second", "third"] {
        let spec = RunSpec { principal: anna.clone(), ..fixture.spec(request) };
        let run = runtime.start(spec, RunSecrets::none()).await.unwrap();
        finished(&run).await;
        run.closed().await;
    }
    let titles = async |principal: &Principal, skip, count| -> Vec<String> {
        let listed = runtime.list(principal, RunListPage { skip, count }).await.unwrap();
        listed.into_iter().map(|run| run.title).collect()
    };
    assert_eq!(titles(&anna, 0, 10).await, ["third", "second", "first"]);
    assert_eq!(titles(&anna, 1, 1).await, ["second"]);
    assert_eq!(titles(&Principal::local(), 0, 10).await, Vec::<String>::new());
}

#[tokio::test]
async fn config_reload_applies_only_to_new_runs() {
    let fixture = RuntimeFixture::new([
        note("one"),
        ScriptStep::text("one done"),
        note("two"),
        ScriptStep::text("two done"),
    ]);
    let runtime = fixture.runtime(&json!({})).await;
    let before = runtime.start(fixture.spec("first"), RunSecrets::none()).await.unwrap();
    let denying = json!({"policy": {"rules": [{"tool": "note", "decision": "deny"}]}});
    let file = fixture.directory.path().join("next.json");
    std::fs::write(&file, denying.to_string()).unwrap();
    let sources = haft_config::ConfigSources { home: None, project: None, named: Some(&file) };
    let next = haft_config::load(sources, &|_| None).unwrap().resolved;
    assert_eq!(runtime.reload(next).await, Vec::<String>::new());
    finished(&before).await;
    assert_eq!(fixture.calls.count(), 1, "the running run keeps the old rules");
    let after = runtime.start(fixture.spec("second"), RunSecrets::none()).await.unwrap();
    finished(&after).await;
    assert_eq!(fixture.calls.count(), 1, "the next run uses the new rules");
}

#[tokio::test]
async fn tools_of_the_program_are_shut_down_only_with_the_runtime() {
    let fixture = RuntimeFixture::in_order([
        note("one"),
        ScriptStep::text("done"),
        note("two"),
        ScriptStep::text("done"),
    ]);
    let runtime = fixture.runtime(&json!({})).await;
    for _ in 0..2 {
        let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
        finished(&run).await;
        run.closed().await;
        assert_eq!(fixture.calls.shutdowns(), 0);
    }
    runtime.shut_down().await;
    assert_eq!((fixture.calls.count(), fixture.calls.shutdowns()), (2, 1));
}

#[tokio::test]
async fn runtime_shutdown_aborts_its_runs() {
    let slow = ResponsePace { first_byte_milliseconds: 60_000, ..ResponsePace::default() };
    let fixture = RuntimeFixture::new([ScriptStep::text("never").at_pace(slow)]);
    let runtime = fixture.runtime(&json!({})).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    runtime.shut_down().await;
    assert_eq!(finished(&run).await.finish.reason, FinishReason::Aborted);
}

#[tokio::test]
async fn runs_share_model_connections_unless_timeouts_differ() {
    let fixture = RuntimeFixture::in_order((0..4).map(|_| ScriptStep::text("done")));
    let connections = fixture.count_connections().await;
    let runtime = fixture.runtime(&json!({})).await;
    for subject in ["anna", "bert", "anna"] {
        let spec = RunSpec { principal: Principal::new("acme", subject, ""), ..fixture.spec("go") };
        let run = runtime.start(spec, RunSecrets::none()).await.unwrap();
        assert_eq!(answer(&finished(&run).await), "done");
        run.closed().await;
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    let hasty = json!({"providers": {"openai": {"connectTimeout": "5s"}}});
    let hasty = fixture.runtime(&hasty).await.config();
    runtime.reload(ResolvedConfig::clone(&hasty)).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    assert_eq!(answer(&finished(&run).await), "done");
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn run_continues_the_opening_messages_of_its_spec() {
    let expected = RequestExpectation {
        body_contains: vec!["Who are you?".into(), "A robot.".into(), "And what can you do?".into()],
        ..RequestExpectation::default()
    };
    let fixture = RuntimeFixture::in_order([ScriptStep::text("Anything.").expecting(expected)]);
    let runtime = fixture.runtime(&json!({})).await;
    let mut spec = fixture.spec("And what can you do?");
    spec.changes.system = Some(String::new());
    spec.opening = vec![
        Message::user("Who are you?"),
        Message::assistant(vec![MessagePart::text("A robot.")]),
        Message::user("And what can you do?"),
    ];
    let run = runtime.start(spec, RunSecrets::none()).await.unwrap();
    assert!(run.conversation().is_none(), "a conversation exists before the end of the run");
    assert_eq!(answer(&finished(&run).await), "Anything.");
    let roles: Vec<Role> =
        run.conversation().unwrap().messages().iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::User, Role::Assistant]);
    let sent = fixture.model.requests().last().unwrap().raw.clone();
    assert!(!sent.contains("You work"), "the empty system text did not replace the agent's: {sent}");
}
