//! Permission rules for tool calls, by tool, and for command lines also by command.
//!
//! The most specific matching rule decides; among equally specific rules deny beats ask, and ask beats allow. A rule
//! with a command pattern is more specific than any rule without one. Between two such rules the narrower command
//! pattern wins, then the narrower tool pattern. If no rule matches, the default decides.
//!
//! In a command line each simple command gets its own decision, and the strictest decision applies. A pattern matches
//! the words of the command joined by single spaces, so that `git push*` matches `git  'push' -f`. Deny and ask rules
//! must catch every variant of a command, while allow rules must permit nothing beyond their pattern. Therefore the two
//! groups treat the same command differently:
//!
//! | command | deny and ask rules | allow rules |
//! |---|---|---|
//! | `/bin/rm x`, `RM x` | also match the bare name, and its lower case | match only the written form |
//! | `rm $X`, `ls *.c`: a word that is not literal | match if certain, ask if possible | ask if certain or possible |
//! | `X=1 git log`, `git log > f` | match | ask (not for input files, `/dev/null` and copies of descriptors) |
//! | `$X a`, `eval "$X"`, `ssh h ls`: an unknown program | | never match |
//! | a line that does not parse | | never match |
//!
//! Deny rules have a second check, because haft cannot know every program that runs other programs: if the first word
//! of a deny rule occurs in the line, but not as a program that was parsed and judged, then `allow` becomes `ask`.
//!
//! In the last two rows of the table the commands are unknown, so the strictest of these decisions applies: ask, the
//! default, and the decisions of all rules for the tool that have no command pattern. If no rule for the tool has a
//! command pattern, `decide` does not parse the line at all: a rule that allows `bash` allows every command.
//!
//! No pattern matches a command without a program (`X=1`, `> f`), so the rules without a pattern decide. Patterns
//! compare text and do not interpret paths: `rm -rf ./build*` also matches `rm -rf ./build /`.

mod command_decision;
mod mentions;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use crate::approval::shown;
use crate::glob::{Glob, GlobError, Specificity, ToolGlob};
use crate::shell;

/// The decision about a call, ordered by strictness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PermissionDecision {
    /// The call is made without approval.
    Allow,
    /// A user must approve the call.
    Ask,
    /// The call is refused, and no user can approve it.
    Deny,
}

impl PermissionDecision {
    /// Returns the name that rules and audit records use.
    pub fn name(self) -> &'static str {
        match self {
            PermissionDecision::Allow => "allow",
            PermissionDecision::Ask => "ask",
            PermissionDecision::Deny => "deny",
        }
    }
}

/// An operator's rule for calls to some tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRule {
    /// The exposed names of the tools that the rule applies to.
    pub tool: ToolGlob,
    /// The command pattern, if the rule applies only to command lines with a matching command.
    pub command: Option<CommandPattern>,
    /// The decision if the rule matches and no more specific rule does.
    pub decision: PermissionDecision,
}

/// Prints the rule in one line, such as `deny bash: rm *`. Equal rules print equal texts.
impl fmt::Display for PermissionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.decision.name(), self.tool)?;
        self.command.as_ref().map_or(Ok(()), |command| write!(f, ": {command}"))
    }
}

/// A glob over the words of a command, joined by single spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPattern(Glob);

impl CommandPattern {
    /// Parses a pattern. Collapses several spaces into one, so that the pattern matches the joined words of a command.
    pub fn new(written: &str) -> Result<Self, GlobError> {
        let words: Vec<_> = written.split_whitespace().collect();
        Glob::new(&words.join(" ")).map(Self)
    }
}

impl fmt::Display for CommandPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// All rules. Their order has no effect; messages refer to a rule by its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRules {
    /// The operator's rules, in the order of the configuration.
    pub rules: Vec<PermissionRule>,
    /// The decision if no rule matches.
    pub default: PermissionDecision,
}

impl Default for PermissionRules {
    /// Returns rules that allow every call: without rules, only the sandbox restricts a call.
    fn default() -> Self {
        Self { rules: Vec::new(), default: PermissionDecision::Allow }
    }
}

