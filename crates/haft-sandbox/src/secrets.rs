//! The parts of the user's home directory that a confined command cannot see.

use std::path::{Path, PathBuf};

/// Paths below the user's home directory: keys, tokens, and browser profiles (which hold both).
const BELOW_USER_HOME: [&str; 22] = [
    ".ssh",
    ".aws",
    ".gnupg",
    ".netrc",
    ".kube",
    ".azure",
    ".docker/config.json",
    ".config/gcloud",
    ".config/gh",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".mozilla",
    ".git-credentials",
    ".pypirc",
    ".cargo/credentials.toml",
    ".local/share/keyrings",
    "Library/Application Support/Google/Chrome",
    "Library/Application Support/Firefox",
    "Library/Keychains",
    "Library/Cookies",
];

/// Returns the default secrets of a user whose home directory is `user_home`.
pub fn default_secrets(user_home: &Path) -> Vec<PathBuf> {
    BELOW_USER_HOME.iter().map(|name| user_home.join(name)).collect()
}
