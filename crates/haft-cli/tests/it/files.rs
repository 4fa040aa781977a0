//! Tests of the file tools with unexpected objects at a path, and with files that change during a call.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use haft_testkit::{HaftOutput, TestTree, users};
use serde_json::{Value, json};

use super::call::{call, here};
use super::stream::{StdinCallStream, answers};

fn read(tree: &TestTree, path: impl AsRef<Path>) -> HaftOutput {
    call(tree, "read", &json!({ "file_path": path.as_ref() }))
}

fn write(tree: &TestTree, path: impl AsRef<Path>) -> HaftOutput {
    call(tree, "write", &json!({ "file_path": path.as_ref(), "content": "overwritten" }))
}

fn edit(tree: &TestTree, path: impl AsRef<Path>) -> HaftOutput {
    call(
        tree,
        "edit",
        &json!({ "file_path": path.as_ref(), "old_string": "canary", "new_string": "overwritten" }),
    )
}

/// Checks that the tool failed and that its output gives the reason.
#[track_caller]
fn check_failed(ran: HaftOutput, fragment: &str) {
    let ran = ran.expect_code(3);
    assert!(ran.stdout.contains(fragment) && ran.stdout.len() < 1000, "{}", ran.stdout);
}

#[track_caller]
fn check_denied(ran: HaftOutput, label: &str) {
    let ran = ran.expect_code(4);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.starts_with(&format!("error: {label}")), "{}", ran.stderr);
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn file_tools_reject_fifo_without_blocking() {
    let tree = here();
    assert!(Command::new("mkfifo").arg(tree.path("ws/fifo")).status().unwrap().success());
    for ran in [read(&tree, "fifo"), write(&tree, "fifo"), edit(&tree, "fifo")] {
        check_failed(ran, "the path is a FIFO, not a regular file");
    }
}

#[test]
fn file_tools_reject_devices() {
    let tree = here();
    check_failed(read(&tree, "/dev/zero"), "the path is a device, not a regular file");
    check_denied(write(&tree, "/dev/zero"), "Write denied: ");
    symlink("/dev/zero", tree.path("ws/zero")).unwrap();
    check_failed(read(&tree, "zero"), "the path is a device, not a regular file");
}

#[test]
fn file_tools_reject_directories() {
    let tree = here();
    tree.directory("ws/sub");
    for ran in [read(&tree, "sub"), write(&tree, "sub"), edit(&tree, "sub")] {
        check_failed(ran, "the path is a directory, not a regular file");
    }
    check_failed(write(&tree, "sub/"), "the path names a directory");
    check_failed(write(&tree, "."), "the path names a directory");
    tree.file("ws/plain", "");
    check_failed(write(&tree, "plain/below"), "Not a directory");
}

#[test]
fn environment_of_haft_is_unreadable_through_proc() {
    let tree = here();
    symlink("/proc/self/environ", tree.path("ws/environ")).unwrap();
    let looks = [
        ("read", json!({ "file_path": "/proc/self/environ" })),
        ("read", json!({ "file_path": "/proc/1/environ" })),
        ("read", json!({ "file_path": "environ" })),
        ("bash", json!({ "command": "cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; env" })),
    ];
    for (tool, arguments) in looks {
        let run = tree.haft(&["call", tool, &arguments.to_string()]).env("API_TOKEN", "canary-1234");
        let ran = run.output();
        assert!(
            !ran.stdout.contains("canary") && !ran.stderr.contains("canary"),
            "{arguments}: {}",
            ran.stdout
        );
        assert!(!ran.stdout.contains("API_TOKEN"), "{arguments}: {}", ran.stdout);
    }
}

#[test]
fn file_over_size_limit_is_rejected() {
    let tree = here();
    File::create(tree.path("ws/huge")).unwrap().set_len(65 << 20).unwrap();
    for ran in [read(&tree, "huge"), edit(&tree, "huge")] {
        check_failed(ran, "the file has 68157440 bytes, more than the 67108864 allowed");
    }
}

