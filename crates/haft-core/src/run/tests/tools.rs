//! Tests of which party runs each call, and in which order.

use std::collections::BTreeSet;

use super::fixture::{REPORT, RunTestBench, call, calls, check, report_tool, says, succeeded};
use crate::conversation::ToolReply;
use crate::internal_tools::handoff::HandoffRoutes;
use crate::model_request::{MustCall, ToolChoice};
use crate::run::limits::RunLimits;
use crate::run::tool_choice::ChoiceSupport;
use crate::run::{CallDecision, OptionalTools, RunError, RunNote, RunPlan, RunStep};
use crate::tool::CallId;

fn client() -> RunPlan {
    RunPlan { client_tools: BTreeSet::from(["client".to_owned()]), ..RunPlan::default() }
}

#[test]
fn run_calls_tools_until_the_model_answers() {
    let replies = vec![calls(&[("read", "{}"), ("write", "{}")]), calls(&[("read", "{}")]), says("red")];
    let steps =
        ["model auto", "tools read,write", "model auto", "tools read", "model auto", "done completed: red"];
    let bench = check(RunPlan::default(), replies, &steps);
    assert_eq!(bench.replies(), ["read ok", "write ok", "read ok"]);
    assert_eq!((bench.run.counts().turns, bench.run.counts().tool_calls), (3, 3));
}

#[test]
fn next_step_repeats_until_its_result_arrives() {
    let mut bench = RunTestBench::new(RunPlan::default());
    bench.step();
    bench.step();
    bench.run.model_replied(calls(&[("read", "{}")])).unwrap();
    bench.step();
    bench.step();
    assert_eq!(bench.log, ["model auto", "model auto", "tools read", "tools read"]);
}

#[test]
fn run_executes_own_tools_then_asks_approval_then_returns_client_calls() {
    let replies = vec![calls(&[("client", "{}"), ("ask", "{}"), ("read", "{}")]), says("done")];
    let steps = [
        "model auto",
        "tools ask,read",
        "approval ask",
        "tools ask",
        "client client",
        "model auto",
        "done completed: done",
    ];
    let bench = check(client(), replies, &steps);
    assert_eq!(bench.replies(), ["client ok", "ask ok", "read ok"]);
}

#[test]
fn denied_call_gets_a_reply_and_the_run_continues() {
    let mut bench = RunTestBench::new(RunPlan::default());
    bench.step();
    bench.run.model_replied(calls(&[("ask", "{}")])).unwrap();
    let RunStep::CallTools(open) = bench.step() else { panic!() };
    bench.run.tools_replied(vec![super::fixture::pending(&open[0])]).unwrap();
    bench.step();
    bench.run.approval_given(&open[0].id, CallDecision::Deny).unwrap();
    bench.step();
    assert_eq!(bench.log, ["model auto", "tools ask", "approval ask", "model auto"]);
    assert!(bench.replies()[0].contains("denied"));
}

