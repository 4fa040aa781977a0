//! The second check after the shell parser: finds denied commands that are mentioned where the parser found no command.
//!
//! The table of programs that run other programs cannot be complete. If a deny rule has `rm *` and the word `rm` is in
//! the line, but not as a program that the parser found and judged, then the line needs approval. This includes an
//! argument of `echo`, because the parser cannot know how the output is used. The check ignores a mention in a command
//! that an allow rule permits, if the pattern of this rule contains the word, as in `git rm *`. An unknown program may
//! pass its argument to a shell, so `r\m` and `r''m` inside an argument mention `rm` too.

use super::{CommandPattern, PermissionDecision, PermissionRule, PermissionRules, Ruling};
use crate::approval::shown;
use crate::shell::{ReadCommand, ShellReading};

impl PermissionRules {
    /// Returns the ruling about the first denied command that is mentioned outside of the commands that were parsed.
    pub(super) fn by_mention(&self, tool: &str, reading: &ShellReading) -> Option<Ruling> {
        let denying = self.with_command(tool).filter(|(_, rule)| rule.decision == PermissionDecision::Deny);
        denying.into_iter().find_map(|(index, rule)| {
            let phrase = DeniedPhrase::of(rule.command.as_ref()?)?;
            self.mentions(tool, reading, &phrase).then(|| mentioned(index, rule, &phrase))
        })
    }

    fn mentions(&self, tool: &str, reading: &ShellReading, phrase: &DeniedPhrase) -> bool {
        let in_data = reading
            .data
            .iter()
            .any(|text| phrase.program.count(text) > 0 || phrase.program.count(&without_quotes(text)) > 0);
        let in_arguments = |read: &ReadCommand| {
            phrase.program.is_unread(read) && !self.is_named_by_allow(tool, read, &phrase.program)
        };
        (in_data || reading.commands.iter().any(in_arguments)) && phrase.has_arguments(reading)
    }

    /// Returns true if an allow rule whose pattern contains the word applies to the command.
    fn is_named_by_allow(&self, tool: &str, read: &ReadCommand, word: &DeniedWord) -> bool {
        let ruling = self.by_command(tool, &read.command);
        let rule = ruling.rule.and_then(|index| self.rules.get(index));
        let names = |pattern: &CommandPattern| word.count(&pattern.to_string()) > 0;
        ruling.decision == PermissionDecision::Allow
            && rule.and_then(|rule| rule.command.as_ref()).is_some_and(names)
    }
}

fn mentioned(index: usize, rule: &PermissionRule, phrase: &DeniedPhrase) -> Ruling {
    let why = format!(
        "the command line contains `{}` of rule {index}, `{rule}`, and haft cannot tell whether the shell runs it",
        shown(&phrase.program.text)
    );
    Ruling { decision: PermissionDecision::Ask, rule: Some(index), why: why.into(), asking: Vec::new() }
}

/// The words of a deny pattern before its first wildcard: `git` and `push` for `git push*`.
struct DeniedPhrase {
    program: DeniedWord,
    arguments: Vec<DeniedWord>,
}

/// A word of a deny pattern.
struct DeniedWord {
    text: String,
    /// True if no wildcard directly follows the word in the pattern. With a wildcard, longer words match too.
    whole: bool,
}

impl DeniedPhrase {
    /// Returns the phrase of a pattern, or `None` if the pattern names no program.
    fn of(pattern: &CommandPattern) -> Option<Self> {
        let text = pattern.to_string().to_ascii_lowercase();
        let end = text.find(['*', '?', '[']).unwrap_or(text.len());
        let words = text[..end].split(' ').filter(|word| !word.is_empty());
        let mut words: Vec<_> = words.map(|word| DeniedWord { text: word.to_owned(), whole: true }).collect();
        let last = words.last_mut()?;
        last.whole = end == text.len() || text[..end].ends_with(' ');
        let program = words.remove(0);
        Some(Self { program, arguments: words })
    }

    /// Returns true if the line also has the other words of the pattern. Without this check, `git push*` would ask
    /// about every mention of git.
    fn has_arguments(&self, reading: &ShellReading) -> bool {
        let words = reading.commands.iter().flat_map(|read| &read.command.words).map(|word| &word.text);
        let texts: Vec<&String> = words.chain(&reading.data).collect();
        self.arguments.iter().all(|word| texts.iter().any(|text| word.count(text) > 0))
    }
}

impl DeniedWord {
    /// Returns true if the word occurs more often in the arguments than in those parts of them that were parsed as
    /// commands.
    fn is_unread(&self, read: &ReadCommand) -> bool {
        let is_unread = |count: &dyn Fn(&str) -> usize| {
            let written: usize = read.command.words.iter().skip(1).map(|word| count(&word.text)).sum();
            let passed: usize = read.passed_on.iter().map(|text| count(text)).sum();
            written > passed
        };
        is_unread(&|text| self.count(text)) || is_unread(&|text| self.count(&without_quotes(text)))
    }

    /// Counts the occurrences of the word in the text, ignoring case.
    fn count(&self, text: &str) -> usize {
        let text = text.to_ascii_lowercase();
        let is_found = |&(at, _): &(usize, &str)| {
            let (before, after) = (&text[..at], &text[at + self.text.len()..]);
            begins_word(before) && (!self.whole || ends_word(after))
        };
        text.match_indices(&self.text).filter(is_found).count()
    }
}

/// Removes the quotes and escapes that a shell would remove from the text.
fn without_quotes(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '\\' | '\'' | '"' | '`')).collect()
}

/// Returns true if a word may begin after this text. Returns false if the text ends with a letter, except for the
/// letter of an escape (`\\nrm`) or of an option (`-xrm`).
fn begins_word(before: &str) -> bool {
    let run_start = before
        .rfind(|c: char| !is_word_char(c))
        .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    let run = &before[run_start..];
    let escaped = before[..run_start].ends_with('\\') && run.chars().count() == 1;
    // Only one letter may be an option: `kill -TERM` does not mention `rm`.
    let option = run.strip_prefix('-').is_some_and(|letters| letters != "-" && letters.chars().count() <= 1);
    run.is_empty() || escaped || option
}

fn ends_word(after: &str) -> bool {
    let mut chars = after.chars();
    match chars.next() {
        Some('.') => !chars.next().is_some_and(char::is_alphanumeric),
        Some(c) => !is_word_char(c),
        None => true,
    }
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}
