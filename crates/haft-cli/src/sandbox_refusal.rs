//! Determines from the error of a call which option would have allowed it.

use haft_runtime::wiring;
use haft_sandbox::{ResourceAccess, SandboxMode};

/// An operation that the sandbox refused, and that an option allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SandboxRefusal {
    Write,
    Read,
    Git,
    Network,
}

/// The messages of programs that cannot reach the network.
const NO_NETWORK: [&str; 6] = [
    "Network is unreachable",
    "Could not resolve host",
    "Temporary failure in name resolution",
    "Name or service not known",
    "EAI_AGAIN",
    "ENETUNREACH",
];

impl SandboxRefusal {
    /// Finds the refusal in the message of a failed call. Ignores tools of MCP servers, because their errors are not
    /// about this sandbox.
    pub(super) fn find(tool: &str, message: &str, network: ResourceAccess) -> Option<Self> {
        if !wiring::is_builtin(tool) {
            return None;
        }
        let is_denied = message.starts_with("Write denied: ");
        let has = |text: &str| message.contains(text);
        match () {
            () if message.starts_with("Read denied: ") => Some(Self::Read),
            () if is_denied && has("/.git/") => Some(Self::Git),
            () if is_denied && has(" is outside the directories that ") => Some(Self::Write),
            () if has("Read-only file system") && has(".git/") => Some(Self::Git),
            () if has("Read-only file system") => Some(Self::Write),
            () if network == ResourceAccess::Deny && NO_NETWORK.iter().any(|text| has(text)) => {
                Some(Self::Network)
            }
            () => None,
        }
    }

    /// Returns a hint about the option that allows the operation.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::Write => {
                "the sandbox refused a write; --writable DIR allows writing to a further directory"
            }
            Self::Read => {
                "the sandbox refused a read; --readable PATH allows reading a secret, but never haft's own data"
            }
            Self::Git => {
                "the sandbox protects git hooks and git configuration; --git writable allows changing them"
            }
            Self::Network => "commands have no network access; --network allow enables it",
        }
    }
}

/// Returns the network access that results from the options and the configuration.
pub(super) fn network(access: Option<ResourceAccess>, mode: SandboxMode) -> ResourceAccess {
    access.unwrap_or(match mode {
        SandboxMode::Workspace => ResourceAccess::Deny,
        SandboxMode::Network | SandboxMode::Full => ResourceAccess::Allow,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_refusal_is_detected_from_the_error_message() {
        let check = |tool: &str, message: &str, network: ResourceAccess, expected: Option<SandboxRefusal>| {
            assert_eq!(SandboxRefusal::find(tool, message, network), expected, "{tool}: {message}");
        };
        let (open, closed) = (ResourceAccess::Allow, ResourceAccess::Deny);
        let outside =
            "Write denied: /srv/x is outside the directories that workspace mode may write: /w, /tmp";
        check("write", outside, closed, Some(SandboxRefusal::Write));
        check("write", "Write denied: /w/.git/config is a protected path", closed, Some(SandboxRefusal::Git));
        check("write", "Write denied: /h/haft.json is a protected path", closed, None);
        check("read", "Read denied: /etc/shadow is a protected path", closed, Some(SandboxRefusal::Read));
        let touch = "touch: cannot touch '/srv/x': Read-only file system";
        check("bash", touch, closed, Some(SandboxRefusal::Write));
        let curl = "curl: (6) Could not resolve host: example.org";
        check("bash", curl, closed, Some(SandboxRefusal::Network));
        check("bash", curl, open, None);
        check("web__fetch", curl, closed, None);
        check("bash", "make: *** [all] Error 2", closed, None);
    }
}
