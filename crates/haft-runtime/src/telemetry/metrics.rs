//! Builds metrics from events, with the names and units of the OpenTelemetry conventions for generative AI.

use std::time::Duration;

use haft_core::event::{Event, EventSink, ToolReference};
use haft_core::model_provider::{ModelAccount, ModelAttempt};
use haft_core::result::ToolErrorKind;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};

/// The upper bounds of the buckets for tokens, as the conventions advise.
const TOKEN_BUCKETS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// The upper bounds of the buckets for durations in seconds, as the conventions advise.
const SECOND_BUCKETS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// The number of billionths of a dollar in one dollar. Costs are counted in billionths.
const NANO: f64 = 1e9;

/// Counts tokens, cost and durations of model requests and calls.
#[derive(Debug)]
pub(super) struct CallMetrics {
    tokens: Histogram<u64>,
    durations: Histogram<f64>,
    cost: Counter<f64>,
}

impl CallMetrics {
    pub(super) fn new(meter: &Meter) -> Self {
        Self {
            tokens: meter
                .u64_histogram("gen_ai.client.token.usage")
                .with_unit("{token}")
                .with_description("Tokens of model requests")
                .with_boundaries(TOKEN_BUCKETS.to_vec())
                .build(),
            durations: meter
                .f64_histogram("gen_ai.client.operation.duration")
                .with_unit("s")
                .with_description("Durations of model requests and tool calls")
                .with_boundaries(SECOND_BUCKETS.to_vec())
                .build(),
            cost: meter
                .f64_counter("haft.model.cost")
                .with_unit("USD")
                .with_description("Cost of model requests with a known price")
                .build(),
        }
    }

    fn add_model(&self, attempt: &ModelAttempt, account: &ModelAccount) {
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", "chat"),
            KeyValue::new("gen_ai.provider.name", super::spans::provider_name(&attempt.provider)),
            KeyValue::new("gen_ai.request.model", attempt.model.to_string()),
        ];
        if let Some(usage) = account.usage {
            for (kind, tokens) in [("input", usage.input), ("output", usage.output)] {
                let kind = KeyValue::new("gen_ai.token.type", kind);
                self.tokens.record(tokens, &[attributes.as_slice(), &[kind]].concat());
            }
        }
        if let Some(cost) = account.cost {
            #[expect(clippy::cast_precision_loss, reason = "a metric needs no exact billionths of a dollar")]
            self.cost.add(cost.nano_usd as f64 / NANO, &attributes);
        }
        attributes.extend(account.failure.map(|kind| KeyValue::new("error.type", kind.name())));
        self.durations.record(account.latency.as_secs_f64(), &attributes);
    }

    /// Adds a call. Leaves out a tool name that the model invented, because attributes must have low cardinality.
    fn add_call(&self, tool: &ToolReference, failure: Option<ToolErrorKind>, latency: Duration) {
        let mut attributes = vec![KeyValue::new("gen_ai.operation.name", "execute_tool")];
        attributes
            .extend(tool.known().map(|tool| KeyValue::new("gen_ai.tool.name", tool.exposed.to_string())));
        attributes.extend(failure.map(|kind| KeyValue::new("error.type", kind.name())));
        self.durations.record(latency.as_secs_f64(), &attributes);
    }
}

impl EventSink for CallMetrics {
    fn emit(&self, event: Event) {
        match &event {
            Event::ModelFinished { attempt, account, .. } => self.add_model(attempt, account),
            Event::ToolFinished { tool, failure, latency, .. } => self.add_call(tool, *failure, *latency),
            Event::ToolStarted { .. }
            | Event::ToolProgress { .. }
            | Event::ModelStarted { .. }
            | Event::Run { .. } => {}
        }
    }
}
