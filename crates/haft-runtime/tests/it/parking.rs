//! Tests of runs that wait for approvals, for the caller's functions or for secrets, including across a restart.

use std::sync::Arc;

use haft_core::approval::ApprovalId;
use haft_core::conversation::ToolReply;
use haft_core::event::NoEvents;
use haft_core::glob::ToolGlob;
use haft_core::principal::Principal;
use haft_core::run::caller_approvals::{ApproverAuthority, CallerApproval, ToolSelector};
use haft_core::run::finish::FinishReason;
use haft_core::tool::ToolCall;
use haft_model_server::{RequestExpectation, ScriptPart, ScriptStep};
use haft_models::cassette::{Recording, Tape};
use haft_runtime::recordings::{RunPlayer, RunRecorder};
use haft_runtime::runtime::{ResumeFailure, RunListPage, StartError, Takeover};
use haft_runtime::spec::FunctionTool;
use haft_runtime::{
    ApprovalDecision, DecideError, ParkReason, PendingApproval, RunHandle, RunHooks, RunSecrets, RunSpec,
    RunState, SessionStorage, Stores, SubmitError, SuspendedRun,
};
use haft_store::journals::{JournalStore, MemoryJournals};
use haft_store::sessions::SessionError;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixture::{RuntimeFixture, answer, asking, events, finished, kinds, note, process};

async fn pending(run: &RunHandle) -> Vec<PendingApproval> {
    match run.wait().await.unwrap() {
        RunState::Parked(ParkReason::Approval(pending)) => pending,
        other => panic!("{other:?}"),
    }
}

fn told(step: ScriptStep, text: &str) -> ScriptStep {
    step.expecting(RequestExpectation {
        last_tool_result: Some(text.to_owned()),
        ..RequestExpectation::default()
    })
}

#[tokio::test]
async fn approved_call_runs_once() {
    let fixture = RuntimeFixture::new([note("one"), told(ScriptStep::text("done"), "noted as number 1")]);
    let runtime = fixture.runtime(&asking()).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    let [waiting] = pending(&run).await.try_into().unwrap();
    assert_eq!((waiting.tool.as_str(), &waiting.arguments), ("note", &json!({"text": "one"})));
    assert_eq!(fixture.calls.count(), 0);
    run.decide(waiting.id, ApprovalDecision::Allow).unwrap();
    assert_eq!(answer(&finished(&run).await), "done");
    assert_eq!(fixture.calls.count(), 1);
    let kinds = kinds(&events(&run).await);
    let asked = kinds.iter().position(|kind| kind == "approval_requested").unwrap();
    assert_eq!(kinds[asked + 1], "approval_decided");
}

#[tokio::test]
async fn run_continues_without_a_denied_call() {
    let fixture = RuntimeFixture::new([note("one"), ScriptStep::text("understood")]);
    let runtime = fixture.runtime(&asking()).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    let [waiting] = pending(&run).await.try_into().unwrap();
    run.decide(waiting.id, ApprovalDecision::Deny).unwrap();
    assert_eq!((answer(&finished(&run).await).as_str(), fixture.calls.count()), ("understood", 0));
}

#[tokio::test]
async fn unknown_or_repeated_approval_decision_is_an_error() {
    let fixture = RuntimeFixture::new([note("one"), ScriptStep::text("done")]);
    let runtime = fixture.runtime(&asking()).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    let [waiting] = pending(&run).await.try_into().unwrap();
    let unknown = ApprovalId::parse(&"0".repeat(32)).unwrap();
    let not_pending = run.decide(unknown, ApprovalDecision::Allow).unwrap_err();
    assert_eq!(not_pending, DecideError::NotPending { id: unknown.to_string() });
    run.decide(waiting.id, ApprovalDecision::Allow).unwrap();
    let twice = run.decide(waiting.id, ApprovalDecision::Deny).unwrap_err();
    assert_eq!(twice, DecideError::AlreadyDecided { id: waiting.id.to_string() });
    finished(&run).await;
    assert_eq!(fixture.calls.count(), 1, "the second decision has no effect");
}

