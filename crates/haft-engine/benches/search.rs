//! Measures tool search: the time to build the index, the time of a query, and the memory per tool.
//!
//! `cargo bench -p haft-engine --bench search` prints the table in the README of `haft-engine`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints")]

use std::alloc::System;
use std::time::{Duration, Instant};

use haft_core::tool::ToolDefinition;
use haft_engine::search::ToolSearchIndex;
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const QUERIES: [&str; 8] = [
    "create an issue",
    "list the pull requests of a repository that are still open",
    "send a message to a channel",
    "delete branch",
    "who is on call this week",
    "convert currency",
    "upload file to bucket",
    "resize picture",
];

fn main() {
    println!("load average: {}", std::fs::read_to_string("/proc/loadavg").unwrap().trim());
    for tools in [1_000, 10_000] {
        let definitions = definitions(tools);
        let builds: Vec<Duration> =
            (0..BUILDS).map(|_| cpu_of(|| ToolSearchIndex::new(&definitions)).1).collect();
        let region = Region::new(ALLOCATOR);
        let index = ToolSearchIndex::new(&definitions);
        let change = region.change();
        let bytes = (change.bytes_allocated - change.bytes_deallocated) / tools;
        let query = median((0..400).map(|at| {
            let began = Instant::now();
            std::hint::black_box(index.search(QUERIES[at % QUERIES.len()], 20));
            began.elapsed()
        }));
        // Measure the rebuild of an index after only the first tool has changed.
        let other = self::definitions(1);
        let (_, renewed) = cpu_of(|| index.renewed(other.iter().chain(&definitions[1..])));
        let (first, build) = (builds[0], median(builds.into_iter()));
        println!(
            "{tools} tools: index {build:.1?} (first {first:.1?}), one changed tool {renewed:.1?}, \
             query {query:.1?}, {bytes} bytes a tool"
        );
    }
}

/// The number of indexes that are built. The benchmark prints the median time.
const BUILDS: usize = 9;

/// Returns the CPU time of this thread for some work. Unlike the wall-clock time, it does not depend on the load of the
/// machine. The kernel counts it in steps of several milliseconds, so it is too coarse for a query.
fn cpu_of<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let now = || {
        let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(times.split(' ').next().unwrap().parse().unwrap())
    };
    let began = now();
    let done = std::hint::black_box(work());
    (done, now().saturating_sub(began))
}

fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    times[times.len() / 2]
}

/// Returns definitions with about 136 tokens each, the mean of real servers, made of words that are common in tools.
fn definitions(count: usize) -> Vec<ToolDefinition> {
    let verbs = ["create", "list", "get", "delete", "update", "search", "send", "upload", "merge", "archive"];
    let nouns = [
        "issue",
        "repository",
        "pull_request",
        "branch",
        "message",
        "channel",
        "file",
        "bucket",
        "user",
        "team",
        "invoice",
        "payment",
        "customer",
        "order",
        "image",
        "calendar",
        "event",
        "contact",
        "deploy",
        "secret",
    ];
    let definition = |at: usize| {
        let (verb, noun) = (verbs[at % verbs.len()], nouns[at / verbs.len() % nouns.len()]);
        let server = format!("service{}", at / 50);
        let description = format!(
            "{verb} one {noun} of the account. Returns the {noun} with its identifier{at}, state, owner and the time of its \
             last change. Needs the permission {noun}.{verb}; fails when the {noun} is locked or belongs to another workspace."
        );
        let schema = json!({ "type": "object", "properties": {
            format!("{noun}_id"): { "type": "string", "description": format!("The identifier of the {noun}") },
            "workspace": { "type": "string", "description": "The workspace that owns it; the default one if absent" },
            "limit": { "type": "integer", "description": "The largest number of results on one page" },
            "include_archived": { "type": "boolean", "description": "Also return what was archived" },
        } });
        ToolDefinition::new(&format!("{server}__{verb}_{noun}_{at}"), description, schema)
    };
    (0..count).map(definition).collect()
}
