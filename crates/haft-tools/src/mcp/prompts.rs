//! Combines a server's instructions and the names of its prompts into one text for the model.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::bounded::{BoundedList, cut};
use super::peer::{Peer, PeerError, PeerRequest};

/// The maximum number of characters of a server's instructions that the model sees.
const INSTRUCTIONS_CHARS_MAX: usize = 4_000;

/// The maximum number of prompts that are named.
const PROMPTS_MAX: usize = 50;

/// The maximum number of characters that are shown of a prompt's name, and of its description.
const DESCRIPTION_CHARS_MAX: usize = 200;

/// A prompt that a user or an agent may request from the server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Prompt {
    name: String,
    #[serde(default)]
    description: Option<String>,
}

/// Lists the first page of prompts; further pages are not fetched.
pub(super) async fn fetch(peer: &Peer, patience: Duration) -> Result<Vec<Prompt>, PeerError> {
    peer.request(PeerRequest::new("prompts/list", "", patience)).await.map(|raw| read(&raw))
}

/// Parses the prompts one by one, so that a malformed prompt does not affect the others.
fn read(raw: &RawValue) -> Vec<Prompt> {
    #[derive(Deserialize)]
    struct PromptListPage {
        #[serde(default)]
        prompts: BoundedList<Box<RawValue>, PROMPTS_MAX>,
    }
    let page = serde_json::from_str::<PromptListPage>(raw.get()).map(|page| page.prompts).unwrap_or_default();
    page.items.iter().filter_map(|prompt| serde_json::from_str(prompt.get()).ok()).collect()
}

/// Returns the text about the server for the model; `None` if the server has no instructions and no prompts.
pub(super) fn instructions_with_prompts(instructions: Option<&str>, prompts: &[Prompt]) -> Option<Arc<str>> {
    let words =
        instructions.map(|text| cut(text.trim(), INSTRUCTIONS_CHARS_MAX)).filter(|text| !text.is_empty());
    let listed = (!prompts.is_empty()).then(|| {
        let lines: Vec<String> = prompts.iter().map(line).collect();
        format!("The server also has prompts:\n{}", lines.join("\n"))
    });
    let parts: Vec<String> = words.into_iter().chain(listed).collect();
    (!parts.is_empty()).then(|| parts.join("\n\n").into())
}

fn line(Prompt { name, description }: &Prompt) -> String {
    let description = description.as_deref().unwrap_or_default().replace('\n', " ");
    let text =
        format!("- {}: {}", cut(name, DESCRIPTION_CHARS_MAX), cut(description.trim(), DESCRIPTION_CHARS_MAX));
    text.trim_end_matches([':', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts(json: &str) -> Vec<Prompt> {
        read(&RawValue::from_string(json.to_owned()).unwrap())
    }

    #[test]
    fn instructions_list_valid_prompts_and_skip_invalid_ones() {
        let listed = prompts(
            r#"{"prompts":[{"name":"review","description":"Reviews\ncode","x":1},7,{"name":"bare"}]}"#,
        );
        let text = "Be kind.\n\nThe server also has prompts:\n- review: Reviews code\n- bare";
        assert_eq!(instructions_with_prompts(Some(" Be kind. "), &listed).as_deref(), Some(text));
        assert_eq!(instructions_with_prompts(Some("  "), &[]), None);
        assert_eq!(instructions_with_prompts(None, &[]), None);
        assert_eq!(prompts("[]"), []);
    }

    #[test]
    fn prompts_and_instructions_are_limited_in_size() {
        let many: Vec<String> = (0..900).map(|number| format!(r#"{{"name":"p{number}"}}"#)).collect();
        let listed = prompts(&format!(r#"{{"prompts":[{}]}}"#, many.join(",")));
        assert_eq!(listed.len(), PROMPTS_MAX);
        let text = instructions_with_prompts(Some(&"ü".repeat(9_000)), &listed).unwrap();
        assert!(text.chars().count() < INSTRUCTIONS_CHARS_MAX + 1_000, "{}", text.len());
    }
}
