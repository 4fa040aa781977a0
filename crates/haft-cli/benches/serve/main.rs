//! Measures `haft serve`: start, idle memory, the cost of a response and of an event, the time to the first token, and
//! 10,000 open streams.
//!
//! `cargo bench -p haft-cli --bench serve` prints the figures of the table in `docs/serving.md`. `-- PART…` runs only
//! these parts. `cargo xtask bench --long` installs the programs that the parts `wrk` and `litellm` need, so these two
//! run only if they are named. The scripted model, the server and the clients are three processes, so the measured CPU
//! time is only the server's.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark prints"
)]

mod client;
mod cost;
mod events;
mod first_token;
mod litellm;
#[path = "../support/model_server_process.rs"]
mod model_server_process;
#[path = "../support/process_stats.rs"]
mod process_stats;
mod server;
mod streams;
mod wrk;

use std::path::Path;
use std::process::ExitCode;

/// A part of the benchmark. Returns false if it misses a limit that does not depend on the speed of the machine.
type BenchPart = fn(&Path) -> bool;

/// The parts that need no other programs.
const USUAL_PARTS: [(&str, BenchPart); 4] = [
    ("cost", cost::measure),
    ("first-token", first_token::measure),
    ("events", events::measure),
    ("streams", streams::measure),
];

const LONG_PARTS: [(&str, BenchPart); 2] = [("wrk", wrk::measure), ("litellm", litellm::measure)];

fn main() -> ExitCode {
    // Ignore options, because `cargo bench` adds `--bench`.
    let names: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let mut parts: Vec<_> = USUAL_PARTS.iter().chain(&LONG_PARTS).collect();
    if let Some(unknown) = names.iter().find(|name| parts.iter().all(|(part, _)| part != name)) {
        let known: Vec<&str> = parts.iter().map(|(part, _)| *part).collect();
        println!("there is no part `{unknown}`; expected {}", known.join(", "));
        return ExitCode::FAILURE;
    }
    parts.retain(|(part, _)| names.iter().any(|name| name == part));
    if names.is_empty() {
        parts = USUAL_PARTS.iter().collect();
    }
    let mut is_kept = true;
    for (name, part) in parts {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let load = std::fs::read_to_string("/proc/loadavg").unwrap();
        println!("\n{name} (load average {})", load.split(' ').take(3).collect::<Vec<_>>().join(" "));
        is_kept &= part(dir.path());
    }
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a figure, and its limit if the figure misses the limit. Returns true if the limit is met.
fn judge(figure: &str, limit: &str, is_kept: bool) -> bool {
    println!("{figure}{}", if is_kept { String::new() } else { format!("  missed: {limit}") });
    is_kept
}
