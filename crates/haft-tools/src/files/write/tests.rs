//! Tests of `write`, including the files that are left when a write fails.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::files::directory_entry::WRITE_FILE_BYTES_MAX;
use crate::files::fixture::{FileFixture, without_capabilities};
use crate::files::protocol::{FileError, FileErrorKind};

#[track_caller]
fn check_error(path: &str, expected: &str) {
    let error = write(path, "new").unwrap_err();
    assert!(error.message.contains(expected), "{}", error.message);
    assert_eq!(error.kind, FileErrorKind::Failed);
}

#[track_caller]
fn check_denied(path: &str, reason: &str) {
    let error = without_capabilities(|| write(path, "new")).unwrap_err();
    assert_eq!(error, FileError::denied(format!("Write denied: {path}: {reason}")));
}

#[test]
fn write_creates_missing_parent_directories() {
    let fixture = FileFixture::new();
    let path = fixture.path("a/b/c.txt");
    assert_eq!(write(&path, "grün"), Ok(format!("Wrote 5 bytes to {path}")));
    assert_eq!(fixture.content("a/b/c.txt"), "grün");
    assert_eq!(fixture.names("a/b"), ["c.txt"]);
}

#[test]
fn write_stores_the_content_exactly() {
    let fixture = FileFixture::new();
    for content in ["", "no newline", "a\r\nb\n\n", "\0\u{1}"] {
        write(&fixture.path("f"), content).unwrap();
        assert_eq!(fixture.content("f"), content);
    }
}

#[test]
fn write_keeps_the_mode_except_set_user_id() {
    let fixture = FileFixture::new();
    for (mode, expected) in [(0o755, 0o755), (0o600, 0o600), (0o666, 0o666), (0o4755, 0o755)] {
        let path = fixture.file("f", "old");
        fixture.set_mode("f", mode);
        write(&path, "new").unwrap();
        assert_eq!(fixture.mode("f"), expected, "{mode:o}");
    }
}

#[test]
fn new_file_gets_the_default_mode() {
    let fixture = FileFixture::new();
    File::create(fixture.place("plain")).unwrap();
    write(&fixture.path("ours"), "x").unwrap();
    assert_eq!(fixture.mode("ours"), fixture.mode("plain"));
}

#[test]
fn special_files_and_directories_are_not_replaced() {
    let fixture = FileFixture::new();
    check_error(&fixture.fifo("fifo"), "the path is a FIFO");
    check_error(&fixture.socket("socket"), "the path is a socket");
    check_error(&fixture.directory("directory"), "the path is a directory");
    check_error(&fixture.link("to-fifo", "fifo"), "the path is a FIFO");
    check_error("/dev/null", "the path is a device");
    check_error("/dev/full", "the path is a device");
    assert_eq!(fixture.names("."), ["directory", "fifo", "socket", "to-fifo"]);
}

#[test]
fn write_rejects_paths_that_cannot_name_a_file() {
    let fixture = FileFixture::new();
    let file = fixture.file("file", "old");
    check_error("", "Error writing : the path is empty");
    check_error("relative", "must be absolute");
    check_error("/a\0b", "Error writing /a\\u{0}b: the path contains a NUL byte");
    check_error(&fixture.path("x/"), "the path names a directory");
    check_error(&fixture.path("x/.."), "the path names a directory");
    check_error("/", "the path names a directory");
    check_error(&fixture.path(&"x".repeat(256)), "a name in the path has 256 bytes");
    check_error(&"/x".repeat(2500), "the path has 5000 bytes");
    check_error(&fixture.link("loop", "loop"), "Too many levels of symbolic links");
    check_error(&format!("{file}/x"), "Not a directory");
    check_error(&format!("{file}/x/y"), "Not a directory");
    assert_eq!(fixture.content("file"), "old");
}

#[test]
fn write_fails_if_a_parent_is_not_a_directory() {
    let fixture = FileFixture::new();
    fixture.file("file", "old");
    fixture.link("dangling-parent", "nowhere");
    let path = fixture.path("dangling-parent/x");
    let told = format!(
        "Failed to create the parent directory of {path}: a part of the path exists and is not a directory"
    );
    check_error(&path, &told);
}

#[test]
fn write_follows_symlinks_to_their_target() {
    let fixture = FileFixture::new();
    fixture.file("d/real", "old");
    fixture.link("d/link", "real");
    fixture.link("link-to-link", "d/link");
    fixture.link("dangling", "new/place");
    fixture.link("up", "d/../via-up");
    for (link, leads_to) in [("link-to-link", "d/real"), ("dangling", "new/place"), ("up", "via-up")] {
        write(&fixture.path(link), link).unwrap();
        assert_eq!(fixture.content(leads_to), link);
        assert!(
            fs::symlink_metadata(fixture.place(link)).unwrap().is_symlink(),
            "the write replaced the link {link}"
        );
    }
    assert_eq!(fixture.names("d"), ["link", "real"]);
}

