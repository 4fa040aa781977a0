//! Commands in the arguments of other commands: `sudo rm`, `bash -c '..'`, `find -exec`, `git -c alias..`.

use super::word::{holds_substitution, is_variable};
use super::{ShellCommand, ShellWord};

/// The command in the arguments of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WrappedCommand {
    /// A command line of its own.
    Line(String),
    Command(ShellCommand),
    /// The command runs something that the parser cannot see.
    Unseen,
}

pub(super) fn carried(command: &ShellCommand) -> Vec<WrappedCommand> {
    let [program, arguments @ ..] = command.words.as_slice() else { return Vec::new() };
    let Some(program) = program.as_literal() else { return Vec::new() };
    let name = program.rsplit('/').next().unwrap_or(program);
    match name {
        "bash" | "sh" | "dash" | "ash" | "zsh" | "ksh" | "mksh" | "rbash" | "fish" => shell(arguments),
        "eval" | "watch" => eval(arguments),
        "trap" => trap(arguments),
        "find" => find(arguments),
        "fd" | "fdfind" => exec_options(arguments, &["-x", "--exec", "-X", "--exec-batch"]),
        "xargs" => xargs(arguments),
        "command" if arguments.first().is_some_and(|word| matches!(word.text.as_str(), "-v" | "-V")) => {
            Vec::new()
        }
        "busybox" | "toybox" => rest_of(arguments, 0),
        "git" => unseen_if(git_runs(arguments)),
        "awk" | "gawk" | "mawk" | "nawk" => unseen_if(arguments.iter().any(awk_runs)),
        _ if RUNNERS.contains(&name) => unseen_if(!arguments.is_empty()),
        _ if EVALUATING.contains(&name) => {
            unseen_if(arguments.iter().any(|word| holds_substitution(&word.text)))
        }
        _ => match (wrapper(name), code_options(name)) {
            (Some(wrapper), _) => wrapper.carried(arguments),
            (None, options) => unseen_if(arguments.iter().any(|word| starts_with_any(word, options))),
        },
    }
}

/// Programs that run their arguments in ways that this parser does not know, or that change the meaning of later names.
const RUNNERS: [&str; 20] = [
    ".",
    "alias",
    "at",
    "batch",
    "bind",
    "compgen",
    "complete",
    "enable",
    "entr",
    "fc",
    "hash",
    "parallel",
    "rlwrap",
    "runuser",
    "script",
    "shopt",
    "source",
    "ssh",
    "su",
    "systemd-run",
];

/// Builtins that evaluate numbers or subscripts, and thereby run any substitution in quoted text.
const EVALUATING: [&str; 16] = [
    "[",
    "declare",
    "export",
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

/// Returns the options with which a program takes code or the name of a program to run.
fn code_options(name: &str) -> &'static [&'static str] {
    match name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
        "python" | "pypy" => &["-c", "-"],
        "perl" => &["-e", "-E", "-n", "-p"],
        "ruby" | "lua" | "Rscript" => &["-e"],
        "node" | "nodejs" | "bun" | "deno" => &["-e", "-p", "--eval", "--print", "eval"],
        "php" => &["-r", "-B", "-R", "-E"],
        "tar" | "gtar" | "bsdtar" => {
            &["-I", "-F", "--checkpoint-action", "--to-command", "--use-compress-program", "--rsh-command"]
        }
        "rsync" => &["-e", "--rsh", "--rsync-path"],
        "vi" | "vim" | "nvim" | "ex" | "emacs" => &["-c", "+", "--cmd", "-S", "--eval", "-f", "-l"],
        "gdb" => &["-ex", "-x"],
        _ => &[],
    }
}

/// A program that runs the rest of its words. All known short options are listed by letter; an unlisted option makes
/// the command unseen.
struct WrapperProgram {
    flags: &'static str,
    /// Options that take a value, either attached to the letter or in the next word.
    values: &'static str,
    /// The number of words between the options and the command.
    positionals: usize,
}

fn wrapper(name: &str) -> Option<WrapperProgram> {
    let (flags, values, positionals) = match name {
        "sudo" => ("AbEHinPSs", "ugpChrtTDRU", 0),
        "doas" => ("ns", "uC", 0),
        "env" => ("i0v", "uC", 0),
        "nohup" | "builtin" => ("", "", 0),
        "exec" => ("cl", "a", 0),
        "command" => ("p", "", 0),
        "time" => ("apv", "fo", 0),
        "nice" => ("", "n", 0),
        "ionice" => ("t", "cn", 0),
        "chrt" => ("abfior", "TPD", 1),
        "taskset" => ("a", "", 1),
        "timeout" => ("v", "ks", 1),
        "stdbuf" => ("", "ioe", 0),
        "setsid" => ("cfw", "", 0),
        "chroot" => ("", "", 1),
        "flock" => ("enosuxF", "wE", 1),
        "unshare" => ("fimnpruUTC", "SGRw", 0),
        "strace" | "ltrace" => ("fqvCctTxyi", "oepsE", 0),
        "caffeinate" => ("dimsu", "tw", 0),
        _ => return None,
    };
    Some(WrapperProgram { flags, values, positionals })
}

