//! Tables and property tests for naming.

use proptest::prelude::*;

use super::*;

fn tool(written: &str) -> ToolIdentity {
    let (namespace, tool) = written.split_once('/').unwrap();
    let kind = if namespace == "builtin" { ProviderKind::Builtin } else { ProviderKind::Mcp };
    ToolIdentity { kind, namespace: Namespace::new(namespace).unwrap(), tool: ToolName::new(tool).unwrap() }
}

fn table(scheme: NamingScheme, tools: &[&str]) -> NameTable {
    let identities: Vec<ToolIdentity> = tools.iter().map(|written| tool(written)).collect();
    NameTable::build(scheme, sources(&identities), identities)
}

/// Returns the providers of these tools, as if no others were configured.
fn sources(identities: &[ToolIdentity]) -> Vec<NamingSource> {
    let source = |ToolIdentity { kind, namespace, .. }: &ToolIdentity| NamingSource {
        kind: *kind,
        namespace: namespace.clone(),
    };
    identities.iter().map(source).collect()
}

/// Returns the exposed name with `#` in place of a digest.
fn masked(name: &str) -> String {
    let (stem, end) = name.rsplit_once('_').unwrap_or((name, ""));
    let is_digest = end.len() >= 8 && end.chars().all(|c| c.is_ascii_hexdigit());
    if is_digest { format!("{stem}_#") } else { name.to_owned() }
}

fn exposed(table: &NameTable) -> Vec<&str> {
    table.tools().iter().map(|tool| tool.exposed.as_str()).collect()
}

/// Returns the resolution as text: `match namespace/tool`, or `? name name`.
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
fn colliding_tool_names_get_a_digest_suffix_except_builtins() {
    let check = |scheme: NamingScheme, tools: &[&str], expected: &[&str]| {
        let table = table(scheme, tools);
        let found: Vec<String> = exposed(&table).into_iter().map(masked).collect();
        assert_eq!(found, expected, "{tools:?}");
    };
    check(NamingScheme::Bare, &["a/read", "builtin/read"], &["read_#", "read"]);
    check(NamingScheme::Bare, &["a/x", "b/x", "c/y"], &["x_#", "x_#", "y"]);
    // The longest namespace owns the name.
    check(NamingScheme::Single, &["a/b_c", "a_b/c"], &["a_b_c_#", "a_b_c"]);
    check(NamingScheme::Double, &["a/b__c", "a__b/c"], &["a__b__c_#", "a__b__c"]);
    check(NamingScheme::Double, &["a_/b", "a/_b"], &["a___b", "a___b_#"]);
    let long = "x".repeat(64);
    let cut = format!("{}_#", "x".repeat(55));
    check(NamingScheme::Bare, &[&format!("a/{long}"), &format!("b/{long}")], &[&cut, &cut]);
}

