//! Tests of every path on the list of secrets in every mode and at every sandbox level, for commands, file tools and
//! MCP servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use haft_sandbox::default_secrets;
use haft_testkit::{TestTree, TestUser, WITHOUT_NAMESPACES, users};
use serde_json::json;

use super::{EscapeTrial, TRIAL, tried};

/// The content of every listed secret.
const SECRET: &str = "secret-81c4";

/// Creates each listed secret as a file, or as a directory with a file if the test directory has a directory at that
/// path.
fn with_secrets(tree: &TestTree) -> Vec<PathBuf> {
    let root = tree.path("user");
    let file = |secret: &PathBuf| {
        let path = if secret.is_dir() { secret.join("inner") } else { secret.clone() };
        tree.file(path.strip_prefix(tree.root()).unwrap().to_str().unwrap(), SECRET)
    };
    default_secrets(&root).iter().map(file).collect()
}

#[test]
fn every_listed_secret_is_hidden_except_in_full_mode() {
    for user in users() {
        for (mode, wrapper) in [
            ("workspace", &[][..]),
            ("network", &[]),
            ("full", &[]),
            ("workspace", WITHOUT_NAMESPACES),
            ("network", WITHOUT_NAMESPACES),
        ] {
            let trial = EscapeTrial { flags: &["--mode", mode], wrapper, ..TRIAL };
            let tree = trial.arena(user);
            let secrets = with_secrets(&tree);
            let script = format!(r#"grep -rl {SECRET} "$user" | sort | uniq | wc -l"#);
            let ran = trial.run_in(&tree, &script).output();
            tried(&ran);
            let found: usize = ran.stdout.lines().next().unwrap().trim().parse().unwrap();
            let expected = if mode == "full" { secrets.len() } else { 0 };
            assert_eq!(found, expected, "{mode} as {user:?} {wrapper:?}: {ran:?}");
        }
    }
}

#[test]
fn read_tool_refuses_every_listed_secret() {
    let tree = TRIAL.arena(TestUser::Ourselves);
    let calls: Vec<String> = with_secrets(&tree)
        .iter()
        .map(|path| format!("{}\n", json!({"tool": "read", "args": {"file_path": path}})))
        .collect();
    let ran = tree.haft(&["call", "--stdin"]).stdin(calls.concat()).output();
    assert_eq!(ran.stdout.matches("is a protected path").count(), calls.len(), "{ran:?}");
    assert!(!ran.stdout.contains(SECRET), "{ran:?}");
}

/// CI jobs and containers run as root, which can read these files.
#[test]
fn passwords_of_the_machine_are_hidden_from_root() {
    let root = users().contains(&TestUser::Nobody);
    assert!(!root || Path::new("/etc/shadow").exists());
    for wrapper in [&[][..], WITHOUT_NAMESPACES] {
        for mode in ["workspace", "network"] {
            let trial = EscapeTrial { flags: &["--mode", mode], wrapper, ..TRIAL };
            trial.refused(
                "cat /etc/shadow /etc/gshadow | grep : && echo ESCAPED; head -c1 /etc/passwd > /dev/null",
            );
        }
    }
    let tree = TRIAL.arena(TestUser::Ourselves);
    let ran = tree.haft(&["call", "read", r#"{"file_path":"/etc/shadow"}"#]).output();
    assert!(root == ran.stderr.contains("is a protected path") && ran.stdout.is_empty(), "{ran:?}");
}

/// Also tests a file inside the workspace, which is never on the built-in list.
#[test]
fn path_in_the_secrets_setting_is_hidden() {
    for user in users() {
        for wrapper in [&[][..], WITHOUT_NAMESPACES] {
            let trial = EscapeTrial { wrapper, ..TRIAL };
            let tree = trial.arena(user);
            tree.file("ws/.env", SECRET);
            tree.file("outside/vault/key", SECRET);
            let secrets = [tree.path("ws/.env"), tree.path("outside/vault")];
            tree.file("home/haft.json", &json!({"sandbox": {"secrets": secrets}}).to_string());
            let script = r#"cat .env "$outside/vault/key"; mv .env x && cat x; echo x > .env; cat own"#;
            let ran = trial.run_in(&tree, script).output();
            tried(&ran);
            assert!(!ran.stdout.contains(SECRET) && ran.stdout.starts_with("own"), "as {user:?}: {ran:?}");
            assert_eq!(tree.text("ws/.env"), SECRET, "as {user:?}: {ran:?}");
        }
    }
    let tree = TRIAL.arena(TestUser::Ourselves);
    let above = json!({"sandbox": {"secrets": [tree.root()]}});
    tree.file("home/haft.json", &above.to_string());
    let ran = tree.confined(&[], "echo ESCAPED").output().expect_code(2);
    assert!(ran.stdout.is_empty() && ran.stderr.contains("would expose"), "{ran:?}");
}

#[test]
fn mcp_servers_cannot_read_secrets() {
    let tree = TRIAL.arena(TestUser::Ourselves);
    let secrets = with_secrets(&tree);
    let own = tree.file("outside/vault", SECRET);
    let server = tree.misbehaving_server("reads", &[]);
    let config = format!(
        r#"{{"sandbox": {{"secrets": [{own:?}]}}, "mcpServers": {{"s": {{{server}}}, "open": {{{server}, "sandbox": false}}}}}}"#
    );
    tree.file("home/haft.json", &config);
    let readable = tree.path("user/.bashrc");
    let of_machine =
        if users().contains(&TestUser::Nobody) { Some(PathBuf::from("/etc/shadow")) } else { None };
    let paths = secrets.iter().chain([&own]).chain(&of_machine).chain([&readable]);
    let call = |tool: &str, path: &PathBuf| format!("{}\n", json!({"tool": tool, "args": {"path": path}}));
    let calls: Vec<String> = paths.map(|path| call("s__echo", path)).collect();
    let ran = tree.haft(&["call", "--stdin"]).stdin(calls.concat()).output();
    assert!(!ran.stdout.contains(SECRET), "{ran:?}");
    assert_eq!(ran.stdout.matches("ermission denied").count(), calls.len() - 1, "{ran:?}");
    assert_eq!(ran.stdout.matches(super::CANARY).count(), 1, "{ran:?}");
    let ran = tree.haft(&["call", "--stdin"]).stdin(call("open__echo", &secrets[0])).output();
    assert!(ran.stdout.contains(SECRET), "a server without a sandbox can read the secret: {ran:?}");
}

/// A listed path that does not exist when the command starts is hidden as soon as it appears.
#[test]
fn secret_that_appears_while_the_command_runs_is_hidden() {
    for user in users() {
        let trial = EscapeTrial { setup: r#"mkfifo "$ws/go"; rm -r "$user/.ssh""#, ..TRIAL };
        let tree = trial.arena(user);
        let mut child = trial
            .run_in(
                &tree,
                r#"echo ready; read -r _ < go; cat "$user/.ssh/later" "$user/.pgpass" "$user/.netrc""#,
            )
            .start();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        tree.file("user/.ssh/later", SECRET);
        tree.file("user/.pgpass", SECRET);
        tree.file("user/next", SECRET);
        std::fs::rename(tree.path("user/next"), tree.path("user/.netrc")).unwrap();
        std::fs::OpenOptions::new().write(true).open(tree.path("ws/go")).unwrap().write_all(b"go\n").unwrap();
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        child.wait().unwrap();
        assert!(rest.ends_with("tried\n") && !rest.contains(SECRET), "as {user:?}: {rest}");
    }
}
