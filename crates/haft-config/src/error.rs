//! Configuration errors for the operator: the position, the key and the expected value.

use std::fmt;
use std::path::PathBuf;

/// One configuration error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    pub file: PathBuf,
    /// Line and column, counted from 1; `None` for an error about the whole file.
    pub at: Option<(usize, usize)>,
    /// The path of the key, such as `tools.bash.timeout`; empty for an error about the whole file.
    pub key: String,
    pub message: String,
    pub hint: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some((line, column)) = self.at {
            write!(f, "{line}:{column}:")?;
        }
        if !self.key.is_empty() {
            write!(f, " {}:", self.key)?;
        }
        write!(f, " {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// All errors, in the order of the files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(pub Vec<ConfigError>);

/// The maximum number of errors that are shown; the rest is only counted.
const SHOWN_MAX: usize = 100;

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(errors) = self;
        let count = errors.len();
        writeln!(f, "the configuration has {count} error{}", if count == 1 { "" } else { "s" })?;
        for error in errors.iter().take(SHOWN_MAX) {
            writeln!(f, "{error}")?;
        }
        match count.saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => writeln!(f, "{more} more errors are not shown"),
        }
    }
}
