//! The file system as the command sees it: read-only, with the plan's steps mounted over it.
//!
//! The keeper first clones the mounts of all paths that must stay writable, while they still are. Then it makes all
//! mounts read-only in one call, and mounts the clones over the same paths, parents first. It opens paths without
//! following symlinks: the plan contains real paths, so a component that was replaced by a link in the meantime is an
//! error, not an escape.

#![allow(unsafe_code, reason = "mount_setattr has no safe wrapper")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, open, openat, openat2};
use rustix::io::write;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::namespaces::pid_max_is_per_namespace;
use super::stage::{InStage, StageError};
use crate::plan::{MountStep, SandboxPlan, VisibleEntry};
use haft_core::settings::limits::CommandLimits;

const STAGE: &str = "mounts";
const NO_DEVICES: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | NO_DEVICES;

/// Carries out all steps of the plan.
pub(super) fn build(plan: &SandboxPlan) -> Result<(), StageError> {
    let pieces = plan.steps.iter().map(|step| prepare(step, &plan.limits)).collect::<Result<Vec<_>, _>>()?;
    let slash = open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).stage(STAGE, "opening /")?;
    set_attributes(slash.as_fd(), READ_ONLY).stage(STAGE, "making / read-only")?;
    pieces.into_iter().flatten().try_for_each(|piece| piece.attach())
}

/// Carries out one step of the plan again, in a mount namespace that is already built.
pub(super) fn attach_step(step: &MountStep, limits: &CommandLimits) -> Result<(), StageError> {
    prepare(step, limits)?.into_iter().try_for_each(|piece| piece.attach())
}

/// Fails if this process cannot mount a fresh `/proc`. Containers often forbid such a mount.
pub(super) fn can_show_processes() -> io::Result<()> {
    fresh("proc", &[]).map(drop)
}

/// A detached mount and its mount point.
struct DetachedMount {
    mount: OwnedFd,
    target: PathBuf,
    /// True if the mount point may be gone.
    is_optional: bool,
}

impl DetachedMount {
    fn new(mount: OwnedFd, target: &Path) -> Self {
        Self { mount, target: target.to_path_buf(), is_optional: false }
    }

    fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    fn attach(&self) -> Result<(), StageError> {
        let target = match open_exactly(&self.target) {
            Err(error) if self.is_optional && is_unreachable(&error) => return Ok(()),
            target => target.stage(STAGE, format!("opening {}", self.target.display()))?,
        };
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(self.mount.as_fd(), "", target.as_fd(), "", flags)
            .stage(STAGE, format!("mounting on {}", self.target.display()))
    }
}

fn prepare(step: &MountStep, limits: &CommandLimits) -> Result<Vec<DetachedMount>, StageError> {
    let describe = |path: &Path| format!("preparing {}", path.display());
    match step {
        MountStep::Processes => processes(limits).stage(STAGE, "preparing /proc").map(|piece| vec![piece]),
        MountStep::Writable(path) => {
            bound(path, path, NO_DEVICES).stage(STAGE, describe(path)).map(|piece| vec![piece])
        }
        MountStep::Private { path, source } => {
            bound(source, path, NO_DEVICES).stage(STAGE, describe(path)).map(|piece| vec![piece])
        }
        MountStep::Frozen(path) => {
            bound(path, path, READ_ONLY).stage(STAGE, describe(path)).map(|piece| vec![piece])
        }
        MountStep::Device(path) => {
            bound(path, path, libc::MOUNT_ATTR_NOSUID).stage(STAGE, describe(path)).map(|piece| vec![piece])
        }
        // Cover the file with a device file: on a mount without devices, no process can open a device file, not even as
        // root.
        MountStep::HiddenFile(path) => bound(Path::new("/dev/null"), path, READ_ONLY)
            .stage(STAGE, describe(path))
            .map(|piece| vec![piece]),
        MountStep::HiddenSocket(path) => covered_socket(path).stage(STAGE, describe(path)),
        MountStep::Scratch(path) => {
            scratch(path, limits.shm_bytes_max).stage(STAGE, describe(path)).map(|piece| vec![piece])
        }
        MountStep::HiddenDirectory { path, keep } => cover(path, keep).stage(STAGE, describe(path)),
    }
}

/// Covers a socket with a file to which no process can connect. Skips a socket that is gone.
fn covered_socket(path: &Path) -> io::Result<Vec<DetachedMount>> {
    match open_exactly(path) {
        Ok(_) => bound(Path::new("/dev/null"), path, READ_ONLY).map(|piece| vec![piece.optional()]),
        Err(error) if is_unreachable(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Returns true if neither this process nor the command, which has fewer rights, can reach the path.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

/// Clones `source` with everything mounted below it.
fn bound(source: &Path, target: &Path, attributes: u64) -> io::Result<DetachedMount> {
    let source = open_exactly(source)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let mount = open_tree(source.as_fd(), "", flags)?;
    set_attributes(mount.as_fd(), attributes)?;
    Ok(DetachedMount::new(mount, target))
}

fn processes(limits: &CommandLimits) -> io::Result<DetachedMount> {
    let mount = fresh("proc", &[])?;
    if pid_max_is_per_namespace() {
        let pid_max = openat(&mount, "sys/kernel/pid_max", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        write(pid_max, limits.processes_max.to_string().as_bytes())?;
    }
    // Without this mount attribute, root could write files such as /proc/sys/kernel/core_pattern even without any
    // capability.
    set_attributes(mount.as_fd(), READ_ONLY | libc::MOUNT_ATTR_NOEXEC)?;
    Ok(DetachedMount::new(mount, Path::new("/proc")))
}

fn scratch(target: &Path, bytes_max: u64) -> io::Result<DetachedMount> {
    let mount = fresh("tmpfs", &[("mode", "1777"), ("size", &bytes_max.to_string())])?;
    set_attributes(mount.as_fd(), NO_DEVICES)?;
    Ok(DetachedMount::new(mount, target))
}

/// Covers a directory with an empty one, and mounts the kept entries over it.
fn cover(path: &Path, keep: &[VisibleEntry]) -> io::Result<Vec<DetachedMount>> {
    let mode = if keep.is_empty() { "0" } else { "755" };
    let mount = fresh("tmpfs", &[("mode", mode), ("size", "4096")])?;
    for kept in keep {
        make_directories(mount.as_fd(), Path::new(&kept.name))?;
    }
    set_attributes(mount.as_fd(), READ_ONLY)?;
    let mut pieces = vec![DetachedMount::new(mount, path)];
    for kept in keep {
        let inside = path.join(&kept.name);
        pieces.push(bound(&inside, &inside, if kept.writable { NO_DEVICES } else { READ_ONLY })?);
    }
    Ok(pieces)
}

/// Creates a directory and its missing parents.
fn make_directories(mount: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let mut above: Vec<&Path> = path.ancestors().filter(|path| !path.as_os_str().is_empty()).collect();
    above.reverse();
    for directory in above {
        match mkdirat(mount, directory, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn fresh(kind: &str, options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// Opens a real path. A symlink anywhere in it is an error.
fn open_exactly(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

/// Sets attributes on a mount and all mounts below it.
fn set_attributes(mount: BorrowedFd<'_>, attributes: u64) -> io::Result<()> {
    let wanted = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path is an empty C string, and `wanted` outlives the call, which reads as many bytes as the size
    // says.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const wanted,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
