use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use haft_core::arguments::RawArguments;
use haft_core::budget::{ContextLimits, ContextWindow};
use haft_core::name::{QueueName, ToolName};
use haft_core::naming::NamingScheme;
use haft_core::tokens::LengthEstimator;
use haft_core::tool::{CallId, ToolCall, ToolPolicy};
use haft_engine::{
    ANSWER_TOKENS_MIN, CacheUse, CallOptions, Catalog, Orchestrator, OrchestratorConfig, Priority,
    QueueConfig, Queues, RunContext, ToolPolicies,
};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::world::{SimulatedProvider, SimulationRecorder};
use crate::fake::TestRig;

/// The cache TTL of the tool `kept`.
pub(super) const TTL: Duration = Duration::from_secs(2);

/// The tools of the simulation and their queues. Outputs of `kept` are cached.
pub(super) const TOOLS: [(&str, Option<&str>); 5] = [
    ("free", None),
    ("write", None),
    ("narrow", Some("narrow")),
    ("wide", Some("wide")),
    ("kept", Some("wide")),
];

/// Indexes into `TOOLS` for single calls, with more weight on tools with a queue.
const CROWDED: [usize; 7] = [0, 2, 2, 2, 3, 3, 4];

pub(super) const QUEUES: [(&str, usize, usize); 2] = [("narrow", 1, 4), ("wide", 2, 4)];

/// The calls of a scenario, in order.
pub(super) struct SimulatedScenario {
    pub(super) timeout: Duration,
    /// The context budget of the run to which some of the calls belong.
    usable_tokens: u64,
    pub(super) acts: Vec<ScenarioStep>,
}

/// One call, or several calls of one turn.
pub(super) struct ScenarioStep {
    pub(super) pause: Duration,
    pub(super) calls: Vec<ScenarioCall>,
    pub(super) options: CallOptions,
    pub(super) budgeted: BudgetUse,
    pub(super) cancelled_after: Option<Duration>,
}

/// Selects whether a simulated call uses the run's context budget.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BudgetUse {
    Yes,
    /// The call uses the budget, after the conversation was reset to zero tokens.
    Anew,
    No,
}

#[derive(Debug, Clone)]
pub(super) struct ScenarioCall {
    pub(super) number: usize,
    pub(super) tool: &'static str,
    pub(super) behaviour: &'static str,
    pub(super) millis: u64,
    /// The cache key of a call to `kept`: calls with different keys are different calls.
    pub(super) key: u64,
}

impl SimulatedScenario {
    pub(super) fn of(seed: u64) -> Self {
        let mut dice = ScenarioRng(seed);
        let timeout = Duration::from_millis(500 + dice.below(2_500));
        let usable_tokens = 2 * ANSWER_TOKENS_MIN + dice.below(1_500);
        let mut numbers = 0..;
        let acts = (0..10 + dice.below(20)).map(|_| ScenarioStep::roll(&mut dice, &mut numbers)).collect();
        Self { timeout, usable_tokens, acts }
    }

    /// Runs the scenario to its end.
    pub(super) async fn play(&self) -> Arc<SimulationRecorder> {
        let limits =
            ContextLimits { window_tokens: self.usable_tokens, buffer_tokens: 0, output_tokens_max: 0 };
        let world = Arc::new(SimulationRecorder::new(ContextWindow::new(limits, Arc::new(LengthEstimator))));
        let orchestrator = self.orchestrator(&world);
        let mut tasks = Vec::new();
        for act in &self.acts {
            sleep(act.pause).await;
            let task = act.begin(&orchestrator, &world);
            tasks.extend(act.cancelled_after.map(|after| cancel(&task, after)));
            tasks.push(task);
        }
        for task in tasks {
            // A cancelled task returns an error; the recorder has its outcome.
            let _ = task.await;
        }
        world.close(orchestrator.config());
        world
    }

