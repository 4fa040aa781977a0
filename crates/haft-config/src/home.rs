//! Creates haft's home directory.

use std::io;

use haft_core::home::Home;
use haft_fs::private_file;

/// Creates the home directory and its data directory, accessible only to their owner.
///
/// The sandbox can hide only a path that exists. If the home directory were missing, a tool that may write to its
/// parent directory could create it.
pub fn create(home: &Home) -> io::Result<()> {
    private_file::create_dir_all(&home.data())
}
