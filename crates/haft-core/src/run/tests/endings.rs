//! The ends of runs: reports, signals and failures.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::fixture::{
    REPORT, RunTestBench, calls, check, cut, empty, reply, report_tool, report_xml, request, says,
};
use crate::conversation::{MessagePart, PartBody};
use crate::internal_tools::final_report::ReportShape;
use crate::internal_tools::report_format::ReportFormat;
use crate::model_error::{ModelError, ModelErrorKind};
use crate::model_reply::StopReason;
use crate::model_request::{ModelRequest, ModelTool, OutputShape};
use crate::run::final_report::FinalReport;
use crate::run::finish::FinishReason;
use crate::run::{AbortReason, AgentRun, DriverReadings, OptionalTools, RunNote, RunPlan, RunStep};

fn with_tool() -> RunPlan {
    RunPlan { report: report_tool(), ..RunPlan::default() }
}

fn with_xml() -> RunPlan {
    RunPlan { report: report_xml(), ..RunPlan::default() }
}

#[test]
fn report_ends_the_run_after_the_other_calls_of_its_turn() {
    let bench = check(
        with_tool(),
        vec![calls(&[("write", "{}"), REPORT])],
        &["model auto", "tools write", "done completed: all done"],
    );
    assert_eq!(bench.replies(), ["write ok", "the report was accepted"]);
}

#[test]
fn plain_text_does_not_replace_a_required_report() {
    let bench = check(
        with_tool(),
        vec![says("hello"), calls(&[REPORT])],
        &["model auto", "model auto", "done completed: all done"],
    );
    assert!(bench.told()[0].contains("agent__final_report"));
    let mut bench = RunTestBench::new(with_tool());
    bench.play(vec![says("hello"); 5]);
    assert_eq!(bench.log.last().unwrap(), "done no_report: hello");
}

