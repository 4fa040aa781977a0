//! The lines of usage records and logs that name a principal.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use serde_json::{Value, json};

use super::PrincipalData;
use crate::accounting::FileAccounting;
use crate::accounting::line_file::{self, LinePaths};
use crate::call_journal;

impl PrincipalData {
    /// Returns the files in which lines name the principal.
    pub(super) fn line_files(&self) -> Vec<(&'static str, LinePaths)> {
        let mut all = self.logs();
        let accounting = FileAccounting::of(&self.home).paths_of(&self.owner);
        all.extend(accounting.into_iter().map(|paths| ("accounting.jsonl", paths)));
        all.push(("gateway-calls.jsonl", self.call_journal()));
        all
    }

    fn logs(&self) -> Vec<(&'static str, LinePaths)> {
        let rotated = |name: &str| LinePaths::rotated(&self.home.data(), name);
        vec![("access.jsonl", rotated("access")), ("audit.jsonl", rotated("audit"))]
    }

    /// Returns the journal of gateway calls. Its lines contain arguments, so a deletion removes the lines.
    fn call_journal(&self) -> LinePaths {
        LinePaths::rotated(&self.home.data(), call_journal::FILE_NAME)
    }

    pub(super) fn own_lines(&self, paths: &LinePaths) -> io::Result<String> {
        let owner = self.owner.to_string();
        let mut own = String::new();
        for path in [&paths.old, &paths.current] {
            let text = match fs::read(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                bytes => String::from_utf8_lossy(&bytes?).into_owned(),
            };
            for line in text.lines().filter(|line| NamedLine::of(line, &owner).is_some()) {
                own.push_str(line);
                own.push('\n');
            }
        }
        Ok(own)
    }

    pub(super) fn is_in_lines(&self) -> io::Result<bool> {
        for (_, paths) in self.line_files() {
            if !self.own_lines(&paths)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the ids of the credentials of the principal: its keys, and the keys and tokens in its log lines. The
    /// logs also contain the keys that were revoked earlier.
    pub(super) fn credentials(&self) -> io::Result<BTreeSet<String>> {
        let owner = self.owner.to_string();
        let mut ids: BTreeSet<String> = self.key_ids()?.into_iter().collect();
        for (_, paths) in self.logs() {
            let lines = self.own_lines(&paths)?;
            let lines = lines.lines().filter_map(|line| NamedLine::of(line, &owner));
            ids.extend(lines.filter_map(|line| line.credential().map(str::to_owned)));
        }
        Ok(ids)
    }

    /// Replaces the name of the principal in logs and usage records, and removes its lines from the journal of calls.
    pub(super) fn rename_lines(&self, pseudonym: &str) -> io::Result<()> {
        let owner = self.owner.to_string();
        let renamed = |line: &str| match NamedLine::of(line, &owner) {
            Some(named) => named.renamed(line, &owner, pseudonym),
            None => line.to_owned(),
        };
        let others = |text: &str| {
            text.split_inclusive('\n').filter(|line| NamedLine::of(line, &owner).is_none()).collect()
        };
        line_file::rewrite(&self.call_journal(), others)?;
        let all = |text: &str| text.split_inclusive('\n').map(renamed).collect();
        self.line_files().iter().try_for_each(|(_, paths)| line_file::rewrite(paths, all))
    }
}

/// A line that names the principal.
struct NamedLine {
    line: Value,
    /// The scopes of a key of the principal, if the line is about one.
    scopes: Option<String>,
}

impl NamedLine {
    /// Parses a line; `None` if it does not name the owner.
    fn of(line: &str, owner: &str) -> Option<Self> {
        let quoted = json!(owner).to_string();
        if !line.contains(quoted.trim_matches('"')) {
            return None;
        }
        let line: Value = serde_json::from_str(line).ok()?;
        // The audit log describes a key by its owner and scopes. A subject can contain a space, and scopes cannot.
        let key = line["detail"].as_str().and_then(|detail| detail.rsplit_once(' '));
        let scopes = key.filter(|(named, _)| *named == owner).map(|(_, scopes)| scopes.to_owned());
        let is_caller = [&line["principal"], &line["event"]["principal"]].iter().any(|name| **name == *owner);
        (is_caller || scopes.is_some()).then_some(Self { line, scopes })
    }

    fn credential(&self) -> Option<&str> {
        if self.scopes.is_some() { self.line["target"].as_str() } else { self.line["key"].as_str() }
    }

    /// Replaces the owner in the text of the line, because readers expect its members in a fixed order.
    fn renamed(&self, text: &str, owner: &str, pseudonym: &str) -> String {
        let member = |name: &str, value: &str| format!("\"{name}\":{}", json!(value));
        let text = text.replace(&member("principal", owner), &member("principal", pseudonym));
        match &self.scopes {
            Some(scopes) => text.replace(
                &member("detail", &format!("{owner} {scopes}")),
                &member("detail", &format!("{pseudonym} {scopes}")),
            ),
            None => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_principal_is_replaced_only_in_its_own_log_lines() {
        let check = |line: Value, owner: &str, expected: Option<Value>| {
            let text = line.to_string();
            let renamed =
                NamedLine::of(&text, owner).map(|named| named.renamed(&text, owner, "a\"b/deleted-1"));
            let renamed = renamed.map(|text| serde_json::from_str::<Value>(&text).unwrap());
            assert_eq!(renamed, expected, "{line}");
        };
        let new = "a\"b/deleted-1";
        check(
            json!({"principal": "acme/anna", "at": 1}),
            "acme/anna",
            Some(json!({"principal": new, "at": 1})),
        );
        let event = |name: &str| json!({"event": {"type": "tool_finished", "principal": name}});
        check(event("acme/anna"), "acme/anna", Some(event(new)));
        check(event("a\"b/anna"), "a\"b/anna", Some(event(new)));
        check(event("acme/anna2"), "acme/anna", None);
        let key = |detail: &str| json!({"event": "key.created", "principal": null, "detail": detail});
        check(key("acme/anna api,admin"), "acme/anna", Some(key("a\"b/deleted-1 api,admin")));
        check(key("acme/anna smith api"), "acme/anna", None);
        check(json!({"text": "\"principal\":\"acme/anna\""}), "acme/anna", None);
    }
}
