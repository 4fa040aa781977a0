//! Who may call what: rules by tool, and for a command line by command.
//!
//! Of the rules that match, the most specific decides; among equals deny beats ask, and ask beats allow. A rule with a
//! command pattern is more specific than any without; then the narrower command pattern counts, then the narrower tool.
//! When no rule matches, the default decides.
//!
//! For a command line each simple command is judged on its own and the strictest judgement holds. A pattern is matched
//! against the words joined by single spaces, so that `git push*` matches `git  'push' -f`. Deny and ask are meant to catch
//! and allow is meant to be exact, so they read the same command differently:
//!
//! | the command | deny, ask | allow |
//! |---|---|---|
//! | `/bin/rm x`, `RM x` | also by the bare name, and in lower case | only as it is written |
//! | `rm $X`, `ls *.c`: a word that is not literal | match when they must, else they make it an ask when they might | never; what they might match becomes an ask |
//! | `X=1 git log`, `git log > f` | match | become an ask (`/dev/null` and copies of descriptors aside) |
//! | `$X a`, `eval "$X"`, `ssh h ls`: the program is not known | | never |
//! | a line that cannot be read | | never |
//!
//! In the last two cases nothing about commands can be said, so the strictest of these holds: ask, the default, and all
//! rules for the tool that have no command pattern. When no rule for the tool has a command pattern the line is not read at
//! all: who allows `bash` allows `bash`.
//!
//! A command without a program (`X=1`, `> f`) is matched by no pattern and falls to the rules without one. Patterns compare
//! text and know no paths: `rm -rf ./build*` also matches `rm -rf ./build /`.

mod judge;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use crate::approval::shown;
use crate::glob::{Glob, GlobError, Specificity, ToolGlob};
use crate::shell;

/// Ordered by strictness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    Allow,
    Ask,
    Deny,
}

impl Decision {
    pub fn name(self) -> &'static str {
        match self {
            Decision::Allow => "allow",
            Decision::Ask => "ask",
            Decision::Deny => "deny",
        }
    }
}

/// What the operator says about calls of some tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub tool: ToolGlob,
    /// Only for calls with a command line that has such a command.
    pub command: Option<CommandPattern>,
    pub decision: Decision,
}

/// The rule in one line: `deny bash: rm *`. Equal rules have equal texts.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.decision.name(), self.tool)?;
        self.command.as_ref().map_or(Ok(()), |command| write!(f, ": {command}"))
    }
}

/// A glob over the words of a command, joined by single spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPattern(Glob);

impl CommandPattern {
    /// Spaces in the pattern are made single too.
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

/// All rules. The order of the list means nothing; an index names a rule to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    pub rules: Vec<Rule>,
    pub default: Decision,
}

impl Default for Rules {
    /// Without rules every call is allowed: what it may do is the sandbox's matter.
    fn default() -> Self {
        Self { rules: Vec::new(), default: Decision::Allow }
    }
}

/// What was decided about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    pub decision: Decision,
    /// The rule that decided; none when it was the default, or that nothing could be decided.
    pub rule: Option<usize>,
    /// For the person who is asked, the model that is refused, and the record.
    pub why: String,
    /// The rules that ask, when their consent would be enough: a person may then answer for these rules once and for
    /// all. Empty when something else than a rule that says `ask` is the reason.
    pub asking: Vec<usize>,
}

impl Rules {
    /// Before the arguments are looked at: denied only if every call of this tool is.
    pub fn admit(&self, tool: &str) -> Ruling {
        let ruling = self.by_tool(tool);
        let exception = self.with_command(tool).any(|(_, rule)| rule.decision != Decision::Deny);
        match ruling.decision {
            Decision::Deny if exception => Ruling {
                decision: Decision::Ask,
                rule: None,
                why: format!("it depends on the command whether `{}` is permitted", shown(tool)),
                asking: Vec::new(),
            },
            Decision::Allow | Decision::Ask | Decision::Deny => ruling,
        }
    }

