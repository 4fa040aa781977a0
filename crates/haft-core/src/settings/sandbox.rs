//! Access settings of the sandbox policy.

use super::mode::SandboxMode;

/// Selects whether the policy grants access to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceAccess {
    /// The command can use the resource.
    Allow,
    /// The command cannot use the resource.
    Deny,
}

impl ResourceAccess {
    /// Returns the stable name that all records use.
    pub fn name(self) -> &'static str {
        match self {
            ResourceAccess::Allow => "allow",
            ResourceAccess::Deny => "deny",
        }
    }
}

/// The parts of the sandbox policy to which an approval is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxBinding {
    /// The mode, which determines the writable paths.
    pub mode: SandboxMode,
    /// The network access of the command.
    pub network: ResourceAccess,
}

impl SandboxBinding {
    /// The sandbox with the fewest permissions.
    pub const NARROWEST: Self = Self { mode: SandboxMode::Workspace, network: ResourceAccess::Deny };

    /// The policy of a command that runs without a sandbox.
    pub const WIDEST: Self = Self { mode: SandboxMode::Full, network: ResourceAccess::Allow };

    /// Returns true if `other` permits everything that this sandbox permits.
    pub fn is_within(self, other: Self) -> bool {
        let network = match (self.network, other.network) {
            (ResourceAccess::Deny, ResourceAccess::Allow | ResourceAccess::Deny)
            | (ResourceAccess::Allow, ResourceAccess::Allow) => true,
            (ResourceAccess::Allow, ResourceAccess::Deny) => false,
        };
        network && self.mode <= other.mode
    }
}

/// Selects whether the hooks and the configuration in the workspace's git directory may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitMetadata {
    /// Hooks and configuration are read-only: a hook or a filter that a model wrote would run outside the sandbox at
    /// the user's next git command.
    Frozen,
    /// Tools may write hooks and configuration.
    Writable,
}
