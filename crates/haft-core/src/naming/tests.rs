//! Tables and property tests for naming.

use proptest::prelude::*;

use super::*;

fn tool(written: &str) -> ToolIdentity {
    let (namespace, tool) = written.split_once('/').unwrap();
    let kind = if namespace == "builtin" { ProviderKind::Builtin } else { ProviderKind::Mcp };
    ToolIdentity { kind, namespace: Namespace::new(namespace).unwrap(), tool: ToolName::new(tool).unwrap() }
}

fn table(scheme: NamingScheme, tools: &[&str]) -> NameTable {
    NameTable::build(scheme, tools.iter().map(|written| tool(written)))
}

fn exposed(table: &NameTable) -> Vec<&str> {
    table.tools().iter().map(|tool| tool.exposed.as_str()).collect()
}

/// The resolution as text: `match namespace/tool`, or `? name name`.
fn answer(table: &NameTable, written: &str) -> String {
    match table.resolve(written) {
        NameResolution::Known { tool, matched } => {
            let how = match matched {
                NameMatch::Exact => "exact",
                NameMatch::Case => "case",
                NameMatch::Alias => "alias",
                NameMatch::Bare => "bare",
            };
            format!("{how} {}/{}", tool.identity.namespace, tool.identity.tool)
        }
        NameResolution::Bare { tools } => tools.iter().fold("bare".to_owned(), |text, tool| {
            format!("{text} {}/{}", tool.identity.namespace, tool.identity.tool)
        }),
        NameResolution::Unknown { nearest } => {
            nearest.iter().fold("?".to_owned(), |text, name| format!("{text} {name}"))
        }
    }
}

#[test]
fn naming_schemes_prefix_tools_but_not_builtins() {
    let check = |scheme: NamingScheme, expected: &[&str]| {
        assert_eq!(exposed(&table(scheme, &["builtin/bash", "git/log"])), expected);
    };
    check(NamingScheme::Double, &["bash", "git__log"]);
    check(NamingScheme::Claude, &["bash", "mcp__git__log"]);
    check(NamingScheme::Single, &["bash", "git_log"]);
    check(NamingScheme::Bare, &["bash", "log"]);
}

#[test]
fn colliding_names_get_number_suffixes_except_builtins() {
    let check = |scheme: NamingScheme, tools: &[&str], expected: &[&str]| {
        assert_eq!(exposed(&table(scheme, tools)), expected);
    };
    check(NamingScheme::Bare, &["a/read", "b/read", "builtin/read"], &["read_2", "read_3", "read"]);
    check(NamingScheme::Single, &["a/b_c", "a_b/c"], &["a_b_c", "a_b_c_2"]);
    check(NamingScheme::Bare, &["a/x", "b/x", "c/x_2"], &["x", "x_2", "x_2_2"]);
    let long = "x".repeat(64);
    let cut = format!("{}_2", "x".repeat(62));
    check(NamingScheme::Bare, &[&format!("a/{long}"), &format!("b/{long}")], &[&long, &cut]);
}

#[test]
fn names_resolve_by_exact_match_case_alias_or_bare_name() {
    let table =
        table(NamingScheme::Double, &["builtin/bash", "git/log", "hg/log", "fs/read_file", "Fs/read_file"]);
    let check = |written: &str, expected: &str| assert_eq!(answer(&table, written), expected, "{written}");
    check("bash", "exact builtin/bash");
    check("Bash", "case builtin/bash");
    check("GIT__LOG", "case git/log");
    check("mcp__git__log", "alias git/log");
    check("git_log", "alias git/log");
    check("fs__read_file", "exact fs/read_file");
    check("FS__read_file", "? Fs__read_file fs__read_file");
    check("log", "bare git/log hg/log");
    check("<|Log|>", "bare git/log hg/log");
    check("lgo", "? git__log hg__log");
    check("<|bash|>", "exact builtin/bash");
    check("<|start|>bash<|channel|>commentary", "exact builtin/bash");
    check(" bash<|end|>", "exact builtin/bash");
    check("bsah", "? bash");
    check("nothing-like-it", "?");
    check("", "?");
    check(&"x".repeat(1_000_000), "?");
}

#[test]
fn bare_name_shared_by_many_tools_resolves_to_none() {
    let tools: Vec<String> = (0..100).map(|number| format!("server{number}/search")).collect();
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    assert_eq!(
        answer(&table(NamingScheme::Double, &tools[..2]), "search"),
        "bare server0/search server1/search"
    );
    assert!(answer(&table(NamingScheme::Double, &tools), "search").starts_with("? server"));
}

