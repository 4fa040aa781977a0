//! Tests of `edit`.

use std::fs::File;

use super::*;
use crate::files::fixture::{FileFixture, without_capabilities};
use crate::files::protocol::FileErrorKind;
use crate::files::text_file::READ_FILE_BYTES_MAX;

fn first<'a>(old: &'a str, new: &'a str) -> TextReplacement<'a> {
    TextReplacement { old, new, occurrences: Occurrences::First }
}

fn all<'a>(old: &'a str, new: &'a str) -> TextReplacement<'a> {
    TextReplacement { old, new, occurrences: Occurrences::All }
}

#[track_caller]
fn check(text: &str, replacement: TextReplacement<'_>, expected: &str, count: usize) {
    assert_eq!(apply(text, replacement), Ok(EditedText { text: expected.to_owned(), count }));
}

#[test]
fn edit_replaces_the_first_or_all_occurrences() {
    check("a b a b", first("a", "x"), "x b a b", 2);
    check("a b a b", all("a", "x"), "x b x b", 2);
    check("aaa", first("aa", "b"), "ba", 1);
    check("aaaa", all("aa", "a"), "aa", 2);
    check("aXa", all("a", "aa"), "aaXaa", 2);
    check("one\r\ntwo", first("\r\n", "\n"), "one\ntwo", 1);
    check("keep no newline", first("keep", "kept"), "kept no newline", 1);
    check("ä\u{1F600}ö", first("\u{1F600}", ""), "äö", 1);
    check("$1 .*", first(".*", "$0"), "$1 $0", 1);
}

#[test]
fn edit_reports_the_number_of_occurrences() {
    let fixture = FileFixture::new();
    let path = fixture.file("f", "a a a");
    let told = format!("Edited {path} (3 occurrence(s) of pattern, replaced first)");
    assert_eq!(edit(&path, first("a", "b")), Ok(told));
    assert_eq!(fixture.content("f"), "b a a");
    let told = format!("Edited {path} (2 occurrence(s) of pattern, replaced all)");
    assert_eq!(edit(&path, all("a", "c")), Ok(told));
    assert_eq!(fixture.content("f"), "b c c");
}

#[test]
fn edit_keeps_the_file_mode_and_the_symlink() {
    let fixture = FileFixture::new();
    fixture.file("script", "#!/bin/sh\n");
    fixture.set_mode("script", 0o755);
    edit(&fixture.link("link", "script"), first("sh", "bash")).unwrap();
    assert_eq!((fixture.content("script").as_str(), fixture.mode("script")), ("#!/bin/bash\n", 0o755));
    assert_eq!(fixture.names("."), ["link", "script"]);
}

#[track_caller]
fn check_error(path: &str, replacement: TextReplacement<'_>, expected: &str) {
    let error = edit(path, replacement).unwrap_err();
    assert!(error.message.contains(expected), "{}", error.message);
    assert_eq!(error.kind, FileErrorKind::Failed);
}

#[test]
fn failed_edit_leaves_the_file_unchanged() {
    let fixture = FileFixture::new();
    let path = fixture.file("f", "text");
    check_error(&path, first("", "x"), "Error: old_string is empty");
    check_error(&path, first("t", "t"), "old_string and new_string are the same");
    assert_eq!(
        edit(&path, first("nothing", "x")).unwrap_err().message,
        "Error: old_string not found in file"
    );
    check_error(
        &path,
        first("te xt", "x"),
        "Error: old_string not found in file (the same text is at line 1",
    );
    assert_eq!(fixture.content("f"), "text");
    assert_eq!(fixture.names("."), ["f"]);
}

#[test]
fn edit_refuses_missing_large_binary_and_special_files() {
    let fixture = FileFixture::new();
    let large = fixture.file("large", "");
    File::options().write(true).open(&large).unwrap().set_len(READ_FILE_BYTES_MAX + 1).unwrap();
    check_error(&large, first("a", "b"), "more than the 67108864 allowed");
    check_error(&fixture.path("missing"), first("a", "b"), "No such file or directory");
    check_error(&fixture.fifo("fifo"), first("a", "b"), "the path is a FIFO");
    check_error(&fixture.directory("directory"), first("a", "b"), "the path is a directory");
    check_error(&fixture.file("nul", "a\0"), first("a", "b"), "the file is binary");
    check_error(&fixture.file("latin1", b"a\xe9"), first("a", "b"), "the file is not UTF-8");
    check_error("/dev/zero", first("a", "b"), "the path is a device");
    check_error("", first("a", "b"), "the path is empty");
}

#[test]
fn replacement_over_the_size_limit_is_refused() {
    let fixture = FileFixture::new();
    let path = fixture.file("f", "x".repeat(1_000_000));
    let long = "y".repeat(1_000_000);
    check_error(&path, all("x", &long), "the edited file would have more than 67108864 bytes");
    assert_eq!(fixture.content("f").len(), 1_000_000);
}

#[test]
fn edit_of_a_read_only_file_reveals_no_content() {
    let fixture = FileFixture::new();
    let path = fixture.file("f", "text");
    fixture.set_mode("f", 0o444);
    let denied = without_capabilities(|| edit(&path, first("not in it", "x"))).unwrap_err();
    assert_eq!(
        denied,
        FileError::denied(format!("Write denied: {path}: there is no permission to write to this path"))
    );
}
