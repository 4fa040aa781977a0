//! Spans and metrics for an OpenTelemetry collector, if the environment names one. Without a collector, nothing is
//! started.
//!
//! Spans and metrics follow the semantic conventions for generative AI. They are built from events; separate threads
//! send them. An unreachable collector does not affect calls: `finish` reports it once, at the end.

mod agent_spans;
mod export;
mod metrics;
mod settings;
mod spans;

use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use haft_core::event::{EventSink, EventSinks};
use haft_tools::mcp::TraceParents;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_otlp::Protocol;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;

use export::{ExportFailure, exporter, metric_exporter, resource};
use metrics::CallMetrics;
pub use settings::captures_content;
use settings::{ExporterSettings, TelemetryRequest};
use spans::CallSpans;

/// The maximum time that the end of the program waits for spans and metrics to be delivered.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Sends spans and metrics of calls to a collector until `finish` is called.
pub struct Telemetry {
    spans: Arc<CallSpans>,
    provider: SdkTracerProvider,
    metrics: Option<RunningMetrics>,
    span_failure: ExportFailure,
    collector: String,
}

/// The metrics, and the provider that sends them.
struct RunningMetrics {
    sink: Arc<CallMetrics>,
    provider: SdkMeterProvider,
    failure: ExportFailure,
}

impl Telemetry {
    /// Starts the telemetry that the standard `OTEL_…` variables request; returns `None` if they request none. The
    /// error is a message for the operator, and the program continues without telemetry.
    pub fn from_environment() -> Result<Option<Self>, String> {
        match TelemetryRequest::from(&|name| std::env::var(name).ok())? {
            TelemetryRequest::Nothing => Ok(None),
            TelemetryRequest::Spans(settings) => Self::start(settings).map(Some),
        }
    }

    fn start(settings: ExporterSettings) -> Result<Self, String> {
        let span_failure = ExportFailure::default();
        let exporter = exporter(&settings, &span_failure)?;
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build();
        let spans = Arc::new(CallSpans::new(&provider, settings.parent()));
        let metrics = settings.metrics.map(RunningMetrics::start).transpose()?;
        Ok(Self { spans, provider, metrics, span_failure, collector: settings.collector })
    }

    /// Returns the sink for the engine's events.
    pub fn sink(&self) -> Arc<dyn EventSink> {
        let mut sinks = vec![Arc::clone(&self.spans) as Arc<dyn EventSink>];
        sinks.extend(self.metrics.iter().map(|metrics| Arc::clone(&metrics.sink) as Arc<dyn EventSink>));
        Arc::new(EventSinks(sinks))
    }

    /// Returns the map from running calls to their spans.
    pub fn trace_parents(&self) -> Arc<dyn TraceParents> {
        Arc::clone(&self.spans) as _
    }

    /// Sends the remaining spans and metrics within a bounded time; the error names the first failure.
    pub fn finish(self) -> Result<(), String> {
        let until = Instant::now() + FLUSH_MAX;
        let metrics = self.metrics.map(|metrics| (metrics.failure.clone(), metrics.shut_down()));
        let spans = self.provider.shutdown_with_timeout(FLUSH_MAX);
        let left = until.saturating_duration_since(Instant::now());
        let spans = undelivered(&self.span_failure, spans.is_ok()).map(|reason| ("spans", reason));
        let metrics = metrics.and_then(|(failure, ended)| {
            let is_sent = matches!(ended.recv_timeout(left), Ok(Ok(())));
            undelivered(&failure, is_sent).map(|reason| ("metrics", reason))
        });
        // Spans and metrics go to the same collector, so one warning is enough.
        match spans.or(metrics) {
            None => Ok(()),
            Some((what, reason)) => {
                Err(format!("haft could not deliver {what} to the collector {}: {reason}", self.collector))
            }
        }
    }
}

impl RunningMetrics {
    fn start(protocol: Protocol) -> Result<Self, String> {
        let failure = ExportFailure::default();
        let exporter = metric_exporter(protocol, &failure)?;
        let provider =
            SdkMeterProvider::builder().with_periodic_exporter(exporter).with_resource(resource()).build();
        let sink = Arc::new(CallMetrics::new(&provider.meter("haft")));
        Ok(Self { sink, provider, failure })
    }

    /// Sends the last metrics. The provider has no timeout, so a thread waits for it.
    fn shut_down(self) -> mpsc::Receiver<OTelSdkResult> {
        let (tell, ended) = mpsc::channel();
        std::thread::spawn(move || {
            // Ignore the error: after the timeout, the receiver is gone and the result is not needed.
            let _ = tell.send(self.provider.shutdown());
        });
        ended
    }
}

/// Returns the reason why an export failed. The SDK reports success for some failures, so the failure that the exporter
/// recorded takes precedence.
fn undelivered(failure: &ExportFailure, is_sent: bool) -> Option<String> {
    let late =
        || (!is_sent).then(|| format!("the collector did not answer within {} s", FLUSH_MAX.as_secs()));
    failure.first().or_else(late)
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("collector", &self.collector).finish_non_exhaustive()
    }
}
