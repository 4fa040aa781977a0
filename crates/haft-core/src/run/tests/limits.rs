//! The limits of a run, and the messages about them.

use std::time::Duration;

use super::bench::{REPORT, RunTestBench, calls, check, cut, empty, report_tool, says};
use crate::conversation::{MessagePart, PartBody};
use crate::model_reply::StopReason;
use crate::run::budget::{SpendLimit, SpendTotals};
use crate::run::limits::{RunContextLimit, RunLimits};
use crate::run::{RunNote, RunPlan, RunStep};

fn limited(limits: RunLimits) -> RunPlan {
    RunPlan { limits, ..RunPlan::default() }
}

/// Returns a call that differs from turn to turn, so that it is not a loop.
fn read(n: u32) -> crate::model_reply::ModelReply {
    calls(&[("read", &format!("{{\"n\": {n}}}"))])
}

#[test]
fn last_turn_forbids_tools_and_asks_for_the_answer() {
    let limits = RunLimits { turns_max: 2, ..RunLimits::default() };
    let bench = check(
        limited(limits),
        vec![read(1), says("so far")],
        &["model auto", "tools read", "model none", "done max_turns: so far"],
    );
    assert_eq!(bench.told(), ["This is the last turn. Call no more tools. Answer now with what you have."]);
    let plan = RunPlan { report: report_tool(), ..limited(limits) };
    check(
        plan,
        vec![read(1), calls(&[REPORT])],
        &["model auto", "tools read", "model =agent__final_report", "done max_turns: all done"],
    );
}

#[test]
fn run_stops_when_the_model_keeps_calling_tools_in_the_last_turn() {
    let limits = RunLimits { turns_max: 2, attempts_max: 3, ..RunLimits::default() };
    let replies = vec![read(1), read(2), read(3), read(4)];
    let steps = ["model auto", "tools read", "model none", "model none", "model none", "done max_turns"];
    let bench = check(limited(limits), replies, &steps);
    assert!(bench.replies()[1].contains("cannot be called now"));
}

#[test]
fn one_turn_run_completes_without_a_limit_warning() {
    let limits = RunLimits { turns_max: 1, ..RunLimits::default() };
    let bench = check(limited(limits), vec![says("hi")], &["model none", "done completed: hi"]);
    assert!(bench.told().is_empty());
}

#[test]
fn calls_beyond_the_per_turn_limit_are_refused() {
    let limits = RunLimits { tool_calls_per_turn_max: 2, ..RunLimits::default() };
    let flood = |n: usize| {
        let arguments: Vec<String> = (0..500).map(|at| format!("{{\"n\": {}}}", at + n)).collect();
        let list: Vec<_> = arguments.iter().map(|arguments| ("read", arguments.as_str())).collect();
        calls(&list)
    };
    let steps =
        ["model auto", "tools read,read", "model auto", "tools read", "model auto", "done completed: ok"];
    let bench = check(limited(limits), vec![flood(0), read(9), says("ok")], &steps);
    assert_eq!(bench.replies().len(), 501);
    assert!(bench.replies()[2].contains("at most 2 tool calls"));
    let steps = [
        "model auto",
        "tools read,read",
        "model auto",
        "tools read,read",
        "model none",
        "done max_tool_calls_per_turn: ok",
    ];
    check(limited(limits), vec![flood(0), flood(1000), says("ok")], &steps);
}

#[test]
fn total_call_limit_spans_all_turns() {
    let limits = RunLimits { tool_calls_max: Some(2), ..RunLimits::default() };
    let steps =
        ["model auto", "tools read", "model auto", "tools read", "model none", "done max_tool_calls: ok"];
    let three = calls(&[("read", "{}"), ("write", "{}"), ("write", "{}")]);
    check(limited(limits), vec![read(1), three, says("ok")], &steps);
    let steps = ["model auto", "tools read", "model auto", "tools read", "model auto", "done completed: ok"];
    check(limited(limits), vec![read(1), read(2), says("ok")], &steps);
}

#[test]
fn a_full_context_forces_the_answer() {
    let context = Some(RunContextLimit { window_tokens: 100, output_tokens: 20, buffer_tokens: 10 });
    let mut bench = RunTestBench::new(limited(RunLimits { context, ..RunLimits::default() }));
    bench.readings.context_tokens = Some(70);
    bench.step();
    bench.readings.context_tokens = Some(71);
    bench.step();
    bench.run.model_replied(says("short")).unwrap();
    bench.step();
    assert_eq!(bench.log, ["model auto", "model none", "done context_full: short"]);
}

