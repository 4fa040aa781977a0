//! The directory of the OAuth tokens with which haft calls MCP servers on behalf of a principal.

use std::path::PathBuf;

use haft_core::digest::Digest;
use haft_core::home::Home;
use haft_core::principal::Principal;

/// Returns the directory of the tokens of a principal. Each credential has its own directory. Its name is a digest, so
/// that no credential can choose the directory of another.
pub fn token_directory(home: &Home, principal: &Principal) -> PathBuf {
    let owner = (principal.tenant(), principal.subject(), principal.credential_id());
    home.data().join("tokens").join(Digest::of_text(&format!("{owner:?}")).to_string())
}
