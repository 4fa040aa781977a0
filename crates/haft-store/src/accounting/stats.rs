//! Calls summed up by tool.

use std::collections::BTreeMap;

use super::record::Record;

/// The sums of one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolStats {
    pub tool: String,
    pub calls: u64,
    pub errors: u64,
    pub cache_hits: u64,
    pub bytes_out: u64,
    pub latency_p50_ms: u64,
    pub latency_p95_ms: u64,
}

/// Sums by tool, the most called first.
pub fn stats<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<ToolStats> {
    let mut by_tool: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in records {
        by_tool.entry(&record.tool).or_default().push(record);
    }
    let mut sums: Vec<ToolStats> = by_tool.into_iter().map(|(tool, records)| sum(tool, &records)).collect();
    sums.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.tool.cmp(&b.tool)));
    sums
}

fn sum(tool: &str, records: &[&Record]) -> ToolStats {
    // A call that never reached its tool says nothing about how fast the tool is.
    let mut latencies: Vec<u64> =
        records.iter().filter(|record| record.executed).map(|record| record.latency_ms).collect();
    latencies.sort_unstable();
    let count = |holds: fn(&Record) -> bool| records.iter().filter(|record| holds(record)).count() as u64;
    ToolStats {
        tool: tool.to_owned(),
        calls: records.len() as u64,
        errors: count(Record::failed),
        cache_hits: count(|record| record.cached),
        bytes_out: records.iter().map(|record| record.bytes_out).sum(),
        latency_p50_ms: percentile(&latencies, 50),
        latency_p95_ms: percentile(&latencies, 95),
    }
}

/// The smallest value that at least `percent` of all do not exceed; nought for none.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::record::{Audit, Source, Standing};
    use super::*;

    fn record(tool: &str, latency_ms: u64, status: &str) -> Record {
        Record {
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
            arguments_digest: String::new(),
            source: Source::default(),
            standing: Standing::default(),
            audit: Audit::default(),
        }
    }

    #[test]
    fn tools_are_summed_and_the_busiest_comes_first() {
        let mut records: Vec<Record> = (1..=100).map(|ms| record("bash", ms, "ok")).collect();
        records.push(record("read", 7, "failed"));
        let sums = stats(&records);
        assert_eq!(sums[0].tool, "bash");
        assert_eq!((sums[0].calls, sums[0].latency_p50_ms, sums[0].latency_p95_ms), (100, 50, 95));
        assert_eq!((sums[1].calls, sums[1].errors, sums[1].latency_p95_ms), (1, 1, 7));
    }

    #[test]
    fn calls_that_never_ran_count_but_have_no_speed() {
        let unexecuted = Record { executed: false, latency_ms: 0, ..record("bash", 0, "failed") };
        let sums = stats(&[unexecuted, record("bash", 40, "ok")]);
        assert_eq!((sums[0].calls, sums[0].latency_p50_ms), (2, 40));
        assert_eq!(stats(&[]), []);
    }
}
