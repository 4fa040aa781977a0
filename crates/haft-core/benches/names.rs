//! Measures the time to find the known names that are similar to an unknown name, in microseconds of CPU time.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark panics on an unexpected result and prints its numbers"
)]

use std::hint::black_box;
use std::time::Duration;

use haft_core::name::{Namespace, ToolName};
use haft_core::naming::{NameTable, NamingScheme, ToolIdentity};
use haft_core::provider::ProviderKind;

/// Returns the CPU time of this thread, which other programs on the machine do not affect.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}

fn measure(tools: usize, written: &str) {
    const ROUNDS: u32 = 200;
    let identity = |number: usize| ToolIdentity {
        kind: ProviderKind::Mcp,
        namespace: Namespace::new("idle").unwrap(),
        tool: ToolName::new(&format!("tool_{number}")).unwrap(),
    };
    let table = NameTable::build(NamingScheme::Double, [], (0..tools).map(identity));
    black_box(table.nearest(written));
    let before = cpu_time();
    (0..ROUNDS).for_each(|_| drop(black_box(table.nearest(black_box(written)))));
    let each = cpu_time().checked_sub(before).unwrap() / ROUNDS;
    println!("| {tools} | {written} | {} µs |", each.as_micros());
}

fn main() {
    println!("| tools | unknown name | time |\n|---|---|---|");
    for tools in [1_000, 10_000, 100_000] {
        measure(tools, "idle__tol_77777");
        measure(tools, "search_web_page");
    }
}
