//! Reads OpenAPI documents from a file or a URL.

use std::cell::Cell;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderName;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::super::client::RestClient;
use super::super::credential::add_header;
use super::super::guard::AllowedHosts;
use super::super::request::RestRequest;
use super::document::{self, DOCUMENT_BYTES_MAX, VALUES_MAX};
use super::documents::{Document, Documents, referenced_documents};
use super::swagger2;
use haft_core::settings::method::Method;

/// A file or URL with an OpenAPI document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenApiSource {
    File(PathBuf),
    Url(Url),
}

/// The maximum number of files in one API.
const FILES_MAX: usize = 500;

/// The timeout for fetching one document.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

impl OpenApiSource {
    /// Parses the text as a URL if it begins with http:// or https://, otherwise as a path.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        if !text.starts_with("http://") && !text.starts_with("https://") {
            return Ok(Self::File(PathBuf::from(text)));
        }
        let url = Url::parse(text).map_err(|error| SourceError(format!("`{text}` is not a URL: {error}")))?;
        AllowedHosts::named(&url).check_url(&url).map_err(|refusal| SourceError(refusal.to_string()))?;
        Ok(Self::Url(url))
    }

    /// Reads a document and the files that it refers to. Skips files outside the directory of the document.
    pub fn read_file(path: &Path) -> Result<Documents, SourceError> {
        let path = path.canonicalize().map_err(|error| unreadable(path, &error.to_string()))?;
        let directory = path.parent().map(Path::to_owned).unwrap_or_default();
        let mut documents: Vec<Document> = Vec::new();
        let mut waiting = vec![path];
        let mut bytes_left = DOCUMENT_BYTES_MAX;
        let values_left = Cell::new(VALUES_MAX);
        while let Some(path) = waiting.pop() {
            let at = file_url(&path)?;
            if documents.iter().any(|document| document.at == at) {
                continue;
            }
            if documents.len() == FILES_MAX {
                return Err(SourceError(format!(
                    "the OpenAPI document consists of more than {FILES_MAX} files"
                )));
            }
            let bytes = file_bytes(&path, bytes_left)?;
            bytes_left -= bytes.len();
            let mut value = document::parse(&bytes, &values_left)
                .map_err(|error| unreadable(&path, &error.to_string()))?;
            drop(bytes);
            swagger2::upgrade(&mut value);
            waiting.extend(neighbours(&value, &at, &directory));
            documents.push(Document { at, value });
        }
        Ok(Documents::new(documents))
    }

    /// Fetches the text of a document from a URL.
    pub async fn fetch(
        url: &Url,
        reach: AllowedHosts,
        headers: &[(HeaderName, SecretString)],
    ) -> Result<Vec<u8>, SourceError> {
        let client = RestClient::new(reach);
        let mut request =
            RestRequest { method: Method::Get, url: url.clone(), headers: Vec::new(), body: None };
        for (name, value) in headers {
            add_header(&mut request, name.clone(), value.expose_secret())
                .map_err(|error| SourceError(error.message))?;
        }
        let fetched = async {
            let response = client.send(&request).await?;
            let status = response.status();
            let (_, bytes) = client.whole(response, DOCUMENT_BYTES_MAX).await?;
            Ok((status, bytes))
        };
        let shown = shown(url);
        let fetched = tokio::time::timeout(FETCH_TIMEOUT, fetched).await;
        let (status, bytes) = fetched
            .map_err(|_| {
                SourceError(format!("`{shown}` did not answer within {} s", FETCH_TIMEOUT.as_secs()))
            })?
            .map_err(|error: haft_core::result::ToolError| {
                SourceError(format!("`{shown}`: {}", error.message))
            })?;
        if status.is_success() {
            Ok(bytes)
        } else {
            Err(SourceError(format!("`{shown}` answered with HTTP status {}", status.as_u16())))
        }
    }
}

/// Returns a URL for messages, without its query, which may contain a key.
pub(super) fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.to_string()
}

/// Returns the files that a document refers to and that may be read. References to other files have no target.
fn neighbours(value: &serde_json::Value, at: &Url, directory: &Path) -> Vec<PathBuf> {
    let named = referenced_documents(value).into_iter();
    let urls = named.filter_map(|file| at.join(file).ok()).filter(|url| url.scheme() == "file");
    let paths = urls.filter_map(|url| url.to_file_path().ok()?.canonicalize().ok());
    paths.filter(|path| path.starts_with(directory)).collect()
}

fn file_url(path: &Path) -> Result<Url, SourceError> {
    Url::from_file_path(path).map_err(|()| unreadable(path, "haft cannot convert the path to a file URL"))
}

/// Reads a regular file. Refuses other kinds of files, because reading a pipe or a device might never end.
fn file_bytes(path: &Path, bytes_max: usize) -> Result<Vec<u8>, SourceError> {
    let failed = |error: std::io::Error| unreadable(path, &error.to_string());
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(unreadable(path, "the path is not a regular file"));
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > bytes_max {
        return Err(unreadable(
            path,
            &format!("the OpenAPI document is larger than {DOCUMENT_BYTES_MAX} bytes"),
        ));
    }
    Ok(bytes)
}

fn unreadable(path: &Path, reason: &str) -> SourceError {
    SourceError(format!("haft cannot read the OpenAPI document `{}`: {reason}", path.display()))
}

/// The reason why an OpenAPI document cannot be read, as a message for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(pub String);
