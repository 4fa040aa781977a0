//! The state of the parser, and the parsing of command lists.

use super::here_document::HereDocument;
use super::{COMMANDS_MAX, DEPTH_MAX, REDIRECTIONS_MAX, ShellCommand, ShellError};

pub(super) struct ShellParser<'a> {
    pub(super) text: &'a str,
    /// The current offset, always at a character boundary.
    pub(super) at: usize,
    pub(super) depth: usize,
    pub(super) found: Vec<ShellCommand>,
    /// The words and texts outside of commands.
    pub(super) data: Vec<String>,
    /// Here-documents whose bodies begin after the next line break.
    pub(super) pending: Vec<HereDocument>,
    /// True if a here-document of an outer list is pending. Shells differ in where its body starts.
    pub(super) held: bool,
}

/// The construct that contains a command list, which determines where the list ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListContext {
    Line,
    Parentheses,
    CaseItem,
}

/// The token that ended a command list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListEnd {
    Closed,
    /// The command list ended at `esac`.
    Case,
}

/// A group that a reserved word closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShellGroup {
    Brace,
    If,
    Loop,
}

/// The open groups of a list, each with the number of commands found before it.
pub(super) type OpenGroups = Vec<(ShellGroup, usize)>;

/// The syntax that may come next in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextSyntax {
    Command,
    /// After a group, an operator or a reserved word of an outer group may follow.
    Operator,
    /// The parser has read the reserved word `esac`, which ends the list.
    EndOfCase,
}

impl<'a> ShellParser<'a> {
    /// Returns the commands in a text, and the texts outside of commands.
    pub(super) fn read(text: &str) -> Result<(Vec<ShellCommand>, Vec<String>), ShellError> {
        let mut reader = ShellParser::new(text, 0);
        reader.list(ListContext::Line)?;
        Ok((reader.found, reader.data))
    }

    pub(super) fn new(text: &'a str, depth: usize) -> Self {
        Self { text, at: 0, depth, found: Vec::new(), data: Vec::new(), pending: Vec::new(), held: false }
    }