#[tokio::test]
async fn parallel_calls_can_be_approved_in_any_order() {
    let both = ScriptStep::say([
        ScriptPart::call("note", json!({"text": "a"})),
        ScriptPart::call("note", json!({"text": "b"})),
    ]);
    let fixture = RuntimeFixture::new([both, ScriptStep::text("done")]);
    let runtime = fixture.runtime(&asking()).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    let waiting = loop {
        let waiting = pending(&run).await;
        if waiting.len() == 2 {
            break waiting;
        }
        tokio::task::yield_now().await;
    };
    run.decide(waiting[1].id, ApprovalDecision::Deny).unwrap();
    run.decide(waiting[0].id, ApprovalDecision::Allow).unwrap();
    assert_eq!(answer(&finished(&run).await), "done");
    assert_eq!(fixture.calls.count(), 1);
}

#[test]
fn pending_approval_survives_a_restart_without_a_second_call() {
    let fixture = RuntimeFixture::new([note("one"), told(ScriptStep::text("done"), "noted as number 1")]);
    let first = process();
    let (id, approval) = first.block_on(async {
        let runtime = fixture.runtime(&asking()).await;
        let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
        let [waiting] = pending(&run).await.try_into().unwrap();
        (run.id(), waiting.id)
    });
    drop(first);
    process().block_on(async {
        let runtime = fixture.runtime(&asking()).await;
        let run = runtime.resume(id, None, RunSecrets::none()).await.unwrap();
        let [waiting] = pending(&run).await.try_into().unwrap();
        assert_eq!(waiting.id, approval, "the approval has the same id in another process");
        assert_eq!(waiting.arguments, json!({"text": "one"}));
        run.decide(approval, ApprovalDecision::Allow).unwrap();
        assert_eq!(answer(&finished(&run).await), "done");
        let numbers: Vec<u64> = events(&run).await.iter().map(|event| event.seq).collect();
        assert_eq!(
            numbers,
            (1..=numbers.len() as u64).collect::<Vec<_>>(),
            "the event numbers have no gap and no repetition"
        );
    });
    assert_eq!(fixture.calls.count(), 1);
}

#[tokio::test]
async fn suspended_run_resumes_with_the_same_approval_id() {
    let fixture = RuntimeFixture::new([note("one"), told(ScriptStep::text("done"), "noted as number 1")]);
    let runtime = fixture.runtime(&asking()).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    let [waiting] = pending(&run).await.try_into().unwrap();
    run.suspend();
    assert_eq!(run.stopped().await.unwrap(), RunState::Suspended);
    assert_eq!(run.pending_approvals().len(), 1, "the pending approval of a suspended run is visible");
    let run = runtime.resume(run.id(), None, RunSecrets::none()).await.unwrap();
    let [again] = pending(&run).await.try_into().unwrap();
    assert_eq!((again.id, &again.arguments), (waiting.id, &waiting.arguments));
    run.decide(again.id, ApprovalDecision::Allow).unwrap();
    assert_eq!(answer(&finished(&run).await), "done");
    assert_eq!(fixture.calls.count(), 1);
}

