//! The field `error` of an `mcp_call` item, in the forms of OpenAI's SDKs.

use haft_core::result::ToolErrorKind;
use serde_json::{Value, json};

/// The JSON-RPC codes of the error kinds that the MCP specification and JSON-RPC define.
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;

/// The code with which the official MCP SDKs report a timeout.
const REQUEST_TIMEOUT: i64 = -32001;

/// The first code that JSON-RPC leaves to the implementation. The official MCP SDKs use it for a closed connection.
const NO_REPLY: i64 = -32000;

/// Returns the error of a failed call. `kind` is the name of a [`ToolErrorKind`]; `None` if the call has no result.
pub(super) fn object(kind: Option<&str>, text: &str) -> Value {
    let kind = kind.and_then(|name| ToolErrorKind::ALL.into_iter().find(|kind| kind.name() == name));
    match kind.map_or(Some(NO_REPLY), code) {
        None => json!({"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}),
        Some(code) => json!({"type": "mcp_protocol_error", "code": code, "message": text}),
    }
}

/// Returns the code of a call that did not reach the tool, or that has no result; `None` if the tool reported the error.
fn code(kind: ToolErrorKind) -> Option<i64> {
    match kind {
        ToolErrorKind::Failed => None,
        ToolErrorKind::UnknownTool | ToolErrorKind::InvalidArguments => Some(INVALID_PARAMS),
        ToolErrorKind::Internal => Some(INTERNAL_ERROR),
        ToolErrorKind::Timeout => Some(REQUEST_TIMEOUT),
        ToolErrorKind::Denied
        | ToolErrorKind::ApprovalPending
        | ToolErrorKind::LimitExceeded
        | ToolErrorKind::QueueFull
        | ToolErrorKind::Cancelled
        | ToolErrorKind::Unavailable
        | ToolErrorKind::UnknownOutcome => Some(NO_REPLY),
    }
}

/// Returns the text of an error for the model. Reads all forms of the SDKs, and a string, which earlier versions of haft
/// and other servers send.
pub(super) fn text(error: &Value) -> String {
    let of_part = |part: &Value| part["text"].as_str().map(str::to_owned);
    let content = error["content"].as_array();
    let texts: Option<Vec<String>> = content.and_then(|parts| parts.iter().map(of_part).collect());
    let plain = error.as_str().or(error["message"].as_str()).or(error["content"].as_str());
    texts
        .filter(|texts| !texts.is_empty())
        .map(|texts| texts.join("\n"))
        .or_else(|| plain.map(str::to_owned))
        .unwrap_or_else(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_of_the_tool_itself_is_a_tool_execution_error() {
        for kind in ToolErrorKind::ALL {
            let error = object(Some(kind.name()), "no");
            let expected = match kind {
                ToolErrorKind::Failed => "mcp_tool_execution_error",
                _ => "mcp_protocol_error",
            };
            assert_eq!(error["type"], expected, "{kind:?}");
            assert_eq!(text(&error), "no", "{kind:?}");
        }
        let cut = json!({"type": "mcp_protocol_error", "code": NO_REPLY, "message": "cut"});
        assert_eq!((object(None, "cut"), object(Some("new_kind"), "cut")), (cut.clone(), cut));
    }

    #[test]
    fn every_form_of_an_error_has_a_text() {
        let check = |error: Value, expected: &str| assert_eq!(text(&error), expected, "{error}");
        check(json!("no"), "no");
        check(json!({"type": "http_error", "code": 502, "message": "bad gateway"}), "bad gateway");
        check(json!({"type": "mcp_tool_execution_error", "content": "no"}), "no");
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        check(json!({"type": "mcp_tool_execution_error", "content": parts}), "a\nb");
        let image = json!({"content": [{"type": "image", "data": "eA=="}]});
        check(image.clone(), &image.to_string());
    }
}
