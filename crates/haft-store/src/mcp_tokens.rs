//! The directory of the OAuth tokens with which haft calls MCP servers on behalf of a principal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use haft_core::digest::Digest;
use haft_core::home::Home;
use haft_core::principal::Principal;
use haft_fs::private_file;
use serde::{Deserialize, Serialize};

use crate::sweep;

/// The file that names the owner of a directory. No token has this name, because the name of a server contains no dot.
const OWNER: &str = ".owner.json";

/// The owner of a directory, so that a deletion finds the directory after the logs with its credential are gone.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TokenOwnerRecord {
    tenant: String,
    subject: String,
}

impl TokenOwnerRecord {
    fn of(principal: &Principal) -> Self {
        Self { tenant: principal.tenant().to_owned(), subject: principal.subject().to_owned() }
    }
}

/// Returns the directory of the tokens of a principal. Each credential has its own directory. Its name is a digest, so
/// that no credential can choose the directory of another.
pub fn token_directory(home: &Home, principal: &Principal) -> PathBuf {
    let owner = (principal.tenant(), principal.subject(), principal.credential_id());
    home.data().join("tokens").join(Digest::of_text(&format!("{owner:?}")).to_string())
}

/// Returns the directory of the tokens of a principal, with a record of its owner. Creates both if they are missing.
pub fn open_token_directory(home: &Home, principal: &Principal) -> io::Result<PathBuf> {
    let directory = token_directory(home, principal);
    let record = directory.join(OWNER);
    if !record.exists() {
        private_file::create_parent_dir(&record)?;
        private_file::replace(&record, &serde_json::to_vec(&TokenOwnerRecord::of(principal))?)?;
    }
    Ok(directory)
}

/// Returns the directories with a record that names this owner.
pub(crate) fn owned_directories(home: &Home, owner: &Principal) -> io::Result<Vec<PathBuf>> {
    let expected = TokenOwnerRecord::of(owner);
    let directories = sweep::list(&home.data().join("tokens"))?.into_iter().map(|entry| entry.path());
    let is_owned = |directory: &PathBuf| {
        let record = fs::read(directory.join(OWNER)).ok();
        record.and_then(|bytes| serde_json::from_slice(&bytes).ok()).is_some_and(|found| expected == found)
    };
    Ok(directories.filter(is_owned).collect())
}

/// Returns the paths of a directory in the order of removal: the record is last, so that after a failure a second
/// deletion finds the rest.
pub(crate) fn removal_order(directory: &Path) -> Vec<PathBuf> {
    let tokens = sweep::entries(directory).filter(|entry| entry.file_name() != OWNER);
    tokens.map(|entry| entry.path()).chain([directory.to_owned()]).collect()
}
