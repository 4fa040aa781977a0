//! The state of a download of OpenAPI documents. Each document may refer to others, so their number is not known in
//! advance.

use std::cell::Cell;

use url::Url;

use super::document::{self, DOCUMENT_BYTES_MAX, VALUES_MAX};
use super::documents::{Document, Documents, referenced_documents};
use super::source::{SourceError, shown};
use super::swagger2;

/// The documents read so far, and the URLs still to be read.
#[derive(Debug)]
pub struct OpenApiDownload {
    documents: Vec<Document>,
    waiting: Vec<Url>,
    requests: usize,
    first: Url,
    bytes_left: usize,
    values_left: Cell<usize>,
}

/// The maximum number of documents that are fetched for one API; each costs a request.
const DOCUMENTS_MAX: usize = 50;

impl OpenApiDownload {
    pub fn of(url: Url) -> Self {
        Self {
            documents: Vec::new(),
            waiting: vec![url.clone()],
            requests: 0,
            first: url,
            bytes_left: DOCUMENT_BYTES_MAX,
            values_left: Cell::new(VALUES_MAX),
        }
    }

    /// Returns the URL of the next document to fetch. Documents beyond the limit are not fetched, so references to them
    /// have no target.
    pub fn next_url(&mut self) -> Option<Url> {
        if self.requests == DOCUMENTS_MAX {
            return None;
        }
        self.requests += 1;
        self.waiting.pop()
    }

    /// Adds a document. On an error, the state does not change.
    pub fn take(&mut self, at: &Url, bytes: &[u8]) -> Result<(), SourceError> {
        let bad = |reason: String| SourceError(format!("`{}`: {reason}", shown(at)));
        let bytes_left = self.bytes_left.checked_sub(bytes.len());
        let bytes_left = bytes_left
            .ok_or_else(|| bad(format!("the OpenAPI document is larger than {DOCUMENT_BYTES_MAX} bytes")))?;
        let values_left = self.values_left.clone();
        let mut value = document::parse(bytes, &values_left).map_err(|error| bad(error.to_string()))?;
        (self.bytes_left, self.values_left) = (bytes_left, values_left);
        swagger2::upgrade(&mut value);
        let named = referenced_documents(&value).into_iter().filter_map(|file| at.join(file).ok());
        let new: Vec<Url> =
            named.filter(|url| self.is_in_same_directory(url) && !self.is_known(url, at)).collect();
        self.waiting.extend(new);
        self.documents.push(Document { at: at.clone(), value });
        Ok(())
    }

    /// Returns whether this is the URL of the first document, without which the download fails.
    pub fn is_first(&self, url: &Url) -> bool {
        *url == self.first
    }

    pub fn finished(self) -> Documents {
        Documents::new(self.documents)
    }

    /// Returns whether the URL is on the same server and below the same directory. An OpenAPI document must not make
    /// haft fetch any other URL.
    fn is_in_same_directory(&self, url: &Url) -> bool {
        let (directory, _) = self.first.path().rsplit_once('/').unwrap_or_default();
        let below = url.path().strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
        url.origin() == self.first.origin() && below && url.username().is_empty() && url.password().is_none()
    }

    fn is_known(&self, url: &Url, current: &Url) -> bool {
        let mut known = self.documents.iter().map(|document| &document.at).chain(&self.waiting);
        url == current || known.any(|other| other == url)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn download_fetches_each_document_below_the_first_url_once() {
        let first = url("https://a.com/api/v1/openapi.json?key=k");
        let mut reading = OpenApiDownload::of(first.clone());
        assert_eq!(reading.next_url(), Some(first.clone()));
        let to = |reference: &str| json!({ "$ref": reference });
        let value = json!({ "all": [
            to("paths/a.json#/x"), to("paths/a.json#/y"), to("#/own"), to("../secret.json"), to("/etc.json"),
            to("https://evil.com/api/v1/x.json"), to("https://a.com:444/api/v1/x.json"), to("//evil.com/api/v1/y"),
            to("https://u:p@a.com/api/v1/z.json"), to("file:///etc/passwd"), to("openapi.json?key=k"),
        ] });
        assert!(reading.take(&first, b"<html>").is_err());
        reading.take(&first, value.to_string().as_bytes()).unwrap();
        let second = reading.next_url().unwrap();
        assert_eq!(second.as_str(), "https://a.com/api/v1/paths/a.json");
        reading.take(&second, to("a.json#/x").to_string().as_bytes()).unwrap();
        assert_eq!(reading.next_url(), None);
    }

    #[test]
    fn endless_document_chain_stops_at_the_limit() {
        let mut reading = OpenApiDownload::of(url("https://a.com/0"));
        let mut requests = 0;
        while let Some(at) = reading.next_url() {
            requests += 1;
            let next = json!({ "$ref": requests.to_string() }).to_string();
            reading.take(&at, next.as_bytes()).unwrap();
        }
        assert_eq!(requests, DOCUMENTS_MAX);
    }
}