/// An MCP server named `rest` must not change the names of REST tools, and REST tools must not change its names.
#[test]
fn namespace_shared_by_two_provider_kinds_always_belongs_to_the_same_kind() {
    let server = tool("rest/count");
    let rest = ToolIdentity { kind: ProviderKind::Rest, ..server.clone() };
    let configured = sources(&[server.clone(), rest.clone()]);
    let name_of = |identities: &[&ToolIdentity], wanted: &ToolIdentity| {
        let listed = identities.iter().map(|identity| (*identity).clone());
        let table = NameTable::build(NamingScheme::Double, configured.clone(), listed);
        let found = table.tools().iter().find(|tool| tool.identity == *wanted).unwrap();
        found.exposed.to_string()
    };
    let suffixed = name_of(&[&server, &rest], &server);
    assert_eq!(masked(&suffixed), "rest__count_#");
    for listed in [vec![&server], vec![&server, &rest], vec![&rest, &server]] {
        assert_eq!(name_of(&listed, &server), suffixed, "{listed:?}");
    }
    for listed in [vec![&rest], vec![&server, &rest], vec![&rest, &server]] {
        assert_eq!(name_of(&listed, &rest), "rest__count", "{listed:?}");
    }
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
fn bare_name_shared_by_too_many_tools_is_unknown() {
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
    let after = |table: &NameTable, tools: &[&str]| {
        let identities: Vec<ToolIdentity> = tools.iter().map(|written| tool(written)).collect();
        table.rebuild(sources(&identities), identities)
    };
    let first = table(NamingScheme::Bare, &["a/x"]);
    assert_eq!(exposed(&first), ["x"]);
    let second = after(&first, &["b/x"]);
    let of_b = exposed(&second)[0].to_owned();
    assert_eq!(masked(&of_b), "x_#", "the plain name stays reserved for the removed tool");
    let third = after(&second, &["c/x", "b/x", "a/x", "a/x"]);
    assert_eq!(exposed(&third)[1..3], [of_b.as_str(), "x"]);
    assert_eq!(masked(exposed(&third)[0]), "x_#");
    assert_eq!(masked(exposed(&third)[3]), "x_#", "a tool that is listed twice has two names");
    assert_eq!(
        exposed(&table(NamingScheme::Bare, &["a/x", "b/x"]))[1],
        of_b,
        "the suffixed name is the same in every process"
    );
}

/// An unknown name is compared with every tool, so most tools must be ruled out without computing their distance.
#[test]
fn nearest_name_among_10_000_is_found_without_all_edit_distances() {
    let names: Vec<String> = (0..10_000).map(|number| format!("idle/tool_{number}")).collect();
    let table = table(NamingScheme::Double, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let time = |work: &dyn Fn()| {
        let once = || {
            let began = std::time::Instant::now();
            work();
            began.elapsed()
        };
        // Take the shortest of several measurements, because other programs may run at the same time.
        (0..5).map(|_| once()).min().unwrap()
    };
    let written = "search_web_page";
    let distances = time(&|| {
        for tool in table.tools() {
            std::hint::black_box(strsim::osa_distance(written, tool.exposed.as_str()));
        }
    });
    let nearest = time(&|| drop(std::hint::black_box(table.nearest(written))));
    assert!(nearest < distances / 2, "nearest name took {nearest:?}, all distances took {distances:?}");
}

#[test]
fn names_of_removed_tools_are_remembered_up_to_a_limit() {
    let identities = |from: usize| (from..from + 6_000).map(|number| tool(&format!("a/t{number:05}")));
    let table = NameTable::build(NamingScheme::Bare, [], identities(0)).rebuild([], identities(6_000));
    assert_eq!(table.departed.len(), 6_000);
    let table = table.rebuild([], identities(12_000));
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
        let table = NameTable::build(scheme, sources(&identities), identities.clone());
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
        let configured = sources(&[before.clone(), after.clone()].concat());
        let first = NameTable::build(scheme, configured.clone(), before);
        let second = first.rebuild(configured.clone(), after);
        let third = second.rebuild(configured, first.tools().iter().map(|tool| tool.identity.clone()));
        prop_assert_eq!(first.tools(), third.tools());
        let names: std::collections::HashSet<_> = second.tools().iter().map(|tool| &tool.exposed).collect();
        prop_assert_eq!(names.len(), second.tools().len());
        for tool in second.tools() {
            let had = first.tools().iter().filter(|had| had.exposed == tool.exposed);
            prop_assert!(had.into_iter().all(|had| had.identity == tool.identity));
        }
    }

    #[test]
    fn exposed_names_do_not_depend_on_the_order_of_tools(
        scheme in prop::sample::select(NamingScheme::ALL.to_vec()),
        mut identities in prop::collection::hash_set(any_identity(), 0..30)
            .prop_map(|identities| identities.into_iter().filter(|tool| tool.kind != ProviderKind::Builtin))
            .prop_map(Iterator::collect::<Vec<ToolIdentity>>),
        turn in any::<prop::sample::Index>(),
    ) {
        let configured = sources(&identities);
        let names = |identities: &[ToolIdentity]| {
            let table = NameTable::build(scheme, configured.clone(), identities.to_vec());
            table.tools().iter().map(|tool| (tool.identity.clone(), tool.exposed.clone())).collect::<HashMap<_, _>>()
        };
        let before = names(&identities);
        identities.reverse();
        if !identities.is_empty() {
            let at = turn.index(identities.len());
            identities.rotate_left(at);
        }
        prop_assert_eq!(before, names(&identities));
    }

    #[test]
    fn builtin_tools_keep_their_own_names(identities in prop::collection::vec(any_identity(), 0..20)) {
        let bash = tool("builtin/bash");
        let all: Vec<ToolIdentity> = identities.into_iter().chain([tool("x/bash"), bash.clone()]).collect();
        let table = NameTable::build(NamingScheme::Bare, sources(&all), all);
        prop_assert_eq!(&table.tools().last().unwrap().exposed, &bash.tool);
    }

    #[test]
    fn resolving_any_name_never_panics(written in ".{0,80}") {
        table(NamingScheme::Double, &["builtin/bash", "git/log"]).resolve(&written);
    }
}
