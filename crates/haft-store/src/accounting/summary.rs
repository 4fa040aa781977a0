//! Sums up all usage records, in memory that does not grow with the number of lines.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use haft_core::accounting_store::AccountingSummary;

use super::file_parts::{FilePart, each_line, parts};
use super::line_file::LinePaths;
use super::model_stats::ModelSums;
use super::partial::{PartialContent, PartialLine, SummedLine};
use super::quick_event;
use super::stats::ToolSums;

/// The tenant of the local user at the command line.
pub(super) const LOCAL_TENANT: &str = "local";

/// The maximum number of threads of a summary. More threads would not be faster, because memory bandwidth is the limit.
const PARTS_MAX: usize = 4;

/// The minimum size of a part in bytes. A smaller part is not worth a thread.
const PART_BYTES_MIN: u64 = 1 << 20;

/// Selects the lines that are summed.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineFilter<'a> {
    /// The earliest time, in milliseconds since 1970.
    pub(super) since_ms: u64,
    pub(super) owner: LineOwner<'a>,
}

/// The tenant whose lines are summed.
#[derive(Debug, Clone, Copy)]
pub(super) enum LineOwner<'a> {
    Anyone,
    /// The lines of this tenant only. A file may contain lines of other tenants, because older versions wrote the lines
    /// of all tenants to one file.
    Tenant(&'a str),
}

/// Sums up files that other processes may rotate during the read.
pub(super) fn sum_files(paths: &LinePaths, filter: LineFilter<'_>) -> io::Result<LineSums> {
    // Open the current file first: if another process rotates, it becomes the old file and must still be read.
    let current = open(&paths.current)?;
    let old = open(&paths.old)?.filter(|old| !is_same_file(old, current.as_ref()));
    let mut sums = LineSums::default();
    for file in [old, current].into_iter().flatten() {
        sums.merge(sum_file(&file, filter)?);
    }
    Ok(sums)
}

/// Sums up a file in parts, one per core. Two cores read a million lines in half a second.
fn sum_file(file: &File, filter: LineFilter<'_>) -> io::Result<LineSums> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get).min(PARTS_MAX);
    let parts = parts(file, cores, PART_BYTES_MIN)?;
    std::thread::scope(|scope| {
        let sum = |part: FilePart<'_>| {
            let mut sums = LineSums::default();
            each_line(part, |line| sums.add(line, filter)).map(|()| sums)
        };
        let threads: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || sum(part))).collect();
        let mut total = LineSums::default();
        for thread in threads {
            total.merge(
                thread
                    .join()
                    .map_err(|_| io::Error::other("a thread that summarizes the usage records failed"))??,
            );
        }
        Ok(total)
    })
}

/// The summary of a part of the usage records.
#[derive(Debug, Default)]
pub(super) struct LineSums {
    tools: ToolSums,
    models: ModelSums,
    unreadable_lines: u64,
    lost_lines: u64,
}

impl LineSums {
    pub(super) fn add(&mut self, line: &mut [u8], filter: LineFilter<'_>) {
        if let Some(line) = quick_event::read(line) {
            return self.add_line(&line, filter);
        }
        let line = PartialLine::parse(line);
        match line.as_ref().and_then(PartialLine::summed) {
            Some(line) => self.add_line(&line, filter),
            None => self.unreadable_lines += 1,
        }
    }

    fn add_line(&mut self, line: &SummedLine<'_>, filter: LineFilter<'_>) {
        if line.at_ms < filter.since_ms || !filter.owner.owns(line.principal) {
            return;
        }
        match &line.content {
            PartialContent::Tool(line) => self.tools.add(line),
            PartialContent::Model(line) => self.models.add(line),
            PartialContent::Lost { lines } => self.lost_lines = self.lost_lines.saturating_add(*lines),
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.tools.merge(other.tools);
        self.models.merge(other.models);
        self.unreadable_lines += other.unreadable_lines;
        self.lost_lines = self.lost_lines.saturating_add(other.lost_lines);
    }

    pub(super) fn into_summary(self) -> AccountingSummary {
        AccountingSummary {
            tools: self.tools.into_stats(),
            models: self.models.into_stats(),
            unreadable_lines: self.unreadable_lines,
            lost_lines: self.lost_lines,
        }
    }
}

impl LineOwner<'_> {
    /// Returns true if a line with this principal is selected. A principal is `local` or `TENANT/SUBJECT`. Lines
    /// without one belong to the local tenant.
    fn owns(self, principal: Option<&str>) -> bool {
        let Self::Tenant(tenant) = self else { return true };
        match principal.and_then(|principal| principal.strip_prefix(tenant)) {
            Some(rest) => rest.starts_with('/') || (rest.is_empty() && tenant == LOCAL_TENANT),
            None => principal.is_none() && tenant == LOCAL_TENANT,
        }
    }
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_same_file(one: &File, other: Option<&File>) -> bool {
    let identity = |file: &File| file.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    other.is_some_and(|other| identity(one) == identity(other))
}

#[cfg(test)]
pub(super) mod tests {
    use haft_core::event_log::{
        CallAudit, DecisionAudit, EventEnvelope, LogEvent, LogUsage, ModelAudit, ToolSource, TurnEvent,
    };
    use serde::Serialize;

    use super::super::record::{ModelRecord, ToolRecord};
    use super::*;

    /// A usage record in the format of older versions of haft.
    #[derive(Debug, Clone, Serialize)]
    #[serde(tag = "type", rename_all = "camelCase")]
    pub(in super::super) enum OldLine {
        Tool(ToolRecord),
        Model(ModelRecord),
    }

