//! Tables of grants and calls, with the calls that each grant covers.

use serde_json::json;

use super::*;
use crate::approval::ApprovalId;
use crate::glob::ToolGlob;
use crate::name::{Namespace, ToolName};
use crate::position::RunPosition;
use crate::provider::ProviderKind;
use crate::rules::{CommandPattern, PermissionRule};
use crate::settings::mode::SandboxMode;
use crate::settings::sandbox::ResourceAccess;

const NOW_MS: u64 = 1_000;

fn rule(written: &str) -> PermissionRule {
    let (decision, rest) = written.split_once(' ').unwrap();
    let (tool, command) = rest.split_once(": ").map_or((rest, None), |(tool, command)| (tool, Some(command)));
    let all = [PermissionDecision::Allow, PermissionDecision::Ask, PermissionDecision::Deny];
    PermissionRule {
        tool: ToolGlob::new(tool).unwrap(),
        command: command.map(|command| CommandPattern::new(command).unwrap()),
        decision: all.into_iter().find(|candidate| candidate.name() == decision).unwrap(),
    }
}

fn rules(default: PermissionDecision, written: &[&str]) -> PermissionRules {
    PermissionRules { rules: written.iter().map(|text| rule(text)).collect(), default }
}

fn binding() -> GrantBinding {
    GrantBinding {
        owner: GrantOwner::of(&Principal::new("acme", "anna", "key-1")),
        target: GrantTarget {
            workspace: "/w".into(),
            tool: ToolIdentity {
                kind: ProviderKind::Builtin,
                namespace: Namespace::new("builtin").unwrap(),
                tool: ToolName::new("bash").unwrap(),
            },
            definition: Digest::of_text("definition"),
        },
        confinement: SandboxBinding { mode: SandboxMode::Network, network: ResourceAccess::Allow },
    }
}

fn decision() -> GrantDecision {
    GrantDecision { by: "terminal".into(), at_ms: 1 }
}

fn exact(line: &str) -> GrantScope {
    GrantScope::Exact { digest: Digest::of_text(line), description: line.into() }
}

fn prefix(words: &str) -> GrantScope {
    GrantScope::CommandPrefix(words.split(' ').map(str::to_owned).collect())
}

fn grant(scope: GrantScope) -> Grant {
    Grant::new(&binding(), scope, decision())
}

/// Returns true if the grants cover this line under these rules.
fn covers(grants: &[Grant], rules: &PermissionRules, line: &str) -> bool {
    with_call(rules, line, &binding(), |call| covering(grants, call, NOW_MS).is_some())
}

