//! Runs a command, or one of haft's own functions, in an OS sandbox. Only this crate uses `unsafe`.
//!
//! Start reading at [`SandboxPolicy`] (the operator's decision), then `plan` (the steps that carry it out on this
//! machine) and [`SandboxedCommand`] (the only way to start a process); `linux` holds the mechanism. This crate has no
//! code about tools, models or calls, and model output never affects a policy.

mod check;
mod children;
mod command;
mod environment;
mod error;
mod fingerprint;
mod git;
mod git_parts;
mod launch;
mod launcher;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
mod message;
mod passwd;
mod path;
mod pipes;
mod plan;
mod policy;
mod seatbelt;
mod secrets;
mod sockets;
mod worker;
mod workspace_scan;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "macos")]
use macos as system;

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("haft supports only Linux and macOS, because it has no sandbox for other systems");

use std::os::unix::net::UnixStream;

pub use check::{WRITE_BLOCKLIST, is_read_blocked, is_within_roots, is_write_allowed, is_write_blocked};
pub use children::wait_until_gone;
pub use command::{
    OutputPipes, SandboxedChild, SandboxedCommand, StandardInput, protected_command, sandboxed_command,
};
pub use error::SandboxError;
pub use haft_core::home::Home;
pub use haft_core::settings::limits::{CommandLimits, LimitError};
pub use haft_core::settings::mode::{SandboxMode, UnknownMode};
pub use haft_core::settings::sandbox::{GitMetadata, ResourceAccess};
pub use launcher::{Launcher, init};
pub use message::{CommandExit, SandboxLayer, SandboxLevel, SandboxStatus};
pub use passwd::user_home;
pub use plan::PlanError;
pub use policy::{PolicyError, SandboxPolicy};
pub use seatbelt::{SeatbeltProfile, SeatbeltRules, seatbelt_profile};
pub use secrets::default_secrets;
pub use worker::{SandboxedWorker, WorkerPool};
pub use workspace_scan::WorkspaceScan;

/// A function that runs in the sandbox and communicates over the given socket until the socket closes.
pub type WorkerFn = fn(UnixStream);

/// The name of a worker that does nothing. It is started to find out which layers are active.
pub const PROBE: &str = "probe";

/// Returns the Landlock ABI version of the kernel, if it has Landlock.
pub fn landlock_version() -> Option<i32> {
    system::landlock_version()
}
