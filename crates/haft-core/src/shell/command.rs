//! Parses commands: reserved words, groups and simple commands.

use super::nested_commands::WrappedCommand;
use super::reader::{ListContext, ListEnd, NextSyntax, OpenGroups, ShellGroup, ShellParser};
use super::word::{ParsedWord, is_variable};
use super::{ShellCommand, ShellError, ShellWord, variables};

impl ShellParser<'_> {
    /// Parses a command that begins with a word or a redirection.
    pub(super) fn command(
        &mut self,
        groups: &mut OpenGroups,
        next: NextSyntax,
    ) -> Result<NextSyntax, ShellError> {
        if next == NextSyntax::Command && self.at_redirection() {
            return self.simple(None);
        }
        let word = self.word()?;
        let reserved = if word.plain && !word.word.opaque { word.word.text.as_str() } else { "" };
        match reserved {
            "then" | "else" | "elif" | "do" => Ok(NextSyntax::Command),
            "}" => self.close(groups, ShellGroup::Brace),
            "fi" => self.close(groups, ShellGroup::If),
            "done" => self.close(groups, ShellGroup::Loop),
            "esac" => Ok(NextSyntax::EndOfCase),
            _ if next == NextSyntax::Operator => Err(ShellError::Unclear {
                what: "a word directly after a compound command, for example after `}` or `done`",
            }),
            "!" | "coproc" => Ok(NextSyntax::Command),
            "{" => Ok(self.open(groups, ShellGroup::Brace)),
            "if" => Ok(self.open(groups, ShellGroup::If)),
            "while" | "until" => Ok(self.open(groups, ShellGroup::Loop)),
            "for" | "select" => {
                let next = self.open(groups, ShellGroup::Loop);
                self.for_head().map(|()| next)
            }
            "case" => {
                let before = self.found.len();
                self.nested(ShellParser::case)?;
                self.redirect_group(before).map(|()| NextSyntax::Operator)
            }
            "[[" => {
                let before = self.found.len();
                self.test()?;
                self.redirect_group(before).map(|()| NextSyntax::Operator)
            }
            "function" => self.function_head(),
            "time" => self.time_options(),
            _ => self.simple(Some(word)),
        }
    }

    fn open(&self, groups: &mut OpenGroups, group: ShellGroup) -> NextSyntax {
        groups.push((group, self.found.len()));
        NextSyntax::Command
    }

    fn close(&mut self, groups: &mut OpenGroups, group: ShellGroup) -> Result<NextSyntax, ShellError> {
        match groups.pop() {
            Some((opened, before)) if opened == group => {
                self.redirect_group(before).map(|()| NextSyntax::Operator)
            }
            Some(_) | None => Err(ShellError::Unclear { what: "the end of a group that was not opened" }),
        }
    }

    fn at_redirection(&mut self) -> bool {
        let start = self.at;
        let found = self.eat_redirection().is_some();
        self.at = start;
        found
    }

    fn simple(&mut self, first: Option<ParsedWord>) -> Result<NextSyntax, ShellError> {
        let mut command = ShellCommand::default();
        let mut next = first;
        loop {
            let word = next.take().filter(|word| !self.is_descriptor(word));
            if let Some(variable) = word.as_ref().and_then(|word| self.descriptor_variable(word)) {
                command.assignments.push(variable);
            } else if let Some(word) = word {
                let names_function = word.plain && command.words.is_empty();
                self.place(word, &mut command)?;
                self.skip_blanks();
                if names_function && self.peek() == Some(b'(') {
                    return self.function_parentheses();
                }
            }
            self.skip_blanks();
            if let Some(kind) = self.eat_redirection() {
                command.redirections.extend(self.redirection(kind)?);
                continue;
            }
            match self.peek() {
                None | Some(b'\n' | b';' | b'|' | b'&' | b')') => break,
                Some(_) => next = Some(self.word()?),
            }
        }
        self.push(command).map(|()| NextSyntax::Command)
    }

    /// Returns true for a descriptor number, such as the `2` in `2>file`.
    fn is_descriptor(&mut self, word: &ParsedWord) -> bool {
        let digits = word.plain && word.word.text.bytes().all(|byte| byte.is_ascii_digit());
        digits && matches!(self.peek(), Some(b'<' | b'>'))
    }

    /// Returns the variable in `{name}>file`, in which bash stores the descriptor number.
    fn descriptor_variable(&mut self, word: &ParsedWord) -> Option<String> {
        let inside = word.word.text.strip_prefix('{')?.strip_suffix('}').filter(|_| word.plain)?;
        let name = inside.split_once('[').map_or(inside, |(name, _)| name);
        (is_variable(name) && matches!(self.peek(), Some(b'<' | b'>'))).then(|| name.to_owned())
    }

    fn place(&mut self, word: ParsedWord, command: &mut ShellCommand) -> Result<(), ShellError> {
        let variable = if command.words.is_empty() { word.assigns() } else { None };
        match variable {
            None => command.words.push(word.word),
            Some(variable) => {
                command.assignments.push(variable.to_owned());
                if word.holds_substitution() {
                    // Bash runs a value like `$(rm x)` when it later evaluates the variable as a number or a prompt.
                    self.push(ShellCommand::unseen(variable))?;
                }
                self.assigned(variable, &word)?;
            }
        }
        Ok(())
    }

    /// Parses the value of a variable as a command line, because programs may run it.
    fn assigned(&mut self, variable: &str, word: &ParsedWord) -> Result<(), ShellError> {
        let text = word.word.text.split_once('=').map_or("", |(_, value)| value).to_owned();
        let value = ShellWord { text, opaque: word.word.opaque };
        match variables::runs(variable, &value) {
            Some(WrappedCommand::Line(line)) => {
                self.parse_nested_text(&line, |reader| reader.list(ListContext::Line).map(|_| ()))
            }
            Some(WrappedCommand::Command(_) | WrappedCommand::Unseen) => {
                self.push(ShellCommand::unseen(variable))
            }
            None => {
                self.data.push(value.text);
                Ok(())
            }
        }
    }

    /// Parses the parentheses after a function name. The parser reads the function body like any other command, so it
    /// need not follow calls of the function.
    fn function_parentheses(&mut self) -> Result<NextSyntax, ShellError> {
        self.at += 1;
        self.skip_blanks();
        if !self.eat(")") {
            return Err(self.unexpected());
        }
        self.skip_lines().map(|()| NextSyntax::Command)
    }

    fn function_head(&mut self) -> Result<NextSyntax, ShellError> {
        self.skip_blanks();
        self.word()?;
        self.skip_blanks();
        match self.peek() {
            Some(b'(') => self.function_parentheses(),
            Some(_) | None => self.skip_lines().map(|()| NextSyntax::Command),
        }
    }

    /// Parses the options of the reserved word `time`, which has only `-p`. With any other option, `time` is the
    /// external program.
    fn time_options(&mut self) -> Result<NextSyntax, ShellError> {
        self.skip_blanks();
        while self.peek() == Some(b'-') {
            let option = self.word()?;
            if !option.is("-p") && !option.is("--") {
                return Err(ShellError::Unclear { what: "an option of `time` other than `-p`" });
            }
            self.skip_blanks();
        }
        Ok(NextSyntax::Command)
    }

    fn for_head(&mut self) -> Result<(), ShellError> {
        self.skip_blanks();
        if self.eat("((") {
            return self.nested(ShellParser::arithmetic);
        }
        let name = self.word()?;
        if !name.plain || !is_variable(&name.word.text) {
            return Err(ShellError::Unclear { what: "a loop variable that is not a plain name" });
        }
        if variables::runs(&name.word.text, &ShellWord::opaque("")).is_some() {
            self.push(ShellCommand::unseen(&name.word.text))?;
        }
        self.push(ShellCommand { assignments: vec![name.word.text], ..ShellCommand::default() })?;
        self.skip_lines()?;
        let start = self.at;
        if self.peek() == Some(b'i') && self.word()?.is("in") {
            return self.for_words();
        }
        self.at = start;
        Ok(())
    }

    fn for_words(&mut self) -> Result<(), ShellError> {
        loop {
            self.skip_blanks();
            match self.peek() {
                Some(b';' | b'\n') => return Ok(()),
                Some(_) | None => self.data_word()?,
            };
        }
    }

    /// Parses `case word in pattern) list ;; esac`.
    fn case(&mut self) -> Result<(), ShellError> {
        self.skip_blanks();
        self.data_word()?;
        self.skip_lines()?;
        if !self.word()?.is("in") {
            return Err(ShellError::Unclear { what: "`case` without `in`" });
        }
        loop {
            self.skip_lines()?;
            if !self.eat("(") {
                let first = self.data_word()?;
                if first.is("esac") {
                    return Ok(());
                }
                self.skip_blanks();
            }
            self.case_patterns()?;
            match self.list(ListContext::CaseItem)? {
                ListEnd::Closed => {}
                ListEnd::Case => return Ok(()),
            }
        }
    }

    fn case_patterns(&mut self) -> Result<(), ShellError> {
        loop {
            self.skip_blanks();
            if self.eat(")") {
                return Ok(());
            }
            if !self.eat("|") {
                self.data_word()?;
            }
        }
    }

    /// Parses `[[ .. ]]`. The test itself runs no command, but the substitutions in it may.
    fn test(&mut self) -> Result<(), ShellError> {
        let mut holds_substitution = false;
        loop {
            while matches!(self.peek(), Some(b' ' | b'\t' | b'\n')) {
                self.at += 1;
            }
            let process = self.is_next("<(") || self.is_next(">(");
            match self.peek() {
                Some(b'#' | b';') => return Err(ShellError::Unclear { what: "`#` or `;` inside `[[`" }),
                Some(b'(' | b')' | b'<' | b'>' | b'&' | b'|') if !process => self.at += 1,
                Some(_) | None => {
                    let word = self.data_word()?;
                    if word.is("]]") {
                        break;
                    }
                    // Bash evaluates the operands of a numeric test a second time, so a substitution in quoted text may
                    // still run.
                    holds_substitution |= word.holds_substitution();
                }
            }
        }
        if holds_substitution {
            self.push(ShellCommand::unseen("[["))?;
        }
        Ok(())
    }
}
