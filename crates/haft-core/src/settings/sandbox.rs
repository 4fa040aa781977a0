//! Grants of the sandbox policy.

use super::mode::SandboxMode;

/// Whether the policy grants a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceAccess {
    /// The command can use the resource.
    Allow,
    /// The resource is out of the command's reach.
    Deny,
}

impl ResourceAccess {
    /// Returns the stable name for all records.
    pub fn name(self) -> &'static str {
        match self {
            ResourceAccess::Allow => "allow",
            ResourceAccess::Deny => "deny",
        }
    }
}

/// The parts of the sandbox that an approval is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxBinding {
    /// The mode, which determines what may be written.
    pub mode: SandboxMode,
    /// The access to the network.
    pub network: ResourceAccess,
}

impl SandboxBinding {
    /// The sandbox that allows least.
    pub const NARROWEST: Self = Self { mode: SandboxMode::Workspace, network: ResourceAccess::Deny };

    /// No sandbox at all.
    pub const WIDEST: Self = Self { mode: SandboxMode::Full, network: ResourceAccess::Allow };

    /// Returns true if this sandbox permits nothing that the other one does not.
    pub fn is_within(self, other: Self) -> bool {
        let network = match (self.network, other.network) {
            (ResourceAccess::Deny, ResourceAccess::Allow | ResourceAccess::Deny)
            | (ResourceAccess::Allow, ResourceAccess::Allow) => true,
            (ResourceAccess::Allow, ResourceAccess::Deny) => false,
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
