//! Attempts to escape from the sandbox, one test per attempt, each tried as every user.
//!
//! An attempt is a script. It first runs without a sandbox, where it must succeed: an attempt that cannot succeed
//! anywhere proves nothing. A script that would harm the machine runs only in the sandbox, and prints `ESCAPED` if it
//! succeeds.

// Files outside the workspace: content, names, mode, owner, times, attributes.
mod outside;
// Mounts, namespaces, devices, kernel interfaces and system calls.
mod kernel;
// Other processes, and resources that a command could inherit by mistake.
mod processes;
// Sockets of every kind.
pub(crate) mod network;
// haft's home directory, and the user's secrets.
mod home;
// Every path on the list of secrets, and the paths that the operator adds.
mod secrets;
// Protected files that another program replaces while a command runs.
mod renames;
// Git hooks and git configuration of the workspace.
mod git;
// System directories in the mode `full`.
mod blocklist;
// The workspaces that are refused, and the user that a command runs as.
mod workspace;

use haft_testkit::{HaftCommand, HaftOutput, TestTree, TestUser, TreeSnapshot, users};
use std::path::Path;

/// The content of every file that must not be read or changed.
pub(crate) const CANARY: &str = "canary-6f1d";

/// The text that a script prints if the attempt succeeded and changed no file.
pub(crate) const ESCAPED: &str = "ESCAPED";

/// The settings of an attempt. In flags, `@` is replaced by the root of the test directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EscapeTrial<'a> {
    pub(crate) below: &'a str,
    pub(crate) flags: &'a [&'a str],
    /// A script that runs first, without a sandbox.
    pub(crate) setup: &'a str,
    /// The paths that must not change.
    pub(crate) watched: &'a [&'a str],
    /// A command line that is put before haft.
    pub(crate) wrapper: &'a [&'a str],
}

pub(crate) const TRIAL: EscapeTrial<'static> = EscapeTrial {
    below: "/var/tmp",
    flags: &[],
    setup: "",
    watched: &["outside", "home", "user"],
    wrapper: &[],
};

/// Checks that the script changes a file outside the workspace without the sandbox, and no such file in the sandbox.
#[track_caller]
pub(crate) fn attempt(script: &str) {
    TRIAL.attempt(script);
}

/// Checks that the script prints the canary without the sandbox, but not in the sandbox.
#[track_caller]
pub(crate) fn attempt_to_read(script: &str) {
    TRIAL.attempt_to_read(script);
}

/// Runs a script that prints `ESCAPED` if it succeeds, and checks that it fails. Runs it only in the sandbox.
#[track_caller]
pub(crate) fn refused(script: &str) {
    TRIAL.refused(script);
}

impl EscapeTrial<'_> {
    #[track_caller]
    pub(crate) fn attempt(&self, script: &str) {
        for user in users() {
            let free = self.arena(user);
            let before = self.snapshot(&free);
            let ran = free.unconfined(&whole(&free, script));
            assert!(
                before != self.snapshot(&free),
                "without the sandbox, the script changes nothing, as {user:?}: {ran:?}"
            );
            self.confined(user, script);
            // One attempt moves the whole test directory to a path that the usual clean-up does not remove.
            let _ = std::fs::remove_dir_all(free.root().with_extension("moved"));
        }
    }

    #[track_caller]
    pub(crate) fn attempt_to_read(&self, script: &str) {
        for user in users() {
            let free = self.arena(user);
            let ran = free.unconfined(&whole(&free, script));
            assert!(
                ran.stdout.contains(CANARY),
                "without the sandbox, the script shows no secret, as {user:?}: {ran:?}"
            );
            let ran = self.confined(user, script);
            assert!(!ran.stdout.contains(CANARY) && !ran.stderr.contains(CANARY), "as {user:?}: {ran:?}");
        }
    }

    #[track_caller]
    pub(crate) fn refused(&self, script: &str) {
        for user in users() {
            self.confined(user, script);
        }
    }

    /// Checks that an operation which the policy allows succeeds.
    #[track_caller]
    pub(crate) fn granted(&self, script: &str) {
        for user in users() {
            let ran = self.run(&self.arena(user), script);
            assert!(ran.stdout.contains("granted"), "as {user:?}: {ran:?}");
        }
    }

    /// Runs the script in the sandbox, and checks that it ran to its end and changed nothing.
    #[track_caller]
    fn confined(&self, user: TestUser, script: &str) -> HaftOutput {
        let tree = self.arena(user);
        let before = self.snapshot(&tree);
        let ran = self.run(&tree, script);
        let changed = before.difference(&self.snapshot(&tree));
        assert!(changed.is_empty(), "as {user:?} changed\n{changed}{ran:?}");
        assert!(!ran.stdout.contains(ESCAPED), "as {user:?}: {ran:?}");
        ran
    }

    #[track_caller]
    fn run(&self, tree: &TestTree, script: &str) -> HaftOutput {
        let ran = self.run_in(tree, script).output();
        tried(&ran);
        ran
    }

    pub(crate) fn arena(&self, user: TestUser) -> TestTree {
        let tree = arena(self.below, user);
        if !self.setup.is_empty() {
            let ran = tree.unconfined(&format!("set -e\n{}", whole(&tree, self.setup)));
            assert_eq!(ran.code, Some(0), "setup: {ran:?}");
        }
        tree
    }

    /// Prepares a run of the script with the settings of this trial.
    pub(crate) fn run_in(&self, tree: &TestTree, script: &str) -> HaftCommand {
        let root = tree.root().to_str().unwrap();
        let flags: Vec<String> = self.flags.iter().map(|flag| flag.replace('@', root)).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        tree.confined(&flags, &whole(tree, script)).through(self.wrapper)
    }

    fn snapshot(&self, tree: &TestTree) -> TreeSnapshot {
        TreeSnapshot::of(&self.watched.iter().map(|name| tree.path(name)).collect::<Vec<_>>())
    }
}

