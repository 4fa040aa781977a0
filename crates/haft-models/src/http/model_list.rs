//! Reads the model list of a provider, page by page.

use haft_core::conversation::ModelApiFormat;
use haft_core::model_error::ModelError;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::bounded_json;

/// The maximum number of pages that are requested for one model list.
pub(crate) const PAGES_MAX: usize = 50;

/// A model as its provider lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// The name to use in requests.
    pub id: String,
    /// The size of the context window in tokens, if the list states it.
    pub context_tokens: Option<u64>,
    pub output_tokens_max: Option<u64>,
}

pub(crate) fn first_page(format: ModelApiFormat) -> String {
    match format {
        ModelApiFormat::OpenaiChat | ModelApiFormat::OpenaiResponses => "models".into(),
        ModelApiFormat::Anthropic => "models?limit=1000".into(),
        ModelApiFormat::Gemini => "models?pageSize=1000".into(),
        ModelApiFormat::Ollama => "api/tags".into(),
    }
}

/// Adds the headers that a list request needs in addition to the key.
pub(crate) fn add_headers(format: ModelApiFormat, headers: &mut HeaderMap) {
    if format == ModelApiFormat::Anthropic {
        let name = HeaderName::from_static("anthropic-version");
        headers.entry(name).or_insert(HeaderValue::from_static("2023-06-01"));
    }
}

/// Returns the models on a page and the path of the next page. Reads as many fields of a malformed row as possible.
pub fn read_page(
    format: ModelApiFormat,
    body: &[u8],
) -> Result<(Vec<ListedModel>, Option<String>), ModelError> {
    let page: Value = bounded_json::read(body)?;
    // Accept both formats: Together's API returns a bare array, and llama.cpp returns the same list under two names.
    let lists: Vec<&Value> =
        [Some(&page), page.get("data"), page.get("models")].into_iter().flatten().collect();
    let rows = lists.iter().find_map(|list| list.as_array());
    // Accept a missing list: an empty list may be null, and Gemini omits it.
    if rows.is_none() && !lists[1..].iter().any(|list| list.is_null()) && page != json!({}) {
        return Err(bounded_json::malformed("the reply has no list of models"));
    }
    let rows = rows.into_iter().flatten().filter(|row| answers(row));
    Ok((rows.filter_map(listed).collect(), next_page(format, &page)))
}

fn next_page(format: ModelApiFormat, page: &Value) -> Option<String> {
    let text = |key: &str| page.get(key)?.as_str().filter(|text| !text.is_empty());
    match format {
        ModelApiFormat::OpenaiChat | ModelApiFormat::OpenaiResponses | ModelApiFormat::Ollama => None,
        ModelApiFormat::Anthropic => {
            let after = text("last_id").filter(|_| page.get("has_more") == Some(&Value::Bool(true)))?;
            Some(format!("models?limit=1000&after_id={}", escaped(after)))
        }
        ModelApiFormat::Gemini => {
            let token = text("nextPageToken")?;
            Some(format!("models?pageSize=1000&pageToken={}", escaped(token)))
        }
    }
}

/// Returns true if a model generates text. Gemini also lists models that are only for embeddings or images.
fn answers(row: &Value) -> bool {
    let methods = row.get("supportedGenerationMethods").and_then(Value::as_array);
    methods.is_none_or(|methods| methods.iter().any(|method| method == "generateContent"))
}

/// Reads a row, with the field names of any provider.
fn listed(row: &Value) -> Option<ListedModel> {
    let id = ["id", "name"].iter().find_map(|key| row.get(*key)?.as_str())?;
    let count = |keys: &[&str]| keys.iter().find_map(|key| row.get(*key)?.as_u64());
    Some(ListedModel {
        id: id.strip_prefix("models/").unwrap_or(id).to_owned(),
        context_tokens: count(CONTEXT_KEYS),
        output_tokens_max: count(OUTPUT_KEYS),
    })
}