#[tokio::test]
async fn caller_cannot_approve_calls_that_rules_ask_about() {
    let required = || CallerApproval {
        tools: ToolGlob::new("*").unwrap(),
        always: Some(ToolSelector::default()),
        never: None,
    };
    let own = || RunHooks { authority: ApproverAuthority::CallersOwn, ..RunHooks::default() };
    let fixture = RuntimeFixture::new([note("one"), ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let spec = RunSpec { approvals: vec![required()], ..fixture.spec("go") };
    let run = runtime.start_with(spec, RunSecrets::none(), own()).await.unwrap();
    let [waiting] = pending(&run).await.try_into().unwrap();
    run.decide(waiting.id, ApprovalDecision::Allow).unwrap();
    assert_eq!((answer(&finished(&run).await).as_str(), fixture.calls.count()), ("done", 1));
    let fixture = RuntimeFixture::new([note("one"), ScriptStep::text("refused")]);
    let runtime = fixture.runtime(&asking()).await;
    let spec = RunSpec { approvals: vec![required()], ..fixture.spec("go") };
    let run = runtime.start_with(spec, RunSecrets::none(), own()).await.unwrap();
    assert_eq!((answer(&finished(&run).await).as_str(), fixture.calls.count()), ("refused", 0));
}

#[tokio::test]
async fn suspended_run_continues_in_another_runtime_without_files() {
    let fixture = RuntimeFixture::new([note("one"), told(ScriptStep::text("done"), "noted as number 1")]);
    let hooks = || RunHooks { sessions: SessionStorage::Memory, ..RunHooks::default() };
    let first = fixture.runtime(&asking()).await;
    let run = first.start_with(fixture.spec("go"), RunSecrets::none(), hooks()).await.unwrap();
    let [waiting] = pending(&run).await.try_into().unwrap();
    assert!(run.suspended_run().is_none(), "a run that is not suspended has no suspended state");
    run.suspend();
    assert_eq!(run.stopped().await.unwrap(), RunState::Suspended);
    let text = serde_json::to_string(run.suspended_run().unwrap()).unwrap();
    let read = || serde_json::from_str::<SuspendedRun>(&text).unwrap();
    assert_eq!(read().id(), Some(run.id()));
    assert!(!format!("{:?}", read()).contains("go"), "the debug output contains the request");
    let second = fixture.runtime(&asking()).await;
    let stranger = Principal::new("other", "eve", "k");
    assert!(second.suspended_spec(&stranger, &read()).is_err());
    let spec = second.suspended_spec(run.principal(), &read()).unwrap();
    let resume = async || second.resume_suspended(read(), spec.clone(), RunSecrets::none(), hooks()).await;
    let run = resume().await.unwrap();
    let busy = resume().await.unwrap_err();
    assert!(matches!(busy, ResumeFailure::Session(SessionError::Busy { .. })), "{busy}");
    assert_eq!(pending(&run).await[0].id, waiting.id);
    run.decide(waiting.id, ApprovalDecision::Allow).unwrap();
    assert_eq!((answer(&finished(&run).await).as_str(), fixture.calls.count()), ("done", 1));
    for directory in ["sessions", "events", "blobs"] {
        assert!(!fixture.home().data().join(directory).exists(), "{directory}");
    }
}

#[tokio::test]
async fn run_that_was_taken_over_makes_no_call_in_the_old_runtime() {
    let in_memory: Arc<dyn JournalStore> = Arc::new(MemoryJournals::default());
    for journals in [None, Some(in_memory)] {
        let fixture = RuntimeFixture::new([note("one"), told(ScriptStep::text("done"), "noted as number 1")]);
        let runtime = async || {
            let stores = Stores::at(&fixture.home());
            let stores = match &journals {
                Some(journals) => stores.with_journals(Arc::clone(journals)),
                None => stores,
            };
            fixture.builder(&asking()).stores(stores).build().await.unwrap()
        };
        let (older, newer) = (runtime().await, runtime().await);
        let old = older.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
        let [waiting] = pending(&old).await.try_into().unwrap();
        let busy = newer.resume(old.id(), None, RunSecrets::none()).await.unwrap_err();
        assert!(busy.to_string().contains("another process"), "{busy}");
        let spec = newer.stored_spec(old.principal(), old.id()).await.unwrap();
        let hooks = RunHooks { takeover: Takeover::Allowed, ..RunHooks::default() };
        let run = newer.resume_with(old.id(), spec, None, RunSecrets::none(), hooks).await.unwrap();
        pending(&run).await;
        old.decide(waiting.id, ApprovalDecision::Allow).unwrap();
        let outcome = finished(&old).await;
        assert_eq!(outcome.finish.reason, FinishReason::JournalFailed);
        let detail = outcome.finish.detail;
        assert!(detail.contains("has taken over this run"), "{detail}");
        assert_eq!(fixture.calls.count(), 0, "the old runtime made a call");
        run.decide(waiting.id, ApprovalDecision::Allow).unwrap();
        assert_eq!(answer(&finished(&run).await), "done");
        assert_eq!(fixture.calls.count(), 1);
        let kept_in_files = fixture.home().data().join("sessions").exists();
        assert_eq!(kept_in_files, journals.is_none());
    }
}

#[tokio::test]
async fn wait_for_a_sub_agent_approval_does_not_count_as_run_time() {
    let steps = [
        ScriptStep::call("agent__helper", json!({"request": "note it"})),
        note("one"),
        ScriptStep::text("noted"),
        ScriptStep::text("done"),
    ];
    let fixture = RuntimeFixture::in_order(steps);
    let runtime = fixture.runtime(&asking()).await;
    let agents = [
        ("lead.md", "---\nmodels: openai/m\ntools: []\nagents: [helper.md]\ntimeout: 20m\n---\nYou lead.\n"),
        ("helper.md", "---\nmodels: openai/m\ntools: [note]\ntimeout: 10m\n---\nYou note.\n"),
    ];
    let run = runtime.start(fixture.spec_of_files(&agents, "go"), RunSecrets::none()).await.unwrap();
    let [waiting] = pending(&run).await.try_into().unwrap();
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_hours(5)).await;
    // If a deadline was not paused during the wait, its timer fires here, and the test fails.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    run.decide(waiting.id, ApprovalDecision::Allow).unwrap();
    let outcome = finished(&run).await;
    assert_eq!(answer(&outcome), "done", "{:?}", outcome.finish);
    assert_eq!(fixture.calls.count(), 1);
}

#[test]
fn run_continues_in_another_runtime_with_all_stores_in_memory() {
    let fixture = RuntimeFixture::new([
        ScriptStep::call("long", json!({})),
        note("one"),
        told(ScriptStep::text("done"), "noted as number 1"),
    ]);
    let config = json!({
        "policy": {"rules": [{"tool": "note", "decision": "ask"}]},
        "maxToolResponseBytes": 1_000,
    });
    process().block_on(async {
        let stores = Stores::in_memory(&fixture.home());
        let runtime = async |stores: Stores| fixture.builder(&config).stores(stores).build().await.unwrap();
        let older = runtime(stores.clone()).await;
        let spec = RunSpec { idempotency_key: Some("k".into()), ..fixture.spec("go") };
        let old = older.start(spec.clone(), RunSecrets::none()).await.unwrap();
        let [waiting] = pending(&old).await.try_into().unwrap();
        let newer = runtime(stores).await;
        let listed = newer.list(old.principal(), RunListPage { skip: 0, count: 9 }).await.unwrap();
        assert_eq!((listed.len(), listed[0].is_running), (1, true));
        let twice = newer.start(spec, RunSecrets::none()).await.unwrap_err();
        assert!(matches!(twice, StartError::AlreadyStarted { run } if run == old.id()), "{twice}");
        let resumed = newer.stored_spec(old.principal(), old.id()).await.unwrap();
        let hooks = RunHooks { takeover: Takeover::Allowed, ..RunHooks::default() };
        let run = newer.resume_with(old.id(), resumed, None, RunSecrets::none(), hooks).await.unwrap();
        pending(&run).await;
        run.decide(waiting.id, ApprovalDecision::Allow).unwrap();
        assert_eq!(answer(&finished(&run).await), "done");
        old.cancel();
        old.closed().await;
        run.closed().await;
    });
    assert_eq!(fixture.calls.count(), 1);
    let data: Vec<_> = std::fs::read_dir(fixture.home().data()).into_iter().flatten().flatten().collect();
    assert!(data.is_empty(), "a store wrote files: {data:?}");
}

#[tokio::test]
async fn recorded_run_replays_its_parked_calls() {
    let both = ScriptStep::say([
        ScriptPart::call("note", json!({"text": "a"})),
        ScriptPart::call("note", json!({"text": "b"})),
    ]);
    let weather_call = ScriptStep::call("weather", json!({"town": "Rome"}));
    let fixture = RuntimeFixture::new([both, weather_call, told(ScriptStep::text("sunny"), "31 degrees")]);
    let runtime = fixture.runtime(&asking()).await;
    let path = fixture.directory.path().join("run.jsonl");
    let tape = Tape::create(&path, []).unwrap();
    let recorder = Arc::new(RunRecorder::new(Arc::clone(&tape)));
    let hooks = RunHooks { recorder: Some((tape, Arc::clone(&recorder))), ..RunHooks::default() };
    let spec = RunSpec { functions: vec![weather()], ..fixture.spec("go") };
    let run = runtime.start_with(spec, RunSecrets::none(), hooks).await.unwrap();
    let waiting = loop {
        let waiting = pending(&run).await;
        if waiting.len() == 2 {
            break waiting;
        }
        tokio::task::yield_now().await;
    };
    let is_a = |waiting: &&PendingApproval| waiting.arguments == json!({"text": "a"});
    let allowed = waiting.iter().find(is_a).unwrap().id;
    let denied = waiting.iter().find(|waiting| !is_a(waiting)).unwrap().id;
    run.decide(denied, ApprovalDecision::Deny).unwrap();
    run.decide(allowed, ApprovalDecision::Allow).unwrap();
    let [call] = functions(&run).await.try_into().unwrap();
    run.submit(vec![ToolReply::text(&call, "31 degrees")]).unwrap();
    let outcome = finished(&run).await;
    assert_eq!(answer(&outcome), "sunny");
    recorder.end(std::time::Duration::from_secs(1), None);
    run.closed().await;
    let recording = Recording::read(&path).unwrap();
    let replayed = RunPlayer::of(&recording, Arc::new(NoEvents)).unwrap().play().await.unwrap();
    assert_eq!(replayed.difference, None);
    assert_eq!((replayed.finish, replayed.turns), (outcome.finish, outcome.turns));
    assert_eq!(fixture.calls.count(), 1, "the replay called a tool");
}

fn weather() -> FunctionTool {
    FunctionTool {
        name: "weather".into(),
        description: "The weather of a town.".into(),
        parameters: Arc::new(json!({"type": "object", "properties": {"town": {"type": "string"}}})),
        strict: false,
    }
}

async fn functions(run: &RunHandle) -> Vec<ToolCall> {
    match run.wait().await.unwrap() {
        RunState::Parked(ParkReason::ClientOutputs(calls)) => calls,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn run_continues_with_submitted_function_outputs() {
    let call = ScriptStep::call("weather", json!({"town": "Rome"}));
    let fixture = RuntimeFixture::new([call, told(ScriptStep::text("sunny"), "31 degrees")]);
    let runtime = fixture.runtime(&json!({})).await;
    let spec = RunSpec { functions: vec![weather()], ..fixture.spec("go") };
    let run = runtime.start(spec, RunSecrets::none()).await.unwrap();
    let [call] = functions(&run).await.try_into().unwrap();
    assert_eq!((call.name.as_str(), call.arguments.as_text()), ("weather", r#"{"town":"Rome"}"#));
    let mut other = call.clone();
    other.id.0 = "another".into();
    let unknown = run.submit(vec![ToolReply::text(&other, "x")]).unwrap_err();
    assert_eq!(unknown, SubmitError::UnknownCall { call: "another".into() });
    let reply = ToolReply::text(&call, "31 degrees");
    let twice = run.submit(vec![reply.clone(), reply.clone()]).unwrap_err();
    assert_eq!(twice, SubmitError::Twice { call: call.id.0.clone() });
    run.submit(vec![reply]).unwrap();
    assert_eq!(answer(&finished(&run).await), "sunny");
    assert_eq!(run.submit(Vec::new()).unwrap_err(), SubmitError::NotWaiting);
}

#[test]
fn run_waiting_for_a_function_resumes_after_restart() {
    let call = ScriptStep::call("weather", json!({"town": "Rome"}));
    let fixture = RuntimeFixture::new([call, told(ScriptStep::text("sunny"), "31 degrees")]);
    let first = process();
    let id = first.block_on(async {
        let runtime = fixture.runtime(&json!({})).await;
        let spec = RunSpec { functions: vec![weather()], ..fixture.spec("go") };
        let run = runtime.start(spec, RunSecrets::none()).await.unwrap();
        functions(&run).await;
        run.id()
    });
    drop(first);
    process().block_on(async {
        let runtime = fixture.runtime(&json!({})).await;
        let run = runtime.resume(id, None, RunSecrets::none()).await.unwrap();
        let [call] = functions(&run).await.try_into().unwrap();
        run.submit(vec![ToolReply::text(&call, "31 degrees")]).unwrap();
        assert_eq!(answer(&finished(&run).await), "sunny");
    });
    assert_eq!(fixture.model.requests().len(), 2, "the resumed run repeats no model request");
}

/// Starts a server that answers every request with the reversed value of its `Authorization` header; haft removes the
/// value itself from a response.
async fn header_server() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(connection.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            let value = head.split("authorization: ").nth(1).unwrap().lines().next().unwrap();
            let value: String = value.chars().rev().collect();
            let reply = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{value}",
                value.len()
            );
            connection.write_all(reply.as_bytes()).await.unwrap();
        }
    });
    url
}

#[tokio::test]
async fn secrets_of_a_run_replace_configuration_variables_only_for_this_run() {
    let look = || ScriptStep::call("rest__whoami", json!({}));
    let steps = [
        look(),
        told(ScriptStep::text("done"), "anna fo yek"),
        look(),
        told(ScriptStep::text("done"), "treb fo yek"),
        ScriptStep::text("done"),
    ];
    let fixture = RuntimeFixture::in_order(steps);
    let url = header_server().await;
    let tool = json!({
        "description": "Shows the key.", "method": "GET", "url": url,
        "headers": {"Authorization": "${SERVICE_KEY}"}, "allowPrivateAddresses": true,
    });
    let runtime = fixture.runtime(&json!({"restTools": {"whoami": tool}})).await;
    let agent = "---\nmodels: openai/m\ntools: [rest__whoami]\n---\nYou work.\n";
    for key in ["key of anna", "key of bert"] {
        let secrets = RunSecrets::none().with("SERVICE_KEY", key);
        let run = runtime.start(fixture.spec_of(agent, "go"), secrets).await.unwrap();
        let outcome = finished(&run).await;
        assert_eq!(answer(&outcome), "done", "{key}: {:?}", outcome.finish);
    }
    let run = runtime.start(fixture.spec_of(agent, "go"), RunSecrets::none()).await.unwrap();
    finished(&run).await;
    let warnings = run.warnings().join("\n");
    assert!(warnings.contains("rest__whoami"), "no warning about the tool without its secret: {warnings}");
}

#[tokio::test]
async fn resumed_run_parks_until_its_secret_is_provided() {
    let fixture = RuntimeFixture::new([ScriptStep::text("one"), ScriptStep::text("two")]);
    let runtime = fixture.runtime(&json!({})).await;
    let secrets = RunSecrets::none().with("OPENAI_API_KEY", "of this run");
    let run = runtime.start(fixture.spec("go"), secrets.clone()).await.unwrap();
    finished(&run).await;
    run.closed().await;
    let id = run.id();
    let stored = std::fs::read_to_string(fixture.home().data().join(format!("sessions/{id}.jsonl"))).unwrap();
    assert!(
        stored.contains("OPENAI_API_KEY") && !stored.contains("of this run"),
        "the session stores the name of the secret, not its value"
    );
    let more = Some("more".to_owned());
    let lacking = runtime.resume(id, more.clone(), RunSecrets::none()).await.unwrap();
    let expected = ParkReason::Credentials(vec!["OPENAI_API_KEY".into()]);
    assert_eq!(lacking.wait().await.unwrap(), RunState::Parked(expected));
    let run = runtime.resume(id, more, secrets).await.unwrap();
    assert_eq!(answer(&finished(&run).await), "two");
}
