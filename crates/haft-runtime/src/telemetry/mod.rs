//! Spans for an OpenTelemetry collector, when the environment names one. Without it nothing is started.
//!
//! A fold over events makes the spans that the conventions for generative AI describe; a thread of its own sends
//! them. A collector that cannot be reached costs no call anything: it is said once, at the end.

mod export;
mod settings;
mod spans;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use haft_core::event::EventSink;
use haft_tools::mcp::TraceParents;
use opentelemetry_sdk::trace::SdkTracerProvider;

use export::{Trouble, exporter, resource};
pub use settings::captures_content;
use settings::{Settings, Wanted};
use spans::Spans;

/// How long the end of the program waits for spans to be delivered.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Tells a collector of calls until it is finished.
pub struct Telemetry {
    spans: Arc<Spans>,
    provider: SdkTracerProvider,
    trouble: Trouble,
    collector: String,
}

impl Telemetry {
    /// As the standard `OTEL_…` variables say; `None` when they ask for nothing. An error is a sentence for the operator,
    /// and no reason not to go on.
    pub fn from_environment() -> Result<Option<Self>, String> {
        match Wanted::from(&|name| std::env::var(name).ok())? {
            Wanted::Nothing => Ok(None),
            Wanted::Spans(settings) => Self::start(settings).map(Some),
        }
    }

    fn start(settings: Settings) -> Result<Self, String> {
        let trouble = Trouble::default();
        let exporter = exporter(&settings, &trouble)?;
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build();
        let spans = Arc::new(Spans::new(&provider, settings.parent()));
        Ok(Self { spans, provider, trouble, collector: settings.collector })
    }

    /// What the engine's events are to be sent to.
    pub fn sink(&self) -> Arc<dyn EventSink> {
        Arc::clone(&self.spans) as _
    }

    /// Which spans the calls under way have.
    pub fn trace_parents(&self) -> Arc<dyn TraceParents> {
        Arc::clone(&self.spans) as _
    }

    /// Delivers what is left, within a bounded time, and says what could not be delivered.
    pub fn finish(self) -> Result<(), String> {
        let ended = self.provider.shutdown_with_timeout(FLUSH_MAX);
        let reason = match (self.trouble.first(), ended) {
            (Some(reason), _) => reason,
            (None, Err(_)) => format!("no answer within {} s", FLUSH_MAX.as_secs()),
            (None, Ok(())) => return Ok(()),
        };
        Err(format!(
            "spans could not be delivered to {}: {reason}\nhint: OTEL_EXPORTER_OTLP_ENDPOINT names the collector; OTEL_SDK_DISABLED=true turns telemetry off",
            self.collector
        ))
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("collector", &self.collector).finish_non_exhaustive()
    }
}
