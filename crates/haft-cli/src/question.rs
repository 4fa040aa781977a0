//! Asks the user at the terminal, one question at a time. Only input that is typed after a question appeared answers
//! it.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcgetpgrp,
    tcsetattr,
};
use tokio::time::sleep;

use super::terminal;

/// The time without any key after which a question accepts an answer. Without this pause, a user who is typing when a
/// question appears would answer the question before reading it.
const KEYBOARD_QUIET: Duration = Duration::from_millis(400);

/// The interval at which the keyboard is polled while a question is open.
const KEYBOARD_POLL: Duration = Duration::from_millis(20);

/// The maximum length of a line, in bytes. A terminal does not deliver longer lines.
const LINE_BYTES_MAX: usize = 4096;

static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The terminal modes that were set before a question changed them.
static MODES_BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Waits until no other question is open. The caller holds the returned turn until the answer arrives or is no longer
/// needed.
pub(super) async fn turn() -> QuestionTurn {
    let turn = TURN.lock().await;
    QuestionTurn { _held: terminal::hold_lines(), _turn: turn }
}

/// The answer to a question that only a user can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consent {
    Given,
    Refused,
    /// There is no user to ask; the overview was printed.
    NoTerminal,
}

/// Shows an overview, and asks the user at the terminal for consent.
pub(super) async fn consent(overview: &str, choices: &str) -> Consent {
    if !is_interactive() {
        terminal::note(overview);
        return Consent::NoTerminal;
    }
    let mut turn = turn().await;
    terminal::prompt(overview);
    let typed = turn.key(choices).await;
    let agreed = typed.is_some_and(|typed| typed.trim_end().eq_ignore_ascii_case("y"));
    if agreed { Consent::Given } else { Consent::Refused }
}

/// Returns true if standard input and standard error are both a terminal, so that a user can answer questions.
pub(super) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Returns true if this process is in the foreground of its terminal. The kernel stops a background process, such as a
/// server that was started with `&`, if the process reads from the terminal or changes its modes.
pub(super) fn is_in_foreground() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground == getpgrp())
}

/// Returns true while a question is open.
pub(super) fn is_open() -> bool {
    TURN.try_lock().is_err()
}

/// Restores the terminal modes. Code that exits the process must call this, because the guard that usually restores
/// them is not dropped then.
pub(super) fn restore_terminal() {
    if let Some(modes) = modes_before().take()
        && is_in_foreground()
    {
        // Ignore an error: a terminal that is gone needs no modes.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &modes);
    }
}

/// The exclusive right to ask a question. Other output lines wait until this value is dropped, so that no line appears
/// between a question and its answer.
pub(super) struct QuestionTurn {
    /// Rust drops fields in the order of their declaration: the held lines are printed before the next question starts.
    _held: terminal::HeldLines,
    _turn: tokio::sync::MutexGuard<'static, ()>,
}

impl QuestionTurn {
    /// Waits until the keyboard is quiet, shows the choices, and returns the next key; `None` if the terminal is gone.
    /// Text that arrives at once, such as a paste, is one answer.
    pub(super) async fn key(&mut self, choices: &str) -> Option<String> {
        let keys = ChangedModes::single_keys();
        discard_typed().await;
        terminal::prompt(choices);
        let typed = typed().await;
        drop(keys);
        typed
    }

    /// Waits until the keyboard is quiet, and discards all earlier input.
    pub(super) async fn settle(&mut self) {
        let _keys = ChangedModes::single_keys();
        discard_typed().await;
    }

    /// Returns the next typed line; `None` at the end of the input.
    pub(super) async fn line(&mut self) -> Option<String> {
        typed().await
    }

    /// Returns the next typed line, which the terminal does not show.
    pub(super) async fn hidden_line(&mut self) -> Option<String> {
        let hidden = ChangedModes::begin(LocalModes::ECHO);
        let typed = typed().await;
        drop(hidden);
        typed
    }
}

/// Changes the terminal modes until it is dropped. Ctrl-C still interrupts.
struct ChangedModes;

impl ChangedModes {
    /// Makes the terminal deliver single keys without echo.
    fn single_keys() -> Self {
        Self::begin(LocalModes::ICANON | LocalModes::ECHO)
    }

    fn begin(removed: LocalModes) -> Self {
        if let Ok(before) = tcgetattr(io::stdin()) {
            let mut modes = before.clone();
            modes.local_modes.remove(removed);
            modes.special_codes[SpecialCodeIndex::VMIN] = 1;
            modes.special_codes[SpecialCodeIndex::VTIME] = 0;
            *modes_before() = Some(before);
            // Ignore an error: without these modes, the answer still works after the Enter key.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &modes);
        }
        Self
    }
}

impl Drop for ChangedModes {
    fn drop(&mut self) {
        restore_terminal();
    }
}

/// Discards input until none arrives for a moment, so that neither earlier keys nor a paste answer a question.
async fn discard_typed() {
    loop {
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        sleep(KEYBOARD_QUIET).await;
        match input_state() {
            InputState::Typed => {}
            InputState::Quiet | InputState::Gone => return,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum InputState {
    Quiet,
    Typed,
    Gone,
}

fn input_state() -> InputState {
    // The input belongs to another program, such as the shell after Ctrl-Z and `bg`.
    if is_interactive() && !is_in_foreground() {
        return InputState::Quiet;
    }
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut fds, Some(&at_once)) {
        Ok(0) => InputState::Quiet,
        Ok(_) if fds[0].revents() == PollFlags::IN => InputState::Typed,
        Ok(_) | Err(_) => InputState::Gone,
    }
}

/// Returns the next input of the terminal: a key or a line, depending on its modes. Dropping the future consumes no
/// input.
async fn typed() -> Option<String> {
    // Reading standard input blocks, so read it only when input is available.
    while input_state() == InputState::Quiet {
        sleep(KEYBOARD_POLL).await;
    }
    let mut bytes = [0_u8; LINE_BYTES_MAX];
    let read = rustix::io::read(io::stdin(), &mut bytes).ok()?;
    (read > 0).then(|| String::from_utf8_lossy(&bytes[..read]).into_owned())
}

fn modes_before() -> MutexGuard<'static, Option<Termios>> {
    MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}
