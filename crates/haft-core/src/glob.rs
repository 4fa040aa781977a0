//! Glob patterns with `*`, `?` and `[..]` for tool names and commands.
//!
//! `*` matches any text, `?` any one character, `[a-z]` one character of a set, and `[!a-z]` one character outside it.
//! A set also quotes a special character: `[*]`. There is no escape character. `*` matches across separators such as
//! `/`.
//!
//! This module does not use a glob crate, because policy rules need an operation that no such crate has: to decide if a
//! pattern may match, or must match, a text with unknown parts.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

/// The maximum length of a pattern, in characters. It limits the matching time, which grows with pattern length times
/// text length.
pub const GLOB_CHARS_MAX: usize = 512;

/// A pattern for tool names. It ignores case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolGlob(Glob);

impl ToolGlob {
    /// Compiles a pattern of at most [`GLOB_CHARS_MAX`] characters.
    pub fn new(written: &str) -> Result<Self, GlobError> {
        Glob::new(&written.to_ascii_lowercase()).map(Self)
    }

    /// Returns true if the whole name matches.
    pub fn matches(&self, tool: &str) -> bool {
        self.0.matches(&tool.to_ascii_lowercase())
    }

    /// Returns how specific the pattern is. Used to choose between patterns that match the same tool.
    pub fn specificity(&self) -> Specificity {
        self.0.specificity()
    }
}

impl FromStr for ToolGlob {
    type Err = GlobError;

    fn from_str(written: &str) -> Result<Self, GlobError> {
        Self::new(written)
    }
}

impl fmt::Display for ToolGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The specificity of a pattern; a greater value is more specific. The criteria, in this order: no wildcards at all, a
/// longer prefix without wildcards, more literal characters in total, more `?` and sets, fewer `*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Specificity {
    literal: bool,
    prefix_chars: usize,
    literal_chars: usize,
    single_wildcards: usize,
    many: Reverse<usize>,
}

/// The reason why a pattern is invalid. The message is for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// The pattern is empty.
    #[error("a pattern must not be empty; `*` matches everything")]
    Empty,
    /// The pattern is longer than the limit.
    #[error("a pattern may have at most {chars_max} characters")]
    TooLong {
        /// The maximum length of a pattern, in characters.
        chars_max: usize,
    },
    /// A `[` has no matching `]`.
    #[error("the pattern `{written}` has a `[` without `]`; write `[[]` for a literal bracket")]
    UnclosedSet {
        /// The pattern as the operator wrote it.
        written: String,
    },
    /// A range in a set ends before it begins, such as `[z-a]`.
    #[error("the range `{from}-{to}` in the pattern `{written}` is reversed")]
    BackwardRange {
        /// The pattern as the operator wrote it.
        written: String,
        /// The first character of the range.
        from: char,
        /// The last character of the range.
        to: char,
    },
}

/// A case-sensitive pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob {
    written: String,
    parts: Vec<GlobToken>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum GlobToken {
    Literal(char),
    One,
    Many,
    Set { negated: bool, ranges: Vec<(char, char)> },
}

/// A part of the text to match. It is either known, or unknown and may be any text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextPiece<'a> {
    Known(&'a str),
    Unknown,
}

impl Glob {
    pub(crate) fn new(written: &str) -> Result<Self, GlobError> {
        if written.is_empty() {
            return Err(GlobError::Empty);
        }
        if written.chars().count() > GLOB_CHARS_MAX {
            return Err(GlobError::TooLong { chars_max: GLOB_CHARS_MAX });
        }
        Ok(Self { written: written.into(), parts: parse(written)? })
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.must_match(&[TextPiece::Known(text)])
    }

