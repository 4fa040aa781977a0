//! MCP servers that a request names by `server_url`.
//!
//! URL and headers are secrets of the run. They are not stored, logged or returned, so a client must send them again
//! with each request.

use std::collections::{BTreeMap, BTreeSet};

use haft_core::name::ToolName;
use haft_core::tool::{Effects, ToolDefinition};
use haft_runtime::spec::{RequestedServer, requested_labels};
use haft_runtime::{RunSecrets, RunSpec, ServerListing};
use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value, json};

use super::field::{RequestField, invalid};
use super::tools::{RequestTools, ServerTool};
use crate::error::ApiError;

/// The maximum number of headers for one server.
const HEADERS_MAX: usize = 32;

/// The maximum size of a header value, in bytes.
const HEADER_BYTES_MAX: usize = 8 << 10;

/// The maximum length of a label, in characters.
const LABEL_CHARS_MAX: usize = 64;

/// The label of tools that belong to no MCP server.
const OWN_LABEL: &str = "haft";

/// Headers that the protocol itself sets, or that would route the request to another host at the same address.
const RESERVED_HEADERS: [&str; 8] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "accept",
    "mcp-session-id",
    "mcp-protocol-version",
];

/// An MCP server that an entry in `tools` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedServer {
    /// The JSON path of the entry in the request.
    pub(crate) path: String,
    pub(crate) server: RequestedServer,
}

/// Reads `server_url`, `headers` and `authorization` of an entry in `tools`. Returns `None` for a configured server.
pub(super) fn parse(
    path: &str,
    tool: &Map<String, Value>,
    label: &str,
) -> Result<Option<NamedServer>, ApiError> {
    let field = |name: &str| RequestField::new(format!("{path}.{name}"), tool.get(name).cloned());
    let Some(url) = field("server_url").text()? else {
        let stray = ["headers", "authorization"].iter().find(|name| field(name).value().is_some());
        return match stray {
            Some(name) => Err(invalid(
                format!("{path}.{name}"),
                format!("`{name}` needs `server_url` in the same entry of `tools`"),
            )),
            None => Ok(None),
        };
    };
    check_label(path, label)?;
    let mut headers = headers(&format!("{path}.headers"), &field("headers"))?;
    if let Some(token) = field("authorization").text()? {
        let param = format!("{path}.authorization");
        let value = checked(&param, "authorization", &format!("Bearer {token}"))?;
        if headers.insert("authorization".into(), value).is_some() {
            return Err(invalid(
                param,
                "`authorization` and an `Authorization` header are both set; send only one of them",
            ));
        }
    }
    let server = RequestedServer { url, headers };
    Ok(Some(NamedServer { path: path.to_owned(), server }))
}

/// Checks a label, which becomes a part of tool names.
fn check_label(path: &str, label: &str) -> Result<(), ApiError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let is_valid = label.as_bytes().first().is_some_and(u8::is_ascii_alphabetic)
        && label.bytes().all(is_plain)
        && label.len() <= LABEL_CHARS_MAX
        && !label.contains("__")
        && label != OWN_LABEL;
    let message = format!(
        "a server label must have 1 to {LABEL_CHARS_MAX} letters, digits, _ and -, must begin with a \
         letter, and must not contain `__` or be `{OWN_LABEL}`"
    );
    if is_valid { Ok(()) } else { Err(invalid(format!("{path}.server_label"), message)) }
}

