//! Tests of the walk: its rules and limits.

use super::*;
use crate::files::fixture::FileFixture;

/// Returns the directories found, as `path: files`, and the entries left out.
fn found(tree: &IntrospectTree) -> (Vec<String>, Vec<(String, OmissionReason)>) {
    let lines = tree.directories.iter().map(|directory| {
        let files: Vec<_> = directory.files.iter().map(|name| name.to_string_lossy()).collect();
        format!("{}: {}", directory.path.display(), files.join(" "))
    });
    let left_out = tree.left_out.iter().map(|left| (left.path.display().to_string(), left.reason));
    (lines.collect(), left_out.collect())
}

#[track_caller]
fn check(files: &[(&str, &str)], root: &str, expected: &[&str]) {
    let fixture = FileFixture::new();
    for (name, content) in files {
        fixture.file(name, content);
    }
    let (lines, left_out) = found(&walk(&fixture.place(root)));
    assert_eq!(lines, expected);
    assert_eq!(left_out, []);
}

#[test]
fn walk_applies_gitignore_rules() {
    check(&[(".gitignore", "/a\n"), ("a", ""), ("d/a", "")], "", &[": .gitignore", "d: a"]);
    check(&[(".gitignore", "d/\n"), ("d/a", ""), ("e/d", "")], "", &[": .gitignore", "e: d"]);
    check(
        &[(".gitignore", "*.o\n"), ("d/.gitignore", "!a.o\n"), ("d/a.o", ""), ("d/b.o", "")],
        "",
        &[": .gitignore", "d: .gitignore a.o"],
    );
    check(&[(".gitignore", "[broken\n# note\n\nx\n"), ("x", ""), ("y", "")], "", &[": .gitignore y"]);
    check(&[(".git/info/exclude", "x\n"), ("x", ""), ("y", "")], "", &[": y"]);
}

#[test]
fn gitignore_above_the_root_applies_only_inside_its_repository() {
    let files = [("r/.gitignore", "*.o\n"), ("r/d/e/a.o", ""), ("r/d/e/a.c", ""), (".gitignore", "*.c\n")];
    check(&files, "r/d/e", &[": a.c a.o"]);
    check(&[files.as_slice(), &[("r/.git/HEAD", "")]].concat(), "r/d/e", &[": a.c"]);
}

#[test]
fn directory_with_an_unreadable_gitignore_is_omitted() {
    let fixture = FileFixture::new();
    fixture.directory("fifo");
    fixture.fifo("fifo/.gitignore");
    fixture.directory("zero");
    fixture.link("zero/.gitignore", "/dev/zero");
    fixture.file("long/.gitignore", "x\n".repeat(100_000));
    fixture.file("latin1/.gitignore", b"# caf\xe9\nx\n");
    fixture.file("latin1/x", "");
    let (lines, left_out) = found(&walk(&fixture.place("")));
    assert_eq!(lines, [": ", "latin1: .gitignore"]);
    assert_eq!(
        left_out,
        ["fifo", "long", "zero"].map(|name| (name.to_owned(), OmissionReason::RulesUnusable))
    );
}

#[test]
fn directory_over_the_entry_limit_is_omitted() {
    let fixture = FileFixture::new();
    for name in ["many/1", "many/2", "many/3", "many/4", "one/1"] {
        fixture.file(name, "");
    }
    let (lines, left_out) = found(&walk_within(&fixture.place(""), WalkLimit { entries: 5, scans: 50 }));
    assert_eq!(lines, [": ", "one: 1"]);
    assert_eq!(left_out, [("many".to_owned(), OmissionReason::TooManyEntries)]);
    let (lines, left_out) = found(&walk_within(&fixture.place(""), WalkLimit { entries: 5, scans: 6 }));
    assert_eq!(lines, [": "]);
    assert_eq!(left_out.len(), 2);
}

#[test]
fn walk_stops_at_the_maximum_depth() {
    let fixture = FileFixture::new();
    fixture.file(&("d/".repeat(DEPTH_MAX + 2) + "f"), "");
    let (lines, left_out) = found(&walk(&fixture.place("")));
    assert_eq!(lines.len(), DEPTH_MAX + 1);
    assert_eq!(left_out.len(), 1);
    assert_eq!(left_out[0].1, OmissionReason::TooDeep);
}