/// One simple command in a line, with the ruling about it.
#[derive(Debug, Clone)]
pub(crate) struct JudgedCommand {
    pub(crate) command: shell::ShellCommand,
    pub(crate) ruling: Ruling,
    /// True if the command only runs its literal words: it sets no variable and writes no file.
    pub(crate) is_literal: bool,
}

/// One command in a line as the parser understood it, for a person who asks why a call is allowed or denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedCommand {
    /// The command with its variables and redirections. Words that the shell would expand are in angle brackets.
    pub command: String,
    /// The outer command whose arguments contain this command.
    pub carrier: Option<String>,
    /// The decision about this command alone.
    pub ruling: Ruling,
}

/// The decision about a call, with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// The strictest decision about any part of the call.
    pub decision: PermissionDecision,
    /// The deciding rule; `None` if no rule decided, for example because the default applied.
    pub rule: Option<usize>,
    /// The explanation for the user who approves, the model whose call is refused, and the audit record.
    pub why: Cow<'static, str>,
    /// The ask rules whose approval is enough to permit the call, so that a user may approve these rules permanently.
    /// Empty if there is any reason other than an ask rule.
    pub asking: Vec<usize>,
}

impl PermissionRules {
    /// Decides before the arguments are known. Denies only if the rules deny every call to this tool.
    pub fn admit(&self, tool: &str) -> Ruling {
        let ruling = self.by_tool(tool);
        let exception = self.with_command(tool).any(|(_, rule)| rule.decision != PermissionDecision::Deny);
        match ruling.decision {
            PermissionDecision::Deny if exception => Ruling {
                decision: PermissionDecision::Ask,
                rule: None,
                why: format!("the decision about `{}` depends on the command that it runs", shown(tool))
                    .into(),
                asking: Vec::new(),
            },
            PermissionDecision::Allow | PermissionDecision::Ask | PermissionDecision::Deny => ruling,
        }
    }

    /// Decides if a call is allowed. `bash_line` is the command line that the call would run, for tools that run one.
    pub fn decide(&self, tool: &str, bash_line: Option<&str>) -> Ruling {
        let line = bash_line.filter(|_| self.with_command(tool).next().is_some());
        let Some(line) = line else { return self.by_tool(tool) };
        let reading = match shell::read_line(line) {
            Ok(reading) => reading,
            Err(error) => return self.unseen(tool, &format!("haft cannot parse the command line: {error}")),
        };
        let rulings = reading.commands.iter().map(|read| self.by_command(tool, &read.command));
        let ruling = rulings.reduce(Ruling::and).unwrap_or_else(|| self.by_tool(tool));
        match ruling.decision {
            PermissionDecision::Allow => self.by_mention(tool, &reading).unwrap_or(ruling),
            PermissionDecision::Ask | PermissionDecision::Deny => ruling,
        }
    }

    /// Returns each command that was found in a line, in order. Empty if the line cannot be parsed, or if no rule has a
    /// command pattern.
    pub fn explained_commands(&self, tool: &str, bash_line: Option<&str>) -> Vec<ExplainedCommand> {
        let line = bash_line.filter(|_| self.with_command(tool).next().is_some());
        let commands = line.and_then(|line| shell::read_line(line).ok()).unwrap_or_default().commands;
        let explained = |read: &shell::ReadCommand| ExplainedCommand {
            command: command_decision::outline(&read.command),
            carrier: read.carrier.map(|at| command_decision::outline(&commands[at].command)),
            ruling: self.by_command(tool, &read.command),
        };
        commands.iter().map(explained).collect()
    }

    /// Judges each simple command in a line. Returns `None` if the line cannot be parsed.
    pub(crate) fn judged_commands(&self, tool: &str, bash_line: &str) -> Option<Vec<JudgedCommand>> {
        let judged = |command: shell::ShellCommand| JudgedCommand {
            ruling: self.by_command(tool, &command),
            is_literal: command_decision::extra_effect(&command).is_none(),
            command,
        };
        Some(shell::commands(bash_line).ok()?.into_iter().map(judged).collect())
    }

    /// Returns the text of the deciding rule, if there is one.
    pub fn text(&self, ruling: &Ruling) -> Option<Arc<str>> {
        ruling.rule.and_then(|index| self.rules.get(index)).map(|rule| rule.to_string().into())
    }

