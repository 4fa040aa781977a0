//! Requests summed up by model.

use std::collections::BTreeMap;

use super::record::ModelRecord;

/// The sums of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelStats {
    /// `provider/model`
    pub model: String,
    pub attempts: u64,
    pub errors: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cost_nano_usd: u64,
    /// Attempts that used tokens whose price nobody knows; the cost is without them.
    pub without_price: u64,
}

/// Sums by model, the dearest first.
pub fn model_stats<'a>(records: impl IntoIterator<Item = &'a ModelRecord>) -> Vec<ModelStats> {
    let mut by_model: BTreeMap<String, ModelStats> = BTreeMap::new();
    for record in records {
        let model = format!("{}/{}", record.provider, record.model);
        let sum =
            by_model.entry(model.clone()).or_insert_with(|| ModelStats { model, ..ModelStats::default() });
        add(sum, record);
    }
    let mut sums: Vec<ModelStats> = by_model.into_values().collect();
    sums.sort_by_key(|sum| std::cmp::Reverse((sum.cost_nano_usd, sum.attempts)));
    sums
}

fn add(sum: &mut ModelStats, record: &ModelRecord) {
    sum.attempts += 1;
    sum.errors += u64::from(record.status != "ok");
    sum.input_tokens += record.input_tokens;
    sum.output_tokens += record.output_tokens;
    sum.cache_read_tokens += record.cache_read_tokens;
    sum.cost_nano_usd = sum.cost_nano_usd.saturating_add(record.cost_nano_usd.unwrap_or(0));
    let used = record.input_tokens + record.output_tokens > 0;
    sum.without_price += u64::from(used && record.cost_nano_usd.is_none());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(model: &str, status: &str, cost_nano_usd: Option<u64>) -> ModelRecord {
        ModelRecord {
            timestamp_ms: 0,
            status: status.into(),
            error_kind: None,
            provider: "p".into(),
            model: model.into(),
            request_id: "1".into(),
            session: None,
            turn: None,
            parent_operation: None,
            attempt: 1,
            principal: "local".into(),
            latency_ms: 1,
            first_event_ms: None,
            input_tokens: 10,
            output_tokens: 2,
            cache_read_tokens: 0,
            cache_write_tokens: 0,
            reasoning_tokens: 0,
            cost_nano_usd,
            retry_after_ms: None,
        }
    }

    #[test]
    fn models_are_summed_and_the_dearest_comes_first() {
        let records = [record("a", "ok", None), record("b", "failed", Some(5)), record("b", "ok", Some(7))];
        let sums = model_stats(&records);
        assert_eq!((sums[0].model.as_str(), sums[0].attempts, sums[0].errors), ("p/b", 2, 1));
        assert_eq!((sums[0].cost_nano_usd, sums[0].input_tokens, sums[0].without_price), (12, 20, 0));
        assert_eq!((sums[1].cost_nano_usd, sums[1].without_price), (0, 1));
    }
}
