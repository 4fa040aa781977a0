//! What our process and the launcher tell each other over the control socket, one JSON object per line.
//!
//! The socket is also the lifeline: when our end closes, for whatever reason, everything the launcher started dies.

use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// From us to the launcher, once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) plan: Plan,
    pub(crate) program: Program,
}

/// What runs once everything is in place.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Program {
    /// The launcher's further arguments, as a command line.
    Command,
    /// One of our own functions, by its name in [`crate::init`], talking over standard output.
    Worker(String),
}

/// From the launcher to us.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// A level could not be put up; the next weaker one is tried.
    Skipped {
        level: Level,
        reason: String,
    },
    /// Nothing was run.
    Failed {
        stage: String,
        reason: String,
    },
    /// The program is about to run, confined like this.
    Ready(Confinement),
    Exited(Exit),
}

/// How strong the sandbox is, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Namespaces made with our own privileges.
    Namespaces,
    /// Namespaces below a user namespace, as an ordinary user.
    UserNamespaces,
    /// Landlock and seccomp alone.
    Landlock,
    /// A macOS sandbox profile.
    Seatbelt,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Namespaces => "namespaces",
            Level::UserNamespaces => "user-namespaces",
            Level::Landlock => "landlock",
            Level::Seatbelt => "seatbelt",
        }
    }
}

/// Which layers hold a running command, and what the absence of others means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    pub level: Level,
    pub layers: Vec<Layer>,
    /// Each promise that cannot be kept here, as a sentence.
    pub weaker: Vec<String>,
}

/// One layer of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    pub name: String,
    pub active: bool,
    pub detail: String,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    pub fn success(self) -> bool {
        self == Exit::Code(0)
    }
}