#[test]
fn invalid_report_may_be_corrected_once() {
    let bad = || calls(&[("agent__final_report", r#"{"status": "great", "content": "x"}"#)]);
    let bench = check(
        with_tool(),
        vec![bad(), calls(&[REPORT])],
        &["model auto", "model auto", "done completed: all done"],
    );
    assert!(bench.replies()[0].contains("`status` must be"));
    check(with_tool(), vec![bad(), bad()], &["model auto", "model auto", "done invalid_report"]);
}

#[test]
fn only_a_run_without_tools_lets_the_provider_enforce_the_format() {
    let json = |schema: serde_json::Value| FinalReport::Text(ReportShape::json(Arc::new(schema)).unwrap());
    let object = json!({"type": "object", "required": ["n"]});
    let enforced = OutputShape::Schema { name: "answer".into(), schema: Arc::new(object.clone()) };
    let check = |report: FinalReport, tools: Arc<[ModelTool]>, expected: &OutputShape| {
        let request = ModelRequest { tools, ..request() };
        let mut run = AgentRun::new(request, RunPlan { report, ..RunPlan::default() });
        let RunStep::CallModel(sent) = run.next_step(&DriverReadings::default()) else { panic!("{run:?}") };
        assert_eq!(sent.output, *expected);
    };
    let none = || Arc::new([]);
    check(json(object.clone()), none(), &enforced);
    check(json(object.clone()), request().tools, &OutputShape::Text);
    check(json(json!({"type": "array"})), none(), &OutputShape::Text);
    check(FinalReport::Text(ReportShape::plain(ReportFormat::Json)), none(), &OutputShape::Json);
    check(FinalReport::None, none(), &OutputShape::Text);
}

#[test]
fn only_text_that_matches_the_schema_is_accepted_as_the_answer() {
    let schema = std::sync::Arc::new(serde_json::json!({"type": "object", "required": ["n"]}));
    let shape = || ReportShape::json(schema.clone()).unwrap();
    for report in [FinalReport::Tool(shape()), FinalReport::Text(shape())] {
        let plan = || RunPlan { report: report.clone(), ..RunPlan::default() };
        check(plan(), vec![says(r#"{"n": 1}"#)], &["model auto", r#"done completed: {"n":1}"#]);
        check(plan(), vec![says("```json\n{\"n\": 1}\n```")], &["model auto", r#"done completed: {"n":1}"#]);
        let steps = ["model auto", "model auto", r#"done completed: {"n":2}"#];
        let bench = check(plan(), vec![says("one"), says(r#"{"n": 2}"#)], &steps);
        assert!(bench.told()[0].contains("not accepted"), "{:?}", bench.told());
        check(
            plan(),
            vec![says(r#"{"m": 1}"#), says("two")],
            &["model auto", "model auto", "done invalid_report"],
        );
    }
}

#[test]
fn report_between_xml_tags_ends_the_run() {
    let tag = |text: &str| format!("<haft-n1-FINAL format=\"text\">{text}");
    check(
        with_xml(),
        vec![says(&format!("{}</haft-n1-FINAL>", tag("red")))],
        &["model auto", "done completed: red"],
    );
    check(with_xml(), vec![says(&tag("unclosed"))], &["model auto", "done completed: unclosed"]);
    check(
        with_xml(),
        vec![cut(&tag("hal")), says(&tag("whole"))],
        &["model auto", "model auto", "done completed: whole"],
    );
    check(
        with_xml(),
        vec![says("red"), says(&tag("red"))],
        &["model auto", "model auto", "done completed: red"],
    );
    check(
        with_xml(),
        vec![says(&tag(" ")), says(&tag(" "))],
        &["model auto", "model auto", "done invalid_report: <haft-n1-FINAL format=\"text\"> "],
    );
    let mut both = calls(&[("read", "{}")]);
    both.parts.push(MessagePart::text(tag("with a call")));
    check(with_xml(), vec![both], &["model auto", "tools read", "done completed: with a call"]);
}

#[test]
fn completed_task_status_forces_the_report() {
    let offer = OptionalTools { task_status: true, batch: false };
    let status = |ready: bool| {
        format!(
            r#"{{"status": "completed", "ready_for_final_report": {ready}, "need_to_run_more_tools": false}}"#
        )
    };
    let plan = || RunPlan { offer, ..with_tool() };
    let steps = ["model auto", "model =agent__final_report", "done completed: all done"];
    let mut bench =
        check(plan(), vec![calls(&[("agent__task_status", &status(true))]), calls(&[REPORT])], &steps);
    assert!(matches!(bench.run.take_notes()[0], RunNote::Status(_)));
    let steps = ["model auto", "model auto", "done completed: all done"];
    let bench =
        check(plan(), vec![calls(&[("agent__task_status", &status(false))]), calls(&[REPORT])], &steps);
    assert!(bench.replies()[0].contains("you say `completed`"));
}

#[test]
fn model_may_call_only_the_report_after_a_stop_request() {
    let mut bench = RunTestBench::new(with_tool());
    bench.step();
    bench.run.stop();
    bench.run.model_replied(calls(&[("write", "{}")])).unwrap();
    bench.step();
    bench.run.model_replied(calls(&[REPORT])).unwrap();
    bench.step();
    assert_eq!(bench.log, ["model auto", "model =agent__final_report", "done stopped: all done"]);
    assert!(bench.replies()[0].contains("asked to stop"));
}

#[test]
fn stop_waits_for_running_tools_but_not_for_client_tools() {
    let plan = RunPlan { client_tools: ["client".to_owned()].into(), ..RunPlan::default() };
    let mut bench = RunTestBench::new(plan);
    bench.step();
    bench.run.model_replied(calls(&[("write", "{}"), ("client", "{}")])).unwrap();
    let RunStep::CallTools(open) = bench.step() else { panic!() };
    bench.run.stop();
    bench.step();
    bench.run.tools_replied(vec![super::fixture::succeeded(&open[0])]).unwrap();
    bench.step();
    assert_eq!(bench.log, ["model auto", "tools write", "tools write", "model none"]);
    assert_eq!(bench.replies()[0], "write ok");
    assert!(bench.replies()[1].contains("asked to stop"));
}

#[test]
fn run_is_between_turns_only_after_all_calls_of_a_usable_reply() {
    let mut bench = RunTestBench::new(RunPlan::default());
    assert!(!bench.run.is_between_turns(), "a run without a request is not between turns");
    bench.step();
    bench.run.model_replied(calls(&[("write", "{}"), ("write", "{}")])).unwrap();
    assert!(!bench.run.is_between_turns());
    let RunStep::CallTools(open) = bench.step() else { panic!() };
    bench.run.tools_replied(vec![super::fixture::succeeded(&open[0])]).unwrap();
    assert!(!bench.run.is_between_turns(), "a run with a running call is not between turns");
    bench.run.tools_replied(vec![super::fixture::succeeded(&open[1])]).unwrap();
    assert!(bench.run.is_between_turns());
    bench.run.abort(AbortReason::Steered);
    let RunStep::Done(finish) = bench.step() else { panic!() };
    assert_eq!(
        (finish.reason.name(), bench.replies()),
        ("steered", vec!["write ok".into(), "write ok".into()])
    );
    assert!(!bench.run.is_between_turns(), "an ended run is not between turns");
    let mut bench = RunTestBench::new(RunPlan::default());
    bench.step();
    bench.run.model_replied(empty()).unwrap();
    assert!(!bench.run.is_between_turns(), "an unusable reply is retried in the same turn");
}

#[test]
fn abort_ends_the_run_and_keeps_the_conversation() {
    let mut bench = RunTestBench::new(RunPlan::default());
    bench.step();
    bench.run.model_replied(calls(&[("write", "{}")])).unwrap();
    bench.step();
    bench.run.abort(AbortReason::Interrupted);
    bench.run.abort(AbortReason::TimedOut);
    bench.readings.now_ms = 7;
    let RunStep::Done(finish) = bench.step() else { panic!() };
    assert_eq!((finish.reason, finish.ended_ms), (FinishReason::Aborted, Some(7)));
    assert_eq!(bench.replies().len(), 1);
    bench.readings.now_ms = 8;
    let RunStep::Done(finish) = bench.step() else { panic!() };
    assert_eq!(finish.ended_ms, Some(7));
    assert!(bench.run.tools_replied(Vec::new()).is_err());
    let mut bench = RunTestBench::new(RunPlan::default());
    bench.run.abort(AbortReason::TimedOut);
    bench.step();
    assert_eq!(bench.log, ["done timed_out"]);
}

#[test]
fn refusal_filter_or_model_error_ends_the_run() {
    let refusal =
        reply(vec![MessagePart::new(PartBody::Refusal("I will not".into()))], StopReason::EndOfTurn);
    check(RunPlan::default(), vec![refusal], &["model auto", "done refused"]);
    check(
        RunPlan::default(),
        vec![reply(vec![MessagePart::text("ha")], StopReason::Filtered)],
        &["model auto", "done filtered: ha"],
    );
    let mut bench = RunTestBench::new(RunPlan::default());
    bench.step();
    let retry_after = Some(Duration::from_mins(5));
    let error = ModelError { retry_after, ..ModelError::new(ModelErrorKind::RateLimited, "429") };
    bench.run.model_failed(&error).unwrap();
    let RunStep::Done(finish) = bench.step() else { panic!() };
    assert_eq!(finish.reason, FinishReason::ModelFailed(ModelErrorKind::RateLimited));
    assert!(finish.detail.contains("429"));
    assert_eq!(finish.retry_after, retry_after);
}

#[test]
fn paused_reply_is_continued_without_a_new_message() {
    let paused = reply(vec![MessagePart::text("let me")], StopReason::Paused);
    let bench = check(
        RunPlan::default(),
        vec![paused, says("ok")],
        &["model auto", "model auto", "done completed: ok"],
    );
    assert!(bench.told().is_empty());
}

#[test]
fn finish_reasons_have_unique_names_and_hints() {
    let mut seen = std::collections::HashSet::new();
    for reason in FinishReason::PLAIN {
        let row = reason.row();
        assert!(seen.insert(row.name) && seen.insert(row.hint), "{row:?}");
    }
}
