//! JSON-RPC messages from a client, and replies to it. Parameters and results stay raw JSON.

use haft_tools::mcp::{ID_BYTES_MAX, JsonRpcEnvelope};
pub(super) use haft_tools::mcp::{
    METHOD_NOT_FOUND, MISSING_CAPABILITY, SESSION_NOT_FOUND, UNSUPPORTED_VERSION,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub(super) const PARSE_ERROR: i64 = -32_700;
pub(super) const INVALID_REQUEST: i64 = -32_600;
pub(super) const INVALID_PARAMS: i64 = -32_602;
pub(super) const INTERNAL_ERROR: i64 = -32_603;
pub(super) const HEADER_MISMATCH: i64 = -32_020;
/// The error code for an unknown resource in revisions with a handshake; other revisions use `INVALID_PARAMS`.
pub(super) const RESOURCE_NOT_FOUND: i64 = -32_002;

/// The method of a stateless request that stays open until the client ends it.
pub(super) const LISTEN: &str = "subscriptions/listen";

/// The maximum length of an error message, in characters. The limit is needed because a message may quote the client.
const MESSAGE_CHARS_MAX: usize = 500;

/// A message from a client.
#[derive(Debug)]
pub(super) enum ClientMessage {
    Request(ClientRequest),
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
    /// The reply to one of our requests.
    Reply {
        id: u64,
        outcome: Result<Box<RawValue>, String>,
    },
}

/// A request, with its id as the client wrote it.
#[derive(Debug)]
pub(super) struct ClientRequest {
    pub(super) id: Box<RawValue>,
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
}

/// An error reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GatewayError {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Option<Value>,
}

impl GatewayError {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        let message: String = message.into();
        Self { code, message: message.chars().take(MESSAGE_CHARS_MAX).collect(), data: None }
    }

    pub(super) fn with_data(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }
}

/// The error reply to a line that is not a valid message.
#[derive(Debug)]
pub(super) struct UnusableMessage {
    /// `None` if the message has no usable id.
    pub(super) id: Option<Box<RawValue>>,
    pub(super) error: GatewayError,
}

/// Parses one message.
pub(super) fn read(line: &str) -> Result<ClientMessage, UnusableMessage> {
    let unusable = |id, code, message: &str| UnusableMessage { id, error: GatewayError::new(code, message) };
    // Refuse an array, because serde would read its elements as the fields of the envelope.
    if is_batch(line) {
        return Err(unusable(None, INVALID_REQUEST, "batches of messages are not supported"));
    }
    let envelope: JsonRpcEnvelope<'_> = serde_json::from_str(line).map_err(|error| {
        let code = if error.is_data() { INVALID_REQUEST } else { PARSE_ERROR };
        unusable(None, code, &format!("the line is not a JSON-RPC message: {error}"))
    })?;
    let JsonRpcEnvelope { jsonrpc, id, method, params, result, error } = envelope;
    let id = id.filter(|id| is_id(id)).map(ToOwned::to_owned);
    if jsonrpc.as_deref() != Some("2.0") {
        return Err(unusable(id, INVALID_REQUEST, "`jsonrpc` must be \"2.0\""));
    }
    let owned = |raw: Option<&RawValue>| raw.map(ToOwned::to_owned);
    match (method, id) {
        (Some(method), Some(id)) => {
            Ok(ClientMessage::Request(ClientRequest { id, method: method.into(), params: owned(params) }))
        }
        (Some(method), None) => {
            Ok(ClientMessage::Notification { method: method.into(), params: owned(params) })
        }
        (None, Some(id)) => {
            let outcome = match (owned(result), error) {
                (Some(result), None) => Ok(result),
                (_, Some(error)) => Err(error_text(error)),
                (None, None) => return Err(unusable(None, INVALID_REQUEST, "`method` is missing")),
            };
            // The ids of our requests are numbers; some clients return them as text.
            let number = id.get().trim_matches('"').parse().ok();
            let id = number.ok_or_else(|| {
                unusable(None, INVALID_REQUEST, "the id of this reply matches no request that haft sent")
            })?;
            Ok(ClientMessage::Reply { id, outcome })
        }
        (None, None) => Err(unusable(None, INVALID_REQUEST, "`method` is missing")),
    }
}

/// The maximum number of messages in a batch.
const BATCH_MESSAGES_MAX: usize = 100;

/// Returns true if a text is a batch of messages, which only the revision 2025-03-26 has.
pub(super) fn is_batch(text: &str) -> bool {
    text.trim_start().starts_with('[')
}

