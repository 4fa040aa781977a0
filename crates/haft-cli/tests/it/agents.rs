//! Tests of agents that use agents, end to end: the real binary, the scripted model server, real tools in the real
//! sandbox.

use haft_model_server::{
    ModelServer, RequestExpectation, ResponsePace, Script, ScriptPart, ScriptStep, ScriptUsage,
};
use haft_testkit::{
    HaftCommand, HaftOutput, TestTree, eventually, libc, processes_with, send_signal, unique_marker,
};
use serde_json::{Value, json};

use super::call::here;
use super::watching::accounting;

/// Returns a script with the replies of each agent. The server selects them by a text in the request.
pub(crate) fn script(about: impl IntoIterator<Item = (&'static str, Vec<ScriptStep>)>) -> Script {
    about.into_iter().fold(Script::default(), |script, (text, steps)| script.about(text, steps))
}

pub(crate) fn haft(tree: &TestTree, server: &ModelServer, words: &[&str]) -> HaftCommand {
    tree.haft(&[&["run", "-m", "openai/m"], words].concat())
        .env("OPENAI_BASE_URL", &format!("{}/v1", server.url()))
        .env("OPENAI_API_KEY", "k")
}

fn run(tree: &TestTree, script: Script, words: &[&str]) -> HaftOutput {
    let server = ModelServer::start(script).unwrap();
    haft(tree, &server, words).output()
}

pub(crate) fn agents(files: &[(&str, &str)]) -> TestTree {
    let tree = here();
    for (name, yaml) in files {
        tree.file(&format!("ws/{name}"), &format!("---\n{yaml}\n---\nYou are {name}.\n"));
    }
    tree
}

pub(crate) fn ask(agent: &str, request: &str) -> ScriptPart {
    ScriptPart::call(&format!("agent__{agent}"), json!({ "request": request }))
}

pub(crate) fn bash(command: &str) -> ScriptStep {
    ScriptStep::call("bash", json!({ "command": command }))
}

pub(crate) fn told(step: ScriptStep, text: &str) -> ScriptStep {
    step.expecting(RequestExpectation {
        last_tool_result: Some(text.into()),
        ..RequestExpectation::default()
    })
}

fn using(step: ScriptStep, tokens: u64) -> ScriptStep {
    step.using(ScriptUsage { input: tokens, output: 0, ..ScriptUsage::default() })
}

#[test]
fn calls_and_tokens_of_nested_agents_are_counted_once() {
    let tree = agents(&[
        ("lead.md", "agents: researcher.md\ntools: []"),
        ("researcher.md", "description: Looks things up\nagents: [below/reader.md]"),
        ("below/reader.md", "tools: read, bash"),
    ]);
    tree.file("ws/facts.txt", "the answer is 42\n");
    let script = script([
        (
            "LEAD",
            vec![
                using(ScriptStep::say([ask("researcher", "RESEARCH it")]), 100),
                told(ScriptStep::text("It is 42."), "forty-two"),
            ],
        ),
        (
            "RESEARCH",
            vec![
                using(ScriptStep::say([ask("reader", "READ it")]), 100),
                told(ScriptStep::text("forty-two"), "it says 42"),
            ],
        ),
        (
            "READ",
            vec![
                ScriptStep::call("read", json!({"file_path": "facts.txt"})),
                told(bash("wc -c < facts.txt"), "42"),
                told(ScriptStep::text("it says 42"), "17"),
            ],
        ),
    ]);
    let ran =
        run(&tree, script, &["--tree", "--output-format", "json", "@lead.md", "LEAD on"]).expect_code(0);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&said["answer"], &said["turns"]), (&"It is 42.".into(), &2.into()));
    assert_eq!(
        (&said["tool_calls"], &said["requests"]),
        (&4.into(), &7.into()),
        "the run has two calls to agents and two calls to tools"
    );
    assert_eq!(
        said["usage"]["input_tokens"], 250,
        "two requests have 100 input tokens each, and five have 10: {said}"
    );
    for line in ["1-1 agent__researcher", "1-1.1-1 agent__reader", "1-1.1-1.1-1 read", "1-1.1-1.2-1 bash"] {
        assert!(ran.stderr.contains(line), "{line}\n{}", ran.stderr);
    }
    let accounts = accounting(&tree);
    let tools: Vec<&Value> = accounts.iter().filter(|line| line["type"] == "tool_finished").collect();
    assert_eq!(tools.len(), 4);
    let origins: Vec<&Value> = tools.iter().map(|line| line.get("origin").unwrap_or(&line["run"])).collect();
    assert!(origins.iter().all(|origin| **origin == said["session"]), "{origins:?}");
    let call = |tool: &str| tools.iter().find(|line| line["tool"] == tool).unwrap();
    assert_eq!(call("read")["parent"], call("agent__reader")["operation"]);
    assert_eq!(call("agent__reader")["parent"], call("agent__researcher")["operation"]);
}

