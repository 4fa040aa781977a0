//! Writes all output: answers to standard output, and all other text to standard error.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haft_core::event::{CallProgress, Event, EventSink};
use haft_core::text::controls_terminal;

use rustix::termios::tcgetwinsize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::exit::ExitReason;
use super::table;

/// Prints an answer and ends it with a newline. The answer may quote untrusted text (from a server, a file name, an
/// output), so control characters are removed on a terminal; a program gets the answer unchanged.
pub(super) fn answer(text: &str) -> ExitCode {
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let text = format!("{text}{newline}");
    if io::stdout().is_terminal() {
        answer_bytes(harmless(&text).as_bytes())
    } else {
        answer_bytes(text.as_bytes())
    }
}

pub(super) fn answer_bytes(bytes: &[u8]) -> ExitCode {
    let mut out = io::stdout().lock();
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Returns the exit code for the result of a write to standard output.
pub(super) fn written(written: io::Result<()>) -> ExitCode {
    match written {
        Ok(()) => ExitReason::Success.into(),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitReason::ClosedPipe.into(),
        Err(error) => failed(ExitReason::Internal, &format!("haft cannot write to standard output: {error}")),
    }
}

/// Prints an error, and returns its exit code.
pub(super) fn failed(exit: ExitReason, message: &str) -> ExitCode {
    print_labelled("\x1b[1;31merror:\x1b[0m ", message);
    exit.into()
}

pub(super) fn warn(message: &str) {
    print_labelled("\x1b[1;33mwarning:\x1b[0m ", message);
}

pub(super) fn note(message: &str) {
    print_labelled("", message);
}

/// Prints a message. The message may quote untrusted text, so only the label has colours.
fn print_labelled(label: &str, message: &str) {
    coloured(&format!("{label}{}", harmless(message.trim_end())));
}

/// Prints a line with its own colours. The caller must have removed all other control sequences. `anstream` removes the
/// colours with `NO_COLOR` and without a terminal. While a question is open, the line waits until the question is
/// answered.
pub(super) fn coloured(line: &str) {
    if let Some(waiting) = waiting_lines().as_mut() {
        waiting.push(line);
        return;
    }
    write_line(line);
}

/// Prints a part of an open question. Sentences break between words. Indented lines contain the arguments of a call,
/// which the user must see unchanged.
pub(super) fn prompt(text: &str) {
    write_line(&broken_between_words(&harmless(text.trim_end()), message_columns()));
}

fn broken_between_words(text: &str, columns: usize) -> String {
    let broken = text.lines().map(|line| {
        let is_argument = line.starts_with(char::is_whitespace);
        if is_argument { line.to_owned() } else { table::wrapped(line, columns).join("\n") }
    });
    broken.collect::<Vec<_>>().join("\n")
}

fn write_line(line: &str) {
    clear_status_line();
    // Ignore an error: without standard error, it cannot be reported.
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// The lines that wait while a question is open; `None` if no question is open.
static WAITING_LINES: Mutex<Option<WaitingLines>> = Mutex::new(None);

/// The maximum number of waiting lines. Further lines are only counted.
const WAITING_LINES_MAX: usize = 1000;

#[derive(Debug, Default)]
struct WaitingLines {
    lines: Vec<String>,
    dropped: usize,
}

impl WaitingLines {
    fn push(&mut self, line: &str) {
        if self.lines.len() < WAITING_LINES_MAX {
            self.lines.push(line.to_owned());
        } else {
            self.dropped += 1;
        }
    }
}

fn waiting_lines() -> MutexGuard<'static, Option<WaitingLines>> {
    WAITING_LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds lines back, so that no line appears between a question and its answer. Dropping this value prints the lines.
#[derive(Debug)]
pub(super) struct HeldLines(());

pub(super) fn hold_lines() -> HeldLines {
    clear_status_line();
    *waiting_lines() = Some(WaitingLines::default());
    HeldLines(())
}

impl Drop for HeldLines {
    fn drop(&mut self) {
        let waiting = waiting_lines().take().unwrap_or_default();
        waiting.lines.iter().for_each(|line| write_line(line));
        if waiting.dropped > 0 {
            write_line(&format!("… {} more lines", waiting.dropped));
        }
    }
}

/// True while a status line is shown on the terminal. The next output clears it.
static MOVING: AtomicBool = AtomicBool::new(false);

/// The assumed width of a terminal that does not report one.
const COLUMNS: u16 = 80;

/// Returns true if standard error can show a status line: it is a terminal that supports control sequences.
/// Otherwise, the control sequences would appear in a log file.
pub(super) fn can_redraw() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Returns the width of the terminal that shows answers.
pub(super) fn answer_columns() -> usize {
    table_columns().unwrap_or(COLUMNS.into())
}

/// Returns the maximum width of tables; `None` if standard output is not a terminal.
pub(super) fn table_columns() -> Option<usize> {
    let columns = tcgetwinsize(io::stdout()).ok()?.ws_col;
    (columns > 0).then_some(columns.into())
}

/// Returns the width of the terminal that shows messages.
fn message_columns() -> usize {
    let columns = tcgetwinsize(io::stderr()).ok().map(|size| size.ws_col).filter(|columns| *columns > 0);
    columns.unwrap_or(COLUMNS).into()
}

/// Replaces the status line. If the line is too wide, characters before `end` are cut. While a question is open, the
/// line is not shown.
pub(super) fn moving(line: &str, end: &str) {
    if waiting_lines().is_some() {
        return;
    }
    let line = fitted(line, end, message_columns());
    clear_status_line();
    let _ = write!(anstream::stderr(), "\x1b[2m{line}\x1b[0m");
    MOVING.store(true, Ordering::Relaxed);
}

pub(super) fn clear_status_line() {
    if MOVING.swap(false, Ordering::Relaxed) {
        // Write directly, because `anstream` could remove the control sequence together with colours.
        let _ = write!(io::stderr(), "\r\x1b[2K");
    }
}

/// Clears the current row of the terminal. The caller must be sure that the row contains nothing to keep.
pub(super) fn clear_row() {
    if can_redraw() {
        MOVING.store(true, Ordering::Relaxed);
        clear_status_line();
    }
}

/// Fits the line into one row, because only the last row of a wrapped line could be cleared.
fn fitted(line: &str, end: &str, columns: usize) -> String {
    let line = cut(line, columns.saturating_sub(end.width()));
    cut(&format!("{line}{end}"), columns).to_owned()
}

/// Returns the longest prefix that is narrower than `columns`.
fn cut(line: &str, columns: usize) -> &str {
    let mut width = 0;
    let end = line.char_indices().find(|(_, c)| {
        width += c.width().unwrap_or_default();
        width >= columns
    });
    end.map_or(line, |(end, _)| &line[..end])
}

/// Removes control characters and bidirectional controls from untrusted text. The text then cannot control the
/// terminal, and is shown in the order in which it is stored.
pub(super) fn harmless(text: &str) -> String {
    text.chars().filter(|c| !controls_terminal(*c) || matches!(c, '\n' | '\t')).collect()
}

/// Returns a number with its noun, in the singular or plural.
pub(super) fn counted(number: impl std::fmt::Display, noun: &str) -> String {
    let number = number.to_string();
    let end = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{end}")
}

/// Prints help and version as answers, and all other errors as usage errors.
pub(super) fn usage(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    match error.exit_code() {
        0 => written(printed),
        _ => ExitReason::Usage.into(),
    }
}

/// Shows the progress of a slow call on a terminal: the last line of its output, or the completed fraction.
#[derive(Debug)]
pub(super) struct StatusLine {
    began: Instant,
    shown: Mutex<Option<Instant>>,
}

/// The time that a call runs before its status is shown.
const QUIET: Duration = Duration::from_secs(1);

/// The minimum time between two updates.
const REFRESH: Duration = Duration::from_millis(100);

/// The maximum number of characters of a line that are shown.
const STATUS_CHARS_MAX: usize = 60;

impl StatusLine {
    /// Returns `None` without a terminal, because a log file must not get a status line.
    pub(super) fn new() -> Option<Self> {
        can_redraw().then(|| Self { began: Instant::now(), shown: Mutex::new(None) })
    }

    fn show(&self, text: &str) {
        let Ok(mut shown) = self.shown.lock() else { return };
        let due = shown.map_or(self.began.elapsed() > QUIET, |at| at.elapsed() > REFRESH);
        let Some(line) = text.lines().rfind(|line| !line.trim().is_empty()).filter(|_| due) else { return };
        // Output of a command must not reach the terminal as control sequences.
        let line: String = line.chars().filter(|c| !controls_terminal(*c)).take(STATUS_CHARS_MAX).collect();
        moving(&format!("{}s {line}", self.began.elapsed().as_secs()), "");
        *shown = Some(Instant::now());
    }

    fn clear(&self) {
        if self.shown.lock().is_ok_and(|mut shown| shown.take().is_some()) {
            clear_status_line();
        }
    }
}

fn describe(progress: CallProgress) -> String {
    match progress {
        CallProgress::Output(text) | CallProgress::Message(text) => text,
        CallProgress::Amount(amount) => amount.text(),
        CallProgress::Part { fraction, message } => {
            format!("{:.0}% {}", fraction * 100.0, message.unwrap_or_default())
        }
    }
}

impl EventSink for StatusLine {
    fn emit(&self, event: Event) {
        match event {
            Event::ToolStarted { .. }
            | Event::ModelStarted { .. }
            | Event::ModelFinished { .. }
            | Event::Run { .. } => {}
            Event::ToolProgress { progress, .. } => self.show(&describe(progress)),
            Event::ToolFinished { .. } => self.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_is_truncated_to_terminal_width() {
        let check = |line: &str, end: &str, columns: usize, expected: &str| {
            assert_eq!(fitted(line, end, columns), expected, "{line} {end} {columns}");
        };
        check("abc", "", 4, "abc");
        check("abcd", "", 4, "abc");
        check("日本語", "", 6, "日本");
        check("日本語", "", 7, "日本語");
        check("abcdef", " 1 s", 8, "abc 1 s");
        check("abcdef", " 1 s", 3, " 1");
        check("", "", 1, "");
    }

    #[test]
    fn question_breaks_between_words_but_not_in_arguments() {
        let text = "bash wants to run:\n  command: git log --oneline\nallow? [y] once";
        let broken = "bash wants\nto run:\n  command: git log --oneline\nallow? [y]\nonce";
        assert_eq!(broken_between_words(text, 12), broken);
        assert_eq!(broken_between_words(text, 80), text);
    }

    #[test]
    fn untrusted_text_is_printed_without_terminal_escapes() {
        assert_eq!(harmless("a\x1b[2Jb\u{9b}c\n\td"), "a[2Jbc\n\td");
        assert_eq!(harmless("x\u{202e}y\u{2066}z\u{2069}\u{200f}\u{61c}"), "xyz");
        assert_eq!(harmless("שלום 漢字 😀"), "שלום 漢字 😀");
    }

    #[test]
    fn count_of_one_is_printed_in_the_singular() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "tool")), ["0 tools", "1 tool", "2 tools"]);
    }

    #[test]
    fn progress_is_formatted_as_percent_and_message() {
        let check = |progress: CallProgress, expected: &str| assert_eq!(describe(progress), expected);
        check(CallProgress::Message("reading".into()), "reading");
        check(CallProgress::Part { fraction: 0.426, message: Some("reading".into()) }, "43% reading");
        check(CallProgress::Part { fraction: 1.0, message: None }, "100% ");
    }
}
