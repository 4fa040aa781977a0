//! Converts content blocks for clients of revisions that do not know them. Such clients refuse the whole result.

use serde_json::{Value, json};

use super::object::RawObject;
use super::rewrite::with_items;

/// The URI of audio that has become an embedded resource, which must have a URI.
const AUDIO_URI: &str = "haft:audio";

/// The result that contains content blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentPlace {
    /// The result of a tool, with blocks in `content`.
    ToolResult,
    /// The result of a prompt, with a block in each message.
    Prompt,
}

/// The kinds of content blocks that a client does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnknownContent {
    Nothing,
    Links,
    LinksAndAudio,
}

impl UnknownContent {
    fn of(revision: &str) -> Self {
        match revision {
            "2024-11-05" => Self::LinksAndAudio,
            "2025-03-26" => Self::Links,
            _ => Self::Nothing,
        }
    }

    /// Returns a block that the client knows; `None` for a block that it already knows.
    fn converted(self, block: &str) -> Option<String> {
        let object = RawObject::of(block)?;
        let converted = match (self, object.get("type")?) {
            (Self::Links | Self::LinksAndAudio, "\"resource_link\"") => link_text(&object),
            (Self::LinksAndAudio, "\"audio\"") => audio_resource(&object),
            (Self::Nothing | Self::Links | Self::LinksAndAudio, _) => return None,
        };
        Some(converted.to_string())
    }
}

/// Returns a result with only the content blocks that this revision knows.
pub(super) fn known_content(result: String, place: ContentPlace, revision: &str) -> String {
    let unknown = UnknownContent::of(revision);
    match (unknown, place) {
        (UnknownContent::Nothing, _) => result,
        (_, ContentPlace::ToolResult) => with_items(&result, "content", &|block| unknown.converted(block)),
        (_, ContentPlace::Prompt) => with_items(&result, "messages", &|message| {
            let mut message = RawObject::of(message)?;
            let converted = unknown.converted(message.get("content")?)?;
            message.set("content", converted);
            Some(message.to_string())
        }),
    }
}

fn link_text(link: &RawObject<'_>) -> Value {
    let member = |key: &str| link.get(key).and_then(|text| serde_json::from_str::<String>(text).ok());
    let uri = member("uri").unwrap_or_default();
    let name = member("title").or_else(|| member("name")).filter(|name| *name != uri);
    let name = name.map(|name| format!("{name}: ")).unwrap_or_default();
    let description = member("description").map(|text| format!("\n{text}")).unwrap_or_default();
    json!({ "type": "text", "text": format!("[resource {name}{uri}]{description}") })
}

fn audio_resource(audio: &RawObject<'_>) -> Value {
    let member = |key: &str| audio.get(key).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let mut resource = json!({ "uri": AUDIO_URI, "blob": member("data").unwrap_or_default() });
    if let Some(media_type) = member("mimeType") {
        resource["mimeType"] = media_type;
    }
    json!({ "type": "resource", "resource": resource })
}

#[cfg(test)]
mod tests {
    use super::super::era::HANDSHAKE;
    use super::*;

    #[test]
    fn clients_of_each_revision_get_only_content_that_they_know() {
        let text = json!({"type": "text", "text": "t", "vendor": 1});
        let image = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
        let audio = json!({"type": "audio", "data": "BBBB", "mimeType": "audio/wav"});
        let link = json!({"type": "resource_link", "uri": "a:b", "name": "n", "description": "d"});
        let plain_link = json!({"type": "text", "text": "[resource n: a:b]\nd"});
        let resource = json!({"uri": "haft:audio", "blob": "BBBB", "mimeType": "audio/wav"});
        let plain_audio = json!({"type": "resource", "resource": resource});
        let sent = [&text, &image, &audio, &link];
        let expected = |revision: &str| match revision {
            "2024-11-05" => [&text, &image, &plain_audio, &plain_link],
            "2025-03-26" => [&text, &image, &audio, &plain_link],
            _ => sent,
        };
        for revision in HANDSHAKE {
            let result = json!({"content": sent, "v": 1.0}).to_string();
            let known = known_content(result, ContentPlace::ToolResult, revision);
            let known: Value = serde_json::from_str(&known).unwrap();
            assert_eq!(known, json!({"content": expected(revision), "v": 1.0}), "{revision}");
            let message = |block: &Value| json!({"role": "user", "content": block});
            let result = json!({"messages": sent.map(message)}).to_string();
            let known = known_content(result, ContentPlace::Prompt, revision);
            let known: Value = serde_json::from_str(&known).unwrap();
            assert_eq!(known, json!({"messages": expected(revision).map(message)}), "{revision}");
        }
    }

    #[test]
    fn malformed_results_stay_unchanged() {
        for odd in ["7", "{}", r#"{"content":7}"#, r#"{"content":[7,{"type":7},{}]}"#] {
            assert_eq!(known_content(odd.into(), ContentPlace::ToolResult, "2024-11-05"), odd);
        }
    }
}
