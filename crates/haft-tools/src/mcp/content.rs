//! Converts the result of `tools/call` to tool output.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use haft_core::output::{OutputContent, ResourceLink, ToolOutput};
use haft_core::result::{ToolError, ToolErrorKind};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::bounded::{BoundedList, BoundedObject};

/// The maximum number of content items that haft reads from one result; a note replaces the rest.
const PIECES_MAX: usize = 10_000;

/// The maximum size of structured content that is parsed, in bytes. The parsed value takes many times this memory.
const STRUCTURED_BYTES_MAX: usize = 8 << 20;

/// The maximum number of inputs that a server may request at once.
pub(super) const INPUTS_MAX: usize = 16;

/// The type of a result that asks for input.
const INPUT_REQUIRED: &str = "input_required";

/// The inputs that a server requests before it continues.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InputRequired {
    #[serde(default)]
    pub(super) input_requests: BoundedObject<InputRequest, INPUTS_MAX>,
    /// The opaque state that the server expects back unchanged; `None` if the server sent none.
    pub(super) request_state: Option<Box<RawValue>>,
}

/// One input that a server requests, as an MCP method with its parameters.
#[derive(Debug, Deserialize)]
pub(super) struct InputRequest {
    #[serde(default)]
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct McpCallResult<'a> {
    #[serde(borrow, default)]
    content: BoundedList<&'a RawValue, PIECES_MAX>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: Option<Value>,
}

/// Returns the inputs that the server needs before it continues; `None` for a complete result.
pub(super) fn input_required(raw: &RawValue) -> Result<Option<InputRequired>, ToolError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ResultKind {
        result_type: Option<String>,
    }
    // Almost no result asks for input. This check avoids parsing all other results twice.
    if !raw.get().contains(INPUT_REQUIRED) {
        return Ok(None);
    }
    let kind: ResultKind = serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))?;
    if kind.result_type.as_deref() != Some(INPUT_REQUIRED) {
        return Ok(None);
    }
    serde_json::from_str(raw.get()).map(Some).map_err(|error| unreadable(&error))
}

/// Reads the complete result of `tools/call`. A result with `isError` becomes an error.
pub(super) fn read(raw: &RawValue) -> Result<ToolOutput, ToolError> {
    let sent: McpCallResult<'_> = serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))?;
    let left_out = (sent.content.more > 0)
        .then(|| OutputContent::Text(format!("[haft left out {} more content items]", sent.content.more)));
    let content: Vec<OutputContent> =
        sent.content.items.iter().map(|part| piece(part)).chain(left_out).collect();
    let structured = sent.structured_content.map(structured).transpose()?.filter(|value| !value.is_null());
    let output =
        ToolOutput { content: with_structured_text(content, structured.as_ref()), structured, raw: None };
    match sent.is_error {
        Some(Value::Bool(true)) => Err(ToolError::new(ToolErrorKind::Failed, failure(&output))),
        Some(_) | None => Ok(output),
    }
}

fn structured(raw: &RawValue) -> Result<Value, ToolError> {
    if raw.get().len() > STRUCTURED_BYTES_MAX {
        let message = format!(
            "the MCP server's structured content is larger than {STRUCTURED_BYTES_MAX} bytes, so haft did not read it; ask for less"
        );
        return Err(ToolError::new(ToolErrorKind::Failed, message));
    }
    serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))
}

fn unreadable(error: &serde_json::Error) -> ToolError {
    ToolError::new(ToolErrorKind::Failed, format!("haft cannot parse the result of the MCP server: {error}"))
}

/// Returns the content, or the structured data as text if there is no content.
fn with_structured_text(content: Vec<OutputContent>, structured: Option<&Value>) -> Vec<OutputContent> {
    match structured {
        Some(value) if content.is_empty() => vec![OutputContent::Text(value.to_string())],
        Some(_) | None => content,
    }
}