#[test]
fn sub_agent_log_lines_are_indented_and_named() {
    let tree = agents(&[("lead.md", "agents: helper.md"), ("helper.md", "tools: current_date")]);
    let script = script([
        (
            "LEAD",
            vec![
                ScriptStep::say([ScriptPart::Text("I ask.".into()), ask("helper", "HELP")]),
                ScriptStep::text("done"),
            ],
        ),
        (
            "HELP",
            vec![
                ScriptStep::say([
                    ScriptPart::Text("only for the lead".into()),
                    ScriptPart::call("current_date", json!({})),
                ]),
                ScriptStep::text("today"),
            ],
        ),
    ]);
    let ran = run(&tree, script.clone(), &["@lead.md", "LEAD"]).expect_code(0);
    assert_eq!(ran.stdout, "done\n");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines.iter().any(|line| line.starts_with("  ✓ helper: current_date")), "{}", ran.stderr);
    assert!(lines.iter().any(|line| line.starts_with("✓ agent__helper HELP")), "{}", ran.stderr);
    assert!(!ran.stderr.contains("only for the lead"), "{}", ran.stderr);
    let ran = run(&tree, script, &["--output-format", "stream-json", "@lead.md", "LEAD"]).expect_code(0);
    let lines: Vec<Value> = ran.events();
    let started: Vec<&Value> = lines.iter().filter(|line| line["type"] == "run_started").collect();
    assert_eq!(started[1]["agents"], json!(["lead", "helper"]));
    let below = &started[1]["session"];
    assert_ne!(below, &started[0]["session"]);
    let of_below: Vec<&str> = lines
        .iter()
        .filter(|line| line["session"] == *below)
        .map(|line| line["type"].as_str().unwrap())
        .collect();
    for kind in ["turn_started", "text_delta", "model_finished", "tool_call", "tool_result", "run_finished"] {
        assert!(of_below.contains(&kind), "{kind}: {of_below:?}");
    }
}

#[test]
fn sub_agents_run_concurrently_and_hold_no_queue_slot() {
    let tree = agents(&[("lead.md", "agents: [one.md, two.md]"), ("one.md", ""), ("two.md", "")]);
    let meet =
        |own: &str, other: &str| bash(&format!("touch {own}; until [ -e {other} ]; do sleep 0.05; done"));
    let both = || ScriptStep::say([ask("one", "FIRST"), ask("two", "SECOND")]);
    let meeting = script([
        (
            "LEAD",
            vec![
                both(),
                ScriptStep::text("met").expecting(RequestExpectation {
                    tool_results: Some(vec!["one saw".into(), "two saw".into()]),
                    ..RequestExpectation::default()
                }),
            ],
        ),
        ("FIRST", vec![meet("a", "b"), ScriptStep::text("one saw")]),
        ("SECOND", vec![meet("b", "a"), ScriptStep::text("two saw")]),
    ]);
    assert_eq!(run(&tree, meeting, &["@lead.md", "LEAD"]).expect_code(0).stdout, "met\n");
    // With a single queue slot, the calls of an agent would deadlock if the call that runs the agent held the slot.
    tree.file("home/haft.json", r#"{"queues": {"default": {"maxConcurrency": 1}}}"#);
    let one_by_one = script([
        ("LEAD", vec![both(), ScriptStep::text("done")]),
        ("FIRST", vec![bash("echo 1 >> log"), ScriptStep::text("x")]),
        ("SECOND", vec![bash("echo 2 >> log"), ScriptStep::text("x")]),
    ]);
    run(&tree, one_by_one, &["@lead.md", "LEAD"]).expect_code(0);
    assert_eq!(tree.text("ws/log").lines().count(), 2);
}

#[test]
fn interrupt_cancels_all_sub_agents() {
    let marker = unique_marker();
    let tree = agents(&[("lead.md", "agents: a.md"), ("a.md", "agents: b.md"), ("b.md", "")]);
    let server = ModelServer::start(script([
        ("LEAD", vec![ScriptStep::say([ask("a", "MIDDLE")])]),
        ("MIDDLE", vec![ScriptStep::say([ask("b", "LOWEST")])]),
        ("LOWEST", vec![bash(&format!("exec -a {marker} sleep 300"))]),
    ]))
    .unwrap();
    let mut child = haft(&tree, &server, &["--output-format", "json", "@lead.md", "LEAD"]).start();
    eventually("the command runs", || !processes_with(&marker).is_empty());
    send_signal(child.id(), libc::SIGINT);
    child.stdin.take();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["finish"], "aborted");
    eventually("the command is gone", || processes_with(&marker).is_empty());
    let cancelled = accounting(&tree).iter().filter(|line| line["error_kind"] == "cancelled").count();
    assert_eq!(cancelled, 3, "the call of the command and both calls to agents are cancelled");
}

#[test]
fn budget_covers_agent_and_its_sub_agents() {
    let tree = agents(&[("lead.md", "agents: helper.md\nbudget: {tokens: 1000}"), ("helper.md", "")]);
    let date = || ScriptStep::call("current_date", json!({}));
    let script = |helper: Vec<ScriptStep>| {
        script([
            (
                "LEAD",
                vec![
                    using(ScriptStep::say([ask("helper", "HELP")]), 100),
                    told(
                        ScriptStep::text("what we have"),
                        "ended early: budget; its answer is incomplete)\nhalf",
                    ),
                ],
            ),
            ("HELP", helper),
        ])
    };
    // The helper spends the rest of the budget. First the helper gets a last turn, and then the lead gets a last turn.
    let helper = vec![using(date(), 950), told(ScriptStep::text("half"), "the call was not made")];
    let ran = run(&tree, script(helper), &["--output-format", "json", "@lead.md", "LEAD"]).expect_code(10);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&said["finish"], &said["answer"]), (&"budget".into(), &"what we have".into()));
    // If the helper has its own budget, only the helper is stopped early.
    tree.file("ws/helper.md", "---\nbudget: {calls: 1}\n---\n");
    let helper = vec![
        ScriptStep::say([
            ScriptPart::call("current_date", json!({})),
            ScriptPart::call("current_date", json!({})),
        ]),
        ScriptStep::text("half"),
    ];
    let lead =
        vec![ScriptStep::say([ask("helper", "HELP")]), told(ScriptStep::text("fine"), "ended early: budget")];
    let ran =
        run(&tree, self::script([("LEAD", lead), ("HELP", helper)]), &["@lead.md", "LEAD"]).expect_code(0);
    assert!(ran.stderr.contains("✓ helper: current_date"), "{}", ran.stderr);
    let made = accounting(&tree).iter().filter(|line| line["tool"] == "current_date").count();
    assert_eq!(made, 1, "the budget allows no call in the first run, and one of two in the second");
}

