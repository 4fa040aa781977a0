//! Tests of compaction in a run: the time of its start, its steps, and the behaviour if a step fails.

use super::fixture::{RunTestBench, calls, empty, says, stored};
use crate::compaction::{CompactionRules, CompactionScope};
use crate::conversation::{PartBody, Role};
use crate::model_error::{ModelError, ModelErrorKind};
use crate::model_reply::ModelReply;
use crate::output::ToolOutput;
use crate::output_store::{Handle, StoreEntry};
use crate::result::{Receipt, ToolResult};
use crate::run::budget::SpendLimit;
use crate::run::finish::FinishReason;
use crate::run::input::ArchiveOutcome;
use crate::run::limits::{RunContextLimit, RunLimits};
use crate::run::note::SummaryAuthor;
use crate::run::{RunNote, RunPlan, RunStep};

const WINDOW: RunContextLimit =
    RunContextLimit { window_tokens: 3_000, output_tokens: 400, buffer_tokens: 100 };

fn plan() -> RunPlan {
    RunPlan {
        limits: RunLimits { turns_max: 1_000, context: Some(WINDOW), ..RunLimits::default() },
        compaction: Some(CompactionRules { keep_turns: 2, ..CompactionRules::default() }),
        ..RunPlan::default()
    }
}

fn bench(plan: RunPlan) -> RunTestBench {
    let mut bench = RunTestBench::new(plan);
    bench.readings.context_tokens = Some(10);
    bench
}

/// Plays a turn that reads this many bytes.
fn turn(bench: &mut RunTestBench, number: usize, bytes: usize) {
    let path = format!("{{\"path\": \"{number}\"}}");
    bench.run.model_replied(calls(&[("read", &path)])).unwrap();
    let RunStep::CallTools(asked) = bench.step() else { panic!("{:?}", bench.log) };
    let text = format!("fact {number} ").repeat(bytes.div_ceil(7));
    let outcome = Ok(ToolOutput::text(&text[..bytes]));
    bench
        .run
        .tools_replied(vec![ToolResult { call: asked[0].clone(), outcome, receipt: Receipt::default() }])
        .unwrap();
    bench.run.next_step(&crate::run::DriverReadings::default());
    bench.shrink();
    bench.log.clear();
}

/// Plays turns until the conversation needs a compaction. The next step is the first step of the compaction.
fn filled(mut bench: RunTestBench, bytes: usize) -> RunTestBench {
    bench.step();
    for number in 0.. {
        turn(&mut bench, number, bytes);
        if bench.readings.context_tokens.unwrap() > 2_125 {
            return bench;
        }
    }
    unreachable!()
}

fn notes(bench: &mut RunTestBench) -> Vec<String> {
    bench.run.take_notes().iter().map(|note| note.name().to_owned()).collect()
}

#[test]
fn old_outputs_move_to_the_archive_before_any_request_for_a_summary() {
    let mut bench = filled(bench(plan()), 1_000);
    let before_tokens = bench.readings.context_tokens.unwrap();
    assert!(bench.until_model().is_none());
    assert_eq!(bench.log, ["archive", "model auto"]);
    let noted = bench.run.take_notes();
    let [RunNote::Compacted(compaction)] = noted.as_slice() else { panic!("{noted:?}") };
    assert_eq!((compaction.scope, compaction.before_tokens), (CompactionScope::Outputs, before_tokens));
    assert_eq!(compaction.after_tokens, bench.readings.context_tokens.unwrap());
    assert!(compaction.after_tokens < before_tokens / 2 && compaction.items > 4, "{compaction:?}");
    assert!(bench.replies().last().unwrap().starts_with("fact"), "the last outputs are unchanged");
}

#[test]
fn turns_are_summarized_when_their_outputs_are_small() {
    let mut bench = filled(bench(plan()), 300);
    assert!(bench.until_model().is_none());
    assert_eq!(bench.log, ["archive", "summarize", "model auto"]);
    let noted = bench.run.take_notes();
    let [RunNote::Compacted(compaction)] = noted.as_slice() else { panic!("{noted:?}") };
    assert_eq!(compaction.summary, Some(SummaryAuthor::Model));
    assert_eq!(bench.run.conversation().messages()[1].role, Role::User);
}

