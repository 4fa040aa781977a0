use std::os::unix::fs::symlink;

use super::super::summary::{AccountingSummary, summarize};
use super::*;

struct JournalFileFixture {
    home: Home,
    _directory: tempfile::TempDir,
}

impl JournalFileFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        fs::create_dir_all(home.data()).unwrap();
        Self { home, _directory: directory }
    }

    fn journal(&self, bytes_max: u64, retry_pause: Duration) -> JournalFile {
        let limits = JournalFileLimits { bytes_max, retry_pause, ..JournalFileLimits::default() };
        JournalFile::open(&self.home, limits).unwrap()
    }

    fn text(&self) -> String {
        fs::read_to_string(path_in(&self.home)).unwrap()
    }

    fn summary(&self) -> AccountingSummary {
        summarize(&self.home, 0).unwrap()
    }
}

fn line(tool: &str) -> AccountingLine {
    let text = r#"{"seq":1,"at":5,"run":"","event":{"turn":1,"type":"tool_finished","id":"1","operation":1,"tool":"TOOL",
        "error_kind":null,"latency_ms":2,"executed":true,"cached":false,"bytes_in":3,"bytes_out":4,"principal":"local",
        "arguments_digest":""}}"#;
    AccountingLine::Event(serde_json::from_str(&text.replace("TOOL", tool)).unwrap())
}

fn calls(summary: &AccountingSummary) -> u64 {
    summary.tools.iter().map(|tool| tool.calls).sum()
}

