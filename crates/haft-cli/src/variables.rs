//! The variables of the configuration: first the environment, then the values that haft asked for once.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use haft_config::stored_variables::StoredVariables;

use super::terminal;

/// Returns the value of a variable. The environment comes first, so that a single command can use another value.
pub(super) fn variable(name: &str) -> Option<String> {
    static STORED: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    haft_config::environment(name).or_else(|| STORED.get_or_init(stored).get(name).cloned())
}

fn stored() -> BTreeMap<String, String> {
    let Some(home) = haft_runtime::home::find() else { return BTreeMap::new() };
    StoredVariables::of(&home).read().unwrap_or_else(|error| {
        terminal::warn(&format!("stored variables cannot be read: {error}"));
        BTreeMap::new()
    })
}
