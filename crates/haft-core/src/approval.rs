//! User approvals of calls. Approvals that outlive one call are in [`grant`](crate::grant).

mod confusables;

use std::fmt;
use std::path::PathBuf;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use self::confusables::{folded, imitates_ascii_sign, imitates_ascii_word};
use crate::digest::Digest;
use crate::naming::ToolIdentity;
use crate::position::RunPosition;
use crate::rules::{PermissionRules, Ruling};
use crate::run::CallDecision;
use crate::tool::{CallId, ToolCall};
use crate::validate::ValidArguments;

/// The maximum length of a text shown to a user, in characters. A user could not read a longer text before approving.
pub const SHOWN_CHARS_MAX: usize = 4_000;

/// The number of characters shown from the end of a text that is too long. A command may hide its harmful part at the
/// end, after text that fills the screen.
pub const SHOWN_TAIL_CHARS: usize = 1_000;

/// Identifies one pending approval. A call id is not enough, because providers repeat call ids from turn to turn. The
/// approval id is derived from session, turn and call, so a run that continues in another process asks under the same
/// id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApprovalId(u128);

impl ApprovalId {
    /// Derives the id. `call` must be the full call id: operations truncate it for display, and long call ids of one
    /// turn may share a prefix.
    pub fn of_call(place: RunPosition, call: &CallId) -> Self {
        let digest = Digest::of_text(&format!("approval/{}/{}/{}", place.session, place.turn, call.0));
        let half: [u8; 16] = std::array::from_fn(|at| digest.bytes()[at]);
        Self(u128::from_be_bytes(half))
    }

    /// Reads the text that [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok().map(Self)).flatten()
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApprovalId({self})")
    }
}

/// A call that a user must approve.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRequest {
    /// The approval id. It is derived from session, turn and call, so a resumed run asks under the same id.
    pub id: ApprovalId,
    /// The session and turn of the call.
    pub place: RunPosition,
    /// The exposed name of the tool.
    pub tool: String,
    /// The arguments after repair, as the provider would receive them.
    pub arguments: Map<String, Value>,
    /// The directory that the call would work in.
    pub workspace: PathBuf,
    /// The digest of the call to which the approval is bound.
    pub digest: Digest,
    /// The texts of the rules that require approval. Empty if approving these rules would not be enough to allow the
    /// call.
    pub rules: Vec<String>,
    /// The command prefix that may be approved, such as `git status`; `None` if no prefix covers the call.
    pub prefix: Option<Vec<String>>,
    /// The reason why approval is needed, in words for the user.
    pub why: String,
}

/// A user's answer to an approval request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// Allows this call only.
    AllowOnce,
    /// Allows this exact call in this workspace, now and later.
    AllowExact,
    /// Allows commands that start with the offered prefix in this workspace, now and later.
    AllowPrefix,
    /// Allows calls in this workspace, now and later, if only the listed rules require approval for them.
    AllowRule,
    /// Refuses the call. The model gets an error that says that the user refused.
    Deny,
    /// Denies the call, because no user decided. The text is the reason, such as "the operator did not answer within 10
    /// minutes".
    Unanswered(&'static str),
    /// Defers the decision. The run repeats the call when the decision has been made.
    Later,
}

impl ApprovalAnswer {
    /// Returns the stable name that all records use.
    pub fn name(self) -> &'static str {
        match self {
            ApprovalAnswer::AllowOnce => "allow_once",
            ApprovalAnswer::AllowExact => "allow_exact",
            ApprovalAnswer::AllowPrefix => "allow_prefix",
            ApprovalAnswer::AllowRule => "allow_rule",
            ApprovalAnswer::Deny => "deny",
            ApprovalAnswer::Unanswered(_) => "unanswered",
            ApprovalAnswer::Later => "later",
        }
    }
}