impl WrapperProgram {
    fn carried(&self, arguments: &[ShellWord]) -> Vec<WrappedCommand> {
        match self.skip_options(arguments) {
            Some(rest) => rest_of(rest, self.positionals),
            None => vec![WrappedCommand::Unseen],
        }
    }

    fn skip_options<'w>(&self, mut words: &'w [ShellWord]) -> Option<&'w [ShellWord]> {
        while let [word, rest @ ..] = words {
            let option = word.as_literal()?;
            if option == "--" {
                return Some(rest);
            }
            let Some(letters) = option.strip_prefix('-') else { return Some(words) };
            words = if letters.is_empty() || letters.starts_with('-') {
                skip_long(letters, rest)?
            } else {
                self.skip_short(letters, rest)?
            };
        }
        Some(words)
    }

    fn skip_short<'w>(&self, letters: &str, rest: &'w [ShellWord]) -> Option<&'w [ShellWord]> {
        for (at, letter) in letters.char_indices() {
            if self.values.contains(letter) {
                let attached = at + letter.len_utf8() < letters.len();
                return if attached { Some(rest) } else { rest.get(1..) };
            }
            // `nice -5` takes a number as an option.
            if !self.flags.contains(letter) && !letter.is_ascii_digit() {
                return None;
            }
        }
        Some(rest)
    }
}

/// Skips a long option that has its value after `=`. For any other long option outside the list it is unknown if a
/// value follows. A lone `-` is an option of `env`.
fn skip_long<'w>(option: &str, rest: &'w [ShellWord]) -> Option<&'w [ShellWord]> {
    const FLAGS: [&str; 7] = [
        "-foreground",
        "-ignore-environment",
        "-preserve-env",
        "-preserve-status",
        "-non-interactive",
        "-null",
        "-verbose",
    ];
    // `env --split-string=..` holds a command of its own, so it must not be skipped.
    (option.is_empty() || FLAGS.contains(&option) || (option.contains('=') && !option.starts_with("-split")))
        .then_some(rest)
}

/// Returns the command after `positionals` words, with the variables that `env` and `sudo` accept before it.
fn rest_of(words: &[ShellWord], positionals: usize) -> Vec<WrappedCommand> {
    let mut command = ShellCommand::default();
    let mut words = words.get(positionals..).unwrap_or_default();
    while let [word, rest @ ..] = words {
        let Some((name, _)) = word.text.split_once('=').filter(|(name, _)| is_variable(name)) else { break };
        command.assignments.push(name.to_owned());
        words = rest;
    }
    if words.is_empty() {
        return Vec::new();
    }
    words.clone_into(&mut command.words);
    vec![WrappedCommand::Command(command)]
}

fn unseen_if(unseen: bool) -> Vec<WrappedCommand> {
    if unseen { vec![WrappedCommand::Unseen] } else { Vec::new() }
}

fn starts_with_any(word: &ShellWord, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| word.text.starts_with(beginning))
}

/// Parses the arguments of a shell, which runs the text after `-c`, else a script, else its standard input.
fn shell(arguments: &[ShellWord]) -> Vec<WrappedCommand> {
    let mut takes_line = false;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let Some(text) = word.as_literal() else { return vec![WrappedCommand::Unseen] };
        match text {
            "--version" | "--help" => return Vec::new(),
            "--rcfile" | "--init-file" | "-o" | "+o" | "-O" | "+O" => {
                words.next();
            }
            _ if text.starts_with("--") => {}
            _ if text.starts_with(['-', '+']) && text.len() > 1 => takes_line |= text.contains('c'),
            _ if takes_line => return vec![WrappedCommand::Line(text.to_owned())],
            // A script is a program like any other.
            _ if text != "-" && !text.starts_with("/dev/") => return Vec::new(),
            _ => return vec![WrappedCommand::Unseen],
        }
    }
    vec![WrappedCommand::Unseen]
}

