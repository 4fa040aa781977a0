//! Waits for a child while watching the lifeline, and kills the processes that remain.

#![allow(unsafe_code, reason = "fork, prctl and signalfd have no safe wrapper")]

use std::fs::File;
use std::io::{self, Read};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::ptr;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, wait};

use super::control::ControlSocket;
use super::protected_names::NameWatch;

/// The event that ended the wait.
#[derive(Debug)]
pub(super) enum WaitOutcome {
    Exited(WaitStatus),
    /// The process that started the launcher has ended, or has cancelled the call.
    LifelineClosed,
    /// The command may have changed this protected file, so the call must end.
    Exposed(PathBuf),
}

/// Unblocks all signals in the command, which must not inherit the launcher's signal mask.
pub(super) fn unblock_signals(command: &mut Command) -> &mut Command {
    let open = || {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `set` is initialised by `sigemptyset` before it is read.
        let done = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut())
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: both calls are allowed between fork and exec, and neither allocates.
    unsafe { command.pre_exec(open) }
}

/// The handling of a request to terminate the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnTerminate {
    /// In the watcher, the request comes from haft's process over the socket, and is passed to the keeper as SIGTERM.
    PassOn,
    /// In the keeper, the request comes from the watcher as SIGTERM, and is passed to the command's process group.
    TellTheGroup {
        /// The parent process; `None` if it is outside the pid namespace.
        watcher: Option<Pid>,
    },
}

/// Reports that a child changed its state, or that the command should be terminated.
#[derive(Debug)]
pub(super) struct ChildSignals {
    fd: File,
}

impl ChildSignals {
    /// Blocks SIGCHLD and SIGTERM for this process and its forks, and reads these signals from a descriptor instead. A
    /// program started with `exec` would inherit the mask; see [`unblock_signals`].
    pub(super) fn take_over() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `set` is initialised by `sigemptyset` before it is read; no other thread exists.
        let raw = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` was just opened and has no other owner.
        Ok(Self { fd: File::from(unsafe { OwnedFd::from_raw_fd(raw) }) })
    }

    /// Consumes all pending signals, and returns true if the parent sent SIGTERM. Ignores SIGTERM from any other
    /// process, because the command itself could send it.
    fn take(&mut self) -> bool {
        const ONE: usize = mem::size_of::<libc::signalfd_siginfo>();
        let mut sink = [0_u8; ONE * 8];
        let mut terminate = false;
        while let Ok(read @ 1..) = self.fd.read(&mut sink) {
            terminate |= sink[..read].chunks_exact(ONE).any(is_parents_term);
        }
        terminate
    }
}

/// Returns true for a SIGTERM from the parent. If the parent is outside the pid namespace, `getppid` and the signal
/// both give the pid 0, so the comparison still works.
fn is_parents_term(record: &[u8]) -> bool {
    let field =
        |at: usize| record.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    let sender = mem::offset_of!(libc::signalfd_siginfo, ssi_pid);
    field(0) == Some(libc::SIGTERM) && field(sender) == Some(parent)
}

/// Waits for `child`, and reaps every orphan that the kernel reparents to this process.
pub(super) fn supervise(
    child: Pid,
    control: &ControlSocket,
    signals: &mut ChildSignals,
    on_terminate: OnTerminate,
    mut names: Option<&mut NameWatch>,
) -> io::Result<WaitOutcome> {
    let lifeline: BorrowedFd<'_> = control.as_fd();
    // Both the watcher and the keeper hold the socket. Only the watcher reads from it, because haft's process sends its
    // requests to the watcher.
    let words = match on_terminate {
        OnTerminate::PassOn => PollFlags::IN,
        OnTerminate::TellTheGroup { .. } => PollFlags::empty(),
    };
    loop {
        if let Some(status) = reap(child)? {
            return Ok(WaitOutcome::Exited(status));
        }
        if is_orphaned(on_terminate) {
            return Ok(WaitOutcome::LifelineClosed);
        }
        let mut fds =
            vec![PollFd::new(&lifeline, words | PollFlags::RDHUP), PollFd::new(&signals.fd, PollFlags::IN)];
        fds.extend(names.as_deref().map(|names| PollFd::new(names, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_renamed = fds.get(2).is_some_and(|fd| !fd.revents().is_empty());
        let lifeline_events = fds[0].revents();
        if is_renamed && let Some(path) = names.as_deref_mut().and_then(NameWatch::handle) {
            return Ok(WaitOutcome::Exposed(path));
        }
        if lifeline_events.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Ok(WaitOutcome::LifelineClosed);
        }
        let asked = lifeline_events.contains(PollFlags::IN) && control.is_asked_to_terminate();
        if signals.take() || asked {
            terminate(child, on_terminate);
        }
    }
}

/// Returns true in a keeper whose watcher was killed. Then this keeper must end the command, because no other process
/// would.
fn is_orphaned(on_terminate: OnTerminate) -> bool {
    match on_terminate {
        OnTerminate::PassOn => false,
        OnTerminate::TellTheGroup { watcher } => rustix::process::getppid() != watcher,
    }
}

/// Sends SIGTERM. Ignores the result, because a process that has ended needs no signal.
fn terminate(child: Pid, on_terminate: OnTerminate) {
    let _ = match on_terminate {
        OnTerminate::PassOn => kill_process(child, Signal::TERM),
        OnTerminate::TellTheGroup { .. } => kill_process_group(child, Signal::TERM),
    };
}

fn reap(child: Pid) -> io::Result<Option<WaitStatus>> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == child => return Ok(Some(status)),
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Kills all descendants of this process until none is left. This process is their subreaper, so a daemon that detached
/// itself becomes its child again.
pub(super) fn kill_descendants() {
    loop {
        for pid in children() {
            let _ = kill_process(pid, Signal::KILL);
        }
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn children() -> Vec<Pid> {
    let own = rustix::process::getpid().as_raw_nonzero();
    let list = std::fs::read_to_string(format!("/proc/self/task/{own}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Makes this process the parent of orphaned descendants.
pub(super) fn become_subreaper() {
    // SAFETY: takes integers only.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Asks the kernel to kill this process when its parent dies, in addition to the lifeline.
pub(super) fn die_with_parent() {
    // SAFETY: takes integers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// Asks the kernel for SIGCHLD when the parent dies, instead of a kill. Without a pid namespace, the command would
/// survive a killed keeper, so the keeper must stay alive to kill the command.
pub(super) fn outlive_parent() {
    // SAFETY: takes integers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGCHLD, 0, 0, 0) };
}

/// The side of the fork on which this process is.
#[derive(Debug)]
pub(super) enum Fork {
    Child,
    Parent(Pid),
}

/// Forks into new namespaces. `flags` are the flags of `clone`; 0 means a plain fork.
pub(super) fn fork(flags: libc::c_int) -> io::Result<Fork> {
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: the launcher has one thread, so the child's copy of memory is consistent; no stack is passed, as
    // with fork.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, none, none, none, none) };
    match pid {
        ..=-1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .map(Fork::Parent)
            .ok_or_else(|| io::Error::other("the kernel returned an invalid process id")),
    }
}