fn with_call<T>(
    rules: &PermissionRules,
    line: &str,
    binding: &GrantBinding,
    check: impl FnOnce(&AskedCall<'_>) -> T,
) -> T {
    let ruling = rules.decide("bash", Some(line));
    let digest = Digest::of_text(line);
    check(&AskedCall { binding, digest, exposed: "bash", line: Some(line), rules, ruling: &ruling })
}

#[test]
fn grant_covers_only_calls_with_its_binding_or_a_narrower_sandbox() {
    let rules = rules(PermissionDecision::Allow, &["ask bash: git *"]);
    let with = |change: &dyn Fn(&mut GrantBinding)| {
        let mut changed = binding();
        change(&mut changed);
        changed
    };
    let table: [(&str, GrantBinding, bool); 13] = [
        ("nothing", binding(), true),
        ("tenant", with(&|binding| binding.owner.tenant = "other".into()), false),
        ("subject", with(&|binding| binding.owner.subject = "bert".into()), false),
        ("workspace", with(&|binding| binding.target.workspace = "/v".into()), false),
        ("workspace below", with(&|binding| binding.target.workspace = "/w/x".into()), false),
        ("kind", with(&|binding| binding.target.tool.kind = ProviderKind::Mcp), false),
        ("namespace", with(&|b| b.target.tool.namespace = Namespace::new("other").unwrap()), false),
        ("tool", with(&|binding| binding.target.tool.tool = ToolName::new("zsh").unwrap()), false),
        ("definition", with(&|binding| binding.target.definition = Digest::of_text("new")), false),
        ("wider mode", with(&|binding| binding.confinement.mode = SandboxMode::Full), false),
        ("narrower mode", with(&|binding| binding.confinement.mode = SandboxMode::Workspace), true),
        ("no network", with(&|binding| binding.confinement.network = ResourceAccess::Deny), true),
        ("narrowest", with(&|binding| binding.confinement = SandboxBinding::NARROWEST), true),
    ];
    for scope in [exact("git status"), prefix("git status"), GrantScope::Rule("ask bash: git *".into())] {
        let grant = grant(scope);
        for (part, binding, expected) in &table {
            let covered = with_call(&rules, "git status", binding, |call| grant.covers(call, NOW_MS));
            assert_eq!(covered, *expected, "{part}: {grant:?}");
        }
        let offline = with(&|binding| binding.confinement.network = ResourceAccess::Deny);
        let grant = Grant::new(&offline, grant.scope.clone(), decision());
        let covered = with_call(&rules, "git status", &binding(), |call| grant.covers(call, NOW_MS));
        assert!(!covered, "a grant without network covers no call with network: {grant:?}");
    }
}

#[test]
fn expired_grant_covers_no_call() {
    let rules = rules(PermissionDecision::Ask, &[]);
    for (expires_ms, expected) in
        [(None, true), (Some(NOW_MS + 1), true), (Some(NOW_MS), false), (Some(0), false)]
    {
        let grant = Grant { expires_ms, ..grant(exact("make")) };
        assert_eq!(covers(&[grant], &rules, "make"), expected, "{expires_ms:?}");
    }
}

#[test]
fn grant_covers_neither_denied_nor_already_allowed_calls() {
    for decision in [PermissionDecision::Allow, PermissionDecision::Deny] {
        assert!(!covers(&[grant(exact("make"))], &rules(decision, &[]), "make"), "{decision:?}");
    }
}

#[test]
fn each_grant_scope_covers_only_matching_calls() {
    let rules = rules(
        PermissionDecision::Ask,
        &["ask bash: git push*", "ask bash: npm *", "deny bash: rm *", "allow bash: ls*"],
    );
    let check = |scope: &GrantScope, line: &str, expected: bool| {
        assert_eq!(covers(&[grant(scope.clone())], &rules, line), expected, "{scope:?} {line}");
    };
    let pushing = exact("git push");
    check(&pushing, "git push", true);
    check(&pushing, "git push -f", false);
    let by_rule = GrantScope::Rule("ask bash: git push*".into());
    check(&by_rule, "git push -f", true);
    check(&by_rule, "git push && ls", true);
    check(&by_rule, "git push && npm x", false);
    check(&by_rule, "git push && make", false);
    check(&by_rule, "git push && ls > x", false);
    check(&by_rule, "git push && $X", false);
    check(&by_rule, "git push && rm x", false);
    check(&GrantScope::Rule("ask bash: git *".into()), "git push", false);
}

#[test]
fn prefix_grant_covers_a_line_only_if_it_covers_every_command() {
    let rules = rules(PermissionDecision::Allow, &["ask bash: git *", "ask bash: npm *", "deny bash: rm *"]);
    let status = [grant(prefix("git status"))];
    let check = |line: &str, expected: bool| assert_eq!(covers(&status, &rules, line), expected, "{line}");
    check("git status", true);
    check("git status -s", true);
    check("git  'status' --short", true);
    check("git status && git status", true);
    check("git status | cat", true);
    check("cd src && git status", true);
    check("echo $(git status)", true);
    check("git status 2>/dev/null", true);
    check("git push --force", false);
    check("git statusx", false);
    check("git -C x status", false);
    check("git", false);
    check("git status && git push --force", false);
    check("git status; npm x", false);
    check("git status && rm x", false);
    check("git status $(git push)", false);
    check("git status | bash", false);
    check("git status > file", false);
    check("git status $X", false);
    check("git status *", false);
    check("$X status", false);
    check("git $X", false);
    check("GIT_PAGER=x git status", false);
    check("PATH=x; git status", false);
    check("export PATH=x; git status", false);
    check("env PATH=x git status", false);
    check("for PATH in x; do git status; done", false);
    check("hash -p x git; git status", false);
    check("/tmp/git status", false);
    check("GIT status", false);
    check("bash -c 'git push'", false);
    check("git -c alias.status='!x' status", false);
    check("git status 'unclosed", false);
    check("", false);
}

#[test]
fn several_grants_together_cover_a_line_of_several_commands() {
    let rules = rules(PermissionDecision::Allow, &["ask bash: git *", "ask bash: npm *"]);
    let (status, npm) = (grant(prefix("git status")), grant(GrantScope::Rule("ask bash: npm *".into())));
    let test = grant(prefix("npm test"));
    assert!(covers(&[status.clone(), npm.clone()], &rules, "git status && npm i"));
    assert!(covers(&[status.clone(), test.clone()], &rules, "git status && npm test"));
    assert!(!covers(&[status, test], &rules, "git status && npm i"));
    assert!(!covers(&[npm], &rules, "git status && npm i"));
}

#[test]
fn prefix_grant_covers_no_other_command_if_every_command_needs_approval() {
    let status = [grant(prefix("git status"))];
    for rules in [rules(PermissionDecision::Allow, &["ask bash"]), rules(PermissionDecision::Ask, &[])] {
        assert!(covers(&status, &rules, "git status && git status -s"));
        assert!(!covers(&status, &rules, "git status && ls"));
        assert!(!covers(&status, &rules, "ls"));
    }
    // The operator requires approval for a tool that the rules allow, so no command is exempt.
    let rules = rules(PermissionDecision::Allow, &["allow bash: ls*"]);
    let ruling = Ruling { decision: PermissionDecision::Ask, ..rules.decide("bash", Some("ls")) };
    for (line, expected) in [("git status", true), ("git status && ls", false), ("ls", false)] {
        let binding = binding();
        let digest = Digest::of_text(line);
        let call = AskedCall {
            binding: &binding,
            digest,
            exposed: "bash",
            line: Some(line),
            rules: &rules,
            ruling: &ruling,
        };
        assert_eq!(covering(&status, &call, NOW_MS).is_some(), expected, "{line}");
    }
}

#[test]
fn offered_prefix_always_covers_the_requested_call() {
    let rules = rules(PermissionDecision::Allow, &["ask bash: *", "allow bash: cat*"]);
    let check = |line: &str, expected: Option<&str>| {
        let offered = with_call(&rules, line, &binding(), offered_prefix);
        assert_eq!(offered.as_ref().map(|words| words.join(" ")).as_deref(), expected, "{line}");
        if let Some(words) = offered {
            assert!(covers(&[grant(GrantScope::CommandPrefix(words))], &rules, line), "{line}");
        }
    };
    check("git status", Some("git status"));
    check("git status -s && git status", Some("git status"));
    check("git status | cat", Some("git status"));
    check("ls -la", Some("ls"));
    check("ls src/x", Some("ls"));
    check("npm run build", Some("npm run"));
    check("apt-get install x", Some("apt-get install"));
    check("tar xf a.tar", Some("tar xf"));
    check("git -C x status", Some("git"));
    check("git status && git push", None);
    check("./configure", None);
    check("/bin/ls", None);
    check("python3 x.py", None);
    check("bash script.sh", None);
    check("sudo ls", None);
    check("X=1 make", None);
    check("make > log", None);
    check("make $X", None);
    check("make 'unclosed", None);
    let ruling = rules.decide("read", None);
    let (binding, digest) = (binding(), Digest::of_text(""));
    let read =
        AskedCall { binding: &binding, digest, exposed: "read", line: None, rules: &rules, ruling: &ruling };
    assert_eq!(offered_prefix(&read), None, "a tool without a command line has no prefix");
}

fn request(arguments: Value) -> ApprovalRequest {
    ApprovalRequest {
        id: ApprovalId::parse(&"1".repeat(32)).unwrap(),
        place: RunPosition::default(),
        tool: "bash".into(),
        arguments: serde_json::from_value(arguments).unwrap(),
        workspace: "/w".into(),
        digest: Digest::of_text("call"),
        rules: vec!["ask bash: git *".into(), "ask bash: npm *".into()],
        prefix: Some(vec!["git".into(), "status".into()]),
        why: String::new(),
    }
}

#[test]
fn each_approval_answer_creates_the_matching_grant_scope() {
    let asked = request(json!({"command": "git status\n"}));
    let granted = |answer| GrantScope::of_answer(answer, &asked);
    for answer in [ApprovalAnswer::AllowOnce, ApprovalAnswer::Deny, ApprovalAnswer::Later] {
        assert_eq!(granted(answer), [], "{answer:?}");
    }
    let texts = |answer| granted(answer).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(ApprovalAnswer::AllowExact), ["exactly git status\\n"]);
    assert_eq!(texts(ApprovalAnswer::AllowPrefix), ["git status *"]);
    assert_eq!(texts(ApprovalAnswer::AllowRule), ["rule ask bash: git *", "rule ask bash: npm *"]);
    let without = ApprovalRequest { prefix: None, rules: Vec::new(), ..asked };
    assert_eq!(GrantScope::of_answer(ApprovalAnswer::AllowPrefix, &without), []);
    let long = request(json!({"a": "x".repeat(1_000), "b": 1}));
    let [GrantScope::Exact { description, .. }] = &*GrantScope::of_answer(ApprovalAnswer::AllowExact, &long)
    else {
        panic!("expected exactly one scope")
    };
    assert!(description.starts_with("a: xxx") && description.len() == DESCRIPTION_CHARS_MAX);
}