const CONTEXT_KEYS: &[&str] = &[
    "context_length",
    "inputTokenLimit",
    "context_window",
    "max_input_tokens",
    "max_model_len",
    "max_context_length",
];

const OUTPUT_KEYS: &[&str] = &["max_tokens", "outputTokenLimit", "max_completion_tokens"];

/// Escapes a page token for a query string.
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
    fn context_and_output_limits_are_read_under_every_provider_key() {
        let check = |row: &str, expected: (Option<u64>, Option<u64>)| {
            let body = format!(r#"{{"data":[{row}]}}"#);
            let (listed, _) = read_page(ModelApiFormat::OpenaiChat, body.as_bytes()).unwrap();
            assert_eq!((listed[0].context_tokens, listed[0].output_tokens_max), expected, "{row}");
        };
        check(r#"{"id":"a"}"#, (None, None));
        check(r#"{"id":"a","context_length":7,"max_model_len":8,"max_tokens":2}"#, (Some(7), Some(2)));
        check(r#"{"id":"a","context_window":7,"max_completion_tokens":2}"#, (Some(7), Some(2)));
        check(r#"{"id":"a","inputTokenLimit":7,"outputTokenLimit":2}"#, (Some(7), Some(2)));
        check(r#"{"id":"a","max_context_length":7}"#, (Some(7), None));
    }

    #[test]
    fn model_lists_of_every_provider_are_read_with_their_next_page() {
        let check = |format, body: &str, ids: &[&str], next: Option<&str>| {
            let (listed, found) = read_page(format, body.as_bytes()).unwrap();
            assert_eq!(listed.iter().map(|model| model.id.as_str()).collect::<Vec<_>>(), ids);
            assert_eq!(found.as_deref(), next);
        };
        check(
            ModelApiFormat::OpenaiChat,
            r#"{"data":[{"id":"a"},{"id":"b","context_length":7}]}"#,
            &["a", "b"],
            None,
        );
        check(
            ModelApiFormat::Anthropic,
            r#"{"data":[{"id":"c"}],"has_more":true,"last_id":"c&d"}"#,
            &["c"],
            Some("models?limit=1000&after_id=c%26d"),
        );
        check(
            ModelApiFormat::Anthropic,
            r#"{"data":[{"id":"c"}],"has_more":false,"last_id":"c"}"#,
            &["c"],
            None,
        );
        check(
            ModelApiFormat::Gemini,
            r#"{"models":[{"name":"models/g","supportedGenerationMethods":["generateContent"]},
                {"name":"models/e","supportedGenerationMethods":["embedContent"]}],"nextPageToken":"t"}"#,
            &["g"],
            Some("models?pageSize=1000&pageToken=t"),
        );
        check(
            ModelApiFormat::Ollama,
            r#"{"models":[{"name":"llama3:8b","model":"llama3:8b"}]}"#,
            &["llama3:8b"],
            None,
        );
        check(
            ModelApiFormat::OpenaiChat,
            r#"[{"id":"a/b","context_length":7},{"id":"c"}]"#,
            &["a/b", "c"],
            None,
        );
        let twice = r#"{"models":[{"name":"m.gguf"}],"object":"list","data":[{"id":"m.gguf"}]}"#;
        check(ModelApiFormat::OpenaiChat, twice, &["m.gguf"], None);
        check(
            ModelApiFormat::OpenaiChat,
            r#"{"data":[7,{},{"id":"a","context_length":"8k"}]}"#,
            &["a"],
            None,
        );
        check(ModelApiFormat::Ollama, r#"{"models":null}"#, &[], None);
        check(ModelApiFormat::Gemini, "{}", &[], None);
        for nothing in ["<html>", "7", "null", r#"{"object":"x"}"#] {
            assert!(read_page(ModelApiFormat::Ollama, nothing.as_bytes()).is_err(), "{nothing}");
        }
    }
}
