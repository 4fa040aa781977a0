//! One JSON-RPC message. Only its id and method are parsed; the rest stays raw JSON.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::bounded::{BoundedList, cut};

/// The maximum number of messages that are read from one batch.
const BATCH_MAX: usize = 1000;

/// The maximum length of a request id from the other side, in bytes. The reply repeats the id.
pub const ID_BYTES_MAX: usize = 1024;

/// The maximum number of characters that haft shows of a server's error message.
pub(super) const ERROR_CHARS_MAX: usize = 4_000;

/// The maximum number of characters that are kept of an error that cannot be parsed. It is larger than
/// [`ERROR_CHARS_MAX`], so that the shown text never ends inside a secret that this cut has split.
const UNREAD_CHARS_MAX: usize = 2 * ERROR_CHARS_MAX;

/// The maximum size of an error object that is parsed, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The id of a request that haft sends.
pub type RequestId = u64;

/// A JSON-RPC message to an MCP server.
#[derive(Debug, Clone)]
pub struct McpOutgoingMessage {
    /// The request id; `None` for notifications, and for replies to the server's requests.
    pub id: Option<RequestId>,
    /// The method; empty for replies.
    pub method: Cow<'static, str>,
    /// The HTTP headers to send with the message; other transports ignore them.
    pub headers: Vec<(String, String)>,
    /// The message as one line of JSON.
    pub text: String,
}

/// A JSON-RPC message from an MCP server.
#[derive(Debug)]
pub(super) enum JsonRpcMessage {
    Reply {
        /// The id of the answered request; `None` when the reply has no usable id, for example after a parse error.
        id: Option<RequestId>,
        outcome: Result<Box<RawValue>, RpcError>,
    },
    Request {
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
    },
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
}

/// A JSON-RPC error that an MCP server returned.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct RpcError {
    #[serde(default)]
    pub(super) code: i64,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) data: Option<Value>,
}

pub const METHOD_NOT_FOUND: i64 = -32_601;
pub const UNSUPPORTED_VERSION: i64 = -32_022;
/// The error code for a client that lacks a capability which the request needs.
pub const MISSING_CAPABILITY: i64 = -32_021;
/// The error code for a request that fails until the user opens a URL, in protocol version 2025-11-25.
pub const URL_REQUIRED: i64 = -32_042;
pub const SESSION_NOT_FOUND: i64 = -32_001;

/// The members of any JSON-RPC message. The client and the server interpret them differently.
#[derive(Debug, Deserialize)]
pub struct JsonRpcEnvelope<'a> {
    #[serde(borrow)]
    pub jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub params: Option<&'a RawValue>,
    #[serde(borrow)]
    pub result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
}

/// Parses a line, which may be a batch. Returns no messages for a line that is not JSON-RPC, even if the line is JSON.
pub(super) fn read(line: &str) -> Vec<JsonRpcMessage> {
    let line = line.trim_start_matches('\u{feff}').trim();
    match line.as_bytes().first() {
        Some(b'{') => read_one(line).into_iter().collect(),
        Some(b'[') => {
            let batch: BoundedList<&RawValue, BATCH_MAX> = serde_json::from_str(line).unwrap_or_default();
            batch.items.iter().filter_map(|one| read_one(one.get())).collect()
        }
        Some(_) | None => Vec::new(),
    }
}

fn read_one(text: &str) -> Option<JsonRpcMessage> {
    let envelope: JsonRpcEnvelope<'_> = serde_json::from_str(text).ok()?;
    if envelope.jsonrpc.as_deref() != Some("2.0") {
        return None;
    }
    let owned = |raw: Option<&RawValue>| raw.map(ToOwned::to_owned);
    let JsonRpcEnvelope { id, method, params, result, error, .. } = envelope;
    match (method, id, error) {
        (Some(_), Some(id), _) if id.get().len() > ID_BYTES_MAX => None,
        (Some(method), Some(id), _) => {
            let (id, method) = (id.to_owned(), method.into_owned());
            Some(JsonRpcMessage::Request { id, method, params: owned(params) })
        }
        (Some(method), None, _) => {
            Some(JsonRpcMessage::Notification { method: method.into_owned(), params: owned(params) })
        }
        (None, id, Some(error)) => {
            Some(JsonRpcMessage::Reply { id: id.and_then(number), outcome: Err(error_of(error)) })
        }
        (None, Some(id), None) => {
            let result = owned(result).unwrap_or_else(|| RawValue::NULL.to_owned());
            Some(JsonRpcMessage::Reply { id: number(id), outcome: Ok(result) })
        }
        (None, None, None) => None,
    }
}

