//! Variables whose value programs run as a command: `PAGER`, `GIT_SSH_COMMAND`, `BASH_ENV`.

use super::ShellWord;
use super::nested_commands::WrappedCommand;

/// Variables whose value is a command line.
const LINES: [&str; 60] = [
    "AR",
    "BASH_ALIASES",
    "BASH_CMDS",
    "BAT_PAGER",
    "BROWSER",
    "CARGO_BUILD_RUSTC",
    "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CC",
    "CMAKE_CXX_COMPILER_LAUNCHER",
    "CMAKE_C_COMPILER_LAUNCHER",
    "CVS_RSH",
    "CXX",
    "DELTA_PAGER",
    "EDITOR",
    "FCEDIT",
    "FZF_DEFAULT_COMMAND",
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
    "KUBE_EDITOR",
    "LD",
    "MAKESHELL",
    "MANOPT",
    "MANPAGER",
    "MERGE_TOOL",
    "PAGER",
    "PROMPT_COMMAND",
    "PSQL_EDITOR",
    "PSQL_PAGER",
    "RSYNC_CONNECT_PROG",
    "RSYNC_RSH",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOC",
    "SHELL",
    "SSH_ASKPASS",
    "SSH_SK_HELPER",
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
    "npm_config_editor",
    "npm_config_git",
    "npm_config_script_shell",
    "npm_config_shell",
];

/// Variables that make programs run code in ways that the parser does not support. `LD_PRELOAD` is not among them: the
/// library that it names is treated like any other program.
const CODE: [&str; 38] = [
    "APT_CONFIG",
    "BASH_ENV",
    "DOTNET_STARTUP_HOOKS",
    "ENV",
    "ERL_AFLAGS",
    "ERL_FLAGS",
    "ERL_ZFLAGS",
    "EXINIT",
    "FZF_DEFAULT_OPTS",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_SYSTEM",
    "GIT_EXEC_PATH",
    "GIT_TEMPLATE_DIR",
    "GNUMAKEFLAGS",
    "GOFLAGS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LESSCLOSE",
    "LESSOPEN",
    "LUA_INIT",
    "MAKEFLAGS",
    "NODE_OPTIONS",
    "PERL5DB",
    "PERL5OPT",
    "PS4",
    "PYTHONBREAKPOINT",
    "PYTHONSTARTUP",
    "RIPGREP_CONFIG_PATH",
    "RUBYOPT",
    "TAR_OPTIONS",
    "VIMINIT",
    "ZDOTDIR",
    "ZIP",
    "ZIPOPT",
    "_JAVA_OPTIONS",
    "npm_config_node_options",
];

/// The prefixes and suffixes of further variables like those in `CODE`: functions that bash imports, git settings, and
/// cargo runners and linkers.
const CODE_NAMES: [(&str, &str); 4] =
    [("BASH_FUNC_", ""), ("GIT_CONFIG_KEY_", ""), ("CARGO_TARGET_", "_RUNNER"), ("CARGO_TARGET_", "_LINKER")];

/// Returns the command in a variable's value, if programs run this value.
pub(super) fn runs(variable: &str, value: &ShellWord) -> Option<WrappedCommand> {
    if value.text.is_empty() && !value.opaque {
        return None;
    }
    if is_code(variable) {
        return Some(WrappedCommand::Unseen);
    }
    LINES.contains(&variable).then(|| WrappedCommand::line(value))
}

fn is_code(variable: &str) -> bool {
    let fits = |(begin, end): &(&str, &str)| variable.starts_with(begin) && variable.ends_with(end);
    CODE.contains(&variable) || CODE_NAMES.iter().any(fits)
}

/// Returns the variable and the value of a word such as `NAME=value`. The name may have any characters, because `env`
/// can set `BASH_FUNC_ls%%` too.
pub(super) fn assignment(word: &ShellWord) -> Option<(String, ShellWord)> {
    let (name, value) = word.text.split_once('=').filter(|(name, _)| !name.is_empty())?;
    Some((name.to_owned(), ShellWord { text: value.to_owned(), opaque: word.opaque }))
}

/// Returns the command in a variable that a builtin sets: `export PAGER=less`, `read BASH_ENV`, `printf -v ENV x`.
pub(super) fn set_by_builtin(word: &ShellWord) -> Option<WrappedCommand> {
    let name = word.text.split(['=', '[', '+']).next().unwrap_or_default();
    let value = word.text.split_once('=').map(|(_, value)| value);
    match value {
        Some(value) => runs(name, &ShellWord { text: value.to_owned(), opaque: word.opaque }),
        // The value is unknown. `export PAGER` and `unset PAGER` have no value, but asking does no harm.
        None => (LINES.contains(&name) || is_code(name)).then_some(WrappedCommand::Unseen),
    }
}