/// Asks a user for approval. Dropping the future withdraws the request.
pub trait Approver: Send + Sync {
    /// Returns the name of the approver, for the audit record.
    fn name(&self) -> &'static str {
        "approver"
    }

    /// Asks the user about a call and returns the answer. The call waits for the answer.
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer>;

    /// Waits for the decision about a call that was deferred with [`ApprovalAnswer::Later`]. The default denies the
    /// call; it is for approvers that never defer.
    fn resolve<'a>(
        &'a self,
        id: ApprovalId,
        place: RunPosition,
        call: &'a ToolCall,
    ) -> BoxFuture<'a, CallDecision> {
        let _ = (id, place, call);
        Box::pin(async { CallDecision::Deny })
    }
}

/// Identifies the call that an approval is bound to. A different tool, argument or workspace makes it a different call.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalKey<'a> {
    /// The tool, independent of the name under which the model sees it.
    pub identity: &'a ToolIdentity,
    /// The digest of the tool's current definition, so that a server cannot change a tool under an existing approval.
    pub definition: Digest,
    /// The arguments of the call after repair and validation.
    pub arguments: &'a ValidArguments,
    /// The workspace path as text, in the form that the user saw.
    pub workspace: &'a str,
}

impl ApprovalKey<'_> {
    /// Returns the digest under which a grant for this exact call is stored.
    pub fn digest(&self) -> Digest {
        let Self { identity, definition, arguments, workspace } = self;
        let parts = [
            Value::from("approval"),
            Value::from(identity.kind.name()),
            Value::from(identity.namespace.as_str()),
            Value::from(identity.tool.as_str()),
            Value::from(definition.to_string()),
            Value::Object(arguments.value().clone()),
            Value::from(*workspace),
        ];
        Digest::of_value(&Value::Array(parts.into()))
    }
}

impl PermissionRules {
    /// Returns the texts of the rules that require approval in this ruling.
    pub fn asking(&self, ruling: &Ruling) -> Vec<String> {
        ruling.asking.iter().filter_map(|&index| self.rules.get(index)).map(ToString::to_string).collect()
    }
}

/// Returns the text in a form that cannot deceive a user. Escapes characters that move the cursor, change the text
/// direction, are invisible or look like an ASCII character, and makes line breaks visible. Doubles each backslash, so
/// that no text can imitate an escape. A text with more than [`SHOWN_CHARS_MAX`] characters is shortened to its
/// beginning and its end.
pub fn shown(text: &str) -> String {
    let left = text.chars().count().saturating_sub(SHOWN_CHARS_MAX);
    if left == 0 {
        return escaped(text);
    }
    let head = &text[..offset(text, SHOWN_CHARS_MAX - SHOWN_TAIL_CHARS)];
    let tail = &text[offset(text, SHOWN_CHARS_MAX - SHOWN_TAIL_CHARS + left)..];
    format!("{} … ({left} characters are not shown) … {}", escaped(head), escaped(tail))
}

/// Returns the lines of a text, each escaped as in [`shown`]. A long text is shortened as in `shown` too. Only `\n`
/// ends a line.
pub fn shown_lines(text: &str) -> Vec<String> {
    let left = text.chars().count().saturating_sub(SHOWN_CHARS_MAX);
    if left == 0 {
        return text.split('\n').map(escaped).collect();
    }
    let head = &text[..offset(text, SHOWN_CHARS_MAX - SHOWN_TAIL_CHARS)];
    let tail = &text[offset(text, SHOWN_CHARS_MAX - SHOWN_TAIL_CHARS + left)..];
    let mut lines: Vec<String> = head.split('\n').map(escaped).collect();
    lines.push(format!("… ({left} characters are not shown) …"));
    lines.extend(tail.split('\n').map(escaped));
    lines
}

/// Returns the byte offset of the character with this index.
fn offset(text: &str, characters: usize) -> usize {
    text.char_indices().nth(characters).map_or(text.len(), |(at, _)| at)
}

/// Escapes a text as [`shown`] does, but does not shorten it.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (c, look) in looks(text) {
        match look {
            CharacterLook::Invisible | CharacterLook::LookAlikeLetter | CharacterLook::LookAlikeSign => {
                shown.extend(c.escape_unicode());
            }
            CharacterLook::Plain => push_visible(&mut shown, c),
        }
    }
    shown
}

/// The numbers of characters in a text that can deceive a reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeceptiveCharacters {
    pub(crate) invisible: usize,
    /// The number of letters that look like ASCII letters. Look-alikes of punctuation, such as typographic quotation
    /// marks, are not counted, because they are common in prose.
    pub(crate) look_alikes: usize,
}