#[test]
fn write_does_not_change_other_hard_links() {
    let fixture = FileFixture::new();
    let path = fixture.file("a", "old");
    fs::hard_link(&path, fixture.place("b")).unwrap();
    write(&path, "new").unwrap();
    assert_eq!((fixture.content("a").as_str(), fixture.content("b").as_str()), ("new", "old"));
}

#[test]
fn file_name_of_255_bytes_is_written() {
    let fixture = FileFixture::new();
    let name = "x".repeat(255);
    write(&fixture.path(&name), "x").unwrap();
    assert_eq!(fixture.content(&name), "x");
}

#[test]
fn read_only_directory_denies_writing_a_writable_file() {
    let fixture = FileFixture::new();
    let path = fixture.file("d/f", "old");
    fixture.set_mode("d", 0o555);
    check_denied(&path, "there is no permission to write to this path");
    check_denied(&fixture.path("d/new"), "there is no permission to write to this path");
    check_denied(&fixture.path("d/new/deeper"), "there is no permission to write to this path");
    assert_eq!(fixture.content("d/f"), "old");
    assert_eq!(fixture.names("d"), ["f"]);
}

#[test]
fn read_only_file_is_not_replaced_in_a_writable_directory() {
    let fixture = FileFixture::new();
    let path = fixture.file("f", "old");
    fixture.set_mode("f", 0o444);
    check_denied(&path, "there is no permission to write to this path");
    assert_eq!((fixture.content("f").as_str(), fixture.mode("f")), ("old", 0o444));
}

#[test]
fn unreadable_file_can_still_be_written() {
    let fixture = FileFixture::new();
    let path = fixture.file("f", "old");
    fixture.set_mode("f", 0o200);
    without_capabilities(|| write(&path, "new")).unwrap();
    assert_eq!(fixture.mode("f"), 0o200);
}

#[test]
fn failed_write_leaves_no_temporary_file() {
    let fixture = FileFixture::new();
    let place = OpenDirectoryEntry::open(&fixture.place("f")).unwrap();
    fixture.directory("f");
    assert_eq!(place.replace(b"new"), Err(WriteError::Kernel(Errno::ISDIR)));
    assert_eq!(fixture.names("."), ["f"]);
}

#[test]
fn oversized_content_is_refused_before_a_file_is_created() {
    let fixture = FileFixture::new();
    let bytes = usize::try_from(WRITE_FILE_BYTES_MAX).unwrap() + 1;
    let place = OpenDirectoryEntry::open(&fixture.place("f")).unwrap();
    let refused = place.replace(&vec![b'x'; bytes]);
    assert_eq!(refused, Err(WriteError::TooLarge { bytes, bytes_max: WRITE_FILE_BYTES_MAX }));
    assert!(fixture.names(".").is_empty());
}

#[test]
fn directory_swapped_for_a_symlink_does_not_redirect_the_write() {
    let fixture = FileFixture::new();
    fixture.directory("inside");
    fixture.directory("outside");
    let place = OpenDirectoryEntry::open(&fixture.place("inside/f")).unwrap();
    fs::rename(fixture.place("inside"), fixture.place("moved")).unwrap();
    fixture.link("inside", "outside");
    place.replace(b"new").unwrap();
    assert_eq!(fixture.content("moved/f"), "new");
    assert!(fixture.names("outside").is_empty());
}

#[test]
fn write_as_root_keeps_the_file_owner() {
    let fixture = FileFixture::new();
    let path = fixture.file("f", "old");
    if std::os::unix::fs::chown(&path, Some(65534), Some(65534)).is_err() {
        return; // Only root can give a file to another owner, so the test cannot run as another user.
    }
    write(&path, "new").unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (65534, 65534));
}

#[test]
fn concurrent_writes_are_atomic() {
    let fixture = FileFixture::new();
    let path = fixture.path("f");
    let contents: Vec<String> = ('a'..='d').map(|c| c.to_string().repeat(100_000)).collect();
    write(&path, &contents[0]).unwrap();
    std::thread::scope(|scope| {
        for content in &contents {
            scope.spawn(|| (0..20).for_each(|_| assert!(write(&path, content).is_ok())));
        }
        for _ in 0..50 {
            assert!(contents.contains(&fixture.content("f")), "a reader saw a partly written file");
        }
    });
    assert!(contents.contains(&fixture.content("f")));
    assert_eq!(fixture.names("."), ["f"]);
}

#[test]
fn temporary_files_of_killed_workers_are_removed() {
    let fixture = FileFixture::new();
    let old = std::time::SystemTime::now() - std::time::Duration::from_hours(1);
    let names =
        [format!(".haft-{:032x}.tmp", 1), format!(".haft-{:032x}.tmp", 2), ".haft-notes.tmp".to_owned()];
    for (name, aged) in names.iter().zip([true, false, true]) {
        let file = File::create(fixture.path(name)).unwrap();
        if aged {
            file.set_modified(old).unwrap();
        }
    }
    write(&fixture.path("f"), "x").unwrap();
    assert_eq!(fixture.names("."), [names[1].as_str(), names[2].as_str(), "f"]);
}