#[test]
fn read_truncates_text_at_50000_characters() {
    let tree = here();
    tree.file("ws/exact", &"ä".repeat(50_000));
    tree.file("ws/more", &"ä".repeat(50_001));
    assert_eq!(read(&tree, "exact").expect_code(0).stdout, format!("{}\n", "ä".repeat(50_000)));
    let notice = "\n... (output truncated: 50001 total chars, showing first 50000)\nAll of it is stored (100002 bytes, 1 line, ";
    let shown = read(&tree, "more").expect_code(0).stdout;
    assert!(shown.starts_with(&format!("{}{notice}", "ä".repeat(50_000))), "{}", &shown[100_000..]);
}

#[test]
fn binary_or_non_utf8_file_is_rejected() {
    let tree = here();
    fs::write(tree.path("ws/nul"), b"ab\0cd").unwrap();
    fs::write(tree.path("ws/latin"), b"caf\xe9").unwrap();
    for tool in [read, edit] {
        check_failed(tool(&tree, "nul"), "the file is binary (NUL byte at 2)");
        check_failed(tool(&tree, "latin"), "the file is not UTF-8 (invalid byte at 3)");
    }
}

#[test]
fn invalid_paths_are_rejected() {
    let tree = here();
    let (long_path, long_name) = ("x/".repeat(3000) + "x", "x".repeat(256));
    for tool in [read, write, edit] {
        check_failed(tool(&tree, "a\0b"), "the path contains a NUL byte");
        check_failed(tool(&tree, &long_path), "the limit is 4095");
        check_failed(tool(&tree, &long_name), "a name in the path has 256 bytes; the limit is 255");
        let empty = tool(&tree, "").expect_code(42);
        assert!(empty.stderr.starts_with("error: the path is empty\nhint: "), "{}", empty.stderr);
    }
    assert!(names(&tree.path("ws")).is_empty());
}

#[test]
fn relative_paths_resolve_against_the_workspace() {
    let tree = here();
    let elsewhere = tree.directory("user/elsewhere");
    let workspace = tree.path("ws");
    let arguments = json!({ "file_path": "sub/new.txt", "content": "hello" }).to_string();
    let run = tree.haft(&["call", "--workspace", workspace.to_str().unwrap(), "write", &arguments]);
    run.in_directory(&elsewhere).output().expect_code(0);
    assert_eq!(tree.text("ws/sub/new.txt"), "hello");
    assert_eq!(read(&tree, "./sub/../sub/new.txt").expect_code(0).stdout, "hello\n");
    assert!(names(&elsewhere).is_empty());
}

#[test]
fn write_and_edit_preserve_file_mode() {
    let tree = here();
    let script = tree.file("ws/script.sh", "#!/bin/sh\necho canary\n");
    let mode = |mode: u32| fs::set_permissions(&script, fs::Permissions::from_mode(mode)).unwrap();
    let found = || fs::metadata(&script).unwrap().permissions().mode() & 0o7777;
    mode(0o755);
    edit(&tree, "script.sh").expect_code(0);
    assert_eq!(found(), 0o755);
    write(&tree, "script.sh").expect_code(0);
    assert_eq!(found(), 0o755);
    mode(0o600);
    write(&tree, "script.sh").expect_code(0);
    assert_eq!(found(), 0o600);
}

#[test]
fn file_tools_cannot_write_outside_the_workspace() {
    for user in users() {
        let tree = TestTree::new(user);
        let canary = tree.file("outside/canary", "canary");
        symlink(&canary, tree.path("ws/link")).unwrap();
        symlink(tree.path("outside"), tree.path("ws/dir")).unwrap();
        let dots = tree.path("ws/../outside/canary");
        for path in [
            canary.as_path(),
            Path::new("link"),
            Path::new("dir/canary"),
            &dots,
            Path::new("../outside/canary"),
        ] {
            check_denied(write(&tree, path), "Write denied: ");
            check_denied(edit(&tree, path), "Write denied: ");
        }
        check_denied(write(&tree, "dir/new"), "Write denied: ");
        check_denied(
            write(&tree, "/tmp/../etc/haft-test"),
            "Write denied: /tmp/../etc/haft-test is a protected path",
        );
        assert_eq!(tree.text("outside/canary"), "canary", "{user:?}");
        assert_eq!(names(&tree.path("outside")), ["canary"], "{user:?}");
        assert!(!Path::new("/etc/haft-test").exists());
    }
}

