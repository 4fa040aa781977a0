//! Tests of tools that a run hides behind a search: the tools that the model sees, finds and calls, in every wire
//! format.

use std::fmt::Write as _;

use haft_model_server::{ModelServer, ScriptPart, ScriptStep, ScriptUsage};
use haft_testkit::{TestTree, eventually};
use serde_json::{Value, json};

use super::call::here;
use super::run::{FORMATS, haft, server, told};
use super::schemas::description_of;
use super::watching::accounting;

/// Configures a server `shop` with this many tools. Runs wait for it.
fn shop(place: &TestTree, tools: usize, arguments: &[&str], keys: &str) {
    shop_started(place, tools, arguments, "required", keys);
}

fn shop_started(place: &TestTree, tools: usize, arguments: &[&str], startup: &str, keys: &str) {
    let count = tools.to_string();
    let words = [&[count.as_str()], arguments].concat();
    let server = place.misbehaving_server("catalog", &words);
    let text = format!("{{\"mcpServers\": {{\"shop\": {{{server}, \"startup\": {startup:?}}}}}{keys}}}");
    place.file("home/haft.json", &text);
}

fn search(query: &str) -> ScriptStep {
    ScriptStep::call("tool_search", json!({ "query": query }))
}

fn tool_call(name: &str, arguments: &Value) -> ScriptStep {
    ScriptStep::call("tool_call", json!({ "name": name, "arguments": arguments }))
}

/// Returns the tools of each request, in the wire format.
fn tool_lists(server: &ModelServer) -> Vec<Value> {
    server.requests().iter().map(|request| request.body["tools"].clone()).collect()
}

#[test]
fn hidden_tool_is_found_and_called_in_every_format() {
    for model in FORMATS {
        let place = here();
        shop(&place, 100, &[], "");
        let model_server = server([
            search("create an invoice"),
            told(
                tool_call("shop__create_invoice", &json!({"text": "paper"})),
                "shop__create_invoice(text: string, limit?: integer)",
            ),
            told(ScriptStep::text("Done."), "echo: paper"),
        ]);
        let ran = haft(&place, &model_server, &["run", "-m", model, "go"]).output().expect_code(0);
        assert_eq!(ran.stdout, "Done.\n", "{model}");
        assert!(ran.stderr.contains("✓ shop__create_invoice"), "{model}: {}", ran.stderr);
        let lists = tool_lists(&model_server);
        assert_eq!(lists.len(), 3, "{model}");
        assert!(lists.iter().all(|list| *list == lists[0]), "{model}: the tool list changed");
        let first = lists[0].to_string();
        assert!(first.contains("tool_search") && first.contains("shop: 100 tools"), "{model}: {first}");
        assert!(!first.contains("create_invoice"), "{model}: {first}");
        assert!(first.contains("bash") && first.contains("tool_output"), "{model}: {first}");
    }
}

