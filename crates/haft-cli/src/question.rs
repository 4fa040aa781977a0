//! Questions to the person at the terminal: one at a time, and what is typed answers only the one that stands there.

use std::io::{self, BufRead};

use tokio::sync::{Mutex, MutexGuard};
use tokio::task::{JoinHandle, spawn_blocking};

use super::terminal;

static TERMINAL: Input = Input::new(typed_line);

/// The next one's turn to ask. Whoever asks holds it until the answer is there, or is no longer wanted.
pub(super) async fn turn() -> Turn<'static> {
    let turn = TERMINAL.turn().await;
    terminal::clear_moving();
    turn
}

/// Whether a question stands there.
pub(super) fn is_open() -> bool {
    TERMINAL.reading.try_lock().is_err()
}

/// Where answers are typed.
struct Input {
    /// A line that is waited for. A read cannot be taken back: it goes on when its question is gone, and is then the next one's.
    reading: Mutex<Option<Reading>>,
    read: fn() -> Option<String>,
}

type Reading = JoinHandle<Option<String>>;

/// The right to ask.
pub(super) struct Turn<'a> {
    reading: MutexGuard<'a, Option<Reading>>,
    read: fn() -> Option<String>,
}

impl Input {
    const fn new(read: fn() -> Option<String>) -> Self {
        Self { reading: Mutex::const_new(None), read }
    }

    /// Before the question is shown: what was typed until then was meant for one that is gone, and nobody may take it for an answer.
    async fn turn(&self) -> Turn<'_> {
        let mut reading = self.reading.lock().await;
        drop(reading.take_if(|reading| reading.is_finished()));
        Turn { reading, read: self.read }
    }
}

impl Turn<'_> {
    /// What is typed now; nothing when the input has ended.
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
    async fn what_is_typed_answers_the_question_that_stands_there() {
        let (keyboard, input) = (keyboard(), Input::new(read));
        let type_in = |line: &str| keyboard.send(line.to_owned()).unwrap();
        // Nobody waits for this one any more; the line goes to the next.
        assert_eq!(input.turn().await.line().now_or_never(), None);
        let mut turn = input.turn().await;
        {
            let mut asked = pin!(turn.line());
            assert_eq!(asked.as_mut().now_or_never(), None);
            type_in("second");
            assert_eq!(asked.await.as_deref(), Some("second"));
        }
        // However soon it is typed.
        assert_eq!(turn.line().now_or_never(), None);
        type_in("at once");
        while turn.reading.as_ref().is_some_and(|reading| !reading.is_finished()) {
            yield_now().await;
        }
        assert_eq!(turn.line().await.as_deref(), Some("at once"));
        // Typed when no question stands there, it answers none.
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
    async fn one_question_stands_there_at_a_time() {
        let input = Input::new(|| None);
        let turn = input.turn().await;
        assert!(input.turn().now_or_never().is_none());
        drop(turn);
        assert_eq!(input.turn().await.line().await, None, "the input has ended");
    }
}