/// Parses one of our request ids, which are numbers. Some servers send them back as strings.
fn number(id: &RawValue) -> Option<RequestId> {
    id.get().trim_matches('"').parse().ok()
}

/// Parses an error. Its message is shortened only after secrets were masked, because a cut could split a secret.
pub(super) fn error_of(raw: &RawValue) -> RpcError {
    let details = Some(raw.get()).filter(|text| text.len() <= ERROR_BYTES_MAX);
    let read = details.and_then(|text| serde_json::from_str::<RpcError>(text).ok());
    read.unwrap_or_else(|| RpcError { code: 0, message: cut(raw.get(), UNREAD_CHARS_MAX), data: None })
}

/// Finds the id of a message that is too long to parse. Servers write the id either first or last.
pub(super) fn id_in_fragment(head: &str, tail: &str) -> Option<RequestId> {
    // Ignore an `id` after `result`, because it may be part of the result.
    let before_result = head.split("\"result\"").next().filter(|before| before.len() < head.len());
    before_result.and_then(first_id).or_else(|| last_id(tail))
}

fn first_id(text: &str) -> Option<RequestId> {
    text.split_once("\"id\"").and_then(|(_, after)| leading_number(after))
}

fn last_id(text: &str) -> Option<RequestId> {
    let (_, after) = text.trim_end().strip_suffix('}')?.rsplit_once("\"id\"")?;
    let number: &str = after.trim_start().strip_prefix(':')?.trim().trim_matches('"');
    number.parse().ok()
}

fn leading_number(after: &str) -> Option<RequestId> {
    let value = after.trim_start().strip_prefix(':')?.trim_start().trim_start_matches('"');
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    value[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> String {
        let told = |message: JsonRpcMessage| match message {
            JsonRpcMessage::Reply { id, outcome: Ok(result) } => format!("{id:?} = {}", result.get()),
            JsonRpcMessage::Reply { id, outcome: Err(error) } => format!("{id:?} ! {}", error.code),
            JsonRpcMessage::Request { id, method, .. } => format!("{} ? {method}", id.get()),
            JsonRpcMessage::Notification { method, .. } => format!("* {method}"),
        };
        read(line).into_iter().map(told).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn json_rpc_messages_are_classified_and_other_lines_ignored() {
        let check = |line: &str, expected: &str| assert_eq!(kind(line), expected, "{line}");
        check(r#"{"jsonrpc":"2.0","id":1,"result":{"a": 1}}"#, r#"Some(1) = {"a": 1}"#);
        check(r#"{"result":{},"jsonrpc":"2.0","id":"7"}"#, "Some(7) = {}");
        check(r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no"}}"#, "Some(2) ! -32601");
        check(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}"#, "None ! -32700");
        check(r#"{"jsonrpc":"2.0","id":"x","method":"ping"}"#, "\"x\" ? ping");
        check(r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#, "* notifications/progress");
        check("[{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":1},7]", "Some(3) = 1");
        let noise = ["", "hello", "{", r#"{"level":"info","id":1}"#, "[1,2,3]", "\"text\"", "null", "42"];
        for line in noise {
            check(line, "");
        }
    }

    #[test]
    fn deeply_nested_result_is_kept_unparsed() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(read(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{deep}}}"#)).len(), 1);
    }

    #[test]
    fn id_of_a_truncated_message_is_found_at_either_end() {
        let check = |head: &str, tail: &str, expected| assert_eq!(id_in_fragment(head, tail), expected);
        check(r#"{"jsonrpc":"2.0","id": 12,"result":{"#, "aaa", Some(12));
        check(r#"{"result":{"id":3,"#, r#"aaa"},"jsonrpc":"2.0","id":9}"#, Some(9));
        check(r#"{"result":{"id":3,"#, "aaa", None);
    }
}