#[test]
fn unexpected_tool_results_are_errors_and_leave_the_run_unchanged() {
    let mut bench = RunTestBench::new(client());
    bench.step();
    let unexpected =
        bench.run.client_replied(vec![ToolReply::text(&call("0", "client", ""), "x")]).unwrap_err();
    assert!(unexpected.to_string().contains("waits for the model"), "{unexpected}");
    bench.run.model_replied(calls(&[("client", "{}"), ("client", r#"{"n": 1}"#), ("read", "{}")])).unwrap();
    let RunStep::CallTools(open) = bench.step() else { panic!() };
    bench.run.tools_replied(vec![succeeded(&open[0])]).unwrap();
    let reply = |id: &str| ToolReply::text(&call(id, "client", ""), "x");
    let unknown = |id: &str| RunError::UnknownCall { call: CallId(id.into()) };
    let twice = |id: &str| RunError::AnsweredTwice { call: CallId(id.into()) };
    assert_eq!(bench.run.client_replied(vec![reply("0"), reply("9")]), Err(unknown("9")));
    assert_eq!(bench.run.client_replied(vec![reply("0"), reply("0")]), Err(twice("0")));
    assert_eq!(bench.run.client_replied(vec![reply("2")]), Err(twice("2")));
    assert_eq!(bench.run.tools_replied(vec![succeeded(&call("0", "client", ""))]), Err(unknown("0")));
    assert_eq!(bench.run.client_replied(vec![reply("0")]), Ok(()));
    assert_eq!(bench.run.client_replied(vec![reply("0")]), Err(twice("0")));
    bench.step();
    assert_eq!(bench.log.last().unwrap(), "client client");
    assert!(bench.run.model_replied(says("too early")).is_err());
}

#[test]
fn required_tool_choice_is_repeated_until_the_model_complies() {
    let plan = |tool_choice: ToolChoice| RunPlan { tool_choice, ..RunPlan::default() };
    let bench = check(
        plan(ToolChoice::Required),
        vec![says("no need"), calls(&[("read", "{}")]), says("red")],
        &["model required", "model required", "tools read", "model auto", "done completed: red"],
    );
    assert!(bench.told()[0].contains("you must call at least one tool"));
    let bench = check(
        plan(ToolChoice::Named("write".into())),
        vec![calls(&[("read", "{}")]), calls(&[("write", "{}")]), says("ok")],
        &["model =write", "model =write", "tools write", "model auto", "done completed: ok"],
    );
    assert!(bench.replies()[0].contains("only `write`"));
    check(
        plan(ToolChoice::None),
        vec![calls(&[("read", "{}")]), says("ok")],
        &["model none", "model none", "done completed: ok"],
    );
}

#[test]
fn run_ends_when_the_model_ignores_the_required_tool_choice() {
    let plan = RunPlan { tool_choice: ToolChoice::Required, ..RunPlan::default() };
    let mut bench = RunTestBench::new(plan);
    let finish = bench.play(vec![says("no"); 5]).unwrap();
    assert_eq!((finish.reason.name(), finish.answer.unwrap().text()), ("tool_choice_unmet", "no".to_owned()));
    let again = bench.run.take_notes().into_iter().filter(|note| matches!(note, RunNote::AskedAgain { .. }));
    assert_eq!(again.count(), 4);
}

#[test]
fn provider_without_tool_choice_gets_the_choice_as_text() {
    let support = ChoiceSupport { none: false, required: false, named: false, allowed: false };
    let plan = RunPlan { tool_choice: ToolChoice::Required, support, ..RunPlan::default() };
    let replies = vec![says("no need"), calls(&[("read", "{}")]), says("red")];
    let bench = check(
        plan,
        replies,
        &["model auto", "model auto", "tools read", "model auto", "done completed: red"],
    );
    assert_eq!(bench.told()[0], "Call at least one tool before you answer.");
    assert_eq!(bench.told().last().unwrap(), "You may call any tool now, or answer.");
}

#[test]
fn calls_to_tools_outside_the_allowed_list_are_refused() {
    let allowed_tools = Some(vec!["read".to_owned()]);
    let plan = RunPlan { allowed_tools, report: report_tool(), ..RunPlan::default() };
    let replies = vec![calls(&[("write", "{}"), ("read", "{}")]), calls(&[REPORT])];
    let list = "model [read,agent__final_report]";
    let mut bench = check(plan, replies, &[list, "tools read", list, "done completed: all done"]);
    assert!(bench.replies()[0].contains("`write` is not allowed"));
    assert!(
        bench
            .run
            .take_notes()
            .iter()
            .any(|note| matches!(note, RunNote::Refused { tool, .. } if tool == "write"))
    );

    let names = vec!["write".to_owned()];
    let tool_choice = ToolChoice::Allowed { names, must_call: MustCall::Yes };
    let plan = RunPlan { tool_choice, ..RunPlan::default() };
    check(
        plan,
        vec![says("no"), calls(&[("write", "{}")]), says("ok")],
        &["model [write]", "model [write]", "tools write", "model [write]", "done completed: ok"],
    );
    let none = RunPlan { allowed_tools: Some(Vec::new()), ..RunPlan::default() };
    check(none, vec![says("ok")], &["model none", "done completed: ok"]);
}

const MIXED: &str = r#"{"calls": [{"id": "r", "tool": "read", "parameters": {}}, {"tool": "agent__batch"}, {"tool": "client"}, {"tool": "agent__final_report"}]}"#;

#[test]
fn batch_calls_run_and_count_as_calls_of_the_run() {
    let offer = OptionalTools { batch: true, task_status: false };
    let plan = RunPlan { offer, ..client() };
    let replies = vec![calls(&[("agent__batch", MIXED), ("write", "{}")]), says("ok")];
    let steps = ["model auto", "tools read,write", "client client", "model auto", "done completed: ok"];
    let bench = check(plan, replies, &steps);
    let reply: serde_json::Value = serde_json::from_str(&bench.replies()[0]).unwrap();
    let shown: Vec<_> = reply["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|end| (end["id"].as_str().unwrap(), end["ok"].as_bool().unwrap()))
        .collect();
    assert_eq!(shown, [("r", true), ("1", false), ("2", true), ("3", false)]);
    assert_eq!(bench.run.counts().tool_calls, 3);
    assert_eq!(bench.replies()[1], "write ok");
}

#[test]
fn call_limits_and_allowed_tools_apply_inside_a_batch() {
    let offer = OptionalTools { batch: true, task_status: false };
    let limits = RunLimits { tool_calls_per_turn_max: 1, ..RunLimits::default() };
    let allowed_tools = Some(vec!["read".to_owned()]);
    let plan = RunPlan { limits, allowed_tools, offer, ..RunPlan::default() };
    let batch = r#"{"calls": [{"tool": "write"}, {"tool": "read"}, {"tool": "read"}]}"#;
    let mut bench = RunTestBench::new(plan);
    bench.play(vec![calls(&[("agent__batch", batch)])]);
    assert_eq!(bench.log[1], "tools read");
    assert!(
        bench.replies()[0].contains("`write` is not allowed")
            && bench.replies()[0].contains("at most 1 tool calls")
    );
}

#[test]
fn call_with_the_name_of_a_disabled_internal_tool_goes_to_the_engine() {
    let replies = vec![
        calls(&[("agent__batch", MIXED), ("agent__task_status", "{}"), ("router__handoff-to", "{}")]),
        says("ok"),
    ];
    let steps = [
        "model auto",
        "tools agent__batch,agent__task_status,router__handoff-to",
        "model auto",
        "done completed: ok",
    ];
    check(RunPlan::default(), replies, &steps);
}

#[test]
fn handoff_ends_the_run_and_refuses_agents_already_visited() {
    let routes = HandoffRoutes { destinations: vec!["legal".into()], path: vec!["desk".into()] };
    let plan = RunPlan { routes, ..RunPlan::default() };
    let wrong = calls(&[("router__handoff-to", r#"{"agent": "desk"}"#)]);
    let right = calls(&[("router__handoff-to", r#"{"agent": "legal", "message": "old case"}"#)]);
    let bench = check(plan, vec![wrong, right], &["model auto", "model auto", "done handoff"]);
    assert!(bench.replies()[0].contains("already had this request"));
}
