//! The limits of a run, and the messages about them.

use std::time::Duration;

use super::fixture::{REPORT, RunTestBench, calls, check, cut, empty, reply, report_tool, says};
use crate::conversation::{MessagePart, PartBody};
use crate::model_reply::{ModelReply, StopReason};
use crate::run::budget::{SpendLimit, SpendTotals};
use crate::run::limits::{RunContextLimit, RunLimits};
use crate::run::{RunNote, RunPlan, RunStep, UnusableText};

fn limited(limits: RunLimits) -> RunPlan {
    RunPlan { limits, ..RunPlan::default() }
}

/// Returns a call that differs from turn to turn, so that it is not a loop.
fn read(n: u32) -> ModelReply {
    calls(&[("read", &format!("{{\"n\": {n}}}"))])
}

#[test]
fn last_turn_forbids_tools_and_asks_for_the_answer() {
    let limits = RunLimits { turns_max: 2, ..RunLimits::default() };
    let bench = check(
        limited(limits),
        vec![read(1), says("so far")],
        &["model auto", "tools read", "model none", "done completed: so far"],
    );
    assert_eq!(bench.told(), ["This is the last turn. Call no more tools. Answer now with what you have."]);
    let plan = RunPlan { report: report_tool(), ..limited(limits) };
    check(
        plan,
        vec![read(1), calls(&[REPORT])],
        &["model auto", "tools read", "model =agent__final_report", "done completed: all done"],
    );
}

