//! A telemetry collector that accepts OTLP over HTTP and keeps every span and metric that it receives.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, mpsc};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// A collector on its own port. It stops when it is dropped.
#[derive(Debug)]
pub struct SpanCollector {
    address: SocketAddr,
    received: ReceivedSpans,
    metrics: ReceivedMetrics,
    /// Dropping this sender stops the server.
    _end: tokio::sync::oneshot::Sender<()>,
}

/// The parts of a span that tests check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectedSpan {
    pub name: String,
    pub trace: String,
    pub id: String,
    /// The span id of the parent; empty for a root span.
    pub parent: String,
    pub kind: i32,
    /// The attributes, converted to text.
    pub attributes: BTreeMap<String, String>,
    /// The status message, if the status is an error.
    pub error: Option<String>,
    pub nanoseconds: u64,
    pub resource: BTreeMap<String, String>,
    pub headers: BTreeMap<String, String>,
}

/// One data point of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectedPoint {
    pub metric: String,
    pub unit: String,
    /// The attributes, converted to text.
    pub attributes: BTreeMap<String, String>,
    /// The number of measurements; 1 for a counter.
    pub count: u64,
    pub sum: f64,
}

type ReceivedSpans = Arc<Mutex<Vec<CollectedSpan>>>;
type ReceivedMetrics = Arc<Mutex<Vec<CollectedPoint>>>;

impl SpanCollector {
    pub fn start() -> Self {
        let (received, metrics) = (ReceivedSpans::default(), ReceivedMetrics::default());
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let (tell, told) = mpsc::channel();
        let service = Router::new()
            .route("/v1/traces", post(take))
            .layer(DefaultBodyLimit::max(64 << 20))
            .with_state(Arc::clone(&received))
            .merge(Router::new().route("/v1/metrics", post(take_metrics)).with_state(Arc::clone(&metrics)));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let until = async { drop(ended.await) };
                axum::serve(listener, service).with_graceful_shutdown(until).await.unwrap();
            });
        });
        Self { address: told.recv().unwrap(), received, metrics, _end: end }
    }

    /// Returns the value for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns every span received so far.
    pub fn spans(&self) -> Vec<CollectedSpan> {
        self.received.lock().unwrap().clone()
    }

    /// Returns every data point received so far.
    pub fn metrics(&self) -> Vec<CollectedPoint> {
        self.metrics.lock().unwrap().clone()
    }
}

async fn take_metrics(
    State(received): State<ReceivedMetrics>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let request: Option<ExportMetricsServiceRequest> =
        match headers.get("content-type").and_then(|value| value.to_str().ok()) {
            Some("application/x-protobuf") => ExportMetricsServiceRequest::decode(body).ok(),
            Some("application/json") => serde_json::from_slice(&body).ok(),
            Some(_) | None => None,
        };
    let Some(request) = request else { return StatusCode::BAD_REQUEST };
    let scopes = request.resource_metrics.into_iter().flat_map(|group| group.scope_metrics);
    for metric in scopes.flat_map(|scope| scope.metrics) {
        received.lock().unwrap().extend(points(metric));
    }
    StatusCode::OK
}

fn points(metric: Metric) -> Vec<CollectedPoint> {
    let Metric { name, unit, data, .. } = metric;
    let point = |attributes: Vec<KeyValue>, count: u64, sum: f64| CollectedPoint {
        metric: name.clone(),
        unit: unit.clone(),
        attributes: texts(attributes),
        count,
        sum,
    };
    match data {
        Some(Data::Histogram(histogram)) => histogram
            .data_points
            .into_iter()
            .map(|found| point(found.attributes, found.count, found.sum.unwrap_or_default()))
            .collect(),
        Some(Data::Sum(sum)) => {
            let value = |found: &NumberDataPoint| match found.value {
                Some(number_data_point::Value::AsDouble(value)) => value,
                Some(number_data_point::Value::AsInt(value)) => f64::from(i32::try_from(value).unwrap()),
                None => 0.0,
            };
            sum.data_points
                .into_iter()
                .map(|found| point(found.attributes.clone(), 1, value(&found)))
                .collect()
        }
        other => panic!("the collector does not support this kind of metric: {other:?}"),
    }
}

async fn take(State(received): State<ReceivedSpans>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let request = match headers.get("content-type").and_then(|value| value.to_str().ok()) {
        Some("application/x-protobuf") => ExportTraceServiceRequest::decode(body).ok(),
        Some("application/json") => serde_json::from_slice(&body).ok(),
        Some(_) | None => None,
    };
    let Some(request) = request else { return StatusCode::BAD_REQUEST };
    let headers: BTreeMap<String, String> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let mut received = received.lock().unwrap();
    for group in request.resource_spans {
        let resource = texts(group.resource.map(|resource| resource.attributes).unwrap_or_default());
        for span in group.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            received.push(collected(span, &resource, &headers));
        }
    }
    StatusCode::OK
}

fn collected(
    span: Span,
    resource: &BTreeMap<String, String>,
    headers: &BTreeMap<String, String>,
) -> CollectedSpan {
    let status = span.status.unwrap_or_default();
    CollectedSpan {
        name: span.name,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        kind: span.kind,
        attributes: texts(span.attributes),
        error: (status.code == 2).then_some(status.message),
        nanoseconds: span.end_time_unix_nano - span.start_time_unix_nano,
        resource: resource.clone(),
        headers: headers.clone(),
    }
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    attributes.into_iter().map(|attribute| (attribute.key, text(attribute.value))).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::BoolValue(value)) => value.to_string(),
        Some(Value::IntValue(value)) => value.to_string(),
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut digits = String::new();
    for byte in bytes {
        write!(digits, "{byte:02x}").unwrap();
    }
    digits
}
