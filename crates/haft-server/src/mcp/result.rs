//! Formats the result of a call as a `tools/call` result.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use haft_core::output::{OutputContent, RawResult, ResourceLink, ToolOutput};
use haft_core::output_store::StoreEntry;
use haft_core::result::{ToolError, ToolErrorKind, ToolResult};
use haft_tools::mcp::URL_REQUIRED;
use serde_json::{Map, Value, json};

use super::address::stored_uri;
use super::era::RequestEra;
use super::handshake_form::{OutputRoot, adapted_result};
use super::message::{GatewayError, INVALID_PARAMS};
use super::object::RawObject;
use super::rewrite::{self, UriMap};

/// The kind of output that the definition of a tool declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeclaredOutput {
    Content,
    /// The tool has an output schema.
    Structured,
}

/// The format of a result for one client.
pub(super) struct ResultForm<'a> {
    pub(super) declared: DeclaredOutput,
    pub(super) root: OutputRoot,
    /// A hint for the user, added to the error of a failed call.
    pub(super) hint: Option<String>,
    pub(super) era: RequestEra,
    /// Removes addresses from a text that haft wrote about an upstream server or an HTTP API; `None` for other tools.
    pub(super) hide: Option<&'a dyn Fn(&str) -> String>,
    /// Converts the URIs of the upstream server for the client; `None` if they are passed unchanged.
    pub(super) uris: Option<&'a UriMap<'a>>,
}

impl ResultForm<'_> {
    fn shown(&self, message: &str) -> String {
        self.hide.map_or_else(|| message.to_owned(), |hide| hide(message))
    }
}

/// Returns the JSON of a result. An unknown tool, and an error that only the client can resolve, become a JSON-RPC error.
/// Any other failure becomes a result for the model. A failed result of an upstream server keeps all its content.
pub(super) fn call_result(result: &ToolResult, form: &ResultForm<'_>) -> Result<String, GatewayError> {
    match &result.outcome {
        Ok(output) => Ok(output_json(output, form)),
        Err(error) if error.kind == ToolErrorKind::UnknownTool => {
            Err(GatewayError::new(INVALID_PARAMS, form.shown(&error.message)))
        }
        // The revision without sessions has no error for URLs that a user must open.
        Err(ToolError { protocol: Some(error), .. })
            if error.code == URL_REQUIRED && matches!(form.era, RequestEra::Stateless(_)) =>
        {
            Ok(failed(&form.shown(&error.message), form.era))
        }
        Err(ToolError { protocol: Some(error), .. }) => {
            let sent = GatewayError::new(error.code, error.message.clone());
            Err(GatewayError { data: error.data.clone(), ..sent })
        }
        Err(ToolError { raw: Some(raw), .. }) => Ok(raw_json(raw, form)),
        Err(error) => {
            let message = form.shown(error.client_message.as_deref().unwrap_or(&error.message));
            let text = match &form.hint {
                Some(hint) => format!("{message}\nhint: {hint}"),
                None => message,
            };
            Ok(failed(&text, form.era))
        }
    }
}

/// Returns an error result with a text for the model.
pub(super) fn failed(text: &str, era: RequestEra) -> String {
    complete(json!({ "content": [text_piece(text)], "isError": true }), era)
}

/// Returns a result with one text.
pub(super) fn text_result(text: &str, era: RequestEra) -> String {
    complete(json!({ "content": [text_piece(text)] }), era)
}

fn output_json(output: &ToolOutput, form: &ResultForm<'_>) -> String {
    if let Some(raw) = &output.raw {
        return raw_json(raw, form);
    }
    let pieces = output.content.iter().map(|content| piece(content, form.uris));
    let content: Vec<Value> = pieces.chain(stored_links(&output.content)).collect();
    let mut result = json!({ "content": content });
    match &output.structured {
        Some(structured) => result["structuredContent"] = structured.clone(),
        // Clients refuse a success without the structured output that the tool declares. It is missing because the output
        // was too large, and haft stored or truncated it; the text says so.
        None if form.declared == DeclaredOutput::Structured => result["isError"] = true.into(),
        None => {}
    }
    with_structure(complete(result, form.era), form)
}

