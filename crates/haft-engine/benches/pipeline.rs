//! What the engine itself costs: every stage of a call around a provider that does nothing.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark stops at the first surprise and prints"
)]

use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use futures_util::future::BoxFuture;
use haft_core::arguments::Arguments;
use haft_core::event::{Event, EventSink};
use haft_core::name::{Namespace, QueueName, ToolName};
use haft_core::naming::Scheme;
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::ToolError;
use haft_core::tool::{CallId, Effects, ToolCall, ToolDefinition};
use haft_core::validate::ValidArguments;
use haft_engine::{Catalog, Orchestrator, OrchestratorConfig, QueueConfig, Queues};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ARGUMENTS: &str = r#"{"path": "/src/lib.rs", "offset": 10, "limit": 200, "mode": "text", "tags": ["a", "b"], "follow": false}"#;

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

/// Many tools that do nothing.
struct Idle {
    namespace: Namespace,
    tools: Arc<[ToolDefinition]>,
}

impl Idle {
    fn with(tools: usize) -> Arc<dyn ToolProvider> {
        let definition = |number: usize| ToolDefinition {
            name: ToolName::new(&format!("tool_{number}")).unwrap(),
            description: "Does nothing, and says so at some length, as tools do.".into(),
            input_schema: schema(),
            output_schema: None,
            effects: Effects::ReadOnly,
            groups: Vec::new(),
            raw: None,
        };
        Arc::new(Self {
            namespace: Namespace::new("idle").unwrap(),
            tools: (0..tools).map(definition).collect(),
        })
    }
}

impl ToolProvider for Idle {
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

/// One sink that looks at every event.
#[derive(Default)]
struct Counting(AtomicUsize);

impl EventSink for Counting {
    fn emit(&self, event: Event) {
        self.0.fetch_add(black_box(event).name().len(), Ordering::Relaxed);
    }
}

/// How the calls of a case are carried out.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    tools: usize,
    queue: bool,
    cache: bool,
}

const CASES: [Case; 5] = [
    Case { name: "10 tools", tools: 10, queue: false, cache: false },
    Case { name: "10,000 tools", tools: 10_000, queue: false, cache: false },
    Case { name: "10 tools, queue", tools: 10, queue: true, cache: false },
    Case { name: "10,000 tools, queue", tools: 10_000, queue: true, cache: false },
    Case { name: "10 tools, cache hit", tools: 10, queue: true, cache: true },
];

impl Case {
    fn orchestrator(self) -> Orchestrator {
        let mut config = OrchestratorConfig { events: Arc::new(Counting::default()), ..Default::default() };
        if self.queue {
            let name = QueueName::new("default").unwrap();
            let concurrent = std::num::NonZeroUsize::new(8).unwrap();
            let queue = QueueConfig { concurrent, waiting_max: 100, timeout_default: None };
            config.queues = Queues::new([(name, queue)]);
        }
        config.policies.default.cache_ttl = self.cache.then_some(Duration::from_hours(1));
        Orchestrator::try_new(Catalog::new(vec![Idle::with(self.tools)], Scheme::Double), config).unwrap()
    }
}

fn call() -> ToolCall {
    ToolCall {
        id: CallId("call_1".into()),
        name: "idle__tool_7".into(),
        arguments: Arguments::from_text(ARGUMENTS),
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

fn pipeline(criterion: &mut Criterion) {
    let runtime = runtime();
    let mut group = criterion.benchmark_group("call");
    for case in CASES {
        let orchestrator = case.orchestrator();
        group.bench_function(case.name, |bencher| {
            bencher.iter_batched(
                call,
                |call| runtime.block_on(orchestrator.execute(call)),
                criterion::BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn catalog(criterion: &mut Criterion) {
    let provider = Idle::with(10_000);
    criterion.bench_function("catalog of 10,000 tools", |bencher| {
        bencher.iter_with_large_drop(|| Catalog::new(vec![Arc::clone(&provider)], Scheme::Double));
    });
}

/// Counted, not timed: the same number on every machine.
fn allocations(_: &mut Criterion) {
    const CALLS: usize = 1_000;
    let runtime = runtime();
    println!("\n| case | allocations per call | bytes per call |\n|---|---|---|");
    for case in CASES {
        let orchestrator = case.orchestrator();
        // The first call compiles the schema.
        runtime.block_on(orchestrator.execute(call()));
        let calls: Vec<_> = (0..CALLS).map(|_| call()).collect();
        let region = Region::new(ALLOCATOR);
        for call in calls {
            black_box(runtime.block_on(orchestrator.execute(call)));
        }
        let change = region.change();
        let made = (change.allocations + change.reallocations) / CALLS;
        println!("| {} | {made} | {} |", case.name, change.bytes_allocated / CALLS);
    }
    println!();
}

criterion_group!(benches, allocations, pipeline, catalog);
criterion_main!(benches);
