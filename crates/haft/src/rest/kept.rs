//! Descriptions that were fetched, kept in haft's home for a while: a call must not wait for a description it had yesterday.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use haft_sandbox::Home;
use haft_tools::rest::openapi::{Documents, Source};
use haft_tools::rest::{Private, Reach};
use http::HeaderName;
use secrecy::SecretString;
use sha2::{Digest, Sha256};
use url::Url;

use super::Around;
use crate::private_file;

/// Whether a description that is kept will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    Kept,
    Fetched,
}

/// How old a description may be before it is fetched again.
const AGE_MAX: Duration = Duration::from_hours(24);

/// The description at a URL: the one kept, else a new one, else an old one rather than none.
pub(super) async fn read(
    url: &Url,
    private: Option<Private>,
    headers: &[(HeaderName, SecretString)],
    around: Around<'_>,
) -> Result<Documents, String> {
    let path = around.home.map(|home| path(home, url));
    let kept = path.as_ref().filter(|_| around.freshness == Freshness::Kept);
    if let Some(bytes) = kept.filter(|path| is_young(path)).and_then(|path| std::fs::read(path).ok()) {
        return Source::read_bytes(url, &bytes).map_err(|error| error.to_string());
    }
    let reach = Reach::named(url);
    let reach = private.map_or(reach.clone(), |private| reach.with_private(private));
    let bytes = match Source::fetch(url, reach, headers).await {
        Ok(bytes) => bytes,
        Err(error) => kept.and_then(|path| std::fs::read(path).ok()).ok_or_else(|| error.to_string())?,
    };
    let documents = Source::read_bytes(url, &bytes).map_err(|error| error.to_string())?;
    if let Some(path) = &path {
        keep(path, &bytes);
    }
    Ok(documents)
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

/// What cannot be kept is fetched again next time.
fn keep(path: &std::path::Path, bytes: &[u8]) {
    if let Some(directory) = path.parent() {
        let _ = std::fs::create_dir_all(directory);
    }
    let _ = private_file::replace(path, bytes);
}
