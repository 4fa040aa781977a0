//! Makes haft's own directory.

use std::io;
use std::os::unix::fs::DirBuilderExt;

use haft_core::home::Home;

/// Makes home and its data directory, readable by their owner alone.
///
/// The sandbox can only mask a name that exists: a missing home below a directory that a tool may write could be created
/// by that tool.
pub fn create(home: &Home) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home.data())
}
