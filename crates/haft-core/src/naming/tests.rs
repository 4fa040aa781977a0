//! Tables and properties of naming.

use proptest::prelude::*;

use super::*;

fn tool(written: &str) -> ToolIdentity {
    let (namespace, tool) = written.split_once('/').unwrap();
    let kind = if namespace == "builtin" { ProviderKind::Builtin } else { ProviderKind::Mcp };
    ToolIdentity { kind, namespace: Namespace::new(namespace).unwrap(), tool: ToolName::new(tool).unwrap() }
}

fn table(scheme: Scheme, tools: &[&str]) -> NameTable {
    NameTable::build(scheme, tools.iter().map(|written| tool(written)))
}

fn exposed(table: &NameTable) -> Vec<&str> {
    table.tools().iter().map(|tool| tool.exposed.as_str()).collect()
}

/// The answer as text: `how namespace/tool`, or `? name name`.
fn answer(table: &NameTable, written: &str) -> String {
    match table.resolve(written) {
        Resolution::Known { tool, matched } => {
            let how = match matched {
                Match::Exact => "exact",
                Match::Case => "case",
                Match::Alias => "alias",
            };
            format!("{how} {}/{}", tool.identity.namespace, tool.identity.tool)
        }
        Resolution::Unknown { nearest } => {
            nearest.iter().fold("?".to_owned(), |text, name| format!("{text} {name}"))
        }
    }
}

#[test]
fn schemes_name_tools_and_leave_builtins_bare() {
    let check = |scheme: Scheme, expected: &[&str]| {
        assert_eq!(exposed(&table(scheme, &["builtin/bash", "git/log"])), expected);
    };
    check(Scheme::Double, &["bash", "git__log"]);
    check(Scheme::Claude, &["bash", "mcp__git__log"]);
    check(Scheme::Single, &["bash", "git_log"]);
    check(Scheme::Bare, &["bash", "log"]);
}

#[test]
fn collisions_get_numbers_in_order_but_builtins_never() {
    let check = |scheme: Scheme, tools: &[&str], expected: &[&str]| {
        assert_eq!(exposed(&table(scheme, tools)), expected);
    };
    check(Scheme::Bare, &["a/read", "b/read", "builtin/read"], &["read_2", "read_3", "read"]);
    check(Scheme::Single, &["a/b_c", "a_b/c"], &["a_b_c", "a_b_c_2"]);
    check(Scheme::Bare, &["a/x", "b/x", "c/x_2"], &["x", "x_2", "x_2_2"]);
    let long = "x".repeat(64);
    let cut = format!("{}_2", "x".repeat(62));
    check(Scheme::Bare, &[&format!("a/{long}"), &format!("b/{long}")], &[&long, &cut]);
}

#[test]
fn written_names_are_resolved() {
    let table = table(Scheme::Double, &["builtin/bash", "git/log", "hg/log", "fs/read_file", "Fs/read_file"]);
    let check = |written: &str, expected: &str| assert_eq!(answer(&table, written), expected, "{written}");
    check("bash", "exact builtin/bash");
    check("Bash", "case builtin/bash");
    check("GIT__LOG", "case git/log");
    check("mcp__git__log", "alias git/log");
    check("git_log", "alias git/log");
    check("fs__read_file", "exact fs/read_file");
    check("FS__read_file", "? Fs__read_file fs__read_file");
    check("log", "? git__log hg__log");
    check("<|bash|>", "exact builtin/bash");
    check("<|start|>bash<|channel|>commentary", "exact builtin/bash");
    check(" bash<|end|>", "exact builtin/bash");
    check("bsah", "? bash");
    check("nothing-like-it", "?");
    check("", "?");
    check(&"x".repeat(1_000_000), "?");
}

#[test]
fn a_bare_name_is_an_alias_only_when_one_tool_has_it() {
    let table = table(Scheme::Claude, &["git/log", "git/blame", "hg/log"]);
    assert_eq!(answer(&table, "blame"), "alias git/blame");
    assert_eq!(answer(&table, "log"), "? mcp__git__log mcp__hg__log");
}

fn any_identity() -> impl Strategy<Value = ToolIdentity> {
    let kinds = prop_oneof![Just(ProviderKind::Builtin), Just(ProviderKind::Mcp), Just(ProviderKind::Rest)];
    // Few letters, so that collisions are the rule.
    (kinds, "[aA_]{1,3}", "[aA_2]{1,4}|x{63,64}").prop_map(|(kind, namespace, tool)| ToolIdentity {
        kind,
        namespace: Namespace::new(&namespace).unwrap(),
        tool: ToolName::new(&tool).unwrap(),
    })
}

proptest! {
    #[test]
    fn exposed_names_are_unique_and_lead_back(
        scheme in prop::sample::select(Scheme::ALL.to_vec()),
        identities in prop::collection::vec(any_identity(), 0..40),
    ) {
        let table = NameTable::build(scheme, identities.clone());
        prop_assert_eq!(table.tools().len(), identities.len());
        for (tool, identity) in table.tools().iter().zip(&identities) {
            prop_assert_eq!(&tool.identity, identity);
            let found = table.resolve(tool.exposed.as_str());
            prop_assert_eq!(found, Resolution::Known { tool, matched: Match::Exact });
        }
    }

    #[test]
    fn builtins_keep_their_names(identities in prop::collection::vec(any_identity(), 0..20)) {
        let bash = tool("builtin/bash");
        let table = NameTable::build(Scheme::Bare, identities.into_iter().chain([tool("x/bash"), bash.clone()]));
        prop_assert_eq!(&table.tools().last().unwrap().exposed, &bash.tool);
    }

    #[test]
    fn resolving_never_panics(written in ".{0,80}") {
        table(Scheme::Double, &["builtin/bash", "git/log"]).resolve(&written);
    }
}
