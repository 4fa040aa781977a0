//! Properties of runs: every run ends for any replies, and a run that was stored at any step resumes with the same
//! result.

use proptest::prelude::*;

use super::fixture::{
    calls, cut, empty, pending, reply, report_tool, report_xml, request, says, stored, succeeded,
};
use crate::compaction::CompactionRules;
use crate::compaction::size::conversation_tokens;
use crate::conversation::{MessagePart, PartBody, ToolReply};
use crate::model_reply::{ModelReply, StopReason};
use crate::model_request::ToolChoice;
use crate::output::ToolOutput;
use crate::result::ToolResult;
use crate::run::budget::SpendLimit;
use crate::run::final_report::FinalReport;
use crate::run::input::{CallEnd, RunInput};
use crate::run::limits::{RunContextLimit, RunLimits};
use crate::run::snapshot::{RunSnapshot, StoredInput};
use crate::run::{AgentRun, CallDecision, DriverReadings, OptionalTools, RunPlan, RunStep};
use crate::tool::ToolCall;

const NAMES: [&str; 8] = [
    "read",
    "write",
    "client",
    "ask",
    "agent__final_report",
    "agent__task_status",
    "agent__batch",
    "router__handoff-to",
];

const ARGUMENTS: [&str; 8] = [
    "{}",
    "{oops",
    "",
    r#"{"status": "success", "content": "x"}"#,
    r#"{"status": "completed", "ready_for_final_report": true, "need_to_run_more_tools": false}"#,
    r#"{"calls": [{"tool": "read"}, {"tool": "ask"}, {"tool": "client"}, {"tool": "agent__batch"}]}"#,
    r#"{"calls": [{"tool": "read"}, {"to"#,
    r#"{"agent": "legal"}"#,
];

fn any_reply() -> impl Strategy<Value = ModelReply> {
    let list = prop::collection::vec((0..NAMES.len(), 0..ARGUMENTS.len()), 1..5);
    let some_calls = (list, any_stop()).prop_map(|(list, stop)| {
        let list: Vec<_> =
            list.into_iter().map(|(name, arguments)| (NAMES[name], ARGUMENTS[arguments])).collect();
        ModelReply { stop, ..calls(&list) }
    });
    let text = prop::sample::select(vec!["hm", "<haft-n1-FINAL>ok", "<haft-n1-FINAL", " "]);
    let some_text = (text, any_stop()).prop_map(|(text, stop)| reply(vec![MessagePart::text(text)], stop));
    let refusal = Just(reply(vec![MessagePart::new(PartBody::Refusal("no".into()))], StopReason::Refusal));
    prop_oneof![6 => some_calls, 3 => some_text, 1 => refusal, 1 => Just(empty()), 1 => Just(cut("x")), 1 => Just(says("y"))]
}

fn any_stop() -> impl Strategy<Value = StopReason> {
    prop::sample::select(vec![
        StopReason::EndOfTurn,
        StopReason::ToolCalls,
        StopReason::Length,
        StopReason::Paused,
        StopReason::CutOff,
        StopReason::Other("?".into()),
    ])
}

fn any_plan() -> impl Strategy<Value = RunPlan> {
    let report = prop::sample::select(vec![0, 1, 2]);
    let choice = prop::sample::select(vec![
        ToolChoice::Auto,
        ToolChoice::None,
        ToolChoice::Required,
        ToolChoice::Named("read".into()),
    ]);
    let allowed =
        prop::option::of(prop::sample::select(vec![vec![], vec!["read".to_owned(), "client".to_owned()]]));
    (report, choice, allowed, 0_u32..5, prop::option::of(0_u32..6), any::<bool>()).prop_map(
        |(report, tool_choice, allowed_tools, turns_max, tool_calls_max, own)| RunPlan {
            limits: RunLimits {
                turns_max,
                tool_calls_max,
                tool_calls_per_turn_max: 3,
                attempts_max: 3,
                continuations_max: 1,
                context: own.then_some(SMALL_CONTEXT),
            },
            compaction: own.then(|| CompactionRules { keep_turns: 1, ..CompactionRules::default() }),
            budget: SpendLimit { calls: Some(12), ..SpendLimit::default() },
            tool_choice,
            allowed_tools,
            client_tools: ["client".to_owned()].into(),
            report: match report {
                0 => FinalReport::None,
                1 => report_tool(),
                _ => report_xml(),
            },
            routes: crate::internal_tools::handoff::HandoffRoutes {
                destinations: vec!["legal".into()],
                path: Vec::new(),
            },
            offer: OptionalTools { task_status: own, batch: own },
            ..RunPlan::default()
        },
    )
}

/// A context window that a few outputs of `write` fill.
const SMALL_CONTEXT: RunContextLimit =
    RunContextLimit { window_tokens: 1_300, output_tokens: 200, buffer_tokens: 100 };

/// Returns the result of a call. The result of `write` is large.
fn result(call: &ToolCall) -> ToolResult {
    let text = "x".repeat(1_600);
    match call.name.as_str() {
        "write" => ToolResult { outcome: Ok(ToolOutput::text(text)), ..succeeded(call) },
        _ => succeeded(call),
    }
}

/// A deterministic environment: its behaviour depends only on the past, so that two runs are comparable.
struct ScriptedEnvironment {
    replies: Vec<ModelReply>,
    asked: usize,
    readings: DriverReadings,
    steps: Vec<String>,
    inputs: Vec<RunInput>,
    /// The context size. Like a driver, this environment counts it at the end of each call, not at the end of each
    /// turn.
    tokens: u64,
}

