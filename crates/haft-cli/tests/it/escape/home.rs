//! Attempts on haft's home directory in every mode and location, and on the user's secrets.

use std::io::{BufRead, BufReader, Read};

use haft_testkit::{TestUser, checks, users};

use super::{CANARY, EscapeTrial, TRIAL, arena, attempt_to_read, configuration, tried, whole};

/// The locations of haft's home directory: outside all writable directories, inside a writable directory in each mode,
/// and around the workspace.
const WAYS: [EscapeTrial<'static>; 5] = [
    EscapeTrial { watched: HOME, ..TRIAL },
    EscapeTrial { below: "/tmp", watched: HOME, ..TRIAL },
    EscapeTrial { below: "/tmp", watched: HOME, flags: &["--mode", "network"], ..TRIAL },
    EscapeTrial { watched: HOME, flags: &["--mode", "full"], ..TRIAL },
    EscapeTrial { watched: HOME, flags: &["--workspace", "@/home/workspace"], ..TRIAL },
];
const HOME: &[&str] = &["home"];

#[track_caller]
fn assert_home_is_unchanged(script: &str) {
    for way in WAYS {
        way.attempt(script);
    }
}

#[track_caller]
fn assert_home_is_not_read(script: &str) {
    for way in WAYS {
        way.attempt_to_read(script);
    }
}