#[test]
fn run_without_compaction_rules_or_below_the_threshold_does_not_compact() {
    let mut off = filled(bench(RunPlan { compaction: None, ..plan() }), 1_000);
    assert!(off.until_model().is_none());
    assert_eq!(off.log, ["model auto"]);
    let later = Some(CompactionRules { at_percent: 100, ..CompactionRules::default() });
    let mut later = filled(bench(RunPlan { compaction: later, ..plan() }), 1_000);
    later.readings.context_tokens = Some(2_500);
    assert!(later.until_model().is_none());
    assert_eq!(later.log, ["model auto"]);
}

#[test]
fn run_ends_with_context_full_if_nothing_is_left_to_compact() {
    let mut bench = bench(plan());
    bench.step();
    turn(&mut bench, 0, 400);
    bench.readings.context_tokens = Some(2_501);
    assert!(bench.until_model().is_none());
    assert_eq!(bench.log, ["model none"], "the last turn is not compacted");
    let finish = bench.play(vec![says("short")]).unwrap();
    assert_eq!(finish.reason, FinishReason::ContextFull);
}

#[test]
fn run_with_a_spent_budget_does_not_compact() {
    let mut spent = filled(bench(plan()), 300);
    spent.readings.left = SpendLimit { tokens: Some(0), ..SpendLimit::default() };
    assert!(spent.until_model().is_none());
    assert_eq!(spent.log, ["model none"]);
    // The budget is enough for the next request, but not for a summary before it.
    let mut short = filled(bench(plan()), 300);
    let tokens = short.readings.context_tokens.unwrap();
    short.readings.left = SpendLimit { tokens: Some(tokens + 10), ..SpendLimit::default() };
    assert!(short.until_model().is_none());
    assert_eq!(short.log, ["model auto"]);
    // Moving outputs to the archive costs nothing.
    let mut outputs = filled(bench(plan()), 1_000);
    let tokens = outputs.readings.context_tokens.unwrap();
    outputs.readings.left = SpendLimit { tokens: Some(tokens + 10), ..SpendLimit::default() };
    assert!(outputs.until_model().is_none());
    assert_eq!(outputs.log, ["archive", "model auto"]);
}

#[test]
fn unusable_summary_is_requested_twice_and_then_replaced_by_a_list() {
    let long = says(&"blah ".repeat(10_000));
    let cases: Vec<(&str, ModelReply)> =
        vec![("empty", empty()), ("calls", calls(&[("read", "{}")])), ("longer than the turns", long)];
    for (name, bad) in cases {
        let mut bench = filled(bench(plan()), 300);
        bench.summaries = [bad.clone(), bad].into();
        assert!(bench.until_model().is_none());
        assert_eq!(bench.log, ["archive", "summarize", "summarize", "model auto"], "{name}");
        assert_eq!(notes(&mut bench), ["compaction_fault", "compaction_fault", "compacted"], "{name}");
        let PartBody::Text { text, .. } = &bench.run.conversation().messages()[1].parts[0].body else {
            panic!("expected a text")
        };
        assert!(text.contains("The newest of the calls") && text.contains("grep PATTERN"), "{text}");
    }
    let mut again = filled(bench(plan()), 300);
    again.summaries = [empty()].into();
    assert!(again.until_model().is_none());
    assert_eq!(again.log, ["archive", "summarize", "summarize", "model auto"]);
    assert_eq!(notes(&mut again), ["compaction_fault", "compacted"], "the second summary is used");
}

#[test]
fn failed_summary_does_not_end_the_run() {
    let mut bench = filled(bench(plan()), 300);
    let RunStep::Archive(request) = bench.step() else { panic!("{:?}", bench.log) };
    bench.run.archived(stored(&request)).unwrap();
    for _ in 0..2 {
        let RunStep::Summarize(_) = bench.step() else { panic!("{:?}", bench.log) };
        bench.run.summary_failed(&ModelError::new(ModelErrorKind::Timeout, "late")).unwrap();
    }
    assert!(bench.until_model().is_none());
    assert_eq!(bench.log.last().unwrap(), "model auto");
}

