//! Tests of the command line itself: help, exit codes, doctor, tools, completions, home.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use haft_cli::ExitReason;
use haft_testkit::{HaftOutput, TestTree};
use serde_json::Value;

use super::call::here;

const SUBCOMMANDS: [&str; 6] = ["call", "tools", "sandbox", "doctor", "completions", "approvals"];

fn haft(words: &[&str]) -> HaftOutput {
    here().haft(words).output()
}

fn json(ran: &HaftOutput) -> Value {
    serde_json::from_str(&ran.stdout).unwrap()
}

/// Runs haft with exactly these environment variables and PATH.
fn haft_with(tree: &TestTree, variables: &[(&str, &Path)], words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haft"));
    command.args(words).env_clear().env("PATH", "/usr/bin:/bin").envs(variables.iter().copied());
    command.current_dir(tree.path("ws")).output().unwrap()
}

#[test]
fn every_subcommand_help_has_an_example() {
    for subcommand in SUBCOMMANDS {
        let help = haft(&[subcommand, "--help"]).expect_code(0).stdout;
        assert!(help.contains("Example") && help.contains(&format!("\n  haft {subcommand}")), "{help}");
        assert!(help.contains("Usage: haft"), "{help}");
    }
    let help = haft(&["--help"]).expect_code(0).stdout;
    for subcommand in SUBCOMMANDS {
        assert!(help.contains(&format!("\n  {subcommand} ")), "{help}");
    }
    assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
}

#[test]
fn missing_subcommand_prints_help_to_stderr_and_exits_2() {
    let ran = haft(&[]).expect_code(2);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains("Usage: haft") && ran.stderr.contains("Examples:"), "{}", ran.stderr);
}

