//! A cache of fetched OpenAPI documents in haft's home directory, so that a call does not wait for a download on every
//! start.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use haft_fs::private_file;
use haft_sandbox::Home;
use haft_tools::rest::openapi::{Documents, OpenApiDownload, OpenApiSource, SourceError};
use haft_tools::rest::{AllowedHosts, PrivateAddressRule};
use http::HeaderName;
use secrecy::SecretString;
use sha2::{Digest, Sha256};
use url::Url;

use super::RestLoadContext;

/// Selects whether a cached OpenAPI document may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Uses a cached document that is less than a day old.
    Kept,
    /// Downloads the document again.
    Fetched,
}

/// The age at which a document is fetched again.
const AGE_MAX: Duration = Duration::from_hours(24);

/// The timeout for reading all documents of one API.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Reads the OpenAPI document at a URL, with the documents that it references. A missing document only affects the
/// tools that refer to it.
pub(super) async fn read(
    url: &Url,
    private: Option<PrivateAddressRule>,
    headers: &[(HeaderName, SecretString)],
    around: RestLoadContext<'_>,
) -> Result<Documents, String> {
    let reach = AllowedHosts::named(url);
    let reach = private.map_or(reach.clone(), |private| reach.with_private(private));
    let mut reading = OpenApiDownload::of(url.clone());
    let all = async {
        while let Some(at) = reading.next_url() {
            let read = document(&mut reading, &at, &reach, headers, around).await;
            if reading.is_first(&at) {
                read.map_err(|error| error.to_string())?;
            }
        }
        Ok(reading.finished())
    };
    let late = |_| format!("haft could not read the OpenAPI document within {} s", READ_TIMEOUT.as_secs());
    tokio::time::timeout(READ_TIMEOUT, all).await.map_err(late)?
}

/// Reads one document: a fresh cached copy, or a new download, or an outdated cached copy if the download fails.
async fn document(
    reading: &mut OpenApiDownload,
    at: &Url,
    reach: &AllowedHosts,
    headers: &[(HeaderName, SecretString)],
    around: RestLoadContext<'_>,
) -> Result<(), SourceError> {
    let path = around.home.map(|home| path(home, at));
    let usable = path.as_ref().filter(|_| around.freshness == Freshness::Kept);
    let takes_stored = |reading: &mut OpenApiDownload| {
        let bytes = usable.and_then(|path| std::fs::read(path).ok());
        bytes.is_some_and(|bytes| reading.take(at, &bytes).is_ok())
    };
    if usable.is_some_and(|path| is_young(path)) && takes_stored(reading) {
        return Ok(());
    }
    let fetched = OpenApiSource::fetch(at, reach.clone(), headers).await;
    match fetched.and_then(|bytes| reading.take(at, &bytes).map(|()| bytes)) {
        Ok(bytes) => path.iter().for_each(|path| keep(path, &bytes)),
        Err(_) if takes_stored(reading) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

fn path(home: &Home, url: &Url) -> PathBuf {
    let digest = Sha256::digest(url.as_str().as_bytes());
    let name = digest.iter().fold(String::new(), |mut name, byte| {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    });
    home.root().join("cache").join("openapi").join(name)
}

fn is_young(path: &std::path::Path) -> bool {
    let changed = path.metadata().and_then(|metadata| metadata.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age < AGE_MAX))
}

/// Stores a document in the cache. Ignores errors, because the next process can fetch the document again.
fn keep(path: &std::path::Path, bytes: &[u8]) {
    let _ = private_file::create_parent_dir(path).and_then(|()| private_file::replace(path, bytes));
}
