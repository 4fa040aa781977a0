//! Finds haft's home directory.

use std::path::PathBuf;

use haft_core::home::Home;
use haft_sandbox::user_home;

/// Returns `$HAFT_HOME`, or `.haft` in the user's home directory. Returns `None` if neither is known.
pub fn find() -> Option<Home> {
    let named = std::env::var_os("HAFT_HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
    let named = named.map(|path| std::path::absolute(&path).unwrap_or(path));
    named.or_else(|| user_home().map(|home| home.join(".haft"))).map(|root| Home::at(&root))
}
