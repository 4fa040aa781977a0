//! The headers of requests: determines the session or protocol revision of a request, and checks that the headers agree
//! with the body.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use haft_tools::mcp::{PARAM_HEADER_PREFIX, SentParamHeaders};
use http::HeaderMap;
use serde::Deserialize;

use crate::mcp::era::{CommonParams, HANDSHAKE, STATELESS, unsupported};
use crate::mcp::message::{
    self, ClientMessage, ClientRequest, GatewayError, HEADER_MISMATCH, INVALID_REQUEST,
};

pub(super) const SESSION_HEADER: &str = "mcp-session-id";
const VERSION_HEADER: &str = "mcp-protocol-version";
const METHOD_HEADER: &str = "mcp-method";
const NAME_HEADER: &str = "mcp-name";

/// The receiver of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestTarget {
    /// The session with this id.
    Session(String),
    /// A session that begins with this message.
    NewSession,
    /// A connection for this message alone.
    Stateless,
}

/// Returns the receiver of a message.
pub(super) fn target(headers: &HeaderMap, message: &ClientMessage) -> Result<RequestTarget, GatewayError> {
    let version = single(headers, VERSION_HEADER)?;
    if let Some(version) = version.filter(|version| *version != STATELESS && !HANDSHAKE.contains(version)) {
        return Err(unsupported(version));
    }
    if let Some(session) = single(headers, SESSION_HEADER)? {
        return Ok(RequestTarget::Session(session.to_owned()));
    }
    match message {
        ClientMessage::Request(request) if is_stateless(request) || version == Some(STATELESS) => {
            Ok(RequestTarget::Stateless)
        }
        ClientMessage::Request(request) if request.method == "initialize" => Ok(RequestTarget::NewSession),
        ClientMessage::Notification { .. } if version == Some(STATELESS) => Ok(RequestTarget::Stateless),
        ClientMessage::Request(_) | ClientMessage::Notification { .. } | ClientMessage::Reply { .. } => {
            Err(GatewayError::new(
                INVALID_REQUEST,
                "send `initialize` first and repeat its `Mcp-Session-Id`, or put the protocol version into `_meta`",
            ))
        }
    }
}

fn is_stateless(request: &ClientRequest) -> bool {
    let common = message::params::<CommonParams>(request.params.as_deref());
    common.is_ok_and(|common| common.meta.version.is_some())
}

/// Checks that the headers agree with the body, which revisions without sessions require. A proxy may apply rules to
/// the headers, so a difference could bypass its rules.
pub(super) fn check_stateless(headers: &HeaderMap, request: &ClientRequest) -> Result<(), GatewayError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct NamedParams {
        name: Option<String>,
        uri: Option<String>,
        task_id: Option<String>,
    }
    let common: CommonParams = message::params(request.params.as_deref())?;
    let Some(version) = &common.meta.version else {
        return Err(GatewayError::new(message::INVALID_PARAMS, "`_meta` has no protocol version"));
    };
    common.meta.abilities()?;
    same(headers, VERSION_HEADER, version)?;
    same(headers, METHOD_HEADER, &request.method)?;
    let named: NamedParams = message::params(request.params.as_deref())?;
    let name = match request.method.as_str() {
        "tools/call" | "prompts/get" => named.name,
        "resources/read" => named.uri,
        "tasks/get" | "tasks/update" | "tasks/cancel" => named.task_id,
        _ => None,
    };
    name.map_or(Ok(()), |name| same(headers, NAME_HEADER, &name))
}

/// Returns the headers that repeat arguments of a tool call. They are compared when the tool is known.
pub(super) fn param_headers(headers: &HeaderMap) -> SentParamHeaders {
    let names = headers.keys().filter(|name| name.as_str().starts_with(PARAM_HEADER_PREFIX));
    names.map(|name| (name.to_string(), only_value(headers, name.as_str()).map(str::to_owned))).collect()
}

/// Returns the value of a header; `None` if it is missing, has two values, or is not ASCII text.
fn only_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut written = headers.get_all(name).iter();
    match (written.next(), written.next()) {
        (Some(value), None) => value.to_str().ok().map(str::trim),
        (_, _) => None,
    }
}

