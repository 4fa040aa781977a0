//! Finds commands in the arguments of other commands: `sudo rm`, `bash -c '..'`, `find -exec`, `git -c alias..`.

use super::options::{OptionEffect, OptionGrammar, may_be_option};
use super::programs::{self, ProgramRow, ProgramRuns};
use super::variables;
use super::word::holds_substitution;
use super::{ShellCommand, ShellWord, interpreters};

/// A command in the arguments of another command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WrappedCommand {
    /// A nested command that is parsed as a command line of its own, such as the argument of `sh -c`.
    Line(String),
    Command(ShellCommand),
    /// The outer command runs a command that the parser cannot determine.
    Unseen,
}

impl WrappedCommand {
    /// Returns the nested command line in a word.
    pub(super) fn line(word: &ShellWord) -> Self {
        word.as_literal().map_or(Self::Unseen, |line| Self::Line(line.to_owned()))
    }

    /// Returns the words of this command; empty for a command that the parser cannot determine.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Line(line) => line.clone(),
            Self::Command(command) => command.to_string(),
            Self::Unseen => String::new(),
        }
    }
}

pub(super) fn carried(command: &ShellCommand) -> Vec<WrappedCommand> {
    let [program, arguments @ ..] = command.words.as_slice() else { return Vec::new() };
    let Some(program) = program.as_literal() else { return Vec::new() };
    let name = program.rsplit('/').next().unwrap_or(program);
    let mut found = match interpreters::carried(name, arguments) {
        Some(found) => found,
        None => programs::row(name).map_or_else(Vec::new, |row| by_row(name, row, arguments)),
    };
    if EVALUATING.contains(&name) {
        let evaluates = arguments.iter().any(|word| holds_substitution(&word.text));
        found.extend(unseen_if(evaluates));
        found.extend(arguments.iter().filter_map(variables::set_by_builtin));
    }
    found
}

/// Builtins that evaluate numbers or subscripts, and so run substitutions even in quoted text, and builtins that set
/// variables.
const EVALUATING: [&str; 17] = [
    "[",
    "declare",
    "export",
    "getopts",
    "let",
    "local",
    "mapfile",
    "printf",
    "read",
    "readarray",
    "readonly",
    "return",
    "shift",
    "test",
    "typeset",
    "unset",
    "wait",
];

fn by_row(name: &str, row: &ProgramRow, arguments: &[ShellWord]) -> Vec<WrappedCommand> {
    let leading = || OptionScan::leading(row.options, arguments);
    match row.runs {
        ProgramRuns::Anything => unseen_if(!only_informs(arguments)),
        ProgramRuns::AnythingInWords => unseen_if(!arguments.is_empty() && !only_informs(arguments)),
        ProgramRuns::Options => anywhere(row.options, arguments),
        ProgramRuns::OptionsAndVariables => {
            [anywhere(row.options, arguments), variables_and_input(arguments)].concat()
        }
        ProgramRuns::OptionsBeforeDashes => {
            let end = arguments.iter().position(|word| word.text == "--").unwrap_or(arguments.len());
            anywhere(row.options, &arguments[..end])
        }
        ProgramRuns::OptionsAndCluster => bare_cluster(row.options, arguments),
        ProgramRuns::Subcommand => subcommand(name, row.options, arguments),
        ProgramRuns::Script => script(row.options, arguments),
        ProgramRuns::Command { after } => leading().map_or_else(unseen, |scan| scan.command(name, after)),
        ProgramRuns::CommandAndInput => {
            leading().map_or_else(unseen, |scan| add_input(arguments, scan.command(name, 0)))
        }
        ProgramRuns::Line => leading().map_or_else(unseen, OptionScan::joined),
        ProgramRuns::Lines => leading().map_or_else(unseen, |scan| scan.lines(row.options)),
    }
}

/// The options before the first word that is not an option.
struct OptionScan<'w> {
    found: Vec<WrappedCommand>,
    rest: &'w [ShellWord],
    informs: bool,
    has_script: bool,
    /// True if one of the options is not in the grammar.
    unknown: bool,
}

impl<'w> OptionScan<'w> {
    /// Scans the options of a wrapper. Returns `None` for an unknown option, because then the start of the command is
    /// unknown too.
    fn leading(options: OptionGrammar, words: &'w [ShellWord]) -> Option<Self> {
        Self::lenient(options, words).filter(|scan| !scan.unknown)
    }

