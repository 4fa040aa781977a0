//! Decides if one simple command is allowed.

use super::{PermissionDecision, PermissionRule, PermissionRules, Ruling};
use crate::approval::shown;
use crate::glob::TextPiece;
use crate::shell::{Redirection, RedirectionAccess, ShellCommand, ShellWord};

/// The certainty that a pattern matches a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MatchCertainty {
    No,
    /// The match depends on a word that is not literal.
    May,
    Must,
}

impl PermissionRules {
    pub(super) fn by_command(&self, tool: &str, command: &ShellCommand) -> Ruling {
        match command.program() {
            None => self.by_tool(tool),
            Some(program) if program.opaque => {
                let why = format!("haft cannot tell which program `{}` runs", outline(command));
                self.unseen(tool, &why)
            }
            Some(_) => self.by_program(tool, command),
        }
    }

    /// Checks the rules, the most specific ones first, up to the first rule that certainly matches. An earlier rule
    /// that possibly matches could be the one that decides, so the strictest ruling of all these rules applies.
    fn by_program(&self, tool: &str, command: &ShellCommand) -> Ruling {
        let mut rules: Vec<_> = self.with_command(tool).collect();
        rules.sort_by_key(|(_, rule)| std::cmp::Reverse(rule.rank()));
        let mut possible: Option<Ruling> = None;
        for (index, rule) in rules {
            let ruling = match fit(rule, command) {
                MatchCertainty::No => continue,
                MatchCertainty::May => might_match(index, rule, command),
                MatchCertainty::Must => return join(possible, matches(index, rule, command)),
            };
            possible = Some(join(possible, ruling));
        }
        join(possible, self.by_tool(tool))
    }
}

fn join(possible: Option<Ruling>, ruling: Ruling) -> Ruling {
    match possible {
        Some(possible) => possible.and(ruling),
        None => ruling,
    }
}

fn fit(rule: &PermissionRule, command: &ShellCommand) -> MatchCertainty {
    let spellings = match rule.decision {
        PermissionDecision::Allow => vec![String::new()],
        PermissionDecision::Ask | PermissionDecision::Deny => equivalent_program_names(command),
    };
    spellings
        .iter()
        .map(|program| match_with_program_name(rule, command, program))
        .max()
        .unwrap_or(MatchCertainty::No)
}

/// Matches a rule against the command, with this name in place of the program. An empty `program` keeps the written
/// name.
fn match_with_program_name(rule: &PermissionRule, command: &ShellCommand, program: &str) -> MatchCertainty {
    let Some(pattern) = &rule.command else { return MatchCertainty::No };
    if pattern.0.must_match(&pieces(command, program, WordSpacing::Kept)) {
        return MatchCertainty::Must;
    }
    if pattern.0.may_match(&pieces(command, program, WordSpacing::Unknown)) {
        return MatchCertainty::May;
    }
    MatchCertainty::No
}

/// Returns the names that may run the same program: without its path, and in lower case for file systems that ignore
/// case.
fn equivalent_program_names(command: &ShellCommand) -> Vec<String> {
    let written = command.program().map_or("", |program| &program.text);
    let name = written.rsplit('/').next().unwrap_or(written);
    vec![String::new(), name.to_owned(), name.to_ascii_lowercase(), written.to_ascii_lowercase()]
}

/// Selects how the space before a word that is not literal is treated. If such a word expands to nothing, the space is
/// absent too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordSpacing {
    Kept,
    Unknown,
}

fn pieces<'a>(command: &'a ShellCommand, program: &'a str, spaces: WordSpacing) -> Vec<TextPiece<'a>> {
    let mut pieces = Vec::with_capacity(command.words.len() * 2);
    for (at, word) in command.words.iter().enumerate() {
        if at > 0 && !(word.opaque && spaces == WordSpacing::Unknown) {
            pieces.push(TextPiece::Known(" "));
        }
        pieces.push(match word.as_literal() {
            Some(_) if at == 0 && !program.is_empty() => TextPiece::Known(program),
            Some(text) => TextPiece::Known(text),
            None => TextPiece::Unknown,
        });
    }
    pieces
}

/// Returns the ruling for a rule that surely matches the command. If the command does more than run its literal words
/// (assignments, redirections), the ruling of an allow rule becomes ask.
fn matches(index: usize, rule: &PermissionRule, command: &ShellCommand) -> Ruling {
    let ruling = Ruling::by_rule(index, rule, &command.to_string());
    match (rule.decision, extra_effect(command)) {
        (PermissionDecision::Allow, Some(more)) => Ruling {
            decision: PermissionDecision::Ask,
            rule: Some(index),
            why: format!("{}, but {more}", ruling.why).into(),
            asking: Vec::new(),
        },
        (PermissionDecision::Allow | PermissionDecision::Ask | PermissionDecision::Deny, _) => ruling,
    }
}

fn might_match(index: usize, rule: &PermissionRule, command: &ShellCommand) -> Ruling {
    let why = format!("the command `{}` might match rule {index}, `{rule}`", outline(command));
    Ruling { decision: PermissionDecision::Ask, rule: Some(index), why: why.into(), asking: Vec::new() }
}

/// Describes an effect of a command beyond running its literal words, if there is one.
pub(super) fn extra_effect(command: &ShellCommand) -> Option<String> {
    if let Some(variable) = command.assignments.first() {
        return Some(format!("the command sets the variable `{}`", shown(variable)));
    }
    if let Some(file) = command.redirections.iter().find(|redirection| !is_harmless(redirection)) {
        return Some(format!("the command redirects to or from `{}`", shown(&file.target.text)));
    }
    let word = command.words.iter().find(|word| word.opaque)?;
    Some(format!("the shell expands `{}`", shown(&word.text)))
}

/// Returns true if a redirection needs no approval: it reads a file, or writes to `/dev/null`. Reading from `/dev/tcp`
/// or `/dev/udp` needs approval, because Bash opens a network connection for it.
fn is_harmless(redirection: &Redirection) -> bool {
    let Some(target) = ShellWord::as_literal(&redirection.target) else { return false };
    match redirection.access {
        RedirectionAccess::Read => !target.starts_with("/dev/tcp/") && !target.starts_with("/dev/udp/"),
        RedirectionAccess::Write | RedirectionAccess::Append => target == "/dev/null",
    }
}

/// Formats the command for messages, including its files and variables.
pub(super) fn outline(command: &ShellCommand) -> String {
    let variables = command.assignments.iter().map(|name| format!("{name}=.. "));
    let files = command.redirections.iter().map(|file| {
        let sign = match file.access {
            RedirectionAccess::Read => "<",
            RedirectionAccess::Write => ">",
            RedirectionAccess::Append => ">>",
        };
        format!(" {sign} {}", file.target.text)
    });
    let text: String = variables.chain([command.to_string()]).chain(files).collect();
    shown(&text)
}
