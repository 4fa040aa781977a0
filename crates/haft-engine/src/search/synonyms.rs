//! General words that tools use for the same action.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::words::words;

/// Each line holds synonyms.
const GROUPS: [&str; 35] = [
    "list get fetch show retrieve read view",
    "create add new make insert open",
    "delete remove destroy drop erase",
    "update edit modify change patch set",
    "search find query lookup filter",
    "send post publish submit",
    "start run launch execute begin trigger",
    "stop cancel end abort terminate kill",
    "copy clone duplicate",
    "move rename transfer",
    "download export save",
    "upload import attach",
    "message comment note reply",
    "user account member person people",
    "picture image photo screenshot",
    "folder directory",
    "file document",
    "repository repo project",
    "issue ticket bug",
    "email mail",
    "meeting event appointment calendar",
    "site website page webpage",
    "url link address",
    "key token secret credential",
    "price cost rate",
    "place location",
    "error failure exception",
    "check verify validate test",
    "join merge combine",
    "count number total sum",
    "share invite collaborate collaboration collaborator",
    "attend attendee participate participant",
    "restart reboot rerun",
    "activate enable",
    "deactivate disable",
];

/// Returns the other words of the groups that contain a term. All are stems.
pub(super) fn synonyms(term: &str) -> impl Iterator<Item = &'static str> {
    static TABLE: LazyLock<HashMap<String, Vec<String>>> = LazyLock::new(table);
    TABLE.get(term).into_iter().flatten().map(String::as_str)
}

fn table() -> HashMap<String, Vec<String>> {
    let mut table: HashMap<String, Vec<String>> = HashMap::new();
    for group in GROUPS {
        let stems = words(group);
        for stem in &stems {
            table
                .entry(stem.clone())
                .or_default()
                .extend(stems.iter().filter(|other| *other != stem).cloned());
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_one_group_are_synonyms_of_each_other() {
        assert!(synonyms("delet").any(|word| word == "remov"));
        assert!(synonyms("remov").any(|word| word == "delet"));
        assert!(!synonyms("remov").any(|word| word == "remov"));
        assert_eq!(synonyms("xylophon").count(), 0);
    }
}