/// Reads the messages of a batch, each of which may be unusable. The error is about the batch as a whole.
pub(super) fn read_batch(text: &str) -> Result<Vec<Result<ClientMessage, UnusableMessage>>, GatewayError> {
    let messages: Vec<&RawValue> = serde_json::from_str(text)
        .map_err(|error| GatewayError::new(PARSE_ERROR, format!("the batch is not valid JSON: {error}")))?;
    if messages.is_empty() || messages.len() > BATCH_MESSAGES_MAX {
        let message = format!("a batch must have 1 to {BATCH_MESSAGES_MAX} messages; got {}", messages.len());
        return Err(GatewayError::new(INVALID_REQUEST, message));
    }
    Ok(messages.into_iter().map(|message| read(message.get())).collect())
}

fn is_id(id: &RawValue) -> bool {
    let text = id.get();
    text.len() <= ID_BYTES_MAX && text.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())
}

fn error_text(raw: &RawValue) -> String {
    let error: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    error["message"].as_str().unwrap_or("no reason was given").chars().take(MESSAGE_CHARS_MAX).collect()
}

/// Returns a reply. `result` must be JSON.
pub(super) fn success(id: &RawValue, result: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}", id.get())
}

/// Returns an error reply. Without an id, the error belongs to no request.
pub(super) fn failure(id: Option<&RawValue>, error: &GatewayError) -> String {
    let GatewayError { code, message, data } = error;
    let mut object = json!({ "code": code, "message": message });
    if let Some(data) = data {
        object["data"] = data.clone();
    }
    let id = id.map_or("null", RawValue::get);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{object}}}")
}

/// Returns a notification.
pub(super) fn notification(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
}

/// Returns a notification whose parameters are already JSON.
pub(super) fn raw_notification(method: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":{},\"params\":{params}}}", Value::from(method))
}

/// Returns a request to the client; the parameters must be JSON.
pub(super) fn request(id: u64, method: &str, params: &str) -> String {
    let method = Value::from(method);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{method},\"params\":{params}}}")
}

/// Reads the parameters of a request. Missing parameters are read as an empty object.
pub(super) fn params<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Result<T, GatewayError> {
    serde_json::from_str(raw.map_or("{}", RawValue::get))
        .map_err(|error| GatewayError::new(INVALID_PARAMS, format!("the parameters are not valid: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> String {
        match read(line) {
            Ok(ClientMessage::Request(request)) => format!("{} ? {}", request.id.get(), request.method),
            Ok(ClientMessage::Notification { method, .. }) => format!("* {method}"),
            Ok(ClientMessage::Reply { id, outcome }) => format!("{id} = {}", outcome.is_ok()),
            Err(unusable) => {
                format!(
                    "{} ! {}",
                    unusable.id.map_or("-".into(), |id| id.get().to_owned()),
                    unusable.error.code
                )
            }
        }
    }

    #[test]
    fn every_line_is_a_message_or_an_error_reply() {
        let check = |line: &str, expected: &str| assert_eq!(kind(line), expected, "{line}");
        check(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "1 ? ping");
        check(r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{}}"#, "\"a\" ? ping");
        check(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "* notifications/initialized");
        check(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "7 = true");
        check(r#"{"jsonrpc":"2.0","id":"7","error":{"code":1,"message":"no"}}"#, "7 = false");
        check("garbage", "- ! -32700");
        check("{", "- ! -32700");
        check("", "- ! -32700");
        check("[]", "- ! -32600");
        check(r#"["2.0",1,"ping"]"#, "- ! -32600");
        check("7", "- ! -32600");
        check(r#"{"id":1,"method":"ping"}"#, "1 ! -32600");
        check(r#"{"jsonrpc":"2.0"}"#, "- ! -32600");
        check(r#"{"jsonrpc":"2.0","id":3}"#, "- ! -32600");
        check(r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, "* ping");
        check(r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "- ! -32600");
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(2_000));
        check(&long, "* ping");
    }

    #[test]
    fn each_message_of_a_batch_is_read_separately() {
        let batch =
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}, 7, ["2.0"], {"jsonrpc":"2.0","method":"x"}]"#;
        assert!(is_batch(batch));
        let read = read_batch(batch).unwrap();
        assert_eq!(read.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, true]);
        let code = |text: &str| read_batch(text).unwrap_err().code;
        assert_eq!((code("[]"), code("[{")), (INVALID_REQUEST, PARSE_ERROR));
        assert_eq!(code(&format!("[{}]", ["{}"; BATCH_MESSAGES_MAX + 1].join(","))), INVALID_REQUEST);
    }

    #[test]
    fn deeply_nested_parameters_are_kept_unparsed() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(kind(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{deep}}}"#)), "1 ? x");
    }
}
