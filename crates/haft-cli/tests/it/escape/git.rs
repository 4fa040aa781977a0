//! Attempts on git hooks and git configuration of the workspace: git runs them outside the sandbox, at the user's next
//! git command.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Child;

use haft_testkit::{TestTree, TestUser, WITHOUT_NAMESPACES, users};

use super::{EscapeTrial, TRIAL, tried, whole};

const INIT: &str = r#"git init -q "$ws""#;
const REPOSITORY: EscapeTrial<'static> =
    EscapeTrial { setup: INIT, watched: &["ws/.git/hooks", "ws/.git/config"], ..TRIAL };

#[test]
fn command_cannot_write_a_hook() {
    REPOSITORY.attempt("echo 'touch /tmp/x' > .git/hooks/pre-commit");
}

#[test]
fn command_cannot_write_a_hook_if_the_hooks_directory_is_missing() {
    let watched = &["ws/.git/hooks/pre-commit"];
    EscapeTrial { setup: r#"git init -q --template= "$ws"; rm -rf "$ws/.git/hooks""#, watched, ..TRIAL }
        .attempt("mkdir -p .git/hooks; echo x > .git/hooks/pre-commit");
}

#[test]
fn command_cannot_replace_the_hooks() {
    REPOSITORY.attempt("mv .git/hooks .git/old; mkdir .git/hooks; echo x > .git/hooks/pre-commit");
}

#[test]
fn command_cannot_link_the_hooks_elsewhere() {
    REPOSITORY.attempt("mkdir evil; rm -rf .git/hooks; ln -sfn ../evil .git/hooks");
}

#[test]
fn command_cannot_set_the_configuration() {
    REPOSITORY.attempt("git config core.pager evil");
}

#[test]
fn command_cannot_write_the_configuration() {
    REPOSITORY.attempt("echo '[core] fsmonitor = evil' >> .git/config");
}

#[test]
fn command_cannot_replace_the_configuration() {
    REPOSITORY.attempt("cp .git/config c; echo '[core] fsmonitor = evil' >> c; mv -f c .git/config");
}

#[test]
fn command_cannot_replace_the_repository() {
    REPOSITORY.attempt("mv .git old; cp -r old .git; echo x > .git/hooks/pre-commit");
}

#[test]
fn command_cannot_delete_the_repository() {
    REPOSITORY.attempt("rm -rf .git");
}

#[test]
fn command_cannot_write_hooks_and_config_in_network_and_full_mode() {
    for mode in ["network", "full"] {
        EscapeTrial { flags: &["--mode", mode], ..REPOSITORY }
            .attempt("echo x > .git/hooks/pre-commit; git config a.b c");
    }
}

/// Runs git outside the sandbox, and checks that it executes nothing that the calls planted.
#[track_caller]
fn assert_git_executes_nothing_planted(calls: &[&str]) {
    for user in users() {
        let place = REPOSITORY.arena(user);
        for call in calls {
            tried(&place.confined(&[], &whole(&place, call)).output());
        }
        let ran = place.unconfined("cd ../ws; git -c user.name=n -c user.email=e commit -qm x --allow-empty; git config core.pager; echo end");
        assert!(ran.stdout.ends_with("end\n"), "as {user:?}: {ran:?}");
        assert!(!format!("{ran:?}").contains("EVIL"), "as {user:?}: {ran:?}");
    }
}

const EVIL_DIRECTORY: &str = "cp -r .git evil; echo '[core] pager = EVIL' >> evil/config
    printf '#!/bin/sh\\necho EVIL' > evil/hooks/pre-commit; chmod +x evil/hooks/pre-commit";

#[test]
fn command_cannot_point_the_repository_to_another_common_directory() {
    assert_git_executes_nothing_planted(&[&format!("{EVIL_DIRECTORY}; echo ../evil > .git/commondir")]);
}

/// An editor runs git all the time, even while a call runs.
#[test]
fn command_cannot_point_the_repository_elsewhere_while_the_call_runs() {
    for user in users() {
        let place = EscapeTrial { setup: r#"git init -q "$ws"; mkfifo "$ws/go""#, ..REPOSITORY }.arena(user);
        let mut call =
            WaitingCall::start(&place, &format!("{EVIL_DIRECTORY}; echo ../evil > .git/commondir"), "go", "");
        let ran = place.unconfined("git config core.pager; echo end");
        call.go_on();
        assert_eq!(ran.stdout, "end\n", "as {user:?}: {ran:?}");
    }
}

/// The second call starts while the file that the first call wrote exists. It writes the file again after haft has
/// removed it.
#[test]
fn command_cannot_point_the_repository_elsewhere_by_two_calls_at_once() {
    for user in users() {
        let place = EscapeTrial { setup: r#"git init -q "$ws"; mkfifo "$ws/go" "$ws/go2""#, ..REPOSITORY }
            .arena(user);
        let point = "echo ../evil > .git/commondir";
        let mut first = WaitingCall::start(&place, &format!("{EVIL_DIRECTORY}; {point}"), "go", "");
        let mut second = WaitingCall::start(&place, "", "go2", point);
        first.go_on();
        second.go_on();
        let ran = place.unconfined("git config core.pager; echo end");
        assert_eq!(ran.stdout, "end\n", "as {user:?}: {ran:?}");
    }
}

/// A running call whose script has executed its first half, and waits for the file `go` before the second half.
struct WaitingCall {
    child: Child,
    go: PathBuf,
}

impl WaitingCall {
    fn start(place: &TestTree, first: &str, go: &str, second: &str) -> Self {
        let script = format!("{first}\necho ready; read -r _ < {go}\n{second}");
        let mut child = place.confined(&[], &script).start();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, go: place.path("ws").join(go) }
    }

    fn go_on(&mut self) {
        std::fs::write(&self.go, "go\n").unwrap();
        assert!(self.child.wait().unwrap().code().is_some());
    }
}

#[test]
fn command_cannot_move_head_away_before_the_next_call() {
    let evil = "printf '#!/bin/sh\\necho EVIL' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; mv .git/H .git/HEAD";
    assert_git_executes_nothing_planted(&["mv .git/HEAD .git/H", evil]);
}

#[test]
fn command_cannot_hide_the_head_behind_a_dangling_link() {
    let evil =
        "git config core.pager EVIL; echo '[core] pager = EVIL' >> .git/config; mv -f .git/H .git/HEAD";
    assert_git_executes_nothing_planted(&["mv .git/HEAD .git/H; ln -s nowhere .git/HEAD", evil]);
}

#[test]
fn command_cannot_write_hooks_and_config_of_a_worktree() {
    let setup = r#"git init -q "$outside/main"; cd "$outside/main"
        git -c user.name=n -c user.email=e commit -qm x --allow-empty; git worktree add -q "$ws/tree""#;
    let way = EscapeTrial {
        setup,
        flags: &["--workspace", "@/ws/tree"],
        watched: &["outside", "ws/tree/.git"],
        ..TRIAL
    };
    way.attempt(r#"echo x > "$outside/main/.git/hooks/pre-commit""#);
    way.attempt(r#"cd "$ws/tree"; git config a.b c"#);
    way.attempt(r#"cd "$ws/tree"; rm .git; git init -q ."#);
    way.attempt(r#"cd "$ws/tree"; mkdir evil; echo "gitdir: evil" > .git"#);
}

#[test]
fn command_cannot_write_hooks_of_a_separate_git_directory() {
    let setup = r#"git init -q --separate-git-dir="$ws/real" "$ws""#;
    let way = EscapeTrial { setup, watched: &["ws/.git", "ws/real/hooks", "ws/real/config"], ..TRIAL };
    way.attempt("echo x > real/hooks/pre-commit");
    way.attempt("mv real old; mkdir real");
    way.attempt("echo 'gitdir: evil' > .git");
}

/// A mount cannot protect the name of a symlink. The error suggests a `.git` file instead, which git follows in the
/// same way.
#[test]
fn hint_about_a_symlinked_git_directory_keeps_the_protection() {
    for user in users() {
        let place = EscapeTrial {
            setup: r#"git init -q "$ws/main"; ln -s main/.git "$ws/.git""#,
            watched: &["ws/.git", "ws/main/.git/config"],
            ..TRIAL
        }
        .arena(user);
        let ran = place.confined(&[], "echo ran").output().expect_code(125);
        assert!(ran.stdout.is_empty() && !ran.stderr.contains("--git writable"), "as {user:?}: {ran:?}");
        let hint = ran.stderr.lines().find_map(|line| line.strip_prefix("hint: ")?.split('`').nth(1));
        let followed = place.unconfined(&format!("cd {}; {}", place.path("ws").display(), hint.unwrap()));
        assert_eq!(followed.code, Some(0), "as {user:?}: {followed:?}");
        let script = "git rev-parse --git-dir; git config a.b c; rm .git; echo x >> main/.git/config; echo; echo tried";
        let ran = place.confined(&[], script).output();
        tried(&ran);
        let git_dir = place.path("ws/main/.git").canonicalize().unwrap();
        assert!(ran.stdout.starts_with(git_dir.to_str().unwrap()), "as {user:?}: {ran:?}");
        let config = std::fs::read_to_string(place.path("ws/main/.git/config")).unwrap();
        assert!(!config.contains("[a]") && !config.contains('x'), "as {user:?}: {config}");
        assert!(place.path("ws/.git").is_file(), "as {user:?}");
    }
}

/// The other directories in which the operator allows writes may be repositories too.
#[test]
fn command_cannot_change_the_repository_of_a_writable_directory() {
    for mode in ["workspace", "network", "full"] {
        EscapeTrial {
            setup: r#"git init -q "$outside/repo""#,
            flags: &["--writable", "@/outside/repo", "--mode", mode],
            watched: &["outside/repo/.git/hooks", "outside/repo/.git/config"],
            ..TRIAL
        }
        .attempt(r#"cd "$outside/repo"; echo x > .git/hooks/pre-commit; git config a.b c; mv .git old"#);
    }
}

#[test]
fn command_cannot_change_a_repository_below_a_writable_directory() {
    for mode in ["workspace", "network", "full"] {
        EscapeTrial {
            setup: r#"git init -q "$outside/all/a/repo""#,
            flags: &["--writable", "@/outside/all", "--mode", mode],
            watched: &["outside/all/a/repo/.git/hooks", "outside/all/a/repo/.git/config"],
            ..TRIAL
        }
        .attempt(
            r#"cd "$outside/all/a/repo"; echo x > .git/hooks/pre-commit; git config a.b c; mv .git old
            cd ../..; cp -r a e; mv a old; mv e a; echo x >> a/repo/.git/config"#,
        );
    }
}

#[test]
fn git_writable_flag_allows_writing_hooks_and_config() {
    EscapeTrial { flags: &["--git", "writable"], ..REPOSITORY }
        .granted("echo x > .git/hooks/pre-commit && git config a.b c && mv .git old && echo granted");
}

/// git uses a nested repository as soon as the index of the root repository refers to it.
#[test]
fn command_cannot_write_hooks_and_config_of_a_nested_repository() {
    let setup =
        r#"git init -q "$ws"; git init -q "$ws/a/b"; git init -q --separate-git-dir "$ws/a/dir" "$ws/c""#;
    let watched =
        &["ws/a/b/.git/hooks", "ws/a/b/.git/config", "ws/a/dir/hooks", "ws/a/dir/config", "ws/c/.git"];
    for mode in ["workspace", "network", "full"] {
        let nested = EscapeTrial { setup, watched, flags: &["--mode", mode], ..TRIAL };
        nested.attempt("echo x > a/b/.git/hooks/pre-commit; git -C a/b config core.fsmonitor evil");
        nested.attempt(
            "echo x >> a/dir/config; echo x > a/dir/hooks/pre-commit; echo 'gitdir: ../evil' > c/.git",
        );
        nested.attempt("cp -r a e; mv a old; mv e a; echo x >> a/b/.git/config; echo x >> a/dir/config");
    }
    let commits =
        "cd a/b && touch f && git add f && git -c user.name=n -c user.email=e commit -qm x && echo granted";
    EscapeTrial { setup, ..TRIAL }.granted(commits);
}

/// `commondir` of a linked worktree names the configuration that git uses in it, even if the worktree is elsewhere.
#[test]
fn command_cannot_redirect_a_linked_worktree() {
    let setup = r#"git init -q "$ws"; cd "$ws"; git -c user.name=n -c user.email=e commit -q --allow-empty -m x
        git worktree add -q "$outside/linked" -b b"#;
    let worktree = EscapeTrial { setup, watched: &["ws/.git/worktrees/linked/commondir"], ..TRIAL };
    for wrapper in [&[][..], WITHOUT_NAMESPACES] {
        let worktree = EscapeTrial { wrapper, ..worktree };
        worktree.attempt("mkdir -p evil; echo $PWD/evil > .git/worktrees/linked/commondir");
        worktree.attempt("echo $PWD/evil > c; mv -f c .git/worktrees/linked/commondir");
    }
    worktree
        .attempt("mv .git/worktrees x; cp -r x .git/worktrees; echo /x > .git/worktrees/linked/commondir");
    worktree.granted("git -c user.name=n -c user.email=e commit -q --allow-empty -m y && echo granted");
}

/// A submodule that is not checked out has a git directory, which git uses at the next update.
#[test]
fn command_cannot_change_the_configuration_of_a_submodule() {
    let setup =
        r#"git init -q "$ws"; mkdir -p "$ws/.git/modules"; git init -q --bare "$ws/.git/modules/lib""#;
    let watched = &["ws/.git/modules/lib/config", "ws/.git/modules/lib/hooks"];
    EscapeTrial { setup, watched, ..TRIAL }
        .attempt("cd .git/modules/lib; echo x >> config; echo x > hooks/post-checkout; mv config old");
    let place = EscapeTrial { setup, ..TRIAL }.arena(TestUser::Ourselves);
    let made = r#"{"command":"git init -q --bare .git/modules/new"}"#;
    let ran = place.haft(&["call", "--json", "bash", made]).output().expect_code(0);
    let result: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let expected = serde_json::json!([place.path("ws/.git/modules/new").to_str().unwrap()]);
    assert_eq!(result["notes"]["new_repositories"], expected, "{ran:?}");
}

#[test]
fn new_repository_of_a_call_is_reported() {
    let place = TRIAL.arena(TestUser::Ourselves);
    let command =
        "git init -q new; git init -q new; mkdir .vscode; echo {} > .vscode/tasks.json; echo all: > Makefile";
    let arguments = serde_json::json!({ "command": command }).to_string();
    let ran = place.haft(&["call", "--json", "bash", &arguments]).output().expect_code(0);
    let result: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    assert_eq!(result["notes"]["new_repositories"], serde_json::json!([path("ws/new")]), "{ran:?}");
    let changed = serde_json::json!([path("ws/.vscode/tasks.json"), path("ws/Makefile")]);
    assert_eq!(result["notes"]["run_files_changed"], changed, "{ran:?}");
    assert!(ran.stderr.contains("warning: the call created git repositories"), "{ran:?}");
    // git treats a directory with the parts of a repository as a repository, even if its name is not `.git`.
    let bare = r#"{"command":"mkdir -p sub/objects sub/refs; echo ref: refs/heads/x > sub/HEAD; echo > sub/config"}"#;
    let ran = place.haft(&["call", "--json", "bash", bare]).output().expect_code(0);
    let result: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(result["notes"]["new_repositories"], serde_json::json!([path("ws/sub")]), "{ran:?}");
    let ran = place.haft(&["call", "bash", r#"{"command":"echo x > new/.git/config"}"#]).output();
    assert!(ran.code != Some(0) && !ran.stderr.contains("created git repositories"), "{ran:?}");
}

#[test]
fn write_that_turns_a_directory_into_a_git_repository_is_reported() {
    for wrapper in [&[], WITHOUT_NAMESPACES] {
        let place = TRIAL.arena(TestUser::Ourselves);
        let notes = |tool: &str, arguments: serde_json::Value| {
            let words = ["call", "--json", tool, &arguments.to_string()];
            let ran = place.haft(&words).through(wrapper).output().expect_code(0);
            let result: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
            (result["notes"].clone(), ran.stderr)
        };
        let write = |name: &str| notes("write", serde_json::json!({"file_path": name, "content": "x y"}));
        let path = |name: &str| serde_json::json!([place.path(name).to_str().unwrap()]);
        for name in ["sub/HEAD", "sub/objects/x", "sub/config"] {
            assert_eq!(write(name).0.get("new_repositories"), None, "{name}");
        }
        let (found, warnings) = write("sub/refs/x");
        assert_eq!(found["new_repositories"], path("ws/sub"), "{found}");
        assert!(warnings.contains("warning: the call created git repositories"), "{warnings}");
        assert_eq!(write("tree/.git").0["new_repositories"], path("ws/tree"));
        assert_eq!(write(".envrc").0["run_files_changed"], path("ws/.envrc"));
        let edit = serde_json::json!({"file_path": ".envrc", "old_string": "x", "new_string": "z"});
        assert_eq!(notes("edit", edit).0["run_files_changed"], path("ws/.envrc"));
        assert_eq!(write("plain.txt").0.get("run_files_changed"), None);
    }
}

/// git treats a directory with `HEAD` and `commondir` as a repository, and reads the configuration from another
/// directory.
#[test]
fn new_repository_with_a_separate_common_directory_is_reported() {
    let place = TRIAL.arena(TestUser::Ourselves);
    let command = r#"mkdir -p sub other/objects other/refs
        echo ref: refs/heads/x > sub/HEAD; echo ../other > sub/commondir
        printf '[core]\nrepositoryformatversion = 1\n[extensions]\nworktreeConfig = true\n' > other/config
        printf '[core]\nbare = false\nworktree = ..\nfsmonitor = "echo RAN >&2; false"\n' > sub/config.worktree"#;
    let arguments = serde_json::json!({ "command": command }).to_string();
    let ran = place.haft(&["call", "--json", "bash", &arguments]).output().expect_code(0);
    let result: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let expected = serde_json::json!([place.path("ws/sub").to_str().unwrap()]);
    assert_eq!(result["notes"]["new_repositories"], expected, "{ran:?}");
    let git = place.unconfined(&format!("cd {}/sub; git status; true", place.path("ws").display()));
    assert!(
        git.stderr.contains("RAN"),
        "git ignores the new configuration, so the test proves nothing: {git:?}"
    );
}

#[test]
fn call_result_states_how_many_repositories_are_not_protected() {
    for user in users() {
        let setup = r#"for n in $(seq 67); do mkdir -p "$ws/r$n/.git"; echo x > "$ws/r$n/.git/HEAD"; done"#;
        let place = EscapeTrial { setup, ..TRIAL }.arena(user);
        let ran = place.haft(&["call", "--json", "bash", r#"{"command":"true"}"#]).output().expect_code(0);
        let said =
            "configuration of 3 repositories below the root of the workspace; haft protects at most 64";
        let result: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let weaker = result["notes"]["sandbox"]["weaker"].to_string();
        assert!(weaker.contains(said) && ran.stderr.contains(said), "as {user:?}: {ran:?}");
    }
}
