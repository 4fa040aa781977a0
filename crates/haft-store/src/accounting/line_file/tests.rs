use haft_core::accounting_store::{AccountingLine, AccountingSummary};

use super::super::line::to_bytes;
use super::super::summary::sum_files;
use super::super::summary::tests::ALL;
use super::*;

struct LineFileFixture {
    directory: tempfile::TempDir,
}

impl LineFileFixture {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn file(&self, bytes_max: u64) -> LineFile {
        LineFile::new(self.paths(), LineFileLimits { bytes_max, ..LineFileLimits::default() })
    }

    fn paths(&self) -> LinePaths {
        paths_in(self.directory.path())
    }

    fn text(&self) -> String {
        fs::read_to_string(self.paths().current).unwrap()
    }

    fn summary(&self) -> AccountingSummary {
        sum_files(&self.paths(), ALL).unwrap().into_summary()
    }
}

fn paths_in(directory: &Path) -> LinePaths {
    LinePaths { current: directory.join("lines.jsonl"), old: directory.join("lines.1.jsonl") }
}

/// Returns a line about a call at time 5, with its line end.
fn line(tool: &str) -> Vec<u8> {
    let text = r#"{"seq":1,"at":5,"run":"","event":{"turn":1,"type":"tool_finished","id":"1","operation":1,"tool":"TOOL",
        "error_kind":null,"latency_ms":2,"executed":true,"cached":false,"bytes_in":3,"bytes_out":4,"principal":"local",
        "arguments_digest":""}}"#;
    let event = serde_json::from_str(&text.replace("TOOL", tool)).unwrap();
    to_bytes(&[AccountingLine::Event(event)]).unwrap()
}

fn calls(summary: &AccountingSummary) -> u64 {
    summary.tools.iter().map(|tool| tool.calls).sum()
}

/// The environment variable with the directory in which the child process of the test below writes.
const LIMITED_DIRECTORY: &str = "HAFT_TEST_LIMITED_DIRECTORY";

