//! Everything that is written: answers to standard output, the rest to standard error.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use haft_core::event::{Event, EventSink, Progress};

use rustix::termios::tcgetwinsize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::exit::Exit;

/// Prints an answer, ended by a newline. It may quote anybody: a server, a file's name, an output. A program gets it as it is.
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

/// The code for the outcome of writing to standard output.
pub(super) fn written(written: io::Result<()>) -> ExitCode {
    match written {
        Ok(()) => Exit::Success.into(),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::ClosedPipe.into(),
        Err(error) => failed(Exit::Internal, &format!("the answer could not be written: {error}")),
    }
}

/// Says what went wrong, and gives the code for it.
pub(super) fn failed(exit: Exit, message: &str) -> ExitCode {
    say("\x1b[1;31merror:\x1b[0m ", message);
    exit.into()
}

pub(super) fn warn(message: &str) {
    say("\x1b[1;33mwarning:\x1b[0m ", message);
}

pub(super) fn note(message: &str) {
    say("", message);
}

/// A message may quote anybody, so only the label has colours.
fn say(label: &str, message: &str) {
    coloured(&format!("{label}{}", harmless(message.trim_end())));
}

/// Says what has colours of its own. Whoever put them in saw to it that nothing else steers the terminal. They are taken out by
/// `anstream` where they are not wanted: `NO_COLOR`, or no terminal.
pub(super) fn coloured(line: &str) {
    clear_moving();
    // When standard error is gone there is nobody to tell.
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// Whether a line stands on the terminal that goes away as soon as anything else is said.
static MOVING: AtomicBool = AtomicBool::new(false);

/// How wide a terminal is that does not say.
const COLUMNS: u16 = 80;

/// Whether there is a terminal on which a line can move. A log wants no such line, and not every terminal knows how.
pub(super) fn can_move() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Shows a line in the place of the one before; what does not fit is left out before its end.
pub(super) fn moving(line: &str, end: &str) {
    let columns = tcgetwinsize(io::stderr()).ok().map(|size| size.ws_col).filter(|columns| *columns > 0);
    let line = fitted(line, end, columns.unwrap_or(COLUMNS).into());
    clear_moving();
    let _ = write!(anstream::stderr(), "\x1b[2m{line}\x1b[0m");
    MOVING.store(true, Ordering::Relaxed);
}

pub(super) fn clear_moving() {
    if MOVING.swap(false, Ordering::Relaxed) {
        // Not by way of what takes colours out: a line that moves is cleared on every terminal.
        let _ = write!(io::stderr(), "\r\x1b[2K");
    }
}

/// One row of it: of a line that goes on in the next only the end could be cleared.
fn fitted(line: &str, end: &str, columns: usize) -> String {
    let line = cut(line, columns.saturating_sub(end.width()));
    cut(&format!("{line}{end}"), columns).to_owned()
}

/// As much as takes fewer columns.
fn cut(line: &str, columns: usize) -> &str {
    let mut width = 0;
    let end = line.char_indices().find(|(_, c)| {
        width += c.width().unwrap_or_default();
        width >= columns
    });
    end.map_or(line, |(end, _)| &line[..end])
}

/// What somebody else wrote, without what could steer the terminal of the person who reads it.
pub(super) fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// Help and version are answers; anything else is a mistake in the command line.
pub(super) fn usage(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    match error.exit_code() {
        0 => written(printed),
        _ => Exit::Usage.into(),
    }
}

/// Shows on a terminal what a call that takes long is doing: the last line it printed, or how much is done.
#[derive(Debug)]
pub(super) struct StatusLine {
    began: Instant,
    shown: Mutex<Option<Instant>>,
}

/// A call is silent for so long before its status is shown.
const QUIET: Duration = Duration::from_secs(1);

/// How often the status changes.
const REFRESH: Duration = Duration::from_millis(100);

/// The most of a line that is shown.
const STATUS_CHARS_MAX: usize = 60;

impl StatusLine {
    /// Only for a terminal; a log wants no such line.
    pub(super) fn new() -> Option<Self> {
        can_move().then(|| Self { began: Instant::now(), shown: Mutex::new(None) })
    }

    fn show(&self, text: &str) {
        let Ok(mut shown) = self.shown.lock() else { return };
        let due = shown.map_or(self.began.elapsed() > QUIET, |at| at.elapsed() > REFRESH);
        let Some(line) = text.lines().rfind(|line| !line.trim().is_empty()).filter(|_| due) else { return };
        // Bytes of a command must not reach the terminal as control sequences.
        let line: String = line.chars().filter(|c| !c.is_control()).take(STATUS_CHARS_MAX).collect();
        moving(&format!("{}s {line}", self.began.elapsed().as_secs()), "");
        *shown = Some(Instant::now());
    }

    fn clear(&self) {
        if self.shown.lock().is_ok_and(|mut shown| shown.take().is_some()) {
            clear_moving();
        }
    }
}

fn in_words(progress: Progress) -> String {
    match progress {
        Progress::Output(text) | Progress::Message(text) => text,
        Progress::Part { fraction, message } => {
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
            Event::ToolProgress { progress, .. } => self.show(&in_words(progress)),
            Event::ToolFinished { .. } => self.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_moves_fits_into_one_row() {
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
    fn progress_is_said_in_words() {
        let check = |progress: Progress, expected: &str| assert_eq!(in_words(progress), expected);
        check(Progress::Message("reading".into()), "reading");
        check(Progress::Part { fraction: 0.426, message: Some("reading".into()) }, "43% reading");
        check(Progress::Part { fraction: 1.0, message: None }, "100% ");
    }
}