#[test]
fn answer_after_a_refused_call_in_the_last_turn_ends_with_max_turns() {
    let limits = RunLimits { turns_max: 2, ..RunLimits::default() };
    let steps = ["model auto", "tools read", "model none", "model none", "done max_turns: so far"];
    check(limited(limits), vec![read(1), read(2), says("so far")], &steps);
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
fn full_context_forces_the_model_to_answer() {
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
fn spent_budget_allows_exactly_one_more_request() {
    let budget = SpendLimit { usd: Some(0.01), ..SpendLimit::default() };
    let spent = || budget.left(&SpendTotals { usd: 0.02, ..SpendTotals::default() });
    let mut bench = RunTestBench::new(RunPlan { budget, ..RunPlan::default() });
    bench.play(vec![read(1)]);
    bench.readings.left = spent();
    bench.play(vec![read(2)]);
    assert_eq!(
        bench.log[3..],
        ["model none", "done budget"],
        "the run sends no request after a refused call"
    );
    for plan in [RunPlan { report: report_tool(), ..RunPlan::default() }, RunPlan::default()] {
        let mut bench = RunTestBench::new(RunPlan { budget, ..plan });
        bench.readings.left = spent();
        bench.play(vec![empty()]);
        assert_eq!(bench.log.len(), 2, "{:?}", bench.log);
        assert_eq!(bench.log[1], "done budget");
    }
    // The last turn has already begun because of `turns_max`; the budget runs out while the run repeats its request for
    // the final answer.
    let limits = RunLimits { turns_max: 2, ..RunLimits::default() };
    let mut bench = RunTestBench::new(RunPlan { budget, ..limited(limits) });
    bench.play(vec![read(1), read(2)]);
    bench.readings.left = spent();
    bench.play(vec![read(3)]);
    assert_eq!(bench.log[2..], ["model none", "model none", "model none", "done budget"]);
}

#[test]
fn request_that_exceeds_the_remaining_budget_starts_the_last_turn() {
    let check = |left: SpendLimit, context_tokens: u64, request_usd: Option<f64>, expected: &str| {
        let mut bench = RunTestBench::new(RunPlan::default());
        bench.readings.left = left;
        bench.readings.context_tokens = Some(context_tokens);
        bench.readings.request_usd = request_usd;
        bench.play(vec![read(1)]);
        assert_eq!(bench.log[0], "model auto", "the first request is not estimated");
        assert_eq!(bench.log[2], expected, "{left:?} {context_tokens} {request_usd:?}");
    };
    let tokens = SpendLimit { tokens: Some(1000), ..SpendLimit::default() };
    check(tokens, 1000, None, "model auto");
    check(tokens, 1001, None, "model none");
    let usd = SpendLimit { usd: Some(0.5), ..SpendLimit::default() };
    check(usd, 1001, Some(0.4), "model auto");
    check(usd, 1001, Some(0.6), "model none");
    check(SpendLimit::default(), 1_000_000, Some(9.0), "model auto");
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
    bench.run.tools_replied(vec![super::fixture::succeeded(&calls[0])]).unwrap();
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
    let broken = || reply(vec![MessagePart::text("half an ans")], StopReason::CutOff);
    let bench = check(
        RunPlan::default(),
        vec![empty(), broken(), says("whole")],
        &["model auto", "model auto", "model auto", "done completed: whole"],
    );
    assert_eq!(bench.run.counts().turns, 1);
    assert!(bench.told()[0].contains("empty") && bench.told()[1].contains("cut off"));
    let steps = ["model auto", "model auto", "model auto", "model auto", "model auto", "done empty_replies"];
    check(RunPlan::default(), vec![empty(); 5], &steps);
    let mut bench = RunTestBench::new(limited(RunLimits { attempts_max: 2, ..RunLimits::default() }));
    bench.play(vec![broken(), broken()]);
    assert_eq!(bench.log.last().unwrap(), "done cut_replies: half an ans");
}

#[test]
fn reply_cut_off_at_the_length_limit_is_continued_once() {
    let steps = ["model auto", "model auto", "done completed: half and whole"];
    let bench = check(RunPlan::default(), vec![cut("half "), says("and whole")], &steps);
    assert!(bench.told()[0].contains("Continue exactly where it stopped"), "{:?}", bench.told());
    let steps = ["model auto", "model auto", "done max_output_tokens: one two"];
    check(RunPlan::default(), vec![cut("one "), cut("two")], &steps);
    // If the reply holds only reasoning, or a call that the limit cut off, there is nothing to continue, so the model
    // gets one more attempt.
    let thought = || reply(vec![MessagePart::new(PartBody::Reasoning("hm".into()))], StopReason::Length);
    check(
        RunPlan::default(),
        vec![thought(), thought()],
        &["model auto", "model auto", "done max_output_tokens"],
    );
    let half = || ModelReply { stop: StopReason::Length, ..calls(&[("write", r#"{"content": "ha"#)]) };
    check(RunPlan::default(), vec![half(), half()], &["model auto", "model auto", "done max_output_tokens"]);
    // A call between the two replies resets the count, and drops the text before the call.
    let steps = ["model auto", "model auto", "tools read", "model auto", "model auto", "done completed: bc"];
    check(RunPlan::default(), vec![cut("a"), read(1), cut("b"), says("c")], &steps);
    let plan = RunPlan { report: super::fixture::report_xml(), ..RunPlan::default() };
    let steps = ["model auto", "model auto", "done completed: halfwhole"];
    check(plan, vec![cut("<haft-n1-FINAL>half"), says("whole</haft-n1-FINAL>")], &steps);
}

#[test]
fn reply_cut_off_at_the_length_limit_is_not_continued_if_the_caller_bounds_the_output() {
    let limits = RunLimits { continuations_max: 0, ..RunLimits::default() };
    let steps = ["model auto", "done max_output_tokens: half "];
    check(limited(limits), vec![cut("half ")], &steps);
}

#[test]
fn note_about_an_unusable_reply_states_the_use_of_its_text() {
    let noted = |first: ModelReply| {
        let mut bench = RunTestBench::new(RunPlan::default());
        bench.play(vec![first, says("whole")]);
        let notes = bench.run.take_notes().into_iter();
        let found: Vec<UnusableText> = notes
            .filter_map(|note| if let RunNote::AskedAgain { text, .. } = note { Some(text) } else { None })
            .collect();
        found
    };
    assert_eq!(noted(cut("half ")), [UnusableText::Continued]);
    assert_eq!(noted(reply(vec![MessagePart::text("half")], StopReason::CutOff)), [UnusableText::Replaced]);
    assert_eq!(noted(empty()), [UnusableText::Unused]);
}

#[test]
fn client_calls_do_not_count_towards_the_limit_per_turn() {
    let limits = RunLimits { tool_calls_per_turn_max: 2, ..RunLimits::default() };
    let plan = RunPlan { client_tools: ["client".to_owned()].into(), ..limited(limits) };
    let arguments: Vec<String> = (0..5).map(|at| format!("{{\"n\": {at}}}")).collect();
    let mut list: Vec<_> = arguments.iter().map(|arguments| ("client", arguments.as_str())).collect();
    list.extend([("read", "{}"), ("read", "{\"n\": 1}"), ("read", "{\"n\": 2}")]);
    let steps = [
        "model auto",
        "tools read,read",
        "client client,client,client,client,client",
        "model auto",
        "done completed: ok",
    ];
    let bench = check(plan, vec![calls(&list), says("ok")], &steps);
    assert!(bench.replies()[7].contains("at most 2 tool calls"));
    assert_eq!(bench.run.counts().tool_calls, 7);
}

#[test]
fn truncated_call_is_not_executed() {
    let mut half = calls(&[("read", "{}"), ("write", r#"{"content": "half"#)]);
    half.stop = StopReason::Length;
    let bench = check(
        RunPlan::default(),
        vec![half, says("ok")],
        &["model auto", "tools read", "model auto", "done completed: ok"],
    );
    assert!(bench.replies()[1].contains("cut off"));
}

#[test]
fn reply_with_only_reasoning_is_retried() {
    let thought = reply(vec![MessagePart::new(PartBody::Reasoning("hm".into()))], StopReason::EndOfTurn);
    let bench = check(
        RunPlan::default(),
        vec![thought, says("ok")],
        &["model auto", "model auto", "done completed: ok"],
    );
    assert_eq!(bench.run.conversation().messages().len(), 3);
}
