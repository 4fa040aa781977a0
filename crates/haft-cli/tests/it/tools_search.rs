//! `haft tools search`: queries from the command line and from standard input, and the operations of a large real API.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a helper that fails is a failed test")]

use std::fmt::Write as _;

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

/// Queries with the operations that answer them; see the comment in the file.
const QUERIES: &str = include_str!("../search/queries.txt");

/// The catalogs of about 1,000 tools that are searched, each made of the operations of real APIs.
const CATALOGS: [(&str, &[(&str, &str)]); 3] = [
    ("code", &[("github", "api.github.com")]),
    ("cluster and files", &[("kubernetes", "kubernetes.io"), ("box", "box.com")]),
    (
        "money, machines and meetings",
        &[("stripe", "stripe.com"), ("digitalocean", "digitalocean.com"), ("zoom", "zoom.us")],
    ),
];

/// The share of queries whose tool must be among the 20 names of one answer.
const RECALL_MIN_PERCENT: usize = 95;

struct RecallQuery {
    api: &'static str,
    expected: Vec<&'static str>,
    query: &'static str,
}

fn recall_queries() -> Vec<RecallQuery> {
    let lines = QUERIES.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &'static str| {
        let (left, query) = line.split_once(" | ").unwrap();
        let mut words = left.split(' ');
        RecallQuery { api: words.next().unwrap(), expected: words.collect(), query }
    };
    lines.map(read).collect()
}

/// Prints one line per catalog: the share of queries whose tool is first, among the first 5, 10 and 20.
#[test]
fn tools_of_large_real_apis_are_found_within_one_answer() {
    let queries = recall_queries();
    let mut table = String::new();
    let (mut found, mut missed) = (0, Vec::new());
    for (title, apis) in CATALOGS {
        let of = |(api, file): &(&'static str, &str)| {
            imported(file).into_iter().map(|tool| (*api, tool)).collect::<Vec<_>>()
        };
        let tools: Vec<(&str, ToolDefinition)> = apis.iter().flat_map(of).collect();
        assert!(tools.len() > 1_000, "{title}: {}", tools.len());
        let index = ToolSearchIndex::new(tools.iter().map(|(_, tool)| tool));
        let asked: Vec<&RecallQuery> =
            queries.iter().filter(|query| apis.iter().any(|(api, _)| *api == query.api)).collect();
        let mut within = [0; 4];
        for RecallQuery { api, expected, query } in &asked {
            let own = |tool: &ToolDefinition| {
                tool.name.as_str().strip_prefix("api_").unwrap_or_default().to_owned()
            };
            let answers = |of: &str, tool: &ToolDefinition| {
                of == *api && expected.iter().any(|name| same_words(&own(tool), name))
            };
            assert!(tools.iter().any(|(of, tool)| answers(of, tool)), "{api} {expected:?} is not imported");
            let hits = index.search(query, 20);
            let at = hits.iter().position(|hit| answers(tools[hit.tool].0, &tools[hit.tool].1));
            for (count, limit) in within.iter_mut().zip([1, 5, 10, 20]) {
                *count += usize::from(at.is_some_and(|at| at < limit));
            }
            found += usize::from(at.is_some());
            if at.is_none() {
                let names: Vec<&str> =
                    hits.iter().take(5).map(|hit| tools[hit.tool].1.name.as_str()).collect();
                missed.push(json!([query, expected, names]));
            }
        }
        let share = within.map(|count| format!("{:.2}", count as f64 / asked.len() as f64)).join(" / ");
        let _ = writeln!(table, "{title}: {} tools, {} queries: {share}", tools.len(), asked.len());
    }
    println!("{table}{missed:#?}");
    assert!(found * 100 >= queries.len() * RECALL_MIN_PERCENT, "{table}{missed:#?}");
}

/// Compares a tool name with an operation id, without separators: a tool name cannot hold all characters, and a long one
/// ends with a digest.
fn same_words(one: &str, other: &str) -> bool {
    let is_digest = |word: &str| word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let cut = one.rsplit_once('_').filter(|(_, last)| is_digest(last) && one.len() > 40);
    if let Some((beginning, _)) = cut {
        return other.starts_with(beginning);
    }
    let letters =
        |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    letters(one) == letters(other)
}
