//! The three levels an operator chooses from.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a confined command may change, from narrow to wide. The blocklist holds in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    /// Writes only to the workspace and `/tmp`; no network.
    Sandbox,
    /// Writes as in `Sandbox`; the network is open.
    Rx,
    /// Open but for the blocklist and haft's own data.
    Rwx,
}

impl SandboxMode {
    /// Every mode, the strictest first.
    pub const ALL: [SandboxMode; 3] = [SandboxMode::Sandbox, SandboxMode::Rx, SandboxMode::Rwx];

    /// Returns the name for the command line and the configuration.
    pub fn name(self) -> &'static str {
        match self {
            SandboxMode::Sandbox => "sandbox",
            SandboxMode::Rx => "rx",
            SandboxMode::Rwx => "rwx",
        }
    }
}

impl fmt::Display for SandboxMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SandboxMode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        SandboxMode::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| UnknownMode(text.into()))
    }
}

/// A mode nobody defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMode(pub String);

impl fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mode must be sandbox, rx or rwx; got `{}`", self.0)
    }
}

impl std::error::Error for UnknownMode {}
