//! The unix sockets of other programs. A command that may use only some unix sockets must not reach the others.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::path::resolve;
use crate::policy::SandboxPolicy;
use haft_core::settings::sandbox::ResourceAccess;

/// The maximum number of sockets that haft covers. Each needs a mount.
pub(crate) const SOCKETS_MAX: usize = 4_096;

/// The kernel's list of the unix sockets in the network namespace of haft.
const LIST: &str = "/proc/net/unix";

/// The unix sockets that a command may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PlannedSockets {
    /// The command cannot create unix sockets.
    Denied,
    /// The command can connect to these sockets.
    Named(Vec<PathBuf>),
    All,
}

impl PlannedSockets {
    pub(crate) fn of(policy: &SandboxPolicy) -> Self {
        match policy.unix_sockets {
            ResourceAccess::Allow => Self::All,
            ResourceAccess::Deny if policy.sockets.is_empty() => Self::Denied,
            ResourceAccess::Deny => Self::Named(policy.sockets.clone()),
        }
    }

    /// Returns the sockets to cover: all sockets of other programs that the command may not connect to.
    pub(crate) fn covered(&self) -> Vec<PathBuf> {
        match self {
            Self::Denied | Self::All => Vec::new(),
            Self::Named(named) => {
                let list = std::fs::read_to_string(LIST).unwrap_or_default();
                let mut bound: Vec<PathBuf> = paths(&list).map(resolve).collect();
                bound.sort();
                bound.dedup();
                bound.retain(|socket| !named.contains(socket) && socket.exists());
                bound
            }
        }
    }
}

/// Returns the paths in the kernel's list. A socket without a name has none, and an abstract name begins with `@`.
fn paths(list: &str) -> impl Iterator<Item = &Path> {
    // The path is the eighth column, and may contain spaces.
    list.lines().skip(1).filter_map(|line| line.find(" /").map(|at| Path::new(&line[at + 1..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_sockets_are_read_from_the_list_of_the_kernel() {
        let list = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 16218 /run/dbus/system bus\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 24110 @/tmp/.X11-unix/X0\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 24111\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 16219 /dev/log\n";
        let found: Vec<&Path> = paths(list).collect();
        assert_eq!(found, [Path::new("/run/dbus/system bus"), Path::new("/dev/log")]);
    }
}
