//! Finds the permission that a server lacked, from its output before the failure.

use std::path::Path;

use haft_tools::mcp::LOGIN_NEEDED;

use crate::hints;

/// A permission that a server lacked, and that the configuration can grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MissingPermission {
    /// The permission to write in this directory.
    Writing { path: String, directory: String },
    /// The permission to open the unix socket with this path; `None` if the path is not known.
    Socket(Option<String>),
}

impl MissingPermission {
    /// Returns the configuration line for the server's entry that grants the permission.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Writing { directory, .. } => format!("\"writable\": [{directory:?}]"),
            Self::Socket(Some(path)) => format!("\"sockets\": [{path:?}]"),
            Self::Socket(None) => "\"unixSockets\": \"allow\"".to_owned(),
        }
    }

    pub(crate) fn hint(&self, server: &str) -> String {
        let what = match self {
            Self::Writing { path, .. } => format!("the sandbox does not let the server write to `{path}`"),
            Self::Socket(Some(path)) => {
                format!("the sandbox does not let the server open the socket `{path}`")
            }
            Self::Socket(None) => "the sandbox does not let the server open a unix socket".to_owned(),
        };
        format!("{what}; to allow it, add {} to `mcpServers.{server}`", self.key())
    }
}

/// Returns a hint for a server that could not be started or reached, or that rejected the credentials.
pub(crate) fn config_hint(server: &str, reason: &str) -> Option<String> {
    let reason_has = |words: &[&str]| words.iter().any(|words| reason.contains(words));
    let key = match () {
        () if reason_has(&[LOGIN_NEEDED]) => return Some(hints::login_at(server)),
        () if reason_has(&["the sandbox cannot be set up"]) => return Some(hints::SANDBOX_LAYERS.to_owned()),
        () if reason_has(&["process could not be started"]) => "command",
        () if reason_has(&["rejected the credentials"]) => "headers",
        () if reason_has(&[
            "cannot be reached",
            "the server answered 4",
            "is not MCP",
            "the server redirects",
        ]) =>
        {
            "url"
        }
        () => return None,
    };
    Some(format!("check `mcpServers.{server}.{key}`"))
}

/// Phrases with which programs report a refused operation. The phrases in the first list are about writing; the phrases
/// in the second list may be about a socket.
const NOT_WRITTEN: [&str; 6] = [
    "read-only file system",
    "erofs",
    "permission denied",
    "eacces",
    "readonly database",
    "unable to open database file",
];
const NOT_PERMITTED: [&str; 2] = ["operation not permitted", "eperm"];

/// Words that occur in lines about sockets.
const OF_SOCKETS: [&str; 4] = ["socket", "connect", "dial unix", "af_unix"];

/// The maximum number of lines before a refusal in which haft looks for the refused path. A traceback, for example,
/// ends with the refusal.
const LINES_BEFORE: usize = 4;

/// Finds the first refusal that names a path or a socket. `is_directory` checks the file system.
pub(crate) fn lacked<'a>(
    lines: impl IntoIterator<Item = &'a str>,
    is_directory: impl Fn(&str) -> bool,
) -> Option<MissingPermission> {
    let lines: Vec<&str> = lines.into_iter().collect();
    (0..lines.len()).find_map(|at| {
        let before = &lines[at.saturating_sub(LINES_BEFORE)..at];
        refused(lines[at], before, &is_directory)
    })
}

/// Returns the permission that a line reports as refused.
fn refused(line: &str, before: &[&str], is_directory: &impl Fn(&str) -> bool) -> Option<MissingPermission> {
    let words = line.to_ascii_lowercase();
    let has = |found: &[&str]| found.iter().any(|found| words.contains(found));
    // Node reports a recursive `mkdir` without permission as ENOENT.
    let not_made = words.contains("enoent") && words.contains(", mkdir ");
    let not_written = not_made || has(&NOT_WRITTEN);
    let not_permitted = has(&NOT_PERMITTED);
    if !not_written && !not_permitted {
        return None;
    }
    let found = path(line);
    let of_sockets = |line: &str| OF_SOCKETS.iter().any(|found| line.to_ascii_lowercase().contains(found));
    let is_socket = found.as_deref().is_some_and(has_socket_extension) || (not_permitted && of_sockets(line));
    match (is_socket, found) {
        (true, found) => Some(MissingPermission::Socket(found)),
        (false, Some(path)) => Some(writing(path, is_directory)),
        (false, None) if not_permitted => {
            before.iter().any(|line| of_sockets(line)).then_some(MissingPermission::Socket(None))
        }
        (false, None) => {
            let found = before.iter().rev().filter(|line| !is_frame(line)).find_map(|line| path(line));
            found.map(|path| writing(path, is_directory))
        }
    }
}

fn writing(path: String, is_directory: &impl Fn(&str) -> bool) -> MissingPermission {
    let parent = path.rsplit_once('/').map_or("/", |(parent, _)| parent);
    let directory = if is_directory(&path) { &path } else { parent };
    let directory = if directory.is_empty() { "/" } else { directory }.to_owned();
    MissingPermission::Writing { path, directory }
}

