//! The paths that a confined command cannot see: keys, tokens and histories of the user and of the machine.

use std::path::{Path, PathBuf};

use crate::system::effective_uid;

/// The list of secrets. Each line has one path with its source.
const LIST: &str = include_str!("secrets.txt");

/// The prefix of paths in the user's home directory.
const BELOW_HOME: &str = "~/";

/// The prefix of paths in a user's runtime directory.
const BELOW_RUNTIME: &str = "/run/user/UID/";

/// Returns the default secrets of a user whose home directory is `user_home`.
pub fn default_secrets(user_home: &Path) -> Vec<PathBuf> {
    entries().filter_map(|(path, _)| Some(user_home.join(path.strip_prefix(BELOW_HOME)?))).collect()
}

/// Returns the secrets in a user's runtime directory.
pub(crate) fn runtime_secrets(uid: u32) -> Vec<PathBuf> {
    let runtime = PathBuf::from(format!("/run/user/{uid}"));
    entries().filter_map(|(path, _)| Some(runtime.join(path.strip_prefix(BELOW_RUNTIME)?))).collect()
}

/// Returns the secrets of the machine. Only root can read them, so only commands that run as root need this protection.
pub(crate) fn system_secrets() -> Vec<PathBuf> {
    if effective_uid() != 0 {
        return Vec::new();
    }
    let of_machine = entries().filter(|(path, _)| path.starts_with('/') && !path.starts_with(BELOW_RUNTIME));
    of_machine.map(|(path, _)| PathBuf::from(path)).collect()
}

/// Parses the list. Each line has a path (with `%20` for a space), its source, and the part of the source that was
/// checked.
fn entries() -> impl Iterator<Item = (String, SecretSource)> {
    let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).map(|(path, about)| {
        let (document, checked) = about.split_once(' ').unwrap_or((about, ""));
        (path.replace("%20", " "), SecretSource { document, checked })
    })
}

/// The document that mentions the path, and the part of the document that was checked.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the list documents itself; only its tests read the sources")
)]
struct SecretSource {
    document: &'static str,
    checked: &'static str,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_line_of_the_secrets_list_is_a_path_with_a_source() {
        let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert_eq!(lines.count(), entries().count());
        let mut seen = BTreeSet::new();
        for (path, SecretSource { document, checked }) in entries() {
            assert!(path.starts_with(BELOW_HOME) || path.starts_with('/'), "{path}");
            assert!(document.starts_with("https://"), "{path}: {document}");
            assert!(["doc", "path", "doc+path", "own"].contains(&checked), "{path}: {checked}");
            assert!(!path.contains("..") && !path.ends_with('/'), "{path}");
            assert!(seen.insert(path.clone()), "{path} is listed twice");
        }
    }

    #[test]
    fn runtime_secrets_are_in_the_runtime_directory_of_the_user() {
        assert_eq!(runtime_secrets(1000), [PathBuf::from("/run/user/1000/containers/auth.json")]);
        assert!(system_secrets().iter().all(|path| !path.starts_with("/run/user")));
    }

    #[test]
    fn no_default_secret_path_is_below_another_secret_path() {
        let secrets = default_secrets(Path::new("/home/u"));
        for secret in &secrets {
            let inside = secrets.iter().find(|other| *other != secret && secret.starts_with(other));
            assert_eq!(inside, None, "{}", secret.display());
        }
    }
}
