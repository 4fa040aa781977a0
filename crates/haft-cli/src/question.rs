//! Questions to the person at the terminal, one at a time. A typed line answers only the question that is open.

use std::io::{self, BufRead};

use tokio::sync::{Mutex, MutexGuard};
use tokio::task::{JoinHandle, spawn_blocking};

use super::terminal;

static TERMINAL: TerminalInput = TerminalInput::new(typed_line);

/// Waits for the turn to ask. The caller holds it until the answer arrives or is no longer wanted.
pub(super) async fn turn() -> QuestionTurn<'static> {
    let turn = TERMINAL.turn().await;
    terminal::clear_status_line();
    turn
}

/// Returns true while a question is open.
pub(super) fn is_open() -> bool {
    TERMINAL.reading.try_lock().is_err()
}

/// The source of typed answers.
struct TerminalInput {
    /// A pending read. A blocking read cannot be cancelled: it goes on after its question is gone, and its line answers
    /// the next question.
    reading: Mutex<Option<PendingRead>>,
    read: fn() -> Option<String>,
}

type PendingRead = JoinHandle<Option<String>>;

/// The exclusive right to ask.
pub(super) struct QuestionTurn<'a> {
    reading: MutexGuard<'a, Option<PendingRead>>,
    read: fn() -> Option<String>,
}

impl TerminalInput {
    const fn new(read: fn() -> Option<String>) -> Self {
        Self { reading: Mutex::const_new(None), read }
    }

    /// Waits for the turn, before the question is shown. Discards a line that is already complete: it was typed for an
    /// earlier question and must not answer this one.
    async fn turn(&self) -> QuestionTurn<'_> {
        let mut reading = self.reading.lock().await;
        drop(reading.take_if(|reading| reading.is_finished()));
        QuestionTurn { reading, read: self.read }
    }
}

impl QuestionTurn<'_> {
    /// Returns the next typed line; `None` at the end of the input.
    pub(super) async fn line(&mut self) -> Option<String> {
        let reading = self.reading.get_or_insert_with(|| spawn_blocking(self.read));
        let line = reading.await;
        *self.reading = None;
        line.ok()?
    }
}

fn typed_line() -> Option<String> {
    let mut line = String::new();
    let bytes = io::stdin().lock().read_line(&mut line).ok()?;
    (bytes > 0).then_some(line)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Mutex as Lock, PoisonError};

    use futures_util::FutureExt;
    use tokio::task::yield_now;

    use super::*;

    static KEYS: Lock<Option<Receiver<String>>> = Lock::new(None);

    fn read() -> Option<String> {
        KEYS.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.recv().ok()
    }

    fn keyboard() -> Sender<String> {
        let (keyboard, keys) = channel();
        *KEYS.lock().unwrap_or_else(PoisonError::into_inner) = Some(keys);
        keyboard
    }

    #[tokio::test]
    async fn typed_line_answers_only_the_open_prompt() {
        let (keyboard, input) = (keyboard(), TerminalInput::new(read));
        let type_in = |line: &str| keyboard.send(line.to_owned()).unwrap();
        // This question is dropped while its read is pending; the next line goes to the next question.
        assert_eq!(input.turn().await.line().now_or_never(), None);
        let mut turn = input.turn().await;
        {
            let mut asked = pin!(turn.line());
            assert_eq!(asked.as_mut().now_or_never(), None);
            type_in("second");
            assert_eq!(asked.await.as_deref(), Some("second"));
        }
        // A line typed quickly, before the answer is awaited again, still answers the open question.
        assert_eq!(turn.line().now_or_never(), None);
        type_in("at once");
        while turn.reading.as_ref().is_some_and(|reading| !reading.is_finished()) {
            yield_now().await;
        }
        assert_eq!(turn.line().await.as_deref(), Some("at once"));
        // A line typed while no question is open answers none.
        assert_eq!(turn.line().now_or_never(), None);
        drop(turn);
        type_in("late");
        while input.reading.lock().await.as_ref().is_some_and(|reading| !reading.is_finished()) {
            yield_now().await;
        }
        let mut turn = input.turn().await;
        let mut asked = pin!(turn.line());
        assert_eq!(asked.as_mut().now_or_never(), None);
        type_in("third");
        assert_eq!(asked.await.as_deref(), Some("third"));
    }

    #[tokio::test]
    async fn only_one_prompt_is_open_at_a_time() {
        let input = TerminalInput::new(|| None);
        let turn = input.turn().await;
        assert!(input.turn().now_or_never().is_none());
        drop(turn);
        assert_eq!(input.turn().await.line().await, None, "the input has ended");
    }
}