#[test]
fn grant_id_depends_on_binding_and_scope_but_not_on_decision() {
    let status = grant(prefix("git status"));
    let later = GrantDecision { by: "caller".into(), at_ms: 9 };
    assert_eq!(Grant::new(&binding(), prefix("git status"), later).id, status.id);
    assert_eq!(GrantId::parse(&status.id.to_string()), Some(status.id));
    assert_eq!(GrantId::parse("+0000000000000000000000000000001"), None);
    let mut others = vec![
        grant(prefix("git")),
        grant(GrantScope::CommandPrefix(vec!["git status".into()])),
        grant(GrantScope::Rule("git status".into())),
        Grant::new(
            &GrantBinding { confinement: SandboxBinding::WIDEST, ..binding() },
            prefix("git status"),
            decision(),
        ),
        Grant::imported(binding().owner, Digest::of_text("x"), decision()),
        grant(exact("x")),
    ];
    others.push(status);
    let distinct: std::collections::HashSet<_> = others.iter().map(|grant| grant.id).collect();
    assert_eq!(distinct.len(), others.len());
}

#[test]
fn imported_grant_covers_calls_only_in_the_narrowest_sandbox() {
    let rules = rules(PermissionDecision::Ask, &[]);
    let imported = Grant::imported(binding().owner, Digest::of_text("make"), decision());
    let narrow = GrantBinding { confinement: SandboxBinding::NARROWEST, ..binding() };
    let covered = |binding: &GrantBinding, line: &str| {
        with_call(&rules, line, binding, |call| imported.covers(call, NOW_MS))
    };
    assert!(covered(&narrow, "make"));
    assert!(!covered(&narrow, "make x"));
    assert!(!covered(&binding(), "make"), "an imported grant covers no call with network");
    let other =
        GrantBinding { owner: GrantOwner { subject: "bert".into(), ..narrow.owner.clone() }, ..narrow };
    assert!(!covered(&other, "make"));
}