fn raw_json(raw: &RawResult, form: &ResultForm<'_>) -> String {
    let text = raw.0.get();
    let rewritten = match form.uris {
        Some(uris) => Cow::Owned(rewrite::call_result(text, uris)),
        None => Cow::Borrowed(text),
    };
    with_structure(with_era(rewritten, form.era), form)
}

/// Adapts the structured content to the client's protocol revision.
fn with_structure(text: String, form: &ResultForm<'_>) -> String {
    match form.era {
        RequestEra::Handshake => adapted_result(&text, form.root).unwrap_or(text),
        RequestEra::Stateless(_) => text,
    }
}

/// Adapts a result of an upstream server to the client's protocol revision: adds `resultType` in the revision without
/// sessions, and removes it in the others.
pub(super) fn with_era<'a>(text: impl Into<Cow<'a, str>>, era: RequestEra) -> String {
    let text = text.into();
    let is_changed = matches!(era, RequestEra::Stateless(_)) || text.contains("\"resultType\"");
    let object = is_changed.then(|| RawObject::of(&text)).flatten();
    let Some(mut object) = object else { return text.into_owned() };
    match era {
        RequestEra::Stateless(_) => object.set("resultType", "\"complete\""),
        RequestEra::Handshake => object.remove("resultType"),
    }
    object.to_string()
}

/// Adds the members that the protocol revision requires.
fn complete(mut result: Value, era: RequestEra) -> String {
    match era {
        RequestEra::Handshake => {}
        RequestEra::Stateless(_) => result["resultType"] = "complete".into(),
    }
    result.to_string()
}

