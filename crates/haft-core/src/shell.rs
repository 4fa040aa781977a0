//! Every simple command that a bash command line would run, found in its syntax.
//!
//! The reader errs on one side only. What it does not understand is an error, never a shorter list: the caller then asks
//! or denies. It is our own, because the parser crate at hand was looked into and panics (`99999999999>x`), overflows the
//! stack (`$($($(`), and normalises what stands inside substitutions; here the time is linear, the depth has a limit, and
//! each doubt is an error.
//!
//! What a reader of one line cannot know: what scripts, programs and stored variables do. A deny-list over commands is
//! therefore a help for people, and the sandbox is the wall.

mod ansi_c;
mod carried;
mod command;
mod here_document;
mod reader;
mod word;

use std::fmt;

use carried::{Carried, carried};
use reader::Reader;

/// Longer lines are not read.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// How deep substitutions, subshells, quotes and `case` may nest.
pub const DEPTH_MAX: usize = 24;

/// How often a command may carry another: `sudo env bash -c 'eval ..'` is four.
pub const CARRIED_DEPTH_MAX: usize = 6;

/// How many simple commands one line may have.
pub const COMMANDS_MAX: usize = 1_000;

/// How many redirections one command may have, those of the groups around it included.
pub const REDIRECTIONS_MAX: usize = 64;

/// One simple command. Without words it only sets variables or opens files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellCommand {
    /// The program first.
    pub words: Vec<ShellWord>,
    /// The names of variables that are set for it.
    pub assignments: Vec<String>,
    pub redirections: Vec<Redirection>,
}

/// A word after quotes are removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellWord {
    pub text: String,
    /// The shell would put something else in its place: `text` is only what could be read of it.
    pub opaque: bool,
}

/// A file that is opened for a command. Copies of descriptors and here-documents open none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirection {
    pub access: Access,
    pub target: ShellWord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Append,
}

impl ShellWord {
    pub fn literal(text: impl Into<String>) -> Self {
        Self { text: text.into(), opaque: false }
    }

    pub fn opaque(text: impl Into<String>) -> Self {
        Self { text: text.into(), opaque: true }
    }

    pub fn as_literal(&self) -> Option<&str> {
        (!self.opaque).then_some(self.text.as_str())
    }
}

impl ShellCommand {
    /// Stands for commands that run but cannot be seen.
    fn unseen(carrier: &str) -> Self {
        Self { words: vec![ShellWord::opaque(format!("what {carrier} runs"))], ..Self::default() }
    }

    pub fn program(&self) -> Option<&ShellWord> {
        self.words.first()
    }
}

/// The words as they were read, for people; a word that is not literal stands in angle brackets.
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

/// Why the commands of a line are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellError {
    TooLong {
        bytes: usize,
    },
    TooDeep,
    TooManyCommands,
    TooManyRedirections,
    /// Something was opened and not closed.
    Unclosed {
        what: &'static str,
    },
    Unexpected {
        found: char,
    },
    /// It may mean something, but not to this reader.
    Unclear {
        what: &'static str,
    },
}

impl fmt::Display for ShellError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes } => {
                write!(f, "the line is {bytes} bytes long, at most {LINE_BYTES_MAX} are read")
            }
            Self::TooDeep => write!(f, "the line nests deeper than {DEPTH_MAX} levels"),
            Self::TooManyCommands => write!(f, "the line has more than {COMMANDS_MAX} commands"),
            Self::TooManyRedirections => {
                write!(f, "a command has more than {REDIRECTIONS_MAX} redirections")
            }
            Self::Unclosed { what } => write!(f, "{what} is not closed"),
            Self::Unexpected { found } => write!(f, "unexpected `{}`", found.escape_debug()),
            Self::Unclear { what } => write!(f, "it is unclear what {what} does"),
        }
    }
}

impl std::error::Error for ShellError {}

/// All simple commands of a line, wherever they stand, and those that other commands carry in their arguments.
pub fn commands(line: &str) -> Result<Vec<ShellCommand>, ShellError> {
    if line.len() > LINE_BYTES_MAX {
        return Err(ShellError::TooLong { bytes: line.len() });
    }
    let mut found = Reader::read(line)?;
    let mut levels = vec![0; found.len()];
    let mut at = 0;
    while at < found.len() {
        for carried in carried(&found[at]) {
            found.extend(carried_commands(carried, &found[at])?);
        }
        let level = levels[at] + 1;
        levels.resize(found.len(), level);
        if level > CARRIED_DEPTH_MAX && levels.last() == Some(&level) {
            return Err(ShellError::TooDeep);
        }
        if found.len() > COMMANDS_MAX {
            return Err(ShellError::TooManyCommands);
        }
        at += 1;
    }
    Ok(found)
}

/// What is carried runs with the variables and files of its carrier.
fn carried_commands(carried: Carried, outer: &ShellCommand) -> Result<Vec<ShellCommand>, ShellError> {
    let mut commands = match carried {
        Carried::Line(line) => Reader::read(&line)?,
        Carried::Command(command) => vec![command],
        Carried::Unseen => {
            let program = outer.program().map_or("it", |word| &word.text);
            return Ok(vec![ShellCommand::unseen(program)]);
        }
    };
    for command in &mut commands {
        command.assignments.extend_from_slice(&outer.assignments);
        command.redirections.extend_from_slice(&outer.redirections);
        if command.redirections.len() > REDIRECTIONS_MAX {
            return Err(ShellError::TooManyRedirections);
        }
    }
    Ok(commands)
}

#[cfg(test)]
mod tests;