/// A file size limit truncates the fifth line, like a full disk. The limit applies to the whole process, so the test
/// starts itself again as a child process.
#[test]
fn failed_partial_write_leaves_no_incomplete_line() {
    if let Some(directory) = std::env::var_os(LIMITED_DIRECTORY) {
        let mut file = LineFile::new(paths_in(Path::new(&directory)), LineFileLimits::default());
        assert!((0..9).filter(|_| file.append(&line("one")).is_err()).count() > 0);
        return;
    }
    let fixture = LineFileFixture::new();
    let name = "accounting::line_file::tests::failed_partial_write_leaves_no_incomplete_line";
    let status = std::process::Command::new("bash")
        .args(["-c", r#"trap '' XFSZ; ulimit -f 1; exec "$0" "$@""#])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(LIMITED_DIRECTORY, fixture.directory.path())
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
    let text = fixture.text();
    assert!(text.ends_with("}\n") && text.len() > 512, "{text}");
    assert_eq!(fixture.summary().unreadable_lines, 0, "{text}");
}

#[test]
fn incomplete_line_does_not_corrupt_the_next_one() {
    let fixture = LineFileFixture::new();
    fs::write(fixture.paths().current, r#"{"seq":1,"at":5,"ru"#).unwrap();
    fixture.file(u64::MAX).append(&line("one")).unwrap();
    let summary = fixture.summary();
    assert_eq!((calls(&summary), summary.unreadable_lines), (1, 1));
}

#[test]
fn full_file_is_rotated_without_a_restart() {
    let fixture = LineFileFixture::new();
    let one = line("one").len() as u64;
    let mut file = fixture.file(3 * one);
    for _ in 0..4 {
        file.append(&line("one")).unwrap();
    }
    assert_eq!(fixture.text().lines().count(), 1);
    assert_eq!(fs::read_to_string(fixture.paths().old).unwrap().lines().count(), 3);
    assert_eq!(calls(&fixture.summary()), 4);
    for _ in 0..4 {
        file.append(&line("one")).unwrap();
    }
    assert_eq!(calls(&fixture.summary()), 5, "only one rotated file is kept");
}

/// A lock belongs to an open file, so several open files of one process behave like several processes.
#[test]
fn concurrent_writers_neither_lose_nor_interleave_lines() {
    let fixture = LineFileFixture::new();
    let one = line("tool-1").len() as u64;
    std::thread::scope(|scope| {
        for writer in 0..4 {
            // The limit has space for three quarters of all lines, so that one of the writers rotates once and the
            // others have to detect it.
            let mut file = fixture.file(one * 600);
            scope.spawn(move || {
                for _ in 0..200 {
                    file.append(&line(&format!("tool-{writer}"))).unwrap();
                }
            });
        }
    });
    let summary = fixture.summary();
    assert_eq!(summary.unreadable_lines, 0);
    assert_eq!(summary.tools.iter().map(|tool| tool.calls).collect::<Vec<_>>(), [200; 4]);
    assert!(fixture.paths().old.exists());
}

#[test]
fn append_fails_while_another_process_holds_the_lock() {
    let fixture = LineFileFixture::new();
    let limits = LineFileLimits { lock_wait: Duration::from_millis(5), ..LineFileLimits::default() };
    let mut file = LineFile::new(fixture.paths(), limits);
    file.append(b"").unwrap();
    let other = File::open(fixture.paths().current).unwrap();
    other.lock().unwrap();
    file.append(&line("one")).unwrap_err();
    assert_eq!(fixture.text(), "", "append writes no line without the lock");
    drop(other);
    file.append(&line("one")).unwrap();
    assert_eq!(calls(&fixture.summary()), 1);
}

#[test]
fn file_removed_by_another_process_is_created_again() {
    let fixture = LineFileFixture::new();
    let mut file = fixture.file(u64::MAX);
    file.append(&line("one")).unwrap();
    fs::remove_file(fixture.paths().current).unwrap();
    file.append(&line("two")).unwrap();
    assert_eq!(calls(&fixture.summary()), 1);
}

#[test]
fn append_detects_a_moved_file_at_the_next_name_check() {
    let fixture = LineFileFixture::new();
    let mut file = fixture.file(u64::MAX);
    file.append(&line("one")).unwrap();
    fs::rename(fixture.paths().current, fixture.directory.path().join("elsewhere")).unwrap();
    file.append(&line("two")).unwrap();
    let open = file.open.as_mut().unwrap();
    open.name_checked = Instant::now().checked_sub(NAME_CHECK_INTERVAL);
    file.append(&line("three")).unwrap();
    assert_eq!(calls(&fixture.summary()), 1, "the second line went to the moved file");
}

#[test]
fn no_line_is_counted_twice_if_the_file_rotates_during_a_summary() {
    let fixture = LineFileFixture::new();
    fixture.file(u64::MAX).append(&line("one")).unwrap();
    // The reader has already opened the current file when the rotation renames it.
    fs::hard_link(fixture.paths().current, fixture.paths().old).unwrap();
    assert_eq!(calls(&fixture.summary()), 1);
}

#[test]
fn unreadable_lines_are_counted_and_skipped() {
    let fixture = LineFileFixture::new();
    let whole = String::from_utf8(line("one").trim_ascii_end().to_vec()).unwrap();
    let other = whole.replace("tool_finished", "turn_started");
    let old = r#"{"type":"other","timestampMs":9}"#;
    let lines = [&whole, "", "{}", "\0", &whole[..40], old, &other, &whole];
    fs::write(fixture.paths().current, lines.join("\n")).unwrap();
    let summary = fixture.summary();
    assert_eq!((calls(&summary), summary.unreadable_lines), (2, 6));
}

#[test]
fn old_and_new_line_formats_are_summed_together() {
    let fixture = LineFileFixture::new();
    let old = r#"{"type":"tool","timestampMs":5,"status":"failed","errorKind":"denied","tool":"one","callId":"1",
        "principal":"local","latencyMs":2,"bytesIn":3,"bytesOut":4,"executed":true,"cached":false,"argumentsDigest":""}"#;
    let lost = r#"{"type":"lost","timestampMs":5,"lostLines":3}"#;
    fs::write(fixture.paths().current, format!("{}\n{lost}\n", old.replace('\n', ""))).unwrap();
    fixture.file(u64::MAX).append(&line("one")).unwrap();
    let summary = fixture.summary();
    assert_eq!((summary.unreadable_lines, summary.lost_lines, summary.tools.len()), (0, 3, 1));
    let tool = &summary.tools[0];
    assert_eq!((tool.calls, tool.errors, tool.bytes_out, tool.latency_p50_ms), (2, 1, 8, 2));
}