fn has_socket_extension(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|end| end == "sock" || end == "socket")
}

/// Returns true for a line of a traceback. It names a source file of the program, which is not the refused path.
fn is_frame(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("File \"") || line.starts_with("at ")
}

/// Returns the last absolute path of a line, because the refused path follows the words of the refusal. A quoted path
/// may contain spaces, and a path in a URL such as `unix:///run/docker.sock` begins at the last of its slashes.
fn path(line: &str) -> Option<String> {
    let ends = |c: char| c.is_whitespace() || "'\"`‘’“”,;:()[]".contains(c);
    let begins = |(at, _): &(usize, &str)| line[..*at].chars().next_back().is_none_or(ends);
    let at = line.rmatch_indices('/').filter(begins).map(|(at, _)| at).find(|at| line[*at..].len() > 1)?;
    let rest = &line[at..];
    let end = match line[..at].chars().next_back().and_then(closing) {
        Some(quote) => rest.find(quote).unwrap_or(rest.len()),
        None => rest.find(ends).unwrap_or(rest.len()),
    };
    let path = rest[..end].trim_start_matches('/');
    (!path.is_empty()).then(|| format!("/{path}"))
}

/// Returns the closing quote for an opening one.
fn closing(quote: char) -> Option<char> {
    match quote {
        '\'' | '"' | '`' => Some(quote),
        '‘' => Some('’'),
        '“' => Some('”'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[&str], expected: &str) {
        let found = lacked(lines.iter().copied(), |path| path == "/var/lib/x");
        assert_eq!(found.map(|lacked| lacked.key()).unwrap_or_default(), expected, "{lines:?}");
    }

    #[test]
    fn denied_path_or_socket_is_parsed_from_error_messages() {
        check(&["Error: EACCES: permission denied, mkdir '/srv/notes/a'"], r#""writable": ["/srv/notes"]"#);
        check(&["OSError: [Errno 30] Read-only file system: '/var/lib/x'"], r#""writable": ["/var/lib/x"]"#);
        check(
            &["OSError: [Errno 30] Read-only file system: '/srv/my notes/a'"],
            r#""writable": ["/srv/my notes"]"#,
        );
        check(&["mkdir: cannot create directory ‘/opt/y’: Permission denied"], r#""writable": ["/opt"]"#);
        check(&["touch: cannot touch '/top': Read-only file system"], r#""writable": ["/"]"#);
        check(&["Error: ENOENT: no such file or directory, mkdir '/opt/z/y'"], r#""writable": ["/opt/z"]"#);
        check(&["Error: connect EPERM /var/run/docker.sock"], r#""sockets": ["/var/run/docker.sock"]"#);
        check(&["connect EPERM /run/user/0/bus"], r#""sockets": ["/run/user/0/bus"]"#);
        check(&["dial unix: socket: operation not permitted"], r#""unixSockets": "allow""#);
        let docker = "permission denied while trying to connect at unix:///var/run/docker.sock: connect: permission denied";
        check(&[docker], r#""sockets": ["/var/run/docker.sock"]"#);
        check(&["permission denied"], "");
        check(&["open '/srv/a': no such file"], "");
        check(&["Error: ENOENT: no such file or directory, open '/srv/a'"], "");
    }

    #[test]
    fn bare_permission_error_is_explained_by_preceding_lines() {
        let frame = "  File \"/usr/lib/python3/socket.py\", line 232, in __init__";
        let socket = "    _socket.socket.__init__(self, family, type, proto, fileno)";
        let not_permitted = "PermissionError: [Errno 1] Operation not permitted";
        check(&[frame, socket, not_permitted], r#""unixSockets": "allow""#);
        check(&[frame, not_permitted], r#""unixSockets": "allow""#);
        check(&["    os.setuid(0)", not_permitted], "");
        let connect = "    db = sqlite3.connect(\"/home/me/notes.db\")";
        check(
            &[connect, "sqlite3.OperationalError: unable to open database file"],
            r#""writable": ["/home/me"]"#,
        );
        check(
            &["  File \"/usr/lib/x.py\", line 1", "sqlite3.OperationalError: unable to open database file"],
            "",
        );
    }

    #[test]
    fn start_failure_hint_names_the_config_key() {
        let check = |reason: &str, expected: Option<&str>| {
            let found = config_hint("far", reason);
            assert_eq!(found.is_some(), expected.is_some(), "{reason}: {found:?}");
            let found = found.unwrap_or_default();
            assert!(found.contains(expected.unwrap_or_default()), "{reason}: {found}");
        };
        check("the server process could not be started: No such file", Some("mcpServers.far.command"));
        check("the server cannot be reached: refused", Some("mcpServers.far.url"));
        check("the server answered 404 Not Found", Some("mcpServers.far.url"));
        check("the server rejected the credentials (HTTP 401)", Some("mcpServers.far.headers"));
        check(
            &format!("the server requires a login; {LOGIN_NEEDED}"),
            Some("`haft mcp login far` logs in at the server"),
        );
        check(
            "the server process could not be started: the sandbox cannot be set up (user namespace): x",
            Some("haft doctor"),
        );
        check("the server answered 500 Internal Server Error", None);
    }
}
