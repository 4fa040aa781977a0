//! Builds the environment of a confined command. The environment starts empty.

use std::ffi::{OsStr, OsString};

/// The variables that haft copies from its own environment if they are set. haft drops all others: a secret can have a
/// harmless name, so no pattern could tell which variables are safe.
const PASSED: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "LANGUAGE", "TZ"];

const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Builds the child's environment: the variables in the fixed list, all `LC_*` variables, the variables that the
/// operator named, and defaults for missing variables.
pub(crate) fn environment(
    ours: impl Iterator<Item = (OsString, OsString)>,
    extra: &[OsString],
) -> Vec<(OsString, OsString)> {
    let mut built: Vec<(OsString, OsString)> = ours.filter(|(name, _)| is_passed(name, extra)).collect();
    for (name, value) in [("PATH", PATH_DEFAULT), ("TERM", "dumb"), ("TMPDIR", "/tmp")] {
        if !built.iter().any(|(found, _)| found == name) {
            built.push((name.into(), value.into()));
        }
    }
    built.sort();
    built
}

fn is_passed(name: &OsStr, extra: &[OsString]) -> bool {
    let locale = name.as_encoded_bytes().starts_with(b"LC_");
    locale || PASSED.iter().any(|passed| name == *passed) || extra.iter().any(|named| name == named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ours: &[(&str, &str)], extra: &[&str], expected: &[(&str, &str)]) {
        let pairs = |list: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
            list.iter().map(|(name, value)| (name.into(), value.into())).collect()
        };
        let extra: Vec<OsString> = extra.iter().map(OsString::from).collect();
        assert_eq!(environment(pairs(ours).into_iter(), &extra), pairs(expected));
    }

    #[test]
    fn only_allowlisted_environment_variables_are_passed_to_commands() {
        check(
            &[
                ("PATH", "/b"),
                ("OPENAI_API_KEY", "k"),
                ("LC_ALL", "C"),
                ("BASH_ENV", "/x"),
                ("TERM", "xterm"),
            ],
            &[],
            &[("LC_ALL", "C"), ("PATH", "/b"), ("TERM", "dumb"), ("TMPDIR", "/tmp")],
        );
    }

    #[test]
    fn configured_environment_variables_are_passed_to_commands() {
        check(
            &[("RUST_LOG", "info"), ("TMPDIR", "/elsewhere")],
            &["RUST_LOG", "TMPDIR", "NOT_SET"],
            &[("PATH", PATH_DEFAULT), ("RUST_LOG", "info"), ("TERM", "dumb"), ("TMPDIR", "/elsewhere")],
        );
    }
}
