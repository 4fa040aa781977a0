//! Measures the overhead of the engine: all stages of a call to a provider that does nothing.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark panics on an unexpected result and prints its numbers"
)]

use std::alloc::System;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use futures_util::future::{BoxFuture, join_all};
use haft_core::arguments::RawArguments;
use haft_core::event::{Event, EventSink};
use haft_core::name::{Namespace, QueueName, ToolName};
use haft_core::naming::NamingScheme;
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::ToolError;
use haft_core::tool::{CallId, Effects, ToolCall, ToolDefinition, ToolFacts};
use haft_core::validate::ValidArguments;
use haft_engine::{CallOptions, Catalog, Orchestrator, OrchestratorConfig, QueueConfig, Queues, RunContext};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn arguments(offset: usize) -> String {
    format!(
        r#"{{"path": "/src/lib.rs", "offset": {offset}, "limit": 200, "mode": "text", "tags": ["a", "b"], "follow": false}}"#
    )
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1},
            "offset": {"type": "integer", "minimum": 0},
            "limit": {"type": "integer", "minimum": 1, "maximum": 2000},
            "mode": {"enum": ["text", "bytes"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "follow": {"type": "boolean"},
        },
        "required": ["path"],
        "additionalProperties": false,
    })
}

/// A provider with many tools that do nothing.
struct NoOpProvider {
    namespace: Namespace,
    tools: Arc<[ToolDefinition]>,
}

impl NoOpProvider {
    fn with(tools: usize) -> Arc<dyn ToolProvider> {
        let definition = |number: usize| ToolDefinition {
            name: ToolName::new(&format!("tool_{number}")).unwrap(),
            description: "Does nothing, and says so at some length, as tools do.".into(),
            input_schema: schema(),
            output_schema: None,
            effects: Effects::ReadOnly,
            groups: Vec::new(),
            facts: ToolFacts::default(),
            raw: None,
        };
        Arc::new(Self {
            namespace: Namespace::new("idle").unwrap(),
            tools: (0..tools).map(definition).collect(),
        })
    }
}

impl ToolProvider for NoOpProvider {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Mcp
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.tools)
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolName,
        _: &'a ValidArguments,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async { Ok(ToolOutput::text("done")) })
    }
}

/// A sink that counts every event.
#[derive(Default)]
struct EventCountSink(AtomicUsize);

impl EventSink for EventCountSink {
    fn emit(&self, event: Event) {
        self.0.fetch_add(black_box(event).name().len(), Ordering::Relaxed);
    }
}

/// The settings of one benchmark case.
#[derive(Clone, Copy)]
struct BenchCase {
    name: &'static str,
    tools: usize,
    queue: bool,
    cache: CacheRole,
}

/// The role of the cache in a benchmark case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CacheRole {
    Nothing,
    /// All calls are equal, so the cache answers them.
    Hit,
    /// All calls differ, and the cache stores every output.
    Miss,
}

const CASES: [BenchCase; 6] = [
    BenchCase { name: "10 tools", tools: 10, queue: false, cache: CacheRole::Nothing },
    BenchCase { name: "10,000 tools", tools: 10_000, queue: false, cache: CacheRole::Nothing },
    BenchCase { name: "10 tools, queue", tools: 10, queue: true, cache: CacheRole::Nothing },
    BenchCase { name: "10,000 tools, queue", tools: 10_000, queue: true, cache: CacheRole::Nothing },
    BenchCase { name: "10 tools, cache hit", tools: 10, queue: true, cache: CacheRole::Hit },
    BenchCase { name: "10 tools, cache miss that is kept", tools: 10, queue: true, cache: CacheRole::Miss },
];

impl BenchCase {
    fn orchestrator(self) -> Orchestrator {
        let mut config = OrchestratorConfig::default();
        if self.queue {
            config.queues = queue_of_eight();
        }
        config.policies.default.cache_ttl =
            (self.cache != CacheRole::Nothing).then_some(Duration::from_hours(1));
        Orchestrator::try_new(
            Catalog::new(vec![NoOpProvider::with(self.tools)], NamingScheme::Double),
            config,
        )
        .unwrap()
    }

    /// Returns a function that creates the calls of a benchmark case.
    fn calls(self) -> impl FnMut() -> ToolCall {
        let mut number = 0;
        move || {
            number += usize::from(self.cache == CacheRole::Miss);
            call(number)
        }
    }
}

fn queue_of_eight() -> Queues {
    let concurrent = std::num::NonZeroUsize::new(8).unwrap();
    let queue = QueueConfig { concurrent, waiting_max: 1_000, timeout_default: None };
    Queues::new([(QueueName::new("default").unwrap(), queue)])
}

/// Returns the options for every call in a case. The calls share one context, as in a run.
fn watched() -> CallOptions {
    let context = RunContext { events: Arc::new(EventCountSink::default()), ..RunContext::default() };
    CallOptions { context: Arc::new(context), ..CallOptions::default() }
}

