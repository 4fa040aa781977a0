//! OpenAPI documents for the tests of this module.
#![allow(clippy::unwrap_used, reason = "a failed fixture must fail the test")]

use serde_json::Value;
use url::Url;

use super::documents::Documents;
use super::download::OpenApiDownload;

/// Returns an API with this single document.
pub(super) fn documents(value: &Value) -> Documents {
    let at = Url::parse("https://api.example.com/openapi.json").unwrap();
    let mut reading = OpenApiDownload::of(at.clone());
    reading.take(&at, value.to_string().as_bytes()).unwrap();
    reading.finished()
}
