//! The three sandbox modes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The access rights of a confined command, from narrow to wide. The blocklist applies in every mode.
///
/// The aliases are the earlier names, which stored specs, grants and operators' scripts still contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    /// The command can write only to the workspace and `/tmp`, and has no network access.
    #[serde(alias = "sandbox")]
    Workspace,
    /// The command can write as in `Workspace`, and has network access.
    #[serde(alias = "rx")]
    Network,
    /// The command can access everything except the blocklist and haft's own data.
    #[serde(alias = "rwx")]
    Full,
}

crate::name_table!(SandboxMode { Workspace: "workspace", Network: "network", Full: "full" });

impl SandboxMode {
    /// Returns the mode whose earlier name this is, so that a program can tell its user the new name.
    pub fn of_old_name(text: &str) -> Option<SandboxMode> {
        SandboxMode::ALL.into_iter().find(|mode| mode.old_name() == text)
    }

    fn old_name(self) -> &'static str {
        match self {
            SandboxMode::Workspace => "sandbox",
            SandboxMode::Network => "rx",
            SandboxMode::Full => "rwx",
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
        let mode = SandboxMode::ALL.into_iter().find(|mode| mode.name() == text);
        mode.or_else(|| SandboxMode::of_old_name(text)).ok_or_else(|| UnknownMode(text.into()))
    }
}

/// The error for a text that is not the name of a sandbox mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox mode must be workspace, network or full; got `{0}`")]
pub struct UnknownMode(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_names_of_a_sandbox_mode_mean_the_same_mode() {
        for (old, mode) in ["sandbox", "rx", "rwx"].into_iter().zip(SandboxMode::ALL) {
            for name in [old, mode.name()] {
                assert_eq!(name.parse(), Ok(mode), "{name}");
                assert_eq!(
                    serde_json::from_str::<SandboxMode>(&format!("\"{name}\"")).unwrap(),
                    mode,
                    "{name}"
                );
            }
            assert_eq!(serde_json::to_string(&mode).unwrap(), format!("\"{mode}\""));
            assert_eq!(SandboxMode::of_old_name(old), Some(mode), "{old}");
            assert_eq!(SandboxMode::of_old_name(mode.name()), None, "{mode}");
        }
        assert!("open".parse::<SandboxMode>().is_err());
    }
}
