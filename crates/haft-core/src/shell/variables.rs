//! Variables whose value programs run: `PAGER`, `GIT_SSH_COMMAND`, `BASH_ENV`.

use super::ShellWord;
use super::nested_commands::{WrappedCommand, is_assignment};

/// Variables whose value is a command line.
const LINES: [&str; 42] = [
    "AR",
    "BASH_ALIASES",
    "BASH_CMDS",
    "BROWSER",
    "CC",
    "CVS_RSH",
    "CXX",
    "EDITOR",
    "FCEDIT",
    "GIT_ASKPASS",
    "GIT_EDITOR",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "HGEDITOR",
    "HGMERGE",
    "LD",
    "MAKESHELL",
    "MANOPT",
    "MANPAGER",
    "MERGE_TOOL",
    "PAGER",
    "PROMPT_COMMAND",
    "RSYNC_CONNECT_PROG",
    "RSYNC_RSH",
    "RUSTC",
    "RUSTC_WRAPPER",
    "SHELL",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "SUDO_EDITOR",
    "SVN_EDITOR",
    "SVN_SSH",
    "SYSTEMD_EDITOR",
    "SYSTEMD_PAGER",
    "TAR_RSH",
    "VISUAL",
    "WATCH_COMMAND",
    "XEDITOR",
];

/// Variables that make programs run code in ways that the parser does not read. `LD_PRELOAD` is not among them: the
/// library that it names is a program like any other.
const CODE: [&str; 22] = [
    "BASH_ENV",
    "ENV",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_SYSTEM",
    "GIT_EXEC_PATH",
    "GIT_TEMPLATE_DIR",
    "GNUMAKEFLAGS",
    "LESSCLOSE",
    "LESSOPEN",
    "MAKEFLAGS",
    "NODE_OPTIONS",
    "PERL5DB",
    "PERL5OPT",
    "PYTHONSTARTUP",
    "RUBYOPT",
    "TAR_OPTIONS",
    "VIMINIT",
    "ZDOTDIR",
    "ZIPOPT",
    "ZIP",
];

/// Returns the command that the value of a variable names, if programs run the value.
pub(super) fn runs(variable: &str, value: &ShellWord) -> Option<WrappedCommand> {
    if value.text.is_empty() && !value.opaque {
        return None;
    }
    if CODE.contains(&variable) {
        return Some(WrappedCommand::Unseen);
    }
    LINES.contains(&variable).then(|| WrappedCommand::line(value))
}

/// Returns the variable and the value of a word such as `NAME=value`.
pub(super) fn assignment(word: &ShellWord) -> Option<(String, ShellWord)> {
    let (name, value) = word.text.split_once('=').filter(|_| is_assignment(&word.text))?;
    Some((name.to_owned(), ShellWord { text: value.to_owned(), opaque: word.opaque }))
}

/// Returns the command of a variable that a builtin sets: `export PAGER=less`, `read BASH_ENV`, `printf -v ENV x`.
pub(super) fn set_by_builtin(word: &ShellWord) -> Option<WrappedCommand> {
    let name = word.text.split(['=', '[', '+']).next().unwrap_or_default();
    let value = word.text.split_once('=').map(|(_, value)| value);
    match value {
        Some(value) => runs(name, &ShellWord { text: value.to_owned(), opaque: word.opaque }),
        // The value comes from elsewhere. `export PAGER` and `unset PAGER` have none, but no harm is done by asking.
        None => (LINES.contains(&name) || CODE.contains(&name)).then_some(WrappedCommand::Unseen),
    }
}