#[test]
fn tools_keep_their_names_when_other_tools_are_added_or_removed() {
    let identities = |tools: &[&str]| tools.iter().map(|written| tool(written)).collect::<Vec<_>>();
    let table = table(NamingScheme::Bare, &["a/x", "b/x"]);
    assert_eq!(exposed(&table), ["x", "x_2"]);
    let table = table.rebuild(identities(&["b/x"]));
    assert_eq!(exposed(&table), ["x_2"], "the first one left");
    let table = table.rebuild(identities(&["c/x", "b/x"]));
    assert_eq!(exposed(&table), ["x_3", "x_2"], "no one gets the name of another");
    let table = table.rebuild(identities(&["c/x", "b/x", "a/x", "a/x"]));
    assert_eq!(exposed(&table), ["x_3", "x_2", "x", "x_4"], "who comes back has the old name");
}

#[test]
fn names_of_removed_tools_are_remembered_up_to_a_limit() {
    let identities = |from: usize| (from..from + 6_000).map(|number| tool(&format!("a/t{number:05}")));
    let table = NameTable::build(NamingScheme::Bare, identities(0)).rebuild(identities(6_000));
    assert_eq!(table.departed.len(), 6_000);
    let table = table.rebuild(identities(12_000));
    assert_eq!(table.departed.len(), DEPARTED_MAX);
    assert!(table.departed.iter().take(6_000).all(|(identity, _)| identity.tool.as_str() >= "t06000"));
}

fn any_identity() -> impl Strategy<Value = ToolIdentity> {
    let kinds = prop_oneof![Just(ProviderKind::Builtin), Just(ProviderKind::Mcp), Just(ProviderKind::Rest)];
    // A small alphabet makes collisions frequent.
    (kinds, "[aA_]{1,3}", "[aA_2]{1,4}|x{63,64}").prop_map(|(kind, namespace, tool)| ToolIdentity {
        kind,
        namespace: Namespace::new(&namespace).unwrap(),
        tool: ToolName::new(&tool).unwrap(),
    })
}

proptest! {
    #[test]
    fn exposed_names_are_unique_and_resolve_to_their_tool(
        scheme in prop::sample::select(NamingScheme::ALL.to_vec()),
        identities in prop::collection::vec(any_identity(), 0..40),
    ) {
        let table = NameTable::build(scheme, identities.clone());
        prop_assert_eq!(table.tools().len(), identities.len());
        for (tool, identity) in table.tools().iter().zip(&identities) {
            prop_assert_eq!(&tool.identity, identity);
            let found = table.resolve(tool.exposed.as_str());
            prop_assert_eq!(found, NameResolution::Known { tool, matched: NameMatch::Exact });
        }
    }

    #[test]
    fn rebuild_never_gives_a_tools_name_to_another_tool(
        scheme in prop::sample::select(NamingScheme::ALL.to_vec()),
        before in prop::collection::vec(any_identity(), 0..20),
        after in prop::collection::vec(any_identity(), 0..20),
    ) {
        let first = NameTable::build(scheme, before);
        let second = first.rebuild(after);
        let third = second.rebuild(first.tools().iter().map(|tool| tool.identity.clone()));
        prop_assert_eq!(first.tools(), third.tools());
        let names: std::collections::HashSet<_> = second.tools().iter().map(|tool| &tool.exposed).collect();
        prop_assert_eq!(names.len(), second.tools().len());
        for tool in second.tools() {
            let had = first.tools().iter().filter(|had| had.exposed == tool.exposed);
            prop_assert!(had.into_iter().all(|had| had.identity == tool.identity));
        }
    }

    #[test]
    fn builtins_keep_their_names(identities in prop::collection::vec(any_identity(), 0..20)) {
        let bash = tool("builtin/bash");
        let table = NameTable::build(NamingScheme::Bare, identities.into_iter().chain([tool("x/bash"), bash.clone()]));
        prop_assert_eq!(&table.tools().last().unwrap().exposed, &bash.tool);
    }

    #[test]
    fn resolving_any_name_never_panics(written in ".{0,80}") {
        table(NamingScheme::Double, &["builtin/bash", "git/log"]).resolve(&written);
    }
}