/// Checks that a script ran to its end without errors. A script that failed earlier did not try the escape.
#[track_caller]
pub(crate) fn tried(ran: &HaftOutput) {
    assert!(ran.stdout.ends_with("tried\n"), "the script did not run to its end: {ran:?}");
    for mistake in
        ["command not found", "syntax error", "SyntaxError", "NameError", "AttributeError", "ModuleNotFound"]
    {
        assert!(!ran.stderr.contains(mistake), "the script itself has an error: {ran:?}");
    }
}

/// Returns an empty configuration with the canary in a comment.
pub(crate) fn configuration() -> String {
    format!("{{}} // {CANARY}")
}

/// Creates a test directory with all files that an attacker would want to read or change.
pub(crate) fn arena(below: &str, user: TestUser) -> TestTree {
    let tree = TestTree::below(Path::new(below), user);
    for name in [
        "outside/file",
        "outside/dir/inner",
        "home/data/db",
        "home/skills/one",
        "home/workspace/note",
        "user/.bashrc",
        "user/.ssh/id_ed25519",
        "user/.netrc",
        "user/.docker/config.json",
        "user/.config/gcloud/token",
    ] {
        tree.file(name, CANARY);
    }
    tree.file("home/haft.json", &configuration());
    tree.file("ws/own", "own");
    tree
}

/// Returns the script with variables for the paths of the test directory, and a last line that proves that it ran to
/// its end.
pub(crate) fn whole(tree: &TestTree, script: &str) -> String {
    let root = tree.root().display();
    format!(
        "export root={root} outside={root}/outside home={root}/home user={root}/user ws={root}/ws\n{script}\necho; echo tried"
    )
}

/// Wraps a Python program into a shell script. Its function `call` makes a raw system call; `refused` also prints the
/// outcome.
pub(crate) fn python(program: &str) -> String {
    format!("python3 - <<'END_OF_PYTHON'\n{PYTHON}\n{program}\nEND_OF_PYTHON")
}

const PYTHON: &str = r#"
import ctypes, errno, fcntl, mmap, os, signal, socket, struct, sys, termios
libc = ctypes.CDLL(None, use_errno=True)
root, outside, home, user, ws = (os.environ.get(name, "") for name in ("root", "outside", "home", "user", "ws"))
def call(number, *words):
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    libc.syscall.restype = ctypes.c_long
    return libc.syscall(ctypes.c_long(number), *words)
def refused(number, *words):
    got = call(number, *words)
    print("ESCAPED" if got >= 0 else errno.errorcode.get(ctypes.get_errno(), "?"))
def attempt(deed, *words, **named):
    try:
        deed(*words, **named)
        print("ESCAPED")
    except OSError as error:
        print(error)
"#;