fn headers(path: &str, field: &RequestField) -> Result<BTreeMap<String, String>, ApiError> {
    let Some(written) = field.object()? else { return Ok(BTreeMap::new()) };
    if written.len() > HEADERS_MAX {
        return Err(invalid(
            path,
            format!("`{path}` has {} headers; the limit is {HEADERS_MAX}", written.len()),
        ));
    }
    let mut headers = BTreeMap::new();
    for (name, value) in written {
        let param = format!("{path}.{name}");
        let Value::String(value) = value else {
            return Err(invalid(param.clone(), format!("`{param}` must be a string")));
        };
        let name = name.to_ascii_lowercase();
        let value = checked(&param, &name, value)?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Checks a header. The error does not repeat the value, which may be a secret.
fn checked(param: &str, name: &str, value: &str) -> Result<String, ApiError> {
    let is_header = HeaderName::try_from(name).is_ok() && HeaderValue::from_str(value).is_ok();
    if !is_header || value.len() > HEADER_BYTES_MAX {
        let message = format!("`{param}` is not a valid HTTP header of at most {HEADER_BYTES_MAX} bytes");
        return Err(invalid(param, message));
    }
    if RESERVED_HEADERS.contains(&name) {
        return Err(invalid(param, format!("a request must not set the header `{name}` for an MCP server")));
    }
    Ok(value.to_owned())
}

/// Returns the servers of a request as secrets of its run.
pub(super) fn secrets(tools: &RequestTools) -> RunSecrets {
    let named = named(tools);
    named.fold(RunSecrets::none(), |secrets, (label, named)| secrets.with_server(label, &named.server))
}

/// Returns the labels and the servers that a request names by URL.
pub(super) fn named(tools: &RequestTools) -> impl Iterator<Item = (&str, &NamedServer)> {
    tools.server.iter().filter_map(|tool| match tool {
        ServerTool::Mcp { label, named: Some(named), .. } => Some((label.as_str(), &**named)),
        ServerTool::Mcp { named: None, .. } | ServerTool::Named { .. } => None,
    })
}

/// Returns the secrets for a stored run that continues. The new request must name all servers that the run began with.
pub(super) fn resumed(spec: &RunSpec, tools: &RequestTools) -> Result<RunSecrets, ApiError> {
    let mut secrets = RunSecrets::none();
    for label in requested_labels(&spec.secrets) {
        let Some((_, named)) = named(tools).find(|(name, _)| *name == label) else {
            let message = format!(
                "to continue, the run needs MCP server `{label}`; repeat its entry in `tools` with `server_url` and `headers`, because haft does not store them"
            );
            return Err(invalid("tools", message).with_code("mcp_server_missing"));
        };
        secrets = secrets.with_server(label, &named.server);
    }
    Ok(secrets)
}

/// Removes URLs and headers from `tools`, for the response and for digests. Keeps the origin of each URL.
pub(super) fn without_secrets(tools: &mut Value) {
    for tool in tools.as_array_mut().into_iter().flatten() {
        let Value::Object(tool) = tool else { continue };
        if tool.get("type").and_then(Value::as_str) != Some("mcp") {
            continue;
        }
        tool.remove("authorization");
        if tool.contains_key("headers") {
            tool.insert("headers".into(), Value::Null);
        }
        if let Some(url) = tool.get("server_url").and_then(Value::as_str).map(shown_url) {
            tool.insert("server_url".into(), url.into());
        }
    }
}

/// Returns scheme, host and port, and marks whether a path or query follows. Omits path and query, because they may
/// contain a token.
fn shown_url(text: &str) -> String {
    let Ok(url) = text.parse::<http::Uri>() else { return "<redacted>".into() };
    let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) else {
        return "<redacted>".into();
    };
    let host =
        authority.port().map_or(authority.host().to_owned(), |port| format!("{}:{port}", authority.host()));
    let rest = if matches!(url.path_and_query().map(http::uri::PathAndQuery::as_str), None | Some("/" | "")) {
        "/"
    } else {
        "/<redacted>"
    };
    format!("{scheme}://{host}{rest}")
}

/// Returns the `mcp_list_tools` items of a response, without ids. Leaves out lists that the conversation already
/// contains.
pub(super) fn list_items(
    listings: &[ServerListing],
    tools: &RequestTools,
    known: &BTreeSet<String>,
) -> Vec<Value> {
    let new = listings.iter().filter(|listing| !known.contains(&listing.label));
    new.map(|listing| list_item(listing, entry(tools, &listing.label))).collect()
}

/// Returns the entry of a server in the tools of a request.
fn entry<'a>(tools: &'a RequestTools, wanted: &str) -> Option<&'a ServerTool> {
    tools.server.iter().find(|tool| match tool {
        ServerTool::Mcp { label, .. } => label == wanted,
        ServerTool::Named { .. } => false,
    })
}

fn list_item(listing: &ServerListing, entry: Option<&ServerTool>) -> Value {
    let item =
        |tools: Vec<Value>| json!({"type": "mcp_list_tools", "server_label": listing.label, "tools": tools});
    match &listing.tools {
        Ok(tools) => {
            let is_selected = |tool: &&ToolDefinition| entry.is_none_or(|entry| selects(entry, tool));
            item(tools.iter().filter(is_selected).map(listed_tool).collect())
        }
        Err(reason) => {
            let mut item = item(Vec::new());
            item["error"] = reason.clone().into();
            item
        }
    }
}

/// Returns true if the model sees a tool of the server.
fn selects(entry: &ServerTool, tool: &ToolDefinition) -> bool {
    match entry {
        ServerTool::Named { .. } => true,
        ServerTool::Mcp { tools, read_only, .. } => {
            let is_named = tools
                .as_ref()
                .is_none_or(|names| names.iter().any(|name| ToolName::sanitize(name) == tool.name));
            is_named && read_only.is_none_or(|wanted| wanted == (tool.effects == Effects::ReadOnly))
        }
    }
}

