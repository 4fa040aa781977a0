//! Notifications of an MCP server that a gateway passes to its clients.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The maximum number of notifications that are queued for a slow receiver. If there are more, the receiver misses the
/// oldest ones.
pub(super) const NEWS_WAITING_MAX: usize = 256;

/// The maximum size of a log record that is passed on, in bytes.
const RECORD_BYTES_MAX: usize = 64 << 10;

/// The maximum length of a resource URI that is passed on, in bytes.
const URI_BYTES_MAX: usize = 8 << 10;

/// The maximum length of the id of a question about a URL, in bytes.
const URL_ID_BYTES_MAX: usize = 1 << 10;

/// A notification of an MCP server that a gateway passes to its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerNews {
    /// The server's list of prompts has changed.
    PromptsChanged,
    /// The server's list of resources or resource templates has changed.
    ResourcesChanged,
    /// The resource with this URI has changed.
    ResourceUpdated(String),
    /// The user has finished at the URL of the question with this id.
    UrlCompleted(String),
    /// The server has sent a log record.
    Log(LogRecord),
}

/// A log record of an MCP server, without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// The severity, such as `warning`.
    pub level: String,
    /// The parameters of the notification as JSON.
    pub params: Arc<str>,
}

impl LogRecord {
    /// Reads the parameters of the notification; `None` if they have no level or are too large.
    pub(super) fn read(params: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct LogMessageParams {
            level: String,
        }
        let LogMessageParams { level } =
            serde_json::from_str(params).ok().filter(|_| params.len() <= RECORD_BYTES_MAX)?;
        Some(Self { level, params: params.into() })
    }
}

impl ServerNews {
    /// Reads the URI of a changed resource.
    pub(super) fn updated_uri(params: &RawValue) -> Option<String> {
        #[derive(Deserialize)]
        struct UpdateParams {
            uri: String,
        }
        let updated: UpdateParams = serde_json::from_str(params.get()).ok()?;
        (updated.uri.len() <= URI_BYTES_MAX).then_some(updated.uri)
    }

    /// Reads the id of a question about a URL.
    pub(super) fn completed_id(params: &RawValue) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct UrlCompletedParams {
            elicitation_id: String,
        }
        let completed: UrlCompletedParams = serde_json::from_str(params.get()).ok()?;
        (completed.elicitation_id.len() <= URL_ID_BYTES_MAX).then_some(completed.elicitation_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_log_messages_with_a_level_are_passed_on() {
        let check = |params: &str, expected: Option<&str>| {
            assert_eq!(
                LogRecord::read(params).map(|record| record.level).as_deref(),
                expected,
                "{params:.40}"
            );
        };
        check(r#"{"level":"info","data":1}"#, Some("info"));
        check(r#"{"data":1}"#, None);
        check("7", None);
        check(&format!(r#"{{"level":"info","data":"{}"}}"#, "x".repeat(RECORD_BYTES_MAX)), None);
    }
}