    /// Scans options and treats unknown ones as flags. Returns `None` if an option's value is code, or if a word may
    /// expand to any option.
    fn lenient(options: OptionGrammar, words: &'w [ShellWord]) -> Option<Self> {
        let mut scan =
            Self { found: Vec::new(), rest: words, informs: false, has_script: false, unknown: false };
        while let [word, rest @ ..] = scan.rest {
            if word.opaque && (word.text.is_empty() || word.text.starts_with('-')) {
                return None;
            }
            if word.text == "--" {
                scan.rest = rest;
                break;
            }
            if !word.text.starts_with('-') || (word.text == "-" && options.read("-").unknown) {
                break;
            }
            scan.rest = rest;
            scan.option(options, word)?;
            if scan.has_script {
                break;
            }
        }
        Some(scan)
    }

    fn option(&mut self, options: OptionGrammar, word: &ShellWord) -> Option<()> {
        let option = options.read(&word.text);
        self.unknown |= option.unknown;
        match option.effect {
            OptionEffect::Flag | OptionEffect::AttachedValue => {}
            OptionEffect::Information => self.informs = true,
            OptionEffect::Script => self.has_script = true,
            OptionEffect::Value if option.attached.is_some() => {}
            OptionEffect::Value => self.rest = self.rest.get(1..).unwrap_or_default(),
            OptionEffect::Line => {
                let line = match option.attached {
                    Some(line) => WrappedCommand::Line(line.to_owned()),
                    None => self.rest.first().map_or(WrappedCommand::Unseen, WrappedCommand::line),
                };
                if option.attached.is_none() {
                    self.rest = self.rest.get(1..).unwrap_or_default();
                }
                self.found.push(line);
            }
            OptionEffect::Code | OptionEffect::Command => return None,
        }
        Some(())
    }

    /// Returns the command that begins after the first `after` words. `env` and `sudo` accept variables before the
    /// command.
    fn command(mut self, name: &str, after: usize) -> Vec<WrappedCommand> {
        if self.informs || self.has_script {
            return self.found;
        }
        let mut words = self.rest.get(after..).unwrap_or_default();
        if words.is_empty() {
            self.found.extend(unseen_if(programs::starts_shell(name)));
            return self.found;
        }
        // `flock FILE -c LINE` accepts options after the file.
        if after > 0 && words[0].text.starts_with('-') {
            let again = programs::row(name).and_then(|row| OptionScan::leading(row.options, words));
            let Some(again) = again else { return unseen() };
            self.found.extend(again.found);
            words = again.rest;
        }
        let mut command = ShellCommand::default();
        while let [word, rest @ ..] = words {
            let Some((variable, value)) = variables::assignment(word) else { break };
            self.found.extend(variables::runs(&variable, &value));
            command.assignments.push(variable);
            words = rest;
        }
        // `sudo A=1 -u root rm` has more options after the variable. Only `env` would run a program whose name starts
        // with a dash.
        if words.first().is_some_and(|word| word.text.starts_with('-')) && name != "env" {
            return unseen();
        }
        if !words.is_empty() {
            words.clone_into(&mut command.words);
            self.found.push(WrappedCommand::Command(command));
        }
        self.found
    }

    fn joined(mut self) -> Vec<WrappedCommand> {
        if !self.informs {
            self.found.extend(join(self.rest));
        }
        self.found
    }

    fn lines(mut self, options: OptionGrammar) -> Vec<WrappedCommand> {
        while let [word, rest @ ..] = self.rest {
            self.found.push(WrappedCommand::line(word));
            let Some(next) = OptionScan::leading(options, rest) else { return unseen() };
            self.found.extend(next.found);
            self.rest = next.rest;
        }
        self.found
    }
}

pub(super) fn unseen() -> Vec<WrappedCommand> {
    vec![WrappedCommand::Unseen]
}

pub(super) fn unseen_if(unseen: bool) -> Vec<WrappedCommand> {
    if unseen { vec![WrappedCommand::Unseen] } else { Vec::new() }
}

/// Joins the words into a new command line, as `eval` does.
pub(super) fn join(words: &[ShellWord]) -> Vec<WrappedCommand> {
    let texts: Option<Vec<_>> = words.iter().map(ShellWord::as_literal).collect();
    match texts {
        Some(texts) if texts.is_empty() => Vec::new(),
        Some(texts) if texts[0].starts_with('-') => unseen(),
        Some(texts) => vec![WrappedCommand::Line(texts.join(" "))],
        None => unseen(),
    }
}

