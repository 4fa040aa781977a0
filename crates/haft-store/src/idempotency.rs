//! Idempotency keys: starting a run twice under one key returns the first run.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use haft_core::digest::Digest;
use haft_core::home::Home;
use haft_core::position::SessionId;
use haft_core::principal::Principal;

use crate::sweep;
use crate::tenant::directory_of;

/// The directory of all keys.
#[derive(Debug, Clone)]
pub struct IdempotencyKeys {
    root: PathBuf,
}

impl IdempotencyKeys {
    pub fn of(home: &Home) -> Self {
        Self { root: home.data().join("idempotency") }
    }

    /// Binds a key to a run, or returns the run that the key is bound to already. Of two processes at once, one wins.
    pub fn bind(&self, principal: &Principal, key: &str, run: SessionId) -> io::Result<SessionId> {
        let directory = self.root.join(directory_of(principal.tenant()));
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let name = Digest::of_text(&format!("{}\n{key}", principal.subject()));
        let path = directory.join(name.to_string());
        let temporary = directory.join(format!("{name}.{run}"));
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(run.to_string().as_bytes())?;
        // A hard link fails when the name is taken, and the file is complete when the name appears.
        let linked = std::fs::hard_link(&temporary, &path);
        std::fs::remove_file(&temporary)?;
        match linked {
            Ok(()) => Ok(run),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let text = std::fs::read_to_string(&path)?;
                let id = uuid::Uuid::parse_str(text.trim()).map_err(io::Error::other)?;
                Ok(SessionId(id.as_u128()))
            }
            Err(error) => Err(error),
        }
    }

    /// Removes keys that were bound before the sessions that are kept.
    pub fn sweep(&self, keep: Duration, now: SystemTime) {
        let of_tenants = sweep::entries(&self.root).flat_map(|tenant| sweep::entries(&tenant.path()));
        sweep::remove_unchanged(of_tenants, keep, now);
    }

    /// Frees a key whose run could not be started.
    pub fn release(&self, principal: &Principal, key: &str) {
        let name = Digest::of_text(&format!("{}\n{key}", principal.subject()));
        let _ = std::fs::remove_file(self.root.join(directory_of(principal.tenant())).join(name.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_bound_to_the_first_run_of_its_principal() {
        let directory = tempfile::tempdir().unwrap();
        let keys = IdempotencyKeys::of(&Home::at(directory.path()));
        let (anna, bert) = (Principal::new("t", "anna", "1"), Principal::new("t", "bert", "1"));
        let bind = |principal: &Principal, key: &str, run: u128| {
            keys.bind(principal, key, SessionId(run)).unwrap().0
        };
        assert_eq!(bind(&anna, "k", 1), 1);
        assert_eq!(bind(&anna, "k", 2), 1);
        assert_eq!(bind(&bert, "k", 3), 3, "another subject");
        assert_eq!(bind(&Principal::new("u", "anna", "1"), "k", 4), 4, "another tenant");
        keys.release(&anna, "k");
        assert_eq!(bind(&anna, "k", 5), 5);
    }

    #[test]
    fn concurrent_binds_agree_on_one_run() {
        let directory = tempfile::tempdir().unwrap();
        let keys = IdempotencyKeys::of(&Home::at(directory.path()));
        let found: Vec<u128> = std::thread::scope(|scope| {
            let bind = |run: u128| {
                let keys = &keys;
                scope.spawn(move || keys.bind(&Principal::local(), "k", SessionId(run)).unwrap().0)
            };
            let threads: Vec<_> = (1..=8).map(bind).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found.iter().all(|run| *run == found[0]), "{found:?}");
    }
}