impl ScriptedEnvironment {
    fn new(replies: Vec<ModelReply>) -> Self {
        let readings = DriverReadings::default();
        Self { replies, asked: 0, readings, steps: Vec::new(), inputs: Vec::new(), tokens: 10 }
    }

    fn apply(&mut self, run: &mut AgentRun, input: RunInput) {
        self.inputs.push(input.clone());
        let is_compaction = matches!(input, RunInput::Archived(_) | RunInput::Summarized(_));
        let bytes = serde_json::to_string(&StoredInput::of(&input)).unwrap().len() as u64;
        run.apply(input).unwrap();
        self.tokens =
            if is_compaction { conversation_tokens(run.conversation()) } else { self.tokens + bytes / 4 };
    }

    /// Carries out one step and returns true if the run is done.
    fn turn(&mut self, run: &mut AgentRun) -> bool {
        self.readings.context_tokens = Some(self.tokens);
        let step = run.next_step(&self.readings);
        self.inputs.push(RunInput::Stepped(self.readings));
        self.steps.push(match &step {
            RunStep::CallModel(request) => format!("{:?} {:?}", request.tool_choice, request.conversation),
            other => format!("{other:?}"),
        });
        match step {
            RunStep::CallModel(_) => {
                let reply = self.replies[self.asked % self.replies.len()].clone();
                self.asked += 1;
                self.apply(run, RunInput::Replied(reply));
            }
            RunStep::Archive(request) => self.apply(run, RunInput::Archived(stored(&request))),
            RunStep::Summarize(_) => {
                let reply = self.replies[self.steps.len() % self.replies.len()].clone();
                self.apply(run, RunInput::Summarized(reply));
            }
            RunStep::CallTools(calls) => {
                let left = self.readings.left.calls.unwrap_or(12);
                self.readings.left.calls = Some(left.saturating_sub(calls.len() as u64));
                let is_new = |name: &str| name == "ask" && self.steps.len().is_multiple_of(2);
                let results =
                    calls.iter().map(|call| if is_new(&call.name) { pending(call) } else { result(call) });
                let ends = results.map(CallEnd::of).collect();
                self.apply(run, RunInput::Ended(ends));
            }
            RunStep::AwaitApproval(calls) => {
                self.apply(
                    run,
                    RunInput::Decided { call: calls[0].id.clone(), decision: CallDecision::Allow },
                );
            }
            RunStep::AwaitClient(calls) => {
                self.apply(run, RunInput::ClientReplied(vec![ToolReply::text(&calls[0], "ok")]));
            }
            RunStep::Done(_) => return true,
        }
        false
    }
}

/// A limit far above the number of steps that any of these runs may take.
const STEPS_MAX: usize = 2_000;

fn finish(run: &mut AgentRun, world: &mut ScriptedEnvironment) -> bool {
    (0..STEPS_MAX).any(|_| world.turn(run))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_run_ends_within_its_turn_limit(plan in any_plan(), replies in prop::collection::vec(any_reply(), 1..12)) {
        let turns_max = plan.limits.turns_max.max(1);
        let mut world = ScriptedEnvironment::new(replies);
        let mut run = AgentRun::new(request(), plan);
        prop_assert!(finish(&mut run, &mut world), "{:#?}", world.steps.last());
        prop_assert!(run.counts().turns <= turns_max);
        prop_assert!(world.asked <= (turns_max * 3) as usize);
        prop_assert!(run.conversation().open_calls().next().is_none());
    }

    #[test]
    fn resumed_run_takes_the_same_steps_as_the_original(
        plan in any_plan(),
        replies in prop::collection::vec(any_reply(), 1..12),
        stored_after in 0_usize..12,
    ) {
        let world = || ScriptedEnvironment::new(replies.clone());
        let (mut here, mut there) = (world(), world());
        let mut run = AgentRun::new(request(), plan.clone());
        finish(&mut run, &mut here);
        let mut moved = AgentRun::new(request(), plan);
        for _ in 0..stored_after {
            there.turn(&mut moved);
        }
        // A run that was stored after it returned a step must return the same step when it resumes.
        there.readings.context_tokens = Some(there.tokens);
        moved.next_step(&there.readings);
        let text = moved.snapshot().to_json().unwrap();
        let mut moved = RunSnapshot::from_json(&text).unwrap().resume(request()).unwrap();
        prop_assert_eq!(moved.snapshot().to_json().unwrap(), text);
        finish(&mut moved, &mut there);
        // A run that had ended before it was stored reports its end a second time.
        here.steps.dedup();
        there.steps.dedup();
        prop_assert_eq!(here.steps, there.steps);
    }

    #[test]
    fn replaying_the_inputs_rebuilds_the_same_run(
        plan in any_plan(),
        replies in prop::collection::vec(any_reply(), 1..12),
        turns in 0_usize..12,
        more in any::<bool>(),
    ) {
        let mut world = ScriptedEnvironment::new(replies);
        let mut run = AgentRun::new(request(), plan.clone());
        for _ in 0..turns {
            world.turn(&mut run);
        }
        if more {
            world.apply(&mut run, RunInput::Requested("and now?".into()));
            world.turn(&mut run);
        }
        let mut again = AgentRun::new(request(), plan);
        for input in &world.inputs {
            let stored = serde_json::to_string(&StoredInput::of(input)).unwrap();
            let input = serde_json::from_str::<StoredInput>(&stored).unwrap().into_input().unwrap();
            again.apply(input).unwrap();
        }
        prop_assert_eq!(again.snapshot(), run.snapshot());
    }
}