fn only_informs(arguments: &[ShellWord]) -> bool {
    matches!(arguments, [word] if matches!(word.as_literal(), Some("--version" | "--help" | "-V" | "-h")))
}

/// Parses the arguments of an interpreter, which runs code in an option, else a script, else its standard input.
fn script(options: OptionGrammar, arguments: &[ShellWord]) -> Vec<WrappedCommand> {
    let Some(scan) = OptionScan::lenient(options, arguments) else { return unseen() };
    let read = &arguments[..arguments.len() - scan.rest.len()];
    // `python -m timeit` runs its arguments, and `node --import data:..` runs the code in the address.
    let module = read.last().and_then(|word| options.read(&word.text).attached);
    let module = module.or(scan.rest.first().map(|word| word.text.as_str())).unwrap_or_default();
    if scan.has_script && CODE_MODULES.contains(&module)
        || read.iter().any(|word| word.text.contains("data:"))
    {
        return unseen();
    }
    let reads_input = |word: &ShellWord| interpreters::is_input(&word.text);
    let has_file = scan.rest.first().is_some_and(|word| !reads_input(word));
    unseen_if(!scan.informs && !scan.has_script && !has_file)
}

/// Python modules that run code in their arguments or from standard input.
const CODE_MODULES: [&str; 8] = ["IPython", "asyncio", "code", "ipdb", "pdb", "ptpython", "timeit", "xonsh"];

/// Parses the arguments of `make`: variables that name programs, and a makefile from standard input.
fn variables_and_input(arguments: &[ShellWord]) -> Vec<WrappedCommand> {
    let set = arguments.iter().filter_map(variables::assignment);
    let mut found: Vec<_> = set.filter_map(|(variable, value)| variables::runs(&variable, &value)).collect();
    let file = |word: &ShellWord| {
        let attached =
            ["--makefile=", "--file=", "-f"].iter().find_map(|option| word.text.strip_prefix(option));
        attached.unwrap_or(&word.text).to_owned()
    };
    found.extend(unseen_if(arguments.iter().any(|word| interpreters::is_input(&file(word)))));
    found
}

/// Finds the options that run commands, at any position. A value that looks like such an option is treated as one.
fn anywhere(options: OptionGrammar, arguments: &[ShellWord]) -> Vec<WrappedCommand> {
    let mut found = Vec::new();
    for (at, word) in arguments.iter().enumerate() {
        found.extend(option_anywhere(options, word, &arguments[at + 1..]));
    }
    found
}

fn option_anywhere(options: OptionGrammar, word: &ShellWord, rest: &[ShellWord]) -> Option<WrappedCommand> {
    if may_be_option(word) && word.text.starts_with('-') {
        return Some(WrappedCommand::Unseen);
    }
    let option = options.read(&word.text);
    match (option.effect, option.attached) {
        (OptionEffect::Code, _) => Some(WrappedCommand::Unseen),
        (OptionEffect::Line | OptionEffect::Command, Some(_)) if word.opaque => Some(WrappedCommand::Unseen),
        (OptionEffect::Line, Some(line)) => Some(WrappedCommand::Line(line.to_owned())),
        (OptionEffect::Line, None) => Some(rest.first().map_or(WrappedCommand::Unseen, WrappedCommand::line)),
        (OptionEffect::Command, attached) => Some(command_up_to_end(attached, rest)),
        (
            OptionEffect::Flag
            | OptionEffect::Value
            | OptionEffect::AttachedValue
            | OptionEffect::Script
            | OptionEffect::Information,
            _,
        ) => None,
    }
}

/// Returns the command of `fd -x` or `find -exec`, up to `;` or `+`. A word with a placeholder (`{}`) is opaque.
/// Without a placeholder, `fd` appends the names that it finds, so this function appends an opaque word. Then a rule
/// such as `rm *` matches the command.
fn command_up_to_end(attached: Option<&str>, rest: &[ShellWord]) -> WrappedCommand {
    let is_end = |word: &ShellWord| matches!(word.text.as_str(), ";" | "+");
    let words = rest.iter().take_while(|word| !is_end(word)).cloned();
    let opaque = |word: ShellWord| ShellWord {
        opaque: word.opaque || word.text.contains("{}") || word.text.contains("{/"),
        text: word.text,
    };
    let words = attached.map(ShellWord::literal).into_iter().chain(words).map(opaque);
    let mut words: Vec<ShellWord> = words.collect();
    if !words.iter().any(|word| word.opaque) {
        words.push(ShellWord::opaque("the names that fd finds"));
    }
    WrappedCommand::Command(ShellCommand { words, ..ShellCommand::default() })
}

