//! Attempts on protected files that another program replaces while a command runs, as git and most editors do.

use std::io::Read;
use std::path::Path;
use std::process::Child;

use haft_testkit::{TestTree, TestUser, WITHOUT_NAMESPACES, users};

use super::{EscapeTrial, TRIAL, python};

/// The environment variable with the number of renames; `cargo xtask test --long` sets it.
const RENAMES: &str = "HAFT_TEST_RENAMES";
const RENAMES_DEFAULT: usize = 40;

fn renames() -> usize {
    std::env::var(RENAMES).map_or(RENAMES_DEFAULT, |number| number.parse().unwrap())
}

const REPOSITORY: EscapeTrial<'static> =
    EscapeTrial { setup: r#"git init -q "$ws"; mkfifo "$ws/go""#, watched: &[], ..TRIAL };

/// A deterministic random generator, so that a failure can be reproduced.
struct Dice(u64);

impl Dice {
    /// Spins for a random time, so that renames happen at different points of the command.
    fn pause(&mut self) {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (0..(self.0 >> 33) % 20_000).for_each(|_| std::hint::spin_loop());
    }
}

fn start(trial: EscapeTrial<'_>, tree: &TestTree, script: &str) -> Child {
    let mut child = trial.run_in(tree, script).start();
    let mut line = String::new();
    let mut byte = [0_u8];
    let out = child.stdout.as_mut().unwrap();
    while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(char::from(byte[0]));
    }
    assert_eq!(line, "ready");
    child
}

/// Replaces a file as git does: writes another file, then renames it.
fn replace(tree: &TestTree, from: &str, name: &str, content: &str) {
    let next = tree.file(from, content);
    std::fs::rename(next, tree.path(name)).unwrap();
}

/// Tries in a loop to write the configuration, until the test stops it.
const WRITE: &str = "
print('ready', flush=True)
while not os.path.exists('stop'):
    for _ in range(50):
        try:
            file = os.open('.git/config', os.O_WRONLY | os.O_APPEND)
            os.write(file, b'EVIL')
            os.close(file)
        except OSError: pass";

/// Tries in a loop to replace the configuration by another file.
const RENAME: &str = "
print('ready', flush=True)
while not os.path.exists('stop'):
    for _ in range(50):
        try:
            with open('evil', 'w') as file: file.write('EVIL')
            os.rename('evil', '.git/config')
        except OSError: pass";

/// The path at which the next configuration is written.
const NEXT: &str = "outside/next";

/// Each call in which the command wrote the configuration must end with an error that names the file.
fn no_silent_change(user: TestUser, trial: EscapeTrial<'_>, attack: &str) {
    let tree = trial.arena(user);
    let (mut dice, mut left) = (Dice(11), renames());
    while left > 0 {
        let _ = std::fs::remove_file(tree.path("ws/stop"));
        replace(&tree, NEXT, "ws/.git/config", "[core]\n");
        let mut child = start(trial, &tree, &python(attack));
        while left > 0 && child.try_wait().unwrap().is_none() && !tree.text("ws/.git/config").contains("EVIL")
        {
            replace(&tree, NEXT, "ws/.git/config", &format!("[core]\n# {left}\n"));
            left -= 1;
            dice.pause();
        }
        tree.file("ws/stop", "");
        let ended = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        let named = errors.contains("another program replaced `")
            && errors.contains("/.git/config` while the command ran");
        let evil = tree.text("ws/.git/config").contains("EVIL");
        assert!(!evil || named && !ended.status.success(), "as {user:?}: {errors}");
    }
}

#[test]
fn command_cannot_write_a_configuration_that_git_replaces() {
    for user in users() {
        no_silent_change(user, REPOSITORY, WRITE);
    }
}

#[test]
fn command_cannot_rename_over_a_configuration_that_git_replaces() {
    for user in users() {
        no_silent_change(user, REPOSITORY, RENAME);
    }
}

#[test]
fn command_without_namespaces_cannot_write_a_configuration_that_git_replaces() {
    for user in users() {
        no_silent_change(user, EscapeTrial { wrapper: WITHOUT_NAMESPACES, ..REPOSITORY }, WRITE);
    }
}

