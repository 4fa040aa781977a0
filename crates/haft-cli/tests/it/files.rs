//! The file tools with unexpected objects at a path, and with files that change during a call.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use haft_testkit::{HaftOutput, TestTree, users};
use serde_json::{Value, json};

use super::call::{call, here};
use super::stream::{StdinCallStream, answers};

fn read(place: &TestTree, path: impl AsRef<Path>) -> HaftOutput {
    call(place, "read", &json!({ "file_path": path.as_ref() }))
}

fn write(place: &TestTree, path: impl AsRef<Path>) -> HaftOutput {
    call(place, "write", &json!({ "file_path": path.as_ref(), "content": "overwritten" }))
}

fn edit(place: &TestTree, path: impl AsRef<Path>) -> HaftOutput {
    call(
        place,
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
    let place = here();
    assert!(Command::new("mkfifo").arg(place.path("ws/fifo")).status().unwrap().success());
    for ran in [read(&place, "fifo"), write(&place, "fifo"), edit(&place, "fifo")] {
        check_failed(ran, "it is a FIFO, not a regular file");
    }
}

#[test]
fn file_tools_reject_devices() {
    let place = here();
    check_failed(read(&place, "/dev/zero"), "it is a device, not a regular file");
    check_denied(write(&place, "/dev/zero"), "Write denied: ");
    symlink("/dev/zero", place.path("ws/zero")).unwrap();
    check_failed(read(&place, "zero"), "it is a device, not a regular file");
}

#[test]
fn file_tools_reject_directories() {
    let place = here();
    place.directory("ws/sub");
    for ran in [read(&place, "sub"), write(&place, "sub"), edit(&place, "sub")] {
        check_failed(ran, "it is a directory, not a regular file");
    }
    check_failed(write(&place, "sub/"), "the path names a directory");
    check_failed(write(&place, "."), "the path names a directory");
    place.file("ws/plain", "");
    check_failed(write(&place, "plain/below"), "Not a directory");
}

#[test]
fn environment_of_haft_is_unreadable_through_proc() {
    let place = here();
    symlink("/proc/self/environ", place.path("ws/environ")).unwrap();
    let looks = [
        ("read", json!({ "file_path": "/proc/self/environ" })),
        ("read", json!({ "file_path": "/proc/1/environ" })),
        ("read", json!({ "file_path": "environ" })),
        ("bash", json!({ "command": "cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; env" })),
    ];
    for (tool, arguments) in looks {
        let run = place.haft(&["call", tool, &arguments.to_string()]).env("API_TOKEN", "canary-1234");
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
    let place = here();
    File::create(place.path("ws/huge")).unwrap().set_len(65 << 20).unwrap();
    for ran in [read(&place, "huge"), edit(&place, "huge")] {
        check_failed(ran, "it has 68157440 bytes, more than the 67108864 allowed");
    }
}

#[test]
fn read_truncates_text_at_50000_characters() {
    let place = here();
    place.file("ws/exact", &"ä".repeat(50_000));
    place.file("ws/more", &"ä".repeat(50_001));
    assert_eq!(read(&place, "exact").expect_code(0).stdout, format!("{}\n", "ä".repeat(50_000)));
    let notice = "\n... (output truncated: 50001 total chars, showing first 50000)\nAll of it is stored (100002 bytes, 1 line, ";
    let shown = read(&place, "more").expect_code(0).stdout;
    assert!(shown.starts_with(&format!("{}{notice}", "ä".repeat(50_000))), "{}", &shown[100_000..]);
}

#[test]
fn binary_or_non_utf8_file_is_rejected() {
    let place = here();
    fs::write(place.path("ws/nul"), b"ab\0cd").unwrap();
    fs::write(place.path("ws/latin"), b"caf\xe9").unwrap();
    for tool in [read, edit] {
        check_failed(tool(&place, "nul"), "it is a binary file (NUL byte at 2)");
        check_failed(tool(&place, "latin"), "it is not UTF-8 (invalid byte at 3)");
    }
}

#[test]
fn invalid_paths_are_rejected() {
    let place = here();
    let (long_path, long_name) = ("x/".repeat(3000) + "x", "x".repeat(256));
    for tool in [read, write, edit] {
        check_failed(tool(&place, "a\0b"), "the path contains a NUL byte");
        check_failed(tool(&place, &long_path), "more than the 4095 allowed");
        check_failed(tool(&place, &long_name), "a name in the path has 256 bytes, more than the 255 allowed");
        let empty = tool(&place, "").expect_code(42);
        assert!(empty.stderr.starts_with("error: the path is empty\nhint: "), "{}", empty.stderr);
    }
    assert!(names(&place.path("ws")).is_empty());
}

#[test]
fn relative_paths_resolve_against_the_workspace() {
    let place = here();
    let elsewhere = place.directory("user/elsewhere");
    let workspace = place.path("ws");
    let arguments = json!({ "file_path": "sub/new.txt", "content": "hello" }).to_string();
    let run = place.haft(&["call", "--workspace", workspace.to_str().unwrap(), "write", &arguments]);
    run.in_directory(&elsewhere).output().expect_code(0);
    assert_eq!(place.text("ws/sub/new.txt"), "hello");
    assert_eq!(read(&place, "./sub/../sub/new.txt").expect_code(0).stdout, "hello\n");
    assert!(names(&elsewhere).is_empty());
}

#[test]
fn write_and_edit_preserve_file_mode() {
    let place = here();
    let script = place.file("ws/script.sh", "#!/bin/sh\necho canary\n");
    let mode = |mode: u32| fs::set_permissions(&script, fs::Permissions::from_mode(mode)).unwrap();
    let found = || fs::metadata(&script).unwrap().permissions().mode() & 0o7777;
    mode(0o755);
    edit(&place, "script.sh").expect_code(0);
    assert_eq!(found(), 0o755);
    write(&place, "script.sh").expect_code(0);
    assert_eq!(found(), 0o755);
    mode(0o600);
    write(&place, "script.sh").expect_code(0);
    assert_eq!(found(), 0o600);
}

#[test]
fn file_tools_cannot_write_outside_the_workspace() {
    for user in users() {
        let place = TestTree::new(user);
        let canary = place.file("outside/canary", "canary");
        symlink(&canary, place.path("ws/link")).unwrap();
        symlink(place.path("outside"), place.path("ws/dir")).unwrap();
        let dots = place.path("ws/../outside/canary");
        for path in [
            canary.as_path(),
            Path::new("link"),
            Path::new("dir/canary"),
            &dots,
            Path::new("../outside/canary"),
        ] {
            check_denied(write(&place, path), "Write denied: ");
            check_denied(edit(&place, path), "Write denied: ");
        }
        check_denied(write(&place, "dir/new"), "Write denied: ");
        check_denied(
            write(&place, "/tmp/../etc/haft-test"),
            "Write denied: /tmp/../etc/haft-test is a protected path",
        );
        assert_eq!(place.text("outside/canary"), "canary", "{user:?}");
        assert_eq!(names(&place.path("outside")), ["canary"], "{user:?}");
        assert!(!Path::new("/etc/haft-test").exists());
    }
}

#[test]
fn file_tools_cannot_access_haft_data() {
    for user in users() {
        let place = TestTree::new(user);
        let data = place.file("home/data/tokens", "canary");
        let config = place.file("home/haft.json", "{} // canary");
        symlink(&data, place.path("ws/link")).unwrap();
        for path in
            [&data, &config, Path::new("link"), Path::new("../home/data/tokens"), &place.path("home/data")]
        {
            check_denied(read(&place, path), "Read denied: ");
            check_denied(write(&place, path), "Write denied: ");
        }
        let look = call(&place, "introspect", &json!({ "level": "all", "path": place.path("home") }));
        assert!(!look.stdout.contains("canary"), "{user:?}: {}", look.stdout);
        assert_eq!(
            place.text("home/data/tokens") + &place.text("home/haft.json"),
            "canary{} // canary",
            "{user:?}"
        );
    }
}

#[test]
fn dangling_and_looping_symlinks_do_not_escape() {
    let place = here();
    symlink("loop", place.path("ws/loop")).unwrap();
    for tool in [read, write, edit] {
        check_failed(tool(&place, "loop"), "Too many levels of symbolic links");
    }
    symlink("target", place.path("ws/inside")).unwrap();
    check_failed(read(&place, "inside"), "No such file or directory");
    write(&place, "inside").expect_code(0);
    assert_eq!(place.text("ws/target"), "overwritten");
    assert!(place.path("ws/inside").is_symlink());
    symlink(place.path("outside/new"), place.path("ws/outside")).unwrap();
    check_denied(write(&place, "outside"), "Write denied: ");
    assert!(!place.exists("outside/new"));
}

#[test]
fn edit_without_effect_is_rejected() {
    let place = here();
    place.file("ws/file", "canary");
    let check = |old: &str, new: &str, fragment: &str| {
        let arguments = json!({ "file_path": "file", "old_string": old, "new_string": new });
        check_failed(call(&place, "edit", &arguments), fragment);
        assert_eq!(place.text("ws/file"), "canary");
    };
    check("", "x", "Error: old_string is empty");
    check("canary", "canary", "Error: old_string and new_string are the same");
    check("CANARY", "x", "Error: old_string not found in file");
}

/// The worker process lives on between calls but must not reuse its view of the file.
#[test]
fn file_swapped_for_symlink_between_calls_is_denied() {
    for user in users() {
        let place = TestTree::new(user);
        let canary = place.file("outside/canary", "canary");
        let mut stream = StdinCallStream::start(&place, &["--jobs", "1"]);
        let arguments = json!({ "file_path": "file", "content": "overwritten" });
        stream.send(1, "write", &arguments);
        assert_eq!(stream.answer()["is_error"], false);
        fs::remove_file(place.path("ws/file")).unwrap();
        symlink(&canary, place.path("ws/file")).unwrap();
        stream.send(2, "write", &arguments);
        assert_eq!(stream.answer()["error_kind"], "denied");
        assert_eq!(place.text("outside/canary"), "canary");
    }
}

#[test]
fn concurrent_writes_leave_one_intact_file() {
    const BYTES: usize = 200_000;
    let place = here();
    let content = |id: u8| char::from(b'a' + id).to_string().repeat(BYTES);
    let call = |id: u8| json!({ "id": id, "tool": "write", "args": { "file_path": "file", "content": content(id) } });
    let input = (0..24).map(|id| format!("{}\n", call(id))).collect::<Vec<_>>().concat();
    let answers = answers(&place, &["--jobs", "8"], input);
    assert_eq!(answers.iter().filter(|answer| answer["is_error"] == Value::Bool(false)).count(), 24);
    let found = place.text("ws/file");
    let first = found.chars().next().unwrap();
    assert!(found.len() == BYTES && found.chars().all(|c| c == first), "{} bytes", found.len());
    assert_eq!(names(&place.path("ws")), ["file"]);
}