#[test]
fn few_tools_are_shown_without_a_search() {
    let place = here();
    shop(&place, 10, &[], "");
    let model_server = server([
        ScriptStep::call("shop__create_invoice", json!({"text": "x"})),
        told(ScriptStep::text("Done."), "echo: x"),
    ]);
    haft(&place, &model_server, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
    let first = tool_lists(&model_server)[0].to_string();
    assert!(first.contains("shop__create_invoice") && !first.contains("tool_search"), "{first}");
}

#[test]
fn tool_search_settings_determine_which_tools_are_hidden() {
    let check = |tools: usize, keys: &str, shown: &[&str], hidden: &[&str]| {
        let place = here();
        shop(&place, tools, &[], keys);
        let model_server = server([ScriptStep::text("Done.")]);
        haft(&place, &model_server, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
        let first = tool_lists(&model_server)[0].to_string();
        let missing: Vec<_> = shown.iter().filter(|name| !first.contains(*name)).collect();
        let extra: Vec<_> = hidden.iter().filter(|name| first.contains(*name)).collect();
        assert!(missing.is_empty() && extra.is_empty(), "{keys}: missing {missing:?}, extra {extra:?}");
    };
    let never = r#", "toolSearch": "never""#;
    let always = r#", "toolSearch": "always""#;
    let pinned = r#", "toolSearch": "always", "alwaysShow": ["shop__get_*"]"#;
    check(60, never, &["shop__create_invoice", "shop__import_ticket"], &["tool_search"]);
    check(3, always, &["tool_search", "tool_call"], &["shop__create_invoice"]);
    check(20, pinned, &["tool_search", "shop__get_invoice", "shop__get_customer"], &["shop__list_invoice"]);
}

/// OpenAI refuses more than 128 tools. If the operator pins more, the model finds the remaining tools by a search.
#[test]
fn pinned_tools_beyond_the_limit_of_the_provider_are_searched() {
    for (model, most) in [("openai/m", 128), ("openai-responses/m", 128), ("anthropic/m", usize::MAX)] {
        for pinned in [r#""shop__*""#, r#""shop__*_1", "shop__*_2""#, r#""*""#] {
            let place = here();
            shop(&place, 400, &[], &format!(r#", "alwaysShow": [{pinned}]"#));
            let model_server = server([
                tool_call("shop__get_shipment_3", &json!({"text": "last"})),
                told(ScriptStep::text("Done."), "echo: last"),
            ]);
            let words = ["run", "-m", model, "--max-turns", "3", "go"];
            let ran = haft(&place, &model_server, &words).output();
            let list = tool_lists(&model_server)[0].as_array().unwrap().clone();
            let text = Value::from(list.clone()).to_string();
            assert!(list.len() <= most && list.len() > 100, "{model} {pinned}: {} tools", list.len());
            assert!(text.contains("shop__") && text.contains("\"bash\""), "{model} {pinned}");
            let is_searched = text.contains("tool_search");
            assert_eq!(is_searched, most == 128 || pinned.contains("_1"), "{model} {pinned}");
            assert!(!is_searched || ran.stdout == "Done.\n", "{model} {pinned}: {}", ran.stderr);
        }
    }
}

#[test]
fn tools_that_would_fill_a_small_window_are_hidden_behind_tool_search() {
    for (window, is_searched) in [(6_000, true), (100_000, false)] {
        let place = here();
        let keys = format!(r#", "models": {{"settings": {{"openai/m": {{"contextTokens": {window}}}}}}}"#);
        shop(&place, 10, &[], &keys);
        let model_server = server([ScriptStep::text("Done.")]);
        haft(&place, &model_server, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
        let first = tool_lists(&model_server)[0].to_string();
        assert_eq!(first.contains("tool_search"), is_searched, "{window}: {first}");
        assert_eq!(first.contains("shop__create_invoice"), !is_searched, "{window}: {first}");
    }
}

#[test]
fn doctor_warns_of_tools_that_the_model_would_not_get() {
    let check = |tools: usize, keys: &str, code: i32, expected: &str| {
        let place = here();
        shop(&place, tools, &[], keys);
        let found = place.haft(&["doctor"]).env("OPENAI_API_KEY", "k").output().expect_code(code).stdout;
        assert!(found.contains(expected), "{tools} {keys}: no `{expected}` in {found}");
        assert!(!expected.is_empty() || !found.contains("\ntools "), "{tools} {keys}: {found}");
    };
    let model = r#", "models": {"default": "openai/gpt-5"}"#;
    let never = r#", "toolSearch": "never", "models": {"default": "openai/gpt-5"}"#;
    let small = r#", "toolSearch": "never", "models": {"default": "openai/m", "settings": {"openai/m": {"contextTokens": 1000}}}"#;
    check(
        200,
        never,
        5,
        "`openai` accepts at most 128 tools in a request\n           hint: set `toolSearch` to `auto`",
    );
    check(20, small, 5, "the context window of the model `openai/m` has only 1000 tokens");
    check(20, never, 0, "all shown to models");
    check(200, model, 0, "");
}

/// Providers report cached tokens in different ways: some include them in the input tokens, others report them
/// separately.
#[test]
fn run_shows_cached_and_fresh_tokens_in_every_format() {
    for model in FORMATS {
        let usage = ScriptUsage { input: 50, output: 5, cache_read: 40, ..ScriptUsage::default() };
        let call = ScriptStep::call("current_date", json!({})).using(usage);
        let model_server = server([call, ScriptStep::text("Done.").using(usage)]);
        let ran = haft(&here(), &model_server, &["run", "-m", model, "go"]).output().expect_code(0);
        // Ollama does not report how many tokens it read from its cache.
        let expected = if model == "ollama/m" {
            "100 tokens read, 10 written"
        } else {
            "100 tokens read (80 cached, 20 fresh), 10 written"
        };
        assert!(ran.stderr.contains(expected), "{model}: {}", ran.stderr);
    }
}

#[test]
fn agent_file_overrides_the_tool_search_settings() {
    let place = here();
    shop(&place, 3, &[], r#", "toolSearch": "never""#);
    let keys = "tools: ['*']\ntoolSearch: always\nalwaysShow: [shop__create_*]";
    place.file("home/agents/worker.md", &format!("---\n{keys}\n---\nWork.\n"));
    let model_server = server([ScriptStep::text("Done.")]);
    haft(&place, &model_server, &["run", "-m", "openai/m", "@worker", "go"]).output().expect_code(0);
    let first = tool_lists(&model_server)[0].to_string();
    assert!(first.contains("tool_search") && first.contains("shop__create_"), "{first}");
    assert!(!first.contains("shop__get_") && !first.contains("shop__list_"), "{first}");
}

#[test]
fn rules_apply_to_calls_through_tool_call_and_hide_denied_tools_from_searches() {
    let place = here();
    let rules = r#", "policy": {"rules": [{"tool": "shop__delete_*", "decision": "deny"}]}"#;
    shop(&place, 100, &[], rules);
    let model_server = server([
        search("select:shop__delete_invoice"),
        told(tool_call("shop__delete_invoice", &json!({"text": "x"})), "No good match"),
        told(ScriptStep::text("Done."), "tool `shop__delete_invoice` is denied"),
    ]);
    let ran = haft(&place, &model_server, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
    assert!(!ran.stderr.contains("echo:"), "{}", ran.stderr);
}

#[test]
fn approvals_queues_and_accounting_see_the_tool_behind_tool_call() {
    let place = here();
    let keys = r#", "policy": {"rules": [{"tool": "shop__get_*", "decision": "ask"}]},
        "queues": {"narrow": {"maxConcurrency": 1}}, "tools": {"shop__get_order": {"queue": "narrow"}}"#;
    shop(&place, 100, &[], keys);
    let model_server = server([
        tool_call("shop__get_order", &json!({"text": "one"})),
        told(tool_call("shop__get_order", &json!({"text": "one"})), "echo: one"),
        told(tool_call("shop__get_order", &json!({"text": "two"})), "echo: one"),
        told(tool_call("shop__list_order", &json!({"text": "three"})), "the user refused"),
        told(ScriptStep::text("Done."), "echo: three"),
    ]);
    let mut run = haft(&place, &model_server, &["run", "-m", "openai/m", "go"]).on_terminal();
    let question = "allow? [y] once";
    run.wait_for(question);
    assert!(run.text().contains("shop__get_order") && !run.text().contains("tool_call"), "{}", run.text());
    // The approval of one exact call covers its repetition, but no other call through `tool_call`.
    run.type_keys("e");
    eventually("the third call asks", || run.text().matches(question).count() == 2);
    run.type_keys("n");
    let ran = run.finish().expect_code(0);
    assert_eq!(ran.stdout.matches(question).count(), 2, "{}", ran.stdout);
    let grants = place.haft(&["approvals", "list", "--json"]).output().expect_code(0).stdout;
    assert!(grants.contains(r#""tool": "get_order""#) && !grants.contains("tool_call"), "{grants}");
    let calls: Vec<Value> =
        accounting(&place).into_iter().filter(|event| event["type"] == "tool_finished").collect();
    let seen: Vec<_> = calls.iter().map(|call| (call["tool"].as_str(), call["queue"].as_str())).collect();
    let (order, list) = (Some("shop__get_order"), Some("shop__list_order"));
    let narrow = Some("narrow");
    assert_eq!(seen, [(order, narrow), (order, narrow), (order, None), (list, None)]);
}

#[test]
fn tool_call_with_wrong_arguments_returns_the_schema() {
    let place = here();
    shop(&place, 100, &[], "");
    let model_server = server([
        tool_call("shop__create_invoice", &json!({"limit": 3})),
        told(
            tool_call("shop__create_invoice", &json!({"text": "again"})),
            r#"The schema of `shop__create_invoice`: {"properties":{"limit""#,
        ),
        told(ScriptStep::text("Done."), "echo: again"),
    ]);
    haft(&place, &model_server, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
}

#[test]
fn hidden_tool_can_be_called_by_its_own_name() {
    let place = here();
    shop(&place, 100, &[], "");
    let model_server = server([
        ScriptStep::call("shop__list_order", json!({"text": "direct"})),
        told(ScriptStep::text("Done."), "echo: direct"),
    ]);
    haft(&place, &model_server, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
}

#[test]
fn unusual_searches_and_nested_calls_of_tool_call_get_results() {
    let place = here();
    shop(&place, 100, &[], "");
    let nested =
        json!({"name": "tool_call", "arguments": {"name": "shop__get_report", "arguments": {"text": "in"}}});
    let batch = json!({"calls": [
        {"tool": "tool_call", "parameters": {"name": "shop__get_order", "arguments": {"text": "one"}}},
        {"tool": "tool_search", "parameters": {"query": "contract"}},
    ]});
    place.file("home/agents/worker.md", "---\ntools: ['*']\nmaxTurns: 20\n---\nWork.\n");
    let model_server = server([
        search(""),
        told(search(&"invoice ".repeat(12_500)), "No good match"),
        told(search("(.*)+[a-z]{2,}$"), "shop__create_invoice("),
        ScriptStep::call("tool_search", json!({})),
        told(ScriptStep::call("tool_search", json!({"query": 7})), "No good match"),
        told(ScriptStep::call("tool_call", json!({"arguments": {}})), "the arguments do not match"),
        told(ScriptStep::call("tool_call", nested), "`name` must be"),
        told(tool_call("shop__no_such_tool", &json!({})), "echo: in"),
        told(ScriptStep::call("agent__batch", batch), "Unknown tool: shop__no_such_tool"),
        told(ScriptStep::text("Done."), "echo: one"),
    ]);
    let words = ["run", "-m", "openai/m", "@worker", "go"];
    let ran = haft(&place, &model_server, &words).output().expect_code(0);
    assert_eq!(ran.stdout, "Done.\n");
}

#[test]
fn model_that_only_searches_is_warned_and_stopped() {
    let place = here();
    shop(&place, 100, &[], "");
    let steps = (0..12).map(|number| search(&format!("invoice number {number}")));
    let model_server = server(steps);
    let ran = haft(&place, &model_server, &["run", "-m", "openai/m", "--max-turns", "50", "go"]).output();
    assert!(ran.stderr.contains("only searched for tools in 10 turns in a row"), "{}", ran.stderr);
    let bodies: Vec<String> = model_server.requests().iter().map(|request| request.raw.clone()).collect();
    assert_eq!(bodies.len(), 10);
    assert!(bodies[9].contains("Call a tool that you found"), "{}", bodies[9]);
}

#[test]
fn tool_added_during_a_run_is_found_by_search_but_not_listed() {
    let place = here();
    shop(&place, 100, &["grows"], "");
    // haft lists the tools again during the first call; the server answers the later calls after that.
    let order = |text: &str| tool_call("shop__get_order", &json!({ "text": text }));
    let model_server = server([
        order("a"),
        order("b"),
        order("c"),
        told(search("water the garden"), "echo: c"),
        told(tool_call("shop__water_the_garden", &json!({})), "shop__water_the_garden()"),
        told(ScriptStep::text("Done."), "echo: None"),
    ]);
    let ran = haft(&place, &model_server, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
    assert!(
        ran.stderr.contains("the model found tools with `tool_search`: shop__water_the_garden"),
        "{}",
        ran.stderr
    );
    let lists = tool_lists(&model_server);
    assert!(lists.iter().all(|list| *list == lists[0]), "{lists:#?}");
}

/// If haft counted the tools before the server has listed them, haft would not know their number and could wrongly turn
/// the search on or off.
#[test]
fn tools_are_counted_after_the_wait_for_servers() {
    for (tools, is_searched) in [(10, false), (100, true)] {
        let place = here();
        shop_started(&place, tools, &["slow"], "background", r#", "mcp": {"readyWait": "30s"}"#);
        let model_server = server([ScriptStep::text("Done.")]);
        haft(&place, &model_server, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
        let first = tool_lists(&model_server)[0].to_string();
        assert_eq!(first.contains("tool_search"), is_searched, "{tools}: {first}");
        assert_eq!(first.contains("shop__create_invoice"), !is_searched, "{tools}: {first}");
        assert_eq!(first.contains("shop: 100 tools"), is_searched, "{tools}: {first}");
    }
}

/// Returns the steps of a model that creates the file `gate`, for which a late server waits, and then waits until the
/// server has listed its tools.
fn gate_steps() -> [ScriptStep; 2] {
    let command = "touch gate; until [ -e listed ]; do sleep 0.02; done";
    [
        ScriptStep::call("bash", json!({ "command": command })),
        // haft reads the tool list during this call.
        ScriptStep::call("current_date", json!({})),
    ]
}

#[test]
fn tools_of_a_late_server_are_found_by_search_but_not_listed() {
    let place = here();
    shop_started(&place, 10, &["gated"], "background", r#", "mcp": {"readyWait": "50ms"}"#);
    let steps = [
        search("create an invoice"),
        told(tool_call("shop__create_invoice", &json!({"text": "late"})), "shop__create_invoice("),
        told(ScriptStep::text("Done."), "echo: late"),
    ];
    let model_server = server(gate_steps().into_iter().chain(steps));
    let ran = haft(&place, &model_server, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
    for text in [
        "`shop` is still starting after 50 ms; its tools will be available later",
        "the model found tools with `tool_search`: shop__",
    ] {
        assert!(ran.stderr.contains(text), "{text}: {}", ran.stderr);
    }
    let lists = tool_lists(&model_server);
    assert!(lists.iter().all(|list| *list == lists[0]), "{lists:#?}");
}

#[test]
fn tools_of_a_late_server_join_the_list_if_tool_search_is_off() {
    let place = here();
    let keys = r#", "mcp": {"readyWait": "50ms"}, "toolSearch": "never""#;
    shop_started(&place, 3, &["gated"], "background", keys);
    let steps = [
        ScriptStep::call("shop__create_invoice", json!({"text": "late"})),
        told(ScriptStep::text("Done."), "echo: late"),
    ];
    let model_server = server(gate_steps().into_iter().chain(steps));
    let ran = haft(&place, &model_server, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
    assert!(
        ran.stderr.contains("the model now also sees these tools: shop__create_invoice"),
        "{}",
        ran.stderr
    );
    let lists: Vec<Vec<Value>> =
        tool_lists(&model_server).iter().map(|list| list.as_array().unwrap().clone()).collect();
    let last = lists.last().unwrap();
    assert_eq!(last[..lists[0].len()], lists[0][..]);
    assert_eq!(last.len(), lists[0].len() + 3, "{last:#?}");
}

#[test]
fn expose_append_adds_found_tools_to_the_end_of_the_list() {
    let place = here();
    shop(&place, 100, &[], r#", "expose": "append""#);
    let model_server = server([
        search("select:shop__create_invoice"),
        told(ScriptStep::call("shop__create_invoice", json!({"text": "x"})), "shop__create_invoice("),
        told(ScriptStep::text("Done."), "echo: x"),
    ]);
    let ran = haft(&place, &model_server, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
    assert!(
        ran.stderr.contains("the model now also sees these tools: shop__create_invoice"),
        "{}",
        ran.stderr
    );
    let lists: Vec<Vec<Value>> =
        tool_lists(&model_server).iter().map(|list| list.as_array().unwrap().clone()).collect();
    assert_eq!(lists[1][..lists[0].len()], lists[0][..]);
    assert_eq!(lists[1].last().unwrap()["function"]["name"], "shop__create_invoice");
    assert_eq!(lists[1], lists[2]);
}

#[test]
fn resumed_run_shows_the_same_tools_as_before() {
    let place = here();
    shop(&place, 100, &[], r#", "expose": "append""#);
    let first = server([
        search("select:shop__create_invoice"),
        ScriptStep::say([ScriptPart::Text("Which one?".into())]),
    ]);
    haft(&place, &first, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
    // The configuration now turns the search off, which would show all tools to the model. The resumed run must still
    // use the stored decision.
    let text = place.text("home/haft.json").replace(r#""expose": "append""#, r#""toolSearch": "never""#);
    place.file("home/haft.json", &text);
    let second = server([
        ScriptStep::call("shop__create_invoice", json!({"text": "again"})).at_turn(2),
        told(ScriptStep::text("Done."), "echo: again").at_turn(3),
    ]);
    haft(&place, &second, &["resume", "last", "go on"]).output().expect_code(0);
    assert_eq!(tool_lists(&second)[0], *tool_lists(&first).last().unwrap());
}

#[test]
fn recorded_run_with_searches_replays_without_the_server() {
    let place = here();
    shop(&place, 100, &["grows"], r#", "expose": "append""#);
    let model_server = server([
        search("create an invoice"),
        told(tool_call("shop__create_invoice", &json!({"text": "x"})), "shop__create_invoice("),
        told(ScriptStep::text("Done."), "echo: x"),
    ]);
    let words = ["run", "-m", "openai/m", "--output-format", "stream-json", "--record", "tape.jsonl", "go"];
    let ran = haft(&place, &model_server, &words).output().expect_code(0);
    place.file("home/haft.json", "{}");
    let words = ["replay", "tape.jsonl", "--output-format", "stream-json"];
    let replayed = place.haft(&words).output().expect_code(0);
    assert_eq!(replayed.stdout, ran.stdout);
}

/// Models that load tools by name, each with the text of a reply that loads one.
const LOADING: [(&str, &str); 2] = [
    ("anthropic/claude-sonnet-4-5", "tool_reference shop__create_invoice"),
    ("openai-responses/gpt-5.4", "loaded shop__create_invoice"),
];

#[test]
fn model_that_loads_tools_gets_references_and_calls_the_tool_directly() {
    for (model, reference) in LOADING {
        let place = here();
        shop(&place, 300, &[], "");
        let model_server = server([
            search("create an invoice"),
            told(ScriptStep::call("shop__create_invoice", json!({"text": "paper"})), reference),
            told(search("zzqq"), "echo: paper"),
            told(search("select:shop__get_order,shop__no_such_tool"), ""),
            told(tool_call("shop__get_order", &json!({"text": "pen"})), "shop__get_order"),
            told(ScriptStep::text("Done."), "echo: pen"),
        ]);
        let ran = haft(&place, &model_server, &["run", "-m", model, "go"]).output().expect_code(0);
        assert_eq!(ran.stdout, "Done.\n", "{model}: {}", ran.stderr);
        let lists = tool_lists(&model_server);
        assert!(lists.iter().all(|list| *list == lists[0]), "{model}: the tool list changed");
        let bodies: Vec<String> = model_server.requests().iter().map(|request| request.raw.clone()).collect();
        assert!(bodies[1].contains("More: shop__"), "{model}: the other names are missing");
        assert!(bodies[3].contains("No good match"), "{model}: the answer without a match is missing");
        let generic = r#", "expose": "constant""#;
        shop(&place, 300, &[], generic);
        let model_server = server([ScriptStep::text("Done.")]);
        haft(&place, &model_server, &["run", "-m", model, "go"]).output().expect_code(0);
        let first = tool_lists(&model_server)[0].to_string();
        assert!(!first.contains("defer_loading") && !first.contains("client"), "{model}: {first}");
    }
}

#[test]
fn resumed_and_replayed_run_loads_the_same_tools() {
    let place = here();
    shop(&place, 100, &[], "");
    let (model, reference) = LOADING[0];
    let first = server([search("create an invoice"), told(ScriptStep::text("Which one?"), reference)]);
    let words = ["run", "-m", model, "--record", "tape.jsonl", "go"];
    haft(&place, &first, &words).output().expect_code(0);
    let second = server([
        ScriptStep::call("shop__create_invoice", json!({"text": "again"})).at_turn(2),
        told(ScriptStep::text("Done."), "echo: again").at_turn(3),
    ]);
    haft(&place, &second, &["resume", "last", "go on"]).output().expect_code(0);
    assert_eq!(tool_lists(&second)[0], tool_lists(&first)[0]);
    assert!(second.requests()[0].raw.contains(r#""tool_reference""#));
    place.file("home/haft.json", "{}");
    let replayed = place.haft(&["replay", "-q", "tape.jsonl"]).output().expect_code(0);
    assert_eq!(replayed.stdout, "Which one?\n");
}

#[test]
fn instructions_of_a_hidden_server_come_with_its_first_found_tool() {
    for model in FORMATS.into_iter().chain(LOADING.map(|(model, _)| model)) {
        let place = here();
        shop(&place, 100, &["instructs"], "");
        let model_server =
            server([search("create an invoice"), search("get an order"), ScriptStep::text("Done.")]);
        haft(&place, &model_server, &["run", "-m", model, "go"]).output().expect_code(0);
        let times =
            |at: usize| model_server.requests()[at].raw.matches("Ask before you send an invoice").count();
        assert_eq!([times(0), times(1), times(2)], [0, 1, 1], "{model}");
        let roster = tool_lists(&model_server)[0].to_string();
        assert!(roster.contains("shop: 100 tools. Sells paper"), "{model}: {roster}");
    }
}

/// The number of turns of the run whose prompts are compared.
const TURNS: usize = 50;

/// Returns the prompt in the order in which providers cache it: tools, system text, messages. Cache markers are not
/// part of the prompt.
fn prompt(body: &Value) -> String {
    let mut body = body.clone();
    remove_markers(&mut body);
    let part = |names: &[&str]| names.iter().find_map(|name| body.get(*name)).map(Value::to_string);
    let tools = part(&["tools"]).unwrap_or_default();
    let system = part(&["system", "instructions", "systemInstruction"]).unwrap_or_default();
    format!("{tools}\n{system}\n{}", part(&["messages", "input", "contents"]).unwrap())
}

fn remove_markers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(remove_markers),
        Value::Object(object) => {
            object.remove("cache_control");
            object.values_mut().for_each(remove_markers);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Each prompt must begin with the whole previous prompt, even if an output is stored, a search finds tools or a server
/// lists new tools in between.
#[test]
fn prompt_of_each_turn_is_a_prefix_of_the_next_one_in_every_format() {
    for model in FORMATS.into_iter().chain(LOADING.map(|(model, _)| model)) {
        let place = here();
        shop(&place, 100, &["grows"], "");
        let steps = (0..TURNS).map(|turn| match turn {
            5 => ScriptStep::call("bash", json!({"command": "seq 1 20000"})),
            12 => search("create an invoice"),
            13 | 14 => tool_call("shop__create_invoice", &json!({"text": turn.to_string()})),
            last if last + 1 == TURNS => ScriptStep::text("Done."),
            other => {
                let zone = if other % 2 == 0 { "UTC" } else { "Europe/Berlin" };
                ScriptStep::call("current_date", json!({ "timezone": zone }))
            }
        });
        let model_server = server(steps);
        let words = ["run", "-m", model, "--max-turns", "60", "go"];
        let ran = haft(&place, &model_server, &words).output().expect_code(0);
        assert!(ran.stderr.contains("the model found tools with `tool_search`"), "{model}: {}", ran.stderr);
        let prompts: Vec<String> =
            model_server.requests().iter().map(|request| prompt(&request.body)).collect();
        assert_eq!(prompts.len(), TURNS, "{model}");
        for (turn, pair) in prompts.windows(2).enumerate() {
            // Remove the closing brackets at the end, because the next prompt continues the list of messages, and may
            // continue its last message.
            let before = pair[0].trim_end_matches([']', '}']);
            assert!(pair[1].starts_with(before), "{model}: the prompt of turn {} changes", turn + 1);
        }
    }
}

/// The maximum number of tokens of all definitions in a request with tool search, including the built-in tools.
const SHOWN_TOKENS_MAX: u64 = 1_400;

/// The maximum number of tokens of a search answer, including the call and the JSON around both.
const ANSWER_TOKENS_MAX: u64 = 820;
const CALL_TOKENS_MAX: u64 = 80;

/// Counts the tokens with the vocabulary of a current model.
pub(super) fn tokens(text: &str) -> u64 {
    tiktoken_rs::o200k_base_singleton().count_ordinary(text) as u64
}

/// Returns the tools in a request that the model sees. The request also contains deferred tools, which the provider
/// does not show to the model.
fn shown_tools(request: &Value) -> Value {
    let is_shown = |tool: &&Value| tool["defer_loading"] != true;
    request["tools"].as_array().unwrap().iter().filter(is_shown).cloned().collect()
}

/// Prints the rows of the table in docs/tool-search.md.
#[test]
fn tool_search_takes_few_tokens_for_any_number_of_tools() {
    for model in FORMATS.into_iter().chain(LOADING.map(|(model, _)| model)) {
        let mut row = format!("| `{model}`");
        for tools in [10, 100, 1_000, 10_000] {
            let place = here();
            shop(&place, tools, &[], "");
            let model_server = server([search("create an invoice"), ScriptStep::text("Done.")]);
            haft(&place, &model_server, &["run", "-m", model, "go"]).output().expect_code(0);
            let [first, second] = &model_server.requests()[..] else { panic!("{model}: two requests") };
            let shown = tokens(&shown_tools(&first.body).to_string());
            assert!(tools < 100 || shown <= SHOWN_TOKENS_MAX, "{model}: {tools} tools, {shown} tokens");
            let answer = tokens(&prompt(&second.body)) - tokens(&prompt(&first.body));
            let _ = write!(row, " | {shown} + {answer}");
            assert!(
                answer <= ANSWER_TOKENS_MAX + CALL_TOKENS_MAX,
                "{model}: the call and its answer take {answer} tokens"
            );
        }
        println!("{row} |");
    }
}

#[test]
fn first_request_with_a_large_real_api_spends_few_tokens_on_tools() {
    let place = here();
    let file = description_of("api.github.com");
    let words = ["rest", "add", "github", file.to_str().unwrap(), "--base-url", "https://api.example.com"];
    place.haft(&words).output().expect_code(0);
    for model in FORMATS.into_iter().chain(LOADING.map(|(model, _)| model)) {
        let model_server = server([
            search("create an issue"),
            told(ScriptStep::text("Done."), "rest__github_issues_create"),
        ]);
        haft(&place, &model_server, &["run", "-m", model, "open an issue about the roof"])
            .output()
            .expect_code(0);
        let first = &model_server.requests()[0].body;
        let shown = tokens(&shown_tools(first).to_string());
        println!("{model}: {shown} tokens of tools");
        assert!((100..=SHOWN_TOKENS_MAX).contains(&shown), "{model}: {shown} tokens of tools");
    }
}