#[test]
fn sub_agent_timeout_fails_its_call() {
    let tree = agents(&[("lead.md", "agents: helper.md\ntimeout: 60s"), ("helper.md", "timeout: 1s")]);
    let slow = ScriptStep::text("x")
        .at_pace(ResponsePace { first_byte_milliseconds: 60_000, ..ResponsePace::default() });
    let lead = vec![
        ScriptStep::say([ask("helper", "HELP")]),
        told(ScriptStep::text("it took too long"), "timed_out"),
    ];
    let ran =
        run(&tree, script([("LEAD", lead), ("HELP", vec![slow])]), &["@lead.md", "LEAD"]).expect_code(0);
    assert!(ran.stderr.contains("✗ agent__helper") && ran.stderr.contains("timeout"), "{}", ran.stderr);
}

/// A key typed after a question timed out answers the next question, and not the earlier one.
#[test]
fn typed_answer_does_not_approve_a_timed_out_call() {
    let tree = here();
    tree.file("home/haft.json", r#"{"policy": {"rules": [{"tool": "bash", "decision": "ask"}]}}"#);
    tree.file("ws/lead.md", "---\nagents: helper.md\n---\n");
    tree.file("ws/helper.md", "---\ntimeout: 1s\n---\n");
    let lead = [
        ScriptStep::call("agent__helper", json!({"request": "BELOW"})),
        bash("echo second > second"),
        ScriptStep::text("done"),
    ];
    let script = Script::of(lead).about("BELOW", [bash("echo first > first")]);
    let server = ModelServer::start(script).unwrap();
    let mut run = haft(&tree, &server, &["@lead.md", "go"]).on_terminal();
    run.wait_for("echo first");
    run.wait_for("echo second");
    run.wait_for("allow?");
    run.type_keys("y");
    run.finish().expect_code(0);
    assert!(tree.exists("ws/second") && !tree.exists("ws/first"));
}

#[test]
fn invalid_agent_graph_is_rejected_before_model_request() {
    let check = |files: &[(&str, &str)], parts: &[&str]| {
        let ran = run(&agents(files), Script::default(), &["@lead.md", "go"]).expect_code(42);
        for part in parts {
            assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
        }
    };
    check(
        &[("lead.md", "agents: a.md"), ("a.md", "agents: b.md"), ("b.md", "handoff: a.md")],
        &["a > b > a", "cycle"],
    );
    check(&[("lead.md", "agents: lead.md")], &["lead > lead"]);
    check(&[("lead.md", "agents: nobody")], &["lead: there is no agent `nobody`", "hint:"]);
    check(&[("lead.md", "agents: ../outside.md")], &["there is no agent"]);
    check(&[("lead.md", "agents: bad.md"), ("bad.md", "maxTurn: 1")], &["bad.md:2", "maxTurns"]);
    check(&[("lead.md", "agents: [x/a.md, y/a.md]"), ("x/a.md", ""), ("y/a.md", "")], &["`a`", "toolName"]);
    check(&[("lead.md", "agents: batch.md"), ("batch.md", "")], &["`batch`", "reserved"]);
    let chain: Vec<(String, String)> =
        (0..9).map(|n| (format!("a{n}.md"), format!("agents: a{}.md", n + 1))).collect();
    let mut files: Vec<(&str, &str)> =
        chain.iter().map(|(name, yaml)| (name.as_str(), yaml.as_str())).collect();
    files.extend([("lead.md", "agents: a0.md"), ("a9.md", "")]);
    check(&files, &["more than 8 levels deep", "lead > a0"]);
}

#[test]
fn router_agent_hands_off_and_the_last_agent_answers() {
    let tree = agents(&[
        ("desk.md", "router: {destinations: [legal.md, sales.md]}\ntools: []"),
        ("legal.md", "description: Knows the law\nhandoff: editor.md"),
        ("sales.md", "description: Sells"),
        ("editor.md", "tools: []"),
    ]);
    let desk = RequestExpectation {
        system: Some("- `legal`: Knows the law".into()),
        tools: Some(vec!["router__handoff-to".into()]),
        ..RequestExpectation::default()
    };
    let server = ModelServer::start(script([
        ("LEGAL answered", vec![]),
        (
            "The request was",
            vec![ScriptStep::text("Edited.").expecting(RequestExpectation {
                user: Some("The agent `legal` answered:\nIt is allowed.".into()),
                system: Some("You are editor.md".into()),
                ..RequestExpectation::default()
            })],
        ),
        (
            "hands this request",
            vec![ScriptStep::text("It is allowed.").expecting(RequestExpectation {
                user: Some("MAY I?".into()),
                system: Some("You are legal.md".into()),
                ..RequestExpectation::default()
            })],
        ),
        (
            "MAY I?",
            vec![
                ScriptStep::call("router__handoff-to", json!({"agent": "nobody"})).expecting(desk),
                told(
                    ScriptStep::call(
                        "router__handoff-to",
                        json!({"agent": "legal", "message": "Look at paragraph 5."}),
                    ),
                    "choose one of legal, sales",
                ),
            ],
        ),
    ]))
    .unwrap();
    let ran =
        haft(&tree, &server, &["--output-format", "json", "@desk.md", "MAY I?"]).output().expect_code(0);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&said["answer"], &said["finish"], &said["requests"]),
        (&"Edited.".into(), &"completed".into(), &4.into())
    );
    assert!(server.requests().iter().any(|request| request.body.to_string().contains("paragraph 5")));
}

