//! The users that a test runs haft as.

/// The user who runs the tests, or one without any privilege.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestUser {
    /// The user who runs the tests.
    Ourselves,
    /// The user with uid 65534; only root can switch to it.
    Nobody,
}

/// The uid and gid of the unprivileged user.
pub(crate) const NOBODY: u32 = 65534;

/// Returns the users that a test can run as: both for root, otherwise only our own.
pub fn users() -> Vec<TestUser> {
    if rustix::process::geteuid().is_root() {
        vec![TestUser::Ourselves, TestUser::Nobody]
    } else {
        vec![TestUser::Ourselves]
    }
}
