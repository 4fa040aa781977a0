//! Tests of key limits for the agents that MCP clients call, with the real binary.

use std::thread;

use haft_model_server::{ModelServer, ResponsePace, Script, ScriptStep, ScriptUsage};
use haft_testkit::{TestTree, TestUser, eventually};
use serde_json::{Value, json};

use super::serve::stop;
use super::serve_workspaces::{WorkspaceServer, command};

const AGENT: &str = "---\ndescription: Answers.\nmodels: openai/m\ntools: []\n---\nYou answer.\n";

/// The usage of each model reply. With the price of one dollar per million tokens, a reply costs one dollar.
const USAGE: ScriptUsage =
    ScriptUsage { input: 900_000, output: 100_000, cache_read: 0, cache_write: 0, reasoning: 0 };

/// The time until the model replies to a request with the text `slow`, in milliseconds.
const SLOW_MS: u64 = 3_000;

/// The words of a command that serves the gateway.
type ServeWords<'a> = &'a [&'a str];

const SERVERS: [ServeWords<'static>; 2] =
    [&["serve", "--address", "127.0.0.1:0"], &["mcp", "serve", "--http", "127.0.0.1:0"]];

fn start(words: ServeWords<'_>) -> WorkspaceServer {
    let tree = TestTree::new(TestUser::Ourselves);
    let price = json!({"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0});
    let models = json!({"default": "openai/m", "settings": {"openai/m": {"price": price}}});
    tree.directory("home/agents");
    tree.file("home/haft.json", &json!({ "models": models }).to_string());
    tree.file("home/agents/worker.md", AGENT);
    let pace = ResponsePace { first_byte_milliseconds: SLOW_MS, ..ResponsePace::default() };
    let reply = || ScriptStep::text("done").using(USAGE);
    let script = Script::of([reply()]).about("slow", [reply().at_pace(pace)]);
    let model = ModelServer::start(script).unwrap();
    let (child, address) = super::serve::listening(command(&tree, &model, words));
    WorkspaceServer { tree, child, address, model }
}

fn limited_key(server: &WorkspaceServer, limit: &[&str]) -> String {
    let words = ["keys", "create", "limited", "--scope", "api"];
    server.tree.haft(&[&words, limit].concat()).output().expect_code(0).stdout.trim().to_owned()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

/// Returns the seconds after which the error of a refused call tells the client to try again.
#[track_caller]
fn wait_of(refused: &Value, limit: &str) -> u64 {
    assert_eq!(refused["isError"], true, "{refused}");
    let text = text(refused);
    assert!(text.contains(limit), "{text}");
    let seconds = text.split("try again in ").nth(1).and_then(|rest| rest.split(' ').next());
    seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn agent_calls_over_mcp_are_refused_at_the_token_and_cost_limits_of_the_key() {
    for words in SERVERS {
        let server = start(words);
        let tokens = limited_key(&server, &["--tokens-per-minute", "500000"]);
        let cost = limited_key(&server, &["--usd-per-month", "1"]);
        for key in [&tokens, &cost] {
            assert_eq!(text(&server.call_agent(key, "first")), "done", "{words:?}");
        }
        let wait = wait_of(&server.call_agent(&tokens, "second"), "limit of tokens per minute");
        assert!((1..=61).contains(&wait), "{wait}");
        let wait = wait_of(&server.call_agent(&cost, "second"), "cost limit for this month");
        assert!((1..=31 * 86_400).contains(&wait), "{wait}");
        assert_eq!(server.model.requests().len(), 2, "a refused call sends no model request");
        let other = limited_key(&server, &[]);
        assert_eq!(text(&server.call_agent(&other, "third")), "done", "other keys are not affected");
        stop(server.child);
    }
}

#[test]
fn agent_calls_over_mcp_count_as_concurrent_responses_of_the_key() {
    for words in SERVERS {
        let server = start(words);
        let key = limited_key(&server, &["--concurrent-responses", "1"]);
        thread::scope(|scope| {
            let slow = scope.spawn(|| server.call_agent(&key, "slow"));
            eventually("the slow run asks the model", || server.model.requests().len() == 1);
            let refused = server.call_agent(&key, "second");
            assert_eq!(wait_of(&refused, "limit of concurrent responses"), 5);
            if words[0] == "serve" {
                let refused = server.post(&key, &json!({"model": "worker", "input": "third"}));
                assert!(refused.head.starts_with("HTTP/1.1 429"), "{}", refused.body);
            }
            assert_eq!(text(&slow.join().unwrap()), "done");
        });
        assert_eq!(text(&server.call_agent(&key, "fourth")), "done", "the ended run frees its place");
        stop(server.child);
    }
}
