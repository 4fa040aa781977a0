//! Grants of the sandbox policy.

use super::mode::SandboxMode;

/// Whether the policy grants a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The command can use the resource.
    Allow,
    /// The resource is out of the command's reach.
    Deny,
}

impl Access {
    /// Returns the stable name for all records.
    pub fn name(self) -> &'static str {
        match self {
            Access::Allow => "allow",
            Access::Deny => "deny",
        }
    }
}

/// The parts of the sandbox that an approval is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confinement {
    /// The mode, which decides about writes.
    pub mode: SandboxMode,
    /// The access to the network.
    pub network: Access,
}

impl Confinement {
    /// The sandbox that allows least.
    pub const NARROWEST: Self = Self { mode: SandboxMode::Sandbox, network: Access::Deny };

    /// No sandbox at all.
    pub const WIDEST: Self = Self { mode: SandboxMode::Rwx, network: Access::Allow };

    /// Returns true if this sandbox permits nothing that the other one does not.
    pub fn is_within(self, other: Self) -> bool {
        let network = match (self.network, other.network) {
            (Access::Deny, Access::Allow | Access::Deny) | (Access::Allow, Access::Allow) => true,
            (Access::Allow, Access::Deny) => false,
        };
        network && self.mode <= other.mode
    }
}

/// Whether hooks and configuration of the workspace's git directory may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitMetadata {
    /// A hook or a filter written by a model would run outside the sandbox at the user's next git command.
    Frozen,
    /// Tools may write hooks and configuration.
    Writable,
}
