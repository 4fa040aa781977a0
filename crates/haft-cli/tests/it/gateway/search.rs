//! Tests of `haft mcp serve --expose search`: meta tools instead of all definitions.

use serde_json::{Value, json};

use super::hostile::reported_until_the_end;
use super::{McpClient, configure, place, text};
use crate::lock::{serve as serve_tools, tool, tree};

const SEARCH: &[&str] = &["--expose", "search"];

#[test]
fn meta_tools_find_and_call_any_of_a_thousand_hidden_tools() {
    let place = place();
    configure(&place, &[("crm", "catalog", &["1000"])], "");
    for client in
        [McpClient::handshake(&place, SEARCH, json!({})), McpClient::stateless(&place, SEARCH, json!({}))]
    {
        let mut client = client;
        let listed = client.ask("tools/list", json!({}));
        assert!(listed.to_string().len() < 6_000, "{}", listed.to_string().len());
        assert_eq!(client.names(), ["tool_call", "tool_describe", "tool_output", "tool_search"]);
        let search = &listed["tools"].as_array().unwrap()[3];
        assert!(search["description"].as_str().unwrap().contains("crm: 1000 tools"), "{search}");
        let found = client.call("tool_search", json!({"query": "archive a shipment"}));
        assert!(text(&found).contains("crm__archive_shipment"), "{found}");
        let described = client.call("tool_describe", json!({"names": ["crm__archive_shipment"]}));
        let definitions: Value = serde_json::from_str(text(&described)).unwrap();
        assert_eq!(definitions[0]["inputSchema"]["required"], json!(["text"]), "{definitions}");
        let wrong = client.call("tool_call", json!({"name": "crm__archive_shipment", "arguments": {}}));
        assert!(wrong["isError"] == true && text(&wrong).contains("The schema of"), "{wrong}");
        let arguments = json!({"name": "crm__archive_shipment", "arguments": {"text": "hi"}});
        let called = client.call("tool_call", arguments);
        assert_ne!(called["isError"], true, "{called}");
        client.end();
    }
}

#[test]
fn rules_approvals_and_accounting_use_the_inner_tool_of_a_meta_call() {
    let place = place();
    let rules = r#", "policy": {"rules": [{"tool": "bash", "decision": "ask"}, {"tool": "up__fail", "decision": "deny"}]}"#;
    configure(&place, &[("up", "good", &[])], rules);
    let mut client = McpClient::handshake(&place, SEARCH, json!({"elicitation": {}}));
    let inner = json!({"name": "bash", "arguments": {"command": "echo approved"}});
    let id = client.begin("tools/call", json!({"name": "tool_call", "arguments": inner}));
    let question = client.wait_for("elicitation/create");
    assert!(question["params"]["message"].as_str().unwrap().contains("`bash`"), "{question}");
    let answer = json!({"action": "accept", "content": {"decision": "allow once"}});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
    let called = client.reply(id);
    assert_eq!(text(&called["result"]).trim(), "approved", "{called}");
    let denied = client.call("tool_call", json!({"name": "up__fail", "arguments": {}}));
    assert!(denied["isError"] == true && text(&denied).contains("deni"), "{denied}");
    let found = client.call("tool_search", json!({"query": "select:up__fail,up__echo"}));
    assert!(!text(&found).contains("up__fail") && text(&found).contains("up__echo"), "{found}");
    client.end();
    let stats = place.haft(&["stats", "--json"]).output().expect_code(0);
    assert!(stats.stdout.contains("\"bash\"") && !stats.stdout.contains("tool_call\""), "{}", stats.stdout);
}

#[test]
fn meta_tools_describe_and_call_only_the_selected_tools() {
    let place = place();
    configure(&place, &[("up", "good", &[]), ("other", "good", &[])], "");
    let mut client = McpClient::handshake(&place, &["--expose", "search", "--group", "up"], json!({}));
    let described = client.call("tool_describe", json!({"names": ["up__echo"]}));
    assert!(text(&described).contains("inputSchema"), "{described}");
    for name in ["other__echo", "bash"] {
        let described = client.call("tool_describe", json!({"names": ["up__echo", name]}));
        assert!(described["isError"] == true && text(&described).contains("there is no tool"), "{described}");
        let called = client.call("tool_call", json!({"name": name, "arguments": {"command": "true"}}));
        assert!(called["isError"] == true && text(&called).contains("not among the tools"), "{called}");
    }
}

#[test]
fn result_of_an_invalid_meta_tool_call_states_the_problem() {
    let place = place();
    configure(&place, &[], r#", "alwaysShow": ["read"]"#);
    let mut client = McpClient::handshake(&place, SEARCH, json!({}));
    assert!(client.names().contains(&"read".into()), "`alwaysShow` also applies to the gateway");
    let mut check = |tool: &str, arguments: Value, expected: &str| {
        let result = client.call(tool, arguments.clone());
        assert!(
            result["isError"] == true && text(&result).contains(expected),
            "{tool} {arguments}: {result}"
        );
    };
    check("tool_call", json!({"arguments": {}}), "`name` must be");
    check("tool_call", json!({"name": "read", "arguments": 7}), "`arguments` must be");
    check("tool_describe", json!({"names": "read"}), "must be an array");
    check("tool_describe", json!({"names": ["no_such_tool"]}), "there is no tool");
    check("tool_describe", json!({"names": vec!["read"; 21]}), "has 21 names; request at most 20");
    check("tool_search", json!({"query": 7}), "Error");
    let nested = json!({"name": "tool_call", "arguments": {"name": "current_date", "arguments": {}}});
    let date = client.call("tool_call", nested);
    assert_ne!(date["isError"], true, "{date}");
    assert_eq!(
        client.error("tools/call", json!({"name": "tool_call", "arguments": {"name": "nothing"}})),
        -32_602
    );
    client.end();
    let mut client = McpClient::handshake(&place, &[], json!({}));
    assert!(!client.names().contains(&"tool_call".into()));
    assert_eq!(
        client.error("tools/call", json!({"name": "tool_search", "arguments": {"query": "x"}})),
        -32_602
    );
}

#[test]
fn operator_learns_of_a_tool_that_has_the_name_of_a_search_tool() {
    let tree = tree();
    serve_tools(&tree, &[tool("tool_call", "Calls."), tool("add", "Adds.")]);
    let config: Value = serde_json::from_str(&tree.text("home/haft.json")).unwrap();
    for (naming, expected) in [("bare", 1), ("double", 0)] {
        let mut config = config.clone();
        config["naming"] = naming.into();
        tree.file("home/haft.json", &config.to_string());
        let mut client = McpClient::handshake(&tree, SEARCH, json!({}));
        assert_eq!(client.names().iter().filter(|name| *name == "tool_call").count(), 1);
        client.names();
        let reported = reported_until_the_end(client);
        let warning = "clients cannot call the tool `tool_call`";
        assert_eq!(reported.matches(warning).count(), expected, "{naming}: {reported}");
    }
}
