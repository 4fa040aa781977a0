//! `haft stats`: sums up calls by tool, and model requests by model.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use haft_core::accounting_store::{AccountingSummary, ModelStats, ToolStats};
use haft_core::price::Cost;
use haft_models::model_data::data_date;
use serde_json::{Value, json};

use super::args::StatsArgs;
use super::exit::ExitReason;
use super::table::{Table, left, right};
use super::{hints, settings, terminal};
use haft_store::accounting::FileAccounting;

pub(super) fn run(args: &StatsArgs) -> ExitCode {
    let home = match settings::home() {
        Ok(home) => home,
        Err(error) => return error.report(),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = args.since.map_or(0, |since| now.saturating_sub(since).as_millis());
    match FileAccounting::of(&home).summarize_all(u64::try_from(since).unwrap_or(0)) {
        Err(error) => {
            terminal::failed(ExitReason::Internal, &format!("haft cannot read the usage records: {error}"))
        }
        Ok(summary) => {
            warn(&summary);
            terminal::answer(&if args.models {
                of_models(args, &summary.models)
            } else {
                of_tools(args, &summary.tools)
            })
        }
    }
}

fn warn(summary: &AccountingSummary) {
    let AccountingSummary { unreadable_lines, lost_lines, .. } = summary;
    if *unreadable_lines > 0 {
        terminal::warn(&format!(
            "haft skipped {unreadable_lines} lines of the usage records, because it cannot read them"
        ));
    }
    if *lost_lines > 0 {
        let message = format!("{lost_lines} usage records are missing, because haft could not write them");
        terminal::warn(&hints::with(&message, Some("check whether the disk is full")));
    }
}

fn of_tools(args: &StatsArgs, sums: &[ToolStats]) -> String {
    if args.json { as_json(sums) } else { table(sums) }
}

fn of_models(args: &StatsArgs, sums: &[ModelStats]) -> String {
    if args.json { models_as_json(sums) } else { models_table(sums) }
}

fn models_as_json(sums: &[ModelStats]) -> String {
    let list = sums.iter().map(|sum| {
        json!({
            "model": sum.model, "attempts": sum.attempts, "errors": sum.errors, "input_tokens": sum.input_tokens,
            "output_tokens": sum.output_tokens, "cache_read_tokens": sum.cache_read_tokens,
            "cost_nano_usd": sum.cost_nano_usd, "without_price": sum.without_price,
        })
    });
    format!("{:#}", Value::Array(list.collect()))
}

fn models_table(sums: &[ModelStats]) -> String {
    let numbers = ["ATTEMPTS", "ERRORS", "INPUT", "CACHED", "OUTPUT", "COST"];
    let mut table = Table::new(std::iter::once(left("MODEL")).chain(numbers.map(right)));
    for sum in sums {
        let cost = Cost { nano_usd: sum.cost_nano_usd }.to_string();
        let cost = if sum.without_price > 0 { format!("≥ {cost}") } else { cost };
        let counts = [sum.attempts, sum.errors, sum.input_tokens, sum.cache_read_tokens, sum.output_tokens];
        let counts = counts.iter().map(ToString::to_string);
        table.row(std::iter::once(sum.model.clone()).chain(counts).chain([cost]));
    }
    table.note("");
    table.note(format!(
        "The built-in prices are from {}; set other prices in `models.settings`.",
        data_date()
    ));
    table.text()
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
    let numbers = ["CALLS", "ERRORS", "CACHED", "P50 ms", "P95 ms", "BYTES OUT"];
    let mut table = Table::new(std::iter::once(left("TOOL")).chain(numbers.map(right)));
    for sum in sums {
        let counts =
            [sum.calls, sum.errors, sum.cache_hits, sum.latency_p50_ms, sum.latency_p95_ms, sum.bytes_out];
        table.row(std::iter::once(sum.tool.clone()).chain(counts.iter().map(ToString::to_string)));
    }
    table.text()
}