    /// Decides about a call; `bash_line` is the command line that the call would run, if it is such a tool.
    pub fn decide(&self, tool: &str, bash_line: Option<&str>) -> Ruling {
        let line = bash_line.filter(|_| self.with_command(tool).next().is_some());
        let Some(line) = line else { return self.by_tool(tool) };
        let commands = match shell::commands(line) {
            Ok(commands) => commands,
            Err(error) => return self.unseen(tool, &format!("the command line cannot be read: {error}")),
        };
        let rulings = commands.iter().map(|command| self.by_command(tool, command));
        rulings.reduce(Ruling::and).unwrap_or_else(|| self.by_tool(tool))
    }

    /// The text of the rule that decided, if one did.
    pub fn text(&self, ruling: &Ruling) -> Option<Arc<str>> {
        ruling.rule.and_then(|index| self.rules.get(index)).map(|rule| rule.to_string().into())
    }

    /// The decision in words: each command, the rule that decided about it, and why.
    pub fn explain(&self, tool: &str, bash_line: Option<&str>) -> String {
        let ruling = self.decide(tool, bash_line);
        let mut text = format!("{}: {}\n", ruling.decision.name(), ruling.why);
        let line = bash_line.filter(|_| self.with_command(tool).next().is_some());
        for command in line.and_then(|line| shell::commands(line).ok()).unwrap_or_default() {
            let ruling = self.by_command(tool, &command);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {:<5} {}", ruling.decision.name(), judge::outline(&command));
            let _ = writeln!(text, "        {}", ruling.why);
        }
        text
    }

    /// Rules for the tool that look at commands.
    fn with_command<'a>(&'a self, tool: &str) -> impl Iterator<Item = (usize, &'a Rule)> {
        self.of(tool).filter(|(_, rule)| rule.command.is_some())
    }

    fn without_command<'a>(&'a self, tool: &str) -> impl Iterator<Item = (usize, &'a Rule)> {
        self.of(tool).filter(|(_, rule)| rule.command.is_none())
    }

    fn of<'a>(&'a self, tool: &str) -> impl Iterator<Item = (usize, &'a Rule)> {
        self.rules.iter().enumerate().filter(move |(_, rule)| rule.tool.matches(tool))
    }

    /// By the rules without a command pattern.
    fn by_tool(&self, tool: &str) -> Ruling {
        let most_specific = self.without_command(tool).max_by_key(|(_, rule)| rule.rank());
        match most_specific {
            Some((index, rule)) => Ruling::by_rule(index, rule, tool),
            None => Ruling {
                decision: self.default,
                rule: None,
                why: format!(
                    "no rule is about `{}`, and the default is {}",
                    shown(tool),
                    self.default.name()
                ),
                asking: Vec::new(),
            },
        }
    }

    /// When it is not known what would run.
    fn unseen(&self, tool: &str, why: &str) -> Ruling {
        let start = (self.default.max(Decision::Ask), None);
        let rules = self.without_command(tool).map(|(index, rule)| (rule.decision, Some(index)));
        let (decision, rule) =
            rules.fold(start, |strictest, next| if next.0 > strictest.0 { next } else { strictest });
        Ruling { decision, rule, why: why.to_owned(), asking: Vec::new() }
    }
}

impl Rule {
    /// What makes one matching rule win over another.
    fn rank(&self) -> (Option<Specificity>, Specificity, Decision) {
        let command = self.command.as_ref().map(|pattern| pattern.0.specificity());
        (command, self.tool.specificity(), self.decision)
    }
}

impl Ruling {
    /// As the rule says.
    fn by_rule(index: usize, rule: &Rule, what: &str) -> Self {
        let asking = if rule.decision == Decision::Ask { vec![index] } else { Vec::new() };
        let why = format!("`{}` matches rule {index}, `{rule}`", shown(what));
        Self { decision: rule.decision, rule: Some(index), why, asking }
    }

    /// The stricter of two. Of two that ask, the consent to both is needed.
    fn and(self, other: Ruling) -> Ruling {
        match self.decision.cmp(&other.decision) {
            Ordering::Greater => self,
            Ordering::Less => other,
            Ordering::Equal => {
                let both_ask = !self.asking.is_empty() && !other.asking.is_empty();
                let indices: BTreeSet<_> = self.asking.iter().chain(&other.asking).copied().collect();
                let asking = if both_ask { indices.into_iter().collect() } else { Vec::new() };
                Ruling { asking, ..self }
            }
        }
    }
}

#[cfg(test)]
mod tests;
