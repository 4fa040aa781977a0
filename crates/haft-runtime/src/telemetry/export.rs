//! Exports spans and metrics, and remembers the first failure.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::{Key, Value};
use opentelemetry_otlp::{Protocol, RetryPolicy, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use super::settings::ExporterSettings;

/// The default service name; `service.name` in the environment overrides it.
const SERVICE_NAME: &str = "haft";

/// The first failure of an export. Later failures most likely have the same cause.
#[derive(Debug, Clone, Default)]
pub(super) struct ExportFailure(Arc<OnceLock<String>>);

impl ExportFailure {
    pub(super) fn first(&self) -> Option<String> {
        self.0.get().cloned()
    }
}

pub(super) fn exporter(
    settings: &ExporterSettings,
    trouble: &ExportFailure,
) -> Result<FailureTrackingExporter, String> {
    // Ignore the error: the embedding program may already have installed a crypto provider, which stays in use.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_protocol(settings.protocol)
        // One retry covers a collector that restarts. More retries would delay the end of the program beyond the flush
        // timeout.
        .with_retry_policy(RetryPolicy::recommended().with_max_retries(1))
        .build()
        .map_err(|error| format!("telemetry is off, because haft cannot create the exporter: {error}"))?;
    Ok(FailureTrackingExporter { exporter, trouble: trouble.clone() })
}

/// Returns the exporter of metrics. A collector that accepts spans only, such as Jaeger, is not reported as a failure.
pub(super) fn metric_exporter(
    protocol: Protocol,
    trouble: &ExportFailure,
) -> Result<FailureTrackingMetricExporter, String> {
    let exporter = opentelemetry_otlp::MetricExporter::builder()
        .with_http()
        .with_protocol(protocol)
        .with_retry_policy(RetryPolicy::recommended().with_max_retries(1))
        .build()
        .map_err(|error| format!("telemetry is off, because haft cannot create the exporter: {error}"))?;
    Ok(FailureTrackingMetricExporter { exporter, trouble: trouble.clone() })
}

/// The statuses of a collector that does not accept metrics: not found, method not allowed, not implemented.
const NO_METRICS_STATUSES: [u16; 3] = [404, 405, 501];

/// Returns the resource that the environment describes, with a default service name.
pub(super) fn resource() -> Resource {
    let detected = Resource::builder().build();
    match detected.get(&Key::from_static_str("service.name")) {
        Some(Value::String(name)) if !name.as_str().starts_with("unknown_service") => detected,
        Some(_) | None => Resource::builder().with_service_name(SERVICE_NAME).build(),
    }
}

/// An exporter that remembers its first failure.
#[derive(Debug)]
pub(super) struct FailureTrackingExporter {
    exporter: opentelemetry_otlp::SpanExporter,
    trouble: ExportFailure,
}

impl SpanExporter for FailureTrackingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let exported = self.exporter.export(batch).await;
        if let Err(error) = &exported {
            self.trouble.0.get_or_init(|| reason(error));
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// A metrics exporter that remembers its first failure.
#[derive(Debug)]
pub(super) struct FailureTrackingMetricExporter {
    exporter: opentelemetry_otlp::MetricExporter,
    trouble: ExportFailure,
}

impl PushMetricExporter for FailureTrackingMetricExporter {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let exported = self.exporter.export(metrics).await;
        match &exported {
            Err(error) if takes_no_metrics(error) => Ok(()),
            Err(error) => {
                self.trouble.0.get_or_init(|| reason(error));
                exported
            }
            Ok(()) => exported,
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}

fn takes_no_metrics(error: &OTelSdkError) -> bool {
    match error {
        OTelSdkError::InternalFailure(text) => {
            status(text).is_some_and(|status| NO_METRICS_STATUSES.contains(&status))
        }
        OTelSdkError::Timeout(_) | OTelSdkError::AlreadyShutdown => false,
    }
}

/// Describes a failure without the exporter's own text, which may repeat the endpoint and an API key in it.
fn reason(error: &OTelSdkError) -> String {
    match error {
        OTelSdkError::Timeout(_) => "the collector did not answer in time".into(),
        OTelSdkError::AlreadyShutdown => "the exporter had already shut down".into(),
        OTelSdkError::InternalFailure(text) => match status(text) {
            Some(status) => format!("the collector answered with status {status}"),
            None => "haft cannot reach the collector".into(),
        },
    }
}

/// Extracts the HTTP status from a message of the exporter.
fn status(text: &str) -> Option<u16> {
    let after = text.split("tatus").nth(1)?;
    let digits: String =
        after.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|status| (100..600).contains(status))
}