#[test]
fn batch_and_status_tools_are_offered_if_the_agent_lists_them() {
    let tree = agents(&[
        ("lead.md", "agents: helper.md\ntools: [current_date, 'agent__batch', 'agent__task_status']"),
        ("helper.md", "tools: []"),
    ]);
    let calls = json!({"calls": [
        {"tool": "current_date", "parameters": {}},
        {"id": "h", "tool": "agent__helper", "parameters": {"request": "HELP"}},
        {"tool": "agent__batch", "parameters": {"calls": []}},
    ]});
    let status = json!({"status": "completed", "done": "all", "pending": "", "now": "I am through",
        "ready_for_final_report": true, "need_to_run_more_tools": false});
    let offered = ["agent__batch", "agent__helper", "agent__task_status", "current_date"];
    let tools = RequestExpectation {
        tools: Some(offered.map(str::to_owned).to_vec()),
        ..RequestExpectation::default()
    };
    let lead = vec![
        ScriptStep::call("agent__batch", calls).expecting(tools),
        told(ScriptStep::call("agent__task_status", status), "helped"),
        ScriptStep::text("ready"),
    ];
    let script = script([("LEAD", lead), ("HELP", vec![ScriptStep::text("helped")])]);
    let ran = run(&tree, script.clone(), &["@lead.md", "LEAD"]).expect_code(0);
    assert_eq!(ran.stdout, "ready\n");
    assert!(ran.stderr.contains("I am through"), "{}", ran.stderr);
    // The JSON stream gives the kind of each note, and the full status.
    let ran = run(&tree, script, &["--output-format", "stream-json", "@lead.md", "LEAD"]).expect_code(0);
    let events = ran.events().into_iter();
    let notes: Vec<Value> = events.filter(|event| event["type"] == "note").collect();
    let kinds: Vec<&str> = notes.iter().filter_map(|note| note["kind"].as_str()).collect();
    assert_eq!(kinds, ["refused", "status", "final_turn"], "{notes:?}");
    let told = json!({"status": "completed", "done": "all", "pending": "", "now": "I am through",
        "ready_for_final_report": true, "need_to_run_more_tools": false});
    assert_eq!(notes[1]["status"], told);
}

