//! Grants of the sandbox policy.

/// Whether the policy grants a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Allow,
    Deny,
}

/// Whether hooks and configuration of the workspace's git directory may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitMetadata {
    /// A hook or a filter written by a model would run outside the sandbox at the user's next git command.
    Frozen,
    Writable,
}
