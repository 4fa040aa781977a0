//! Creates haft's home directory.

use std::io;

use haft_core::home::Home;
use haft_fs::private_file;

/// Creates the home directory and its data directory, accessible only to their owner.
///
/// The sandbox can only hide a path that exists: below a directory that a tool may write to, the tool could create a
/// missing home directory itself.
pub fn create(home: &Home) -> io::Result<()> {
    private_file::create_dir_all(&home.data())
}