#[test]
fn turns_leave_the_conversation_only_if_they_are_summarized_or_stored() {
    let fail = |bench: &mut RunTestBench| {
        let RunStep::Archive(_) = bench.step() else { panic!("{:?}", bench.log) };
        bench.run.archived(ArchiveOutcome::Failed("no store".into())).unwrap();
    };
    let mut bench_with = filled(bench(plan()), 1_000);
    fail(&mut bench_with);
    assert!(bench_with.until_model().is_none());
    assert_eq!(
        bench_with.log,
        ["archive", "summarize", "model auto"],
        "outputs that cannot be stored are summarized"
    );
    let mut without = filled(bench(plan()), 300);
    let before = without.run.conversation().messages().len();
    without.summaries = [empty(), empty()].into();
    fail(&mut without);
    assert!(without.until_model().is_none());
    assert_eq!(without.log, ["archive", "summarize", "summarize", "model auto"]);
    assert_eq!(without.run.conversation().messages().len(), before);
}

#[test]
fn run_compacts_once_per_turn_unless_its_context_is_still_full() {
    let mut bench = filled(bench(plan()), 1_000);
    let RunStep::Archive(request) = bench.step() else { panic!("{:?}", bench.log) };
    bench.run.archived(stored(&request)).unwrap();
    // The provider counts far more tokens than haft.
    bench.readings.context_tokens = Some(2_400);
    assert!(matches!(bench.step(), RunStep::CallModel(_)), "{:?}", bench.log);
    bench.readings.context_tokens = Some(2_600);
    assert!(matches!(bench.step(), RunStep::Archive(_)), "{:?}", bench.log);
}

#[test]
fn run_repeats_each_compaction_step_until_it_gets_the_outcome() {
    let mut bench = filled(bench(plan()), 300);
    let shown = |step: RunStep| format!("{step:?}");
    let archive = shown(bench.step());
    assert_eq!(shown(bench.step()), archive);
    bench.run.model_replied(says("too early")).unwrap_err();
    bench.run.summarized(&says("too early")).unwrap_err();
    let RunStep::Archive(request) = bench.step() else { panic!("{:?}", bench.log) };
    bench.run.archived(stored(&request)).unwrap();
    let summarize = shown(bench.step());
    assert_eq!(shown(bench.step()), summarize);
    bench.run.archived(stored(&request)).unwrap_err();
    bench.run.summarized(&says("gist")).unwrap();
    bench.shrink();
    assert!(matches!(bench.step(), RunStep::CallModel(_)));
    bench.run.summarized(&says("too late")).unwrap_err();
}

#[test]
fn stop_request_ends_a_compaction_in_progress() {
    let mut bench = filled(bench(plan()), 300);
    bench.step();
    bench.run.stop();
    assert!(bench.until_model().is_none());
    assert_eq!(bench.log, ["archive", "model none"]);
}

#[test]
fn later_request_appends_to_the_archive_and_names_it_after_a_new_archive_starts() {
    let mut bench = filled(bench(plan()), 300);
    assert!(bench.until_model().is_none());
    bench.run.model_replied(says("answer")).unwrap();
    bench.step();
    bench.run.requested("more").unwrap();
    bench.log.clear();
    let mut bench = filled(bench, 300);
    let RunStep::Archive(request) = bench.step() else { panic!("{:?}", bench.log) };
    let first = request.archive.clone().unwrap();
    let other = Handle::new("1a1b2c3d-0000-4000-8000-000000000000", first.handle.file()).unwrap();
    let entry = StoreEntry { handle: other.clone(), bytes: 9, lines: 9, complete: true };
    bench.run.archived(ArchiveOutcome::Stored(entry)).unwrap();
    assert!(bench.until_model().is_none());
    let PartBody::Text { text, .. } = &bench.run.conversation().messages()[1].parts[0].body else {
        panic!("expected a text")
    };
    let earlier = format!("Read earlier messages in the same way with handle = \"{}\"", first.handle);
    assert!(text.contains(&earlier) && text.contains(&other.to_string()), "{text}");
}
