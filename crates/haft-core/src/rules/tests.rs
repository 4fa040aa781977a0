//! Tables of rules, calls and the expected decisions.

use proptest::prelude::*;

use super::*;

/// Parses rules such as `deny bash: rm *`. They are separated by ` / `, and `default ask` may be among them.
fn rules(written: &str) -> PermissionRules {
    let mut rules = PermissionRules { rules: Vec::new(), default: PermissionDecision::Ask };
    for line in written.split(" / ") {
        let (decision, rest) = line.split_once(' ').unwrap();
        let word = if decision == "default" { rest } else { decision };
        let all = [PermissionDecision::Allow, PermissionDecision::Ask, PermissionDecision::Deny];
        let parsed = all.into_iter().find(|candidate| candidate.name() == word).unwrap();
        if decision == "default" {
            rules.default = parsed;
            continue;
        }
        let (tool, command) =
            rest.split_once(": ").map_or((rest, None), |(tool, command)| (tool, Some(command)));
        rules.rules.push(PermissionRule {
            tool: ToolGlob::new(tool).unwrap(),
            command: command.map(|command| CommandPattern::new(command).unwrap()),
            decision: parsed,
        });
    }
    rules
}

fn check(written: &str, line: &str, expected: &str) {
    let ruling = rules(written).decide("bash", Some(line));
    assert_eq!(ruling.decision.name(), expected, "{written}\n{line}\n{}", ruling.why);
}

#[test]
fn most_specific_rule_decides_and_ties_go_to_the_strictest() {
    let check = |written: &str, tool: &str, expected: &str, index: Option<usize>| {
        let ruling = rules(written).decide(tool, None);
        assert_eq!(
            (ruling.decision.name(), ruling.rule),
            (expected, index),
            "{written} {tool}: {}",
            ruling.why
        );
    };
    check("default allow", "read", "allow", None);
    check("default deny / allow read", "read", "allow", Some(0));
    check("allow git__* / deny git__push", "git__push", "deny", Some(1));
    check("deny git__* / allow git__log", "Git__Log", "allow", Some(1));
    check("deny * / allow git__*", "git__log", "allow", Some(1));
    check("allow read / ask read / deny read", "read", "deny", Some(2));
    check("ask read / allow read", "read", "ask", Some(0));
    check("allow bash: ls* / ask bash", "bash", "ask", Some(1));
}

#[test]
fn tool_is_admitted_if_a_rule_permits_at_least_one_call() {
    let check = |written: &str, expected: &str| {
        assert_eq!(rules(written).admit("bash").decision.name(), expected, "{written}");
    };
    check("default deny", "deny");
    check("allow bash", "allow");
    check("deny bash / allow bash: ls*", "ask");
    check("deny bash / deny bash: ls*", "deny");
    check("deny bash / allow read: ls*", "deny");
}

#[test]
fn strictest_decision_among_all_commands_of_a_line_applies() {
    let written = "default ask / allow bash: git log* / allow bash: ls* / ask bash: git * / deny bash: rm *";
    let check = |line: &str, expected: &str| check(written, line, expected);
    check("git log", "allow");
    check("git  'log' -n 3", "allow");
    check("git push", "ask");
    check("make", "ask");
    check("git log && ls -la | ls", "allow");
    check("git log && rm x", "deny");
    check("git log; echo $(rm x)", "deny");
    check("ls $(rm x)", "deny");
    check("if ls; then rm x; fi", "deny");
    check("", "ask");
}

