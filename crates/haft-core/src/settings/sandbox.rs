//! Grants of the sandbox policy.

/// Whether the policy grants a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The command can use the resource.
    Allow,
    /// The resource is out of the command's reach.
    Deny,
}

/// Whether hooks and configuration of the workspace's git directory may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitMetadata {
    /// A hook or a filter written by a model would run outside the sandbox at the user's next git command.
    Frozen,
    /// Tools may write hooks and configuration.
    Writable,
}
