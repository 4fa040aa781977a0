//! Imports `approvals.json`, in which earlier versions stored the approvals of the local user.
//!
//! The file does not record the workspace of an approval, and its rules name no tool, so an allowed rule applied
//! everywhere. The import keeps approvals of exact calls, whose digests include workspace and tool, and drops the
//! rules.

use std::io;
use std::path::Path;

use haft_core::digest::Digest;
use haft_core::grant::{Grant, GrantDecision, GrantOwner};
use haft_core::grant_store::GrantStoreError;
use haft_core::home::Home;
use haft_core::principal::Principal;
use serde::Deserialize;

use crate::accounting::now_ms;
use crate::grants::{self, FileGrants};

/// The name of the old file after its import. haft keeps the file, so that the user can look up the dropped rules.
const IMPORTED: &str = "approvals.json.imported";

/// The content of `approvals.json`.
#[derive(Debug, Default, Deserialize)]
struct ApprovalsFile {
    /// Digests of calls, in hexadecimal.
    exact: Vec<String>,
    /// The rules that the user allowed, as text.
    rules: Vec<String>,
}

/// Moves the old approvals into the grant store, once. Returns a warning for the user if approvals were dropped.
pub fn import(home: &Home) -> Option<String> {
    let path = home.data().join("approvals.json");
    if !path.exists() {
        return None;
    }
    match imported(home, &path) {
        Ok(warning) => warning,
        Err(error) => Some(format!("haft could not import the approvals in {}: {error}", path.display())),
    }
}

fn imported(home: &Home, path: &Path) -> io::Result<Option<String>> {
    // Earlier versions use the same lock. If two processes import at the same time, only one of them returns a warning.
    let _lock = grants::lock(&home.data().join("approvals.lock"))?;
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let parsed = serde_json::from_slice::<ApprovalsFile>(&bytes);
    let warning = match &parsed {
        Ok(written) => warning(written.rules.len()),
        Err(error) => Some(format!(
            "haft ignored the approvals in {}, because the file is not valid JSON: {error}",
            path.display()
        )),
    };
    keep_exact(home, &parsed.unwrap_or_default()).map_err(io::Error::other)?;
    // The grants are already stored. If a crash happens before the rename, the next import adds the same grants again.
    std::fs::rename(path, path.with_file_name(IMPORTED))?;
    Ok(warning)
}

fn keep_exact(home: &Home, written: &ApprovalsFile) -> Result<(), GrantStoreError> {
    let owner = GrantOwner::of(&Principal::local());
    let decision = GrantDecision { by: "import".into(), at_ms: now_ms() };
    let digests = written.exact.iter().filter_map(|text| Digest::from_hex(text));
    let mut imported = digests.map(|digest| Grant::imported(owner.clone(), digest, decision.clone()));
    FileGrants::of(home).change(&owner, |grants| imported.try_for_each(|grant| grants.add(grant)))
}

fn warning(rules: usize) -> Option<String> {
    let (rules, were) = match rules {
        0 => return None,
        1 => ("1 remembered rule".to_owned(), "was"),
        _ => (format!("{rules} remembered rules"), "were"),
    };
    Some(format!(
        "{rules} {were} dropped, because an earlier version of haft allowed a remembered rule in every \
         workspace; answer `r` at the next approval question to allow the rule again in one workspace (the \
         old rules are in data/{IMPORTED})"
    ))
}

#[cfg(test)]
mod tests {
    use haft_core::grant_store::GrantStore;

    use super::*;

    fn place() -> (tempfile::TempDir, Home) {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        std::fs::create_dir_all(home.data()).unwrap();
        (directory, home)
    }

    #[tokio::test]
    async fn import_keeps_exact_approvals_and_drops_rules() {
        let (_directory, home) = place();
        let digest = Digest::of_text("a call");
        let old = serde_json::json!({"exact": [digest.to_string(), "junk"], "rules": ["ask bash: git *", "ask write"]});
        std::fs::write(home.data().join("approvals.json"), old.to_string()).unwrap();
        let warning = import(&home).unwrap();
        assert!(warning.starts_with("2 remembered rules were dropped"), "{warning}");
        assert_eq!(import(&home), None, "the second import returns no warning");
        let owner = GrantOwner::of(&Principal::local());
        let grants = FileGrants::of(&home).load(&owner, "/any").await.unwrap();
        let ids: Vec<_> = grants.iter().map(|grant| grant.id).collect();
        let expected = Grant::imported(owner.clone(), digest, GrantDecision { by: String::new(), at_ms: 0 });
        assert_eq!(ids, [expected.id]);
        let other = GrantOwner { subject: "other".into(), ..owner };
        assert_eq!(FileGrants::of(&home).list(&other).await.unwrap(), []);
        assert!(home.data().join(IMPORTED).exists(), "the old file is kept under another name");
    }

    #[test]
    fn import_without_rules_gives_no_warning() {
        let (_directory, home) = place();
        assert_eq!(import(&home), None);
        let path = home.data().join("approvals.json");
        std::fs::write(&path, r#"{"exact": [], "rules": []}"#).unwrap();
        assert_eq!(import(&home), None);
        assert!(!path.exists());
        std::fs::write(&path, "nonsense").unwrap();
        assert!(import(&home).unwrap().contains("is not valid JSON"));
        assert_eq!(import(&home), None);
    }

    #[test]
    fn concurrent_imports_return_one_warning() {
        let (_directory, home) = place();
        std::fs::write(home.data().join("approvals.json"), r#"{"exact": [], "rules": ["ask write"]}"#)
            .unwrap();
        let warnings: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| import(&home))).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
}
