//! File names that `introspect` never shows, because the files waste space or may contain secrets.

use std::ffi::OsStr;

use super::walk::EntryKind;

/// Long, generated files without information for a reader.
const LOCK_FILES: &[&str] = &[
    "bun.lock",
    "bun.lockb",
    "cargo.lock",
    "composer.lock",
    "deno.lock",
    "flake.lock",
    "gemfile.lock",
    "go.sum",
    "go.work.sum",
    "gradle.lockfile",
    "mix.lock",
    "npm-shrinkwrap.json",
    "package-lock.json",
    "package.resolved",
    "packages.lock.json",
    "pdm.lock",
    "pipfile.lock",
    "pixi.lock",
    "pnpm-lock.yaml",
    "podfile.lock",
    "poetry.lock",
    "pubspec.lock",
    "uv.lock",
    "yarn.lock",
];

/// File name patterns with at most one `*`. Hiding a source file by mistake does less harm than showing a secret.
const SECRET_FILES: &[&str] = &[
    "*.jks",
    "*.kdb",
    "*.kdbx",
    "*.key",
    "*.keystore",
    "*.ovpn",
    "*.p12",
    "*.p8",
    "*.pem",
    "*.pfx",
    "*.pkcs12",
    "*.ppk",
    "*.tfstate",
    "*.tfstate.backup",
    "*.tfvars",
    ".*_history",
    ".dockercfg",
    ".dockerconfigjson",
    ".env*",
    ".git-credentials",
    ".htpasswd",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".vault-token",
    ".vault_pass*",
    "_netrc",
    "credentials*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "id_rsa*",
    "kubeconfig",
    "secrets.json",
    "secrets.toml",
    "secrets.yaml",
    "secrets.yml",
    "service-account*.json",
];

/// Names of excluded directories. The patterns for files do not apply to directories: `credentials*` would hide a
/// directory `credentials/`, which contains code more often than secrets.
const DIRECTORIES: &[&str] = &[".aws", ".git", ".gnupg", ".kube", ".ssh"];

/// Names that match a pattern above, but that belong to files without secrets.
const SHOWN_ALL_THE_SAME: &[&str] = &[".env.example"];

/// Returns whether an entry of this name is excluded, ignoring case.
pub(super) fn is_excluded(name: &OsStr, kind: EntryKind) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    match kind {
        EntryKind::Directory => DIRECTORIES.contains(&name.as_str()),
        EntryKind::File => is_excluded_file(&name),
    }
}

fn is_excluded_file(name: &str) -> bool {
    let is_git_link = name == ".git";
    let is_secret = SECRET_FILES.iter().any(|pattern| matches(pattern, name));
    is_git_link || LOCK_FILES.contains(&name) || is_secret && !SHOWN_ALL_THE_SAME.contains(&name)
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((start, end)) => name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: EntryKind, names: &[&str], expected: bool) {
        for name in names {
            assert_eq!(is_excluded(OsStr::new(name), kind), expected, "{kind:?} {name}");
        }
    }

    #[test]
    fn lock_secret_and_git_names_are_excluded() {
        let locks =
            ["Cargo.lock", "go.sum", "pnpm-lock.yaml", "Gemfile.lock", "bun.lock", "package-lock.json"];
        check(EntryKind::File, &locks, true);
        let keys = ["server.pem", "x.KEY", "id_rsa", "id_ed25519.pub", "a.p12", "a.kdbx"];
        check(EntryKind::File, &keys, true);
        let settings = [".git", ".env", ".env.local", ".envrc", ".ENV", ".netrc", ".npmrc", ".pypirc"];
        check(EntryKind::File, &settings, true);
        check(EntryKind::File, &["credentials", "credentials.json", "service-account-1.json"], true);
        check(EntryKind::File, &[".env.example", ".gitignore", "key.rs", "secrets.rs", "environment"], false);
        check(EntryKind::Directory, &[".git", ".ssh", ".aws"], true);
        check(EntryKind::Directory, &[".github", "credentials", "src", "service-account"], false);
    }

    #[test]
    fn star_in_an_exclusion_pattern_matches_any_text() {
        assert!(matches("a*z", "az") && matches("a*z", "abcz") && matches("*z", "z") && matches("a*", "a"));
        assert!(!matches("a*a", "a") && !matches("a*z", "abc") && !matches("abc", "abcd"));
    }

    #[test]
    fn exclusion_tables_contain_only_lower_case_names() {
        for name in LOCK_FILES.iter().chain(SECRET_FILES).chain(DIRECTORIES).chain(SHOWN_ALL_THE_SAME) {
            assert_eq!(*name, name.to_lowercase());
        }
    }
}