fn bare_cluster(options: OptionGrammar, arguments: &[ShellWord]) -> Vec<WrappedCommand> {
    let first = arguments.first().filter(|word| !word.text.starts_with('-'));
    // The letters in a cluster without a dash take their values from the following words, in order.
    let letters = first.map_or("", |word| word.text.as_str()).chars();
    let runs = letters
        .map(|letter| format!("-{letter}"))
        .any(|option| matches!(options.read(&option).effect, OptionEffect::Code | OptionEffect::Line));
    unseen_if(runs).into_iter().chain(anywhere(options, arguments)).collect()
}

/// Finds the commands that a subcommand such as `git bisect run` runs. A subcommand without a row in the table runs no
/// other program.
fn subcommand(name: &str, options: OptionGrammar, arguments: &[ShellWord]) -> Vec<WrappedCommand> {
    let Some(scan) = OptionScan::lenient(options, arguments) else { return unseen() };
    let mut found = scan.found;
    let Some((word, rest)) = scan.rest.split_first() else { return found };
    let joined = format!("{name}-{}", word.text);
    match (word.as_literal().and_then(|_| programs::row(&joined)), name) {
        (Some(_), "git") if word.text == "config" && reads_configuration(rest) => {}
        (Some(row), _) => found.extend(by_row(&joined, row, rest)),
        (None, _) => {}
    }
    // The git transport `ext::` runs the rest of the address as a command.
    found.extend(unseen_if(name == "git" && rest.iter().any(|word| word.text.contains("ext::"))));
    // With `--exec-path=DIR`, git runs its programs from that directory.
    let before = &arguments[..arguments.len() - scan.rest.len()];
    found.extend(unseen_if(before.iter().any(|word| word.text.starts_with("--exec-path="))));
    found
}

/// Returns true for `git config --get NAME` and `git config --list`, which set nothing.
fn reads_configuration(arguments: &[ShellWord]) -> bool {
    let first =
        arguments.iter().find(|word| !matches!(word.text.as_str(), "--global" | "--local" | "--system"));
    let reading = ["--get", "--get-all", "--get-regexp", "--list", "-l", "get", "list"];
    first.and_then(ShellWord::as_literal).is_some_and(|word| reading.contains(&word))
}

/// Adds an opaque word for the words that `xargs` reads from its input. Words that contain the placeholder of `-I`
/// become opaque too.
fn add_input(arguments: &[ShellWord], found: Vec<WrappedCommand>) -> Vec<WrappedCommand> {
    let placeholder = placeholder(arguments);
    let opaque = |word: ShellWord| match placeholder {
        Some(placeholder) if word.text.contains(placeholder) => ShellWord::opaque(word.text),
        Some(_) | None => word,
    };
    let add = |carried| match carried {
        WrappedCommand::Command(mut command) => {
            command.words = command.words.into_iter().map(opaque).collect();
            command.words.push(ShellWord::opaque("the words that xargs reads"));
            WrappedCommand::Command(command)
        }
        WrappedCommand::Line(_) | WrappedCommand::Unseen => WrappedCommand::Unseen,
    };
    found.into_iter().map(add).collect()
}

/// Returns the text that `xargs -I TEXT` replaces.
fn placeholder(arguments: &[ShellWord]) -> Option<&str> {
    let is_long = |option: &str| {
        let name = option.strip_prefix("--").and_then(|long| long.split('=').next()).unwrap_or_default();
        !name.is_empty() && "replace".starts_with(name)
    };
    let is_short = |option: &str| {
        option
            .strip_prefix('-')
            .is_some_and(|letters| !letters.starts_with('-') && letters.contains(['I', 'J', 'i']))
    };
    let at = arguments.iter().position(|word| is_long(&word.text) || is_short(&word.text))?;
    let option = arguments[at].text.as_str();
    let marks: &[char] = if is_long(option) { &['='] } else { &['I', 'J', 'i'] };
    match option.split_once(marks).map_or("", |(_, value)| value) {
        "" if !is_long(option) && option.contains(['I', 'J']) => Some(arguments.get(at + 1)?.text.as_str()),
        "" => Some("{}"),
        attached => Some(attached),
    }
    .filter(|text| !text.is_empty())
}
