//! Repairs text that is nearly a JSON object, in a single pass and without recursion.
//!
//! The pass repairs only mistakes that have one plausible meaning, and records each repair. Any other mistake stops the
//! pass with an error that names the position and the expected token. The time is linear in the length of the text, and
//! `depth_max` bounds the stack of open brackets.

use std::fmt::Write as _;

use super::{ArgumentsError, LineColumn};

pub(super) struct RepairedText {
    pub(super) text: String,
    pub(super) repairs: Vec<&'static str>,
    /// True if the text ended inside a value.
    pub(super) cut_off: bool,
}

/// The reason why the pass stopped, with the position.
pub(super) enum RepairError {
    Expected { what: &'static str, at: usize },
    TooDeep { at: usize },
}

impl RepairError {
    pub(super) fn into_error(self, text: &str, depth_max: usize) -> ArgumentsError {
        match self {
            RepairError::Expected { what, at } => ArgumentsError::NotJson {
                problem: format!("expected {what}"),
                spot: LineColumn::at(text, at),
            },
            RepairError::TooDeep { at } => {
                ArgumentsError::TooDeep { depth_max, spot: LineColumn::at(text, at) }
            }
        }
    }
}

/// The whitespace of RFC 8259. Other Unicode spaces, such as U+00A0, are not whitespace in JSON.
const WHITESPACE: [char; 4] = [' ', '\t', '\r', '\n'];

const FENCE: &str = "removed a code fence around the arguments";
const AROUND: &str = "removed text around the JSON object";
const TRAILING_COMMA: &str = "removed a trailing comma";
const UNCLOSED_STRING: &str = "closed a string that was cut off";
const UNCLOSED_BRACKET: &str = "closed a bracket that was left open";
const DROPPED: &str = "dropped an object member or list item that was cut off";
const PYTHON: &str = "replaced a Python literal by its JSON form";
const QUOTES: &str = "replaced single quotes by double quotes";
const ESCAPE: &str = "replaced an escape that is not valid JSON";
const CONTROL: &str = "escaped a control character in a string";

/// Returns the offset at which the value starts: at `[` if the text starts with `[`, else at the first `{`.
///
/// Does not search an array for objects: if only the first object were used as the arguments, the other objects would
/// be dropped silently.
pub(super) fn start(text: &str) -> Option<usize> {
    let body = skip_fence(text);
    let opening = body.trim_start();
    let at = if opening.starts_with('[') { body.len() - opening.len() } else { body.find('{')? };
    Some(text.len() - body.len() + at)
}

fn skip_fence(text: &str) -> &str {
    let fenced = text.trim_start().strip_prefix("```");
    fenced.and_then(|rest| rest.split_once('\n')).map_or(text, |(_, body)| body)
}

pub(super) fn mend(text: &str, start: usize, depth_max: usize) -> Result<RepairedText, RepairError> {
    let mut pass = RepairPass::new(text, start, depth_max);
    pass.run()?;
    pass.record_surroundings(start);
    Ok(RepairedText { text: pass.out, repairs: pass.repairs, cut_off: pass.cut_off })
}

/// The kind of token that the grammar expects next inside one object or array.
#[derive(Clone, Copy, PartialEq)]
enum ExpectedToken {
    Key,
    Colon,
    Value,
    /// A member is complete. A comma or the end of the object or array must follow.
    After,
}

/// One open object or array.
struct OpenContainer {
    closer: char,
    place: ExpectedToken,
    /// The length of the output after the last complete member. `end_of_text` truncates the output to this length if
    /// the text ends too early.
    whole: usize,
}

impl OpenContainer {
    /// Returns the token that begins a new member: a key in an object, a value in an array.
    fn first_expected_token(&self) -> ExpectedToken {
        if self.closer == '}' { ExpectedToken::Key } else { ExpectedToken::Value }
    }
}

struct RepairPass<'a> {
    text: &'a str,
    at: usize,
    out: String,
    frames: Vec<OpenContainer>,
    depth_max: usize,
    repairs: Vec<&'static str>,
    cut_off: bool,
}

