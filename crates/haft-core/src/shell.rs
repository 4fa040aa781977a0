//! A parser that finds every simple command that a bash command line would run.
//!
//! The parser is strict: syntax that it does not understand is an error, never a shorter list, and the caller then asks
//! or denies. haft has its own parser, because the available parser crate panics (`99999999999>x`), overflows the stack
//! (`$($($(`), and normalises the text inside substitutions. This parser runs in linear time, limits the nesting depth,
//! and reports every unclear construct as an error.
//!
//! Programs that run other programs are listed in a table in `programs.rs`, with the option grammar of each. A parser
//! of one line cannot know the effects of scripts, programs and stored variables. A deny list of commands is therefore
//! only a guard-rail against mistakes; the sandbox is the security boundary.

mod ansi_c;
mod command;
mod here_document;
mod interpreters;
mod nested_commands;
mod options;
mod programs;
mod reader;
mod sed;
mod variables;
mod word;

use std::fmt;

use nested_commands::{WrappedCommand, carried};
use reader::ShellParser;

/// The maximum length of a line that `commands` parses, in bytes.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// The maximum nesting depth of substitutions, subshells, quotes and `case`.
pub const DEPTH_MAX: usize = 24;

/// The maximum nesting depth of commands in the arguments of other commands: `sudo env bash -c 'eval ..'` has four
/// levels.
pub const CARRIED_DEPTH_MAX: usize = 6;

/// The maximum number of simple commands in one line.
pub const COMMANDS_MAX: usize = 1_000;

/// The maximum number of redirections of one command, including the redirections of the groups around it.
pub const REDIRECTIONS_MAX: usize = 64;

/// One simple command. A command without words only sets variables or opens files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellCommand {
    /// The program, followed by its arguments.
    pub words: Vec<ShellWord>,
    /// The names of the variables that the command sets.
    pub assignments: Vec<String>,
    /// The files that the shell opens, in order.
    pub redirections: Vec<Redirection>,
}

/// A word of a shell command after the removal of quotes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellWord {
    /// The text without quotes and escapes.
    pub text: String,
    /// True if the shell would expand the word. Then `text` is only the part that the parser could determine.
    pub opaque: bool,
}

/// A file that the shell opens for a command. Copies of descriptors and here-documents do not open a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirection {
    /// The way in which the shell opens the file.
    pub access: RedirectionAccess,
    /// The path as written; the shell may expand it.
    pub target: ShellWord,
}

/// The way in which a redirection opens its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectionAccess {
    /// Opens the file for reading, as `<` does.
    Read,
    /// Empties or creates the file, as `>` does.
    Write,
    /// Adds to the file or creates it, as `>>` does.
    Append,
}

impl ShellWord {
    /// Creates a word that the shell does not expand.
    pub fn literal(text: impl Into<String>) -> Self {
        Self { text: text.into(), opaque: false }
    }

    /// Creates a word that the shell would expand.
    pub fn opaque(text: impl Into<String>) -> Self {
        Self { text: text.into(), opaque: true }
    }

    /// Returns the text, or `None` if the shell would expand the word.
    pub fn as_literal(&self) -> Option<&str> {
        (!self.opaque).then_some(self.text.as_str())
    }
}

impl ShellCommand {
    /// Returns a placeholder for commands that run but that the parser cannot see.
    fn unseen(carrier: &str) -> Self {
        Self { words: vec![ShellWord::opaque(format!("unknown command of {carrier}"))], ..Self::default() }
    }

    /// Returns the first word, or `None` for a command that consists only of assignments or redirections.
    pub fn program(&self) -> Option<&ShellWord> {
        self.words.first()
    }
}

/// Prints the words for messages, with each word that is not literal in angle brackets.
impl fmt::Display for ShellCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, word) in self.words.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            match word.as_literal() {
                Some(text) => write!(f, "{space}{text}")?,
                None => write!(f, "{space}<{}>", word.text)?,
            }
        }
        Ok(())
    }
}

