//! Records the requests to the server, for tests to inspect.

use std::collections::{BTreeMap, VecDeque};

use axum::http::{HeaderMap, Uri};
use serde_json::Value;

use crate::wire::ApiFormat;

/// The most requests that are kept; the oldest are dropped first.
const REQUESTS_KEPT_MAX: usize = 10_000;

/// The replacement for a secret.
const SECRET: &str = "(secret)";

const SECRET_HEADERS: [&str; 6] =
    ["api-key", "authorization", "cookie", "proxy-authorization", "x-api-key", "x-goog-api-key"];

/// A request and its outcome.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub format: ApiFormat,
    /// The path with its query; a key in it is redacted.
    pub path: String,
    /// The headers. Secret values are redacted, but their names remain.
    pub headers: BTreeMap<String, String>,
    pub body: Value,
    /// The exact body.
    pub raw: String,
    pub outcome: RequestOutcome,
    pub(crate) serial: usize,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The response is still being sent.
    Answering,
    /// The response was sent completely, with this status.
    Answered(u16),
    /// The script or the provider's rules rejected the request, for this reason.
    Refused(String),
    /// The script broke the connection.
    Cut,
    /// The client disconnected before the end.
    Abandoned,
}

/// All requests so far.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    kept: VecDeque<RecordedRequest>,
    serials: usize,
}

impl RequestLog {
    /// Stores a request and returns its number.
    pub(crate) fn keep(&mut self, mut request: RecordedRequest) -> usize {
        self.serials += 1;
        request.serial = self.serials;
        self.kept.push_back(request);
        if self.kept.len() > REQUESTS_KEPT_MAX {
            self.kept.pop_front();
        }
        self.serials
    }

    /// Records the outcome of a request; the first outcome wins.
    pub(crate) fn ended(&mut self, serial: usize, outcome: RequestOutcome) {
        let found = self.kept.iter_mut().rev().find(|request| request.serial == serial);
        if let Some(request) = found.filter(|request| request.outcome == RequestOutcome::Answering) {
            request.outcome = outcome;
        }
    }

    pub(crate) fn all(&self) -> Vec<RecordedRequest> {
        self.kept.iter().cloned().collect()
    }
}

pub(crate) fn record(format: ApiFormat, uri: &Uri, headers: &HeaderMap, raw: &str) -> RecordedRequest {
    RecordedRequest {
        format,
        path: path_without_key(uri),
        headers: headers
            .iter()
            .map(|(name, value)| (name.to_string(), shown(name.as_str(), value.to_str())))
            .collect(),
        body: serde_json::from_str(raw).unwrap_or(Value::Null),
        raw: raw.to_owned(),
        outcome: RequestOutcome::Answering,
        serial: 0,
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