impl<'a> RepairPass<'a> {
    fn new(text: &'a str, start: usize, depth_max: usize) -> Self {
        let out = String::with_capacity(text.len() - start);
        Self { text, at: start, out, frames: Vec::new(), depth_max, repairs: Vec::new(), cut_off: false }
    }

    /// Repairs the text until the outermost value is closed or the text ends.
    fn run(&mut self) -> Result<(), RepairError> {
        self.open()?;
        while !self.frames.is_empty() {
            self.skip_whitespace();
            match self.peek() {
                None => self.end_of_text(),
                Some('}' | ']') => self.close()?,
                Some(_) => self.token()?,
            }
        }
        Ok(())
    }

    fn token(&mut self) -> Result<(), RepairError> {
        match (self.place(), self.peek()) {
            (ExpectedToken::Key | ExpectedToken::Value, Some(quote @ ('"' | '\''))) => self.string(quote),
            (ExpectedToken::Value, Some('{' | '[')) => self.open(),
            (ExpectedToken::Value, Some(_)) => self.literal(),
            (ExpectedToken::Colon, Some(':')) => {
                self.punctuation(':', ExpectedToken::Value);
                Ok(())
            }
            (ExpectedToken::After, Some(',')) => {
                let next =
                    self.frames.last().map_or(ExpectedToken::Value, OpenContainer::first_expected_token);
                self.punctuation(',', next);
                Ok(())
            }
            (ExpectedToken::Key, _) => self.expected("a property name in double quotes"),
            (ExpectedToken::Colon, _) => self.expected("`:` after a property name"),
            (ExpectedToken::Value, None) => self.expected("a value"),
            (ExpectedToken::After, _) => self.expected("`,` or a closing bracket"),
        }
    }

    fn open(&mut self) -> Result<(), RepairError> {
        if self.frames.len() == self.depth_max {
            return Err(RepairError::TooDeep { at: self.at });
        }
        let Some(opener) = self.take() else { return self.expected("a value") };
        self.out.push(opener);
        let closer = if opener == '{' { '}' } else { ']' };
        let mut frame = OpenContainer { closer, place: ExpectedToken::Key, whole: self.out.len() };
        frame.place = frame.first_expected_token();
        self.frames.push(frame);
        Ok(())
    }

    fn close(&mut self) -> Result<(), RepairError> {
        let Some(frame) = self.frames.last() else { return self.expected("a value") };
        if self.peek() != Some(frame.closer) {
            return self.expected(if frame.closer == '}' {
                "`}` before this character"
            } else {
                "`]` before this character"
            });
        }
        if frame.place != ExpectedToken::After && frame.place != frame.first_expected_token() {
            return self.expected("a value");
        }
        // In this state, any output after the last complete member can only be a comma.
        if self.out.len() > frame.whole {
            self.out.truncate(frame.whole);
            self.record(TRAILING_COMMA);
        }
        self.take();
        self.pop();
        Ok(())
    }

    fn pop(&mut self) {
        if let Some(frame) = self.frames.pop() {
            self.out.push(frame.closer);
        }
        self.mark_member_complete();
    }

    fn string(&mut self, quote: char) -> Result<(), RepairError> {
        self.take();
        if quote == '\'' {
            self.record(QUOTES);
        }
        self.out.push('"');
        loop {
            match self.take() {
                Some(c) if c == quote => break,
                Some('\\') => self.escape()?,
                // Reachable only inside single quotes: in a double-quoted string the first arm matches.
                Some('"') => self.out.push_str("\\\""),
                Some(c) if c < ' ' => self.control(c),
                Some(c) => self.out.push(c),
                None => {
                    self.cut_off = true;
                    self.record(UNCLOSED_STRING);
                    break;
                }
            }
        }
        self.out.push('"');
        match self.place() {
            ExpectedToken::Key => self.set_expected_token(ExpectedToken::Colon),
            ExpectedToken::Colon | ExpectedToken::Value | ExpectedToken::After => self.mark_member_complete(),
        }
        Ok(())
    }

