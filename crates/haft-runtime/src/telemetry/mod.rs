//! Spans for an OpenTelemetry collector, if the environment names one. Otherwise nothing is started.
//!
//! A fold over events builds the spans of the semantic conventions for generative AI; a separate thread sends them. An
//! unreachable collector does not affect calls: `finish` reports it once, at the end.

mod agent_spans;
mod export;
mod settings;
mod spans;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use haft_core::event::EventSink;
use haft_tools::mcp::TraceParents;
use opentelemetry_sdk::trace::SdkTracerProvider;

use export::{ExportFailure, exporter, resource};
pub use settings::captures_content;
use settings::{ExporterSettings, TelemetryRequest};
use spans::CallSpans;

/// The longest time that the end of the program waits for spans to be delivered.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Sends spans of calls to a collector until it is finished.
pub struct Telemetry {
    spans: Arc<CallSpans>,
    provider: SdkTracerProvider,
    trouble: ExportFailure,
    collector: String,
}

impl Telemetry {
    /// Reads the standard `OTEL_…` variables; `None` when they request nothing. The error is a sentence for the
    /// operator, and the program continues without telemetry.
    pub fn from_environment() -> Result<Option<Self>, String> {
        match TelemetryRequest::from(&|name| std::env::var(name).ok())? {
            TelemetryRequest::Nothing => Ok(None),
            TelemetryRequest::Spans(settings) => Self::start(settings).map(Some),
        }
    }

    fn start(settings: ExporterSettings) -> Result<Self, String> {
        let trouble = ExportFailure::default();
        let exporter = exporter(&settings, &trouble)?;
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build();
        let spans = Arc::new(CallSpans::new(&provider, settings.parent()));
        Ok(Self { spans, provider, trouble, collector: settings.collector })
    }

    /// Returns the sink for the engine's events.
    pub fn sink(&self) -> Arc<dyn EventSink> {
        Arc::clone(&self.spans) as _
    }

    /// Returns the lookup of the spans of calls in progress.
    pub fn trace_parents(&self) -> Arc<dyn TraceParents> {
        Arc::clone(&self.spans) as _
    }

    /// Sends the remaining spans within a bounded time; the error names the first failure.
    pub fn finish(self) -> Result<(), String> {
        let ended = self.provider.shutdown_with_timeout(FLUSH_MAX);
        let reason = match (self.trouble.first(), ended) {
            (Some(reason), _) => reason,
            (None, Err(_)) => format!("no answer within {} s", FLUSH_MAX.as_secs()),
            (None, Ok(())) => return Ok(()),
        };
        Err(format!("spans could not be delivered to {}: {reason}", self.collector))
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("collector", &self.collector).finish_non_exhaustive()
    }
}
