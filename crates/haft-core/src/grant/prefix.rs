//! Grants for command prefixes such as `git status`, and the choice of the prefix to offer to a person.

use super::{AskedCall, Grant, GrantScope, every_rule};
use crate::rules::{JudgedCommand, PermissionDecision};

/// The maximum number of words in an offered prefix: the program and its subcommand.
pub const PREFIX_WORDS_MAX: usize = 2;

/// Shell builtins that change the meaning of later commands in the same line, through variables such as `PATH` or
/// through shell options. After one of them, `git status` may run a different program.
const SHELL_CHANGING: [&str; 14] = [
    "declare",
    "export",
    "getopts",
    "local",
    "mapfile",
    "printf",
    "read",
    "readarray",
    "readonly",
    "set",
    "shopt",
    "typeset",
    "unset",
    "wait",
];

/// Programs that run code from their arguments or input. `bash *` would allow every script.
const INTERPRETERS: [&str; 22] = [
    "ash", "awk", "bash", "bun", "busybox", "dash", "deno", "fish", "gawk", "ksh", "lua", "mksh", "node",
    "nodejs", "perl", "php", "pypy", "python", "rbash", "ruby", "sh", "zsh",
];

/// Returns the grants that together cover each command of a line, or `None` if the line cannot be parsed with
/// certainty.
pub(super) fn by_commands<'g>(grants: &[&'g Grant], call: &AskedCall<'_>) -> Option<Vec<&'g Grant>> {
    let commands = commands_to_approve(call)?;
    let mut found: Vec<&Grant> = Vec::new();
    for command in &commands {
        let with_prefix = grants.iter().find(|grant| is_prefix(grant, command)).map(|grant| vec![*grant]);
        let by_rule = || every_rule(grants, &call.rules.asking(&command.ruling));
        found.extend(with_prefix.or_else(by_rule)?);
    }
    found.sort_by_key(|grant| grant.id);
    found.dedup();
    Some(found)
}

/// Returns the prefix that would cover the call: the program and its subcommand, up to the first option or path.
/// Returns `None` if the commands that need approval have no common prefix of this kind, or if one of them does more
/// than run a program with its arguments, such as redirect output to a file.
pub fn offered_prefix(call: &AskedCall<'_>) -> Option<Vec<String>> {
    let commands = commands_to_approve(call)?;
    let prefix = prefix_of(commands.first()?)?;
    let is_same = |command: &JudgedCommand| prefix_of(command).is_some_and(|other| other == prefix);
    commands.iter().all(is_same).then_some(prefix)
}

/// Returns the commands that a person must approve: those for which a rule requires approval, or all commands if the
/// reason for asking is not a rule. Returns `None` for a line without such commands, for a line that cannot be parsed,
/// and for a line that changes the meaning of its own commands.
fn commands_to_approve(call: &AskedCall<'_>) -> Option<Vec<JudgedCommand>> {
    let line = call.line?;
    let mut commands = call.rules.judged_commands(call.exposed, line)?;
    if commands.iter().any(changes_shell) {
        return None;
    }
    if call.rules.decide(call.exposed, Some(line)).decision == PermissionDecision::Ask {
        commands.retain(|command| command.ruling.decision != PermissionDecision::Allow);
    }
    (!commands.is_empty()).then_some(commands)
}

fn changes_shell(judged: &JudgedCommand) -> bool {
    let command = &judged.command;
    let program = command.program().map_or("", |program| program.text.as_str());
    !command.assignments.is_empty() || SHELL_CHANGING.contains(&program)
}

fn is_prefix(grant: &Grant, judged: &JudgedCommand) -> bool {
    let GrantScope::CommandPrefix(prefix) = &grant.scope else { return false };
    let words = &judged.command.words;
    let starts = || prefix.iter().zip(words).all(|(granted, word)| word.as_literal() == Some(granted));
    judged.is_literal && !prefix.is_empty() && words.len() >= prefix.len() && starts()
}

fn prefix_of(judged: &JudgedCommand) -> Option<Vec<String>> {
    if !judged.is_literal {
        return None;
    }
    let words: Vec<&str> = judged.command.words.iter().filter_map(|word| word.as_literal()).collect();
    let (program, arguments) = words.split_first().filter(|(program, _)| is_program(program))?;
    let subcommands = arguments.iter().take(PREFIX_WORDS_MAX - 1).take_while(|word| is_subcommand(word));
    let prefix: Vec<String> = std::iter::once(program).chain(subcommands).map(ToString::to_string).collect();
    (prefix.len() > 1 || !is_interpreter(program)).then_some(prefix)
}

/// Returns true if the word is a bare program name. Returns false for a path, because the file at the path may change.
fn is_program(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.+".contains(&byte);
    word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') && word.bytes().all(is_plain)
}

fn is_subcommand(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-:".contains(&byte);
    word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.bytes().all(is_plain)
}

fn is_interpreter(program: &str) -> bool {
    let name = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name)
}
