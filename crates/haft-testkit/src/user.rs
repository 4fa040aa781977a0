//! The users as whom a test can run haft.

/// The user who runs the tests, or a user without privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestUser {
    /// The user who runs the tests.
    Ourselves,
    /// The user with uid 65534. Only root can switch to this user.
    Nobody,
}

/// The uid and gid of the unprivileged user.
pub(crate) const NOBODY: u32 = 65534;

/// Returns the users as whom a test can run: both for root, otherwise only the current user.
pub fn users() -> Vec<TestUser> {
    if rustix::process::geteuid().is_root() {
        vec![TestUser::Ourselves, TestUser::Nobody]
    } else {
        vec![TestUser::Ourselves]
    }
}
