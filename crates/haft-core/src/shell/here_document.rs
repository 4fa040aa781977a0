//! Parses redirections and here-documents, whose bodies follow on later lines.

use super::reader::ShellParser;
use super::{Redirection, RedirectionAccess, ShellError};

/// A here-document whose body the parser has not reached yet.
pub(super) struct HereDocument {
    end: String,
    strips_tabs: bool,
    expands: bool,
}

/// The kind of a redirection operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RedirectionKind {
    Open(RedirectionAccess),
    /// The operators `>&` and `<&`: a copy of a descriptor, or for `>&` also a file.
    Copy(RedirectionAccess),
    HereString,
    HereDocument {
        strips_tabs: bool,
    },
}

/// The redirection operators. Longer operators come before their prefixes.
const OPERATORS: [(&str, RedirectionKind); 12] = [
    ("<<<", RedirectionKind::HereString),
    ("<<-", RedirectionKind::HereDocument { strips_tabs: true }),
    ("<<", RedirectionKind::HereDocument { strips_tabs: false }),
    ("<>", RedirectionKind::Open(RedirectionAccess::Write)),
    ("<&", RedirectionKind::Copy(RedirectionAccess::Read)),
    ("<", RedirectionKind::Open(RedirectionAccess::Read)),
    (">>", RedirectionKind::Open(RedirectionAccess::Append)),
    (">&", RedirectionKind::Copy(RedirectionAccess::Write)),
    (">|", RedirectionKind::Open(RedirectionAccess::Write)),
    (">", RedirectionKind::Open(RedirectionAccess::Write)),
    ("&>>", RedirectionKind::Open(RedirectionAccess::Append)),
    ("&>", RedirectionKind::Open(RedirectionAccess::Write)),
];

impl<'a> ShellParser<'a> {
    /// Consumes a redirection operator. `<(` and `>(` are not redirections; they start a word.
    pub(super) fn eat_redirection(&mut self) -> Option<RedirectionKind> {
        if self.is_next("<(") || self.is_next(">(") {
            return None;
        }
        OPERATORS.into_iter().find(|(operator, _)| self.eat(operator)).map(|(_, kind)| kind)
    }

    /// Parses the target of a redirection. Returns the file if the redirection opens one.
    pub(super) fn redirection(&mut self, kind: RedirectionKind) -> Result<Option<Redirection>, ShellError> {
        self.skip_blanks();
        let word = self.data_word()?;
        let open = |access| Ok(Some(Redirection { access, target: word.word.clone() }));
        match kind {
            RedirectionKind::Copy(_) if is_descriptor(&word.word.text) && !word.word.opaque => Ok(None),
            RedirectionKind::Open(access) | RedirectionKind::Copy(access) => open(access),
            RedirectionKind::HereString => Ok(None),
            RedirectionKind::HereDocument { strips_tabs } => {
                let end = word.word.as_literal().filter(|end| !end.contains('\n'));
                let end = end
                    .ok_or(ShellError::Unclear { what: "a here-document delimiter that is not plain text" })?
                    .to_owned();
                self.pending.push(HereDocument { end, strips_tabs, expands: word.plain });
                Ok(None)
            }
        }
    }

    /// Reads the bodies of the pending here-documents, at the beginning of a line.
    pub(super) fn here_documents(&mut self) -> Result<(), ShellError> {
        if self.held {
            return Err(ShellError::Unclear { what: "a line break before the body of a here-document" });
        }
        for document in std::mem::take(&mut self.pending) {
            let body = self.body(&document)?;
            self.data.push(body.to_owned());
            if document.expands {
                self.parse_nested_text(body, expansions)?;
            }
        }
        Ok(())
    }

    fn body(&mut self, document: &HereDocument) -> Result<&'a str, ShellError> {
        let start = self.at;
        loop {
            let rest = self.rest();
            if rest.is_empty() {
                return Err(ShellError::Unclosed { what: "a here-document" });
            }
            let line = rest.split('\n').next().unwrap_or_default();
            let line_start = self.at;
            self.at = self.text.len().min(self.at + line.len() + 1);
            let compared = if document.strips_tabs { line.trim_start_matches('\t') } else { line };
            if compared == document.end {
                return Ok(&self.text[start..line_start]);
            }
            // The shell would join this line with the next one, which could hide or create the end marker.
            let joins = line.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1;
            if document.expands && joins {
                return Err(ShellError::Unclear {
                    what: "a line continuation (a backslash at the end of a line) in a here-document",
                });
            }
        }
    }
}

/// Parses a text in which only expansions have a special meaning.
fn expansions(reader: &mut ShellParser<'_>) -> Result<(), ShellError> {
    while let Some(byte) = reader.peek() {
        match byte {
            b'\\' => {
                reader.at += 1;
                reader.take_char();
            }
            b'$' => {
                reader.dollar_in_quotes()?;
            }
            b'`' => reader.backquotes()?,
            _ => {
                reader.take_char();
            }
        }
    }
    Ok(())
}

/// Returns true for the target of a descriptor redirection such as `>&1`: `1`, `1-` or `-`.
fn is_descriptor(text: &str) -> bool {
    !text.is_empty() && text.strip_suffix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit())
}
