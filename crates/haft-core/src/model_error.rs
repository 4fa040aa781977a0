//! The errors of a model request.

use std::time::Duration;

/// A failed model request. The message is for the operator and contains no API key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}; {}", .kind.name(), .kind.row().hint)]
pub struct ModelError {
    /// The kind of error, which determines whether a retry can help.
    pub kind: ModelErrorKind,
    /// The provider's message, or haft's own.
    pub message: String,
    /// The minimum delay before a retry, if the provider sent one.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    /// Creates an error without a retry delay.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    /// Returns true if the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.kind.row().retryable
    }
}

/// The kinds of model errors. One table, [`ModelErrorKind::row`], holds their properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelErrorKind {
    /// The API key is missing or wrong.
    Unauthorized,
    /// The API key may not use this model or feature.
    Forbidden,
    /// The provider has no model with this name.
    UnknownModel,
    /// The provider rejects the request in its encoded form.
    InvalidRequest,
    /// The conversation is longer than the model's context window.
    ContextTooLong,
    /// The model cannot call tools.
    ToolsUnsupported,
    /// The request body is larger than the provider accepts.
    RequestTooLarge,
    /// The client sent too many requests in a short time. Wait and retry.
    RateLimited,
    /// The account has no credit left.
    QuotaExhausted,
    /// The provider has no capacity at the moment.
    Overloaded,
    /// The provider had an internal error.
    ServerFailed,
    /// The connection to the provider could not be made, or it broke.
    Unreachable,
    /// The reply, or the rest of it, did not arrive in time.
    Timeout,
    /// The provider's content filter refused the request.
    Blocked,
    /// The response does not follow the wire format.
    Malformed,
    /// The reply is larger than haft accepts.
    ReplyTooLarge,
    /// Replies come from a recording, and the recording does not contain this request.
    NotRecorded,
    /// The caller cancelled the request.
    Cancelled,
}

/// One row in the table of error kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelErrorRow {
    /// The stable name that all wire formats use.
    pub name: &'static str,
    /// True if the same request may succeed later.
    pub retryable: bool,
    /// The advice for the operator.
    pub hint: &'static str,
}

impl ModelErrorKind {
    /// All kinds, in the order of the variants.
    pub const ALL: [ModelErrorKind; 18] = [
        Self::Unauthorized,
        Self::Forbidden,
        Self::UnknownModel,
        Self::InvalidRequest,
        Self::ContextTooLong,
        Self::ToolsUnsupported,
        Self::RequestTooLarge,
        Self::RateLimited,
        Self::QuotaExhausted,
        Self::Overloaded,
        Self::ServerFailed,
        Self::Unreachable,
        Self::Timeout,
        Self::Blocked,
        Self::Malformed,
        Self::ReplyTooLarge,
        Self::NotRecorded,
        Self::Cancelled,
    ];

    /// Returns the properties of this kind.
    pub fn row(self) -> ModelErrorRow {
        let (name, retryable, hint) = match self {
            Self::Unauthorized => ("unauthorized", false, "check the provider's API key"),
            Self::Forbidden => ("forbidden", false, "the API key has no access to this model or feature"),
            Self::UnknownModel => {
                ("unknown_model", false, "check the model name against the provider's list of models")
            }
            Self::InvalidRequest => {
                ("invalid_request", false, "the model provider does not accept this request")
            }
            Self::ContextTooLong => {
                ("context_too_long", false, "shorten the conversation or use a model with a larger context")
            }
            Self::ToolsUnsupported => {
                ("tools_unsupported", false, "set `toolCalling` to `prompted` for this model")
            }
            Self::RequestTooLarge => ("request_too_large", false, "send smaller images and tool outputs"),
            Self::RateLimited => ("rate_limited", true, "wait, or ask the provider for a higher rate limit"),
            Self::QuotaExhausted => {
                ("quota_exhausted", false, "add credit at the provider, or wait for the next billing period")
            }
            Self::Overloaded => ("overloaded", true, "try again later or set a fallback model"),
            Self::ServerFailed => ("server_failed", true, "try again later"),
            Self::Unreachable => ("unreachable", true, "check the provider's address and the network"),
            Self::Timeout => ("timeout", true, "try again, or raise the timeout of model requests"),
            Self::Blocked => ("blocked", false, "the provider's content filter blocked the request"),
            Self::Malformed => ("malformed", true, "the server may use another API format; check `baseUrl`"),
            Self::ReplyTooLarge => ("reply_too_large", false, "ask the model for less output"),
            Self::NotRecorded => (
                "not_recorded",
                false,
                "the recording does not contain this request; repeat the recorded run unchanged, or record a new run",
            ),
            Self::Cancelled => ("cancelled", false, "the model request was cancelled"),
        };
        ModelErrorRow { name, retryable, hint }
    }

    /// Returns the stable name that all wire formats use.
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn model_error_kinds_have_unique_names_and_hints() {
        let names: HashSet<_> = ModelErrorKind::ALL.iter().map(|kind| kind.name()).collect();
        let hints: HashSet<_> = ModelErrorKind::ALL.iter().map(|kind| kind.row().hint).collect();
        assert_eq!((names.len(), hints.len()), (ModelErrorKind::ALL.len(), ModelErrorKind::ALL.len()));
    }
}
