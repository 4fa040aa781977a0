//! What a person allowed for good, kept in haft's own data.

use std::io;
use std::path::PathBuf;

use haft_core::approval::Remembered;
use haft_core::digest::Digest;
use haft_sandbox::Home;
use serde::{Deserialize, Serialize};

/// The file's own form.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// Digests of calls, in hexadecimal.
    exact: Vec<String>,
    /// The texts of rules.
    rules: Vec<String>,
}

/// Reads what was remembered; nothing when nothing was. A file that cannot be read as such counts as nothing: then a
/// person is asked again.
pub fn load(home: &Home) -> Remembered {
    let text = std::fs::read(path_in(home)).unwrap_or_default();
    let written: Written = serde_json::from_slice(&text).unwrap_or_default();
    Remembered {
        exact: written.exact.iter().filter_map(|text| Digest::from_hex(text)).collect(),
        rules: written.rules.into_iter().collect(),
    }
}

/// Keeps what is remembered now, in one step.
pub fn save(home: &Home, remembered: &Remembered) -> io::Result<()> {
    let written = Written {
        exact: remembered.exact.iter().map(ToString::to_string).collect(),
        rules: remembered.rules.iter().cloned().collect(),
    };
    crate::private_file::replace(&path_in(home), &serde_json::to_vec_pretty(&written)?)
}

fn path_in(home: &Home) -> PathBuf {
    home.data().join("approvals.json")
}
