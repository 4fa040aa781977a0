//! Checks the key and the headers that a provider requires.

use axum::http::{HeaderMap, Uri};

use crate::fault::ErrorResponse;
use crate::wire::ApiFormat;

/// Checks the API key and the required headers. Returns the error that the real provider would return.
pub(crate) fn admit(
    format: ApiFormat,
    key: Option<&str>,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<(), ErrorResponse> {
    if format == ApiFormat::Anthropic && !headers.contains_key("anthropic-version") {
        return Err(ErrorResponse::new(400, "anthropic-version: header is required"));
    }
    let Some(key) = key else { return Ok(()) };
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let carried = match format {
        ApiFormat::OpenAiChat | ApiFormat::OpenAiResponses => bearer,
        ApiFormat::Anthropic => header("x-api-key").or(bearer),
        ApiFormat::Gemini => header("x-goog-api-key").or_else(|| query_key(uri)),
        // Ollama requires no key.
        ApiFormat::Ollama => Some(key),
    };
    match carried {
        Some(carried) if carried == key => Ok(()),
        Some(_) => Err(ErrorResponse::new(401, "the API key is not valid")),
        None => Err(ErrorResponse::new(401, "the API key is missing")),
    }
}

fn query_key(uri: &Uri) -> Option<&str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix("key="))
}
