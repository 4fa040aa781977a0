use haft_core::tool::ToolDefinition;
use serde_json::json;

use super::*;

fn tool(name: &str, description: &str) -> ToolDefinition {
    ToolDefinition::new(name, description, json!({ "type": "object" }))
}

fn found(tools: &[ToolDefinition], query: &str, limit: usize) -> Vec<String> {
    let hits = ToolSearchIndex::new(tools).search(query, limit);
    hits.iter().map(|hit| tools[hit.tool].name.as_str().to_owned()).collect()
}

fn catalog() -> Vec<ToolDefinition> {
    vec![
        tool("github__create_issue", "Open an issue in a repository"),
        tool("github__list_issues", "List the issues of a repository"),
        tool("github__create_pull_request", "Propose a change"),
        tool("kube__get_config_map", "Read a map of settings"),
        tool("mail__send_message", "Send an email to a person"),
        tool("time__get_current_time", "The current time in a zone"),
    ]
}

#[test]
fn tool_search_returns_the_best_match_first() {
    let check = |query: &str, expected: &str| {
        assert_eq!(found(&catalog(), query, 1), [expected], "{query}");
    };
    check("create an issue", "github__create_issue");
    check("show all issues", "github__list_issues");
    check("configmap", "kube__get_config_map");
    check("pullrequest", "github__create_pull_request");
    check("what time is it", "time__get_current_time");
    check("write a mail", "mail__send_message");
    check("email a person", "mail__send_message");
}

#[test]
fn tool_whose_name_is_in_the_query_comes_first() {
    let mut tools = catalog();
    tools.push(tool("notes__get", "Nothing in common"));
    tools.push(tool("notes__get_issue_issue_issue", "issue issue issue list of issues"));
    assert_eq!(found(&tools, "call github__list_issues with the issue", 1), ["github__list_issues"]);
    assert_eq!(found(&tools, "GITHUB__CREATE_ISSUE", 1), ["github__create_issue"]);
    assert_eq!(found(&tools, "list_issues", 1), ["github__list_issues"]);
}

#[test]
fn query_without_a_known_word_finds_nothing() {
    for query in ["", "   ", "the of and", "zzzzqqq", "(.*)+[", "\u{0}\u{202e}"] {
        assert_eq!(found(&catalog(), query, 5), Vec::<String>::new(), "{query:?}");
    }
    assert_eq!(ToolSearchIndex::new(&[]).search("issue", 5), []);
}

#[test]
fn long_search_query_is_truncated() {
    let query = format!("{} create issue", "xyz ".repeat(QUERY_BYTES_MAX));
    assert_eq!(found(&catalog(), &query, 5), Vec::<String>::new());
    let query = format!("create issue {}", "ä".repeat(100_000));
    assert_eq!(found(&catalog(), &query, 1), ["github__create_issue"]);
}

#[test]
fn search_returns_at_most_limit_tools_in_a_stable_order() {
    let same: Vec<ToolDefinition> = (0..9).map(|n| tool(&format!("a__same_{n}"), "same")).collect();
    let hits = ToolSearchIndex::new(&same).search("same", 4);
    assert_eq!(hits.iter().map(|hit| hit.tool).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(ToolSearchIndex::new(&same).search("same", 0), []);
}

#[test]
fn parameters_are_searched_with_little_weight() {
    let schema = json!({ "type": "object", "properties": {
        "latitude": { "type": "number", "description": "Degrees north of the equator" },
        "stops": { "type": "array", "items": { "properties": { "harbour": {} } } },
    } });
    let tools = [tool("a__one", "Other"), ToolDefinition::new("b__two", "Weather", schema)];
    assert_eq!(found(&tools, "latitude", 5), ["b__two"]);
    assert_eq!(found(&tools, "equator", 5), ["b__two"]);
    assert_eq!(found(&tools, "harbour", 5), ["b__two"]);
}

#[test]
fn only_the_beginning_of_a_long_description_is_indexed() {
    let tools = [tool("a__big", &format!("first {} last", "filler ".repeat(50_000)))];
    assert_eq!(found(&tools, "first", 1), ["a__big"]);
    assert_eq!(found(&tools, "last", 1), Vec::<String>::new());
}

#[test]
fn rebuilt_search_index_finds_new_tools_and_not_removed_ones() {
    let before = catalog();
    let index = ToolSearchIndex::new(&before);
    let added = [tool("garden__water_plants", "Give water to plants")];
    let after: Vec<&ToolDefinition> = before[1..].iter().chain(&added).collect();
    let fresh = ToolSearchIndex::new(after.iter().copied());
    let renewed = index.renewed(after.iter().copied());
    assert_eq!(renewed.len(), after.len());
    for query in ["water the plants", "create an issue", "list issues", "configmap", "send mail"] {
        assert_eq!(renewed.search(query, 20), fresh.search(query, 20), "{query}");
    }
    assert_eq!(after[renewed.search("water", 1)[0].tool].name.as_str(), "garden__water_plants");
    assert_eq!(renewed.named("github__create_issue"), None);
}

#[test]
fn search_coverage_is_the_share_of_the_query_that_a_tool_matches() {
    let tools = catalog();
    let index = ToolSearchIndex::new(&tools);
    let best = |query: &str| index.search(query, 1)[0].coverage;
    assert!((best("list issues") - 1.0).abs() < 0.001);
    assert!(best("list zzqq xyzzy plugh issues") < 0.7);
    assert!((best("zzqq kube__get_config_map") - 1.0).abs() < 0.001);
}

#[test]
fn synonyms_in_one_query_are_treated_as_one_term() {
    let mut tools: Vec<ToolDefinition> =
        (0..40).map(|n| tool(&format!("kube__watch_item{n}_namespaced"), "Watch one item")).collect();
    tools.push(tool("box__get_users", "List the users"));
    tools.push(tool("kube__list_namespace", "All of them"));
    assert_eq!(found(&tools, "get a list of namespaces", 1), ["kube__list_namespace"]);
}

#[test]
fn words_shared_by_many_tool_names_have_little_weight() {
    let mut tools: Vec<ToolDefinition> =
        (0..40).map(|n| tool(&format!("kube__core_v1_kind{n}"), "One kind of object")).collect();
    tools.push(tool("kube__core_v1_pod", "Create it"));
    tools.push(tool("kube__pod_binding", "Create it"));
    assert_eq!(found(&tools, "create pod", 1), ["kube__core_v1_pod"]);
}

#[test]
fn digest_suffix_of_a_shortened_name_is_not_searched() {
    let long = "api__list_notifications_for_authenticated_u_4ca0abcd";
    assert_eq!(found(&[tool(long, "None")], "abcd", 1), Vec::<String>::new());
    assert_eq!(found(&[tool(long, "None")], "notifications", 1), [long]);
    assert_eq!(found(&[tool("api__list_deadbeef", "None")], "deadbeef", 1), ["api__list_deadbeef"]);
}
