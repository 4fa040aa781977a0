//! The variables of the configuration: first the environment, then the values that haft asked for once.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use haft_runtime::stored_variables::{StoredVariables, VariableValues};

use super::terminal;

/// Returns the value of a variable. The environment comes first, so that a single command can use another value.
pub(super) fn variable(name: &str) -> Option<String> {
    haft_config::environment(name).or_else(|| stored(name))
}

/// Returns a stored value. First checks the stored names, and reads the values only if they include this name: the
/// values may be in a keyring, which may be slow.
fn stored(name: &str) -> Option<String> {
    static NAMES: OnceLock<BTreeSet<String>> = OnceLock::new();
    static VALUES: OnceLock<VariableValues> = OnceLock::new();
    let stored = StoredVariables::of(&haft_runtime::home::find()?);
    let names = NAMES.get_or_init(|| readable(stored.names()));
    if !names.contains(name) {
        return None;
    }
    VALUES.get_or_init(|| readable(stored.read_blocking())).get(name).cloned()
}

fn readable<T: Default, E: std::fmt::Display>(read: Result<T, E>) -> T {
    read.unwrap_or_else(|error| {
        terminal::warn(&format!("haft cannot read the stored variables: {error}"));
        T::default()
    })
}
