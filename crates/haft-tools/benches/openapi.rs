//! Measures the import of GitHub's OpenAPI document, the largest one in common use: 13 MB and more than a thousand
//! operations.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a failed benchmark must panic with its error"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use haft_tools::rest::openapi::{ImportResult, ImportSettings, OpenApiSource, OperationFilter, import};

fn imported(path: &Path) -> ImportResult {
    let documents = OpenApiSource::read_file(path).unwrap();
    let settings = ImportSettings {
        name: "github",
        base_url: None,
        headers: Vec::new(),
        logins: BTreeMap::new(),
        filter: OperationFilter::default(),
        hosts: Vec::new(),
        private: None,
    };
    import(&documents, settings).unwrap()
}

/// Returns the peak memory of this process, from the kernel.
fn peak_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) / 1024
}

/// Returns the CPU time of this thread, from the kernel; other programs on the machine do not affect it.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

/// The number of imports whose time is averaged.
const ROUNDS: u32 = 20;

fn openapi(criterion: &mut Criterion) {
    let own = std::env::current_exe().unwrap();
    let found = own
        .ancestors()
        .map(|place| place.join("tools/openapi/api.github.com.json"))
        .find(|path| path.exists());
    let path = found.expect("run `cargo xtask install` first");
    // Measure the peak memory after one import. In later rounds, it would include memory that the allocator retains.
    let tools = imported(&path).tools.len();
    eprintln!("{tools} tools, peak memory of one import {} MB", peak_megabytes());
    let before = cpu_time();
    (0..ROUNDS).for_each(|_| drop(imported(&path)));
    eprintln!("CPU time of one import {:?}", cpu_time().saturating_sub(before) / ROUNDS);
    criterion.bench_function("import_github", |bencher| bencher.iter(|| imported(&path)));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = openapi
}
criterion_main!(benches);
