//! Watches protected names in writable directories. If a process outside the sandbox replaces such a file, covers the
//! new file again.
//!
//! A mount belongs to a directory entry. When another process renames a file over it, the kernel removes the mount in
//! every namespace, and the command could write the new file. The watcher is outside the sandbox and gets each rename
//! from inotify. It enters the mount namespace of the command, covers the new file, and ends the command if it may have
//! changed the new file before.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::exit;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::mounts;
use super::namespaces::LevelAttempt;
use super::supervise::{self, Fork};
use crate::plan::{MountStep, SandboxPlan};
use haft_core::settings::limits::CommandLimits;

/// The maximum number of event bytes that one read returns.
const EVENT_BYTES: usize = 16 << 10;

/// The protected names of a call, and the open namespaces for covering them again.
#[derive(Debug)]
pub(super) struct NameWatch {
    events: OwnedFd,
    directories: Vec<(i32, PathBuf)>,
    steps: Vec<MountStep>,
    limits: CommandLimits,
    namespaces: Option<KeeperNamespaces>,
    /// The names that were replaced during this call. The command may have opened the new file before it was covered
    /// again.
    exposed: BTreeSet<PathBuf>,
}

#[derive(Debug)]
struct KeeperNamespaces {
    user: Option<OwnedFd>,
    mount: OwnedFd,
}

/// One event about a watched name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NameEvent {
    path: PathBuf,
    kind: NameChange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameChange {
    /// The name now belongs to another file, or to no file.
    Replaced,
    /// The file was written, or its attributes were changed.
    Written,
}

impl NameWatch {
    /// Starts to watch, before the mounts are made. Returns `None` if there is nothing to watch.
    pub(super) fn begin(plan: &SandboxPlan) -> io::Result<Option<Self>> {
        if plan.watched.is_empty() {
            return Ok(None);
        }
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let parents: BTreeSet<&Path> = plan.watched.iter().filter_map(|path| path.parent()).collect();
        let mut directories = Vec::new();
        for parent in parents {
            let wanted = REPLACED | WRITTEN | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
            directories.push((inotify::add_watch(&events, parent, wanted)?, parent.to_path_buf()));
        }
        let steps = plan.steps.iter().filter(|step| plan.watched.iter().any(|path| path == step.path()));
        Ok(Some(Self {
            events,
            directories,
            steps: steps.cloned().collect(),
            limits: plan.limits.clone(),
            namespaces: None,
            exposed: BTreeSet::new(),
        }))
    }

    /// Opens the namespaces of the keeper now, because the keeper later denies access to other processes of the same
    /// user.
    pub(super) fn enter_later(&mut self, attempt: LevelAttempt, keeper: Pid) -> io::Result<()> {
        let open = |name: &str| File::open(format!("/proc/{}/ns/{name}", keeper.as_raw_nonzero()));
        let user = match attempt {
            LevelAttempt::UserNamespaces => Some(open("user")?.into()),
            LevelAttempt::Namespaces | LevelAttempt::Landlock => None,
        };
        self.namespaces = Some(KeeperNamespaces { user, mount: open("mnt")?.into() });
        Ok(())
    }

    /// Handles the pending events. Returns a name that the command may have changed; the call must then end.
    pub(super) fn handle(&mut self) -> Option<PathBuf> {
        let path = match self.take().and_then(|events| replaced_name(&events, &self.exposed)) {
            Ok(None) => return None,
            Ok(Some(path)) => path,
            Err(changed) => return Some(changed),
        };
        self.exposed.insert(path.clone());
        if !self.cover_again(&path) || has_other_names(&path) {
            return Some(path);
        }
        // Each of these events happened before the cover was in place, so the command may have changed the file.
        match self.take() {
            Ok(events) => events.into_iter().find(|event| event.path == path).map(|event| event.path),
            Err(changed) => Some(changed),
        }
    }

    /// Checks a last time, after all processes of the call have ended. A write to a mapped file causes an event only
    /// when the file is closed, so the watcher may not know yet that the command wrote to a file before it was covered.
    pub(super) fn last_look(&mut self) -> Option<PathBuf> {
        match self.take().and_then(|events| replaced_name(&events, &self.exposed)) {
            Ok(replaced) => replaced.filter(|path| has_other_names(path)),
            Err(changed) => Some(changed),
        }
    }

