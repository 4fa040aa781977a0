//! Common words that tools use for the same action.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::words::words;

/// The groups of synonyms, one group per line.
const GROUPS: [&str; 75] = [
    "list get fetch show retrieve read view lookup describe see check",
    "create add new make insert open",
    "delete remove destroy drop erase",
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
    "update edit modify change patch set replace adjust",
    "approve accept confirm allow",
    "reject decline deny dismiss refuse",
    "enable activate allow",
    "disable deactivate suspend pause",
    "resume continue unpause",
    "connect link attach associate bind",
    "disconnect detach unlink unassign remove",
    "assign grant give",
    "revoke withdraw remove",
    "permission access authorization privilege right role",
    "schedule plan book",
    "pay payment charge",
    "refund reimburse return",
    "invoice bill billing",
    "balance credit fund money",
    "subscribe watch follow",
    "restore recover undelete undo",
    "close finish resolve end",
    "log history audit activity",
    "statistic metric usage report analytic insight traffic",
    "setting configuration option preference",
    "label tag",
    "team group",
    "organization enterprise company",
    "server machine instance host",
    "backup snapshot",
    "disk volume storage drive",
    "customer client buyer",
    "discount coupon promotion",
    "call phone telephone",
    "vulnerability security advisory",
    "diff compare difference",
    "version revision",
    "register enroll signup subscribe",
    "resize scale",
    "trash bin",
    "member membership participant attendee",
    "certificate ssl tls",
    "convert transform translate",
    "task todo job",
];

/// Returns true if both terms are in the same group.
pub(super) fn are_synonyms(one: &str, other: &str) -> bool {
    synonyms(one).any(|word| word == other)
}

/// Returns the other words in the groups that contain a term. All words are stems.
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
        assert!(are_synonyms("list", "get") && !are_synonyms("list", "delet"));
    }
}
