//! `haft tools search`: queries from the command line and from standard input, and the operations of a large real API.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

use haft_core::tool::ToolDefinition;
use haft_engine::search::ToolSearchIndex;
use serde_json::{Value, json};

use super::call::here;
use super::schemas::imported;

#[test]
fn search_prints_the_best_match_first() {
    let place = here();
    let table = place.haft(&["tools", "search", "read", "a", "text", "file"]).output().expect_code(0).stdout;
    assert!(table.lines().nth(1).unwrap().starts_with("read "), "{table}");
    let found =
        place.haft(&["tools", "search", "--json", "--limit", "2", "BASH"]).output().expect_code(0).stdout;
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["tools"][0]["name"], "bash");
    assert!(
        found["tools"].as_array().unwrap().len() <= 2 && found["searched"].as_u64().unwrap() > 5,
        "{found}"
    );
}

#[test]
fn search_without_a_match_names_what_to_do() {
    let output = here().haft(&["tools", "search", "zzqq"]).output().expect_code(42);
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(
        output.stderr.contains("no tool matches `zzqq`") && output.stderr.contains("hint: "),
        "{output:?}"
    );
}

#[test]
fn query_lines_are_answered_in_order_and_bad_lines_get_an_error() {
    let input = [
        r#"{"id":1,"query":"bash","limit":1}"#,
        "",
        r#"{"id":{"a":[]},"query":"zzqq"}"#,
        "not json",
        r#"{"id":12345678901234567890123,"query":"read","limit":1}"#,
    ];
    let output =
        here().haft(&["tools", "search", "--stdin"]).stdin(input.join("\n")).output().expect_code(42);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines[0], r#"{"id":1,"names":["bash"]}"#);
    assert_eq!(lines[1], r#"{"id":{"a":[]},"names":[]}"#);
    let bad: Value = serde_json::from_str(lines[2]).unwrap();
    assert!(bad["id"].is_null() && bad["error"].as_str().unwrap().contains("\"query\""), "{bad}");
    assert_eq!(lines[3], r#"{"id":12345678901234567890123,"names":["read"]}"#);
    assert_eq!(lines.len(), 4);
}

/// Each query with an operation of the GitHub API that answers it. The queries are written as a user would ask.
const GITHUB: [(&str, &str); 12] = [
    ("create an issue", "issues_create"),
    ("open a pull request", "pulls_create"),
    ("merge a pull request", "pulls_merge"),
    ("who starred this repository", "activity_list-stargazers-for-repo"),
    ("download an artifact of a workflow run", "actions_download-artifact"),
    ("re-run failed jobs", "actions_re-run-workflow-failed-jobs"),
    ("add labels to an issue", "issues_add-labels"),
    ("delete a branch protection rule", "repos_delete-branch-protection"),
    ("list commits on a branch", "repos_list-commits"),
    ("create a release", "repos_create-release"),
    ("block a user from the organization", "orgs_block-user"),
    ("render markdown", "markdown_render"),
];

#[test]
fn operations_of_a_large_api_are_found_within_one_answer() {
    let tools: Vec<ToolDefinition> = imported("api.github.com");
    assert!(tools.len() > 1_000, "{}", tools.len());
    let index = ToolSearchIndex::new(&tools);
    let missed: Vec<Value> = GITHUB
        .iter()
        .filter_map(|(query, expected)| {
            let names: Vec<&str> =
                index.search(query, 20).iter().map(|hit| tools[hit.tool].name.as_str()).collect();
            (!names.iter().any(|name| name.strip_prefix("api_") == Some(*expected)))
                .then(|| json!([query, expected, names]))
        })
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}