/// Joins the words into a new command line, as `eval` does.
fn eval(arguments: &[ShellWord]) -> Vec<WrappedCommand> {
    let texts: Option<Vec<_>> = arguments.iter().map(ShellWord::as_literal).collect();
    match texts {
        Some(texts) if texts.is_empty() => Vec::new(),
        Some(texts) if texts[0].starts_with('-') => vec![WrappedCommand::Unseen],
        Some(texts) => vec![WrappedCommand::Line(texts.join(" "))],
        None => vec![WrappedCommand::Unseen],
    }
}

fn trap(arguments: &[ShellWord]) -> Vec<WrappedCommand> {
    let first = arguments.iter().find(|word| word.opaque || word.text != "--");
    match first.map(ShellWord::as_literal) {
        None | Some(Some("-" | "-l" | "-p")) => Vec::new(),
        Some(Some(line)) => vec![WrappedCommand::Line(line.to_owned())],
        Some(None) => vec![WrappedCommand::Unseen],
    }
}

fn find(arguments: &[ShellWord]) -> Vec<WrappedCommand> {
    exec_options(arguments, &["-exec", "-execdir", "-ok", "-okdir"])
}

/// Returns each command between such an option and `;` or `+`. A word with a placeholder for the found names is opaque.
fn exec_options(arguments: &[ShellWord], options: &[&str]) -> Vec<WrappedCommand> {
    if arguments.iter().any(|word| word.opaque && word.text.starts_with('-')) {
        return vec![WrappedCommand::Unseen];
    }
    let is_option = |word: &ShellWord| word.as_literal().is_some_and(|text| options.contains(&text));
    let is_end = |word: &ShellWord| matches!(word.text.as_str(), ";" | "+");
    let starts = arguments.iter().enumerate().filter(|(_, word)| is_option(word)).map(|(at, _)| at + 1);
    let commands = starts.map(|start| {
        let words = arguments[start..].iter().take_while(|word| !is_end(word));
        let opaque = |word: &ShellWord| ShellWord {
            text: word.text.clone(),
            opaque: word.opaque || word.text.contains("{}") || word.text.contains("{/"),
        };
        ShellCommand { words: words.map(opaque).collect(), ..ShellCommand::default() }
    });
    commands.map(WrappedCommand::Command).collect()
}

/// Returns the command of `xargs`, which adds words from its input.
fn xargs(arguments: &[ShellWord]) -> Vec<WrappedCommand> {
    let options = WrapperProgram { flags: "0oprtx", values: "aEILnPsd", positionals: 0 };
    let carried = options.carried(arguments);
    let add_unknown = |carried| match carried {
        WrappedCommand::Command(mut command) => {
            command.words.push(ShellWord::opaque("what xargs reads"));
            WrappedCommand::Command(command)
        }
        WrappedCommand::Line(_) | WrappedCommand::Unseen => WrappedCommand::Unseen,
    };
    carried.into_iter().map(add_unknown).collect()
}

/// Returns true if a git command may run other commands. Options before the subcommand may define aliases that are
/// commands, and some subcommands and options run commands.
fn git_runs(arguments: &[ShellWord]) -> bool {
    let global = arguments.iter().take_while(|word| word.text.starts_with('-'));
    let configures =
        global.into_iter().any(|word| starts_with_any(word, &["-c", "--config-env", "--exec-path"]));
    let subcommands: Vec<_> = arguments.iter().map(|word| word.text.as_str()).collect();
    let has = |text: &str| subcommands.contains(&text);
    let options = ["--exec", "--upload-pack", "--receive-pack", "--open-files-in-pager", "--extcmd", "ext::"];
    configures
        || arguments.iter().any(|word| starts_with_any(word, &options))
        || (has("submodule") && has("foreach"))
        || (has("bisect") && has("run"))
        || (has("-x") && (has("rebase") || has("difftool")))
        || (has("grep") && arguments.iter().any(|word| word.text.starts_with("-O")))
        || ["filter-branch", "config", "send-email", "mergetool"].into_iter().any(has)
        || (has("clone") && arguments.iter().any(|word| starts_with_any(word, &["-c", "--config", "-u"])))
        || arguments.iter().any(sets_configuration_later)
}

/// Detects `git -C dir -c alias.x=..`, in which the value of an earlier option looks like a subcommand.
fn sets_configuration_later(word: &ShellWord) -> bool {
    ["alias.", "core.", "filter.", "diff.", "credential."]
        .iter()
        .any(|section| word.text.starts_with(section) && word.text.contains('='))
}

fn awk_runs(word: &ShellWord) -> bool {
    word.opaque || ["system", "|", "getline", "@load", "-f"].iter().any(|mark| word.text.contains(mark))
}