impl DeceptiveCharacters {
    /// Counts the deceptive characters of a text and adds them to the totals.
    pub(crate) fn add(&mut self, text: &str) {
        for (_, look) in looks(text) {
            match look {
                CharacterLook::Invisible => self.invisible += 1,
                CharacterLook::LookAlikeLetter => self.look_alikes += 1,
                CharacterLook::LookAlikeSign | CharacterLook::Plain => {}
            }
        }
    }
}

/// The appearance of a character to a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharacterLook {
    /// The character is invisible, looks like a space, or changes how other characters are displayed.
    Invisible,
    LookAlikeLetter,
    LookAlikeSign,
    Plain,
}

/// Returns each character with its appearance in its word.
fn looks(text: &str) -> impl Iterator<Item = (char, CharacterLook)> {
    text.split_inclusive(|c: char| !c.is_alphanumeric()).flat_map(|piece| {
        let word = piece.trim_end_matches(|c: char| !c.is_alphanumeric());
        let imitates = imitates_ascii_word(word);
        piece.chars().map(move |c| {
            let look = match c {
                c if is_deceptive(c) || c.is_control() && !matches!(c, '\n' | '\r' | '\t') => {
                    CharacterLook::Invisible
                }
                c if imitates_ascii_sign(c) => CharacterLook::LookAlikeSign,
                c if imitates && !c.is_ascii() => CharacterLook::LookAlikeLetter,
                _ => CharacterLook::Plain,
            };
            (c, look)
        })
    })
}

/// A character of a text that was normalized for a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecognizedCharacter {
    pub(crate) c: char,
    pub(crate) before: TextBoundary,
}

/// The boundary before a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TextBoundary {
    None,
    Word,
    Line,
}

/// Normalizes a text, so that a search finds words that are disguised by unusual characters: converts it to lower case,
/// replaces look-alikes by ASCII, and removes white space, invisible characters and the signs of emphasis. Spaces are
/// removed too, because an invisible character may replace a space. A removed character is a boundary between words.
pub(crate) fn recognized(text: &str) -> Vec<RecognizedCharacter> {
    let mut found: Vec<RecognizedCharacter> = Vec::with_capacity(text.len());
    let mut boundary = TextBoundary::Line;
    for c in text.chars() {
        if is_left_out(c) {
            let ends_line = matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}');
            boundary = boundary.max(if ends_line { TextBoundary::Line } else { TextBoundary::Word });
            continue;
        }
        for c in folded(c).to_lowercase() {
            let in_word = found.last().is_some_and(|last| last.c.is_alphanumeric()) && c.is_alphanumeric();
            let before = boundary.max(if in_word { TextBoundary::None } else { TextBoundary::Word });
            found.push(RecognizedCharacter { c, before });
            boundary = TextBoundary::None;
        }
    }
    found
}

/// Returns true for a character that [`recognized`] removes: it separates or emphasizes words, or is invisible.
pub(crate) fn is_left_out(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || is_deceptive(c)
        || matches!(c, '\u{300}'..='\u{36f}' | '*' | '`' | '_' | '-')
}

fn push_visible(shown: &mut String, c: char) {
    match c {
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push_str("\\t"),
        '\\' => shown.push_str("\\\\"),
        c if c.is_control() => shown.extend(c.escape_unicode()),
        c => shown.push(c),
    }
}