/// If the user runs `git config`, the sandboxed command keeps running and still cannot write to the file.
#[test]
fn replaced_git_configuration_is_protected_again() {
    let wait = r#"echo ready; read -r _ < go
        for i in $(seq 2000); do grep -q "$ws/.git/config " /proc/self/mountinfo && break; done
        echo EVIL >> .git/config; mv own .git/config; git config user.name; git status --short > /dev/null && echo works"#;
    for user in users() {
        let tree = REPOSITORY.arena(user);
        let child = start(REPOSITORY, &tree, wait);
        let set = tree.unconfined("git config user.name outside");
        assert_eq!(set.code, Some(0), "{set:?}");
        std::fs::write(tree.path("ws/go"), "go\n").unwrap();
        let ended = child.wait_with_output().unwrap();
        let (out, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert_eq!(out, "outside\nworks\n\ntried\n", "as {user:?}: {errors}");
        assert!(!tree.text("ws/.git/config").contains("EVIL") && tree.exists("ws/own"), "as {user:?}");
    }
}

/// A repository that is replaced as a whole cannot be protected again, so the command ends.
#[test]
fn replacing_the_repository_ends_the_command() {
    for user in users() {
        let tree = REPOSITORY.arena(user);
        let child = start(REPOSITORY, &tree, "echo ready; read -r _ < go; echo x > .git/hooks/pre-commit");
        let moved = tree.unconfined("mv .git ../outside/old; git init -q .");
        assert_eq!(moved.code, Some(0), "{moved:?}");
        let ended = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert!(errors.contains("/ws/.git` while the command ran"), "as {user:?}: {errors}");
        assert!(!tree.exists("ws/.git/hooks/pre-commit"), "as {user:?}");
    }
}

/// Reads secrets in a loop while they are replaced.
#[test]
fn command_cannot_read_secrets_that_are_replaced() {
    const NAMES: [&str; 3] = ["user/.git-credentials", "user/.docker/config.json", "user/.ssh"];
    let read = python(
        "
print('ready', flush=True)
while not os.path.exists('stop'):
    for name in ('.git-credentials', '.docker/config.json', '.ssh/id', '.ssh/id_ed25519'):
        try: print(open(os.path.join(user, name)).read())
        except OSError: pass",
    );
    for wrapper in [&[][..], WITHOUT_NAMESPACES] {
        for user in users() {
            let trial = EscapeTrial { wrapper, ..TRIAL };
            let tree = trial.arena(user);
            tree.file(NAMES[0], "secret-5a");
            // The next secrets are written where the command cannot see them either.
            tree.directory("user/.aws");
            let child = start(trial, &tree, &read);
            let mut dice = Dice(5);
            for _ in 0..renames() {
                replace(&tree, "user/.aws/next", NAMES[0], "secret-5a");
                replace(&tree, "user/.aws/next", NAMES[1], "secret-5a");
                replace_directory(&tree, NAMES[2]);
                dice.pause();
            }
            tree.file("ws/stop", "");
            let ended = child.wait_with_output().unwrap();
            let out = String::from_utf8_lossy(&ended.stdout);
            assert!(out.ends_with("tried\n") && !out.contains("secret-5a"), "as {user:?} {wrapper:?}: {out}");
        }
    }
}

fn replace_directory(tree: &TestTree, name: &str) {
    tree.file("user/.aws/keys/id", "secret-5a");
    let path = tree.path(name);
    let _ = std::fs::remove_dir_all(tree.path("user/.aws/old"));
    std::fs::rename(&path, tree.path("user/.aws/old")).unwrap();
    std::fs::rename(tree.path("user/.aws/keys"), path).unwrap();
}

/// A running command swaps `.git` for a link while other calls start. haft, which is not confined, must not follow the
/// link when it creates placeholders for missing protected files.
#[test]
fn command_cannot_replace_the_repository_by_a_link_while_calls_start() {
    let swap = "
print('ready', flush=True)
os.makedirs('dir/objects', exist_ok=True)
os.symlink(outside + '/dir', 'link')
os.rename('dir', '.git')
while not os.path.exists('stop'):
    os.rename('.git', 'dir'); os.rename('link', '.git')
    os.rename('.git', 'link'); os.rename('dir', '.git')";
    for user in users() {
        let tree = TRIAL.arena(user);
        let child = start(TRIAL, &tree, &python(swap));
        for _ in 0..(renames() / 10).max(20) {
            tree.confined(&[], "true").output();
        }
        tree.file("ws/stop", "");
        child.wait_with_output().unwrap();
        let names = |path: &Path| std::fs::read_dir(path).unwrap().count();
        assert_eq!(names(&tree.path("outside/dir")), 1, "as {user:?}");
    }
}
