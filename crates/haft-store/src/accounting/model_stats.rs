//! Sums up model requests by model.

use std::collections::HashMap;

use haft_core::accounting_store::ModelStats;

use super::partial::PartialModelLine;

/// Sums by model. Their memory grows with the number of models and not with the number of requests.
#[derive(Debug, Default)]
pub(super) struct ModelSums {
    by_model: HashMap<String, ModelStats>,
    /// The model name of the current line. The buffer is reused, because allocating a string for each line would take
    /// longer than adding the numbers.
    name: String,
}

impl ModelSums {
    pub(super) fn add(&mut self, line: &PartialModelLine<'_>) {
        self.name.clear();
        self.name.extend([line.provider, "/", line.model]);
        if !self.by_model.contains_key(&self.name) {
            let model = self.name.clone();
            self.by_model.insert(model.clone(), ModelStats { model, ..ModelStats::default() });
        }
        if let Some(sum) = self.by_model.get_mut(&self.name) {
            add_line(sum, line);
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (model, sum) in other.by_model {
            match self.by_model.get_mut(&model) {
                Some(own) => add(own, &sum),
                None => drop(self.by_model.insert(model, sum)),
            }
        }
    }

    /// Returns the models, the most expensive first.
    pub(super) fn into_stats(self) -> Vec<ModelStats> {
        let mut stats: Vec<ModelStats> = self.by_model.into_values().collect();
        stats.sort_by(|a, b| {
            (b.cost_nano_usd, b.attempts)
                .cmp(&(a.cost_nano_usd, a.attempts))
                .then_with(|| a.model.cmp(&b.model))
        });
        stats
    }
}

fn add_line(sum: &mut ModelStats, line: &PartialModelLine<'_>) {
    let used = line.input_tokens > 0 || line.output_tokens > 0;
    let of_line = ModelStats {
        model: String::new(),
        attempts: 1,
        errors: u64::from(line.is_error),
        input_tokens: line.input_tokens,
        output_tokens: line.output_tokens,
        cache_read_tokens: line.cache_read_tokens,
        cost_nano_usd: line.cost_nano_usd.unwrap_or(0),
        without_price: u64::from(used && line.cost_nano_usd.is_none()),
    };
    add(sum, &of_line);
}

fn add(sum: &mut ModelStats, other: &ModelStats) {
    sum.attempts += other.attempts;
    sum.errors += other.errors;
    sum.input_tokens = sum.input_tokens.saturating_add(other.input_tokens);
    sum.output_tokens = sum.output_tokens.saturating_add(other.output_tokens);
    sum.cache_read_tokens = sum.cache_read_tokens.saturating_add(other.cache_read_tokens);
    sum.cost_nano_usd = sum.cost_nano_usd.saturating_add(other.cost_nano_usd);
    sum.without_price += other.without_price;
}

#[cfg(test)]
mod tests {
    use super::super::record::ModelRecord;
    use super::super::summary::tests::{OldLine, summary_of_lines};
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

    fn model_stats(records: &[ModelRecord]) -> Vec<ModelStats> {
        let lines: Vec<OldLine> = records.iter().cloned().map(OldLine::Model).collect();
        summary_of_lines(&lines).models
    }

    #[test]
    fn model_stats_are_summed_and_sorted_by_cost() {
        let records = [record("a", "ok", None), record("b", "failed", Some(5)), record("b", "ok", Some(7))];
        let sums = model_stats(&records);
        assert_eq!((sums[0].model.as_str(), sums[0].attempts, sums[0].errors), ("p/b", 2, 1));
        assert_eq!((sums[0].cost_nano_usd, sums[0].input_tokens, sums[0].without_price), (12, 20, 0));
        assert_eq!((sums[1].cost_nano_usd, sums[1].without_price), (0, 1));
    }
}