    impl OldLine {
        /// Returns the call or model request as an event, the current form of lines.
        fn event(&self) -> EventEnvelope {
            let (at, run, parent, turn, kind) = match self.clone() {
                Self::Tool(record) => {
                    let standing = record.standing.clone();
                    let run = standing.session.unwrap_or_default();
                    (record.timestamp_ms, run, standing.parent_operation, standing.turn, tool_event(record))
                }
                Self::Model(record) => {
                    let run = record.session.clone().unwrap_or_default();
                    let turn = record.turn.unwrap_or_default();
                    (record.timestamp_ms, run, record.parent_operation, turn, model_event(record))
                }
            };
            EventEnvelope { seq: 1, at: Some(at), run, parent, event: TurnEvent { turn, kind } }
        }
    }

    fn tool_event(record: ToolRecord) -> LogEvent {
        LogEvent::ToolFinished {
            id: record.call_id,
            operation: record.standing.operation,
            tool: record.tool,
            error_kind: (record.status != "ok").then(|| "failed".to_owned()),
            latency_ms: record.latency_ms,
            executed: record.executed,
            cached: record.cached,
            bytes_in: record.bytes_in,
            bytes_out: record.bytes_out,
            audit: Some(Box::new(CallAudit {
                principal: record.principal,
                arguments_digest: record.arguments_digest,
                source: ToolSource {
                    provider_kind: record.source.provider_kind,
                    namespace: record.source.namespace,
                },
                origin: record.standing.origin,
                decision: DecisionAudit {
                    decision: record.audit.decision,
                    rule: record.audit.rule,
                    approver: record.audit.approver,
                    answer: record.audit.answer,
                },
                queue: None,
                handle: None,
            })),
            content: None,
        }
    }

    fn model_event(record: ModelRecord) -> LogEvent {
        LogEvent::ModelFinished {
            model: format!("{}/{}", record.provider, record.model),
            attempt: record.attempt,
            error_kind: (record.status != "ok").then(|| "failed".to_owned()),
            latency_ms: record.latency_ms,
            usage: Some(LogUsage {
                input_tokens: record.input_tokens,
                output_tokens: record.output_tokens,
                cache_read_tokens: record.cache_read_tokens,
                cache_write_tokens: record.cache_write_tokens,
                reasoning_tokens: record.reasoning_tokens,
            }),
            cost_nano_usd: record.cost_nano_usd,
            audit: Some(Box::new(ModelAudit {
                principal: record.principal,
                request_id: record.request_id,
                first_event_ms: record.first_event_ms,
                retry_after_ms: record.retry_after_ms,
            })),
        }
    }

    pub(in super::super) const ALL: LineFilter<'_> = LineFilter { since_ms: 0, owner: LineOwner::Anyone };

    /// Sums up lines in the format of older versions. The same calls in the current format must give the same summary.
    pub(in super::super) fn summary_of_lines(lines: &[OldLine]) -> AccountingSummary {
        let old = sum_of(lines.iter().map(|line| serde_json::to_vec(line).unwrap()));
        let new = sum_of(lines.iter().map(|line| serde_json::to_vec(&line.event()).unwrap()));
        let mixed = sum_of(lines.iter().enumerate().map(|(at, line)| match at % 2 {
            0 => serde_json::to_vec(line).unwrap(),
            _ => serde_json::to_vec(&line.event()).unwrap(),
        }));
        assert_eq!((&old, &old), (&new, &mixed));
        old
    }

    fn sum_of(lines: impl Iterator<Item = Vec<u8>>) -> AccountingSummary {
        let mut sums = LineSums::default();
        for mut line in lines {
            sums.add(&mut line, ALL);
        }
        assert_eq!(sums.unreadable_lines, 0);
        sums.into_summary()
    }

    #[test]
    fn merged_partial_summaries_equal_the_whole_summary() {
        let tool = |tool: u64, latency: u64| {
            let (latency, status) =
                (latency * 7_919 % 50_000, if latency.is_multiple_of(3) { "ok" } else { "failed" });
            format!(
                r#"{{"type":"tool","timestampMs":1,"status":"{status}","tool":"t{tool}","latencyMs":{latency},"bytesOut":{latency},
                "executed":true,"cached":{}}}"#,
                latency.is_multiple_of(2)
            )
        };
        let model = |model: u64| {
            format!(
                r#"{{"type":"model","timestampMs":1,"status":"ok","provider":"p","model":"m{}","inputTokens":{model},
                "outputTokens":1,"cacheReadTokens":2,"costNanoUsd":{}}}"#,
                model % 3,
                if model.is_multiple_of(2) { "7" } else { "null" }
            )
        };
        // Up to 512 latencies are stored exactly. Two tools stay below this number, one exceeds it only when the parts
        // are merged, and one exceeds it in each part.
        let calls = [(0, 10), (1, 400), (2, 600), (3, 2_000)];
        let calls =
            calls.iter().flat_map(|&(name, count)| (0..count).map(move |latency| tool(name, latency)));
        let mut lines: Vec<String> = calls.chain((0..20).map(model)).collect();
        lines.sort_by_key(|line| line.len() % 7);
        let sum = |lines: &[String]| {
            let mut sums = LineSums::default();
            for line in lines {
                sums.add(&mut line.clone().into_bytes(), ALL);
            }
            sums
        };
        let whole = sum(&lines).into_summary();
        assert_eq!((whole.tools.len(), whole.models.len(), whole.unreadable_lines), (4, 3, 0));
        for cut in [0, 1, 300, 1_500, lines.len()] {
            let mut merged = sum(&lines[..cut]);
            merged.merge(sum(&lines[cut..]));
            assert_eq!(merged.into_summary(), whole, "{cut}");
        }
    }
}
