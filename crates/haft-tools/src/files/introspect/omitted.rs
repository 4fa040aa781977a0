//! The entries that an answer of `introspect` leaves out although a reader would expect them, with the reason for each.

use std::fmt;
use std::path::PathBuf;

use super::markup;

/// The maximum number of entries in the list. haft only counts the other entries.
const NAMED_MAX: usize = 20;
/// The maximum length of a path that is shown in full, in characters.
const PATH_CHARS_MAX: usize = 60;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OmittedEntry {
    pub(super) path: PathBuf,
    pub(super) reason: OmissionReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OmissionReason {
    FileTooLarge,
    TotalReached,
    TooManyEntries,
    TooDeep,
    RulesUnusable,
    Unreadable,
}

/// Returns the list for the end of an answer; empty if nothing was left out.
pub(super) fn section(all: &[OmittedEntry]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut lines: Vec<String> = all.iter().take(NAMED_MAX).map(OmittedEntry::to_string).collect();
    if all.len() > NAMED_MAX {
        lines.push(format!("... and {} more", all.len() - NAMED_MAX));
    }
    format!("<left_out>\n{}\n</left_out>\n", lines.join("\n"))
}

impl fmt::Display for OmittedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = markup::shown_path(&self.path);
        let cut = path.char_indices().nth(PATH_CHARS_MAX).map(|(cut, _)| cut);
        match cut {
            None => write!(f, "{path}: {}", self.reason),
            Some(cut) => write!(f, "{}...: {}", &path[..cut], self.reason),
        }
    }
}

impl fmt::Display for OmissionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OmissionReason::FileTooLarge => "the file is too large to show here; use the tool read",
            OmissionReason::TotalReached => "this answer has reached its size limit",
            OmissionReason::TooManyEntries => "the directory has too many entries",
            OmissionReason::TooDeep => "the directory is nested too deeply",
            OmissionReason::RulesUnusable => {
                "haft cannot use the .gitignore of this directory, so its content is not shown"
            }
            OmissionReason::Unreadable => "haft could not read this path",
        })
    }
}
