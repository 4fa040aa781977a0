//! Creates haft's home directory.

use std::io;
use std::os::unix::fs::DirBuilderExt;

use haft_core::home::Home;

/// Creates home and its data directory, accessible only to their owner.
///
/// The sandbox can only mask a path that exists: below a directory that a tool may write, the tool could create a
/// missing home itself.
pub fn create(home: &Home) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home.data())
}
