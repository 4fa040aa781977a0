//! Path checks for fast and readable refusals. The kernel enforces the boundary, not these checks.

use std::path::{Path, PathBuf};

use crate::git::GIT_NAMES;
use crate::path::{is_within, resolve};
use crate::policy::SandboxPolicy;
use haft_core::settings::mode::SandboxMode;
use haft_core::settings::sandbox::GitMetadata;

/// System directories that cannot be written in any mode, on Linux and macOS.
pub const WRITE_BLOCKLIST: [&str; 14] = [
    "/System",
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/libexec",
    "/private/etc",
    "/Library",
    "/etc",
    "/boot",
    "/proc",
    "/sys",
    "/dev",
];

/// Device files that commands may write to, because these devices store nothing.
const HARMLESS_DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/full"];

/// Returns true if the mode allows writing to this path. Ignores the blocklist: see [`is_write_blocked`].
pub fn is_write_allowed(path: &Path, policy: &SandboxPolicy) -> bool {
    let roots = policy.writable_roots();
    let roots: Vec<&Path> = roots.iter().map(PathBuf::as_path).collect();
    is_within_roots(&policy.workspace().join(path), policy.mode(), &roots)
}

/// Works like [`is_write_allowed`], but takes the mode and the writable directories instead of a policy. The
/// directories need not exist.
pub fn is_within_roots(path: &Path, mode: SandboxMode, roots: &[&Path]) -> bool {
    match mode {
        SandboxMode::Full => true,
        SandboxMode::Workspace | SandboxMode::Network => {
            let path = resolve(path);
            roots.iter().any(|root| is_within(&path, &resolve(root)))
        }
    }
}

/// Returns true if haft refuses writes to this path even where the mode allows them. haft refuses all relative paths.
pub fn is_write_blocked(path: &Path, policy: &SandboxPolicy) -> bool {
    if path.is_relative() {
        return true;
    }
    let real = resolve(path);
    if HARMLESS_DEVICES.iter().any(|device| real == Path::new(device)) {
        return false;
    }
    let home = policy.home();
    let in_home = is_within(&real, home.root()) && !is_within(&real, &home.workspace());
    let frozen = policy.frozen.iter().any(|frozen| is_within(&real, frozen));
    let in_system = blocklist().iter().any(|blocked| is_within(&real, blocked));
    in_home || frozen || in_git_metadata(&real, policy) || in_system || is_read_blocked(path, policy)
}

/// Returns true if the content of this path determines which code git runs, in any repository in the workspace.
fn in_git_metadata(path: &Path, policy: &SandboxPolicy) -> bool {
    let is_metadata = |path: &Path| {
        let parent = path.parent().and_then(Path::file_name);
        parent.is_some_and(|parent| parent == ".git")
            && GIT_NAMES.iter().any(|(name, _)| path.file_name().is_some_and(|found| found == *name))
    };
    let below = path.ancestors().take_while(|path| is_within(path, policy.workspace()));
    policy.git == GitMetadata::Frozen && below.into_iter().any(is_metadata)
}

/// Returns true if the policy hides this path. Relative paths are treated as hidden.
pub fn is_read_blocked(path: &Path, policy: &SandboxPolicy) -> bool {
    if path.is_relative() {
        return true;
    }
    let real = resolve(path);
    policy.is_neighbour(&real)
        || policy.is_in_covered_home(&real)
        || policy.hidden().iter().any(|hidden| is_within(&real, hidden))
}

/// Returns the blocklist with symlinks resolved: `/bin` is a symlink to `/usr/bin` on most systems.
pub(crate) fn blocklist() -> Vec<PathBuf> {
    WRITE_BLOCKLIST.iter().map(|path| resolve(Path::new(path))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use haft_core::home::Home;

    struct CheckFixture {
        dir: tempfile::TempDir,
    }

    impl CheckFixture {
        fn new() -> Self {
            let place = Self { dir: tempfile::tempdir_in("/var/tmp").unwrap() };
            for name in ["ws", "home/data", "home/workspace", "user/.ssh"] {
                std::fs::create_dir_all(place.path(name)).unwrap();
            }
            place
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().canonicalize().unwrap().join(name)
        }

        fn policy(&self, mode: SandboxMode) -> SandboxPolicy {
            let home = Home::at(&self.path("home"));
            SandboxPolicy::new(mode, &self.path("ws"), &home, Some(&self.path("user"))).unwrap()
        }
    }

    #[test]
    fn sandbox_mode_decides_which_paths_are_writable() {
        let place = CheckFixture::new();
        let check = |mode, path: &str, expected| {
            assert_eq!(is_write_allowed(&place.path(path), &place.policy(mode)), expected, "{mode} {path}");
        };
        for mode in [SandboxMode::Workspace, SandboxMode::Network] {
            check(mode, "ws/new", true);
            check(mode, "ws/../outside", false);
            check(mode, "outside", false);
            check(mode, "/tmp/x", true);
            check(mode, "/tmp/../etc/passwd", false);
            check(mode, "/tmpfoo", false);
            check(mode, "/etc/passwd", false);
        }
        check(SandboxMode::Full, "/etc/passwd", true);
        assert!(is_write_allowed(Path::new("relative"), &place.policy(SandboxMode::Workspace)));
        assert!(!is_write_allowed(Path::new("../out"), &place.policy(SandboxMode::Workspace)));
    }

    #[test]
    fn symlink_out_of_the_workspace_is_not_writable() {
        let place = CheckFixture::new();
        std::os::unix::fs::symlink(place.path("user"), place.path("ws/link")).unwrap();
        assert!(!is_write_allowed(&place.path("ws/link/new"), &place.policy(SandboxMode::Workspace)));
    }

    #[test]
    fn blocklisted_paths_are_never_writable_in_any_mode() {
        let place = CheckFixture::new();
        for mode in SandboxMode::ALL {
            let check = |path: &str, expected| {
                assert_eq!(
                    is_write_blocked(&place.path(path), &place.policy(mode)),
                    expected,
                    "{mode} {path}"
                );
            };
            check("/etc/passwd", true);
            check("/bin/sh", true);
            check("/usr/bin/new", true);
            check("/usr/lib/x.so", true);
            check("/dev/sda", true);
            check("/dev/null", false);
            check("/binaries/x", false);
            check("/usr/local/x", false);
            check("ws/x", false);
            check("home/data/db", true);
            check("home/haft.json", true);
            check("home/skills/x", true);
            check("home/workspace/x", false);
            check("ws/.git/hooks/pre-commit", true);
            check("ws/.git/commondir", true);
            check("ws/.git/HEAD", false);
            check("ws/sub/.git/config", true);
            check("ws/sub/.git/hooks/pre-commit", true);
            check("ws/sub/config", false);
            assert!(is_write_blocked(Path::new("relative"), &place.policy(mode)));
        }
    }

    #[test]
    fn only_hidden_paths_are_unreadable() {
        let place = CheckFixture::new();
        let check = |mode, path: &str, expected| {
            assert_eq!(is_read_blocked(&place.path(path), &place.policy(mode)), expected, "{mode} {path}");
        };
        for mode in SandboxMode::ALL {
            check(mode, "home/data/db", true);
            check(mode, "home/haft.json", true);
            check(mode, "home/skills/x", false);
            check(mode, "/etc/passwd", false);
        }
        check(SandboxMode::Workspace, "user/.ssh/id_ed25519", true);
        check(SandboxMode::Full, "user/.ssh/id_ed25519", false);
    }
}