#[test]
fn version_flag_prints_version() {
    for flag in ["--version", "-V"] {
        assert_eq!(haft(&[flag]).expect_code(0).stdout, format!("haft {}\n", env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn command_line_errors_suggest_a_fix() {
    let check = |words: &[&str], fragments: &[&str]| {
        let ran = haft(words).expect_code(2);
        assert_eq!(ran.stdout, "", "{words:?}");
        for fragment in fragments {
            assert!(ran.stderr.contains(fragment), "{words:?}: {}", ran.stderr);
        }
    };
    let more = "try '--help'";
    check(&["cal"], &["unrecognized subcommand 'cal'", "'call'", more]);
    check(&["call", "--jsn", "bash"], &["unexpected argument '--jsn'", "'--json'", more]);
    check(&["call"], &["<TOOL>", more]);
    check(
        &["call", "--mode", "free", "bash"],
        &["mode must be workspace, network or full; got `free`", more],
    );
    check(&["call", "--timeout", "soon", "bash"], &["such as 90s, 1500ms or 2m; got `soon`", more]);
    check(&["call", "--timeout", "0s", "bash"], &["got `0s`", more]);
    check(&["call", "--network", "maybe", "bash"], &["possible values: allow, deny", more]);
    check(
        &["call", "--limit", "speed=1", "bash"],
        &["unknown resource limit `speed`; expected one of processes", more],
    );
    check(&["call", "--limit", "processes=100", "bash"], &["limit `processes` must be at least 301", more]);
    check(&["call", "--stdin", "bash"], &["cannot be used with", more]);
    check(&["call", "--jobs", "2", "bash"], &["'--jobs <N>' cannot be used with", more]);
    check(&["call", "--ordered", "bash"], &["'--ordered' cannot be used with", more]);
    check(&["call", "--ordered"], &["<TOOL>", more]);
    check(&["call", "--stdin", "--jobs", "0"], &["0 is not in 1..=1024", more]);
    check(&["sandbox", "true"], &["haft sandbox [OPTIONS] -- <CMD>", more]);
    check(&["completions", "tcsh"], &["possible values: bash", more]);
    check(
        &["call", "--workspace", "/nonexistent", "bash"],
        &["`/nonexistent` does not exist", "hint: create the directory"],
    );
    check(
        &["call", "--writable", "/", "bash"],
        &["haft cannot grant access to `/`, the whole file system", "hint: "],
    );
}

#[test]
fn workspace_containing_haft_home_is_rejected() {
    let tree = here();
    let ran = tree
        .haft(&["call", "--workspace", tree.root().to_str().unwrap(), "bash", "{}"])
        .output()
        .expect_code(2);
    assert!(
        ran.stderr.contains("would expose haft's own home") && ran.stderr.contains("hint: "),
        "{}",
        ran.stderr
    );
}

#[test]
fn exit_codes_match_documentation() {
    let document =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-codes.md")).unwrap();
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = document.lines().map(cells).filter(|cells| cells.len() == 4 && cells[1].parse::<u8>().is_ok());
    let documented: Vec<(u8, String)> =
        rows.map(|cells| (cells[1].parse().unwrap(), cells[2].clone())).collect();
    let actual = ExitReason::ALL.map(|exit| (exit.row().0, exit.row().1.to_owned()));
    assert_eq!(documented, actual);
    let help = haft(&["--help"]).stdout;
    let (_, codes) = help.split_once("Exit codes:").unwrap();
    let words: Vec<&str> = codes.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    assert!(ExitReason::ALL.iter().all(|exit| words.contains(&exit.row().0.to_string().as_str())), "{codes}");
}

#[test]
fn doctor_reports_kernel_sandbox_and_config() {
    let tree = here();
    tree.file("home/haft.json", "{}");
    let text = tree.haft(&["doctor"]).output().expect_code(0).stdout;
    for fragment in [
        "kernel ",
        "Landlock ABI ",
        "workspace mode, level ",
        "seccomp",
        "haft.json (found)",
        "haft.json (does not exist)",
    ] {
        assert!(text.contains(fragment), "no `{fragment}` in {text}");
    }
    let found = json(&tree.haft(&["doctor", "--json", "--mode", "network"]).output().expect_code(0));
    assert!(!found["system"]["kernel"].as_str().unwrap().is_empty());
    assert!(found["system"]["landlock_abi"].as_i64().unwrap() >= 1);
    assert_eq!((&found["sandbox"]["mode"], &found["sandbox"]["works"]), (&"network".into(), &true.into()));
    assert_eq!(found["home"], tree.path("home").to_str().unwrap());
    assert_eq!(found["workspace"], tree.path("ws").to_str().unwrap());
    assert_eq!(found["config"].as_array().unwrap().len(), 2);
    let has_mounts = found["sandbox"]["level"] != "landlock";
    let names_race = found["sandbox"]["limits"].to_string().contains("another program replaces");
    assert_eq!(names_race, has_mounts, "{found}");
    let layers = found["sandbox"]["layers"].as_array().unwrap();
    for name in ["landlock", "seccomp"] {
        let layer = layers.iter().find(|layer| layer["name"] == name).unwrap();
        assert!(layer["active"] == true && layer["detail"].is_string(), "{layer}");
    }
}

#[test]
fn doctor_reports_why_workspace_is_unusable() {
    let tree = here();
    let file = tree.file("outside/file", "");
    for (workspace, why) in [
        ("/nonexistent", "does not exist"),
        ("/", "whole file system"),
        (file.to_str().unwrap(), "not a directory"),
    ] {
        let text = tree.haft(&["doctor", "--workspace", workspace]).output().expect_code(5).stdout;
        assert!(text.contains("does not work") && text.contains(why), "{text}");
        let found = json(&tree.haft(&["doctor", "--json", "--workspace", workspace]).output().expect_code(5));
        assert_eq!(found["sandbox"]["works"], false);
        assert!(found["sandbox"]["reason"].as_str().unwrap().contains(why), "{found}");
    }
}

#[test]
fn tools_are_listed_as_table_json_and_schema() {
    let names = ["bash", "read", "write", "edit", "current_date", "introspect"];
    let table = haft(&["tools"]).expect_code(0).stdout;
    let first_words: Vec<&str> = table.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(first_words, [["NAME"].as_slice(), &names].concat());
    let list = json(&haft(&["tools", "--json"]).expect_code(0));
    let listed: Vec<&str> =
        list.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(listed, names);
    assert_eq!(list[0]["input_schema"]["required"], serde_json::json!(["command"]));
    let schemas = haft(&["tools", "--schema"]).expect_code(0).stdout;
    assert!(
        names.iter().all(|name| schemas.contains(name)) && schemas.contains("\"old_string\""),
        "{schemas}"
    );
    let one = haft(&["tools", "Bash", "--schema"]).expect_code(0).stdout;
    assert!(one.starts_with("bash\n") && one.contains("\"command\"") && !one.contains("old_string"), "{one}");
    let unknown = haft(&["tools", "bahs"]).expect_code(42);
    assert!(unknown.stderr.contains("Unknown tool: bahs\nhint: "), "{}", unknown.stderr);
}

#[test]
fn completions_are_valid_scripts_for_each_shell() {
    let script = |shell: &str| haft(&["completions", shell]).expect_code(0).stdout;
    let bash = script("bash");
    let mut check = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(bash.as_bytes()).unwrap();
    assert!(check.wait().unwrap().success());
    assert!(script("zsh").starts_with("#compdef haft"));
    assert!(script("fish").contains("complete -c haft"));
    for shell in ["bash", "zsh", "fish"] {
        let script = script(shell);
        assert!(SUBCOMMANDS.iter().all(|subcommand| script.contains(subcommand)), "{shell}");
    }
}

#[test]
fn sandbox_returns_exit_code_of_its_command() {
    let check = |script: &str, code: i32| haft(&["sandbox", "--", "bash", "-c", script]).expect_code(code);
    assert_eq!(check("echo out; echo err >&2", 0).stdout, "out\n");
    assert_eq!(check("echo out; echo err >&2", 0).stderr, "err\n");
    check("exit 77", 77);
    check("kill -TERM $$", 143);
    let missing = haft(&["sandbox", "--", "no-such-command"]).expect_code(127);
    assert!(
        missing.stderr.contains("haft could not start `no-such-command`")
            && missing.stderr.contains("hint: ")
    );
}

#[test]
fn haft_home_is_created_with_mode_0700() {
    let tree = here();
    let home = tree.path("user/deep/home");
    let run = tree.haft(&["call", "bash", r#"{"command":"true"}"#]).env("HAFT_HOME", home.to_str().unwrap());
    run.output().expect_code(0);
    for directory in [home.clone(), home.join("data")] {
        assert_eq!(
            fs::metadata(&directory).unwrap().permissions().mode() & 0o7777,
            0o700,
            "{}",
            directory.display()
        );
    }
    let found = json(
        &tree.haft(&["doctor", "--json"]).env("HAFT_HOME", home.to_str().unwrap()).output().expect_code(0),
    );
    assert_eq!(found["home"], home.to_str().unwrap());
}

#[test]
fn haft_home_defaults_to_dot_haft_in_user_home() {
    let tree = here();
    let (home, user) = (tree.path("home"), tree.path("user"));
    let doctor = |variables: &[(&str, &Path)]| {
        let output = haft_with(&tree, variables, &["doctor", "--json"]);
        assert!(output.status.success(), "{variables:?}: {output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["home"].as_str().unwrap().to_owned()
    };
    assert_eq!(doctor(&[("HAFT_HOME", &home)]), home.to_str().unwrap());
    assert_eq!(doctor(&[("HOME", &user)]), user.join(".haft").to_str().unwrap());
    assert_eq!(
        doctor(&[("HOME", &user), ("HAFT_HOME", Path::new(""))]),
        user.join(".haft").to_str().unwrap()
    );
}

#[test]
fn unusable_haft_home_is_an_error_with_hint() {
    let tree = here();
    let file = tree.file("outside/file", "");
    let run = tree.haft(&["call", "bash", r#"{"command":"true"}"#]).env("HAFT_HOME", file.to_str().unwrap());
    let ran = run.output().expect_code(1);
    assert!(
        ran.stderr.contains("haft cannot use its home directory")
            && ran.stderr.contains("hint: set HAFT_HOME"),
        "{}",
        ran.stderr
    );
}

#[test]
fn closed_stdout_prints_no_error() {
    let tree = here();
    let mut child = tree.haft(&["tools", "--schema"]).start();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 141)), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn timeout_without_a_unit_is_in_seconds() {
    let tree = here();
    let sleeps = r#"{"command": "sleep 0.2; echo done"}"#;
    let ran = tree.haft(&["call", "--timeout", "10", "bash", sleeps]).output().expect_code(0);
    assert_eq!(ran.stdout, "done\n");
    tree.haft(&["call", "--timeout", "0.1", "bash", sleeps]).output().expect_code(124);
    for command in ["call", "run", "stats"] {
        let help = tree.haft(&[command, "--help"]).output().expect_code(0).stdout;
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("a plain number is seconds"), "{command}: {help}");
    }
}
