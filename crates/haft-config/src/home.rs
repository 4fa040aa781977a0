//! Creates haft's home directory.

use std::io;

use haft_core::home::Home;
use haft_fs::private_file;

/// Creates home and its data directory, accessible only to their owner.
///
/// The sandbox can only mask a path that exists: below a directory that a tool may write, the tool could create a
/// missing home itself.
pub fn create(home: &Home) -> io::Result<()> {
    private_file::create_dir_all(&home.data())
}
