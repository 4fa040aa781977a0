//! Redirections, and the here-documents whose text follows on later lines.

use super::reader::Reader;
use super::{Access, Redirection, ShellError};

/// A here-document whose body is still to be read.
pub(super) struct HereDocument {
    end: String,
    strips_tabs: bool,
    expands: bool,
}

/// What a redirection operator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Open(Access),
    /// `>&` and `<&`: a copy of a descriptor, or for `>&` a file.
    Copy(Access),
    HereString,
    HereDocument {
        strips_tabs: bool,
    },
}

/// The longer operator first.
const OPERATORS: [(&str, Kind); 12] = [
    ("<<<", Kind::HereString),
    ("<<-", Kind::HereDocument { strips_tabs: true }),
    ("<<", Kind::HereDocument { strips_tabs: false }),
    ("<>", Kind::Open(Access::Write)),
    ("<&", Kind::Copy(Access::Read)),
    ("<", Kind::Open(Access::Read)),
    (">>", Kind::Open(Access::Append)),
    (">&", Kind::Copy(Access::Write)),
    (">|", Kind::Open(Access::Write)),
    (">", Kind::Open(Access::Write)),
    ("&>>", Kind::Open(Access::Append)),
    ("&>", Kind::Open(Access::Write)),
];

impl<'a> Reader<'a> {
    /// Takes a redirection operator. `<(` and `>(` are none: they begin a word.
    pub(super) fn eat_redirection(&mut self) -> Option<Kind> {
        if self.is_next("<(") || self.is_next(">(") {
            return None;
        }
        OPERATORS.into_iter().find(|(operator, _)| self.eat(operator)).map(|(_, kind)| kind)
    }

    /// Reads what follows the operator; a file, if one is opened.
    pub(super) fn redirection(&mut self, kind: Kind) -> Result<Option<Redirection>, ShellError> {
        self.skip_blanks();
        let word = self.word()?;
        let open = |access| Ok(Some(Redirection { access, target: word.word.clone() }));
        match kind {
            Kind::Copy(_) if is_descriptor(&word.word.text) && !word.word.opaque => Ok(None),
            Kind::Open(access) | Kind::Copy(access) => open(access),
            Kind::HereString => Ok(None),
            Kind::HereDocument { strips_tabs } => {
                let end = word.word.as_literal().filter(|end| !end.contains('\n'));
                let end = end.ok_or(ShellError::Unclear { what: "the end of a here-document" })?.to_owned();
                self.pending.push(HereDocument { end, strips_tabs, expands: word.plain });
                Ok(None)
            }
        }
    }

    /// At the beginning of a line: the bodies of the pending here-documents.
    pub(super) fn here_documents(&mut self) -> Result<(), ShellError> {
        if self.held {
            return Err(ShellError::Unclear { what: "a line break before a here-document" });
        }
        for document in std::mem::take(&mut self.pending) {
            let body = self.body(&document)?;
            if document.expands {
                self.read_apart(body, expansions)?;
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
            let joins = line.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1;
            if document.expands && joins {
                return Err(ShellError::Unclear { what: "a joined line in a here-document" });
            }
        }
    }
}

/// A text in which only expansions mean something.
fn expansions(reader: &mut Reader<'_>) -> Result<(), ShellError> {
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

/// `1`, `1-` and `-`.
fn is_descriptor(text: &str) -> bool {
    !text.is_empty() && text.strip_suffix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit())
}