#[test]
fn allow_rule_does_not_cover_redirections_assignments_or_expansions() {
    let written = "default ask / allow bash: git log* / allow bash: ls* / allow bash: cat *";
    let check = |line: &str, expected: &str| check(written, line, expected);
    check("git log > /etc/x", "ask");
    check("git log >> x", "ask");
    check("{ git log; } > x", "ask");
    check("git log &> x", "ask");
    check("git log > $X", "ask");
    check("git log 2>/dev/null", "allow");
    check("git log 2>&1", "allow");
    check("cat x < y", "allow");
    check("cat x < /dev/tcp/h/1", "ask");
    check("LD_PRELOAD=x git log", "ask");
    check("PATH=x; git log", "ask");
    check("env LD_PRELOAD=x git log", "ask");
    check("/tmp/git log", "ask");
    check("./ls", "ask");
    check("LS", "ask");
    check("ls $X", "ask");
    check("ls *.c", "ask");
    check("ls $(ls)", "ask");
    check("sudo ls", "ask");
    check("$X", "ask");
    check("for PATH in x; do git log; done", "ask");
    check("git -c alias.x='!rm' x", "ask");
    check("ls() { x; }; ls", "ask");
    check("alias ls=rm; ls", "ask");
    check("cat x | bash", "ask");
    check("cat 'unclosed", "ask");
}

#[test]
fn commands_hidden_by_expansion_or_interpreters_are_never_allowed() {
    let open = "default allow / allow bash / deny bash: rm *";
    let closed = "default deny / ask bash / allow bash: *";
    for line in [
        "$X y",
        "${X}m y",
        "{rm,-rf,/}",
        "r? x",
        "eval \"$X\"",
        "eval $(echo rm x)",
        "bash -c \"$X\"",
        "echo x | sh",
        "bash <<EOF\nrm\nEOF",
        "git -c alias.x='!rm' x",
        "python -c 'x'",
        "perl -e x",
        "ssh h rm x",
        "alias a=rm; a",
        "source x",
        ". x",
        "let 'a[$(rm x)]'",
        "x='$(rm y)'; echo ${x}",
        "find . $X rm",
        "xargs $X",
        "sudo $X",
        "echo 'rm",
        "echo $(rm",
        "$(printf rm) x",
        "`echo rm` x",
        "parallel rm ::: x",
        "env -S 'rm x'",
        "trap \"$X\" EXIT",
        "awk 'BEGIN{system(\"rm\")}'",
        "su -c 'rm x'",
        "echo ${x@P}",
        "cat <<EOF\n$(rm",
    ] {
        let decide = |written: &str| rules(written).decide("bash", Some(line)).decision;
        // `find . $X rm` runs `find`, and an unknown argument alone is not a reason to ask.
        assert!(decide(open) >= PermissionDecision::Ask || line.starts_with("find"), "{line}");
        assert!(decide(closed) >= PermissionDecision::Ask, "{line}");
    }
}

#[test]
fn deny_rule_applies_wherever_the_command_appears_in_a_line() {
    let written = "default allow / deny bash: rm * / ask bash: git push*";
    for line in [
        "rm x",
        "/bin/rm x",
        "../rm x",
        "RM x",
        "/BIN/RM x",
        "r\\m x",
        "'r'm x",
        "$'\\x72m' x",
        "A=1 rm x",
        "rm $X",
        "rm *",
        "a && rm x",
        "a | rm x",
        "a & rm x",
        "(rm x)",
        "echo $(rm x)",
        "echo `rm x`",
        "cat <(rm x)",
        "eval \"rm -rf /\"",
        "bash -c 'rm x'",
        "sh -c 'a; (rm x)'",
        "find . -exec rm {} \\;",
        "xargs rm",
        "fd -x rm",
        "fd --exec-batch=rm",
        "sudo rm x",
        "env A=1 rm x",
        "time rm x",
        "nohup rm x &",
        "exec rm x",
        "command rm x",
        "trap 'rm x' EXIT",
        "coproc rm x",
        "case x in x) rm x;; esac",
        "for i in $(rm x); do :; done",
        "[[ $(rm x) ]]",
        "echo $(( $(rm x) ))",
        "f() { rm x; }",
        "a\nrm x",
        "cat <<EOF\n$(rm x)\nEOF",
        "cat <<'EOF'\nx\nEOF\nrm x",
        "a=$(rm x)",
        "rm x > f",
        "echo \"${a:-$(rm x)}\"",
        "timeout 5 rm x",
        "busybox rm x",
        "while rm x; do :; done",
        "! rm x",
        "r\\\nm x",
    ] {
        check(written, line, "deny");
    }
    check(written, "# rm x", "allow");
    check(written, "echo a; ls", "allow");
    // These commands do not run `rm`, but the word alone is a reason to ask.
    for line in ["echo rm x", "echo 'rm x'", "cat <<'EOF'\n$(rm x)\nEOF", "echo \\$(rm x\\)"] {
        check(written, line, "ask");
    }
    check(written, "git push -f", "ask");
    check(written, "git $X", "ask");
    check(written, "echo $X", "allow");
}