    /// Returns the next byte. Skips a backslash before a line break, because the shell joins the two lines.
    pub(super) fn peek(&mut self) -> Option<u8> {
        while self.rest().starts_with("\\\n") {
            self.at += 2;
        }
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn take_char(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Consumes an ASCII text if it comes next.
    pub(super) fn eat(&mut self, expected: &str) -> bool {
        let start = self.at;
        for byte in expected.bytes() {
            if self.peek() != Some(byte) {
                self.at = start;
                return false;
            }
            self.at += 1;
        }
        true
    }

    pub(super) fn is_next(&mut self, expected: &str) -> bool {
        let start = self.at;
        let found = self.eat(expected);
        self.at = start;
        found
    }

    pub(super) fn unexpected(&self) -> ShellError {
        match self.rest().chars().next() {
            Some(found) => ShellError::Unexpected { found },
            None => ShellError::Unclosed { what: "the command" },
        }
    }

    pub(super) fn push(&mut self, command: ShellCommand) -> Result<(), ShellError> {
        if self.found.len() >= COMMANDS_MAX {
            return Err(ShellError::TooManyCommands);
        }
        if command.redirections.len() > REDIRECTIONS_MAX {
            return Err(ShellError::TooManyRedirections);
        }
        self.found.push(command);
        Ok(())
    }

    pub(super) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ShellError>,
    ) -> Result<T, ShellError> {
        if self.depth >= DEPTH_MAX {
            return Err(ShellError::TooDeep);
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Parses another text with a new parser, and adds the commands that it finds to this parser.
    pub(super) fn parse_nested_text(
        &mut self,
        text: &str,
        read: impl FnOnce(&mut ShellParser<'_>) -> Result<(), ShellError>,
    ) -> Result<(), ShellError> {
        self.nested(|outer| {
            let mut inner = ShellParser::new(text, outer.depth);
            read(&mut inner)?;
            outer.data.append(&mut inner.data);
            inner.found.into_iter().try_for_each(|command| outer.push(command))
        })
    }

    /// Parses the list after an opening parenthesis, up to the closing one.
    pub(super) fn parentheses(&mut self) -> Result<(), ShellError> {
        self.nested(|reader| {
            let pending = std::mem::take(&mut reader.pending);
            let held = reader.held;
            reader.held |= !pending.is_empty();
            reader.list(ListContext::Parentheses)?;
            reader.pending = pending;
            reader.held = held;
            Ok(())
        })
    }

    pub(super) fn list(&mut self, within: ListContext) -> Result<ListEnd, ShellError> {
        let mut groups = OpenGroups::new();
        let mut next = NextSyntax::Command;
        loop {
            self.skip_blanks();
            let closable = groups.is_empty();
            match self.peek() {
                None if within == ListContext::Line && closable && self.pending.is_empty() => {
                    return Ok(ListEnd::Closed);
                }
                None => return Err(ShellError::Unclosed { what: "a group, a quote or a here-document" }),
                Some(0) => return Err(self.unexpected()),
                Some(b')') if within == ListContext::Parentheses && closable && self.pending.is_empty() => {
                    self.at += 1;
                    return Ok(ListEnd::Closed);
                }
                Some(b';') if within == ListContext::CaseItem && closable && self.eat_case_end() => {
                    return Ok(ListEnd::Closed);
                }
                Some(b'(') if next == NextSyntax::Command => {
                    self.subshell_or_arithmetic()?;
                    next = NextSyntax::Operator;
                }
                _ if self.eat_operator()? => next = NextSyntax::Command,
                Some(_) => next = self.command(&mut groups, next)?,
            }
            if next == NextSyntax::EndOfCase {
                let in_case = within == ListContext::CaseItem && groups.is_empty();
                let misplaced = ShellError::Unclear { what: "`esac` without `case`" };
                return in_case.then_some(ListEnd::Case).ok_or(misplaced);
            }
        }
    }

    fn eat_case_end(&mut self) -> bool {
        self.eat(";;&") || self.eat(";;") || self.eat(";&")
    }

    /// Consumes a separator between commands. After a line break, also reads the pending here-documents.
    fn eat_operator(&mut self) -> Result<bool, ShellError> {
        if self.is_next(";;") || self.is_next(";&") {
            return Err(self.unexpected());
        }
        if self.is_next("&>") {
            return Ok(false);
        }
        if self.eat("\n") {
            return self.here_documents().map(|()| true);
        }
        let operators = ["&&", "||", "|&", "&", "|", ";"];
        Ok(operators.into_iter().any(|operator| self.eat(operator)))
    }

    /// Skips blanks and a comment.
    pub(super) fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        if self.peek() == Some(b'#') {
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    pub(super) fn skip_lines(&mut self) -> Result<(), ShellError> {
        self.skip_blanks();
        while self.eat("\n") {
            self.here_documents()?;
            self.skip_blanks();
        }
        Ok(())
    }

    fn subshell_or_arithmetic(&mut self) -> Result<(), ShellError> {
        let before = self.found.len();
        if self.eat("((") {
            self.nested(ShellParser::arithmetic)?;
        } else {
            self.at += 1;
            self.parentheses()?;
        }
        self.redirect_group(before)
    }

    /// Parses the redirections after a group and adds them to each command in the group.
    pub(super) fn redirect_group(&mut self, before: usize) -> Result<(), ShellError> {
        let mut redirections = Vec::new();
        loop {
            self.skip_blanks();
            self.skip_descriptor();
            match self.eat_redirection() {
                Some(kind) => redirections.extend(self.redirection(kind)?),
                None => break,
            }
        }
        if before == self.found.len() && !redirections.is_empty() {
            // `[[ a ]] > file` contains no command but opens a file.
            self.push(ShellCommand::default())?;
        }
        for command in &mut self.found[before..] {
            command.redirections.extend_from_slice(&redirections);
            if command.redirections.len() > REDIRECTIONS_MAX {
                return Err(ShellError::TooManyRedirections);
            }
        }
        Ok(())
    }

    /// Skips digits that are directly before a redirection.
    fn skip_descriptor(&mut self) {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if !matches!(self.peek(), Some(b'<' | b'>')) {
            self.at = start;
        }
    }
}