fn failure(output: &ToolOutput) -> String {
    let text = output.as_text();
    if text.trim().is_empty() { "the tool reported an error without a message".into() } else { text }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct McpContentBlock {
    #[serde(rename = "type", default)]
    kind: String,
    text: Option<String>,
    data: Option<String>,
    mime_type: Option<String>,
    uri: Option<String>,
    name: Option<String>,
    title: Option<String>,
    description: Option<String>,
    resource: Option<McpResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct McpResource {
    #[serde(default)]
    uri: String,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

/// Converts one content item. Replaces unreadable items and unknown types with a description, so that none disappears
/// silently.
fn piece(raw: &RawValue) -> OutputContent {
    let Ok(part) = serde_json::from_str::<McpContentBlock>(raw.get()) else {
        return OutputContent::Text("[content that haft cannot parse]".into());
    };
    match part.kind.as_str() {
        "text" => OutputContent::Text(part.text.unwrap_or_default()),
        "image" => binary(part, |media_type, bytes| OutputContent::Image { media_type, bytes }),
        "audio" => binary(part, |media_type, bytes| OutputContent::Audio { media_type, bytes }),
        "resource_link" => linked(part),
        "resource" => part.resource.map_or_else(|| unknown("resource"), embedded),
        other => unknown(other),
    }
}

fn unknown(kind: &str) -> OutputContent {
    let kind: String = kind.chars().filter(|c| !c.is_control()).take(40).collect();
    OutputContent::Text(format!("[content of unknown type `{kind}`]"))
}

fn binary(part: McpContentBlock, make: fn(String, std::sync::Arc<[u8]>) -> OutputContent) -> OutputContent {
    match part.data.as_deref().map(|data| BASE64_STANDARD.decode(data)) {
        Some(Ok(bytes)) => {
            make(part.mime_type.unwrap_or_else(|| "application/octet-stream".into()), bytes.into())
        }
        Some(Err(_)) | None => OutputContent::Text(format!("[{} that haft cannot decode]", part.kind)),
    }
}

/// Converts a link without following it.
fn linked(part: McpContentBlock) -> OutputContent {
    OutputContent::Link(Box::new(ResourceLink {
        uri: part.uri.unwrap_or_default(),
        media_type: part.mime_type,
        name: part.name,
        title: part.title,
        description: part.description,
    }))
}

fn embedded(resource: McpResource) -> OutputContent {
    let McpResource { uri, mime_type, text, blob } = resource;
    match blob.filter(|_| text.is_none()).map(|blob| BASE64_STANDARD.decode(blob)) {
        Some(Ok(bytes)) => {
            OutputContent::Binary { uri: Some(uri), media_type: mime_type, bytes: bytes.into() }
        }
        Some(Err(_)) => OutputContent::Text(format!("[resource {uri} that haft cannot decode]")),
        None => OutputContent::Resource { uri, media_type: mime_type, text },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(text: &str) -> ToolOutput {
        read(&RawValue::from_string(text.into()).unwrap()).unwrap()
    }

    #[test]
    fn every_content_type_is_converted_or_described() {
        let check = |part: &str, expected: &str| {
            assert_eq!(output(&format!("{{\"content\":[{part}]}}")).as_text(), expected, "{part}");
        };
        check(r#"{"type":"text","text":"hi"}"#, "hi");
        check(r#"{"type":"image","data":"AAAA","mimeType":"image/png"}"#, "[image: image/png, 3 bytes]");
        check(r#"{"type":"image","data":"*"}"#, "[image that haft cannot decode]");
        check(r#"{"type":"audio","data":"AAAA","mimeType":"audio/wav"}"#, "[audio: audio/wav, 3 bytes]");
        check(
            r#"{"type":"resource_link","uri":"file:///a","name":"A","description":"an a"}"#,
            "[resource: file:///a]\nA: an a",
        );
        check(
            r#"{"type":"resource","resource":{"uri":"a://b","text":"inside"}}"#,
            "[resource: a://b]\ninside",
        );
        check(
            r#"{"type":"resource","resource":{"uri":"a://b","mimeType":"font/ttf","blob":"AAAA"}}"#,
            "[binary: font/ttf, 3 bytes from a://b]",
        );
        check(r#"{"type":"hologram"}"#, "[content of unknown type `hologram`]");
        check("7", "[content that haft cannot parse]");
    }

    #[test]
    fn structured_content_without_text_is_shown_as_text() {
        let alone = output(r#"{"structuredContent":{"a":1}}"#);
        assert_eq!(alone.as_text(), r#"{"a":1}"#);
        assert_eq!(alone.structured.unwrap()["a"], 1);
        let beside = output(r#"{"content":[{"type":"text","text":"one"}],"structuredContent":[1]}"#);
        assert_eq!((beside.as_text().as_str(), beside.structured.is_some()), ("one", true));
    }

    #[test]
    fn result_with_is_error_is_a_failed_call() {
        let raw = RawValue::from_string(r#"{"isError":true,"content":[{"type":"text","text":"no"}]}"#.into())
            .unwrap();
        let error = read(&raw).unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ToolErrorKind::Failed, "no"));
        assert!(read(&RawValue::from_string("[]".into()).unwrap()).is_err());
    }

    #[test]
    fn deeply_nested_structured_content_is_an_error() {
        let deep = format!("{{\"structuredContent\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(read(&RawValue::from_string(deep).unwrap()).is_err());
    }
}