#[test]
fn narrower_pattern_overrides_a_broader_one() {
    let written = "default ask / deny bash: rm * / allow bash: rm -i * / allow bash";
    check(written, "rm -i x", "allow");
    check(written, "rm x", "deny");
    check(written, "make", "allow");
    // The command may or may not be the exception, so the stricter decision applies.
    check(written, "rm $X", "deny");
    check(written, "rm -i $X", "ask");
    check("allow bash / deny *: rm *", "rm x", "deny");
    check("deny bash / allow bash: ls", "ls", "allow");
    check("deny bash / allow bash: ls", "ls x", "deny");
    check("deny bash / allow bash: ls", "ls 'x", "deny");
    check("allow bash", "ls 'x", "allow");
}

#[test]
fn explain_lists_each_command_with_its_matching_rule() {
    let rules = rules("default ask / allow bash: ls* / deny bash: rm *");
    let expected = "deny: `rm x` matches rule 1, `deny bash: rm *`\n  \
                    allow ls\n        `ls` matches rule 0, `allow bash: ls*`\n  \
                    deny  rm x\n        `rm x` matches rule 1, `deny bash: rm *`\n  \
                    ask   make > f\n        no rule matches, and the default is ask\n";
    assert_eq!(rules.explain("bash", Some("ls; rm x; make > f")), expected);
    let unread = "ask: haft cannot parse the command line: a single quote is not closed\n";
    assert_eq!(rules.explain("bash", Some("ls '")), unread);
    assert_eq!(rules.explain("read", None), "ask: no rule matches, and the default is ask\n");
}

/// Inserts a line into a template, with the quoting that the template needs.
fn put(place: &str, inner: &str) -> String {
    let escaped = |special: &[char]| {
        let escape = |c: char| if special.contains(&c) { format!("\\{c}") } else { c.to_string() };
        inner.chars().map(escape).collect::<String>()
    };
    match place {
        "bash -c '@'" | "eval '@'" => place.replace('@', &inner.replace('\'', "'\\''")),
        "eval \"@\"" => place.replace('@', &escaped(&['"', '\\', '$', '`'])),
        "`@`" => place.replace('@', &escaped(&['\\', '$', '`'])),
        _ => place.replace('@', inner),
    }
}

proptest! {
    #[test]
    fn explaining_any_line_never_panics(line in "\\PC{0,80}") {
        let rules = rules("default allow / deny bash: rm * / allow bash: ls*");
        rules.explain("bash", Some(&line));
    }

    /// For any syntax around a denied command, the rules do not allow the line.
    #[test]
    fn shell_syntax_around_a_denied_command_never_allows_it(
        prefix in proptest::sample::select(vec!["", "sudo ", "env ", "A=1 ", "/bin/"]),
        places in proptest::collection::vec(proptest::sample::select(vec![
            "@", "ls; @", "ls && @", "@ | ls", " ( @ )", "{ @; }", "ls $(@)", "ls \"$(@)\"", "x=$(@) ls", "ls <(@)",
            "if @; then ls; fi", "while ls; do @; done", "case x in x) @;; esac", "f() { @; }", "ls\n@", "@ > f", "[[ $(@) ]]", "ls $(( $(@) ))", "ls <<E\n$(@)\nE", "bash -c '@'", "eval '@'", "eval \"@\"", "`@`",
        ]), 0..6),
    ) {
        let line = places.into_iter().fold(format!("{prefix}rm x"), |inner, place| put(place, &inner));
        let rules = rules("default allow / allow bash: ls* / deny bash: rm* / allow bash");
        let ruling = rules.decide("bash", Some(&line));
        prop_assert!(ruling.decision >= PermissionDecision::Ask, "{line}: {ruling:?}");
    }
}
