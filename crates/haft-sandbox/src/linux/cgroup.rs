//! A control group for one call, if one can be created. It limits the memory of all processes of the call together.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use haft_core::settings::limits::CommandLimits;

/// A control group that the launcher creates and enters before the call starts. Dropping it leaves and removes the
/// group.
#[derive(Debug)]
pub(super) struct Cgroup {
    parent: PathBuf,
    own: PathBuf,
}

impl Cgroup {
    /// Creates and enters a group. Returns `None` if haft cannot create a group with a memory limit, as for most
    /// ordinary users. Then only the limits per process apply.
    ///
    /// The function does not check first whether a group can be created: a failed creation gives the same answer, and
    /// the check would cost time in every call.
    pub(super) fn enter(limits: &CommandLimits) -> Option<Self> {
        let memberships = fs::read_to_string("/proc/self/cgroup").ok()?;
        let bytes_max = limits.memory_bytes_max.to_string();
        places(&memberships).into_iter().find_map(|(parent, limit_file)| {
            let own = parent.join(format!("{PREFIX}{}", std::process::id()));
            match fs::create_dir(&own) {
                // Reuse an existing directory: a killed launcher with the same pid has left it behind.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return None,
                Ok(()) | Err(_) => {}
            }
            remove_forgotten(&parent);
            // From now on, dropping `group` undoes the creation.
            let group = Self { parent, own };
            write(&group.own.join(limit_file), &bytes_max).ok()?;
            write(&group.own.join("cgroup.procs"), "0").ok().map(|()| group)
        })
    }
}

/// The name prefix of the cgroup of a call. The pid of its launcher follows.
const PREFIX: &str = "haft-";

/// Removes the groups of launchers that were killed. The kernel refuses to remove a group with processes.
fn remove_forgotten(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Writes to a file that must exist: a missing file means that the controller is missing.
fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Move the launcher, the last process in the group, to the parent group, because the kernel removes only an
        // empty group.
        let _ = write(&self.parent.join("cgroup.procs"), "0");
        let _ = fs::remove_dir(&self.own);
    }
}

/// Returns the control groups of this process that could limit memory, each with its limit file: first the separate
/// memory hierarchy (cgroup v1), then the unified one (cgroup v2).
fn places(memberships: &str) -> Vec<(PathBuf, &'static str)> {
    let below = |root: &str, path: &str| Path::new(root).join(path.trim_start_matches('/'));
    let mut found = Vec::new();
    for line in memberships.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        match (fields.next(), fields.next()) {
            (Some(""), Some(path)) => found.push((below("/sys/fs/cgroup", path), "memory.max")),
            (Some(controllers), Some(path)) if controllers.split(',').any(|name| name == "memory") => {
                found.insert(0, (below("/sys/fs/cgroup/memory", path), "memory.limit_in_bytes"));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_cgroup_hierarchy_is_listed_first() {
        let check = |memberships: &str, expected: &[&str]| {
            let found: Vec<PathBuf> = places(memberships).into_iter().map(|(place, _)| place).collect();
            assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{memberships}");
        };
        check("0::/user.slice/session", &["/sys/fs/cgroup/user.slice/session"]);
        check("3:memory:/a\n2:cpu:/b\n0::/c", &["/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/c"]);
        check("4:cpu,memory:/\n", &["/sys/fs/cgroup/memory/"]);
        check("nonsense", &[]);
    }
}