fn same(headers: &HeaderMap, name: &'static str, expected: &str) -> Result<(), GatewayError> {
    let written = single(headers, name)?.map(decoded);
    if written.as_deref() == Some(expected) {
        return Ok(());
    }
    let message = match written {
        Some(_) => format!("the header `{name}` does not agree with the body"),
        None => format!("the header `{name}` is missing"),
    };
    Err(GatewayError::new(HEADER_MISMATCH, message))
}

/// Returns the value of a header. Refuses two values, because a proxy could use one and this server the other.
fn single<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, GatewayError> {
    match only_value(headers, name) {
        None if !headers.contains_key(name) => Ok(None),
        None => Err(GatewayError::new(
            HEADER_MISMATCH,
            format!("the header `{name}` must have one value of ASCII text"),
        )),
        found => Ok(found),
    }
}

/// Decodes `=?base64?TEXT?=`, the form of values with characters that a header cannot contain.
fn decoded(value: &str) -> String {
    let inner = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let text = inner.and_then(|inner| String::from_utf8(BASE64_STANDARD.decode(inner).ok()?).ok());
    text.unwrap_or_else(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    const WITHOUT_CAPABILITIES: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in all {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn message(method: &str, params: &str) -> ClientMessage {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#);
        message::read(&line).unwrap()
    }

    #[test]
    fn session_id_protocol_version_and_body_determine_the_receiver_of_a_message() {
        let check =
            |all: &[(&'static str, &str)], message: &ClientMessage, expected: Result<RequestTarget, i64>| {
                assert_eq!(target(&headers(all), message).map_err(|error| error.code), expected, "{all:?}");
            };
        let session = || Ok(RequestTarget::Session("s".into()));
        check(&[("mcp-session-id", "s")], &message("tools/list", ""), session());
        check(&[], &message("initialize", ""), Ok(RequestTarget::NewSession));
        check(&[], &message("tools/list", META), Ok(RequestTarget::Stateless));
        check(
            &[("mcp-protocol-version", "2026-07-28")],
            &message("tools/list", ""),
            Ok(RequestTarget::Stateless),
        );
        check(&[], &message("tools/list", ""), Err(INVALID_REQUEST));
        check(
            &[("mcp-protocol-version", "1999-01-01")],
            &message("tools/list", META),
            Err(message::UNSUPPORTED_VERSION),
        );
        let two = [("mcp-session-id", "a"), ("mcp-session-id", "b")];
        check(&two, &message("tools/list", ""), Err(HEADER_MISMATCH));
    }

    #[test]
    fn headers_that_contradict_the_body_are_refused() {
        let call = format!(r#""name":"bash","arguments":{{}},{META}"#);
        let version = ("mcp-protocol-version", "2026-07-28");
        let check = |all: &[(&'static str, &str)], method: &str, params: &str, expected: Result<(), i64>| {
            let ClientMessage::Request(request) = message(method, params) else { unreachable!() };
            let checked = check_stateless(&headers(all), &request).map_err(|error| error.code);
            assert_eq!(checked, expected, "{all:?}");
        };
        let method = ("mcp-method", "tools/call");
        check(&[version, method, ("mcp-name", "bash")], "tools/call", &call, Ok(()));
        check(&[version, method, ("mcp-name", "=?base64?YmFzaA==?=")], "tools/call", &call, Ok(()));
        check(&[version, method, ("mcp-name", "read")], "tools/call", &call, Err(HEADER_MISMATCH));
        check(&[version, method], "tools/call", &call, Err(HEADER_MISMATCH));
        check(&[version, ("mcp-name", "bash")], "tools/call", &call, Err(HEADER_MISMATCH));
        check(&[method, ("mcp-name", "bash")], "tools/call", &call, Err(HEADER_MISMATCH));
        let other = ("mcp-protocol-version", "2025-11-25");
        check(&[other, method, ("mcp-name", "bash")], "tools/call", &call, Err(HEADER_MISMATCH));
        check(&[version, ("mcp-method", "tools/list")], "tools/list", META, Ok(()));
        for incomplete in ["", WITHOUT_CAPABILITIES] {
            let list = ("mcp-method", "tools/list");
            check(&[version, list], "tools/list", incomplete, Err(message::INVALID_PARAMS));
        }
    }
}