#[test]
fn exhausted_budget_allows_one_final_turn() {
    let check = |budget: SpendLimit, spent: SpendTotals, steps: &[&str]| {
        let mut bench = RunTestBench::new(RunPlan { budget, ..RunPlan::default() });
        bench.play(vec![read(1)]);
        bench.readings.left = budget.left(&spent);
        bench.step();
        bench.run.model_replied(says("partly")).unwrap();
        bench.step();
        assert_eq!(bench.log[3..], *steps, "{budget:?} {spent:?}");
    };
    let (stop, go) = (["model none", "done budget: partly"], ["model auto", "done completed: partly"]);
    check(
        SpendLimit { usd: Some(1.0), ..SpendLimit::default() },
        SpendTotals { usd: 1.0, ..SpendTotals::default() },
        &stop,
    );
    check(
        SpendLimit { usd: Some(1.0), ..SpendLimit::default() },
        SpendTotals { usd: 0.9, ..SpendTotals::default() },
        &go,
    );
    check(
        SpendLimit { tokens: Some(5), ..SpendLimit::default() },
        SpendTotals { tokens: 6, ..SpendTotals::default() },
        &stop,
    );
    let (time, spent) = (Some(Duration::from_secs(1)), Duration::from_secs(2));
    check(
        SpendLimit { time, ..SpendLimit::default() },
        SpendTotals { time: spent, ..SpendTotals::default() },
        &stop,
    );
}

#[test]
fn calls_beyond_the_budget_are_not_started() {
    let budget = SpendLimit { calls: Some(3), ..SpendLimit::default() };
    let mut bench = RunTestBench::new(RunPlan { budget, ..RunPlan::default() });
    bench.readings.left = budget.left(&SpendTotals { calls: 2, ..SpendTotals::default() });
    bench.step();
    bench.run.model_replied(calls(&[("read", "{}"), ("write", "{}")])).unwrap();
    let RunStep::CallTools(calls) = bench.step() else { panic!() };
    // A call that the driver has already received stays open, even if reservations use up the budget meanwhile.
    bench.readings.left.calls = Some(0);
    bench.step();
    assert_eq!(bench.log[1..], ["tools read", "tools read"]);
    bench.run.tools_replied(vec![super::bench::succeeded(&calls[0])]).unwrap();
    bench.step();
    assert_eq!(bench.log[3], "model none");
    assert!(bench.replies()[1].contains("the budget of this run is used up"));
}

#[test]
fn repeated_identical_calls_warn_the_model_and_then_stop_the_run() {
    let same = || calls(&[("read", r#"{"a": 1}"#)]);
    let mut bench = RunTestBench::new(RunPlan::default());
    let finish = bench.play(vec![same(), same(), same(), same(), same()]).unwrap();
    assert_eq!(finish.reason.name(), "doom_loop");
    assert_eq!(bench.log.iter().filter(|step| *step == "tools read").count(), 4);
    assert_eq!(bench.told().len(), 2);
    assert!(bench.told()[0].contains("in 3 turns in a row"));
    assert!(bench.run.take_notes().contains(&RunNote::Circling { tool: "read".into(), times: 3 }));
}

#[test]
fn empty_or_cut_off_replies_are_retried_within_the_turn() {
    let bench = check(
        RunPlan::default(),
        vec![empty(), cut("half an ans"), says("whole")],
        &["model auto", "model auto", "model auto", "done completed: whole"],
    );
    assert_eq!(bench.run.counts().turns, 1);
    assert!(bench.told()[0].contains("empty") && bench.told()[1].contains("cut off"));
    let steps = ["model auto", "model auto", "model auto", "model auto", "model auto", "done empty_replies"];
    check(RunPlan::default(), vec![empty(); 5], &steps);
    let mut bench = RunTestBench::new(limited(RunLimits { attempts_max: 2, ..RunLimits::default() }));
    bench.play(vec![cut("a"), cut("b")]);
    assert_eq!(bench.log.last().unwrap(), "done cut_replies: b");
}

#[test]
fn truncated_call_is_not_executed() {
    let mut reply = calls(&[("read", "{}"), ("write", r#"{"content": "half"#)]);
    reply.stop = StopReason::Length;
    let bench = check(
        RunPlan::default(),
        vec![reply, says("ok")],
        &["model auto", "tools read", "model auto", "done completed: ok"],
    );
    assert!(bench.replies()[1].contains("cut off"));
}

#[test]
fn reply_with_only_reasoning_is_retried() {
    let thought =
        super::bench::reply(vec![MessagePart::new(PartBody::Reasoning("hm".into()))], StopReason::EndOfTurn);
    let bench = check(
        RunPlan::default(),
        vec![thought, says("ok")],
        &["model auto", "model auto", "done completed: ok"],
    );
    assert_eq!(bench.run.conversation().messages().len(), 3);
}
