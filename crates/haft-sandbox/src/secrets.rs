//! The paths that a confined command cannot see: the user's keys, tokens and histories, and those of the machine.

use std::path::{Path, PathBuf};

use crate::system::effective_uid;

/// The list, one path with its source per line.
const LIST: &str = include_str!("secrets.txt");

/// The start of a path below the user's home directory.
const BELOW_HOME: &str = "~/";

/// Returns the default secrets of a user whose home directory is `user_home`.
pub fn default_secrets(user_home: &Path) -> Vec<PathBuf> {
    entries().filter_map(|(path, _)| Some(user_home.join(path.strip_prefix(BELOW_HOME)?))).collect()
}

/// Returns the secrets of the machine. Only root can read them, so only root needs their protection.
pub(crate) fn system_secrets() -> Vec<PathBuf> {
    if effective_uid() != 0 {
        return Vec::new();
    }
    entries().map(|(path, _)| PathBuf::from(path)).filter(|path| path.is_absolute()).collect()
}

/// Reads the list: a path, in which `%20` stands for a space, and its source.
fn entries() -> impl Iterator<Item = (String, &'static str)> {
    let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).map(|(path, source)| (path.replace("%20", " "), source))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_line_is_a_path_with_a_source() {
        let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert_eq!(lines.count(), entries().count());
        let mut seen = BTreeSet::new();
        for (path, source) in entries() {
            assert!(path.starts_with(BELOW_HOME) || path.starts_with('/'), "{path}");
            assert!(source.starts_with("https://") && !source.contains(' '), "{path}: {source}");
            assert!(!path.contains("..") && !path.ends_with('/'), "{path}");
            assert!(seen.insert(path.clone()), "{path} is listed twice");
        }
    }

    #[test]
    fn no_secret_lies_in_another() {
        let secrets = default_secrets(Path::new("/home/u"));
        for secret in &secrets {
            let inside = secrets.iter().find(|other| *other != secret && secret.starts_with(other));
            assert_eq!(inside, None, "{}", secret.display());
        }
    }
}
