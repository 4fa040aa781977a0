//! Looks up users' home directories.

use std::env;
use std::path::PathBuf;

/// Returns the home directory of the user who started haft: `$HOME`, or else the system's entry for that user.
pub fn user_home() -> Option<PathBuf> {
    env::home_dir().filter(|path| path.is_absolute())
}

/// Returns the name and home directory for a uid, from `/etc/passwd`.
pub(crate) fn entry(uid: u32) -> Option<(String, String)> {
    parse(&std::fs::read_to_string("/etc/passwd").ok()?, uid)
}

fn parse(passwd: &str, uid: u32) -> Option<(String, String)> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let found = fields.get(2)?.parse() == Ok(uid);
        found.then(|| Some((fields.first()?.to_string(), fields.get(5)?.to_string())))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwd_entry_is_found_by_uid() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nodd line\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(parse(passwd, 1000), Some(("ann".into(), "/home/ann".into())));
        assert_eq!(parse(passwd, 5), None);
    }
}
