//! The result of a call in the form of `tools/call`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use haft_core::output::{OutputContent, ToolOutput};
use haft_core::result::{ToolErrorKind, ToolResult};
use serde_json::{Map, Value, json};

use super::era::RequestEra;
use super::message::{GatewayError, INVALID_PARAMS};
use super::object::RawObject;

/// The kind of output that the definition of a tool promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeclaredOutput {
    Content,
    /// The tool has an output schema.
    Structured,
}

/// Returns the JSON of a result. An unknown tool is an error of the protocol; any other failure is a result that the
/// model reads. `hint` is the next step of a person after that failure.
pub(super) fn call_result(
    result: &ToolResult,
    declared: DeclaredOutput,
    hint: Option<String>,
    era: RequestEra,
) -> Result<String, GatewayError> {
    match &result.outcome {
        Ok(output) => Ok(output_json(output, declared, era)),
        Err(error) if error.kind == ToolErrorKind::UnknownTool => {
            Err(GatewayError::new(INVALID_PARAMS, error.message.clone()))
        }
        Err(error) => {
            let text = match hint {
                Some(hint) => format!("{}\nhint: {hint}", error.message),
                None => error.message.clone(),
            };
            Ok(complete(json!({ "content": [text_piece(&text)], "isError": true }), era))
        }
    }
}

fn output_json(output: &ToolOutput, declared: DeclaredOutput, era: RequestEra) -> String {
    if let Some(raw) = &output.raw {
        return match (era, RawObject::of(raw.0.get())) {
            (RequestEra::Stateless(_), Some(mut object)) => {
                object.set("resultType", "\"complete\"");
                object.to_string()
            }
            (RequestEra::Stateless(_) | RequestEra::Handshake, _) => raw.0.get().to_owned(),
        };
    }
    let content: Vec<Value> = output.content.iter().map(piece).collect();
    let mut result = json!({ "content": content });
    match &output.structured {
        Some(structured) => result["structuredContent"] = structured.clone(),
        // Clients refuse a success without the structured output that the tool declares. The output was too large and is
        // stored or cut, which the text says.
        None if declared == DeclaredOutput::Structured => result["isError"] = true.into(),
        None => {}
    }
    complete(result, era)
}

/// Adds the members that the era requires.
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

fn piece(content: &OutputContent) -> Value {
    match content {
        OutputContent::Text(text) => text_piece(text),
        OutputContent::Image { media_type, bytes } => {
            json!({ "type": "image", "mimeType": media_type, "data": BASE64_STANDARD.encode(bytes) })
        }
        OutputContent::Audio { media_type, bytes } => {
            json!({ "type": "audio", "mimeType": media_type, "data": BASE64_STANDARD.encode(bytes) })
        }
        OutputContent::Resource { uri, media_type, text: Some(text) } => {
            json!({ "type": "resource", "resource": resource(uri, media_type.as_deref(), "text", text) })
        }
        OutputContent::Resource { uri, media_type, text: None } => {
            let mut link = resource(uri, media_type.as_deref(), "name", uri);
            link.insert("type".into(), "resource_link".into());
            Value::Object(link)
        }
        OutputContent::Binary { uri, media_type, bytes } => {
            let uri = uri.as_deref().unwrap_or("haft:binary");
            let blob = BASE64_STANDARD.encode(bytes);
            json!({ "type": "resource", "resource": resource(uri, media_type.as_deref(), "blob", &blob) })
        }
        OutputContent::FoundTools(_) | OutputContent::Stored(_) => text_piece(&content.as_text()),
    }
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
    use haft_core::output::RawResult;
    use haft_core::result::{Receipt, ToolError};
    use haft_core::tool::ToolCall;
    use serde_json::value::RawValue;

    use super::super::era::ClientAbilities;
    use super::*;

    const MODERN: RequestEra = RequestEra::Stateless(ClientAbilities { elicitation: false, sampling: false });

    fn result(outcome: Result<ToolOutput, ToolError>) -> ToolResult {
        ToolResult { call: ToolCall::new("1", "t", &json!({})), outcome, receipt: Receipt::default() }
    }

    fn json_of(outcome: Result<ToolOutput, ToolError>, era: RequestEra) -> Value {
        serde_json::from_str(&call_result(&result(outcome), DeclaredOutput::Content, None, era).unwrap())
            .unwrap()
    }

    #[test]
    fn every_kind_of_content_has_its_mcp_form() {
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
        check(
            OutputContent::Binary { uri: None, media_type: None, bytes: [0, 0, 0].into() },
            json!({"type": "resource", "resource": {"uri": "haft:binary", "blob": "AAAA"}}),
        );
    }

    #[test]
    fn raw_results_pass_unchanged_but_for_the_era() {
        let text = r#"{"content":[{"type":"text","text":"a","annotations":{"x":1.0}}],"_meta":{"v":1}}"#;
        let raw = RawResult(RawValue::from_string(text.to_owned()).unwrap().into());
        let output = ToolOutput { raw: Some(raw), ..ToolOutput::text("a") };
        let sent =
            call_result(&result(Ok(output.clone())), DeclaredOutput::Content, None, RequestEra::Handshake)
                .unwrap();
        assert_eq!(sent, text);
        let modern = call_result(&result(Ok(output)), DeclaredOutput::Content, None, MODERN).unwrap();
        assert_eq!(modern, format!("{},\"resultType\":\"complete\"}}", text.strip_suffix('}').unwrap()));
    }

    #[test]
    fn failures_are_results_and_unknown_tools_are_errors() {
        let denied = || Err(ToolError::new(ToolErrorKind::Denied, "no"));
        let shown =
            call_result(&result(denied()), DeclaredOutput::Content, Some("ask".into()), MODERN).unwrap();
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!((&shown["isError"], &shown["resultType"]), (&json!(true), &json!("complete")));
        assert_eq!(shown["content"][0]["text"], "no\nhint: ask");
        let unknown = Err(ToolError::new(ToolErrorKind::UnknownTool, "which"));
        let error = call_result(&result(unknown), DeclaredOutput::Content, None, MODERN).unwrap_err();
        assert_eq!(error.code, INVALID_PARAMS);
    }

    #[test]
    fn missing_declared_structure_is_marked_as_an_error() {
        let check = |declared: DeclaredOutput, expected: Value| {
            let sent =
                call_result(&result(Ok(ToolOutput::text("cut"))), declared, None, RequestEra::Handshake);
            let sent: Value = serde_json::from_str(&sent.unwrap()).unwrap();
            assert_eq!(sent["isError"], expected);
        };
        check(DeclaredOutput::Structured, json!(true));
        check(DeclaredOutput::Content, Value::Null);
    }
}