    /// Copies the rest of an escape, after its backslash. Drops the escape if the text ends inside it.
    fn escape(&mut self) -> Result<(), RepairError> {
        match self.take() {
            None => {}
            Some('\'') => {
                self.record(ESCAPE);
                self.out.push('\'');
            }
            Some('u') => {
                let digits = self.text[self.at..].chars().take(4).take_while(char::is_ascii_hexdigit).count();
                if digits == 4 {
                    self.out.push_str("\\u");
                } else if self.at + digits == self.text.len() {
                    self.at = self.text.len();
                } else {
                    return self.expected("four hexadecimal digits");
                }
            }
            Some(c @ ('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't')) => self.out.extend(['\\', c]),
            // The position must point at the character after the backslash, which `take` has already consumed.
            Some(_) => {
                self.at = self.text.floor_char_boundary(self.at - 1);
                return self.expected("a JSON escape after the backslash (write `\\\\` for a backslash)");
            }
        }
        Ok(())
    }

    fn control(&mut self, c: char) {
        self.record(CONTROL);
        match c {
            '\n' => self.out.push_str("\\n"),
            '\r' => self.out.push_str("\\r"),
            '\t' => self.out.push_str("\\t"),
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(self.out, "\\u{:04x}", u32::from(c));
            }
        }
    }

    /// Copies a number or a word. `serde_json` checks later if the literal is valid JSON. This function drops the
    /// literal only if it is incomplete because the text ends.
    fn literal(&mut self) -> Result<(), RepairError> {
        let rest = &self.text[self.at..];
        let length = rest.find(|c: char| !is_literal(c)).unwrap_or(rest.len());
        let word = match &rest[..length] {
            "" => return self.expected("a value"),
            "True" => self.python("true"),
            "False" => self.python("false"),
            "None" => self.python("null"),
            word => word,
        };
        let at_end = length == rest.len();
        self.at += length;
        // A number at the very end may lack digits ("12" of "123"), so even a valid number is reported as cut off.
        self.cut_off |= at_end;
        if at_end && serde_json::from_str::<serde::de::IgnoredAny>(word).is_err() {
            return Ok(());
        }
        self.out.push_str(word);
        self.mark_member_complete();
        Ok(())
    }

    fn python(&mut self, json: &'static str) -> &'a str {
        self.record(PYTHON);
        json
    }

    fn punctuation(&mut self, mark: char, next: ExpectedToken) {
        self.take();
        self.out.push(mark);
        self.set_expected_token(next);
    }

    /// Drops the incomplete member and closes all open brackets.
    fn end_of_text(&mut self) {
        if let Some(frame) = self.frames.last()
            && self.out.len() > frame.whole
        {
            let only_a_comma = frame.place == frame.first_expected_token() && self.out.ends_with(',');
            self.cut_off |= !only_a_comma;
            self.out.truncate(frame.whole);
            self.record(if only_a_comma { TRAILING_COMMA } else { DROPPED });
        }
        self.record(UNCLOSED_BRACKET);
        while !self.frames.is_empty() {
            self.pop();
        }
    }

    fn record_surroundings(&mut self, start: usize) {
        let (before, after) = (&self.text[..start], &self.text[self.at..]);
        if before.contains("```") || after.contains("```") {
            self.record(FENCE);
        } else if [before, after].iter().any(|around| !around.trim_matches(WHITESPACE).is_empty()) {
            self.record(AROUND);
        }
    }

    fn mark_member_complete(&mut self) {
        let length = self.out.len();
        if let Some(frame) = self.frames.last_mut() {
            frame.whole = length;
            frame.place = ExpectedToken::After;
        }
    }

    fn place(&self) -> ExpectedToken {
        self.frames.last().map_or(ExpectedToken::After, |frame| frame.place)
    }

    fn set_expected_token(&mut self, place: ExpectedToken) {
        if let Some(frame) = self.frames.last_mut() {
            frame.place = place;
        }
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Skips whitespace between tokens without copying it.
    fn skip_whitespace(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches(WHITESPACE).len();
    }

    fn record(&mut self, repair: &'static str) {
        if !self.repairs.contains(&repair) {
            self.repairs.push(repair);
        }
    }

    fn expected<T>(&self, what: &'static str) -> Result<T, RepairError> {
        Err(RepairError::Expected { what, at: self.at })
    }
}

fn is_literal(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '.')
}
