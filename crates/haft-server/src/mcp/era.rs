//! Detects the era of a request, and which requests a connection accepts. There are two eras: protocol revisions with a
//! handshake, and the stateless revision.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::client_log::McpLogLevel;
use super::message::{GatewayError, INVALID_PARAMS, INVALID_REQUEST, UNSUPPORTED_VERSION};
use super::tasks::{TASKS_EXTENSION, TaskSupport};

/// The supported protocol version without handshake and sessions.
pub(super) const STATELESS: &str = "2026-07-28";

/// The protocol versions with a handshake, the newest first.
pub(super) const HANDSHAKE: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The requests from upstream servers that a client can answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own in the protocol")]
pub struct ClientAbilities {
    /// The client can show a form to its user.
    pub elicitation: bool,
    /// The client applies the default values of a form.
    pub form_defaults: bool,
    /// The client can ask its user to open a URL.
    pub url_elicitation: bool,
    /// The client can send a request to a model.
    pub sampling: bool,
    /// A request to the model may define tools.
    pub sampling_tools: bool,
    /// A request to the model may include the context of servers.
    pub sampling_context: bool,
    /// The client can name the directories that it works in.
    pub roots: bool,
    /// The client announces when these directories change.
    pub roots_change: bool,
}

impl ClientAbilities {
    /// Reads the capabilities that the client declares. An empty `elicitation` means forms, which were the only kind in
    /// older revisions.
    pub(super) fn of(capabilities: &Value) -> Self {
        let elicitation = capabilities["elicitation"].as_object();
        Self {
            elicitation: elicitation.is_some_and(|kinds| kinds.is_empty() || kinds.contains_key("form")),
            form_defaults: capabilities["elicitation"]["form"]["applyDefaults"] == true,
            url_elicitation: elicitation.is_some_and(|kinds| kinds.contains_key("url")),
            sampling: capabilities["sampling"].is_object(),
            sampling_tools: capabilities["sampling"]["tools"].is_object(),
            sampling_context: capabilities["sampling"]["context"].is_object(),
            roots: capabilities["roots"].is_object(),
            roots_change: capabilities["roots"]["listChanged"] == true,
        }
    }
}

/// The metadata of a request.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RequestMeta {
    #[serde(rename = "progressToken")]
    pub(super) progress_token: Option<Box<RawValue>>,
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    pub(super) version: Option<String>,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<Value>,
    #[serde(rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<Value>,
    #[serde(rename = "io.modelcontextprotocol/clientInfo")]
    pub(super) client_info: Option<Value>,
}

impl RequestMeta {
    /// Returns the client capabilities, which a request of a revision without sessions must declare.
    pub(super) fn abilities(&self) -> Result<ClientAbilities, GatewayError> {
        let declared = self.capabilities.as_ref().filter(|declared| declared.is_object());
        let missing =
            || GatewayError::new(INVALID_PARAMS, "`_meta` of the request has no client capabilities");
        declared.map(ClientAbilities::of).ok_or_else(missing)
    }

    /// Returns the level of log messages that a request of a revision without sessions asks for. A connection with a
    /// handshake sets the level with a request of its own.
    pub(super) fn log_level(&self, era: RequestEra) -> Result<Option<McpLogLevel>, GatewayError> {
        match (era, &self.log_level) {
            (RequestEra::Handshake, _) | (RequestEra::Stateless(_), None) => Ok(None),
            (RequestEra::Stateless(_), Some(level)) => {
                let name = level.as_str().map_or_else(|| level.to_string().into(), Cow::Borrowed);
                McpLogLevel::requested(&name).map(Some).map_err(|why| GatewayError::new(INVALID_PARAMS, why))
            }
        }
    }

    pub(super) fn tasks(&self) -> TaskSupport {
        let extensions = self.capabilities.as_ref().and_then(|declared| declared.get("extensions"));
        match extensions.and_then(|extensions| extensions.get(TASKS_EXTENSION)) {
            Some(Value::Object(_)) => TaskSupport::Declared,
            Some(_) | None => TaskSupport::Undeclared,
        }
    }
}

/// The parameters that every request may have.
#[derive(Debug, Default, Deserialize)]
pub(super) struct CommonParams {
    #[serde(rename = "_meta", default)]
    pub(super) meta: RequestMeta,
}

/// The kind of protocol revision of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestEra {
    Handshake,
    /// The request contains the client capabilities.
    Stateless(ClientAbilities),
}

/// The kind of protocol revision of a connection. A client chooses it with its first request other than `ping` and
/// `server/discover`, and cannot change it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ConnectionEra {
    #[default]
    Open,
    Handshake,
    Stateless,
}