    fn orchestrator(&self, world: &Arc<SimulationRecorder>) -> TestRig {
        let default = ToolPolicy { timeout: self.timeout, ..ToolPolicies::default().default };
        let policy = |(tool, queue): (&str, Option<&str>)| {
            let queue = queue.map(|queue| QueueName::new(queue).unwrap());
            let cache_ttl = (tool == "kept").then_some(TTL);
            (ToolName::new(tool).unwrap(), ToolPolicy { queue, cache_ttl, ..default.clone() })
        };
        let by_tool: HashMap<_, _> = TOOLS.map(policy).into();
        let queue = |(name, concurrent, waiting_max): (&str, usize, usize)| {
            let concurrent = NonZeroUsize::new(concurrent).unwrap();
            let config = QueueConfig { concurrent, waiting_max, timeout_default: None };
            (QueueName::new(name).unwrap(), config)
        };
        let config = OrchestratorConfig {
            policies: ToolPolicies { default, by_tool, governor: None },
            queues: Queues::new(QUEUES.map(queue)),
            ..Default::default()
        };
        let catalog =
            Catalog::new(vec![Arc::new(SimulatedProvider::new(Arc::clone(world)))], NamingScheme::Bare);
        let context = RunContext { events: Arc::clone(world) as _, ..RunContext::default() };
        TestRig::new(Orchestrator::try_new(catalog, config).unwrap(), context)
    }
}

impl ScenarioStep {
    fn roll(dice: &mut ScenarioRng, numbers: &mut impl Iterator<Item = usize>) -> Self {
        // Half of the calls follow without a pause, so that queues fill up.
        let pause = if dice.one_in(2) { 0 } else { dice.below(200) };
        let cancelled_after = dice.one_in(5).then(|| Duration::from_millis(dice.below(1_500)));
        let priority = dice.of(&Priority::ALL);
        let cache = if dice.one_in(8) { CacheUse::Bypass } else { CacheUse::Use };
        // Calls of one turn wait for each other, so they use only tools without a queue.
        let (size, tools): (_, &[usize]) = if dice.one_in(8) { (3, &[0, 1]) } else { (1, &CROWDED) };
        let calls = numbers.take(size).map(|number| ScenarioCall::roll(dice, number, tools)).collect();
        let options = CallOptions { priority, cache, ..Default::default() };
        let budgeted =
            dice.of(&[BudgetUse::Yes, BudgetUse::Yes, BudgetUse::Anew, BudgetUse::No, BudgetUse::No]);
        Self { budgeted, pause: Duration::from_millis(pause), calls, options, cancelled_after }
    }

    fn begin(&self, orchestrator: &TestRig, world: &Arc<SimulationRecorder>) -> JoinHandle<()> {
        let (orchestrator, world) = (orchestrator.clone(), Arc::clone(world));
        let budget = match self.budgeted {
            BudgetUse::No => None,
            BudgetUse::Yes => Some(world.budget()),
            BudgetUse::Anew => {
                world.budget().report(0);
                Some(world.budget())
            }
        };
        let (calls, options) = (self.calls.clone(), CallOptions { budget, ..self.options.clone() });
        for asked in &calls {
            world.ask(asked, &options);
        }
        tokio::spawn(async move {
            for asked in &calls {
                world.arrive(asked.number);
            }
            let asked = calls.iter().map(ScenarioCall::call).collect();
            for result in orchestrator.execute_all(asked, options).await {
                world.answer(&result);
            }
        })
    }
}

impl ScenarioCall {
    fn roll(dice: &mut ScenarioRng, number: usize, tools: &[usize]) -> Self {
        let tool = TOOLS[dice.of(tools)].0;
        let behaviour = dice.of(&["work", "work", "work", "talk", "fail", "panic", "panic_early", "hang"]);
        Self { number, tool, behaviour, millis: dice.below(1_200), key: dice.below(3) }
    }

    fn call(&self) -> ToolCall {
        let Self { number, tool, behaviour, millis, key } = self;
        // Calls to `kept` with the same key are equal; all other calls differ.
        let arguments = match *tool {
            "kept" => json!({"key": key, "behaviour": "work", "millis": 400}),
            _ => json!({"number": number, "behaviour": behaviour, "millis": millis}),
        };
        ToolCall {
            id: CallId(number.to_string()),
            name: (*tool).into(),
            arguments: RawArguments::from_value(&arguments),
        }
    }
}

fn cancel(task: &JoinHandle<()>, after: Duration) -> JoinHandle<()> {
    let task = task.abort_handle();
    tokio::spawn(async move {
        sleep(after).await;
        task.abort();
    })
}

/// The Splitmix64 generator, which is sufficient for test data and deterministic on every platform.
struct ScenarioRng(u64);

impl ScenarioRng {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(u64::try_from(choices.len()).unwrap())).unwrap()]
    }
}
