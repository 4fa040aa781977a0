//! Sums up calls by tool.

use std::collections::HashMap;

use haft_core::accounting_store::ToolStats;

use super::latencies::Latencies;
use super::partial::PartialToolLine;

/// Sums by tool. Their memory grows with the number of tools and not with the number of calls.
#[derive(Debug, Default)]
pub(super) struct ToolSums {
    by_tool: HashMap<String, ToolSum>,
}

#[derive(Debug, Default)]
struct ToolSum {
    calls: u64,
    errors: u64,
    cache_hits: u64,
    bytes_out: u64,
    latencies: Latencies,
}

impl ToolSums {
    pub(super) fn add(&mut self, line: &PartialToolLine<'_>) {
        // Do not use `entry`, which would copy the tool name for each line.
        match self.by_tool.get_mut(line.tool) {
            Some(sum) => sum.add(line),
            None => self.by_tool.entry(line.tool.to_owned()).or_default().add(line),
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (tool, sum) in other.by_tool {
            self.by_tool.entry(tool).or_default().merge(sum);
        }
    }

    /// Returns the tools, the most called first.
    pub(super) fn into_stats(self) -> Vec<ToolStats> {
        let mut stats: Vec<ToolStats> =
            self.by_tool.into_iter().map(|(tool, sum)| sum.into_stats(tool)).collect();
        stats.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.tool.cmp(&b.tool)));
        stats
    }
}

impl ToolSum {
    fn add(&mut self, line: &PartialToolLine<'_>) {
        self.calls += 1;
        self.errors += u64::from(line.is_error);
        self.cache_hits += u64::from(line.cached);
        self.bytes_out = self.bytes_out.saturating_add(line.bytes_out);
        // A call that never reached its tool has no tool latency.
        if line.executed {
            self.latencies.add(line.latency_ms);
        }
    }

    fn merge(&mut self, other: Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.cache_hits += other.cache_hits;
        self.bytes_out = self.bytes_out.saturating_add(other.bytes_out);
        self.latencies.merge(other.latencies);
    }

    fn into_stats(self, tool: String) -> ToolStats {
        ToolStats {
            tool,
            calls: self.calls,
            errors: self.errors,
            cache_hits: self.cache_hits,
            bytes_out: self.bytes_out,
            latency_p50_ms: self.latencies.percentile(50),
            latency_p95_ms: self.latencies.percentile(95),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{ToolRecord, ToolRecordAudit, ToolRecordPosition, ToolRecordSource};
    use super::super::summary::tests::{OldLine, summary_of_lines};
    use super::*;

    fn record(tool: &str, latency_ms: u64, status: &str) -> ToolRecord {
        ToolRecord {
            timestamp_ms: 0,
            status: status.into(),
            error_kind: None,
            tool: tool.into(),
            call_id: "1".into(),
            principal: "local".into(),
            latency_ms,
            bytes_in: 1,
            bytes_out: 10,
            executed: true,
            cached: false,
            untrusted: false,
            arguments_digest: String::new(),
            source: ToolRecordSource::default(),
            standing: ToolRecordPosition::default(),
            audit: ToolRecordAudit::default(),
        }
    }

    fn stats(records: &[ToolRecord]) -> Vec<ToolStats> {
        let lines: Vec<OldLine> = records.iter().cloned().map(OldLine::Tool).collect();
        summary_of_lines(&lines).tools
    }

    #[test]
    fn tool_stats_are_summed_and_sorted_by_calls() {
        let mut records: Vec<ToolRecord> = (1..=100).map(|ms| record("bash", ms, "ok")).collect();
        records.push(record("read", 7, "failed"));
        let sums = stats(&records);
        assert_eq!(sums[0].tool, "bash");
        assert_eq!((sums[0].calls, sums[0].latency_p50_ms, sums[0].latency_p95_ms), (100, 50, 95));
        assert_eq!((sums[1].calls, sums[1].errors, sums[1].latency_p95_ms), (1, 1, 7));
    }

    #[test]
    fn unexecuted_calls_are_counted_without_latency() {
        let unexecuted = ToolRecord { executed: false, latency_ms: 0, ..record("bash", 0, "failed") };
        let sums = stats(&[unexecuted, record("bash", 40, "ok")]);
        assert_eq!((sums[0].calls, sums[0].latency_p50_ms), (2, 40));
        assert_eq!(stats(&[]), []);
    }

    #[test]
    fn tools_with_equal_calls_are_sorted_by_name() {
        let cached = ToolRecord { cached: true, ..record("a \"quoted\" name", 1, "ok") };
        let sums = stats(&[record("b", 1, "ok"), cached]);
        let names: Vec<&str> = sums.iter().map(|sum| sum.tool.as_str()).collect();
        assert_eq!(names, ["a \"quoted\" name", "b"]);
        assert_eq!((sums[0].cache_hits, sums[0].bytes_out, sums[1].cache_hits), (1, 10, 0));
    }
}
