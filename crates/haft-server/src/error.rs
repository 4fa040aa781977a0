//! Errors of the API, in the JSON form of OpenAI's API.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

/// The kinds of errors. Clients use the HTTP status; the names follow the Open Responses specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiErrorKind {
    /// The request is invalid; `param` names the field.
    InvalidRequest,
    /// The key is missing, unknown or expired.
    Unauthorized,
    /// The key does not permit the request, or the host or origin is not allowed.
    Forbidden,
    /// The object does not exist, or it belongs to another principal. The error does not reveal which.
    NotFound,
    /// The route exists, but not for this method.
    MethodNotAllowed,
    /// The state of the object does not allow the request.
    Conflict,
    /// The body is too large.
    TooLarge,
    /// The content type of the body is not JSON, or the body is compressed.
    UnsupportedMediaType,
    /// The `Host` header names another server.
    MisdirectedRequest,
    /// The caller has reached one of its limits.
    TooManyRequests,
    /// The model or its provider failed.
    ModelError,
    /// The server itself failed.
    ServerError,
    /// The server is stopping or has no capacity; the same request may succeed later.
    Unavailable,
}

impl ApiErrorKind {
    /// Returns the HTTP status and the `type` of the error.
    pub fn row(self) -> (StatusCode, &'static str) {
        match self {
            Self::InvalidRequest => (StatusCode::BAD_REQUEST, "invalid_request_error"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "authentication_error"),
            Self::Forbidden => (StatusCode::FORBIDDEN, "permission_error"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error"),
            Self::Conflict => (StatusCode::CONFLICT, "invalid_request_error"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error"),
            Self::UnsupportedMediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error"),
            Self::MisdirectedRequest => (StatusCode::MISDIRECTED_REQUEST, "invalid_request_error"),
            Self::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, "too_many_requests"),
            Self::ModelError => (StatusCode::INTERNAL_SERVER_ERROR, "model_error"),
            Self::ServerError => (StatusCode::INTERNAL_SERVER_ERROR, "server_error"),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "server_error"),
        }
    }
}

/// The error that a request gets as its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The kind, which determines the HTTP status and the `type` field of the error body.
    pub kind: ApiErrorKind,
    /// The problem and the remedy, for the developer of the client.
    pub message: String,
    /// The invalid field of the request, such as `tools[0].name`; `None` if the error concerns no single field.
    pub param: Option<String>,
    /// A stable error code, which programs can compare.
    pub code: Option<&'static str>,
    /// `Some(false)` tells clients not to retry, because a retry cannot succeed or could repeat the side effect of a
    /// tool.
    pub should_retry: Option<bool>,
    /// The seconds after which the same request may succeed; `None` if the server cannot tell.
    pub retry_after_s: Option<u64>,
}

impl ApiError {
    /// Creates an error that does not concern a single field of the request.
    pub fn new(kind: ApiErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            param: None,
            code: None,
            should_retry: None,
            retry_after_s: None,
        }
    }

    /// Creates an error about a field of the request.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(ApiErrorKind::InvalidRequest, message) }
    }

    /// Adds a stable error code.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// Tells clients not to retry, because a retry cannot succeed. Some clients retry automatically.
    #[must_use]
    pub fn not_retryable(mut self) -> Self {
        self.should_retry = Some(false);
        self
    }

    /// Tells clients to retry after this many seconds.
    #[must_use]
    pub fn after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// Returns the `error` object of the body.
    pub fn body(&self) -> Value {
        let (_, kind) = self.kind.row();
        json!({ "message": self.message, "type": kind, "param": self.param, "code": self.code })
    }
}

/// The error of a reply, for the audit log.
#[derive(Debug, Clone)]
pub(crate) struct RefusalReason {
    pub(crate) code: Option<&'static str>,
    pub(crate) message: String,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, _) = self.kind.row();
        let mut response = (status, Json(json!({ "error": self.body() }))).into_response();
        response.extensions_mut().insert(RefusalReason { code: self.code, message: self.message });
        if self.kind == ApiErrorKind::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(should_retry) = self.should_retry {
            let value = HeaderValue::from_static(if should_retry { "true" } else { "false" });
            response.headers_mut().insert("x-should-retry", value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_body_has_the_four_fields_that_clients_read() {
        let error = ApiError::invalid("tools[0].name", "`tools[0].name` is missing").with_code("missing");
        let expected = json!({
            "message": "`tools[0].name` is missing", "type": "invalid_request_error", "param": "tools[0].name",
            "code": "missing",
        });
        assert_eq!(error.body(), expected);
        assert_eq!(error.into_response().status(), 400);
    }

    #[test]
    fn request_without_a_key_gets_a_bearer_challenge() {
        let response = ApiError::new(ApiErrorKind::Unauthorized, "no key").into_response();
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
    }
}
