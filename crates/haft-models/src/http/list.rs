//! The lists in which providers name their models, page by page.

use haft_core::conversation::Format;
use haft_core::model_error::ModelError;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use crate::reading;

/// How many pages of a list are asked for.
pub(crate) const PAGES_MAX: usize = 50;

/// A model, as far as its provider's list tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The name by which it is asked.
    pub id: String,
    /// How much it can read, where the list says.
    pub context_tokens: Option<u64>,
    pub output_tokens_max: Option<u64>,
}

pub(crate) fn first_page(format: Format) -> String {
    match format {
        Format::OpenaiChat | Format::OpenaiResponses => "models".into(),
        Format::Anthropic => "models?limit=1000".into(),
        Format::Gemini => "models?pageSize=1000".into(),
        Format::Ollama => "api/tags".into(),
    }
}

/// What a list wants beside the key.
pub(crate) fn add_headers(format: Format, headers: &mut HeaderMap) {
    if format == Format::Anthropic {
        let name = HeaderName::from_static("anthropic-version");
        headers.entry(name).or_insert(HeaderValue::from_static("2023-06-01"));
    }
}

/// The models of a page, and the path of the next.
pub(crate) fn read(format: Format, body: &[u8]) -> Result<(Vec<Listed>, Option<String>), ModelError> {
    let page: Page = reading::read(body)?;
    let next = match format {
        Format::OpenaiChat | Format::OpenaiResponses | Format::Ollama => None,
        Format::Anthropic => {
            let after = page.last_id.filter(|_| page.has_more);
            after.map(|id| format!("models?limit=1000&after_id={}", escaped(&id)))
        }
        Format::Gemini => {
            page.next_page_token.map(|token| format!("models?pageSize=1000&pageToken={}", escaped(&token)))
        }
    };
    let answers = page.data.into_iter().chain(page.models).filter(Row::answers);
    Ok((answers.filter_map(Row::listed).collect(), next))
}

/// All that the pages of all providers may hold.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
struct Page {
    #[serde(default)]
    data: Vec<Row>,
    #[serde(default)]
    models: Vec<Row>,
    #[serde(default)]
    has_more: bool,
    last_id: Option<String>,
    #[serde(alias = "nextPageToken")]
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
struct Row {
    id: Option<String>,
    name: Option<String>,
    #[serde(
        alias = "inputTokenLimit",
        alias = "context_window",
        alias = "max_input_tokens",
        alias = "max_model_len"
    )]
    context_length: Option<u64>,
    #[serde(alias = "outputTokenLimit", alias = "max_completion_tokens")]
    max_tokens: Option<u64>,
    #[serde(rename = "supportedGenerationMethods")]
    methods: Option<Vec<String>>,
}

impl Row {
    /// Gemini's list has models that only embed or draw.
    fn answers(&self) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.iter().any(|method| method == "generateContent"))
    }

    fn listed(self) -> Option<Listed> {
        let id = self.id.or(self.name)?;
        let id = id.strip_prefix("models/").map(str::to_owned).unwrap_or(id);
        Some(Listed { id, context_tokens: self.context_length, output_tokens_max: self.max_tokens })
    }
}

/// A token of a provider, made fit for a query.
fn escaped(token: &str) -> String {
    reqwest::Url::parse_with_params("http://h/", [("t", token)])
        .ok()
        .and_then(|url| url.query().and_then(|query| query.strip_prefix("t=")).map(str::to_owned))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_list_is_read_and_its_next_page_found() {
        let check = |format, body: &str, ids: &[&str], next: Option<&str>| {
            let (listed, found) = read(format, body.as_bytes()).unwrap();
            assert_eq!(listed.iter().map(|model| model.id.as_str()).collect::<Vec<_>>(), ids);
            assert_eq!(found.as_deref(), next);
        };
        check(
            Format::OpenaiChat,
            r#"{"data":[{"id":"a"},{"id":"b","context_length":7}]}"#,
            &["a", "b"],
            None,
        );
        check(
            Format::Anthropic,
            r#"{"data":[{"id":"c"}],"has_more":true,"last_id":"c&d"}"#,
            &["c"],
            Some("models?limit=1000&after_id=c%26d"),
        );
        check(Format::Anthropic, r#"{"data":[{"id":"c"}],"has_more":false,"last_id":"c"}"#, &["c"], None);
        check(
            Format::Gemini,
            r#"{"models":[{"name":"models/g","supportedGenerationMethods":["generateContent"]},
                {"name":"models/e","supportedGenerationMethods":["embedContent"]}],"nextPageToken":"t"}"#,
            &["g"],
            Some("models?pageSize=1000&pageToken=t"),
        );
        check(
            Format::Ollama,
            r#"{"models":[{"name":"llama3:8b","model":"llama3:8b"}]}"#,
            &["llama3:8b"],
            None,
        );
        assert!(read(Format::Ollama, b"<html>").is_err());
    }
}