#[test]
fn file_tools_cannot_access_haft_data() {
    for user in users() {
        let tree = TestTree::new(user);
        let data = tree.file("home/data/tokens", "canary");
        let config = tree.file("home/haft.json", "{} // canary");
        symlink(&data, tree.path("ws/link")).unwrap();
        for path in
            [&data, &config, Path::new("link"), Path::new("../home/data/tokens"), &tree.path("home/data")]
        {
            check_denied(read(&tree, path), "Read denied: ");
            check_denied(write(&tree, path), "Write denied: ");
        }
        let look = call(&tree, "introspect", &json!({ "level": "all", "path": tree.path("home") }));
        assert!(!look.stdout.contains("canary"), "{user:?}: {}", look.stdout);
        assert_eq!(
            tree.text("home/data/tokens") + &tree.text("home/haft.json"),
            "canary{} // canary",
            "{user:?}"
        );
    }
}

#[test]
fn dangling_and_looping_symlinks_do_not_escape() {
    let tree = here();
    symlink("loop", tree.path("ws/loop")).unwrap();
    for tool in [read, write, edit] {
        check_failed(tool(&tree, "loop"), "Too many levels of symbolic links");
    }
    symlink("target", tree.path("ws/inside")).unwrap();
    check_failed(read(&tree, "inside"), "No such file or directory");
    write(&tree, "inside").expect_code(0);
    assert_eq!(tree.text("ws/target"), "overwritten");
    assert!(tree.path("ws/inside").is_symlink());
    symlink(tree.path("outside/new"), tree.path("ws/outside")).unwrap();
    check_denied(write(&tree, "outside"), "Write denied: ");
    assert!(!tree.exists("outside/new"));
}

#[test]
fn edit_without_effect_is_rejected() {
    let tree = here();
    tree.file("ws/file", "canary");
    let check = |old: &str, new: &str, fragment: &str| {
        let arguments = json!({ "file_path": "file", "old_string": old, "new_string": new });
        check_failed(call(&tree, "edit", &arguments), fragment);
        assert_eq!(tree.text("ws/file"), "canary");
    };
    check("", "x", "Error: old_string is empty");
    check("canary", "canary", "Error: old_string and new_string are the same");
    check("CANARY", "x", "Error: old_string not found in file");
}

/// The worker process continues to run between calls, but must not reuse its view of the file.
#[test]
fn file_swapped_for_symlink_between_calls_is_denied() {
    for user in users() {
        let tree = TestTree::new(user);
        let canary = tree.file("outside/canary", "canary");
        let mut stream = StdinCallStream::start(&tree, &["--jobs", "1"]);
        let arguments = json!({ "file_path": "file", "content": "overwritten" });
        stream.send(1, "write", &arguments);
        assert_eq!(stream.answer()["is_error"], false);
        fs::remove_file(tree.path("ws/file")).unwrap();
        symlink(&canary, tree.path("ws/file")).unwrap();
        stream.send(2, "write", &arguments);
        assert_eq!(stream.answer()["error_kind"], "denied");
        assert_eq!(tree.text("outside/canary"), "canary");
    }
}

#[test]
fn concurrent_writes_leave_one_intact_file() {
    const BYTES: usize = 200_000;
    let tree = here();
    let content = |id: u8| char::from(b'a' + id).to_string().repeat(BYTES);
    let call = |id: u8| json!({ "id": id, "tool": "write", "args": { "file_path": "file", "content": content(id) } });
    let input = (0..24).map(|id| format!("{}\n", call(id))).collect::<Vec<_>>().concat();
    let answers = answers(&tree, &["--jobs", "8"], input);
    assert_eq!(answers.iter().filter(|answer| answer["is_error"] == Value::Bool(false)).count(), 24);
    let found = tree.text("ws/file");
    let first = found.chars().next().unwrap();
    assert!(found.len() == BYTES && found.chars().all(|c| c == first), "{} bytes", found.len());
    assert_eq!(names(&tree.path("ws")), ["file"]);
}