    /// Explains the decision: each command, the rule that decided, and the reason.
    pub fn explain(&self, tool: &str, bash_line: Option<&str>) -> String {
        let ruling = self.decide(tool, bash_line);
        let mut text = format!("{}: {}\n", ruling.decision.name(), ruling.why);
        for ExplainedCommand { command, carrier, ruling } in self.explained_commands(tool, bash_line) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {:<5} {command}", ruling.decision.name());
            if let Some(carrier) = carrier {
                let _ = writeln!(text, "        found inside `{carrier}`");
            }
            let _ = writeln!(text, "        {}", ruling.why);
        }
        text
    }

    /// Returns the rules for the tool that have a command pattern.
    fn with_command<'a>(&'a self, tool: &str) -> impl Iterator<Item = (usize, &'a PermissionRule)> {
        self.of(tool).filter(|(_, rule)| rule.command.is_some())
    }

    fn without_command<'a>(&'a self, tool: &str) -> impl Iterator<Item = (usize, &'a PermissionRule)> {
        self.of(tool).filter(|(_, rule)| rule.command.is_none())
    }

    fn of<'a>(&'a self, tool: &str) -> impl Iterator<Item = (usize, &'a PermissionRule)> {
        self.rules.iter().enumerate().filter(move |(_, rule)| rule.tool.matches(tool))
    }

    /// Returns the ruling of the rules without a command pattern.
    fn by_tool(&self, tool: &str) -> Ruling {
        let most_specific = self.without_command(tool).max_by_key(|(_, rule)| rule.rank());
        match most_specific {
            Some((index, rule)) => Ruling::by_rule(index, rule, tool),
            None => Ruling {
                decision: self.default,
                rule: None,
                // Most calls end at this point, so the text is not built for each of them.
                why: Cow::Borrowed(match self.default {
                    PermissionDecision::Allow => "no rule matches, and the default is allow",
                    PermissionDecision::Ask => "no rule matches, and the default is ask",
                    PermissionDecision::Deny => "no rule matches, and the default is deny",
                }),
                asking: Vec::new(),
            },
        }
    }

    /// Returns the ruling for a command line whose commands are unknown.
    fn unseen(&self, tool: &str, why: &str) -> Ruling {
        let start = (self.default.max(PermissionDecision::Ask), None);
        let rules = self.without_command(tool).map(|(index, rule)| (rule.decision, Some(index)));
        let (decision, rule) =
            rules.fold(start, |strictest, next| if next.0 > strictest.0 { next } else { strictest });
        Ruling { decision, rule, why: why.to_owned().into(), asking: Vec::new() }
    }
}

impl PermissionRule {
    /// Returns the key by which matching rules are ordered; the rule with the greatest key decides.
    fn rank(&self) -> (Option<Specificity>, Specificity, PermissionDecision) {
        let command = self.command.as_ref().map(|pattern| pattern.0.specificity());
        (command, self.tool.specificity(), self.decision)
    }
}

impl Ruling {
    /// Returns the ruling of a matching rule.
    fn by_rule(index: usize, rule: &PermissionRule, what: &str) -> Self {
        let asking = if rule.decision == PermissionDecision::Ask { vec![index] } else { Vec::new() };
        let why = format!("`{}` matches rule {index}, `{rule}`", shown(what));
        Self { decision: rule.decision, rule: Some(index), why: why.into(), asking }
    }

    /// Combines two rulings into the stricter one. If both ask, the call needs both approvals.
    fn and(self, other: Ruling) -> Ruling {
        match self.decision.cmp(&other.decision) {
            Ordering::Greater => self,
            Ordering::Less => other,
            Ordering::Equal => {
                // If one ruling asks for a reason other than an ask rule, approving the rules of the other ruling would
                // not be enough.
                let both_ask = !self.asking.is_empty() && !other.asking.is_empty();
                let indices: BTreeSet<_> = self.asking.iter().chain(&other.asking).copied().collect();
                let asking = if both_ask { indices.into_iter().collect() } else { Vec::new() };
                Ruling { asking, ..self }
            }
        }
    }
}

#[cfg(test)]
mod mention_tests;
#[cfg(test)]
mod tests;
