//! Tests of `haft tools search`: queries from the command line and from standard input, and the operations of a large
//! real API.
#![allow(clippy::cast_precision_loss, reason = "the numbers are small")]

use std::fmt::Write as _;

use haft_model_server::{ScriptPart, ScriptStep};
use serde_json::{Value, json};

use super::call::here;
use super::run::{haft, server};
use super::schemas::description_of;
use super::tool_search::tokens;

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
fn search_without_a_match_prints_a_hint() {
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

/// Another program can compare its ranking with haft's: only the tools of the given file are searched.
#[test]
fn stdin_queries_search_only_the_servers_of_the_given_config_file() {
    let place = here();
    let own = place.misbehaving_server("good", &[]);
    place.file("home/haft.json", &format!("{{\"mcpServers\": {{\"own\": {{{own}}}}}}}"));
    let foreign = place.misbehaving_server("catalog", &["100"]);
    let file =
        place.file("outside/foreign.json", &format!("{{\"mcpServers\": {{\"shop\": {{{foreign}}}}}}}"));
    let input = [
        r#"{"id":1,"query":"create an invoice","limit":2}"#,
        r#"{"id":"b","query":"shop__merge_ticket","limit":1}"#,
        r#"{"id":3,"query":"echo bash read a text file","limit":1000}"#,
        r#"{"id":4,"query":"zzqq"}"#,
    ];
    let words = ["tools", "search", "--json", "--stdin", "--mcp-config", file.to_str().unwrap()];
    let output = place.haft(&words).stdin(input.join("\n")).output().expect_code(0);
    let answers: Vec<Value> = output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<Value> = answers.iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [json!(1), json!("b"), json!(3), json!(4)]);
    let names = |at: usize| answers[at]["names"].as_array().unwrap();
    assert_eq!((&names(0)[0], names(0).len()), (&json!("shop__create_invoice"), 2));
    assert_eq!(*names(1), [json!("shop__merge_ticket")]);
    assert!(names(2).iter().all(|name| name.as_str().unwrap().starts_with("shop__")), "{}", answers[2]);
    assert_eq!(output.stdout.lines().last(), Some(r#"{"id":4,"names":[]}"#));
}

/// Queries with the operations that answer them; see the comments in the files. The ranking was tuned with the first
/// two files only; the others were measured afterwards.
const QUERIES: &str = include_str!("../search/queries.txt");
const TUNING: &str = include_str!("../search/tuning.txt");
const HELD_OUT: &str = include_str!("../search/held_out.txt");
const FRESH: &str = include_str!("../search/fresh.txt");

/// The catalogs of about 1,000 tools that are searched. Each consists of the operations of real APIs.
const CATALOGS: [&[(&str, &str)]; 3] = [
    &[("github", "api.github.com")],
    &[("kubernetes", "kubernetes.io"), ("box", "box.com")],
    &[("stripe", "stripe.com"), ("digitalocean", "digitalocean.com"), ("zoom", "zoom.us")],
];

/// The minimum percentage of queries for which a single search answer contains the right tool.
const RECALL_PERCENT_MIN: usize = 95;
const TUNING_PERCENT_MIN: usize = 91;
const HELD_OUT_PERCENT_MIN: usize = 94;
const FRESH_PERCENT_MIN: usize = 95;

/// The maximum number of tokens of an answer.
const ANSWER_TOKENS_MAX: u64 = 820;

/// The maximum number of calls in one reply that a run makes.
const SEARCHES_PER_TURN: usize = 10;

struct RecallQuery {
    api: &'static str,
    expected: Vec<&'static str>,
    query: &'static str,
}

impl RecallQuery {
    fn read(line: &'static str) -> Self {
        let mut parts = line.split(" | ");
        let mut words = parts.next().unwrap().split(' ');
        let query = parts.next().unwrap();
        Self { api: words.next().unwrap(), expected: words.collect(), query }
    }

    /// Returns the position of the tool among the names of an answer.
    fn position(&self, answer: &str) -> Option<usize> {
        let prefix = format!("rest__{}_", self.api);
        let is_outside = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-');
        let mut names: Vec<&str> =
            answer.split(is_outside).filter(|word| word.starts_with("rest__")).collect();
        names.dedup();
        names.iter().position(|name| {
            let own = name.strip_prefix(prefix.as_str());
            own.is_some_and(|own| self.expected.iter().any(|expected| same_words(own, expected)))
        })
    }
}

/// Makes the searches in a run with these APIs, and returns the answers that the model got.
fn answers(apis: &[(&str, &str)], queries: &[RecallQuery]) -> Vec<String> {
    let place = here();
    for (api, file) in apis {
        let file = description_of(file);
        let words = ["rest", "add", api, file.to_str().unwrap(), "--base-url", "https://api.example.com"];
        place.haft(&words).output().expect_code(0);
    }
    let search = |query: &RecallQuery| ScriptPart::call("tool_search", json!({ "query": query.query }));
    let turns = queries.chunks(SEARCHES_PER_TURN);
    let steps = turns.map(|turn| ScriptStep::say(turn.iter().map(search)));
    let model_server = server(steps.chain([ScriptStep::text("Done.")]));
    haft(&place, &model_server, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
    let last = model_server.requests().pop().unwrap();
    let results =
        last.body["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

/// Returns one line per catalog: the share of queries whose tool is first, among the first 5, 10, and in the answer.
fn check_recall(file: &'static str, percent_min: usize) -> String {
    let (mut table, mut missed, mut found, mut all) = (String::new(), Vec::new(), 0, 0);
    for apis in CATALOGS {
        let lines = file.lines().filter(|line| !line.starts_with('#')).map(RecallQuery::read);
        let queries: Vec<RecallQuery> =
            lines.filter(|query| apis.iter().any(|(api, _)| *api == query.api)).collect();
        let (mut within, mut most_tokens) = ([0; 4], 0);
        let answers = answers(apis, &queries);
        assert_eq!(answers.len(), queries.len());
        for (query, answer) in queries.iter().zip(&answers) {
            most_tokens = tokens(answer).max(most_tokens);
            let at = query.position(answer);
            for (count, limit) in within.iter_mut().zip([1, 5, 10, usize::MAX]) {
                *count += usize::from(at.is_some_and(|at| at < limit));
            }
            if at.is_none() {
                missed.push(query.query);
            }
        }
        assert!(most_tokens <= ANSWER_TOKENS_MAX, "an answer has {most_tokens} tokens");
        let share = within.map(|count| format!("{:.2}", count as f64 / queries.len() as f64)).join(" / ");
        let names: Vec<&str> = apis.iter().map(|(api, _)| *api).collect();
        let _ = writeln!(
            table,
            "{}: {} queries: {share}; at most {most_tokens} tokens",
            names.join(", "),
            queries.len()
        );
        (found, all) = (found + within[3], all + queries.len());
    }
    let _ = write!(table, "{found} of {all}; missed: {missed:#?}");
    assert!(found * 100 >= all * percent_min, "{table}");
    table
}

#[test]
fn tools_of_large_real_apis_are_found_in_the_first_answer() {
    println!("{}", check_recall(QUERIES, RECALL_PERCENT_MIN));
}

#[test]
fn queries_from_user_issues_find_their_tools_in_the_first_answer() {
    println!("{}", check_recall(TUNING, TUNING_PERCENT_MIN));
}

#[test]
fn held_out_queries_find_their_tools_in_the_first_answer() {
    println!("{}", check_recall(HELD_OUT, HELD_OUT_PERCENT_MIN));
    println!("{}", check_recall(FRESH, FRESH_PERCENT_MIN));
}

/// Compares a tool name with an operation id, ignoring separators: a tool name cannot contain all characters, and a
/// long one ends with a digest.
fn same_words(one: &str, other: &str) -> bool {
    let letters =
        |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let is_digest = |word: &str| word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    match one.rsplit_once('_').filter(|(_, last)| is_digest(last) && one.len() > 40) {
        Some((beginning, _)) => letters(other).starts_with(&letters(beginning)),
        None => letters(one) == letters(other),
    }
}
