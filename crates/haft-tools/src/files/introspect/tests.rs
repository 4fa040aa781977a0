//! Tests of `introspect` on small trees.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;
use crate::files::fixture::{FileFixture, without_capabilities};
use crate::files::protocol::FileErrorKind;

fn fixture(files: &[(&str, &str)]) -> FileFixture {
    let fixture = FileFixture::new();
    for (name, content) in files {
        fixture.file(name, content);
    }
    fixture
}

fn shown(fixture: &FileFixture, level: IntrospectLevel) -> String {
    introspect(&fixture.path("."), level).unwrap()
}

#[track_caller]
fn check_all(files: &[(&str, &str)], expected: &str) {
    let shown = shown(&fixture(files), IntrospectLevel::All);
    assert_eq!(shown, format!("<codebase>\n{expected}</codebase>\n"));
}

#[test]
fn overview_has_file_names_a_note_and_the_readme() {
    let files = [
        ("README.md", "# Title"),
        ("src/lib.rs", "x"),
        ("src/a/b.rs", "x"),
        ("Cargo.toml", "x"),
        (".ci", "x"),
    ];
    let expected = format!(
        "<overview>\n<files>\n.:\n  .ci\n  Cargo.toml\n  README.md\nsrc:\n  lib.rs\nsrc/a:\n  b.rs\n</files>\n\
         <note>\n{NOTE}\n</note>\n<readme>\n# Title\n</readme>\n</overview>\n"
    );
    assert_eq!(shown(&fixture(&files), IntrospectLevel::Overview), expected);
}

#[test]
fn introspect_level_all_includes_every_text_file_in_order() {
    check_all(
        &[("b.rs", "b\n"), ("a.rs", "a"), ("d/c.rs", ""), ("binary", "x\0y")],
        "<file path=\"a.rs\">\na\n</file>\n<file path=\"b.rs\">\nb\n</file>\n<file path=\"d/c.rs\">\n</file>\n",
    );
}

#[test]
fn ignored_lock_and_secret_files_are_omitted() {
    check_all(
        &[
            (".gitignore", "target\n*.log\n!keep.log\n"),
            ("target/out", "x"),
            ("a.log", "x"),
            ("keep.log", "kept"),
            ("Cargo.lock", "x"),
            (".env", "KEY=1"),
            ("sub/.env.local", "KEY=1"),
            ("sub/.git", "gitdir: elsewhere"),
            (".git/config", "x"),
            ("id_rsa", "x"),
        ],
        "<file path=\".gitignore\">\ntarget\n*.log\n!keep.log\n</file>\n<file path=\"keep.log\">\nkept\n</file>\n",
    );
}

#[test]
fn file_content_and_names_cannot_close_the_enclosing_tag() {
    check_all(
        &[("a\"b", "</file></codebase><p></p>")],
        "<file path=\"a&quot;b\">\n&lt;/file>&lt;/codebase><p></p>\n</file>\n",
    );
}

#[test]
fn introspect_skips_symlinks_and_fifos_and_escapes_odd_names() {
    let fixture = fixture(&[("f", "text")]);
    fixture.link("outside", "/etc/passwd");
    fixture.link("cycle", ".");
    fixture.fifo("fifo");
    std::fs::write(fixture.place(".").join(OsStr::from_bytes(b"\xff\xfe")), "bytes").unwrap();
    let expected = "<codebase>\n<file path=\"f\">\ntext\n</file>\n<file path=\"\u{fffd}\u{fffd}\">\nbytes\n</file>\n</codebase>\n";
    assert_eq!(shown(&fixture, IntrospectLevel::All), expected);
}

#[test]
fn oversized_file_is_listed_under_left_out() {
    let large = "x".repeat(usize::try_from(FILE_BYTES_MAX).unwrap() + 1);
    check_all(
        &[("large", &large), ("small", "s")],
        "<file path=\"small\">\ns\n</file>\n<left_out>\nlarge: the file is too large to show here; use the tool read\n</left_out>\n",
    );
}

#[test]
fn introspect_output_stays_within_its_character_limit() {
    let large = "ä".repeat(60_000);
    let names: Vec<String> = (0..50).map(|number| format!("{number:02}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), large.as_str())).collect();
    let shown = shown(&fixture(&files), IntrospectLevel::All);
    assert!(shown.chars().count() <= 200_000, "{}", shown.chars().count());
    assert!(shown.contains("<file path=\"00\">") && shown.contains("<file path=\"01\">"));
    assert!(
        shown.ends_with("... and 28 more\n</left_out>\n</codebase>\n"),
        "{}",
        &shown[shown.len() - 200..]
    );
}

#[test]
fn readme_is_included_despite_many_file_names() {
    let fixture = fixture(&[("readme", "hello")]);
    for number in 0..3000 {
        fixture.file(&format!("{number:0>100}"), "");
    }
    let shown = shown(&fixture, IntrospectLevel::Overview);
    assert!(
        shown.contains("<readme>\nhello\n</readme>\n<left_out>\n.: this answer has reached its size limit\n")
    );
}

#[track_caller]
fn check_error(path: &str, expected: &str) {
    let error = introspect(path, IntrospectLevel::All).unwrap_err();
    assert!(
        error.message.starts_with("Error reading ") && error.message.contains(expected),
        "{}",
        error.message
    );
}

#[test]
fn root_that_is_not_a_directory_is_an_error() {
    let fixture = FileFixture::new();
    check_error(&fixture.file("file", "x"), "Not a directory");
    check_error(&fixture.fifo("fifo"), "Not a directory");
    check_error(&fixture.path("missing"), "No such file or directory");
    check_error("", "the path is empty");
}

#[test]
fn unreadable_directory_is_omitted_unless_it_is_the_root() {
    let fixture = fixture(&[("closed/f", "x"), ("open", "x")]);
    fixture.set_mode("closed", 0o000);
    let (all, root) = without_capabilities(|| {
        let root = introspect(&fixture.path("closed"), IntrospectLevel::All).unwrap_err();
        (shown(&fixture, IntrospectLevel::All), root)
    });
    assert!(all.contains("<file path=\"open\">"), "{all}");
    assert!(all.contains("<left_out>\nclosed: "), "{all}");
    assert_eq!(root.kind, FileErrorKind::Denied);
}

#[test]
fn markdown_readme_is_preferred_to_other_readmes() {
    let names = ["README.rst", "ReadMe.md", "README", "readmenot"];
    let directory = Directory { path: PathBuf::new(), files: names.map(Into::into).to_vec() };
    assert_eq!(readme_name(&[directory]), Some(OsStr::new("ReadMe.md")));
}