fn listed_tool(tool: &ToolDefinition) -> Value {
    let raw = tool.raw.as_ref().and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
    let annotations = raw.map(|raw| raw["annotations"].clone()).unwrap_or_default();
    json!({
        "name": tool.name.as_str(), "description": tool.description, "input_schema": tool.input_schema,
        "annotations": annotations,
    })
}

/// Returns the labels of the servers whose tool lists are among these items.
pub(super) fn listed_in<'a>(items: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    let lists = items.filter(|item| item["type"] == "mcp_list_tools" && item["error"].is_null());
    lists.filter_map(|item| item["server_label"].as_str().map(str::to_owned)).collect()
}

/// Returns the labels of the servers whose tool lists are already in the conversation of a stored response. These are
/// the servers in its `tools`, except servers whose list failed: the next response lists them again.
pub(super) fn listed_before(response: &Value) -> BTreeSet<String> {
    let output = || response["output"].as_array().into_iter().flatten();
    let failed = |label: &str| {
        output().any(|item| {
            item["type"] == "mcp_list_tools" && item["server_label"] == label && !item["error"].is_null()
        })
    };
    let tools = response["tools"].as_array().into_iter().flatten();
    let named = tools.filter(|tool| tool["type"] == "mcp" && tool["server_url"].is_string());
    let labels = named.filter_map(|tool| tool["server_label"].as_str());
    labels.filter(|label| !failed(label)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fields: &Value, expected: Result<Vec<(&str, &str)>, &str>) {
        let mut tool = json!({"type": "mcp", "server_label": "far", "server_url": "https://example.com/mcp"});
        for (name, value) in fields.as_object().unwrap() {
            tool[name] = value.clone();
        }
        let label = tool["server_label"].as_str().unwrap().to_owned();
        let found = parse("tools[0]", tool.as_object().unwrap(), &label);
        let found = found.map(|named| named.map(|named| named.server.headers).unwrap_or_default());
        let expected = expected.map(|headers| {
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        });
        assert_eq!(
            found.map_err(|error| error.param.unwrap_or_default()),
            expected.map_err(str::to_owned),
            "{fields}"
        );
    }

    #[test]
    fn invalid_headers_and_labels_of_a_requested_server_are_refused() {
        check(&json!({}), Ok(Vec::new()));
        check(&json!({"headers": {"X-Key": "k"}}), Ok(vec![("x-key", "k")]));
        check(&json!({"authorization": "t"}), Ok(vec![("authorization", "Bearer t")]));
        check(
            &json!({"authorization": "t", "headers": {"Authorization": "u"}}),
            Err("tools[0].authorization"),
        );
        check(&json!({"headers": {"Host": "x"}}), Err("tools[0].headers.Host"));
        check(&json!({"headers": {"a": "x\r\ny: z"}}), Err("tools[0].headers.a"));
        check(&json!({"headers": {"a": 1}}), Err("tools[0].headers.a"));
        check(&json!({"authorization": "a\nb"}), Err("tools[0].authorization"));
        check(&json!({"server_url": null, "authorization": "t"}), Err("tools[0].authorization"));
        for label in ["", "a__b", "1a", "a b", "haft", "größe"] {
            check(&json!({"server_label": label}), Err("tools[0].server_label"));
        }
    }

    #[test]
    fn response_contains_the_origin_of_a_server_url_and_no_secret() {
        let mut tools = json!([
            {"type": "mcp", "server_label": "a", "server_url": "https://example.com:8443/mcp?key=s3cret",
             "headers": {"X-Key": "s3cret"}, "authorization": "s3cret"},
            {"type": "mcp", "server_label": "b", "server_url": "https://s3cret@example.com/"},
            {"type": "function", "name": "f", "parameters": {"headers": 1}},
        ]);
        without_secrets(&mut tools);
        assert!(!tools.to_string().contains("s3cret"), "{tools}");
        assert_eq!(tools[0]["server_url"], "https://example.com:8443/<redacted>");
        assert_eq!(tools[1]["server_url"], "https://example.com/");
        assert_eq!(tools[2]["parameters"]["headers"], 1);
    }

    #[test]
    fn tools_of_a_server_are_listed_again_only_if_the_earlier_listing_failed() {
        let tools = json!([{"type": "mcp", "server_label": "a", "server_url": "https://x/"},
            {"type": "mcp", "server_label": "docs"}]);
        let failed = json!([{"type": "mcp_list_tools", "server_label": "a", "tools": [], "error": "x"}]);
        let check = |output: Value, expected: &[&str]| {
            let found = listed_before(&json!({"tools": tools, "output": output}));
            assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
        };
        check(json!([]), &["a"]);
        check(failed, &[]);
    }
}
