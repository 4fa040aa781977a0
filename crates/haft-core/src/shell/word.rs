//! Parses words: quotes, escapes and expansions.

use super::reader::ShellParser;
use super::{ShellCommand, ShellError, ShellWord, ansi_c};

/// A word, with the properties of its written form that the parser needs later.
#[derive(Default)]
pub(super) struct ParsedWord {
    pub(super) word: ShellWord,
    /// True if no part was quoted, escaped or expanded. Only such a word can be a reserved word.
    pub(super) plain: bool,
    /// The length of the text before the first part that is not plain, in bytes.
    head_bytes: usize,
}

impl ParsedWord {
    pub(super) fn is(&self, reserved: &str) -> bool {
        self.plain && !self.word.opaque && self.word.text == reserved
    }

    /// Returns the variable that the word sets if the word is before the program.
    pub(super) fn assigns(&self) -> Option<&str> {
        let (name, _) = self.word.text[..self.head_bytes].split_once('=')?;
        let name = name.strip_suffix('+').unwrap_or(name);
        let name = name.split_once('[').filter(|_| name.ends_with(']')).map_or(name, |(name, _)| name);
        is_variable(name).then_some(name)
    }

    /// Returns true for a text with a substitution. The shell evaluates some quoted text later, in particular array
    /// subscripts in numbers: `let 'a[$(rm x)]=1'`.
    pub(super) fn holds_substitution(&self) -> bool {
        holds_substitution(&self.word.text)
    }

    /// Returns true if the text so far is `name=` or `name+=`.
    fn begins_array(&self) -> bool {
        let name = self.word.text.strip_suffix('=').unwrap_or_default();
        self.plain && is_variable(name.strip_suffix('+').unwrap_or(name))
    }

    /// Returns true if the shell expands a tilde at this position: at the start, or after `=` or `:` as in an
    /// assignment.
    fn expands_tilde(&self) -> bool {
        self.word.text.is_empty() || self.word.text.ends_with(['=', ':'])
    }

    fn quoted(&mut self) {
        if self.plain {
            self.plain = false;
            self.head_bytes = self.word.text.len();
        }
    }

    fn expanded(&mut self) {
        self.quoted();
        self.word.opaque = true;
    }

    fn finish(mut self) -> Self {
        if self.plain {
            self.head_bytes = self.word.text.len();
        }
        self
    }
}

pub(super) fn holds_substitution(text: &str) -> bool {
    text.contains("$(") || text.contains('`')
}