    /// Reads all pending events about watched names. If events were lost, the error is the directory of these events.
    fn take(&self) -> Result<Vec<NameEvent>, PathBuf> {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = inotify::Reader::new(&self.events, &mut buffer);
        let mut found = Vec::new();
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => return Ok(found),
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                return Err(self.directories.first().map(|(_, path)| path.clone()).unwrap_or_default());
            }
            let directory = self.directories.iter().find(|(watch, _)| *watch == event.wd());
            let (Some((_, directory)), Some(name)) = (directory, event.file_name()) else { continue };
            let path = directory.join(name.to_string_lossy().as_ref());
            if !self.steps.iter().any(|step| step.path() == path) {
                continue;
            }
            let written = ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE | ReadFlags::ATTRIB;
            let kind =
                if event.events().intersects(written) { NameChange::Written } else { NameChange::Replaced };
            found.push(NameEvent { path, kind });
        }
    }

    /// Covers the file that has the name now. Fails for a directory, because the command may already have put files
    /// into it.
    fn cover_again(&self, path: &Path) -> bool {
        let Some(namespaces) = &self.namespaces else { return false };
        let is_file = path.symlink_metadata().is_ok_and(|about| about.is_file());
        let steps: Vec<&MountStep> = self.steps.iter().filter(|step| step.path() == path).collect();
        if !is_file || steps.is_empty() {
            return false;
        }
        match supervise::fork(0) {
            Ok(Fork::Child) => {
                let covered = namespaces.enter().is_ok()
                    && steps.iter().all(|step| mounts::attach_step(step, &self.limits).is_ok());
                exit(i32::from(!covered))
            }
            Ok(Fork::Parent(helper)) => loop {
                match waitpid(Some(helper), WaitOptions::empty()) {
                    Ok(Some((_, status))) => return status.exit_status() == Some(0),
                    Ok(None) | Err(Errno::INTR) => {}
                    Err(_) => return false,
                }
            },
            Err(_) => false,
        }
    }
}

/// Returns the name that was replaced, if any. Fails with a name if the command may have changed the file with this
/// name. This is the case if the file was written while no mount covered it, or if a second replacement followed,
/// because the command may have made this replacement.
fn replaced_name(events: &[NameEvent], exposed: &BTreeSet<PathBuf>) -> Result<Option<PathBuf>, PathBuf> {
    let mut replaced: Option<&PathBuf> = None;
    for NameEvent { path, kind } in events {
        match kind {
            NameChange::Written if exposed.contains(path) || replaced == Some(path) => {
                return Err(path.clone());
            }
            // The mount still covers this file, so the command cannot have written it.
            NameChange::Written => {}
            NameChange::Replaced if replaced.is_some() => return Err(path.clone()),
            NameChange::Replaced => replaced = Some(path),
        }
    }
    Ok(replaced.cloned())
}

/// Returns true if the file has a second name, through which the command could write to it later. A command can create
/// such a name only while the file is not covered.
fn has_other_names(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|about| about.is_file() && about.nlink() > 1)
}

impl AsFd for NameWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl KeeperNamespaces {
    fn enter(&self) -> io::Result<()> {
        if let Some(user) = &self.user {
            move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
        }
        Ok(move_into_link_name_space(self.mount.as_fd(), Some(LinkNameSpaceType::Mount))?)
    }
}

/// The inotify events after which a mount no longer covers a name.
const REPLACED: WatchFlags =
    WatchFlags::MOVED_TO.union(WatchFlags::MOVED_FROM).union(WatchFlags::CREATE).union(WatchFlags::DELETE);

/// The inotify events for writes to a file.
const WRITTEN: WatchFlags = WatchFlags::MODIFY.union(WatchFlags::CLOSE_WRITE).union(WatchFlags::ATTRIB);

#[cfg(test)]
mod tests {
    use super::NameChange::{Replaced, Written};
    use super::*;

    #[test]
    fn write_or_second_replacement_after_a_replacement_is_an_error() {
        let check =
            |events: &[(&str, NameChange)], exposed: &[&str], expected: Result<Option<&str>, &str>| {
                let events: Vec<NameEvent> =
                    events.iter().map(|(path, kind)| NameEvent { path: path.into(), kind: *kind }).collect();
                let exposed = exposed.iter().map(PathBuf::from).collect();
                let expected = expected.map(|path| path.map(PathBuf::from)).map_err(PathBuf::from);
                assert_eq!(replaced_name(&events, &exposed), expected, "{events:?}");
            };
        check(&[], &[], Ok(None));
        check(&[("a", Written)], &[], Ok(None));
        check(&[("a", Replaced)], &[], Ok(Some("a")));
        check(&[("a", Written), ("a", Replaced)], &[], Ok(Some("a")));
        check(&[("a", Replaced), ("b", Written)], &[], Ok(Some("a")));
        check(&[("a", Replaced), ("a", Written)], &[], Err("a"));
        check(&[("a", Replaced), ("a", Replaced)], &[], Err("a"));
        check(&[("a", Written)], &["a"], Err("a"));
    }
}
