//! Sending spans, and noticing the first time that it fails.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::{Key, Value};
use opentelemetry_otlp::{RetryPolicy, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use super::settings::Settings;

/// The name of this program to a collector, unless the environment gives it another.
const SERVICE_NAME: &str = "haft";

/// What went wrong first. Later troubles are most likely the same one.
#[derive(Debug, Clone, Default)]
pub(super) struct Trouble(Arc<OnceLock<String>>);

impl Trouble {
    pub(super) fn first(&self) -> Option<String> {
        self.0.get().cloned()
    }
}

pub(super) fn exporter(settings: &Settings, trouble: &Trouble) -> Result<Watched, String> {
    // Whoever embeds us may have chosen a provider already; then that one stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_protocol(settings.protocol)
        // A collector that is restarted gets a second chance; the end of the program waits no longer than it says.
        .with_retry_policy(RetryPolicy::recommended().with_max_retries(1))
        .build()
        .map_err(|error| format!("no telemetry: {error}"))?;
    Ok(Watched { exporter, trouble: trouble.clone() })
}

/// What the environment says of this program, with a name of its own where it says none.
pub(super) fn resource() -> Resource {
    let detected = Resource::builder().build();
    match detected.get(&Key::from_static_str("service.name")) {
        Some(Value::String(name)) if !name.as_str().starts_with("unknown_service") => detected,
        Some(_) | None => Resource::builder().with_service_name(SERVICE_NAME).build(),
    }
}

/// An exporter whose first failure is kept.
#[derive(Debug)]
pub(super) struct Watched {
    exporter: opentelemetry_otlp::SpanExporter,
    trouble: Trouble,
}

impl SpanExporter for Watched {
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

/// Not the exporter's own words: they may repeat the endpoint, and a key in it.
fn reason(error: &OTelSdkError) -> String {
    match error {
        OTelSdkError::Timeout(_) => "it did not answer in time".into(),
        OTelSdkError::AlreadyShutdown => "sending had ended already".into(),
        OTelSdkError::InternalFailure(text) => match status(text) {
            Some(status) => format!("it answered with status {status}"),
            None => "it cannot be reached".into(),
        },
    }
}

/// The HTTP status that a message of the exporter names.
fn status(text: &str) -> Option<u16> {
    let after = text.split("tatus").nth(1)?;
    let digits: String =
        after.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|status| (100..600).contains(status))
}