#[test]
fn sub_agent_call_is_validated_against_input_schema() {
    let schema =
        "input: {schema: {type: object, properties: {city: {type: string}}, required: [city]}}\ntools: []";
    let tree = agents(&[("lead.md", "agents: weather.md\ntools: []"), ("weather.md", schema)]);
    let lead = vec![
        ScriptStep::call("agent__weather", json!({"town": 1})),
        told(ScriptStep::call("agent__weather", json!({"city": "Oslo"})), "city"),
        told(ScriptStep::text("It rains."), "rain"),
    ];
    let weather = vec![ScriptStep::text("rain").expecting(RequestExpectation {
        user: Some(r#"{"city":"Oslo"}"#.into()),
        ..RequestExpectation::default()
    })];
    run(&tree, script([("LEAD", lead), ("Oslo", weather)]), &["@lead.md", "LEAD"]).expect_code(0);
}

#[test]
fn sub_agent_answer_is_cached_for_equal_request() {
    let tree = agents(&[("lead.md", "agents: helper.md\ntools: []"), ("helper.md", "cache: 1h\ntools: []")]);
    let lead = vec![
        ScriptStep::say([ask("helper", "HELP")]),
        ScriptStep::say([ask("helper", "HELP")]),
        told(ScriptStep::text("done"), "helped"),
    ];
    let server =
        ModelServer::start(script([("LEAD", lead), ("HELP", vec![ScriptStep::text("helped")])])).unwrap();
    haft(&tree, &server, &["@lead.md", "LEAD"]).output().expect_code(0);
    assert_eq!(server.requests().len(), 4, "the helper was asked once");
}

#[test]
fn agent_file_timeouts_and_size_limits_apply_to_its_calls() {
    let tree = agents(&[("a.md", "toolTimeout: 1500\nllmTimeout: 3s\nmaxToolResponseBytes: 600")]);
    tree.file("home/haft.json", r#"{"tools": {"read": {"output": "store"}}}"#);
    tree.file("ws/long.txt", &"0123456789\n".repeat(100));
    let slow = ScriptStep::text("x")
        .at_pace(ResponsePace { first_byte_milliseconds: 60_000, ..ResponsePace::default() });
    let steps = [
        bash("sleep 30"),
        told(ScriptStep::call("read", json!({"file_path": "long.txt"})), "timed out after 1.5 s"),
        told(slow, "tool_output"),
    ];
    let ran = run(&tree, Script::of(steps), &["@a.md", "go"]).expect_code(124);
    assert!(ran.stderr.contains("llmTimeout"), "{}", ran.stderr);
}

#[test]
fn override_flag_replaces_agent_settings() {
    let tree = agents(&[("a.md", "maxTurns: 2\ntools: [read]")]);
    let date = || ScriptStep::call("current_date", json!({}));
    let steps = || [date(), date(), ScriptStep::text("done")];
    run(&tree, Script::of(steps()), &["@a.md", "go"]).expect_code(9);
    let words = ["--override", "maxTurns=3", "--override", "tools=[current_date]", "@a.md", "go"];
    assert_eq!(run(&tree, Script::of(steps()), &words).expect_code(0).stdout, "done\n");
    let ran = run(&tree, Script::default(), &["--override", "maxTurn=3", "go"]).expect_code(42);
    assert!(ran.stderr.contains("did you mean `maxTurns`"), "{}", ran.stderr);
    run(&tree, Script::default(), &["--override", "maxTurns", "go"]).expect_code(2);
}

#[test]
fn top_level_request_is_validated_against_input_schema() {
    let tree = agents(&[("a.md", "input: {schema: {type: object, required: [city]}}")]);
    let check = |request: &str, code: i32| {
        run(&tree, Script::of([ScriptStep::text("ok")]), &["@a.md", request]).expect_code(code)
    };
    check(r#"{"city": "Oslo"}"#, 0);
    assert!(check("{}", 42).stderr.contains("city"));
    assert!(check("Oslo", 42).stderr.contains("not JSON"));
}

#[test]
fn agent_caching_setting_controls_cache_control() {
    let tree = agents(&[("a.md", "caching: none"), ("b.md", "caching: full")]);
    let server = ModelServer::start(Script::of([ScriptStep::text("ok")])).unwrap();
    let marked = |agent: &str| {
        let words = ["run", "-m", "anthropic/m", agent, "go"];
        let haft = tree.haft(&words).env("ANTHROPIC_BASE_URL", &server.url()).env("ANTHROPIC_API_KEY", "k");
        haft.output().expect_code(0);
        server.requests().last().unwrap().raw.contains("cache_control")
    };
    assert!(!marked("@a.md"));
    assert!(marked("@b.md"));
}

#[test]
fn routing_lets_fast_model_choose_the_model() {
    let tree = here();
    let models = r#"{"models": {"default": "openai/m", "fast": "openai/small", "complex": "openai/large"}}"#;
    tree.file("home/haft.json", models);
    let check = |word: &str, words: &[&str], expected: &[&str]| {
        let server = ModelServer::start(Script::of([ScriptStep::text(word)])).unwrap();
        let haft = tree.haft(&[&["run", "--output-format", "json"], words, &["go"]].concat());
        let haft = haft.env("OPENAI_BASE_URL", &format!("{}/v1", server.url())).env("OPENAI_API_KEY", "k");
        let said: Value = serde_json::from_str(&haft.output().expect_code(0).stdout).unwrap();
        let asked: Vec<String> = server
            .requests()
            .iter()
            .map(|request| request.body["model"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(asked, expected, "{word} {words:?}");
        assert_eq!(said["requests"], expected.len(), "the request that chooses the model is counted");
    };
    check("fast", &["--route"], &["small", "small"]);
    check("complex", &["--route"], &["small", "large"]);
    check("who knows", &["--route"], &["small", "large"]);
    check("fast", &[], &["m"]);
    check("fast", &["--route", "-m", "openai/other"], &["other"]);
    tree.file("home/haft.json", &models.replacen('{', r#"{"route": true, "#, 1));
    check("fast", &[], &["small", "small"]);
}

#[test]
fn project_agents_are_found_by_name_only_when_trusted() {
    let tree = here();
    tree.file("home/agents/clerk.md", "---\ndescription: Of home\n---\n");
    tree.file("ws/agents/helper.md", "---\ndescription: Of the project\n---\n{{ include \"rules.txt\" }}\n");
    tree.file("ws/agents/rules.txt", "Be brief.");
    let list = || tree.haft(&["agents", "list"]).output().expect_code(0);
    let go = |agent: &str| {
        let kind = RequestExpectation { system: Some("Be brief.".into()), ..RequestExpectation::default() };
        let steps = if agent == "@helper" {
            [ScriptStep::text("ok").expecting(kind)]
        } else {
            [ScriptStep::text("ok")]
        };
        run(&tree, Script::of(steps), &[agent, "go"])
    };
    assert!(
        list().stdout.contains("Of home") && !list().stdout.contains("Of the project"),
        "{list:?}",
        list = list()
    );
    assert!(list().stderr.contains("is not trusted"), "{}", list().stderr);
    go("@clerk").expect_code(0);
    assert!(go("@helper").expect_code(42).stderr.contains("haft trust"));
    tree.haft(&["trust", "--yes"]).output().expect_code(0);
    go("@helper").expect_code(0);
    let json = tree.haft(&["agents", "list", "--json"]).output().expect_code(0);
    let found: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&found[0]["name"], &found[1]["name"]), (&"clerk".into(), &"helper".into()), "{found}");
    // An included file is part of the agent, so a change to it ends the trust.
    tree.file("ws/agents/rules.txt", "Be evil.");
    let changed = go("@helper").expect_code(42).stderr;
    assert!(changed.contains("changed since it was trusted") && changed.contains("haft trust"), "{changed}");
    // A user who writes a path has chosen that file, so trust is not checked.
    run(&tree, Script::of([ScriptStep::text("ok")]), &["@agents/helper.md", "go"]).expect_code(0);
}

#[test]
fn agents_list_warns_about_unreadable_agent() {
    let tree = here();
    tree.file("home/agents/clerk.md", "---\ndescription: Of home\n---\n");
    std::fs::write(tree.path("home/agents/odd.md"), b"\xff\xfe").unwrap();
    let list = tree.haft(&["agents", "list", "--json"]).output().expect_code(0);
    let found: Value = serde_json::from_str(&list.stdout).unwrap();
    assert_eq!((found.as_array().unwrap().len(), &found[0]["name"]), (1, &"clerk".into()), "{found}");
    let named = list.stderr.contains("agents/odd.md`: ") && list.stderr.contains("not UTF-8");
    assert!(named, "{}", list.stderr);
}

/// A process that can write to the workspace can replace an include by a pipe without a writer.
#[test]
fn fifo_as_included_file_is_rejected_without_blocking() {
    let tree = here();
    tree.file("ws/agents/reader.md", "{{ include \"rules.txt\" }}");
    tree.file("ws/agents/rules.txt", "Be good.");
    tree.haft(&["trust", "--yes"]).output().expect_code(0);
    let rules = tree.path("ws/agents/rules.txt");
    std::fs::remove_file(&rules).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(rules).status().unwrap().success());
    for words in [
        &["run", "-m", "openai/m", "@reader", "go"][..],
        &["agents", "check"],
        &["agents", "check", "agents/reader.md"],
    ] {
        let ran = tree.haft(words).through(&["timeout", "-s", "KILL", "60"]).output().expect_code(42);
        let told = format!("{}{}", ran.stdout, ran.stderr);
        assert!(told.contains("found a pipe"), "{words:?}: {told}");
    }
}

/// A process that can write to the workspace can create links and files with any name.
#[test]
fn symlink_or_same_named_file_does_not_become_agent() {
    let tree = here();
    let link = |to: &str, from: &str| std::os::unix::fs::symlink(to, tree.path(from)).unwrap();
    let go = |agent: &str| run(&tree, Script::of([ScriptStep::text("ok")]), &[agent, "go"]);
    tree.file("ws/notes.md", "Be evil.");
    tree.file("ws/agents/lead.md", "---\nagents: [inner]\n---\n");
    tree.file("ws/agents/reader.md", "{{ include \"rules.txt\" }}");
    tree.file("ws/agents/good.md", "Be good.");
    tree.haft(&["trust", "--yes"]).output().expect_code(0);
    for name in ["evil.md", "inner.md", "rules.txt"] {
        link("../notes.md", &format!("ws/agents/{name}"));
    }
    link("good.md", "ws/agents/same.md");
    for agent in ["@evil", "@lead", "@agents/lead.md", "@reader"] {
        let ran = go(agent).expect_code(42);
        assert!(ran.stderr.contains("is a symlink to a file outside"), "{agent}: {}", ran.stderr);
    }
    go("@same").expect_code(0);
    // A link to a whole directory is refused too.
    std::fs::create_dir(tree.path("ws/.haft")).unwrap();
    tree.file("ws/others/clerk.md", "Be evil.");
    link("../others", "ws/.haft/agents");
    assert!(go("@clerk").expect_code(42).stderr.contains("is a symlink to a file outside"));
    std::fs::remove_file(tree.path("ws/.haft/agents")).unwrap();
    // A file in the workspace with the name of an agent does not replace that agent.
    tree.file("home/agents/clerk.md", "Be kind.");
    tree.file("ws/clerk", "Be evil.");
    let kind = RequestExpectation { system: Some("Be kind.".into()), ..RequestExpectation::default() };
    run(&tree, Script::of([ScriptStep::text("ok").expecting(kind)]), &["@clerk", "go"]).expect_code(0);
    go("@./clerk").expect_code(0);
}

#[test]
fn agents_new_creates_valid_runnable_agent() {
    let tree = here();
    tree.haft(&["agents", "new", "reviewer"]).output().expect_code(0);
    tree.haft(&["agents", "new", "reviewer"]).output().expect_code(42);
    tree.haft(&["agents", "new", "../evil"]).output().expect_code(2);
    tree.haft(&["agents", "check", "agents/reviewer.md"]).output().expect_code(0);
    run(&tree, Script::of([ScriptStep::text("ok")]), &["@agents/reviewer.md", "go"]).expect_code(0);
    tree.haft(&["agents", "new", "--home", "clerk"]).output().expect_code(0);
    tree.haft(&["agents", "check"]).output().expect_code(42);
    tree.haft(&["trust", "--yes"]).output().expect_code(0);
    tree.haft(&["agents", "check"]).output().expect_code(0);
    tree.file("home/agents/clerk.md", "---\nagents: clerk\n---\n");
    let ran = tree.haft(&["agents", "check", "--json"]).output().expect_code(42);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(found["ok"], false);
    assert!(found["errors"][0]["error"].as_str().unwrap().contains("clerk > clerk"), "{found}");
}

#[test]
fn triggered_skills_are_sent_in_full_and_others_listed() {
    let tree = here();
    tree.file(
        "home/skills/tides/SKILL.md",
        "---\nname: tides\ndescription: Knows the sea\ntrigger: tide\n---\nAsk the moon.\n",
    );
    tree.file(
        "home/skills/stars/SKILL.md",
        "---\nname: stars\ndescription: Knows the sky\ntrigger: star\n---\nLook up.\n",
    );
    let check = |request: &str, contains: &[&str], lacks: &[&str]| {
        let server = ModelServer::start(Script::of([ScriptStep::text("ok")])).unwrap();
        haft(&tree, &server, &[request]).output().expect_code(0);
        let sent = &server.requests()[0].raw;
        assert!(contains.iter().all(|part| sent.contains(part)), "{request}: {sent}");
        assert!(!lacks.iter().any(|part| sent.contains(part)), "{request}: {sent}");
    };
    check(
        "when is the tide?",
        &["Instructions of the skill `tides`", "Ask the moon.", "- stars: Knows the sky"],
        &["Look up."],
    );
    check("hello", &["- stars: Knows the sky", "- tides: Knows the sea"], &["Ask the moon."]);
    tree.file("home/haft.json", r#"{"instructions": false}"#);
    check("when is the tide?", &[], &["Ask the moon.", "Knows the sky"]);
}

/// The scripted server answers three kinds of requests, which it recognises by a text in each: requests of the run, of
/// the model that reads an output in chunks, and of the model that searches an output.
#[test]
fn question_about_a_stored_output_is_answered_by_the_reader_model() {
    let tree = agents(&[("a.md", "toolOutput: {models: openai/reader}")]);
    tree.file("home/haft.json", r#"{"tools": {"read": {"output": "store", "maxBytes": 500}}, "queues": {"default": {"maxConcurrency": 1}}}"#);
    let lines = (0..40_000).map(|line| format!("line {line}\n")).collect::<Vec<_>>().concat();
    tree.file("ws/short.txt", &lines[..3_000]);
    tree.file("ws/long.txt", &lines);
    let handle = "{{word session-}}";
    let ask_about = |file: &str, mode: &str, about: Vec<(&'static str, Vec<ScriptStep>)>, expected: &str| {
        let read = ScriptStep::call("read", json!({"file_path": file, "limit": 50_000}));
        let question = json!({"handle": handle, "extract": "which number is the largest?", "mode": mode});
        let ask = told(ScriptStep::call("tool_output", question), "tool_output");
        let ask = ScriptStep {
            expect: RequestExpectation {
                body_contains: vec!["Ask about a tool output".into()],
                ..ask.expect.clone()
            },
            ..ask
        };
        let script = script(about).about("GO", vec![read, ask, told(ScriptStep::text("done"), expected)]);
        let server = ModelServer::start(script).unwrap();
        let ran = haft(&tree, &server, &["--tree", "@a.md", "GO"]).output().expect_code(0);
        assert!(server.requests().iter().any(|request| request.body["model"] == "reader"), "{file} {mode}");
        ran
    };
    let found = |text: &str| vec![ScriptStep::text(text)];
    ask_about(
        "short.txt",
        "auto",
        vec![("Piece 1 of 1", found("it is 300"))],
        "(answer of a model, mode full-chunked)\nit is 300",
    );
    let search = vec![
        ScriptStep::call("tool_output", json!({"handle": handle, "extract": "last 1 lines"})),
        told(ScriptStep::text("it is 39999"), "line 39999"),
    ];
    let ran = ask_about(
        "long.txt",
        "read-grep",
        vec![("Handle: ", search)],
        "(answer of a model, mode read-grep)\nit is 39999",
    );
    assert!(ran.stderr.contains("2-1.1-1 tool_output"), "{}", ran.stderr);
    let drawn = |text: &str| {
        let sessions =
            text.lines().filter(|line| line.trim_start_matches(['│', ' ']).starts_with("session ")).count();
        (sessions, text.matches("openai/reader ok").count())
    };
    let kept = tree.haft(&["sessions", "show"]).output().expect_code(0).stdout;
    assert_eq!((drawn(&ran.stderr), drawn(&kept)), ((2, 2), (2, 2)), "{}\n{kept}", ran.stderr);
    let pieces = vec![
        ("Piece 1 of 2", found("NOTHING FOUND.")),
        ("Piece 2 of 2", found("in the second: `NOTHING FOUND`")),
    ];
    ask_about("long.txt", "full-chunked", pieces, "in the second");
    let pieces = vec![
        ("Combine them into one answer", found("both")),
        ("Piece 1 of 2", found("one")),
        ("Piece 2 of 2", found("two")),
    ];
    let ran = ask_about("long.txt", "full-chunked", pieces, "both");
    let kept = tree.haft(&["sessions", "show"]).output().expect_code(0).stdout;
    let expected = (4, 3);
    assert_eq!((drawn(&ran.stderr), drawn(&kept)), (expected, expected), "{}\n{kept}", ran.stderr);
    // Without an answer from the model, the result is the beginning and the end of the output.
    ask_about("short.txt", "full-chunked", vec![("Piece 1 of 1", vec![])], "no model could answer");
}

#[test]
fn agents_check_reports_unknown_tools_and_all_unknown_keys() {
    let tree = agents(&[
        ("a.md", "tools: [raed, 'ba*', docs__search]\nallowedTools: [bash, wrte]"),
        ("b.md", "tools: [read, 'ba*']\nallowedTools: [bash]"),
        ("c.md", "maxTurn: 1\nfoo: 2\ntools: [read]\nbar: 3"),
    ]);
    let check =
        |file: &str, code: i32| tree.haft(&["agents", "check", file]).output().expect_code(code).stdout;
    let told = check("a.md", 42);
    for part in ["`raed`; did you mean `read`?", "`wrte`; did you mean `write`?", "`docs__search`", "hint: "]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    check("b.md", 0);
    let told = check("c.md", 42);
    for part in [
        "c.md:2: unknown key `maxTurn`; did you mean `maxTurns`?",
        "c.md:3: unknown key `foo`",
        "c.md:5: unknown key `bar`",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// YAML 1.1 reads `n` and `y` as booleans.
#[test]
fn schema_property_named_n_is_not_read_as_a_boolean() {
    let schema = "input: {schema: {type: object, properties: {n: {type: string}}, required: [n]}}";
    let tree = agents(&[("a.md", schema)]);
    tree.haft(&["agents", "check", "a.md"]).output().expect_code(0);
}

#[test]
fn agents_check_accepts_groups_servers_and_groups_of_rest_tools() {
    let tree = here();
    let tool = json!({"description": "It", "method": "GET", "url": "http://127.0.0.1:9/", "group": "web"});
    let config = json!({
        "groups": {"files": ["read"]},
        "mcpServers": {"docs": {"command": "true"}},
        "restTools": {"it": tool},
    });
    tree.file("home/haft.json", &config.to_string());
    tree.file("ws/a.md", "---\ntools: [files, '@files', docs, web, '@web', builtin, bash]\n---\nWork.\n");
    tree.haft(&["agents", "check", "a.md"]).output().expect_code(0);
    tree.file("ws/a.md", "---\ntools: [dosc]\n---\nWork.\n");
    let ran = tree.haft(&["agents", "check", "a.md"]).output().expect_code(42);
    assert!(ran.stdout.contains("there is no tool `dosc`"), "{}", ran.stdout);
    let listed = tree.haft(&["tools", "--group", "web", "--json"]).output().expect_code(0).stdout;
    assert!(listed.contains("rest__it"), "{listed}");
}

#[test]
fn run_with_a_group_shows_the_rest_tools_of_the_group() {
    let tree = here();
    let tool = json!({"description": "It", "method": "GET", "url": "http://127.0.0.1:9/", "group": "web"});
    tree.file("home/haft.json", &json!({"restTools": {"it": tool}}).to_string());
    let server = ModelServer::start(Script::of([ScriptStep::text("x")])).unwrap();
    haft(&tree, &server, &["--tools", "@web", "go"]).output().expect_code(0);
    let tools = server.requests()[0].body["tools"].clone();
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
    assert_eq!(names, ["rest__it"]);
}

#[test]
fn trusted_agent_files_of_other_programs_run_with_matching_haft_tools() {
    let tree = here();
    tree.file(
        "ws/.claude/agents/reviewer.md",
        "---\nname: reviewer\ndescription: Reviews: all of it\ntools: Read, Grep, WebFetch\nmodel: opus\n---\nYou review ${HOME}.\n",
    );
    tree.file("ws/.opencode/agent/planner.md", "---\npermission: {edit: deny, bash: deny}\n---\nYou plan.\n");
    let offers = |tools: &[&str], system: &str| {
        let expected = RequestExpectation {
            tools: Some(tools.iter().map(ToString::to_string).collect()),
            system: Some(system.into()),
            ..RequestExpectation::default()
        };
        Script::of([ScriptStep::text("done").expecting(expected)])
    };
    // Every agent that names its tools by a pattern also gets the last two tools.
    let planner = ["read", "introspect", "current_date", "agent__batch", "agent__task_status"];
    let refused = run(&tree, offers(&["read"], ""), &["@reviewer", "Go"]).expect_code(42);
    assert!(refused.stderr.contains("reviewer.md: the file is not trusted"), "{}", refused.stderr);
    tree.haft(&["trust", "--yes"]).output().expect_code(0);
    run(&tree, offers(&["read"], "You review ${HOME}."), &["@reviewer", "Go"]).expect_code(0);
    run(&tree, offers(&planner, "You plan."), &["@planner", "Go"]).expect_code(0);
    let checked = tree.haft(&["agents", "check"]).output().expect_code(0);
    for note in [
        "`tools`: haft ignores `Grep`",
        "`model`: the model `opus` names no provider",
        "`permission`: `haft.json` sets the rules",
    ] {
        assert!(checked.stderr.contains(note), "{note}: {}", checked.stderr);
    }
}

#[test]
fn server_of_a_claude_code_agent_is_found_in_every_naming_scheme() {
    let expected = [
        ("double", ["docs__echo", "docs__fail", "docs__slow"]),
        ("claude", ["mcp__docs__echo", "mcp__docs__fail", "mcp__docs__slow"]),
        ("single", ["docs_echo", "docs_fail", "docs_slow"]),
        ("bare", ["echo", "fail", "slow"]),
    ];
    for (naming, tools) in expected {
        let tree = here();
        let server = tree.misbehaving_server("good", &[]);
        let servers =
            ["docs", "other"].map(|name| format!("\"{name}\": {{{server}, \"startup\": \"required\"}}"));
        // With bare names, the tools of two servers would get longer names.
        let servers = if naming == "bare" { &servers[..1] } else { &servers[..] };
        let servers = servers.join(", ");
        tree.file("home/haft.json", &format!("{{\"naming\": \"{naming}\", \"mcpServers\": {{{servers}}}}}"));
        let agent = "---\nname: reader\ndescription: Reads\ntools: mcp__docs\n---\nYou read.\n";
        tree.file("ws/.claude/agents/reader.md", agent);
        tree.haft(&["trust", "--yes"]).output().expect_code(0);
        let wanted = RequestExpectation {
            tools: Some(tools.iter().map(ToString::to_string).collect()),
            ..RequestExpectation::default()
        };
        let script = Script::of([ScriptStep::text("done").expecting(wanted)]);
        run(&tree, script, &["@reader", "Go"]).expect_code(0);
        let checked = tree.haft(&["agents", "check"]).output().expect_code(0);
        assert!(!checked.stderr.contains("no tool"), "{naming}: {}", checked.stderr);
    }
}
