//! The interface to the process launcher of the embedding program.

use std::io;

use futures_util::future::BoxFuture;

/// Starts the `claude` command under the operator's policy.
pub trait StartCommand: Send + Sync {
    /// Starts the `claude` command. The error text is a sentence for the operator.
    fn start(&self, order: ClaudeCommand) -> BoxFuture<'_, Result<Box<dyn RunningCommand>, String>>;
}

/// The `claude` command to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaudeCommand {
    /// The arguments, without the program name.
    pub words: Vec<String>,
    pub input: CommandInput,
}

/// The first bytes for standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandInput {
    /// The whole input of the process.
    Prompt(Vec<u8>),
    /// The first lines of a dialogue; `write` sends further lines.
    Lines(Vec<u8>),
}

/// A running `claude` process. Dropping it kills the process and all its child processes.
pub trait RunningCommand: Send {
    /// Reads more bytes from standard output. Returns no bytes at the end.
    fn read(&mut self) -> BoxFuture<'_, io::Result<Vec<u8>>>;

    /// Sends more input without waiting until the process reads it. A process that has stopped reading reports the
    /// reason in its output.
    fn write(&mut self, line: Vec<u8>);

    /// Closes standard input; the process then ends.
    fn close_input(&mut self);

    /// Waits for the process to exit. An error means that the process never ran; the error text is a sentence for the
    /// operator.
    fn end(self: Box<Self>) -> BoxFuture<'static, Result<ClaudeExit, String>>;
}

/// The exit status of a `claude` process, and the end of its error output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaudeExit {
    /// The exit code or signal, in words.
    pub how: String,
    /// The last text on standard error.
    pub stderr_tail: String,
}