/// The reason why the commands in a line are unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShellError {
    /// The line is longer than the parser accepts.
    #[error("the command line has {bytes} bytes; the limit is {LINE_BYTES_MAX}")]
    TooLong {
        /// The length of the line, in bytes.
        bytes: usize,
    },
    /// Groups and substitutions nest deeper than the parser accepts.
    #[error("the command line nests deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// The line has more commands than the parser accepts.
    #[error("the command line has more than {COMMANDS_MAX} commands")]
    TooManyCommands,
    /// The line has more redirections than the parser accepts.
    #[error("a command has more than {REDIRECTIONS_MAX} redirections")]
    TooManyRedirections,
    /// A quote, a group or another construct has no end.
    #[error("{what} is not closed")]
    Unclosed {
        /// The shell construct, in words for the user.
        what: &'static str,
    },
    /// A character occurs where bash does not allow it.
    #[error("the command line has an unexpected `{}`", .found.escape_debug())]
    Unexpected {
        /// The first unexpected character.
        found: char,
    },
    /// The construct may be valid bash, but this parser does not support it.
    #[error("haft's shell parser does not understand {what}")]
    Unclear {
        /// The shell construct, in words for the user.
        what: &'static str,
    },
}

/// The commands in a line, and the texts that the parser treated as data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellReading {
    /// All simple commands at any depth, including the commands in the arguments of other commands.
    pub commands: Vec<ReadCommand>,
    /// The texts outside of commands: values of variables, here-documents, words of loops and tests.
    pub data: Vec<String>,
}

/// A simple command, with its position relative to other commands in the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadCommand {
    /// The simple command itself.
    pub command: ShellCommand,
    /// The index of the command whose arguments contain this one.
    pub carrier: Option<usize>,
    /// The parts of the arguments that were parsed as commands.
    pub passed_on: Vec<String>,
}

/// Returns all simple commands in a line at any depth, including the commands in the arguments of other commands.
pub fn commands(line: &str) -> Result<Vec<ShellCommand>, ShellError> {
    Ok(read_line(line)?.commands.into_iter().map(|read| read.command).collect())
}

/// Parses a line, and records for each command where it was found.
pub fn read_line(line: &str) -> Result<ShellReading, ShellError> {
    if line.len() > LINE_BYTES_MAX {
        return Err(ShellError::TooLong { bytes: line.len() });
    }
    let mut reading = ShellReading::default();
    let (found, data) = ShellParser::read(line)?;
    reading.add(found, data, None);
    let mut levels = vec![0; reading.commands.len()];
    let mut at = 0;
    while at < reading.commands.len() {
        for carried in carried(&reading.commands[at].command) {
            reading.commands[at].passed_on.push(carried.text());
            let (found, data) = carried_commands(carried, &reading.commands[at].command)?;
            reading.add(found, data, Some(at));
        }
        let level = levels[at] + 1;
        levels.resize(reading.commands.len(), level);
        if level > CARRIED_DEPTH_MAX && levels.last() == Some(&level) {
            return Err(ShellError::TooDeep);
        }
        if reading.commands.len() > COMMANDS_MAX {
            return Err(ShellError::TooManyCommands);
        }
        at += 1;
    }
    Ok(reading)
}

impl ShellReading {
    fn add(&mut self, found: Vec<ShellCommand>, data: Vec<String>, carrier: Option<usize>) {
        let read = |command| ReadCommand { command, carrier, passed_on: Vec::new() };
        self.commands.extend(found.into_iter().map(read));
        self.data.extend(data);
    }
}

/// Returns the commands in the arguments of `outer`, and the texts that are not commands. The commands inherit the
/// variables and redirections of `outer`.
fn carried_commands(
    carried: WrappedCommand,
    outer: &ShellCommand,
) -> Result<(Vec<ShellCommand>, Vec<String>), ShellError> {
    let (mut commands, data) = match carried {
        WrappedCommand::Line(line) => ShellParser::read(&line)?,
        WrappedCommand::Command(command) => (vec![command], Vec::new()),
        WrappedCommand::Unseen => {
            let program = outer.program().map_or("it", |word| &word.text);
            return Ok((vec![ShellCommand::unseen(program)], Vec::new()));
        }
    };
    for command in &mut commands {
        command.assignments.extend_from_slice(&outer.assignments);
        command.redirections.extend_from_slice(&outer.redirections);
        if command.redirections.len() > REDIRECTIONS_MAX {
            return Err(ShellError::TooManyRedirections);
        }
    }
    Ok((commands, data))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wrapper_tests;
