//! Tests of the workspaces that are refused, and of the user that a command runs as.

use std::os::unix::fs::{MetadataExt, chown, symlink};

use haft_testkit::{TestTree, TestUser, users};

use super::{TRIAL, arena, tried, whole};

#[track_caller]
fn refused(workspace: impl Fn(&TestTree) -> String, reason: &str) {
    for user in users() {
        let tree = arena("/var/tmp", user);
        for mode in ["workspace", "network", "full"] {
            let ran = tree
                .confined(&["--mode", mode, "--workspace", &workspace(&tree)], "echo ran")
                .output()
                .expect_code(2);
            let told = ran.stdout.is_empty() && ran.stderr.contains(reason) && ran.stderr.contains("hint:");
            assert!(told, "as {user:?} in {mode}: {ran:?}");
        }
    }
}

fn named(name: &'static str) -> impl Fn(&TestTree) -> String {
    move |tree| tree.path(name).to_str().unwrap().to_owned()
}

#[test]
fn whole_file_system_is_rejected_as_workspace() {
    refused(|_| "/".into(), "whole file system");
    refused(|_| "/usr/..".into(), "whole file system");
}

#[test]
fn user_home_is_rejected_as_workspace() {
    refused(named("user"), "--allow-home");
}

#[test]
fn haft_home_and_its_parent_are_rejected_as_workspace() {
    refused(named("home"), "haft's own home");
    refused(named("home/data"), "haft's own home");
    refused(named("."), "haft's own home");
}

#[test]
fn missing_directory_is_rejected_as_workspace() {
    refused(named("missing"), "does not exist");
}

#[test]
fn symlink_to_haft_home_is_rejected_as_workspace() {
    let link = |tree: &TestTree| {
        let _ = symlink(tree.path("home"), tree.path("ws/link"));
        named("ws/link")(tree)
    };
    refused(link, "haft's own home");
}

#[test]
fn file_is_rejected_as_workspace() {
    let tree = arena("/var/tmp", TestUser::Ourselves);
    let ran = tree.confined(&["--workspace", &named("ws/own")(&tree)], "echo ran").output().expect_code(2);
    assert!(ran.stderr.contains("is not a directory"), "{ran:?}");
}

#[test]
fn symlinked_workspace_resolves_to_its_target() {
    for user in users() {
        let tree = arena("/var/tmp", user);
        symlink(tree.path("ws"), tree.path("link")).unwrap();
        let script = whole(&tree, r#"pwd -P; echo x > new; echo x > "$outside/file"; echo x > "$root/new""#);
        let ran = tree.confined(&["--workspace", &named("link")(&tree)], &script).output();
        tried(&ran);
        assert!(ran.stdout.starts_with(&named("ws")(&tree)) && tree.exists("ws/new"), "as {user:?}: {ran:?}");
        assert!(!tree.exists("new"), "as {user:?}");
    }
}

#[test]
fn command_of_root_runs_as_workspace_owner() {
    if !users().contains(&TestUser::Nobody) {
        return;
    }
    let tree = TRIAL.arena(TestUser::Ourselves);
    for name in ["ws", "ws/own"] {
        chown(tree.path(name), Some(65534), Some(65534)).unwrap();
    }
    let secret = tree.file("outside/of-root", "canary");
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for mode in ["workspace", "network", "full"] {
        let script = whole(
            &tree,
            r#"id -u; id -g; id -G; echo "$USER $HOME"; cat "$outside/of-root"; rm -f new; echo x > new"#,
        );
        let ran = tree.confined(&["--mode", mode], &script).output();
        tried(&ran);
        assert_eq!(ran.stdout, "65534\n65534\n65534\nnobody /nonexistent\n\ntried\n", "{mode}: {ran:?}");
        let made = tree.path("ws/new").metadata().unwrap();
        assert_eq!((made.uid(), made.gid()), (65534, 65534), "{mode}");
    }
}

/// A workspace owner without an account has no home directory. The command must not get root's home directory instead.
#[test]
fn owner_without_account_does_not_inherit_user_home() {
    if !users().contains(&TestUser::Nobody) {
        return;
    }
    let tree = TRIAL.arena(TestUser::Ourselves);
    chown(tree.path("ws"), Some(54321), Some(54321)).unwrap();
    let ran =
        tree.confined(&[], &whole(&tree, r#"id -u; echo "HOME=$HOME USER=$USER"; echo x > new"#)).output();
    tried(&ran);
    let user_home = tree.path("user");
    assert!(
        ran.stdout.starts_with("54321\n") && tree.path("ws/new").metadata().unwrap().uid() == 54321,
        "{ran:?}"
    );
    assert!(!ran.stdout.contains(user_home.to_str().unwrap()) && !ran.stdout.contains("tester"), "{ran:?}");
}
