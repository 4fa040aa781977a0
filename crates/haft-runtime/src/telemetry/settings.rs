//! Reads the telemetry settings from the environment.

use std::collections::HashMap;

use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry_otlp::Protocol;
use opentelemetry_sdk::propagation::TraceContextPropagator;

/// Looks up one environment variable.
type TelemetryVariables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The telemetry that the environment requests.
#[derive(Debug)]
pub(super) enum TelemetryRequest {
    Nothing,
    Spans(ExporterSettings),
}

/// The settings that the exporter does not read itself. The exporter reads endpoint, headers, timeout and service name.
#[derive(Debug)]
pub(super) struct ExporterSettings {
    pub(super) protocol: Protocol,
    /// The collector's address for messages, without parts that could be a credential.
    pub(super) collector: String,
    /// The protocol for metrics; `None` if only spans are requested.
    pub(super) metrics: Option<Protocol>,
    traceparent: Option<String>,
    tracestate: Option<String>,
}

impl TelemetryRequest {
    pub(super) fn from(environment: TelemetryVariables<'_>) -> Result<Self, String> {
        // The OpenTelemetry specification treats an empty variable as unset.
        let read =
            |name: &str| environment(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let general = read("OTEL_EXPORTER_OTLP_ENDPOINT");
        let metrics = metrics_protocol(&read, general.as_deref())?;
        let Some(endpoint) = read("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or(general) else {
            return Ok(Self::Nothing);
        };
        let disabled = read("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let exporter = read("OTEL_TRACES_EXPORTER").unwrap_or_else(|| "otlp".into());
        if disabled || exporter == "none" {
            return Ok(Self::Nothing);
        }
        if exporter != "otlp" {
            return Err(unknown("OTEL_TRACES_EXPORTER", &exporter, "`otlp` or `none`"));
        }
        let written =
            read("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| read("OTEL_EXPORTER_OTLP_PROTOCOL"));
        Ok(Self::Spans(ExporterSettings {
            protocol: protocol(written.as_deref())?,
            collector: without_credentials(&endpoint)?,
            metrics,
            traceparent: read("TRACEPARENT"),
            tracestate: read("TRACESTATE"),
        }))
    }
}

/// Returns the protocol for metrics; `None` if the environment names no endpoint for them, or turns them off.
fn metrics_protocol(
    read: &dyn Fn(&str) -> Option<String>,
    general: Option<&str>,
) -> Result<Option<Protocol>, String> {
    if general.is_none() && read("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT").is_none() {
        return Ok(None);
    }
    match read("OTEL_METRICS_EXPORTER").as_deref() {
        None | Some("otlp") => {}
        Some("none") => return Ok(None),
        Some(other) => return Err(unknown("OTEL_METRICS_EXPORTER", other, "`otlp` or `none`")),
    }
    let written = read("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL").or_else(|| read("OTEL_EXPORTER_OTLP_PROTOCOL"));
    protocol(written.as_deref()).map(Some)
}

impl ExporterSettings {
    /// Returns the parent span of this program; an empty context if the environment names none, or an invalid one.
    pub(super) fn parent(&self) -> Context {
        remote_context(self.traceparent.as_deref(), self.tracestate.as_deref())
    }
}

/// Returns the context of a span in another program; an empty context if the values are not valid.
pub(super) fn remote_context(traceparent: Option<&str>, tracestate: Option<&str>) -> Context {
    let named = [("traceparent", traceparent), ("tracestate", tracestate)];
    let carried: HashMap<String, String> =
        named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    TraceContextPropagator::new().extract_with_context(&Context::new(), &carried)
}

/// Returns whether spans may contain message content; `None` if the environment does not set this, so that the
/// configuration decides.
pub fn captures_content() -> Option<bool> {
    content(std::env::var("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT").ok().as_deref())
}

/// Returns true only for explicit values: older instrumentations use `true`, newer ones name the destination of the
/// content.
fn content(written: Option<&str>) -> Option<bool> {
    let written = written.map(|text| text.trim().to_ascii_lowercase()).filter(|text| !text.is_empty())?;
    Some(matches!(written.as_str(), "true" | "1" | "span_only" | "span_and_event"))
}

fn protocol(written: Option<&str>) -> Result<Protocol, String> {
    match written {
        None | Some("http/protobuf") => Ok(Protocol::HttpBinary),
        Some("http/json") => Ok(Protocol::HttpJson),
        Some(other) => Err(unknown(
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            other,
            "`http/protobuf` or `http/json` (usually port 4318)",
        )),
    }
}

fn unknown(name: &str, found: &str, expected: &str) -> String {
    format!("telemetry is off: {name} is `{found}`; expected {expected}")
}

/// Returns scheme, host and port. Drops user, path and query, because they may contain a key.
fn without_credentials(endpoint: &str) -> Result<String, String> {
    let expected = "expected a URL such as http://localhost:4318";
    let url = reqwest::Url::parse(endpoint).map_err(|error| {
        format!("telemetry is off: the OTLP endpoint in the environment is not a URL ({error}); {expected}")
    })?;
    match (url.scheme(), url.host_str(), url.port_or_known_default()) {
        (scheme @ ("http" | "https"), Some(host), Some(port)) => Ok(format!("{scheme}://{host}:{port}")),
        _ => Err(format!(
            "telemetry is off: the OTLP endpoint in the environment is not an http URL; {expected}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TraceContextExt;

    use super::*;

    fn wanted(variables: &[(&str, &str)]) -> Result<TelemetryRequest, String> {
        let read =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        TelemetryRequest::from(&read)
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");

    #[test]
    fn spans_are_exported_only_with_an_endpoint() {
        let check = |variables: &[(&str, &str)], expected: bool| {
            let spans = matches!(wanted(variables).unwrap(), TelemetryRequest::Spans(_));
            assert_eq!(spans, expected, "{variables:?}");
        };
        check(&[], false);
        check(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")], false);
        check(&[ENDPOINT], true);
        check(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector/v1/traces")], true);
        check(&[ENDPOINT, ("OTEL_SDK_DISABLED", "True")], false);
        check(&[ENDPOINT, ("OTEL_SDK_DISABLED", "false")], true);
        check(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")], false);
        check(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")], true);
    }

    #[test]
    fn metrics_are_exported_with_spans_unless_turned_off() {
        let check = |variables: &[(&str, &str)], expected: bool| {
            let TelemetryRequest::Spans(settings) = wanted(variables).unwrap() else {
                panic!("spans are off")
            };
            assert_eq!(settings.metrics.is_some(), expected, "{variables:?}");
        };
        check(&[ENDPOINT], true);
        check(&[ENDPOINT, ("OTEL_METRICS_EXPORTER", "none")], false);
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector/v1/traces");
        check(&[traces], false);
        check(&[traces, ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://collector/v1/metrics")], true);
    }

    #[test]
    fn error_for_an_unsupported_otel_value_names_the_supported_values() {
        let check = |variable: (&str, &str), expected: &str| {
            let error = wanted(&[ENDPOINT, variable]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check(("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), "is `grpc`; expected `http/protobuf`");
        check(("OTEL_TRACES_EXPORTER", "zipkin"), "is `zipkin`; expected `otlp`");
        check(("OTEL_METRICS_EXPORTER", "prometheus"), "is `prometheus`; expected `otlp`");
        check(("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector"), "expected a URL such as");
        check(("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "file:///x"), "expected a URL such as");
    }

    #[test]
    fn collector_name_omits_endpoint_credentials() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://user:secret@collector/x?key=secret");
        let TelemetryRequest::Spans(settings) = wanted(&[endpoint]).unwrap() else { panic!("spans are off") };
        assert_eq!(settings.collector, "https://collector:443");
    }

    #[test]
    fn only_a_valid_traceparent_becomes_the_parent_span() {
        let check = |traceparent: &str, expected: bool| {
            let TelemetryRequest::Spans(settings) =
                wanted(&[ENDPOINT, ("TRACEPARENT", traceparent)]).unwrap()
            else {
                panic!("spans are off")
            };
            assert_eq!(settings.parent().has_active_span(), expected, "{traceparent}");
        };
        check("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true);
        check("00-00000000000000000000000000000000-b7ad6b7169203331-01", false);
        check("nonsense", false);
    }

    #[test]
    fn unrecognized_capture_value_keeps_content_out_of_spans() {
        let check = |written: Option<&str>, expected: Option<bool>| {
            assert_eq!(content(written), expected, "{written:?}");
        };
        check(None, None);
        check(Some(""), None);
        check(Some("True"), Some(true));
        check(Some("SPAN_AND_EVENT"), Some(true));
        check(Some("EVENT_ONLY"), Some(false));
        check(Some("NO_CONTENT"), Some(false));
        check(Some("maybe"), Some(false));
    }
}
