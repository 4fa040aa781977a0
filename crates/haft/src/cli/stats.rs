//! `haft stats`: calls summed up by tool.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::args::StatsArgs;
use super::exit::Exit;
use super::{settings, terminal};
use crate::accounting::{self, ToolStats};

pub(super) fn run(args: &StatsArgs) -> ExitCode {
    let home = match settings::home() {
        Ok(home) => home,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = args.since.map_or(0, |since| now.saturating_sub(since).as_millis());
    match accounting::read(&home, u64::try_from(since).unwrap_or(0)) {
        Err(error) => terminal::failed(Exit::Internal, &format!("the journal cannot be read: {error}")),
        Ok((records, odd)) => {
            if odd > 0 {
                terminal::warn(&format!("{odd} lines of the journal are not records and were left out"));
            }
            let sums = accounting::stats(&records);
            terminal::answer(&if args.json { as_json(&sums) } else { table(&sums) })
        }
    }
}

fn as_json(sums: &[ToolStats]) -> String {
    let list: Vec<Value> = sums
        .iter()
        .map(|sum| {
            json!({
                "tool": sum.tool, "calls": sum.calls, "errors": sum.errors, "cache_hits": sum.cache_hits,
                "bytes_out": sum.bytes_out, "latency_p50_ms": sum.latency_p50_ms, "latency_p95_ms": sum.latency_p95_ms,
            })
        })
        .collect();
    format!("{:#}", Value::Array(list))
}

fn table(sums: &[ToolStats]) -> String {
    let mut text = format!(
        "{:<20} {:>8} {:>8} {:>8} {:>10} {:>10} {:>14}\n",
        "TOOL", "CALLS", "ERRORS", "CACHED", "P50 ms", "P95 ms", "BYTES OUT"
    );
    for sum in sums {
        let _ = writeln!(
            text,
            "{:<20} {:>8} {:>8} {:>8} {:>10} {:>10} {:>14}",
            sum.tool,
            sum.calls,
            sum.errors,
            sum.cache_hits,
            sum.latency_p50_ms,
            sum.latency_p95_ms,
            sum.bytes_out
        );
    }
    text
}