pub(super) fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl ShellParser<'_> {
    /// Parses one word. The caller has checked that a word follows.
    pub(super) fn word(&mut self) -> Result<ParsedWord, ShellError> {
        let start = self.at;
        let mut word = ParsedWord { plain: true, ..ParsedWord::default() };
        // The shell expands unquoted braces with a list or a range in them, and unquoted brackets with a closing
        // bracket.
        let mut brace = false;
        let mut bracket = false;
        while let Some(byte) = self.peek() {
            match byte {
                0 => return Err(self.unexpected()),
                b'<' | b'>' => {
                    if !(self.eat("<(") || self.eat(">(")) {
                        break;
                    }
                    self.parentheses()?;
                    word.expanded();
                }
                b'(' if word.begins_array() => self.array(&mut word)?,
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' => break,
                b'\'' => {
                    self.at += 1;
                    word.quoted();
                    let quoted = self.single_quoted()?;
                    word.word.text.push_str(quoted);
                }
                b'"' => {
                    self.at += 1;
                    word.quoted();
                    self.nested(|reader| reader.double_quoted(&mut word))?;
                }
                b'\\' => {
                    self.at += 1;
                    word.quoted();
                    let escaped = self.take_char().ok_or(ShellError::Unclosed { what: "`\\`" })?;
                    word.word.text.push(escaped);
                }
                b'$' => self.dollar(&mut word)?,
                b'`' => {
                    self.backquotes()?;
                    word.expanded();
                }
                b'*' | b'?' => self.keep_and(&mut word, ShellWord::mark_opaque),
                b']' if bracket => self.keep_and(&mut word, ShellWord::mark_opaque),
                b'[' => {
                    bracket = true;
                    self.keep_and(&mut word, |_| {});
                }
                b'~' if word.expands_tilde() => self.keep_and(&mut word, ShellWord::mark_opaque),
                b'{' => {
                    brace = true;
                    self.keep_and(&mut word, |_| {});
                }
                b',' if brace => self.keep_and(&mut word, ShellWord::mark_opaque),
                b'.' if brace && self.is_next("..") => self.keep_and(&mut word, ShellWord::mark_opaque),
                _ => self.keep_and(&mut word, |_| {}),
            }
        }
        if self.at == start {
            return Err(self.unexpected());
        }
        Ok(word.finish())
    }

    /// Parses a word that is not part of a command, and adds its text to `data`.
    pub(super) fn data_word(&mut self) -> Result<ParsedWord, ShellError> {
        let word = self.word()?;
        self.data.push(word.word.text.clone());
        Ok(word)
    }

    fn keep_and(&mut self, word: &mut ParsedWord, mark: fn(&mut ShellWord)) {
        mark(&mut word.word);
        word.word.text.extend(self.take_char());
    }

    /// Parses an array: `name=(words)`.
    fn array(&mut self, word: &mut ParsedWord) -> Result<(), ShellError> {
        word.expanded();
        self.at += 1;
        loop {
            self.skip_lines()?;
            if self.eat(")") {
                return Ok(());
            }
            let element = self.data_word()?;
            if element.holds_substitution() {
                self.push(ShellCommand::unseen("an array"))?;
            }
        }
    }

    fn single_quoted(&mut self) -> Result<&str, ShellError> {
        let quoted = self.rest().split_once('\'').map(|(quoted, _)| quoted);
        let quoted = quoted.ok_or(ShellError::Unclosed { what: "a single quote" })?;
        self.at += quoted.len() + 1;
        Ok(quoted)
    }

    fn double_quoted(&mut self, word: &mut ParsedWord) -> Result<(), ShellError> {
        loop {
            match self.peek().ok_or(ShellError::Unclosed { what: "a double quote" })? {
                0 => return Err(self.unexpected()),
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => {
                    self.at += 1;
                    // `peek` is not used, because an escaped backslash before a line break does not join lines, but
                    // `peek` would skip both.
                    let escaped = self.rest().starts_with(['$', '`', '"', '\\']);
                    word.word.text.extend(if escaped { self.take_char() } else { Some('\\') });
                }
                b'$' => match self.dollar_in_quotes()? {
                    DollarMeaning::Literal => word.word.text.push('$'),
                    DollarMeaning::Expanded => word.expanded(),
                },
                b'`' => {
                    self.backquotes_in_quotes()?;
                    word.expanded();
                }
                _ => word.word.text.extend(self.take_char()),
            }
        }
    }

    /// Parses `$` outside of quotes, where it may also start a quoted string.
    fn dollar(&mut self, word: &mut ParsedWord) -> Result<(), ShellError> {
        if self.eat("$'") {
            word.quoted();
            let decoded = ansi_c::decode(self.ansi_c_quoted()?);
            word.word.text.push_str(&decoded.text);
            word.word.opaque |= decoded.opaque;
            return Ok(());
        }
        if self.eat("$\"") {
            // In `$"text"`, the shell looks up the text in a message catalog and may replace it.
            word.expanded();
            return self.nested(|reader| reader.double_quoted(word));
        }
        match self.dollar_in_quotes()? {
            DollarMeaning::Literal => word.word.text.push('$'),
            DollarMeaning::Expanded => word.expanded(),
        }
        Ok(())
    }

    fn ansi_c_quoted(&mut self) -> Result<&str, ShellError> {
        let text = self.rest();
        let mut escaped = false;
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                b'\'' if !escaped => {
                    self.at += at + 1;
                    return Ok(&text[..at]);
                }
                b'\\' => escaped = !escaped,
                _ => escaped = false,
            }
        }
        Err(ShellError::Unclosed { what: "a single quote" })
    }

    /// Parses `$` inside quotes, where it is an expansion or a plain dollar sign and never starts a quoted string.
    pub(super) fn dollar_in_quotes(&mut self) -> Result<DollarMeaning, ShellError> {
        self.at += 1;
        match self.peek() {
            Some(b'(') if self.eat("((") => self.nested(ShellParser::arithmetic)?,
            Some(b'(') => {
                self.at += 1;
                self.parentheses()?;
            }
            Some(b'{') => {
                self.at += 1;
                self.nested(ShellParser::parameter)?;
            }
            Some(b'[') => return Err(ShellError::Unclear { what: "`$[`" }),
            Some(b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!' | b'0'..=b'9') => self.at += 1,
            Some(byte) if byte == b'_' || byte.is_ascii_alphabetic() => {
                while self.peek().is_some_and(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) {
                    self.at += 1;
                }
            }
            Some(_) | None => return Ok(DollarMeaning::Literal),
        }
        Ok(DollarMeaning::Expanded)
    }

    /// Parses the rest of `${`. The quoting rules inside depend on the operator and on the quotes around it, so every
    /// quote is an error.
    fn parameter(&mut self) -> Result<(), ShellError> {
        if matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'|' | b'(')) {
            return Err(ShellError::Unclear { what: "`${ command; }`" });
        }
        loop {
            if self.is_next("@P") || self.is_next("<(") || self.is_next(">(") {
                return Err(ShellError::Unclear { what: "`@P` or a process substitution inside `${}`" });
            }
            match self.peek().ok_or(ShellError::Unclosed { what: "`${`" })? {
                b'}' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\'' | b'"' | b'\\' => return Err(ShellError::Unclear { what: "a quote inside `${}`" }),
                b'$' => {
                    self.dollar_in_quotes()?;
                }
                b'`' => self.backquotes()?,
                _ => {
                    self.take_char();
                }
            }
        }
    }

    /// Parses the rest of `((`, up to `))`. A single `)` means that the text is a nested subshell, not arithmetic.
    pub(super) fn arithmetic(&mut self) -> Result<(), ShellError> {
        let mut open = 0_usize;
        loop {
            if self.is_next("<(") || self.is_next(">(") {
                return Err(ShellError::Unclear { what: "`<(` or `>(` in an arithmetic expression" });
            }
            match self.peek().ok_or(ShellError::Unclosed { what: "`((`" })? {
                b')' if open == 0 => {
                    let closed = self.eat("))");
                    return closed.then_some(()).ok_or(ShellError::Unclear { what: "`((`" });
                }
                b'\'' | b'"' | b'\\' | b'#' => {
                    return Err(ShellError::Unclear { what: "a quote in an arithmetic expression" });
                }
                b'$' => {
                    self.dollar_in_quotes()?;
                }
                b'`' => self.backquotes()?,
                byte => {
                    open = open + usize::from(byte == b'(') - usize::from(byte == b')');
                    self.take_char();
                }
            }
        }
    }

    pub(super) fn backquotes(&mut self) -> Result<(), ShellError> {
        self.backquoted(&['$', '`', '\\'])
    }

    fn backquotes_in_quotes(&mut self) -> Result<(), ShellError> {
        self.backquoted(&['$', '`', '\\', '"'])
    }

    /// Parses the command in backquotes, after removing one level of backslashes.
    fn backquoted(&mut self, escapable: &[char]) -> Result<(), ShellError> {
        self.at += 1;
        let mut inner = String::new();
        loop {
            match self.take_char().ok_or(ShellError::Unclosed { what: "a backquote" })? {
                '`' => break,
                '\\' => {
                    let escaped = self.take_char().ok_or(ShellError::Unclosed { what: "a backquote" })?;
                    if !escapable.contains(&escaped) {
                        inner.push('\\');
                    }
                    inner.push(escaped);
                }
                c => inner.push(c),
            }
        }
        self.parse_nested_text(&inner, |reader| reader.list(super::reader::ListContext::Line).map(|_| ()))
    }
}

/// The meaning of a `$` in a word.
pub(super) enum DollarMeaning {
    Literal,
    Expanded,
}

impl ShellWord {
    fn mark_opaque(&mut self) {
        self.opaque = true;
    }
}
