//! Tests that two principals in one runtime cannot see each other's data.

use haft_core::event_log::LogEvent;
use haft_core::principal::Principal;
use haft_model_server::{ModelServer, RequestExpectation, Script, ScriptStep};
use haft_runtime::spec::UserHomeView;
use haft_runtime::{
    ApprovalDecision, EventSeq, ParkReason, RunHandle, RunHooks, RunSecrets, RunSpec, RunState,
    SessionStorage, Stores,
};
use serde_json::json;

use crate::fixture::{PROCESS_SERVER, RuntimeFixture, answer, asking, events, finished, note, results};

fn principal(subject: &str) -> Principal {
    Principal::new("acme", subject, "key")
}

fn told(step: ScriptStep, text: &str) -> ScriptStep {
    step.expecting(RequestExpectation {
        last_tool_result: Some(text.to_owned()),
        ..RequestExpectation::default()
    })
}

#[tokio::test]
async fn calls_have_the_principal_of_their_run() {
    let fixture =
        RuntimeFixture::in_order([note("a"), ScriptStep::text("done"), note("b"), ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    for subject in ["anna", "bert"] {
        let spec = RunSpec { principal: principal(subject), ..fixture.spec("go") };
        finished(&runtime.start(spec, RunSecrets::none()).await.unwrap()).await;
    }
    assert_eq!(*fixture.calls.texts.lock().unwrap(), ["acme/anna: a", "acme/bert: b"]);
}

#[tokio::test]
async fn approval_does_not_apply_to_another_principal() {
    let fixture =
        RuntimeFixture::new([note("same"), ScriptStep::text("done"), note("same"), ScriptStep::text("done")]);
    let runtime = fixture.runtime(&asking()).await;
    for subject in ["anna", "bert"] {
        let spec = RunSpec { principal: principal(subject), ..fixture.spec("go") };
        let run = runtime.start(spec, RunSecrets::none()).await.unwrap();
        let RunState::Parked(ParkReason::Approval(waiting)) = run.wait().await.unwrap() else {
            panic!("the run of {subject} did not ask for approval")
        };
        run.decide(waiting[0].id, ApprovalDecision::Allow).unwrap();
        finished(&run).await;
    }
}

#[tokio::test]
async fn cached_output_is_not_returned_to_another_principal() {
    let look = || ScriptStep::call("look", json!({}));
    let steps = [
        look(),
        told(ScriptStep::text("done"), "look number 1"),
        look(),
        told(ScriptStep::text("done"), "look number 1"),
        look(),
        told(ScriptStep::text("done"), "look number 2"),
    ];
    let fixture = RuntimeFixture::in_order(steps);
    let runtime = fixture.runtime(&json!({"tools": {"look": {"cache": "1h"}}})).await;
    for subject in ["anna", "anna", "bert"] {
        let spec = RunSpec { principal: principal(subject), ..fixture.spec("go") };
        let outcome = finished(&runtime.start(spec, RunSecrets::none()).await.unwrap()).await;
        assert_eq!(answer(&outcome), "done", "{subject}: {:?}", outcome.finish);
    }
}

#[tokio::test]
async fn run_budgets_are_independent() {
    let agent = "---\nmodels: openai/m\ntools: [note]\nbudget: {calls: 1}\n---\n";
    let fixture =
        RuntimeFixture::new([note("a"), ScriptStep::text("done"), note("b"), ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    for subject in ["anna", "bert"] {
        let spec = RunSpec { principal: principal(subject), ..fixture.spec_of(agent, "go") };
        let run = runtime.start(spec, RunSecrets::none()).await.unwrap();
        let outcome = finished(&run).await;
        assert_eq!(outcome.bill.calls, 1, "{subject}");
    }
    assert_eq!(fixture.calls.count(), 2);
}

#[tokio::test]
async fn principal_cannot_read_the_workspace_of_another_principal() {
    let fixture = RuntimeFixture::new([
        ScriptStep::call("bash", json!({"command": "cat ../anna/secret; ls ..; echo mine > own; cat own"})),
        ScriptStep::call("read", json!({"file_path": "../anna/secret"})),
        ScriptStep::text("done"),
    ]);
    let directory = |subject: &str| fixture.home().workspace().join("acme").join(subject);
    for subject in ["anna", "bert"] {
        std::fs::create_dir_all(directory(subject)).unwrap();
    }
    std::fs::write(directory("anna").join("secret"), "the secret of anna").unwrap();
    let runtime = fixture.runtime(&json!({})).await;
    let agent = "---\nmodels: openai/m\ntools: [bash, read]\n---\nYou work.\n";
    let mut spec = fixture.spec_of(agent, "go");
    spec.principal = Principal::new("acme", "bert", "");
    spec.workspace.directory = directory("bert");
    let run = runtime.start(spec, RunSecrets::none()).await.unwrap();
    assert_eq!(answer(&finished(&run).await), "done");
    let results: Vec<String> = events(&run)
        .await
        .iter()
        .filter_map(|event| match &event.event.kind {
            LogEvent::ToolResult { text, .. } => Some(text.clone()),
            _ => None,
        })
        .collect();
    let [shell, file] = results.try_into().unwrap();
    assert!(shell.contains("No such file") && shell.contains("bert\nmine"), "{shell}");
    assert!(!shell.contains("the secret") && !file.contains("the secret"), "{file}");
}

#[tokio::test]
async fn principals_have_separate_tmp_directories_and_see_no_home() {
    let home = haft_sandbox::user_home().unwrap();
    let name = format!("haft-tmp-{}", std::process::id());
    let look = format!(
        "cat /tmp/{name}; ls -A '{}' | wc -l; echo of $(basename $PWD) > /tmp/{name}; cat /tmp/{name}",
        home.display()
    );
    let bash = || ScriptStep::call("bash", json!({ "command": look }));
    let read = || ScriptStep::call("read", json!({"file_path": format!("/tmp/{name}")}));
    let steps = || [bash(), read(), ScriptStep::text("done")];
    let fixture = RuntimeFixture::in_order([steps(), steps(), steps()].concat());
    let runtime = fixture.runtime(&json!({})).await;
    let agent = "---\nmodels: openai/m\ntools: [bash, read]\n---\nYou work.\n";
    let start = async |subject: &str| {
        let directory = fixture.home().workspace().join("acme").join(subject);
        std::fs::create_dir_all(&directory).unwrap();
        let mut spec = fixture.spec_of(agent, "go");
        spec.principal = principal(subject);
        spec.workspace.directory = directory;
        spec.workspace.home = UserHomeView::Covered;
        results(&runtime.start(spec, RunSecrets::none()).await.unwrap()).await
    };
    let [shell, file] = start("anna").await.try_into().unwrap();
    assert!(shell.contains("No such file") && shell.contains("\n0\nof anna"), "{shell}");
    assert!(file.contains("of anna"), "{file}");
    let [shell, file] = start("bert").await.try_into().unwrap();
    assert!(shell.contains("No such file") && !shell.contains("anna"), "{shell}");
    assert!(file.contains("of bert"), "{file}");
    let [shell, _] = start("anna").await.try_into().unwrap();
    assert!(shell.starts_with("of anna"), "a principal keeps its /tmp between runs: {shell}");
    assert!(!std::path::Path::new("/tmp").join(&name).exists());
}

#[tokio::test]
async fn mcp_server_is_shared_only_by_runs_of_the_same_principal() {
    let steps = || [ScriptStep::call("process__name", json!({})), note("waits")];
    let fixture = RuntimeFixture::in_order([steps(), steps(), steps()].concat());
    let script = fixture.directory.path().join("server.py");
    std::fs::write(&script, PROCESS_SERVER).unwrap();
    let mut config = asking();
    config["mcpServers"] = json!({"process": {"command": "python3", "args": [script]}});
    let runtime = fixture.runtime(&config).await;
    let agent = "---\nmodels: openai/m\ntools: [process__name, note]\n---\nYou work.\n";
    let mut runs = Vec::new();
    for subject in ["anna", "anna", "bert"] {
        let spec = RunSpec { principal: principal(subject), ..fixture.spec_of(agent, "go") };
        let run = runtime.start(spec, RunSecrets::none()).await.unwrap();
        let state = run.wait().await.unwrap();
        assert!(matches!(state, RunState::Parked(_)), "{subject}: {state:?}");
        let mut events = run.events(EventSeq::START);
        let process = loop {
            if let LogEvent::ToolResult { text, .. } = &events.next().await.unwrap().unwrap().event.kind {
                break text.clone();
            }
        };
        // The handle keeps the run alive, and the run keeps its server alive.
        runs.push((process, run));
    }
    let names: Vec<&str> = runs.iter().map(|(process, _)| process.as_str()).collect();
    assert!(names.iter().all(|name| name.contains("\nprocess ")), "{names:?}");
    assert_eq!(names[0], names[1]);
    assert_ne!(names[0], names[2]);
    runtime.shut_down().await;
}

/// An MCP server also works for other principals. Therefore it must not see the operator's home directory: other
/// principals could read these files through the server.
#[tokio::test]
async fn mcp_server_cannot_read_a_hidden_home_directory() {
    let home = haft_sandbox::user_home().unwrap();
    let file = tempfile::Builder::new().prefix(".haft-test-").tempfile_in(home).unwrap();
    let look = format!("import os; me = 'sees ' + str(os.path.exists({:?}))", file.path().to_str().unwrap());
    let server = PROCESS_SERVER.replace("me = str(random.getrandbits(64))", &look);
    let steps = || [ScriptStep::call("process__name", json!({})), ScriptStep::text("done")];
    let fixture = RuntimeFixture::in_order([steps(), steps()].concat());
    let config = json!({"mcpServers": {"process": {"command": "python3", "args": ["-c", server]}}});
    let runtime = fixture.runtime(&config).await;
    let agent = "---\nmodels: openai/m\ntools: [process__name]\n---\nYou work.\n";
    let start = async |view: UserHomeView| {
        let directory = fixture.home().workspace().join("acme/anna");
        std::fs::create_dir_all(&directory).unwrap();
        let mut spec = fixture.spec_of(agent, "go");
        spec.principal = principal("anna");
        spec.workspace.directory = directory;
        spec.workspace.home = view;
        results(&runtime.start(spec, RunSecrets::none()).await.unwrap()).await.concat()
    };
    let open = start(UserHomeView::WithoutSecrets).await;
    assert!(open.contains("sees True"), "{open}");
    let covered = start(UserHomeView::Covered).await;
    assert!(covered.contains("sees False"), "{covered}");
    runtime.shut_down().await;
}

#[tokio::test]
async fn stored_output_and_run_are_hidden_from_other_principals() {
    let fixture = RuntimeFixture::new([ScriptStep::call("long", json!({})), ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({"maxToolResponseBytes": 1_000})).await;
    let spec = |subject: &str| RunSpec { principal: principal(subject), ..fixture.spec("go") };
    let run = runtime.start(spec("anna"), RunSecrets::none()).await.unwrap();
    finished(&run).await;
    let events = events(&run).await;
    let handle = events.iter().find_map(|event| match &event.event.kind {
        LogEvent::ToolResult { text, .. } => Some(text.split('"').nth(1)?.to_owned()),
        _ => None,
    });
    let handle = handle.unwrap();
    assert!(handle.starts_with("session-"), "{handle}");
    let asks = || {
        let call = ScriptStep::call("tool_output", json!({"handle": handle, "extract": "page 1"}));
        ModelServer::start(Script::of([call, ScriptStep::text("done")])).unwrap()
    };
    let (of_anna, of_bert) = (asks(), asks());
    let found = async |model: &ModelServer, run: RunHandle| {
        finished(&run).await;
        format!("{:?}", model.requests()[1])
    };
    fixture.ask(&of_bert);
    let other = found(&of_bert, runtime.start(spec("bert"), RunSecrets::none()).await.unwrap()).await;
    assert!(other.contains("no stored output has this handle"), "{other}");
    fixture.ask(&of_anna);
    let id = run.id();
    run.closed().await;
    let (anna, more) = (spec("anna").principal, || Some("read it".to_owned()));
    for stranger in [spec("bert").principal, Principal::local()] {
        let error = runtime.resume_for(&stranger, id, more(), RunSecrets::none()).await.unwrap_err();
        assert!(error.to_string().contains("there is no session"), "{error}");
        assert!(runtime.stored_spec(&stranger, id).await.is_err());
    }
    let own = runtime.resume_for(&anna, id, more(), RunSecrets::none()).await.unwrap();
    assert!(runtime.attach(id).is_err() && runtime.attach_for(&anna, id).is_ok());
    finished(&own).await;
    let own = format!("{:?}", of_anna.requests());
    assert!(
        own.contains("a line of a long text") && !own.contains("no stored output has this handle"),
        "{own}"
    );
}

#[tokio::test]
async fn usage_records_of_a_run_belong_to_its_tenant() {
    for stores in [Stores::at, Stores::in_memory] {
        let fixture = RuntimeFixture::in_order([
            note("a"),
            ScriptStep::text("done"),
            note("b"),
            ScriptStep::text("done"),
        ]);
        let stores = stores(&fixture.home());
        let runtime = fixture.builder(&json!({})).stores(stores).build().await.unwrap();
        for tenant in ["acme", "local"] {
            let spec = RunSpec { principal: Principal::new(tenant, "anna", "key"), ..fixture.spec("go") };
            let sessions = if tenant == "local" { SessionStorage::Stores } else { SessionStorage::None };
            let hooks = RunHooks { sessions, ..RunHooks::default() };
            finished(&runtime.start_with(spec, RunSecrets::none(), hooks).await.unwrap()).await;
        }
        let accounting = runtime.accounting().unwrap();
        for (tenant, calls, attempts) in [("acme", 1, 2), ("local", 1, 2), ("other", 0, 0)] {
            let sums = accounting.summarize(tenant, 0).await.unwrap();
            let counts = (
                sums.tools.iter().map(|tool| tool.calls).sum::<u64>(),
                sums.models.iter().map(|model| model.attempts).sum::<u64>(),
            );
            assert_eq!(counts, (calls, attempts), "{tenant}");
        }
    }
}
