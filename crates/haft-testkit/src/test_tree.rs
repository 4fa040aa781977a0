//! A directory tree for one test. It is outside `/tmp`, because everything below `/tmp` is writable in every mode.

use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use crate::run::{HaftCommand, HaftOutput, WITHOUT_NAMESPACES, is_forced_to_landlock};
use crate::snapshot::TreeSnapshot;
use crate::user::{NOBODY, TestUser};

/// The tree: `ws/` is the workspace, `home/` is haft's home, `user/` is the user's home directory, and `outside/` is a
/// tree that must not change.
#[derive(Debug)]
pub struct TestTree {
    dir: tempfile::TempDir,
    user: TestUser,
}

impl TestTree {
    pub fn new(user: TestUser) -> Self {
        Self::below(Path::new("/var/tmp"), user)
    }

    /// Creates the tree below `parent`, for tests in which everything is below `/tmp`.
    pub fn below(parent: &Path, user: TestUser) -> Self {
        let dir = tempfile::Builder::new().prefix("haft-test-").tempdir_in(parent).unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let tree = Self { dir, user };
        tree.give(tree.root());
        for name in ["ws", "home", "user", "outside"] {
            tree.directory(name);
        }
        tree
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn user(&self) -> TestUser {
        self.user
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Creates a directory with its parents, owned by the tree's user.
    pub fn directory(&self, name: &str) -> PathBuf {
        let mut path = self.root().to_path_buf();
        for part in Path::new(name) {
            path.push(part);
            if !path.exists() {
                std::fs::create_dir(&path).unwrap();
                self.give(&path);
            }
        }
        path
    }

    /// Creates a file, owned by the tree's user.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        let parent = Path::new(name).parent().and_then(Path::to_str).unwrap();
        self.directory(parent);
        std::fs::write(&path, content).unwrap();
        self.give(&path);
        path
    }

    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    /// Prepares a run of haft in this tree, as the tree's user.
    pub fn haft(&self, words: &[&str]) -> HaftCommand {
        HaftCommand::new(self, words)
    }

    /// Prepares a shell script that runs in the sandbox, through `haft sandbox`. With
    /// [`SANDBOX_LEVEL`](crate::SANDBOX_LEVEL), the sandbox has no namespaces.
    pub fn confined(&self, flags: &[&str], script: &str) -> HaftCommand {
        let run = self.haft(&[&["sandbox"], flags, &["--", "bash", "-c", script]].concat());
        if is_forced_to_landlock() { run.through(WITHOUT_NAMESPACES) } else { run }
    }

    /// Runs the same script without a sandbox, as a control experiment.
    pub fn unconfined(&self, script: &str) -> HaftOutput {
        HaftCommand::of_program(self, Path::new("bash"), &["-c", script]).output()
    }

    /// Writes an MCP server with the fault that `mode` names. Returns the `command` and `args` that start the server,
    /// as JSON for a configuration.
    pub fn misbehaving_server(&self, mode: &str, rest: &[&str]) -> String {
        let script = self.file("outside/mcp_server.py", include_str!("mcp_server.py"));
        let words: Vec<String> = std::iter::once(script.to_str().unwrap())
            .chain([mode])
            .chain(rest.iter().copied())
            .map(|word| format!("{word:?}"))
            .collect();
        format!("\"command\": \"python3\", \"args\": [{}]", words.join(", "))
    }

    /// Writes an MCP server whose tool `dig` runs as a task, in the variant `core` (2025-11-25) or `extension`
    /// (2026-07-28), with a fault. It records the methods that it receives. Returns its `command` and `args` as JSON.
    pub fn task_server(&self, form: &str, fault: &str, record: &str) -> String {
        let script = self.file("outside/mcp_tasks.py", include_str!("mcp_tasks.py"));
        let words = [script.to_str().unwrap(), form, fault, record].map(|word| format!("{word:?}"));
        format!("\"command\": \"python3\", \"args\": [{}]", words.join(", "))
    }

    /// Takes a snapshot of the trees that must not change.
    pub fn snapshot(&self) -> TreeSnapshot {
        TreeSnapshot::of(&["home", "user", "outside"].map(|name| self.path(name)))
    }

    /// Makes the tree's user the owner of a path.
    pub fn give(&self, path: &Path) {
        if self.user == TestUser::Nobody {
            lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
}
