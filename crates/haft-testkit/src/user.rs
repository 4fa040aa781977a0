//! Whom a test runs haft as.

/// Root, or somebody without any privilege.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Ourselves,
    /// uid 65534; only root can become it.
    Nobody,
}

/// The uid and gid of [`User::Nobody`].
pub(crate) const NOBODY: u32 = 65534;

/// Everybody the test can be run as: both for root, ourselves alone otherwise.
pub fn users() -> Vec<User> {
    if rustix::process::geteuid().is_root() {
        vec![User::Ourselves, User::Nobody]
    } else {
        vec![User::Ourselves]
    }
}
