//! Measures the registration of many tools. The time per tool must not grow with the number of tools.
#![allow(clippy::unwrap_used, reason = "a failed benchmark must panic with its error")]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use haft_core::name::Namespace;
use haft_core::output::ToolOutput;
use haft_core::provider::CallContext;
use haft_core::result::ToolError;
use haft_core::tool::ToolDefinition;
use haft_core::validate::ValidArguments;
use haft_tools::registry::{Registry, Tool};
use serde_json::json;

struct NumberedTool(usize);

impl Tool for NumberedTool {
    fn definition(&self) -> ToolDefinition {
        let schema = json!({
            "type": "object",
            "properties": {"path": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}},
            "required": ["path"],
        });
        ToolDefinition::new(&format!("tool_{}", self.0), "Does nothing.", schema)
    }

    async fn call(&self, _: &ValidArguments, _: &CallContext) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text("done"))
    }
}

fn registered(tools: usize) -> Registry {
    let registry = Registry::new(Namespace::new("app").unwrap());
    (0..tools).for_each(|number| registry.register(NumberedTool(number)).unwrap());
    registry
}

fn register(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("register");
    for tools in [200, 2_000, 20_000] {
        group.bench_with_input(BenchmarkId::from_parameter(tools), &tools, |bencher, &tools| {
            bencher.iter_with_large_drop(|| registered(tools));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = register
}
criterion_main!(benches);
