//! Hooks and configuration of the workspace's repository: they run outside the sandbox, at the user's next git command.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Child;

use haft_testkit::{TestTree, TestUser, users};

use super::{EscapeTrial, TRIAL, tried, whole};

const INIT: &str = r#"git init -q "$ws""#;
const REPOSITORY: EscapeTrial<'static> =
    EscapeTrial { setup: INIT, watched: &["ws/.git/hooks", "ws/.git/config"], ..TRIAL };

#[test]
fn cannot_write_a_hook() {
    REPOSITORY.attempt("echo 'touch /tmp/x' > .git/hooks/pre-commit");
}

#[test]
fn cannot_write_a_hook_without_hooks_directory() {
    let watched = &["ws/.git/hooks/pre-commit"];
    EscapeTrial { setup: r#"git init -q --template= "$ws"; rm -rf "$ws/.git/hooks""#, watched, ..TRIAL }
        .attempt("mkdir -p .git/hooks; echo x > .git/hooks/pre-commit");
}

#[test]
fn cannot_replace_the_hooks() {
    REPOSITORY.attempt("mv .git/hooks .git/old; mkdir .git/hooks; echo x > .git/hooks/pre-commit");
}

#[test]
fn cannot_link_the_hooks_elsewhere() {
    REPOSITORY.attempt("mkdir evil; rm -rf .git/hooks; ln -sfn ../evil .git/hooks");
}

#[test]
fn cannot_set_the_configuration() {
    REPOSITORY.attempt("git config core.pager evil");
}

#[test]
fn cannot_write_the_configuration() {
    REPOSITORY.attempt("echo '[core] fsmonitor = evil' >> .git/config");
}

#[test]
fn cannot_replace_the_configuration() {
    REPOSITORY.attempt("cp .git/config c; echo '[core] fsmonitor = evil' >> c; mv -f c .git/config");
}

#[test]
fn cannot_replace_the_repository() {
    REPOSITORY.attempt("mv .git old; cp -r old .git; echo x > .git/hooks/pre-commit");
}

#[test]
fn cannot_delete_the_repository() {
    REPOSITORY.attempt("rm -rf .git");
}

#[test]
fn cannot_write_hooks_and_config_in_network_and_full_mode() {
    for mode in ["network", "full"] {
        EscapeTrial { flags: &["--mode", mode], ..REPOSITORY }
            .attempt("echo x > .git/hooks/pre-commit; git config a.b c");
    }
}

/// Runs git outside the sandbox and checks that it executes nothing that the calls planted.
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
fn cannot_point_the_repository_to_another_common_directory() {
    assert_git_executes_nothing_planted(&[&format!("{EVIL_DIRECTORY}; echo ../evil > .git/commondir")]);
}

/// An editor queries git all the time, also while a call runs.
#[test]
fn cannot_point_the_repository_elsewhere_while_the_call_runs() {
    for user in users() {
        let place = EscapeTrial { setup: r#"git init -q "$ws"; mkfifo "$ws/go""#, ..REPOSITORY }.arena(user);
        let mut call =
            WaitingCall::start(&place, &format!("{EVIL_DIRECTORY}; echo ../evil > .git/commondir"), "go", "");
        let ran = place.unconfined("git config core.pager; echo end");
        call.go_on();
        assert_eq!(ran.stdout, "end\n", "as {user:?}: {ran:?}");
    }
}

/// The second call starts while the file of the first call exists, and writes it again after it was removed.
#[test]
fn cannot_point_the_repository_elsewhere_by_two_calls_at_once() {
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

/// A call that has done its first part and waits before the second.
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
fn cannot_move_head_away_before_the_next_call() {
    let evil = "printf '#!/bin/sh\\necho EVIL' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; mv .git/H .git/HEAD";
    assert_git_executes_nothing_planted(&["mv .git/HEAD .git/H", evil]);
}

#[test]
fn cannot_hide_the_head_behind_a_dangling_link() {
    let evil =
        "git config core.pager EVIL; echo '[core] pager = EVIL' >> .git/config; mv -f .git/H .git/HEAD";
    assert_git_executes_nothing_planted(&["mv .git/HEAD .git/H; ln -s nowhere .git/HEAD", evil]);
}

#[test]
fn cannot_write_hooks_and_config_of_a_worktree() {
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
fn cannot_write_hooks_of_a_separate_git_directory() {
    let setup = r#"git init -q --separate-git-dir="$ws/real" "$ws""#;
    let way = EscapeTrial { setup, watched: &["ws/.git", "ws/real/hooks", "ws/real/config"], ..TRIAL };
    way.attempt("echo x > real/hooks/pre-commit");
    way.attempt("mv real old; mkdir real");
    way.attempt("echo 'gitdir: evil' > .git");
}

#[test]
fn symlinked_git_directory_is_rejected_with_hint() {
    for user in users() {
        let place = EscapeTrial {
            setup: r#"git init -q "$outside/main"; ln -s "$outside/main/.git" "$ws/.git""#,
            ..TRIAL
        }
        .arena(user);
        let ran = place.confined(&[], "echo ran").output().expect_code(125);
        assert!(ran.stdout.is_empty() && ran.stderr.contains("hint: --git writable"), "as {user:?}: {ran:?}");
        let ran = place.confined(&["--git", "writable"], "echo ran").output().expect_code(0);
        assert_eq!(ran.stdout, "ran\n");
    }
}

#[test]
fn git_writable_flag_allows_writing_hooks_and_config() {
    EscapeTrial { flags: &["--git", "writable"], ..REPOSITORY }
        .granted("echo x > .git/hooks/pre-commit && git config a.b c && mv .git old && echo granted");
}

/// git looks into such a repository as soon as the index of the root names it.
#[test]
fn hooks_and_configuration_of_a_nested_repository() {
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

#[test]
fn a_repository_that_a_call_creates_is_reported() {
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
    // A directory with the parts of a repository is one for git, whatever its name.
    let bare = r#"{"command":"mkdir -p sub/objects sub/refs; echo ref: refs/heads/x > sub/HEAD; echo > sub/config"}"#;
    let ran = place.haft(&["call", "--json", "bash", bare]).output().expect_code(0);
    let result: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(result["notes"]["new_repositories"], serde_json::json!([path("ws/sub")]), "{ran:?}");
    let ran = place.haft(&["call", "bash", r#"{"command":"echo x > new/.git/config"}"#]).output();
    assert!(ran.code != Some(0) && !ran.stderr.contains("created git repositories"), "{ran:?}");
}