impl ConnectionEra {
    /// Returns the era of a request, or the error reply if the connection does not accept the request. The first
    /// request sets the era of the connection.
    pub(super) fn admit(&mut self, method: &str, meta: &RequestMeta) -> Result<RequestEra, GatewayError> {
        match (meta.version.as_deref(), *self) {
            (None, Self::Open) if method == "initialize" => {
                *self = Self::Handshake;
                Ok(RequestEra::Handshake)
            }
            (None, Self::Handshake) if method == "initialize" => {
                Err(GatewayError::new(INVALID_REQUEST, "the connection is already initialized"))
            }
            (_, Self::Stateless) if method == "initialize" => Err(unsupported("the handshake")),
            (None, Self::Handshake) => Ok(RequestEra::Handshake),
            // A client may check the connection with `ping` before the handshake.
            (None, Self::Open) if method == "ping" => Ok(RequestEra::Handshake),
            (None, Self::Open) => Err(GatewayError::new(
                INVALID_REQUEST,
                "send `initialize` first, or put the protocol version into `_meta` of every request",
            )),
            (None, Self::Stateless) => {
                Err(GatewayError::new(INVALID_PARAMS, "`_meta` of the request has no protocol version"))
            }
            (Some(STATELESS), Self::Handshake) => Err(GatewayError::new(
                INVALID_REQUEST,
                "the connection began with `initialize`, and cannot change its protocol version",
            )),
            (Some(STATELESS), Self::Open | Self::Stateless) => {
                let abilities = meta.abilities()?;
                if method != "server/discover" {
                    *self = Self::Stateless;
                }
                Ok(RequestEra::Stateless(abilities))
            }
            (Some(other), _) => Err(unsupported(other)),
        }
    }
}

pub(super) fn unsupported(version: &str) -> GatewayError {
    let message = format!("the protocol version `{version}` is not supported");
    GatewayError::new(UNSUPPORTED_VERSION, message)
        .with_data(json!({ "supported": [STATELESS], "requested": version }))
}

/// Returns the version for a handshake: the requested one if it is supported, otherwise the newest.
pub(super) fn negotiated(requested: &str) -> &'static str {
    HANDSHAKE.iter().find(|version| **version == requested).copied().unwrap_or(HANDSHAKE[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(version: Option<&str>) -> RequestMeta {
        let text = match version {
            Some(version) => json!({
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
            }),
            None => json!({}),
        };
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn connection_keeps_the_kind_of_protocol_revision_of_its_first_request() {
        let modern = Some(STATELESS);
        // Each row has the requests of one connection, and the error code of the last request (0 for success).
        let check = |requests: &[(&str, Option<&str>)], expected: i64| {
            let mut era = ConnectionEra::default();
            let mut last = 0;
            for (method, version) in requests {
                last = era.admit(method, &meta(*version)).map_or_else(|error| error.code, |_| 0);
            }
            assert_eq!(last, expected, "{requests:?}");
        };
        check(&[("initialize", None)], 0);
        check(&[("initialize", None), ("tools/list", None)], 0);
        check(&[("initialize", None), ("initialize", None)], INVALID_REQUEST);
        check(&[("initialize", None), ("tools/list", modern)], INVALID_REQUEST);
        check(&[("ping", None)], 0);
        check(&[("tools/list", None)], INVALID_REQUEST);
        check(&[("tools/list", modern)], 0);
        check(&[("tools/list", modern), ("tools/list", None)], INVALID_PARAMS);
        check(&[("tools/list", modern), ("initialize", None)], UNSUPPORTED_VERSION);
        check(&[("server/discover", modern), ("initialize", None)], 0);
        check(&[("server/discover", Some("2027-01-01"))], UNSUPPORTED_VERSION);
        check(&[("server/discover", Some("2025-11-25"))], UNSUPPORTED_VERSION);
    }

    #[test]
    fn client_abilities_follow_the_declared_capabilities() {
        let check = |capabilities: Value, elicitation: bool, sampling: bool| {
            let found = ClientAbilities::of(&capabilities);
            assert_eq!((found.elicitation, found.sampling), (elicitation, sampling), "{capabilities}");
        };
        check(json!({}), false, false);
        check(json!({"elicitation": {}}), true, false);
        check(json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}}), true, true);
        check(json!({"elicitation": {"url": {}}}), false, false);
        check(json!({"elicitation": true}), false, false);
        let with_tools = ClientAbilities::of(&json!({"sampling": {"tools": {}}}));
        assert!(with_tools.sampling_tools && !with_tools.sampling_context);
        assert_eq!(negotiated("2025-06-18"), "2025-06-18");
        assert_eq!(negotiated("2026-07-28"), "2025-11-25");
    }
}
