//! The messages between haft's process and the launcher on the control socket, one JSON object per line.
//!
//! The socket is also the lifeline: when haft's end closes, for any reason, everything that the launcher started is
//! killed.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::plan::SandboxPlan;

/// The request that haft's process sends to the launcher. haft sends one request per launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchRequest {
    pub(crate) plan: SandboxPlan,
    pub(crate) program: LaunchProgram,
}

/// The program to run once the sandbox is in place.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LaunchProgram {
    /// A command line, which is in the launcher's remaining arguments.
    Command,
    /// One of haft's own functions, by its name in [`crate::init`]. The function communicates over standard output.
    Worker(String),
}

/// A message from the launcher to haft's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LaunchReport {
    /// The launcher could not set up an isolation level, and tries the next weaker one.
    Skipped {
        level: SandboxLevel,
        reason: String,
    },
    /// The launcher could not set up the sandbox, or could not run the program.
    Failed {
        stage: String,
        reason: String,
    },
    /// The program is about to run in this sandbox.
    Ready(SandboxStatus),
    Exited(CommandExit),
    /// The command may have changed a protected file that a process outside the sandbox had replaced.
    Exposed {
        path: PathBuf,
    },
}

/// The isolation level of the sandbox, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxLevel {
    /// Namespaces created with haft's own privileges.
    Namespaces,
    /// Namespaces inside a user namespace, as an ordinary user.
    UserNamespaces,
    /// Landlock and seccomp alone.
    Landlock,
    /// A macOS sandbox profile.
    Seatbelt,
}

impl SandboxLevel {
    pub fn name(self) -> &'static str {
        match self {
            SandboxLevel::Namespaces => "namespaces",
            SandboxLevel::UserNamespaces => "user-namespaces",
            SandboxLevel::Landlock => "landlock",
            SandboxLevel::Seatbelt => "seatbelt",
        }
    }
}

/// The layers that confine a running command, and the effects of missing layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStatus {
    pub level: SandboxLevel,
    pub layers: Vec<SandboxLayer>,
    /// The guarantees that the sandbox cannot give on this system, each as a sentence.
    pub weaker: Vec<String>,
}

/// One layer of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLayer {
    pub name: String,
    pub active: bool,
    pub detail: String,
}

/// The exit status of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandExit {
    Code(i32),
    Signal(i32),
}

impl CommandExit {
    pub fn success(self) -> bool {
        self == CommandExit::Code(0)
    }
}
