//! Expands groups that name other groups into patterns.

use std::collections::BTreeMap;

use haft_core::glob::ToolGlob;

use super::glob::tool_glob;
use super::position::{child, item};
use super::read::nearest;

/// A group in the file: patterns, and names of other groups after `@`.
type RawGroups = BTreeMap<String, Vec<String>>;

/// The maximum nesting depth of groups.
const DEPTH_MAX: usize = 16;

/// The maximum number of patterns that all groups together may expand to.
const GLOBS_MAX: usize = 10_000;

/// The path of a key, and the error message for it.
type GroupError = (String, String);

/// Expands every group into its patterns.
pub(super) fn flatten(written: &RawGroups) -> Result<BTreeMap<String, Vec<ToolGlob>>, Vec<GroupError>> {
    let mut flat = GroupExpander { written, done: BTreeMap::new(), globs: 0, errors: Vec::new() };
    for name in written.keys() {
        flat.group(name, &mut Vec::new());
    }
    if flat.errors.is_empty() { Ok(flat.done) } else { Err(flat.errors) }
}

struct GroupExpander<'w> {
    written: &'w RawGroups,
    done: BTreeMap<String, Vec<ToolGlob>>,
    globs: usize,
    errors: Vec<GroupError>,
}

impl<'w> GroupExpander<'w> {
    /// Expands one group. `inside` lists the groups on the path to it. Treats a group with an error as empty, so that
    /// the error is reported once.
    fn group(&mut self, name: &'w str, inside: &mut Vec<&'w str>) {
        let Some(members) = self.written.get(name).filter(|_| !self.done.contains_key(name)) else { return };
        inside.push(name);
        let mut globs: Vec<ToolGlob> = Vec::new();
        for (index, member) in members.iter().enumerate() {
            match self.member(member, inside) {
                Ok(more) => more.into_iter().for_each(|glob| {
                    if !globs.contains(&glob) {
                        globs.push(glob);
                    }
                }),
                Err(message) => self.errors.push((item(&child("groups", name), index), message)),
            }
        }
        inside.pop();
        self.globs += globs.len();
        self.done.insert(name.to_owned(), globs);
    }

    fn member(&mut self, member: &'w str, inside: &mut Vec<&'w str>) -> Result<Vec<ToolGlob>, String> {
        if self.globs > GLOBS_MAX {
            return Err(format!("the tool groups have more than {GLOBS_MAX} patterns in total"));
        }
        let Some(name) = member.strip_prefix('@') else {
            return tool_glob(member).map(|glob| vec![glob]);
        };
        if let Some(from) = inside.iter().position(|group| *group == name) {
            return Err(format!(
                "the tool groups include each other in a cycle: {} ► {name}",
                inside[from..].join(" ► ")
            ));
        }
        if inside.len() >= DEPTH_MAX {
            return Err(format!("tool groups are nested more than {DEPTH_MAX} levels deep"));
        }
        if !self.written.contains_key(name) {
            let near = nearest(name, self.written.keys());
            let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(format!("there is no tool group `{name}`{hint}"));
        }
        self.group(name, inside);
        Ok(self.done.get(name).cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(groups: &[(&str, &[&str])]) -> RawGroups {
        let members = |list: &[&str]| list.iter().map(|&member| member.to_owned()).collect();
        groups.iter().map(|(name, list)| ((*name).to_owned(), members(list))).collect()
    }

    #[test]
    fn nested_groups_are_flattened_without_duplicates() {
        let groups = written(&[
            ("all", &["@web", "@files", "web_*"]),
            ("files", &["read"]),
            ("web", &["web_*", "curl"]),
        ]);
        let flat = flatten(&groups).unwrap();
        let all: Vec<String> = flat["all"].iter().map(ToString::to_string).collect();
        assert_eq!(all, ["web_*", "curl", "read"]);
    }

    #[test]
    fn tool_group_cycles_and_unknown_groups_are_reported_with_path() {
        let check = |groups: &[(&str, &[&str])], path: &str, expected: &str| {
            let errors = flatten(&written(groups)).unwrap_err();
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert_eq!(errors[0].0, path);
            assert!(errors[0].1.contains(expected), "{errors:?}");
        };
        check(&[("a", &["x", "@a"])], "groups.a[1]", "cycle: a ► a");
        check(&[("a", &["@b"]), ("b", &["@c"]), ("c", &["@b"])], "groups.c[0]", "cycle: b ► c ► b");
        check(&[("a", &["@none"])], "groups.a[0]", "no tool group `none`");
        check(&[("web", &["@wbe"])], "groups.web[0]", "no tool group `wbe`; did you mean `web`?");
    }

    #[test]
    fn group_depth_and_pattern_count_are_limited() {
        let chain = |length: usize| -> RawGroups {
            (0..length).map(|n| (format!("g{n:05}"), vec![format!("@g{:05}", n + 1)])).collect()
        };
        let mut deep = chain(2000);
        deep.insert("g02000".into(), vec!["x".into()]);
        assert!(flatten(&deep).unwrap_err()[0].1.contains("16 levels deep"));
        let hub: Vec<String> = (0..2000).map(|n| format!("t{n}")).collect();
        let mut wide: RawGroups = (0..2000).map(|n| (format!("w{n}"), vec!["@hub".to_owned()])).collect();
        wide.insert("hub".into(), hub);
        assert!(flatten(&wide).unwrap_err()[0].1.contains("10000 patterns"));
    }
}
