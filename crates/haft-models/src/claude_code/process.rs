//! The interface to the process launcher of the embedding program.

use std::io;

use futures_util::future::BoxFuture;
use secrecy::SecretString;

/// Starts the command under the operator's policy.
pub trait StartCommand: Send + Sync {
    /// Starts the command. The error text is a sentence for the operator.
    fn start(&self, order: ClaudeCommand) -> BoxFuture<'_, Result<Box<dyn RunningCommand>, String>>;
}

/// The command to start.
#[derive(Debug)]
pub struct ClaudeCommand {
    /// The arguments, without the program name.
    pub words: Vec<String>,
    pub stdin: Vec<u8>,
    /// The content of a file that only the command can read. The launcher appends the path of this file to `words`.
    pub private_file: Option<SecretString>,
}

/// A running command. Dropping it kills it and all its child processes.
pub trait RunningCommand: Send {
    /// Reads more bytes from standard output. Returns no bytes at the end.
    fn read(&mut self) -> BoxFuture<'_, io::Result<Vec<u8>>>;

    /// Waits for the command to exit. An error means that it never ran; the error text is a sentence for the operator.
    fn end(self: Box<Self>) -> BoxFuture<'static, Result<ClaudeExit, String>>;
}

/// The exit status of a command, and its last error output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaudeExit {
    /// The exit code or signal, in words.
    pub how: String,
    /// The last text on standard error.
    pub stderr_tail: String,
}