fn text_piece(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Returns links to the stored outputs, which are also resources.
fn stored_links(content: &[OutputContent]) -> impl Iterator<Item = Value> {
    content.iter().filter_map(|content| match content {
        OutputContent::Stored(output) => Some(stored_link(&output.stored)),
        OutputContent::Text(_)
        | OutputContent::Image { .. }
        | OutputContent::Audio { .. }
        | OutputContent::Link(_)
        | OutputContent::Resource { .. }
        | OutputContent::Binary { .. }
        | OutputContent::FoundTools(_) => None,
    })
}

/// Returns the link to a stored output.
fn stored_link(entry: &StoreEntry) -> Value {
    json!({
        "type": "resource_link",
        "uri": stored_uri(&entry.handle.to_string()),
        "name": stored_name(entry),
        "size": entry.bytes,
    })
}

/// Returns the name of a stored output as a resource.
pub(super) fn stored_name(entry: &StoreEntry) -> String {
    format!("stored output {}", entry.handle.file())
}

/// Formats one content block, for an output without the JSON of its server.
fn piece(content: &OutputContent, uris: Option<&UriMap<'_>>) -> Value {
    let shown = |uri: &str| uris.map_or_else(|| uri.to_owned(), |uris| uris(uri));
    match content {
        OutputContent::Text(text) => text_piece(text),
        OutputContent::Image { media_type, bytes } => {
            json!({ "type": "image", "mimeType": media_type, "data": BASE64_STANDARD.encode(bytes) })
        }
        OutputContent::Audio { media_type, bytes } => {
            json!({ "type": "audio", "mimeType": media_type, "data": BASE64_STANDARD.encode(bytes) })
        }
        OutputContent::Link(link) => link_piece(link, &shown(&link.uri)),
        OutputContent::Resource { uri, media_type, text: Some(text) } => {
            json!({ "type": "resource", "resource": resource(&shown(uri), media_type.as_deref(), "text", text) })
        }
        OutputContent::Resource { uri, media_type, text: None } => {
            let mut link = resource(&shown(uri), media_type.as_deref(), "name", uri);
            link.insert("type".into(), "resource_link".into());
            Value::Object(link)
        }
        OutputContent::Binary { uri, media_type, bytes } => {
            let uri = uri.as_deref().map_or_else(|| "haft:binary".to_owned(), shown);
            let blob = BASE64_STANDARD.encode(bytes);
            json!({ "type": "resource", "resource": resource(&uri, media_type.as_deref(), "blob", &blob) })
        }
        OutputContent::FoundTools(_) | OutputContent::Stored(_) => text_piece(&content.as_text()),
    }
}

fn link_piece(link: &ResourceLink, uri: &str) -> Value {
    let ResourceLink { uri: own, media_type, name, title, description } = link;
    // Each link must have a name.
    let mut piece = json!({ "type": "resource_link", "uri": uri, "name": name.as_ref().unwrap_or(own) });
    for (key, value) in [("title", title), ("description", description), ("mimeType", media_type)] {
        if let Some(value) = value {
            piece[key] = value.as_str().into();
        }
    }
    piece
}

fn resource(uri: &str, media_type: Option<&str>, key: &str, value: &str) -> Map<String, Value> {
    let mut resource = Map::new();
    resource.insert("uri".into(), uri.into());
    if let Some(media_type) = media_type {
        resource.insert("mimeType".into(), media_type.into());
    }
    resource.insert(key.into(), value.into());
    resource
}

#[cfg(test)]
mod tests {
    use haft_core::result::Receipt;
    use haft_core::tool::ToolCall;
    use serde_json::value::RawValue;

    use super::super::era::ClientAbilities;
    use super::*;

    const MODERN: RequestEra = RequestEra::Stateless(ClientAbilities {
        elicitation: false,
        form_defaults: false,
        url_elicitation: false,
        sampling: false,
        sampling_tools: false,
        sampling_context: false,
        roots: false,
        roots_change: false,
    });

    fn result(outcome: Result<ToolOutput, ToolError>) -> ToolResult {
        ToolResult { call: ToolCall::new("1", "t", &json!({})), outcome, receipt: Receipt::default() }
    }

    fn form(declared: DeclaredOutput, hint: Option<&str>, era: RequestEra) -> ResultForm<'static> {
        ResultForm {
            declared,
            root: OutputRoot::Undeclared,
            hint: hint.map(str::to_owned),
            era,
            hide: None,
            uris: None,
        }
    }

    fn json_of(outcome: Result<ToolOutput, ToolError>, era: RequestEra) -> Value {
        let sent = call_result(&result(outcome), &form(DeclaredOutput::Content, None, era));
        serde_json::from_str(&sent.unwrap()).unwrap()
    }

    #[test]
    fn every_kind_of_content_is_converted_to_its_mcp_form() {
        let check = |content: OutputContent, expected: Value| {
            let output = ToolOutput { content: vec![content], ..ToolOutput::default() };
            assert_eq!(json_of(Ok(output), RequestEra::Handshake)["content"][0], expected);
        };
        check(OutputContent::Text("a".into()), json!({"type": "text", "text": "a"}));
        check(
            OutputContent::Image { media_type: "image/png".into(), bytes: [0, 0, 0].into() },
            json!({"type": "image", "mimeType": "image/png", "data": "AAAA"}),
        );
        check(
            OutputContent::Resource { uri: "a:b".into(), media_type: None, text: None },
            json!({"type": "resource_link", "uri": "a:b", "name": "a:b"}),
        );
        check(
            OutputContent::Resource {
                uri: "a:b".into(),
                media_type: Some("text/x".into()),
                text: Some("t".into()),
            },
            json!({"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/x", "text": "t"}}),
        );
        let link = ResourceLink {
            uri: "a:b".into(),
            media_type: Some("text/x".into()),
            description: Some("d".into()),
            ..ResourceLink::default()
        };
        check(
            OutputContent::Link(Box::new(link)),
            json!({"type": "resource_link", "uri": "a:b", "name": "a:b", "description": "d", "mimeType": "text/x"}),
        );
        check(
            OutputContent::Binary { uri: None, media_type: None, bytes: [0, 0, 0].into() },
            json!({"type": "resource", "resource": {"uri": "haft:binary", "blob": "AAAA"}}),
        );
    }

    #[test]
    fn uris_are_converted_even_if_the_output_has_no_json_of_its_server() {
        let bytes: std::sync::Arc<[u8]> = [0, 0, 0].into();
        let content = vec![
            OutputContent::Link(Box::new(ResourceLink { uri: "a:b".into(), ..ResourceLink::default() })),
            OutputContent::Resource { uri: "a:b".into(), media_type: None, text: None },
            OutputContent::Resource { uri: "a:b".into(), media_type: None, text: Some("t".into()) },
            OutputContent::Binary { uri: Some("a:b".into()), media_type: None, bytes },
        ];
        let output = ToolOutput { content, ..ToolOutput::default() };
        let legacy = form(DeclaredOutput::Content, None, RequestEra::Handshake);
        let mapped = ResultForm { uris: Some(&|uri: &str| format!("haft:up/{uri}")), ..legacy };
        let sent = call_result(&result(Ok(output)), &mapped).unwrap();
        assert_eq!(sent.matches(r#""uri":"haft:up/a:b""#).count(), 4, "{sent}");
    }

    #[test]
    fn raw_results_change_only_as_the_protocol_revision_requires() {
        let text = r#"{"content":[{"type":"text","text":"a","annotations":{"x":1.0}}],"_meta":{"v":1}}"#;
        let raw = RawResult(RawValue::from_string(text.to_owned()).unwrap().into());
        let output = ToolOutput { raw: Some(raw), ..ToolOutput::text("a") };
        let legacy = form(DeclaredOutput::Content, None, RequestEra::Handshake);
        assert_eq!(call_result(&result(Ok(output.clone())), &legacy).unwrap(), text);
        let failed = ToolError::new(ToolErrorKind::Failed, "a").with_raw(output.raw.clone());
        let legacy = form(DeclaredOutput::Content, None, RequestEra::Handshake);
        assert_eq!(call_result(&result(Err(failed)), &legacy).unwrap(), text);
        let modern = form(DeclaredOutput::Content, None, MODERN);
        let modern = call_result(&result(Ok(output)), &modern).unwrap();
        assert_eq!(modern, format!("{},\"resultType\":\"complete\"}}", text.strip_suffix('}').unwrap()));
    }

    #[test]
    fn failed_calls_are_results_and_unknown_tools_are_json_rpc_errors() {
        let denied = || Err(ToolError::new(ToolErrorKind::Denied, "no"));
        let hinted = form(DeclaredOutput::Content, Some("ask"), MODERN);
        let shown = call_result(&result(denied()), &hinted).unwrap();
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!((&shown["isError"], &shown["resultType"]), (&json!(true), &json!("complete")));
        assert_eq!(shown["content"][0]["text"], "no\nhint: ask");
        let unknown = Err(ToolError::new(ToolErrorKind::UnknownTool, "which"));
        let error = call_result(&result(unknown), &form(DeclaredOutput::Content, None, MODERN)).unwrap_err();
        assert_eq!(error.code, INVALID_PARAMS);
    }

    #[test]
    fn result_without_the_declared_structured_output_is_marked_as_an_error() {
        let check = |declared: DeclaredOutput, expected: Value| {
            let form = form(declared, None, RequestEra::Handshake);
            let sent = call_result(&result(Ok(ToolOutput::text("cut"))), &form);
            let sent: Value = serde_json::from_str(&sent.unwrap()).unwrap();
            assert_eq!(sent["isError"], expected);
        };
        check(DeclaredOutput::Structured, json!(true));
        check(DeclaredOutput::Content, Value::Null);
    }
}