/// `/dev/full` fails each write as a full disk does.
#[test]
fn full_disk_loses_lines_and_records_their_count() {
    let fixture = JournalFileFixture::new();
    let path = path_in(&fixture.home);
    symlink("/dev/full", &path).unwrap();
    let mut journal = fixture.journal(u64::MAX, Duration::ZERO);
    journal.append(&line("lost"));
    journal.append(&line("lost"));
    fs::remove_file(&path).unwrap();
    journal.append(&line("written"));
    journal.append(&line("written"));
    let summary = fixture.summary();
    assert_eq!((calls(&summary), summary.lost_lines, summary.unreadable_lines), (2, 2, 0));
    assert_eq!(fixture.text().matches(r#""lostLines":2"#).count(), 1, "{}", fixture.text());
}

#[test]
fn failed_write_is_not_retried_before_the_pause_ends() {
    let fixture = JournalFileFixture::new();
    let path = path_in(&fixture.home);
    symlink("/dev/full", &path).unwrap();
    let mut journal = fixture.journal(u64::MAX, Duration::from_hours(1));
    journal.append(&line("lost"));
    fs::remove_file(&path).unwrap();
    journal.append(&line("lost"));
    assert!(!path.exists(), "a full disk is not tried at each call");
    drop(journal);
    assert_eq!(fixture.summary().lost_lines, 2, "the end of the process is the last chance to tell");
}

/// Names the home in which the process below writes.
const LIMITED_HOME: &str = "HAFT_TEST_LIMITED_HOME";

/// A limit on the size of files cuts the fifth line as a full disk does. The limit is one of a process, so the test starts
/// itself again.
#[test]
fn failed_partial_write_leaves_no_incomplete_line() {
    if let Some(home) = std::env::var_os(LIMITED_HOME) {
        let limits = JournalFileLimits { retry_pause: Duration::ZERO, ..JournalFileLimits::default() };
        let mut journal = JournalFile::open(&Home::at(Path::new(&home)), limits).unwrap();
        (0..9).for_each(|_| journal.append(&line("one")));
        assert!(journal.lost_lines > 0);
        return;
    }
    let fixture = JournalFileFixture::new();
    let name = "accounting::journal_file::tests::failed_partial_write_leaves_no_incomplete_line";
    let status = std::process::Command::new("bash")
        .args(["-c", r#"trap '' XFSZ; ulimit -f 1; exec "$0" "$@""#])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(LIMITED_HOME, fixture.home.root())
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
    let text = fixture.text();
    assert!(text.ends_with("}\n") && text.len() > 512, "{text}");
    assert_eq!(fixture.summary().unreadable_lines, 0, "{text}");
}

#[test]
fn incomplete_line_does_not_corrupt_the_next_one() {
    let fixture = JournalFileFixture::new();
    fs::write(path_in(&fixture.home), r#"{"seq":1,"at":5,"ru"#).unwrap();
    fixture.journal(u64::MAX, Duration::ZERO).append(&line("one"));
    let summary = fixture.summary();
    assert_eq!((calls(&summary), summary.unreadable_lines), (1, 1));
}

#[test]
fn full_journal_is_rotated_during_the_process() {
    let fixture = JournalFileFixture::new();
    let one = serde_json::to_vec(&line("one")).unwrap().len() as u64 + 1;
    let mut journal = fixture.journal(3 * one, Duration::ZERO);
    for _ in 0..4 {
        journal.append(&line("one"));
    }
    assert_eq!(fixture.text().lines().count(), 1);
    assert_eq!(fs::read_to_string(old_path_in(&fixture.home)).unwrap().lines().count(), 3);
    assert_eq!(calls(&fixture.summary()), 4);
    for _ in 0..4 {
        journal.append(&line("one"));
    }
    assert_eq!(calls(&fixture.summary()), 5, "one old journal is kept");
}

/// A lock belongs to an open file, so that several journals in one process are to each other as processes are.
#[test]
fn concurrent_writers_neither_lose_nor_interleave_lines() {
    let fixture = JournalFileFixture::new();
    let one = serde_json::to_vec(&line("tool-1")).unwrap().len() as u64 + 1;
    std::thread::scope(|scope| {
        for writer in 0..4 {
            // Three quarters of all lines fit, so that one of the writers rotates once and the others have to notice.
            let mut journal = fixture.journal(one * 600, Duration::ZERO);
            scope.spawn(move || {
                for _ in 0..200 {
                    journal.append(&line(&format!("tool-{writer}")));
                }
            });
        }
    });
    let summary = fixture.summary();
    assert_eq!((summary.unreadable_lines, summary.lost_lines), (0, 0));
    assert_eq!(summary.tools.iter().map(|tool| tool.calls).collect::<Vec<_>>(), [200; 4]);
    assert!(old_path_in(&fixture.home).exists());
}

#[test]
fn line_is_lost_if_the_lock_stays_held() {
    let fixture = JournalFileFixture::new();
    let lock_wait = Duration::from_millis(5);
    let limits = JournalFileLimits { retry_pause: Duration::ZERO, lock_wait, ..JournalFileLimits::default() };
    let mut journal = JournalFile::open(&fixture.home, limits).unwrap();
    let other = File::open(path_in(&fixture.home)).unwrap();
    other.lock().unwrap();
    journal.append(&line("lost"));
    assert_eq!(fixture.text(), "", "a process that was stopped while it wrote costs a line");
    drop(other);
    journal.append(&line("one"));
    assert_eq!((calls(&fixture.summary()), fixture.summary().lost_lines), (1, 1));
}

#[test]
fn removed_journal_is_recreated() {
    let fixture = JournalFileFixture::new();
    let mut journal = fixture.journal(u64::MAX, Duration::ZERO);
    journal.append(&line("one"));
    fs::remove_file(path_in(&fixture.home)).unwrap();
    journal.append(&line("two"));
    assert_eq!(calls(&fixture.summary()), 1);
}

#[test]
fn rotation_during_summary_counts_no_line_twice() {
    let fixture = JournalFileFixture::new();
    fixture.journal(u64::MAX, Duration::ZERO).append(&line("one"));
    // The reader has opened the current file when the rotation makes it the old one.
    fs::hard_link(path_in(&fixture.home), old_path_in(&fixture.home)).unwrap();
    assert_eq!(calls(&fixture.summary()), 1);
}

#[test]
fn summary_ignores_lines_before_since() {
    let fixture = JournalFileFixture::new();
    fixture.journal(u64::MAX, Duration::ZERO).append(&line("one"));
    assert_eq!(calls(&summarize(&fixture.home, 5).unwrap()), 1);
    assert_eq!(calls(&summarize(&fixture.home, 6).unwrap()), 0);
}

#[test]
fn unreadable_lines_are_counted_and_skipped() {
    let fixture = JournalFileFixture::new();
    let whole = serde_json::to_string(&line("one")).unwrap();
    let other = whole.replace("tool_finished", "turn_started");
    let old = r#"{"type":"other","timestampMs":9}"#;
    let lines = [&whole, "", "{}", "\0", &whole[..40], old, &other, &whole];
    fs::write(path_in(&fixture.home), lines.join("\n")).unwrap();
    let summary = fixture.summary();
    assert_eq!((calls(&summary), summary.unreadable_lines), (2, 6));
}

#[test]
fn old_and_new_line_formats_are_summed_together() {
    let fixture = JournalFileFixture::new();
    let old = r#"{"type":"tool","timestampMs":5,"status":"failed","errorKind":"denied","tool":"one","callId":"1",
        "principal":"local","latencyMs":2,"bytesIn":3,"bytesOut":4,"executed":true,"cached":false,"argumentsDigest":""}"#;
    let lost = r#"{"type":"lost","timestampMs":5,"lostLines":3}"#;
    fs::write(path_in(&fixture.home), format!("{}\n{lost}\n", old.replace('\n', ""))).unwrap();
    fixture.journal(u64::MAX, Duration::ZERO).append(&line("one"));
    let summary = fixture.summary();
    assert_eq!((summary.unreadable_lines, summary.lost_lines, summary.tools.len()), (0, 3, 1));
    let tool = &summary.tools[0];
    assert_eq!((tool.calls, tool.errors, tool.bytes_out, tool.latency_p50_ms), (2, 1, 8, 2));
}
