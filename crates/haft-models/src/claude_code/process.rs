//! The seam to whoever starts processes.

use std::io;

use futures_util::future::BoxFuture;
use secrecy::SecretString;

/// Starts the command under the operator's policy.
pub trait StartCommand: Send + Sync {
    /// An error is a sentence for the operator.
    fn start(&self, order: Order) -> BoxFuture<'_, Result<Box<dyn RunningCommand>, String>>;
}

/// What is to be started.
#[derive(Debug)]
pub struct Order {
    /// After the program itself.
    pub words: Vec<String>,
    pub stdin: Vec<u8>,
    /// Goes into a file that only the command reads; the path of that file is added after the last of `words`.
    pub private_file: Option<SecretString>,
}

/// A command that runs. Dropping it kills it with everything it started.
pub trait RunningCommand: Send {
    /// More of its standard output; nothing at the end of it.
    fn read(&mut self) -> BoxFuture<'_, io::Result<Vec<u8>>>;

    /// Waits until it is gone. An error says that it never ran, and why: a sentence for the operator.
    fn end(self: Box<Self>) -> BoxFuture<'static, Result<Ended, String>>;
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// In words: a code or a signal.
    pub how: String,
    /// What it wrote last to standard error.
    pub last_words: String,
}
