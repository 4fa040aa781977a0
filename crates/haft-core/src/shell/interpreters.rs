//! Parses the arguments of programs that need a separate parser: shells, `eval`, `trap`, `sed`, `awk` and database
//! clients.

use super::nested_commands::{WrappedCommand, join, unseen, unseen_if};
use super::{ShellWord, sed};

/// Returns the commands in the arguments of a program that needs a separate parser, or `None` for any other program.
pub(super) fn carried(name: &str, arguments: &[ShellWord]) -> Option<Vec<WrappedCommand>> {
    Some(match name {
        "bash" | "sh" | "dash" | "ash" | "zsh" | "ksh" | "ksh93" | "mksh" | "oksh" | "rbash" | "yash" => {
            shell(arguments)
        }
        "eval" => join(arguments),
        "trap" => trap(arguments),
        "awk" | "gawk" | "mawk" | "nawk" => unseen_if(arguments.iter().any(awk_runs)),
        "sed" | "gsed" => unseen_if(sed::runs(arguments)),
        "sqlite3" | "sqlite" => unseen_if(sqlite_runs(arguments)),
        "psql" | "mysql" | "mariadb" => unseen_if(database_runs(arguments)),
        "vi" | "vim" | "nvim" | "view" | "ex" | "emacs" | "less" | "more"
            if arguments.iter().any(is_plus_command) =>
        {
            unseen()
        }
        _ => return None,
    })
}

/// Returns true for a file name that refers to standard input or to another open descriptor.
pub(super) fn is_input(file: &str) -> bool {
    // `../../dev/stdin` may be standard input too.
    let mut parts = file.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
    let may_be_absolute = file.starts_with('/') || file.split('/').any(|part| part == "..");
    file == "-" || may_be_absolute && matches!(parts.next(), Some("dev" | "proc"))
}

/// The long options of bash, which bash also accepts with one dash. The other shells have no options with these names.
const BASH_LONG: [&str; 14] = [
    "debug",
    "debugger",
    "dump-po-strings",
    "dump-strings",
    "login",
    "noediting",
    "noprofile",
    "norc",
    "posix",
    "pretty-print",
    "protected",
    "restricted",
    "verbose",
    "wordexp",
];

/// Parses the arguments of a shell, which runs the text after `-c`, else a script, else its standard input.
fn shell(arguments: &[ShellWord]) -> Vec<WrappedCommand> {
    let mut takes_line = false;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let Some(text) = word.as_literal() else { return unseen() };
        let long = text.strip_prefix("--").or_else(|| text.strip_prefix('-')).unwrap_or_default();
        match text {
            "--version" | "--help" => return Vec::new(),
            // The file is a separate script, and the shell continues with its standard input or `-c`.
            _ if matches!(long, "rcfile" | "init-file") => return unseen(),
            _ if BASH_LONG.contains(&long) => {}
            "--" if takes_line => {
                return words.next().map_or_else(unseen, |word| vec![WrappedCommand::line(word)]);
            }
            "--" => {}
            _ if text.starts_with("--") => return unseen(),
            _ if text.starts_with(['-', '+']) && text.len() > 1 => {
                // Each `o` and `O` in a cluster takes its value from the following words: `bash -euo pipefail -c ..`.
                let values = text.chars().filter(|letter| matches!(letter, 'o' | 'O')).count();
                words.by_ref().take(values).for_each(drop);
                if text.contains('s') && !text.starts_with('+') {
                    return unseen();
                }
                takes_line |= text.starts_with('-') && text.contains('c');
            }
            _ if takes_line => return vec![WrappedCommand::Line(text.to_owned())],
            // The parser does not read script files; it treats a script like any other program.
            _ if !is_input(text) => return Vec::new(),
            _ => return unseen(),
        }
    }
    unseen()
}

fn trap(arguments: &[ShellWord]) -> Vec<WrappedCommand> {
    let first = arguments.iter().find(|word| word.opaque || word.text != "--");
    match first.map(ShellWord::as_literal) {
        None | Some(Some("-" | "-l" | "-p")) => Vec::new(),
        Some(Some(line)) => vec![WrappedCommand::Line(line.to_owned())],
        Some(None) => unseen(),
    }
}

fn awk_runs(word: &ShellWord) -> bool {
    let marks =
        ["system", "|", "getline", "@", "-f", "--file", "-l", "--load", "-E", "--exec", "-i", "--include"];
    word.opaque || marks.iter().any(|mark| word.text.contains(mark))
}

/// Dot-commands of `sqlite3` that only print text.
const SQLITE_PRINTING: [&str; 9] =
    [".tables", ".schema", ".databases", ".indexes", ".dump", ".headers", ".mode", ".stats", ".version"];

/// Returns true if `sqlite3` may run a command through a dot-command, a function, or its standard input.
fn sqlite_runs(arguments: &[ShellWord]) -> bool {
    let prints = |line: &str| SQLITE_PRINTING.contains(&line.split(' ').next().unwrap_or_default());
    let is_command = |line: &str| line.trim_start().starts_with('.') && !prints(line.trim_start());
    let has_command = |word: &ShellWord| word.opaque || word.text.lines().any(is_command);
    let marks = ["edit(", "load_extension", "-init", "-cmd"];
    let has_mark = |word: &ShellWord| marks.iter().any(|mark| word.text.to_lowercase().contains(mark));
    let others = arguments.iter().filter(|word| !word.text.starts_with('-'));
    let informs =
        arguments.iter().any(|word| matches!(word.text.as_str(), "-version" | "-help" | "--version"));
    // The first word that is not an option is the file. If no word follows it, statements come from standard input.
    !informs
        && (others.clone().count() < 2 || others.skip(1).any(has_command) || arguments.iter().any(has_mark))
}

fn database_runs(arguments: &[ShellWord]) -> bool {
    let marks = ["\\", "program", "system"];
    let has_mark = |word: &ShellWord| marks.iter().any(|mark| word.text.to_lowercase().contains(mark));
    let has_statement = arguments.iter().any(|word| {
        ["-c", "-e", "-f", "-l", "-V", "--command", "--execute", "--file", "--list", "--version", "--help"]
            .iter()
            .any(|option| word.text.starts_with(option))
    });
    let reads_input = |word: &ShellWord| {
        let value = word.text.trim_start_matches("--file=").trim_start_matches("-f");
        is_input(value)
    };
    !has_statement || arguments.iter().any(has_mark) || arguments.iter().any(reads_input)
}

/// Returns true for a command option such as `vim +'!rm x'`. `+12` only moves to a line.
fn is_plus_command(word: &ShellWord) -> bool {
    word.text.strip_prefix('+').is_some_and(|command| command.chars().any(|c| !c.is_ascii_digit()))
}
