//! The approvals that a person granted permanently, stored in haft's own data.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use haft_core::approval::GrantSet;
use haft_core::digest::Digest;
use haft_core::home::Home;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// Digests of calls, in hexadecimal.
    exact: Vec<String>,
    /// The texts of rules.
    rules: Vec<String>,
}

/// Reads the stored grants. A missing or unreadable file counts as empty: the person is asked again.
pub fn load(home: &Home) -> GrantSet {
    let text = std::fs::read(path_in(home)).unwrap_or_default();
    let written: Written = serde_json::from_slice(&text).unwrap_or_default();
    GrantSet {
        exact: written.exact.iter().filter_map(|text| Digest::from_hex(text)).collect(),
        rules: written.rules.into_iter().collect(),
    }
}

/// Adds grants to the file. Grants that another run stored in the meantime stay. Writes nothing if all are stored
/// already.
pub fn add(home: &Home, said: &GrantSet) -> io::Result<()> {
    if covers(&load(home), said) {
        return Ok(());
    }
    // Closing the file releases the lock. A run holds it only for the time of writing a small file.
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(lock_in(home))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    let mut all = load(home);
    all.exact.extend(&said.exact);
    all.rules.extend(said.rules.iter().cloned());
    save(home, &all)
}

fn covers(kept: &GrantSet, said: &GrantSet) -> bool {
    said.exact.is_subset(&kept.exact) && said.rules.is_subset(&kept.rules)
}

/// Replaces the file atomically, so that a reader sees the old or the new content.
fn save(home: &Home, grants: &GrantSet) -> io::Result<()> {
    let written = Written {
        exact: grants.exact.iter().map(ToString::to_string).collect(),
        rules: grants.rules.iter().cloned().collect(),
    };
    crate::private_file::replace(&path_in(home), &serde_json::to_vec_pretty(&written)?)
}

fn path_in(home: &Home) -> PathBuf {
    home.data().join("approvals.json")
}

fn lock_in(home: &Home) -> PathBuf {
    home.data().join("approvals.lock")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn said(exact: &str, rule: &str) -> GrantSet {
        GrantSet { exact: [Digest::of_text(exact)].into(), rules: [rule.to_owned()].into() }
    }

    fn place() -> (tempfile::TempDir, Home) {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        std::fs::create_dir_all(home.data()).unwrap();
        (directory, home)
    }

    #[test]
    fn what_two_runs_were_told_is_both_kept() {
        let (_directory, home) = place();
        // Both read before either wrote, so neither has the other's grant.
        let (mut one, mut other) = (load(&home), load(&home));
        one.exact.extend(said("a", "").exact);
        other.rules.insert("ask write".into());
        add(&home, &one).unwrap();
        add(&home, &other).unwrap();
        let kept = load(&home);
        assert!(kept.exact.contains(&Digest::of_text("a")) && kept.rules.contains("ask write"), "{kept:?}");
    }

    #[test]
    fn runs_that_write_at_the_same_time_lose_nothing() {
        let (_directory, home) = place();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let home = &home;
                scope.spawn(move || add(home, &said(&number.to_string(), &number.to_string())).unwrap());
            }
        });
        let kept = load(&home);
        assert_eq!((kept.exact.len(), kept.rules.len()), (8, 8));
    }

    #[test]
    fn nothing_is_written_when_nothing_is_new() {
        let (_directory, home) = place();
        add(&home, &GrantSet::default()).unwrap();
        assert!(!path_in(&home).exists());
        add(&home, &said("a", "r")).unwrap();
        let written = path_in(&home).metadata().unwrap().ino();
        add(&home, &said("a", "r")).unwrap();
        assert_eq!(path_in(&home).metadata().unwrap().ino(), written, "the file was not replaced");
    }

    #[test]
    fn a_file_that_cannot_be_read_counts_as_nothing_and_is_replaced() {
        let (_directory, home) = place();
        std::fs::write(path_in(&home), "nonsense").unwrap();
        assert_eq!(load(&home), GrantSet::default());
        add(&home, &said("a", "r")).unwrap();
        assert_eq!(load(&home), said("a", "r"));
    }
}