#[test]
fn command_cannot_read_the_database() {
    assert_home_is_not_read(r#"cat "$home/data/db""#);
}

/// Caches of MCP servers may contain tokens.
#[test]
fn command_cannot_read_a_cache() {
    for way in WAYS {
        EscapeTrial {
            setup: r#"mkdir -p "$home/cache/server"; cp "$home/data/db" "$home/cache/server/token""#,
            ..way
        }
        .attempt_to_read(r#"cat "$home/cache/server/token""#);
    }
}

checks!(assert_home_is_not_read {
    command_cannot_read_the_configuration: r#"cat "$home/haft.json""#;
    command_cannot_read_haft_home_through_dots_and_links:
        r#"cd /; cat ".$home/../home/./data//db"; ln -s "$home" "$ws/link"; cat "$ws/link/data/db"
           ln -s "$home/data/db" "$ws/link2"; cat "$ws/link2"; cat "/proc/self/root$home/data/db"; cat "/proc/1/root$home/data/db""#;
    command_cannot_read_haft_home_through_a_hard_link:
        r#"for to in /tmp . "$home/workspace"; do ln "$home/data/db" "$to/hard-$$" && cat "$to/hard-$$"; rm -f "$to/hard-$$"; done"#;
    command_cannot_read_haft_home_after_moving_it:
        r#"mv "$home" "$home.moved"; cat "$home.moved/data/db"; mv "$home.moved" "$home"; cat "$home/data/db""#;
});

#[test]
fn command_cannot_list_the_data_directory() {
    for way in WAYS {
        way.refused(
            r#"ls "$home/data" | grep db && echo ESCAPED; find "$home" -name db | grep . && echo ESCAPED"#,
        );
    }
}

checks!(assert_home_is_unchanged {
    command_cannot_write_the_database: r#"echo x > "$home/data/db""#;
    command_cannot_write_the_configuration: r#"echo x > "$home/haft.json""#;
    command_cannot_delete_haft_home: r#"rm -rf "$home/data" "$home/haft.json""#;
    command_cannot_add_files_to_haft_home:
        r#"echo x > "$home/new"; mkdir "$home/data/new" "$home/agents"; echo x > "$home/data/journal""#;
    command_cannot_write_skills: r#"echo x > "$home/skills/one"; echo x > "$home/skills/two""#;
    command_cannot_move_haft_home_away: r#"mv "$home" "$home.moved""#;
    command_cannot_move_the_parent_of_haft_home_away: r#"mv "$root" "$root.moved" || mv "$home" "$home.moved""#;
});

#[test]
fn command_cannot_replace_haft_home_by_a_link() {
    assert_home_is_unchanged(r#"mkdir "$ws/evil"; mv "$home" "$home.moved"; ln -sfn "$ws/evil" "$home""#);
}

#[test]
fn command_cannot_create_missing_config_file() {
    for way in WAYS {
        EscapeTrial { setup: r#"rm "$home/haft.json""#, ..way }.attempt(r#"echo x > "$home/haft.json""#);
    }
}

#[test]
fn command_cannot_create_missing_haft_home() {
    for user in users() {
        let tree = arena("/tmp", user);
        let home = tree.root().join("later/home");
        let script = format!(
            "mkdir -p {0}; echo x > {0}/haft.json && echo ESCAPED; mkdir {0}/data/x && echo ESCAPED",
            home.display()
        );
        let ran =
            tree.confined(&[], &whole(&tree, &script)).env("HAFT_HOME", home.to_str().unwrap()).output();
        tried(&ran);
        assert!(!ran.stdout.contains("ESCAPED") && !home.join("haft.json").exists(), "as {user:?}: {ran:?}");
    }
}

#[test]
fn command_cannot_read_or_write_symlinked_haft_home() {
    for user in users() {
        let tree = arena("/tmp", user);
        let link = tree.root().join("link");
        std::os::unix::fs::symlink(tree.path("home"), &link).unwrap();
        let script =
            r#"rm "$root/link"; cat "$home/data/db" "$root/link/data/db"; echo x > "$home/haft.json""#;
        let ran = tree.confined(&[], &whole(&tree, script)).env("HAFT_HOME", link.to_str().unwrap()).output();
        tried(&ran);
        assert!(!ran.stdout.contains(CANARY), "as {user:?}: {ran:?}");
        assert_eq!(tree.text("home/haft.json"), configuration(), "as {user:?}");
    }
}

/// Protection is by name: a file that is created while a command runs is hidden like one that existed before.
#[test]
fn command_cannot_read_haft_home_files_created_while_it_runs() {
    for user in users() {
        for way in WAYS {
            let setup = r#"rm "$home/haft.json"; mkfifo "$ws/go" "$home/workspace/go""#;
            let way = EscapeTrial { setup, ..way };
            let tree = way.arena(user);
            let script =
                r#"echo ready; read -r _ < go; cat "$home/haft.json" "$home/data/later"; ls "$home/data""#;
            let mut child = way.run_in(&tree, script).start();
            let mut out = BufReader::new(child.stdout.take().unwrap());
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            tree.file("home/haft.json", CANARY);
            tree.file("home/data/later", CANARY);
            let go = if way.flags.contains(&"--workspace") { "home/workspace/go" } else { "ws/go" };
            std::fs::write(tree.path(go), "go\n").unwrap();
            let mut rest = String::new();
            out.read_to_string(&mut rest).unwrap();
            child.wait().unwrap();
            assert!(
                rest.ends_with("tried\n") && !rest.contains(CANARY) && !rest.contains("later"),
                "as {user:?}: {rest}"
            );
        }
    }
}

#[test]
fn only_the_workspace_inside_haft_home_is_writable() {
    let inside = EscapeTrial { flags: &["--workspace", "@/home/workspace"], ..TRIAL };
    inside.granted(r#"pwd | grep -q home/workspace && echo x > note && cat "$home/skills/one" > /dev/null && echo granted"#);
    TRIAL.refused(r#"echo x > "$home/workspace/note" && echo ESCAPED"#);
}

#[test]
fn command_cannot_read_secrets() {
    for mode in ["workspace", "network"] {
        EscapeTrial { flags: &["--mode", mode], ..TRIAL }.attempt_to_read(
            r#"cat "$user/.ssh/id_ed25519" "$user/.netrc" "$user/.docker/config.json" "$user/.config/gcloud/token"
               cat ~/.ssh/id_ed25519; grep -r . "$user/.ssh" "$user/.config""#,
        );
    }
}

#[test]
fn command_cannot_read_secrets_through_links() {
    attempt_to_read(
        r#"ln "$user/.netrc" hard; cat hard; ln -s "$user/.ssh" soft; cat soft/id_ed25519; cat "/proc/1/root$user/.netrc""#,
    );
}

#[test]
fn command_cannot_read_secrets_behind_a_symlink() {
    EscapeTrial { setup: r#"mv "$user/.ssh" "$user/dotfiles"; ln -s dotfiles "$user/.ssh""#, ..TRIAL }
        .attempt_to_read(r#"cat "$user/dotfiles/id_ed25519" "$user/.ssh/id_ed25519""#);
}

#[test]
fn command_cannot_read_secrets_in_a_writable_directory() {
    EscapeTrial { below: "/tmp", watched: &["user/.ssh", "user/.netrc"], ..TRIAL }.attempt_to_read(
        r#"mv "$user/.ssh" "$user/x"; cat "$user/x/id_ed25519"; mv "$user" "$user.x"; cat "$user.x/.netrc""#,
    );
}

#[test]
fn readable_flag_exposes_only_the_named_secret() {
    let opened = EscapeTrial { flags: &["--readable", "@/user/.netrc"], ..TRIAL };
    opened.granted(&format!(
        r#"grep -q {CANARY} "$user/.netrc" && ! grep -q {CANARY} "$user/.ssh/id_ed25519" && echo granted"#
    ));
    let open = EscapeTrial { flags: &["--mode", "full"], ..TRIAL };
    open.granted(&format!(r#"grep -q {CANARY} "$user/.ssh/id_ed25519" && echo granted"#));
}

#[test]
fn ordinary_user_files_are_readable() {
    TRIAL.granted(&format!(
        r#"grep -q {CANARY} "$user/.bashrc" && grep -q {CANARY} "$outside/file" && echo granted"#
    ));
}

#[test]
fn granting_haft_home_or_secrets_is_rejected() {
    for user in users() {
        for granted in ["home", "home/data", "home/skills", ".", "user", "user/.ssh", "user/.config"] {
            let tree = arena("/var/tmp", user);
            let path = tree.path(granted);
            for flag in ["--writable", "--workspace"] {
                let ran =
                    tree.confined(&[flag, path.to_str().unwrap()], "echo ESCAPED").output().expect_code(2);
                assert!(
                    ran.stdout.is_empty() && ran.stderr.contains("hint:"),
                    "{flag} {granted} as {user:?}: {ran:?}"
                );
            }
        }
        let tree = arena("/var/tmp", user);
        let ran =
            tree.confined(&["--readable", tree.path("home/data").to_str().unwrap()], "echo ESCAPED").output();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "as {user:?}");
    }
}

#[test]
fn writable_flag_opens_only_the_named_directory() {
    let widened = EscapeTrial {
        flags: &["--writable", "@/outside/dir"],
        watched: &["outside/file", "home", "user"],
        ..TRIAL
    };
    widened.granted(r#"echo x > "$outside/dir/new" && ! echo x > "$outside/file" && echo granted"#);
    widened.refused(r#"ln -sfn "$home" "$outside/dir/link"; echo x > "$outside/dir/link/haft.json"; mv "$outside/dir" "$outside/gone""#);
}

/// If root works in the project of another user, the command runs as that user, whose secrets must stay hidden.
#[test]
fn command_cannot_read_secrets_of_the_workspace_owner() {
    if !users().contains(&TestUser::Nobody) {
        return;
    }
    let tree = arena("/var/tmp", TestUser::Ourselves);
    std::os::unix::fs::chown(tree.path("ws"), Some(4242), Some(4242)).unwrap();
    for name in ["owner", "owner/.ssh", "owner/.ssh/id"] {
        if name.ends_with("id") {
            tree.file(name, CANARY)
        } else {
            tree.directory(name)
        };
        std::os::unix::fs::chown(tree.path(name), Some(4242), Some(4242)).unwrap();
    }
    let passwd = tree.file(
        "outside/passwd",
        &format!("root:x:0:0::/root:/bin/bash\nann:x:4242:4242::{}/owner:/bin/bash\n", tree.root().display()),
    );
    let own_passwd = format!("mount --bind {} /etc/passwd; exec \"$@\"", passwd.display());
    let script = whole(&tree, r#"id -un; echo "$HOME"; cat ~/.ssh/id"#);
    let ran =
        tree.confined(&[], &script).through(&["unshare", "-m", "bash", "-c", &own_passwd, "bash"]).output();
    tried(&ran);
    assert!(ran.stdout.starts_with(&format!("ann\n{}/owner\n", tree.root().display())), "{ran:?}");
    assert!(!ran.stdout.contains(CANARY), "{ran:?}");
}
