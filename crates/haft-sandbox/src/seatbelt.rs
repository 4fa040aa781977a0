//! Builds the macOS profile, as a pure function that is tested on every platform.

use std::path::{Path, PathBuf};

/// A profile in Apple's sandbox language, and its parameters. Paths are passed only as parameters: in the profile text,
/// a quote in a name would change the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatbeltProfile {
    pub text: String,
    /// The parameters for `sandbox-exec -D name=value`.
    pub parameters: Vec<(String, PathBuf)>,
}

/// The paths and settings from which the profile is built.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeatbeltRules {
    /// The writable paths; `None` if every path except `frozen` and `hidden` is writable.
    pub writable: Option<Vec<PathBuf>>,
    pub frozen: Vec<PathBuf>,
    pub hidden: Vec<PathBuf>,
    pub network: bool,
}

/// Builds the profile. Later rules have priority, so the rules that deny paths come after the rules that allow them.
pub fn seatbelt_profile(rules: &SeatbeltRules) -> SeatbeltProfile {
    let mut profile = SeatbeltWriter::default();
    profile.line("(version 1)\n(deny default)\n(allow process*)\n(allow sysctl-read)\n(allow mach-lookup)");
    profile.line("(allow signal (target same-sandbox))\n(allow file-read*)\n(allow file-ioctl)");
    match &rules.writable {
        None => profile.line("(allow file-write*)"),
        Some(roots) => roots.iter().for_each(|root| profile.rule("(allow file-write*", "WRITABLE", root)),
    }
    profile.line("(allow file-write-data (literal \"/dev/null\") (literal \"/dev/zero\"))");
    for path in &rules.frozen {
        profile.rule("(deny file-write*", "FROZEN", path);
    }
    for root in rules.writable.iter().flatten() {
        // A workspace below home is writable although home is not.
        if rules.frozen.iter().any(|frozen| root != frozen && root.starts_with(frozen)) {
            profile.rule("(allow file-write*", "AGAIN", root);
        }
    }
    for path in rules.frozen.iter().chain(&rules.hidden) {
        // Renaming a parent would move the protected path away from its rule.
        path.ancestors().skip(1).filter(|parent| *parent != Path::new("/")).for_each(|parent| {
            profile.literal("(deny file-write-unlink", "ANCESTOR", parent);
        });
    }
    for path in &rules.hidden {
        profile.rule("(deny file-read* file-write*", "HIDDEN", path);
    }
    for root in rules.writable.iter().flatten() {
        // A server's own cache stays accessible although all caches are hidden.
        if rules.hidden.iter().any(|hidden| root != hidden && root.starts_with(hidden)) {
            profile.rule("(allow file-read* file-write*", "OWN", root);
        }
    }
    if rules.network {
        profile.line("(allow network*)\n(allow system-socket)");
    }
    SeatbeltProfile { text: profile.text, parameters: profile.parameters }
}

#[derive(Default)]
struct SeatbeltWriter {
    text: String,
    parameters: Vec<(String, PathBuf)>,
}

impl SeatbeltWriter {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Adds a rule for the path itself and everything below it. With a rule for only the content, a command could still
    /// create the path itself with `mkdir`.
    fn rule(&mut self, head: &str, kind: &str, path: &Path) {
        let name = self.parameter(kind, path);
        self.line(&format!("{head} (literal (param \"{name}\")) (subpath (param \"{name}\")))"));
    }

    fn literal(&mut self, head: &str, kind: &str, path: &Path) {
        let name = self.parameter(kind, path);
        self.line(&format!("{head} (literal (param \"{name}\")))"));
    }

    fn parameter(&mut self, kind: &str, path: &Path) -> String {
        let name = format!("{kind}_{}", self.parameters.len());
        self.parameters.push((name.clone(), path.to_path_buf()));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> SeatbeltRules {
        SeatbeltRules {
            writable: Some(vec!["/w \") (allow default) (\"".into()]),
            frozen: vec!["/w/.git/hooks".into()],
            hidden: vec!["/Users/u/.haft/data".into()],
            network: false,
        }
    }

    #[test]
    fn seatbelt_profile_passes_paths_as_parameters() {
        let profile = seatbelt_profile(&rules());
        assert!(!profile.text.contains("allow default"), "{}", profile.text);
        assert!(profile.parameters.iter().any(|(_, path)| path == Path::new("/w \") (allow default) (\"")));
    }

    #[test]
    fn seatbelt_deny_rules_come_after_allow_rules() {
        let text = seatbelt_profile(&rules()).text;
        let at = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("{needle} in {text}"));
        assert!(text.starts_with("(version 1)\n(deny default)"));
        assert!(at("(allow file-write* (literal") < at("(deny file-write* "));
        assert!(at("(deny file-write* ") < at("(deny file-read* file-write*"));
        assert!(!text.contains("(allow network*"));
    }

    #[test]
    fn workspace_below_a_read_only_home_is_writable() {
        let home = SeatbeltRules {
            writable: Some(vec!["/h/workspace".into()]),
            frozen: vec!["/h".into()],
            ..SeatbeltRules::default()
        };
        let text = seatbelt_profile(&home).text;
        assert!(
            text.find("(deny file-write* ").unwrap()
                < text.find("(allow file-write* (literal (param \"AGAIN").unwrap()
        );
    }

    #[test]
    fn writable_cache_below_the_hidden_caches_is_accessible() {
        let home = SeatbeltRules {
            writable: Some(vec!["/h/cache/own".into()]),
            hidden: vec!["/h/cache".into()],
            ..SeatbeltRules::default()
        };
        let text = seatbelt_profile(&home).text;
        let denied = text.find("(deny file-read* file-write* (literal (param \"HIDDEN").unwrap();
        assert!(denied < text.find("(allow file-read* file-write* (literal (param \"OWN").unwrap());
    }

    #[test]
    fn parents_of_protected_paths_cannot_be_renamed() {
        let profile = seatbelt_profile(&rules());
        let ancestors: Vec<&Path> = profile
            .parameters
            .iter()
            .filter(|(name, _)| name.starts_with("ANCESTOR"))
            .map(|(_, path)| path.as_path())
            .collect();
        for parent in ["/w/.git", "/w", "/Users/u/.haft", "/Users/u", "/Users"] {
            assert!(ancestors.contains(&Path::new(parent)), "{parent} in {ancestors:?}");
        }
    }

    #[test]
    fn unrestricted_writes_still_exclude_denied_paths() {
        let open = SeatbeltRules { writable: None, network: true, ..rules() };
        let text = seatbelt_profile(&open).text;
        assert!(text.contains("(allow file-write*)\n") && text.contains("(allow network*)"));
        assert!(text.contains("(deny file-write* "));
    }
}