/// Returns true for a character that is invisible, looks like a space, or changes how other characters are displayed.
fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}'
        | '\u{2800}' | '\u{3000}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffc}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' | '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::arguments::{ArgumentLimits, RawArguments};
    use crate::name::{Namespace, ToolName};
    use crate::provider::ProviderKind;
    use crate::validate::Schema;

    fn valid(text: &str) -> ValidArguments {
        let parsed = RawArguments::from_text(text).parse(&ArgumentLimits::default()).unwrap();
        Schema::compile(&json!({"type": "object"})).validate(parsed).unwrap()
    }

    fn identity(tool: &str) -> ToolIdentity {
        let namespace = Namespace::new("builtin").unwrap();
        ToolIdentity { kind: ProviderKind::Builtin, namespace, tool: ToolName::new(tool).unwrap() }
    }

    #[test]
    fn approval_digest_changes_with_every_field_of_the_call() {
        let (bash, read) = (identity("bash"), identity("read"));
        let (ls, rm) = (valid(r#"{"command": "ls"}"#), valid(r#"{"command": "rm"}"#));
        let definition = Digest::of_value(&json!(1));
        let key = ApprovalKey { identity: &bash, definition, arguments: &ls, workspace: "/w" };
        assert_eq!(
            key.digest(),
            ApprovalKey { arguments: &valid(r#"{ "command" : "ls" }"#), ..key }.digest()
        );
        let others = [
            ApprovalKey { identity: &read, ..key },
            ApprovalKey { definition: Digest::of_value(&json!(2)), ..key },
            ApprovalKey { arguments: &rm, ..key },
            ApprovalKey { workspace: "/v", ..key },
        ];
        assert!(others.iter().all(|other| other.digest() != key.digest()));
    }

    #[test]
    fn control_and_invisible_characters_are_escaped_for_display() {
        let check = |text: &str, expected: &str| assert_eq!(shown(text), expected);
        check("ls -la", "ls -la");
        check("größe 漢字 😀", "größe 漢字 😀");
        check("a\nb\r\tc", "a\\nb\\r\\tc");
        check("\u{1b}[2Kls", "\\u{1b}[2Kls");
        check("\u{9b}2K", "\\u{9b}2K");
        check("a\u{8}\u{7f}\0", "a\\u{8}\\u{7f}\\u{0}");
        check("ls \u{202e}fr mr\u{2066}", "ls \\u{202e}fr mr\\u{2066}");
        check("r\u{200b}m\u{feff}\u{ad}\u{2060}", "r\\u{200b}m\\u{feff}\\u{ad}\\u{2060}");
        check("a\u{a0}b\u{2003}c", "a\\u{a0}b\\u{2003}c");
        check("tag\u{e0041}", "tag\\u{e0041}");
        check(r"\u{1b}", r"\\u{1b}");
        check("r\u{43c} \u{440}m -\u{433}f", "rм \\u{440}m -\\u{433}f");
        check("отчёт о сне.txt", "отчёт \\u{43e} сне.txt");
        check("rm \u{2013}rf \u{2044}etc", "rm \\u{2013}rf \\u{2044}etc");
    }

    #[test]
    fn approval_text_is_split_at_newlines_and_shortened() {
        assert_eq!(shown_lines("a\r\n\tb\n"), ["a\\r", "\\tb", ""]);
        let cut = shown_lines(&format!("{}\nend", "x".repeat(SHOWN_CHARS_MAX - 1)));
        assert_eq!(cut[1], "… (3 characters are not shown) …");
        assert_eq!(cut.last().unwrap(), "end");
    }

    #[test]
    fn long_approval_text_is_truncated_with_a_count_of_the_rest() {
        let text = shown(&"x".repeat(SHOWN_CHARS_MAX + 7));
        assert!(text.contains("xx … (7 characters are not shown) … xx"), "{text}");
        assert_eq!(text.chars().filter(|c| *c == 'x').count(), SHOWN_CHARS_MAX);
        assert!(!shown(&"x".repeat(SHOWN_CHARS_MAX)).contains('…'));
    }

    #[test]
    fn long_approval_text_still_shows_its_end() {
        let text = shown(&format!("echo {}; rm -rf \u{202e}/", "x".repeat(SHOWN_CHARS_MAX * 2)));
        assert!(text.starts_with("echo xx") && text.ends_with("; rm -rf \\u{202e}/"), "{text}");
    }

    proptest! {
        #[test]
        fn approval_text_contains_no_control_characters(text in ".{0,200}", control in "[\\x00-\\x1f\\x7f-\\x9f\\u{200b}-\\u{200f}\\u{202a}-\\u{202e}]{0,20}") {
            let shown = shown(&format!("{control}{text}{control}"));
            prop_assert!(!shown.chars().any(|c| c.is_control() || is_deceptive(c)));
        }
    }
}