    /// Returns true if the pattern matches for at least one value of the unknown parts.
    pub(crate) fn may_match(&self, pieces: &[TextPiece<'_>]) -> bool {
        self.run(pieces, PatternPositions::open)
    }

    /// Returns true if the pattern matches for every value of the unknown parts. Only `*` matches an unknown part for
    /// every value.
    pub(crate) fn must_match(&self, pieces: &[TextPiece<'_>]) -> bool {
        self.run(pieces, PatternPositions::retain_wildcards)
    }

    pub(crate) fn specificity(&self) -> Specificity {
        let is_literal = |part: &&GlobToken| matches!(part, GlobToken::Literal(_));
        let literal_chars = self.parts.iter().filter(is_literal).count();
        let many = self.parts.iter().filter(|part| **part == GlobToken::Many).count();
        Specificity {
            literal: literal_chars == self.parts.len(),
            prefix_chars: self.parts.iter().take_while(is_literal).count(),
            literal_chars,
            single_wildcards: self.parts.len() - literal_chars - many,
            many: Reverse(many),
        }
    }

    fn run(&self, pieces: &[TextPiece<'_>], unknown: fn(&mut PatternPositions, &[GlobToken])) -> bool {
        let mut places = PatternPositions::start(&self.parts);
        for piece in pieces {
            match piece {
                TextPiece::Unknown => unknown(&mut places, &self.parts),
                TextPiece::Known(text) => places.read(text, &self.parts),
            }
        }
        places.at_end()
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.written)
    }
}

impl GlobToken {
    fn takes(&self, c: char) -> bool {
        match self {
            GlobToken::Literal(literal) => *literal == c,
            GlobToken::One | GlobToken::Many => true,
            GlobToken::Set { negated, ranges } => {
                ranges.iter().any(|&(from, to)| (from..=to).contains(&c)) != *negated
            }
        }
    }
}

/// The set of pattern positions that the text so far can reach. The matcher never backtracks, so its time is bounded by
/// pattern length times text length.
struct PatternPositions(Vec<bool>);

impl PatternPositions {
    fn start(parts: &[GlobToken]) -> Self {
        let mut places = vec![false; parts.len() + 1];
        places[0] = true;
        Self(places).skip_wildcards(parts)
    }

    /// Adds the positions after each reachable `*`, because a `*` may match the empty text.
    fn skip_wildcards(mut self, parts: &[GlobToken]) -> Self {
        for (at, part) in parts.iter().enumerate() {
            self.0[at + 1] |= self.0[at] && *part == GlobToken::Many;
        }
        self
    }

    fn read(&mut self, text: &str, parts: &[GlobToken]) {
        for c in text.chars() {
            if !self.0.contains(&true) {
                return;
            }
            let mut next = vec![false; parts.len() + 1];
            for (at, part) in parts.iter().enumerate() {
                let after = if *part == GlobToken::Many { at } else { at + 1 };
                next[after] |= self.0[at] && part.takes(c);
            }
            *self = Self(next).skip_wildcards(parts);
        }
    }

    /// Handles an unknown part that may be any text: every later position becomes reachable.
    fn open(&mut self, _: &[GlobToken]) {
        let first = self.0.iter().position(|&here| here).unwrap_or(self.0.len());
        self.0[first..].fill(true);
    }

    /// Handles an unknown part for which the pattern must match every value: only positions at a `*` stay reachable.
    fn retain_wildcards(&mut self, parts: &[GlobToken]) {
        let kept = parts.iter().enumerate().map(|(at, part)| self.0[at] && *part == GlobToken::Many);
        let kept = kept.chain([false]).collect();
        *self = Self(kept).skip_wildcards(parts);
    }

    fn at_end(&self) -> bool {
        self.0.last() == Some(&true)
    }
}

fn parse(written: &str) -> Result<Vec<GlobToken>, GlobError> {
    let mut parts = Vec::new();
    let mut rest = written.chars();
    while let Some(c) = rest.next() {
        let part = match c {
            '*' => GlobToken::Many,
            '?' => GlobToken::One,
            '[' => {
                let (set, after) = parse_set(rest.as_str(), written)?;
                rest = after.chars();
                set
            }
            c => GlobToken::Literal(c),
        };
        parts.push(part);
    }
    Ok(parts)
}

/// Parses a set up to its `]`. A `]` directly after `[`, `[!` or `[^` is a member of the set.
fn parse_set<'a>(text: &'a str, written: &str) -> Result<(GlobToken, &'a str), GlobError> {
    let unclosed = || GlobError::UnclosedSet { written: written.into() };
    let body = text.strip_prefix(['!', '^']).unwrap_or(text);
    let negated = body.len() < text.len();
    let first = body.chars().next().ok_or_else(unclosed)?;
    let end = body[first.len_utf8()..].find(']').ok_or_else(unclosed)? + first.len_utf8();
    let members: Vec<char> = body[..end].chars().collect();
    let ranges = parse_ranges(&members).map_err(|(from, to)| GlobError::BackwardRange {
        written: written.into(),
        from,
        to,
    })?;
    Ok((GlobToken::Set { negated, ranges }, &body[end + 1..]))
}

fn parse_ranges(mut members: &[char]) -> Result<Vec<(char, char)>, (char, char)> {
    let mut ranges = Vec::new();
    loop {
        members = match *members {
            [] => return Ok(ranges),
            [from, '-', to, ..] if from > to => return Err((from, to)),
            [from, '-', to, ref rest @ ..] => {
                ranges.push((from, to));
                rest
            }
            [only, ref rest @ ..] => {
                ranges.push((only, only));
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tool_globs_match_case_insensitively() {
        let check = |glob: &str, tool: &str, expected: bool| {
            assert_eq!(ToolGlob::new(glob).unwrap().matches(tool), expected, "{glob} {tool}");
        };
        check("bash", "Bash", true);
        check("BASH", "bash", true);
        check("bash", "bash2", false);
        check("*", "anything", true);
        check("git__*", "git__log", true);
        check("git__*", "git__", true);
        check("*__delete_*", "github__delete_repo", true);
        check("*a*b*", "xxaxxb", true);
        check("*a*b*", "xxbxxa", false);
        check("???", "log", true);
        check("???", "logs", false);
        check("[a-c]x", "bx", true);
        check("[a-c]x", "dx", false);
        check("[!a-c]x", "dx", true);
        check("[^a-c]x", "ax", false);
        check("[]x]", "]", true);
        check("[a-]", "-", true);
        check("[*]", "*", true);
        check("[*]", "a", false);
    }

    #[test]
    fn error_for_an_invalid_pattern_states_the_reason() {
        let check = |glob: &str, expected: &str| {
            assert_eq!(ToolGlob::new(glob).unwrap_err().to_string(), expected);
        };
        check("", "a pattern must not be empty; `*` matches everything");
        check("a[b", "the pattern `a[b` has a `[` without `]`; write `[[]` for a literal bracket");
        check("[]", "the pattern `[]` has a `[` without `]`; write `[[]` for a literal bracket");
        check("[!", "the pattern `[!` has a `[` without `]`; write `[[]` for a literal bracket");
        check("[z-a]", "the range `z-a` in the pattern `[z-a]` is reversed");
        check(&"x".repeat(513), "a pattern may have at most 512 characters");
    }

    #[test]
    fn narrower_pattern_has_higher_specificity() {
        let rising = ["*", "*__log", "g*", "git__*", "git__*a*", "git__*a", "git__?a", "git__log*", "x"];
        for pair in rising.windows(2) {
            let [less, more] = [pair[0], pair[1]].map(|glob| ToolGlob::new(glob).unwrap().specificity());
            assert!(less < more, "{pair:?}");
        }
    }

    #[test]
    fn only_a_star_matches_every_value_of_an_unknown_part() {
        let check = |glob: &str, pieces: &[TextPiece<'_>], may: bool, must: bool| {
            let glob = Glob::new(glob).unwrap();
            assert_eq!((glob.may_match(pieces), glob.must_match(pieces)), (may, must), "{glob} {pieces:?}");
        };
        let git_unknown = [TextPiece::Known("git "), TextPiece::Unknown];
        check("git push*", &git_unknown, true, false);
        check("git *", &git_unknown, true, true);
        check("git ?", &git_unknown, true, false);
        check("rm *", &git_unknown, false, false);
        check("*", &[TextPiece::Unknown], true, true);
        check("a*z", &[TextPiece::Known("a"), TextPiece::Unknown, TextPiece::Known("z")], true, true);
        check("a*z", &[TextPiece::Known("a"), TextPiece::Unknown, TextPiece::Known("y")], false, false);
    }

    proptest! {
        #[test]
        fn glob_matching_agrees_with_a_recursive_reference(glob in "[ab*?]{1,8}", text in "[abc]{0,8}") {
            prop_assert_eq!(Glob::new(&glob).unwrap().matches(&text), plainly(glob.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn must_match_holds_for_every_value_of_the_unknown_part(
            glob in "[ab*?]{1,8}", before in "[ab]{0,3}", within in "[ab ]{0,3}", after in "[ab]{0,3}",
        ) {
            let glob = Glob::new(&glob).unwrap();
            let pieces = [TextPiece::Known(&before), TextPiece::Unknown, TextPiece::Known(&after)];
            let matches = glob.matches(&format!("{before}{within}{after}"));
            prop_assert!(matches || !glob.must_match(&pieces));
            prop_assert!(!matches || glob.may_match(&pieces));
        }

        #[test]
        fn parsing_any_pattern_never_panics(glob in "\\PC{0,40}", text in "\\PC{0,40}") {
            if let Ok(glob) = ToolGlob::new(&glob) {
                glob.matches(&text);
            }
        }
    }

    fn plainly(glob: &[u8], text: &[u8]) -> bool {
        match (glob, text) {
            ([], text) => text.is_empty(),
            ([b'*', glob @ ..], _) => (0..=text.len()).any(|at| plainly(glob, &text[at..])),
            ([b'?', glob @ ..], [_, text @ ..]) => plainly(glob, text),
            ([literal, glob @ ..], [c, text @ ..]) => literal == c && plainly(glob, text),
            (_, []) => false,
        }
    }
}
