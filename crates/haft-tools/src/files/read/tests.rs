//! Tests of `read`: exact content, and refusals without blocking.

use std::fs::File;

use proptest::prelude::*;

use super::*;
use crate::files::fixture::{FileFixture, without_capabilities};
use crate::files::protocol::FileErrorKind;
use crate::files::text_file::READ_FILE_BYTES_MAX;

/// A number of bytes that is larger than any file in these tests.
const WANTED: usize = 1 << 20;

#[track_caller]
fn check_error(path: &str, expected: &str) {
    let error = read(path, None, None, WANTED).unwrap_err();
    assert!(error.message.starts_with("Error reading "), "{}", error.message);
    assert!(error.message.contains(expected), "{}", error.message);
    assert_eq!(error.kind, FileErrorKind::Failed);
}

#[track_caller]
fn check_exact(content: &str) {
    let fixture = FileFixture::new();
    assert_eq!(read(&fixture.file("f", content), None, None, WANTED), Ok(content.to_owned().into()));
}

#[test]
fn read_returns_the_content_unchanged() {
    check_exact("");
    check_exact("\n");
    check_exact("no newline at the end");
    check_exact("a\r\nb\r\n");
    check_exact("\u{feff}mark, tab\t, ä, \u{1F600}, escape \u{1b}[0m\n");
}

#[test]
fn read_refuses_special_files_and_directories() {
    let fixture = FileFixture::new();
    check_error(&fixture.fifo("fifo"), "the path is a FIFO");
    check_error(&fixture.socket("socket"), "the path is a socket");
    check_error(&fixture.directory("directory"), "the path is a directory");
    check_error(&fixture.link("to-fifo", "fifo"), "the path is a FIFO");
    check_error("/dev/zero", "the path is a device");
    check_error("/dev/null", "the path is a device");
}

#[test]
fn read_rejects_missing_and_invalid_paths() {
    let fixture = FileFixture::new();
    let file = fixture.file("file", "x");
    check_error(&fixture.path("missing"), "No such file or directory (os error 2)");
    check_error(&fixture.link("dangling", "nowhere"), "No such file or directory");
    check_error(&fixture.link("loop", "loop"), "Too many levels of symbolic links");
    check_error(&format!("{file}/x"), "Not a directory");
    check_error(&format!("{file}/"), "Not a directory");
    check_error("", "the path is empty");
    check_error("relative", "must be absolute");
    check_error("/a\0b", "NUL byte");
    check_error(&"/x".repeat(2500), "the path has 5000 bytes");
}

#[test]
fn read_refuses_a_file_over_the_size_limit() {
    let fixture = FileFixture::new();
    let path = fixture.file("sparse", "");
    File::options().write(true).open(&path).unwrap().set_len(READ_FILE_BYTES_MAX + 1024 * 1024).unwrap();
    check_error(
        &path,
        "the file has 68157440 bytes, more than the 67108864 allowed; use bash with head, tail or sed",
    );
}

#[test]
fn binary_or_non_utf8_file_is_refused_with_the_offset() {
    let fixture = FileFixture::new();
    check_error(&fixture.file("nul", b"ab\0cd"), "the file is binary (NUL byte at 2)");
    let late = [vec![b'x'; 20_000], vec![0]].concat();
    check_error(&fixture.file("late-nul", late), "NUL byte at 20000");
    check_error(&fixture.file("latin1", b"caf\xe9"), "the file is not UTF-8 (invalid byte at 3)");
    check_error(&fixture.file("utf16", b"\xff\xfea\0b\0"), "starts like UTF-16");
    let split = [vec![b'x'; 8 * 1024 - 1], "ä".into()].concat();
    assert!(
        read(&fixture.file("split", split), None, None, WANTED).is_ok(),
        "a character may cross the end of the checked bytes"
    );
}

#[test]
fn proc_files_without_a_size_are_read() {
    let status = read("/proc/self/status", None, Some(1), WANTED).unwrap().text;
    assert!(status.starts_with("Name:"), "{status}");
}

#[test]
fn read_of_a_file_without_permission_is_denied() {
    let fixture = FileFixture::new();
    let path = fixture.file("f", "secret");
    fixture.set_mode("f", 0o000);
    let error = without_capabilities(|| read(&path, None, None, WANTED)).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::Denied);
    assert_eq!(error.message, format!("Error reading {path}: Permission denied (os error 13)"));
}

#[test]
fn long_file_is_truncated_and_the_rest_counted() {
    let fixture = FileFixture::new();
    let text = read(&fixture.file("f", "ä".repeat(10)), None, None, 5).unwrap();
    assert_eq!(text, FileText { text: "ää".into(), chars_beyond: 8, image: None });
}

#[track_caller]
fn check_lines(offset: Option<u64>, limit: Option<u64>, expected: Result<&str, &str>) {
    let selected = select_lines("one\ntwo\r\nthree", offset, limit);
    assert_eq!(selected, expected.map_err(str::to_owned));
}

#[test]
fn offset_and_limit_select_lines() {
    check_lines(None, None, Ok("one\ntwo\r\nthree"));
    check_lines(Some(1), Some(1), Ok("one\n"));
    check_lines(Some(2), Some(1), Ok("two\r\n"));
    check_lines(Some(2), None, Ok("two\r\nthree"));
    check_lines(Some(3), Some(9), Ok("three"));
    check_lines(None, Some(u64::MAX), Ok("one\ntwo\r\nthree"));
    check_lines(Some(4), None, Err("`offset` 4 is beyond the end: the file has 3 line(s)"));
    check_lines(
        Some(u64::MAX),
        None,
        Err(&format!("`offset` {} is beyond the end: the file has 3 line(s)", u64::MAX)),
    );
    check_lines(Some(0), None, Err("`offset` is the number of the first line and starts at 1; got 0"));
    check_lines(None, Some(0), Err("`limit` is a number of lines and must be at least 1; got 0"));
}

#[test]
fn final_newline_does_not_start_another_line() {
    assert_eq!(
        select_lines("one\n", Some(2), None),
        Err("`offset` 2 is beyond the end: the file has 1 line(s)".into())
    );
    assert_eq!(select_lines("", Some(1), Some(5)), Ok(""));
    assert_eq!(select_lines("\n\n", Some(2), None), Ok("\n"));
}

proptest! {
    #[test]
    fn reading_the_first_lines_and_then_the_rest_returns_the_whole_text(text in "[a\\n\\rä]{1,40}", at in 1u64..10) {
        let head = select_lines(&text, None, Some(at)).unwrap();
        let tail = select_lines(&text, Some(at + 1), None).unwrap_or("");
        prop_assert_eq!(format!("{head}{tail}"), text);
    }
}
