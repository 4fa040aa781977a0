//! Records the requests to the server, for tests to inspect.

use std::collections::{BTreeMap, VecDeque};

use axum::http::{HeaderMap, Uri};
use serde_json::Value;

use crate::wire::ApiFormat;

/// The maximum number of requests that the log keeps. The log drops the oldest requests first.
const REQUESTS_KEPT_MAX: usize = 10_000;

/// The maximum size of all request bodies that the log keeps, in bytes. Every request repeats the conversation before
/// it, so the bodies of a run with 1,000 turns take hundreds of megabytes.
const BODIES_BYTES_MAX: usize = 256 << 20;

/// The text that replaces a secret.
const SECRET: &str = "(secret)";

const SECRET_HEADERS: [&str; 6] =
    ["api-key", "authorization", "cookie", "proxy-authorization", "x-api-key", "x-goog-api-key"];

/// A recorded request and its outcome.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub format: ApiFormat,
    /// The path with its query. An API key in the query is redacted.
    pub path: String,
    /// The headers. Secret values are redacted, but the header names are kept.
    pub headers: BTreeMap<String, String>,
    pub body: Value,
    /// The exact request body.
    pub raw: String,
    pub outcome: RequestOutcome,
}

/// A request as the log stores it. The body stays text until a test requests it, because a parsed body takes ten times
/// the memory.
#[derive(Debug)]
pub(crate) struct KeptRequest {
    format: ApiFormat,
    path: String,
    headers: BTreeMap<String, String>,
    raw: String,
    outcome: RequestOutcome,
    serial: usize,
}

impl KeptRequest {
    fn recorded(&self) -> RecordedRequest {
        RecordedRequest {
            format: self.format,
            path: self.path.clone(),
            headers: self.headers.clone(),
            body: serde_json::from_str(&self.raw).unwrap_or(Value::Null),
            raw: self.raw.clone(),
            outcome: self.outcome.clone(),
        }
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The response is still being sent.
    Answering,
    /// The response was sent completely, with this status.
    Answered(u16),
    /// The script or the provider's rules rejected the request. The text is the reason.
    Refused(String),
    /// The script broke the connection.
    Cut,
    /// The client disconnected before the end of the response.
    Abandoned,
}

/// All requests so far.
#[derive(Debug)]
pub(crate) struct RequestLog {
    kept: VecDeque<KeptRequest>,
    bytes: usize,
    bytes_max: usize,
    serials: usize,
}

impl RequestLog {
    /// Creates the log of a server in a test.
    pub(crate) fn for_test() -> Self {
        Self { kept: VecDeque::new(), bytes: 0, bytes_max: BODIES_BYTES_MAX, serials: 0 }
    }

    /// Creates a log that only counts requests, for a server that no test inspects.
    pub(crate) fn counting() -> Self {
        Self { bytes_max: 0, ..Self::for_test() }
    }

    /// Stores a request and returns its number.
    pub(crate) fn keep(&mut self, format: ApiFormat, uri: &Uri, headers: &HeaderMap, raw: &str) -> usize {
        self.serials += 1;
        if self.bytes_max == 0 {
            return self.serials;
        }
        self.bytes += raw.len();
        self.kept.push_back(record(format, uri, headers, raw, self.serials));
        // Keep at least one request, even if it is larger than the limit.
        while self.kept.len() > 1 && (self.bytes > self.bytes_max || self.kept.len() > REQUESTS_KEPT_MAX) {
            self.bytes -= self.kept.pop_front().map_or(0, |oldest| oldest.raw.len());
        }
        self.serials
    }

    /// Records the outcome of a request. Only the first outcome is kept.
    pub(crate) fn ended(&mut self, serial: usize, outcome: RequestOutcome) {
        let found = self.kept.iter_mut().rev().find(|request| request.serial == serial);
        if let Some(request) = found.filter(|request| request.outcome == RequestOutcome::Answering) {
            request.outcome = outcome;
        }
    }

    pub(crate) fn all(&self) -> Vec<RecordedRequest> {
        self.kept.iter().map(KeptRequest::recorded).collect()
    }
}

fn record(format: ApiFormat, uri: &Uri, headers: &HeaderMap, raw: &str, serial: usize) -> KeptRequest {
    KeptRequest {
        format,
        path: path_without_key(uri),
        headers: headers
            .iter()
            .map(|(name, value)| (name.to_string(), shown(name.as_str(), value.to_str())))
            .collect(),
        raw: raw.to_owned(),
        outcome: RequestOutcome::Answering,
        serial,
    }
}

fn shown<E>(name: &str, value: Result<&str, E>) -> String {
    let secret = SECRET_HEADERS.contains(&name);
    value.ok().filter(|_| !secret).unwrap_or(SECRET).to_owned()
}

fn path_without_key(uri: &Uri) -> String {
    let Some(query) = uri.query() else { return uri.path().to_owned() };
    let shown = |pair: &str| if pair.starts_with("key=") { format!("key={SECRET}") } else { pair.to_owned() };
    let query: Vec<String> = query.split('&').map(shown).collect();
    format!("{}?{}", uri.path(), query.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(log: &mut RequestLog, bodies: &[usize]) -> Vec<usize> {
        for bytes in bodies {
            let body = format!("\"{}\"", "x".repeat(bytes - 2));
            log.keep(ApiFormat::Ollama, &Uri::from_static("/api/chat"), &HeaderMap::new(), &body);
        }
        log.all().iter().map(|request| request.raw.len()).collect()
    }

    #[test]
    fn request_log_keeps_the_latest_requests_within_its_byte_limit() {
        let mut log = RequestLog { bytes_max: 100, ..RequestLog::for_test() };
        assert_eq!(kept(&mut log, &[40, 50]), [40, 50]);
        assert_eq!(kept(&mut log, &[60]), [60], "both older requests are dropped to stay within the limit");
        assert_eq!(kept(&mut log, &[500]), [500], "the latest request is kept even if it exceeds the limit");
        assert_eq!(kept(&mut log, &[10]), [10]);
        assert_eq!(log.serials, 5);
    }

    #[test]
    fn request_log_that_only_counts_stores_no_requests() {
        let mut log = RequestLog::counting();
        assert!(kept(&mut log, &[40, 50]).is_empty());
        assert_eq!(log.serials, 2);
    }
}