fn call(offset: usize) -> ToolCall {
    ToolCall {
        id: CallId("call_1".into()),
        name: "idle__tool_7".into(),
        arguments: RawArguments::from_text(arguments(offset)),
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

fn pipeline(criterion: &mut Criterion) {
    let runtime = runtime();
    let mut group = criterion.benchmark_group("call");
    for case in CASES {
        let (orchestrator, options) = (case.orchestrator(), watched());
        group.bench_function(case.name, |bencher| {
            bencher.iter_batched(
                case.calls(),
                |call| runtime.block_on(orchestrator.execute_with(call, options.clone())),
                criterion::BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn catalog(criterion: &mut Criterion) {
    let provider = NoOpProvider::with(10_000);
    criterion.bench_function("catalog of 10,000 tools", |bencher| {
        bencher.iter_with_large_drop(|| Catalog::new(vec![Arc::clone(&provider)], NamingScheme::Double));
    });
}

/// Counts allocations instead of measuring time, so the result is the same on every machine.
fn allocations(_: &mut Criterion) {
    const CALLS: usize = 1_000;
    let runtime = runtime();
    println!("\n| case | allocations per call | bytes per call |\n|---|---|---|");
    for case in CASES {
        let (orchestrator, options) = (case.orchestrator(), watched());
        // The first call compiles the schema.
        let mut next = case.calls();
        runtime.block_on(orchestrator.execute_with(next(), options.clone()));
        let calls: Vec<_> = (0..CALLS).map(|_| next()).collect();
        let region = Region::new(ALLOCATOR);
        for call in calls {
            black_box(runtime.block_on(orchestrator.execute_with(call, options.clone())));
        }
        let change = region.change();
        let made = (change.allocations + change.reallocations) / CALLS;
        println!("| {} | {made} | {} |", case.name, change.bytes_allocated / CALLS);
    }
    println!();
}

/// A provider whose calls record their number and then wait for a gate.
struct GatedProvider {
    idle: Arc<dyn ToolProvider>,
    gate: Arc<Semaphore>,
    entered: Arc<Mutex<Vec<u64>>>,
}

impl ToolProvider for GatedProvider {
    fn kind(&self) -> ProviderKind {
        self.idle.kind()
    }

    fn namespace(&self) -> &Namespace {
        self.idle.namespace()
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        self.idle.tools()
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolName,
        arguments: &'a ValidArguments,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        self.entered.lock().unwrap().push(arguments.value()["offset"].as_u64().unwrap());
        Box::pin(async {
            let _passed = self.gate.acquire().await;
            Ok(ToolOutput::text("done"))
        })
    }
}

/// Measures 1,000 calls that wait for a queue with eight slots, and checks that they run in order and leak no memory.
fn thousand(criterion: &mut Criterion) {
    const CALLS: usize = 1_000;
    let (gate, entered) = (Arc::new(Semaphore::new(0)), Arc::<Mutex<Vec<u64>>>::default());
    let gated = GatedProvider {
        idle: NoOpProvider::with(10),
        gate: Arc::clone(&gate),
        entered: Arc::clone(&entered),
    };
    let config = OrchestratorConfig { queues: queue_of_eight(), ..Default::default() };
    let catalog = Catalog::new(vec![Arc::new(gated)], NamingScheme::Double);
    let orchestrator = Orchestrator::try_new(catalog, config).unwrap();
    let (runtime, options) = (runtime(), CallOptions::default());
    let calls = || (0..CALLS).map(call).collect::<Vec<_>>();
    let execute = |call: ToolCall| orchestrator.execute_with(call, options.clone());
    let all_of = |calls: Vec<ToolCall>| join_all(calls.into_iter().map(execute));
    // Warm up: the first call compiles the schema, and all buffers grow to their final size.
    gate.add_permits(CALLS);
    runtime.block_on(all_of(calls()));
    entered.lock().unwrap().clear();

    gate.forget_permits(CALLS);
    let region = Region::new(ALLOCATOR);
    let mut all = Box::pin(all_of(calls()));
    assert!(!runtime.block_on(poll_once(all.as_mut())), "no call ends while the gate is closed");
    let held = region.change();
    let held = (held.bytes_allocated - held.bytes_deallocated) / CALLS;
    let waiting = orchestrator.config().queues.snapshot()[0].waiting;
    gate.add_permits(CALLS);
    drop(runtime.block_on(all));
    let left = region.change();
    let left = left.bytes_allocated.cast_signed() - left.bytes_deallocated.cast_signed();
    assert_eq!(waiting, CALLS - 8);
    assert!(entered.lock().unwrap().is_sorted(), "calls start in arrival order");
    println!(
        "\n{CALLS} calls before a queue of 8: {held} bytes for each while they wait, {left} bytes left after all\n"
    );

    criterion.bench_function("1,000 calls at once through a queue of 8", |bencher| {
        bencher.iter_batched(
            calls,
            |calls| {
                entered.lock().unwrap().clear();
                runtime.block_on(all_of(calls))
            },
            criterion::BatchSize::LargeInput,
        );
    });
}

async fn poll_once<F: Future + Unpin>(mut future: F) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx).is_ready())).await
}

criterion_group!(benches, allocations, thousand, pipeline, catalog);
criterion_main!(benches);
