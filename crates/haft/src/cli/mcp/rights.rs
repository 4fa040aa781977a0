//! Which right a server lacked, read from what it said before it failed.

use std::path::Path;

/// What the configuration would have to grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Lacked {
    /// To write in this directory.
    Writing { path: String, directory: String },
    /// To open a unix socket.
    Socket(Option<String>),
}

impl Lacked {
    /// The line that grants it, as it stands in the server's entry.
    pub(in crate::cli) fn key(&self) -> String {
        match self {
            Self::Writing { directory, .. } => format!("\"writable\": [{directory:?}]"),
            Self::Socket(_) => "\"unixSockets\": \"allow\"".to_owned(),
        }
    }

    pub(in crate::cli) fn hint(&self, server: &str) -> String {
        let what = match self {
            Self::Writing { path, .. } => format!("it may not write `{path}`"),
            Self::Socket(Some(path)) => format!("it may not open the socket `{path}`"),
            Self::Socket(None) => "it may not open a unix socket".to_owned(),
        };
        format!("{what}; if it should, put {} into `mcpServers.{server}`", self.key())
    }
}

/// How programs say that they were not let.
const REFUSALS: [&str; 6] =
    ["permission denied", "read-only file system", "operation not permitted", "eacces", "erofs", "eperm"];

/// Finds the first refusal that names a path or a socket. `is_directory` says what is there now.
pub(in crate::cli) fn lacked<'a>(
    lines: impl IntoIterator<Item = &'a str>,
    is_directory: impl Fn(&str) -> bool,
) -> Option<Lacked> {
    let refused = lines.into_iter().filter(|line| {
        let line = line.to_ascii_lowercase();
        REFUSALS.iter().any(|words| line.contains(words))
    });
    refused.map(|line| of_line(line, &is_directory)).find_map(|lacked| lacked)
}

fn of_line(line: &str, is_directory: &impl Fn(&str) -> bool) -> Option<Lacked> {
    let path = path(line);
    let of_socket =
        |path: &String| Path::new(path).extension().is_some_and(|end| end == "sock" || end == "socket");
    match path {
        Some(path) if of_socket(&path) => Some(Lacked::Socket(Some(path))),
        Some(path) => {
            let parent = path.rsplit_once('/').map_or("/", |(parent, _)| parent);
            let directory = if is_directory(&path) { &path } else { parent };
            let directory = if directory.is_empty() { "/" } else { directory }.to_owned();
            Some(Lacked::Writing { path, directory })
        }
        None if line.to_ascii_lowercase().contains("socket") => Some(Lacked::Socket(None)),
        None => None,
    }
}

/// The last absolute path of a line, whatever quotes it: what was refused comes after the words that say so.
fn path(line: &str) -> Option<String> {
    let ends = |c: char| c.is_whitespace() || "'\"`‘’“”,;:()[]".contains(c);
    let mut words = line.split(ends);
    words.rfind(|word| word.len() > 1 && word.starts_with('/')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_or_socket_is_found_in_the_words_of_many_programs() {
        let check = |line: &str, expected: &str| {
            let found = lacked([line], |path| path == "/var/lib/x");
            assert_eq!(found.map(|lacked| lacked.key()).unwrap_or_default(), expected, "{line}");
        };
        check("Error: EACCES: permission denied, mkdir '/srv/notes/a'", r#""writable": ["/srv/notes"]"#);
        check("OSError: [Errno 30] Read-only file system: '/var/lib/x'", r#""writable": ["/var/lib/x"]"#);
        check("mkdir: cannot create directory ‘/opt/y’: Permission denied", r#""writable": ["/opt"]"#);
        check("touch: cannot touch '/top': Read-only file system", r#""writable": ["/"]"#);
        check("Error: connect EPERM /var/run/docker.sock", r#""unixSockets": "allow""#);
        check("dial unix: socket: operation not permitted", r#""unixSockets": "allow""#);
        check("permission denied", "");
        check("open '/srv/a': no such file", "");
    }
}
