//! Tests of the second check after the shell parser: denied words outside of the commands that were parsed.

use super::*;

fn denying(patterns: &[&str]) -> PermissionRules {
    let rule = |pattern: &&str| PermissionRule {
        tool: ToolGlob::new("bash").unwrap(),
        command: Some(CommandPattern::new(pattern).unwrap()),
        decision: PermissionDecision::Deny,
    };
    PermissionRules { rules: patterns.iter().map(rule).collect(), default: PermissionDecision::Allow }
}

fn decision(rules: &PermissionRules, line: &str) -> &'static str {
    rules.decide("bash", Some(line)).decision.name()
}

#[test]
fn denied_word_outside_the_parsed_commands_needs_approval() {
    let rules = denying(&["rm *"]);
    for line in [
        "newwrapper rm x",
        "newwrapper --run='rm x'",
        "newwrapper -xrm",
        "newwrapper -x'rm x'",
        "newwrapper /bin/rm x",
        "newwrapper RM x",
        "newwrapper $'\\x72m' x",
        "newwrapper 'a\\nrm x'",
        "newwrapper \"r\"'m' x",
        "X='rm y' newwrapper",
        "newwrapper <<< 'rm x'",
        "newwrapper <<'E'\nrm x\nE",
        "for i in rm; do newwrapper; done",
        "case rm in a) newwrapper;; esac",
        "a=(rm x)",
        "[[ rm = x ]]",
        "sudo newwrapper rm x",
        "bash -c 'newwrapper rm x'",
        "find . -name rm -exec ls {} \\;",
        "echo rm x > f",
        "newwrapper 'r\\m x'",
        "newwrapper \"r''m x\"",
        "newwrapper --run 'r\"m\" x'",
        "newwrapper <<< 'r\\m x'",
        "X='/bin/r\\m y' newwrapper",
    ] {
        assert_eq!(decision(&rules, line), "ask", "{line}");
    }
    for line in ["newwrapper --rm x", "docker run --rm x", "ls form rm.txt x-rm rm-x _rm", "# rm x", "ls"] {
        assert_eq!(decision(&rules, line), "allow", "{line}");
    }
}

#[test]
fn mention_check_ignores_commands_that_a_rule_already_decided() {
    let mut rules = denying(&["rm *"]);
    rules.rules.extend(
        denying(&["rm -i *"])
            .rules
            .into_iter()
            .map(|rule| PermissionRule { decision: PermissionDecision::Allow, ..rule }),
    );
    rules.rules.extend(
        denying(&["git rm *"])
            .rules
            .into_iter()
            .map(|rule| PermissionRule { decision: PermissionDecision::Allow, ..rule }),
    );
    let check = |line: &str, expected: &str| assert_eq!(decision(&rules, line), expected, "{line}");
    check("rm -i x", "allow");
    check("sudo rm -i x", "allow");
    check("bash -c 'rm -i x; ls'", "allow");
    check("git rm x", "allow");
    check("git rm x; newwrapper rm y", "ask");
    check("rm -i x; newwrapper rm y", "ask");
    check("rm -i rm", "allow");
    check("rm x", "deny");
}

#[test]
fn mention_check_requires_every_word_of_a_deny_pattern() {
    let rules = denying(&["git push*"]);
    let check = |line: &str, expected: &str| assert_eq!(decision(&rules, line), expected, "{line}");
    check("git status", "allow");
    check("newwrapper git status", "allow");
    check("newwrapper git push -f", "ask");
    check("newwrapper 'git push'", "ask");
    check("echo pushed", "allow");
    check("git push", "deny");
    assert_eq!(decision(&denying(&["* --force"]), "newwrapper x"), "allow");
}

/// Ordinary commands from everyday work.
const ORDINARY: &str = include_str!("ordinary.txt");

/// The ordinary commands for which the rules ask although the commands do no harm.
const ASKED: [&str; 12] = [
    "echo 'to clean up, run rm -r build'",
    "which rm",
    "man rm",
    "git commit -m 'rm the old parser'",
    "git rm --cached notes.txt",
    "git config user.name Ada",
    "npm rm left-pad",
    "docker rm web",
    "docker compose rm -f web",
    "kubectl exec web -- ls /bin/rm",
    "rsync -avz -e 'ssh -p 22' dist/ host:www",
    "grep -rn 'rm -rf' scripts",
];

#[test]
fn only_the_listed_ordinary_commands_are_false_positives() {
    let rules = denying(&["rm *", "dd *", "mkfs*", "shutdown*", "git push --force*"]);
    let lines: Vec<_> = ORDINARY.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 200);
    let asked: Vec<_> = lines.into_iter().filter(|line| decision(&rules, line) != "allow").collect();
    assert_eq!(asked, ASKED);
}
