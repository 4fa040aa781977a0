//! Tests of resources and prompts of upstream servers, and of result fields that haft does not define.

use haft_testkit::{TestTree, eventually};
use serde_json::{Value, json};

use super::http::{GatewayServer, initialize, request};
use super::{McpClient, configure, place, text};

/// The member of `_meta` in which a request without a session asks for log messages.
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

fn offering(servers: &[&str], keys: &str) -> TestTree {
    let place = place();
    let all: Vec<(&str, &str, &[&str])> =
        servers.iter().map(|name| (*name, "offers", &[] as &[&str])).collect();
    configure(&place, &all, keys);
    place
}

fn clients(place: &TestTree, capabilities: &Value) -> [McpClient; 2] {
    [
        McpClient::handshake(place, &[], capabilities.clone()),
        McpClient::stateless(place, &[], capabilities.clone()),
    ]
}

#[test]
fn resources_are_listed_and_read_under_the_name_of_their_server() {
    let place = offering(&["one", "two"], "");
    for mut client in clients(&place, &json!({})) {
        let listed = client.ask("resources/list", json!({}));
        let uris: Vec<&str> = listed["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["uri"].as_str().unwrap())
            .collect();
        assert_eq!(
            uris,
            ["haft:one/note://1", "haft:one/note://2", "haft:two/note://1", "haft:two/note://2"],
            "{listed}"
        );
        assert_eq!(listed["resources"][0]["vendor"], json!([1]));
        let templates = client.ask("resources/templates/list", json!({}));
        assert_eq!(
            templates["resourceTemplates"][1]["uriTemplate"], "haft:two/note://{number}",
            "{templates}"
        );
        let read = client.ask("resources/read", json!({"uri": "haft:two/note://2"}));
        let contents = &read["contents"][0];
        assert_eq!(
            (&contents["uri"], &contents["text"]),
            (&json!("haft:two/note://2"), &json!("read note://2"))
        );
        assert_eq!(contents["vendor"], 3);
        let is_modern = client.meta.is_some();
        assert_eq!(read["cacheScope"] == "private" && read["resultType"] == "complete", is_modern, "{read}");
        let missing = if is_modern { -32602 } else { -32002 };
        for uri in ["haft:one/note://none", "haft:three/note://1", "note://1", "haft-output:session-x/y"] {
            assert_eq!(client.error("resources/read", json!({"uri": uri})), missing, "{uri}");
        }
    }
}

#[test]
fn prompts_are_listed_and_filled_under_the_name_of_their_server() {
    let place = offering(&["one", "two"], "");
    for mut client in clients(&place, &json!({})) {
        let listed = client.ask("prompts/list", json!({}));
        let prompt = &listed["prompts"][1];
        assert_eq!((&prompt["name"], &prompt["vendor"]), (&json!("two__greet"), &json!(4)), "{listed}");
        let got = client.ask("prompts/get", json!({"name": "two__greet", "arguments": {"who": "Ada"}}));
        assert_eq!(got["messages"][0]["content"]["text"], "Greet Ada", "{got}");
        assert_eq!(got["messages"][1]["content"]["resource"]["uri"], "haft:two/note://1", "{got}");
        assert_eq!(got["vendor"], 5);
        assert_eq!(client.error("prompts/get", json!({"name": "three__greet"})), -32602);
        let reference = json!({"type": "ref/prompt", "name": "one__greet"});
        let asked = json!({"ref": reference, "argument": {"name": "who", "value": "A"}});
        let completed = client.ask("completion/complete", asked);
        let sent: Value =
            serde_json::from_str(completed["completion"]["values"][0].as_str().unwrap()).unwrap();
        assert_eq!(sent, json!({"type": "ref/prompt", "name": "greet"}));
    }
}

#[test]
fn bare_naming_passes_names_and_uris_unchanged() {
    let place = offering(&["one"], r#", "naming": "bare""#);
    let mut client = McpClient::handshake(&place, &[], json!({}));
    assert_eq!(client.ask("resources/list", json!({}))["resources"][0]["uri"], "note://1");
    assert_eq!(
        client.ask("resources/read", json!({"uri": "note://7"}))["contents"][0]["text"],
        "read note://7"
    );
    assert_eq!(client.ask("prompts/list", json!({}))["prompts"][0]["name"], "greet");
    let called = client.call("echo", json!({}));
    assert_eq!(called["content"][0]["uri"], "note://1", "{called}");
}

#[test]
fn server_without_offered_tools_offers_no_resources() {
    let place = offering(&["one", "two"], "");
    let mut client = McpClient::handshake(&place, &["--group", "one"], json!({}));
    let listed = client.ask("resources/list", json!({}));
    assert_eq!(listed["resources"].as_array().unwrap().len(), 2, "{listed}");
    assert_eq!(client.error("resources/read", json!({"uri": "haft:two/note://1"})), -32002);
    assert_eq!(client.error("prompts/get", json!({"name": "two__greet"})), -32602);
}

#[test]
fn tool_results_keep_images_links_structured_content_and_unknown_members() {
    let place = offering(&["up"], "");
    for mut client in clients(&place, &json!({})) {
        let called = client.call("up__echo", json!({}));
        let link = &called["content"][0];
        assert_eq!((&link["uri"], &link["vendor"]), (&json!("haft:up/note://1"), &json!(2)), "{called}");
        assert_eq!(called["structuredContent"], json!({"a": 1.0}));
        assert_eq!(called["_meta"], json!({"v": 1}));
        let failed = client.call("up__fail", json!({}));
        assert_eq!((&failed["isError"], &failed["vendor"]), (&json!(true), &json!(6)), "{failed}");
        assert_eq!((text(&failed), &failed["content"][1]["data"]), ("broken", &json!("AAAA")), "{failed}");
        assert_eq!(failed["content"][2]["uri"], "haft:up/note://1", "{failed}");
    }
}

#[test]
fn result_with_a_small_blob_is_passed_unchanged() {
    let place = offering(&["up"], "");
    for mut client in clients(&place, &json!({})) {
        let called = client.call("up__echo", json!({"text": "blob"}));
        assert_eq!(called["vendor"], 7, "{called}");
        assert_eq!(called["content"][0]["uri"], "haft:up/note://1");
        let font = json!({"uri": "haft:up/note://font", "mimeType": "font/ttf", "blob": "AAAA", "vendor": 8});
        assert_eq!(called["content"][1], json!({"type": "resource", "resource": font}));
    }
}

#[test]
fn links_of_a_shortened_result_stay_links_that_can_be_read() {
    for policy in ["", r#", "tools": {"up__echo": {"output": "truncate"}}"#] {
        let place = offering(&["up"], &format!(r#", "maxToolResponseBytes": 2000{policy}"#));
        for mut client in clients(&place, &json!({})) {
            let called = client.call("up__echo", json!({"text": "long"}));
            let content = called["content"].as_array().unwrap();
            assert!(text(&called).len() < 3000, "{called}");
            let link = content.iter().find(|block| block["type"] == "resource_link");
            let link = link.unwrap_or_else(|| panic!("{called}"));
            let expected = json!({
                "type": "resource_link", "uri": "haft:up/note://1", "name": "one", "title": "First",
                "description": "the first note", "mimeType": "text/plain",
            });
            assert_eq!(*link, expected);
            let read = client.ask("resources/read", json!({"uri": link["uri"]}));
            assert_eq!(read["contents"][0]["text"], "read note://1");
        }
    }
}

#[test]
fn cached_results_are_as_complete_as_fresh_ones() {
    let place = place();
    let entry = place.misbehaving_server("offers", &[]);
    let server = format!(r#"{{{entry}, "effects": {{"*": "read-only"}}, "toolsCache": {{"echo": "1h"}}}}"#);
    place.file("home/haft.json", &format!(r#"{{"mcpServers": {{"up": {server}}}}}"#));
    // `haft call` needs only the content, so its cached output does not answer the gateway's first call.
    place.haft(&["call", "up__echo", r#"{"text": "blob"}"#]).output().expect_code(0);
    let fresh: Vec<Value> = clients(&place, &json!({}))
        .into_iter()
        .map(|mut client| {
            let called = client.call("up__echo", json!({"text": "blob"}));
            assert_eq!(called["content"][1]["resource"]["vendor"], 8, "{called}");
            assert_eq!(client.call("up__echo", json!({"text": "blob"})), called);
            assert_eq!(client.end(), 0);
            called
        })
        .collect();
    let [mut handshake, mut stateless] = clients(&place, &json!({}));
    let cached =
        [&mut handshake, &mut stateless].map(|client| client.call("up__echo", json!({"text": "blob"})));
    assert_eq!(cached, fresh[..]);
    let journal = std::fs::read_to_string(place.path("home/data/gateway-calls.jsonl")).unwrap();
    assert_eq!(journal.matches("\"begun\"").count(), 1, "one call reached the server: {journal}");
    // The stored output also answers callers that need only the content.
    let called = place.haft(&["call", "--json", "up__echo", r#"{"text": "blob"}"#]).output().expect_code(0);
    let called: Value = serde_json::from_str(&called.stdout).unwrap();
    assert_eq!(called["notes"]["cache"], "hit", "{called}");
}

#[test]
fn resource_updates_and_log_messages_reach_the_client() {
    let place = offering(&["up"], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.names();
    assert_eq!(client.ask("resources/subscribe", json!({"uri": "haft:up/note://1"})), json!({}));
    let updated = client.wait_for("notifications/resources/updated");
    assert_eq!(updated["params"]["uri"], "haft:up/note://1");
    client.wait_for("notifications/resources/list_changed");
    client.call("up__echo", json!({}));
    let logged = client.wait_for("notifications/message");
    assert_eq!(logged["params"]["data"], "mind the step", "{logged}");
    assert_eq!(client.ask("logging/setLevel", json!({"level": "error"})), json!({}));
    client.call("up__echo", json!({}));
    client.ask("ping", json!({}));
    let unwanted = client.others.iter().find(|message| {
        message["method"] == "notifications/message" || message["params"]["uri"] == "haft:up/note://unwatched"
    });
    assert_eq!(unwanted, None);
}

#[test]
fn changes_of_prompts_reach_clients_with_and_without_handshake() {
    let place = offering(&["up"], "");
    for mut client in clients(&place, &json!({})) {
        client.names();
        if client.meta.is_some() {
            let wanted = json!({"notifications": {"promptsListChanged": true}});
            client.begin("subscriptions/listen", wanted.clone());
            let honored = client.wait_for("notifications/subscriptions/acknowledged");
            assert_eq!(honored["params"]["notifications"], wanted["notifications"]);
        }
        client.ask("prompts/get", json!({"name": "up__greet", "arguments": {"who": "everyone"}}));
        client.wait_for("notifications/prompts/list_changed");
    }
}

#[test]
fn client_gets_resource_updates_of_a_server_without_sessions() {
    let place = place();
    configure(&place, &[("up", "modern-offers", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.names();
    let updated = |client: &mut McpClient| {
        let uri = client.wait_for("notifications/resources/updated")["params"]["uri"].take();
        uri.as_str().unwrap().to_owned()
    };
    assert_eq!(client.ask("resources/subscribe", json!({"uri": "haft:up/note://1"})), json!({}));
    assert_eq!(updated(&mut client), "haft:up/note://1");
    // The server reports one change of each watched resource on every new stream. The second subscription opens a
    // stream for both resources.
    assert_eq!(client.ask("resources/subscribe", json!({"uri": "haft:up/note://2"})), json!({}));
    assert_eq!([updated(&mut client), updated(&mut client)], ["haft:up/note://1", "haft:up/note://2"]);
    // Another subscription to the same resource needs no new stream.
    assert_eq!(client.ask("resources/subscribe", json!({"uri": "haft:up/note://2"})), json!({}));
    assert_eq!(client.ask("resources/unsubscribe", json!({"uri": "haft:up/note://1"})), json!({}));
    assert_eq!(updated(&mut client), "haft:up/note://2", "the last stream has one resource");
    assert_eq!(client.ask("ping", json!({})), json!({}));
    let more = client.others.iter().find(|message| message["method"] == "notifications/resources/updated");
    assert_eq!(more, None);
}

#[test]
fn server_that_starts_again_reports_changes_of_watched_resources() {
    for mode in ["offers", "modern-offers"] {
        let place = place();
        configure(&place, &[("up", mode, &[])], "");
        let mut client = McpClient::handshake(&place, &[], json!({}));
        client.names();
        assert_eq!(client.ask("resources/subscribe", json!({"uri": "haft:up/note://1"})), json!({}));
        client.wait_for("notifications/resources/updated");
        let failed = client.call("up__echo", json!({"text": "exit"}));
        assert_eq!(failed["isError"], true, "{failed}");
        client.call("up__echo", json!({}));
        // The client gets two notifications: one from haft, which may have missed a change, and one from the server,
        // which reports a change for each new subscription.
        for _ in 0..2 {
            let updated = client.wait_for("notifications/resources/updated");
            assert_eq!(updated["params"]["uri"], "haft:up/note://1", "{mode}");
        }
    }
}

#[test]
fn stateless_client_gets_updates_only_of_resources_that_it_may_read() {
    let place = place();
    configure(
        &place,
        &[("up", "modern-offers", &[]), ("session", "offers", &[]), ("hidden", "offers", &[])],
        "",
    );
    let mut client = McpClient::stateless(&place, &["--tools", "up__*", "--tools", "session__*"], json!({}));
    client.names();
    let wanted = ["haft:up/note://1", "haft:session/note://1", "haft:hidden/note://1", "haft:no/note://1"];
    client.begin("subscriptions/listen", json!({"notifications": {"resourceSubscriptions": wanted}}));
    let honored = client.wait_for("notifications/subscriptions/acknowledged");
    assert_eq!(honored["params"]["notifications"]["resourceSubscriptions"], json!(wanted[..2]), "{honored}");
    let mut updated =
        [(); 2].map(|()| client.wait_for("notifications/resources/updated")["params"]["uri"].take());
    updated.sort_by_key(Value::to_string);
    assert_eq!(updated, ["haft:session/note://1", "haft:up/note://1"]);
}

#[test]
fn stateless_request_gets_the_log_messages_that_it_asks_for() {
    let place = place();
    configure(&place, &[("session", "offers", &[]), ("modern", "modern", &[])], "");
    let mut client = McpClient::stateless(&place, &[], json!({}));
    assert_eq!(client.ask("server/discover", json!({}))["capabilities"]["logging"], json!({}));
    // The server `session` sends a warning with each call. The server `modern` sends a message of the requested level.
    let mut logged = |tool: &str, level: Value| {
        let call = json!({"name": tool, "arguments": {}, "_meta": {LOG_LEVEL: level}});
        let id = client.begin("tools/call", call);
        let reply = client.reply(id);
        assert!(reply.get("result").is_some(), "{reply}");
        client.others.drain(..).map(|message| message["params"]["level"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!(logged("session__echo", json!("warning")), ["warning"]);
    assert_eq!(logged("session__echo", json!("debug")), ["warning"]);
    assert_eq!(logged("session__echo", json!("error")), [""; 0]);
    assert_eq!(logged("session__echo", Value::Null), [""; 0]);
    assert_eq!(logged("modern__echo", json!("error")), ["error"]);
    assert_eq!(logged("modern__echo", Value::Null), [""; 0]);
    for unknown in [json!("loud"), json!(3), json!({})] {
        let call = json!({"name": "session__echo", "arguments": {}, "_meta": {LOG_LEVEL: unknown}});
        assert_eq!(client.error("tools/call", call), -32_602);
    }
}

#[test]
fn server_without_sessions_sends_log_messages_at_the_level_that_the_client_has_set() {
    let place = place();
    configure(&place, &[("modern", "modern", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.call("modern__echo", json!({}));
    assert!(client.others.iter().all(|message| message["method"] != "notifications/message"));
    assert_eq!(client.ask("logging/setLevel", json!({"level": "notice"})), json!({}));
    client.call("modern__echo", json!({}));
    assert_eq!(client.wait_for("notifications/message")["params"]["level"], "notice");
}

/// The server logs only after a client has set a level, and forgets the level when it ends. Therefore, haft must send
/// the level again after a restart.
#[test]
fn restarted_server_with_a_handshake_gets_the_log_level_of_the_client_again() {
    let place = place();
    configure(&place, &[("up", "quiet", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.call("up__echo", json!({}));
    assert!(client.others.iter().all(|message| message["method"] != "notifications/message"));
    let logs_at = |client: &mut McpClient, level: &str| {
        eventually("the server logs", || {
            client.others.clear();
            client.call("up__echo", json!({}));
            client.others.iter().any(|message| message["params"]["data"] == format!("at {level}"))
        });
    };
    assert_eq!(client.ask("logging/setLevel", json!({"level": "notice"})), json!({}));
    logs_at(&mut client, "notice");
    assert_eq!(client.ask("logging/setLevel", json!({"level": "debug"})), json!({}));
    logs_at(&mut client, "debug");
    let failed = client.call("up__echo", json!({"text": "exit"}));
    assert_eq!(failed["isError"], true, "{failed}");
    logs_at(&mut client, "debug");
}

#[test]
fn prompt_elicitation_reaches_clients_with_and_without_handshake() {
    let place = offering(&["up"], "");
    let asking = json!({"elicitation": {"form": {}}});
    let mut client = McpClient::handshake(&place, &[], asking.clone());
    let id = client.begin("prompts/get", json!({"name": "up__greet"}));
    let question = client.wait_for("elicitation/create");
    assert_eq!(question["params"]["message"], "up: Which colour?", "{question}");
    let answer = json!({"action": "accept", "content": {"colour": "red"}});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
    let got = client.reply(id);
    assert!(got["result"]["messages"][0]["content"]["text"].as_str().unwrap().contains("red"), "{got}");
    client.end();

    let mut client = McpClient::stateless(&place, &[], asking);
    let mut params = json!({"name": "up__greet"});
    let asked = client.ask("prompts/get", params.clone());
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    params["requestState"] = asked["requestState"].clone();
    // Without an answer, the server asks the question again, with another state.
    let again = client.ask("prompts/get", params.clone());
    assert_eq!(again["inputRequests"], asked["inputRequests"], "{again}");
    assert_eq!(client.error("prompts/get", params.clone()), -32602, "a request state can be used only once");
    params["requestState"] = again["requestState"].clone();
    params["inputResponses"] = json!({});
    params["inputResponses"][key] = answer;
    let got = client.ask("prompts/get", params);
    assert!(got["messages"][0]["content"]["text"].as_str().unwrap().contains("red"), "{got}");
}

#[test]
fn stored_output_is_a_resource_of_its_client() {
    let place = place();
    configure(&place, &[], r#", "maxToolResponseBytes": 2000"#);
    let mut client = McpClient::handshake(&place, &[], json!({}));
    assert_eq!(client.ask("resources/list", json!({}))["resources"], json!([]));
    let called = client.call("bash", json!({"command": "seq 1 10000"}));
    client.wait_for("notifications/resources/list_changed");
    let listed = client.ask("resources/list", json!({}))["resources"][0].take();
    let links = called["content"].as_array().unwrap().iter().filter(|block| block["type"] == "resource_link");
    let links: Vec<&Value> = links.map(|link| &link["uri"]).collect();
    assert_eq!(links, [&listed["uri"]], "{called}");
    let read = client.ask("resources/read", json!({"uri": listed["uri"]}));
    assert!(read["contents"][0]["text"].as_str().unwrap().ends_with("9999\n10000\n"), "{read:.200}");
    client.end();
    let mut other = McpClient::handshake(&place, &[], json!({}));
    assert_eq!(other.error("resources/read", json!({"uri": listed["uri"]})), -32002);
}

#[test]
fn sampling_and_roots_requests_go_to_the_client_that_made_the_call() {
    for (mode, capability, method, answer) in [
        (
            "asks-model",
            "sampling",
            "sampling/createMessage",
            json!({"model": "m", "content": {"type": "text", "text": "Paris"}}),
        ),
        ("asks-roots", "roots", "roots/list", json!({"roots": [{"uri": "file:///client"}]})),
    ] {
        let place = place();
        configure(&place, &[("up", mode, &[])], "");
        let mut client = McpClient::handshake(&place, &[], json!({capability: {}}));
        let id = client.begin("tools/call", json!({"name": "up__echo", "arguments": {}}));
        let request = client.wait_for(method);
        client.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": answer}));
        let reply = client.reply(id);
        let told: Value = serde_json::from_str(text(&reply["result"])).unwrap();
        assert_eq!(told, answer, "{mode}");
        client.end();
        // The server does not ask a client without the capability.
        let mut client = McpClient::handshake(&place, &[], json!({}));
        let refused = client.call("up__echo", json!({}));
        assert!(text(&refused).contains("code"), "{mode} {refused}");
    }
}

#[test]
fn sampling_request_with_tools_reaches_only_a_client_that_supports_tools() {
    let place = place();
    configure(&place, &[("up", "asks-model", &[])], "");
    let call = |what: &str| json!({"name": "up__echo", "arguments": {"what": what}});
    let mut client = McpClient::handshake(&place, &[], json!({"sampling": {"tools": {}}}));
    let declared = client.ask("tools/call", call("capabilities"));
    let declared: Value = serde_json::from_str(text(&declared)).unwrap();
    assert_eq!(declared["sampling"], json!({"tools": {}}));
    let id = client.begin("tools/call", call("tools"));
    let request = client.wait_for("sampling/createMessage");
    assert_eq!(request["params"]["tools"][0]["name"], "bash", "{request}");
    let use_tool = json!({"type": "tool_use", "id": "1", "name": "bash", "input": {}});
    let answer = json!({"role": "assistant", "model": "m", "content": [use_tool], "stopReason": "toolUse"});
    client.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": answer}));
    let told: Value = serde_json::from_str(text(&client.reply(id)["result"])).unwrap();
    assert_eq!(told, answer);
    client.end();
    let mut client = McpClient::handshake(&place, &[], json!({"sampling": {}}));
    let refused = client.ask("tools/call", call("tools"));
    assert!(text(&refused).contains("does not support tools"), "{refused}");
}

#[test]
fn gateway_with_a_single_client_passes_its_roots_to_servers_outside_of_calls() {
    let place = place();
    configure(&place, &[("up", "watches-roots", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({"roots": {"listChanged": true}}));
    let roots = |name: &str| json!({"roots": [{"uri": format!("file:///{name}")}]});
    let answer = |client: &mut McpClient, name: &str| {
        let request = client.wait_for("roots/list");
        client.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": roots(name)}));
    };
    // The server asks for the roots when it has started, and after each change of the roots.
    answer(&mut client, "one");
    client.names();
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}));
    answer(&mut client, "two");
    let told: Value = serde_json::from_str(text(&client.call("up__echo", json!({})))).unwrap();
    assert_eq!(told[0]["roots"], json!({"listChanged": true}));
    assert_eq!(told[1], json!([roots("one"), roots("two")]));
}

#[test]
fn gateway_with_several_clients_refuses_to_name_roots_outside_of_calls() {
    let place = place();
    configure(&place, &[("up", "watches-roots", &[])], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let mut greeting = initialize();
    greeting["params"]["capabilities"] = json!({"roots": {}});
    let session = server.post(&[], &greeting).header("mcp-session-id");
    let call = json!({"name": "up__echo", "arguments": {}});
    let called = server.post(&[("Mcp-Session-Id", &session)], &request(2, "tools/call", &call)).message();
    let told: Value = serde_json::from_str(text(&called["result"])).unwrap();
    assert!(told[1][0]["message"].as_str().unwrap().contains("belongs to no tool call"), "{told}");
}

#[test]
fn reads_of_resources_and_prompts_are_accounted() {
    let place = place();
    configure(&place, &[("notes", "offers", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.ask("resources/read", json!({"uri": "haft:notes/note://1"}));
    client.error("resources/read", json!({"uri": "haft:notes/note://none"}));
    client.ask("prompts/get", json!({"name": "notes__greet", "arguments": {"who": "Ada"}}));
    client.end();
    let stats = place.haft(&["stats", "--json"]).output().expect_code(0);
    for name in ["notes__resources_read", "notes__prompts_get"] {
        assert!(stats.stdout.contains(name), "{name}: {}", stats.stdout);
    }
}

#[test]
fn error_of_a_read_shows_no_secret_of_the_server() {
    let place = place();
    let entry = place.misbehaving_server("offers", &[]);
    let config =
        format!(r#"{{"mcpServers": {{"notes": {{{entry}, "env": {{"NOTES_TOKEN": "canary-of-notes"}}}}}}}}"#);
    place.file("home/haft.json", &config);
    for mut client in clients(&place, &json!({})) {
        let id = client.begin("resources/read", json!({"uri": "haft:notes/note://leaks"}));
        let error = client.reply(id)["error"].clone();
        assert_eq!(error["code"], -32603, "{error}");
        assert_eq!(error["message"], "bad [redacted]");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}

#[test]
fn error_about_an_unreachable_server_does_not_show_its_address() {
    let place = super::place();
    place.file("home/haft.json", r#"{"mcpServers": {"down": {"url": "http://127.0.0.1:9/canary"}}}"#);
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let id = client.begin("resources/read", json!({"uri": "haft:down/note://1"}));
    let error = client.reply(id)["error"].to_string();
    assert!(error.contains("is not available"), "{error}");
    assert!(!error.contains("canary") && !error.contains("127.0.0.1"), "{error}");
}

/// Returns the text of the error reply to a request.
fn refusal(client: &mut McpClient, method: &str, params: Value) -> String {
    let id = client.begin(method, params);
    let reply = client.reply(id);
    reply["error"]["message"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

#[test]
fn rules_decide_about_resources_prompts_and_completions_of_a_server() {
    for naming in ["double", "bare"] {
        let denied = |method: &str| json!({"tool": format!("up__{method}"), "decision": "deny"});
        let uri = if naming == "bare" { "note://1" } else { "haft:up/note://1" };
        let name = if naming == "bare" { "greet" } else { "up__greet" };
        let reference = json!({"type": "ref/prompt", "name": name});
        let requests = [
            ("resources/read", "resources_read", json!({"uri": uri})),
            ("prompts/get", "prompts_get", json!({"name": name, "arguments": {"who": "Ada"}})),
            (
                "completion/complete",
                "completion_complete",
                json!({"ref": reference, "argument": {"name": "who", "value": "A"}}),
            ),
        ];
        for (method, denied_name, params) in &requests {
            let rules = json!([denied(denied_name)]);
            let keys = format!(r#", "naming": "{naming}", "policy": {{"rules": {rules}}}"#);
            let place = offering(&["up"], &keys);
            for mut client in clients(&place, &json!({})) {
                let text = refusal(&mut client, method, params.clone());
                assert!(text.contains(&format!("`up__{denied_name}` is denied")), "{naming}: {text}");
                for (other, _, params) in requests.iter().filter(|(other, ..)| other != method) {
                    client.ask(other, params.clone());
                }
            }
        }
    }
}

#[test]
fn read_of_a_resource_that_needs_approval_asks_the_user_of_the_client() {
    let place =
        offering(&["up"], r#", "policy": {"rules": [{"tool": "up__resources_read", "decision": "ask"}]}"#);
    let mut client = McpClient::handshake(&place, &[], json!({"elicitation": {}}));
    let read = json!({"uri": "haft:up/note://1"});
    for (decision, is_read) in [("allow once", true), ("deny", false)] {
        let id = client.begin("resources/read", read.clone());
        let question = client.wait_for("elicitation/create");
        let asked = question["params"]["message"].as_str().unwrap();
        assert!(asked.contains("up__resources_read") && asked.contains("note://1"), "{asked}");
        let answer = json!({"action": "accept", "content": {"decision": decision}});
        client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
        let reply = client.reply(id);
        assert_eq!(reply["result"]["contents"][0]["text"] == "read note://1", is_read, "{reply}");
    }
    client.end();
    let mut client = McpClient::stateless(&place, &[], json!({}));
    let refused = refusal(&mut client, "resources/read", read);
    assert!(refused.contains("needs approval"), "{refused}");
}

#[test]
fn content_of_a_server_is_untrusted_text() {
    for (method, params, source) in [
        ("resources/read", json!({"uri": "haft:up/note://1"}), "up__resources_read"),
        ("prompts/get", json!({"name": "up__greet", "arguments": {"who": "Ada"}}), "up__prompts_get"),
    ] {
        let place = offering(&["up"], r#", "policy": {"afterUntrusted": "deny"}"#);
        let mut client = McpClient::handshake(&place, &[], json!({}));
        client.ask(method, params);
        let refused = client.call("bash", json!({"command": "echo hi"}));
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(text(&refused).contains(&format!("untrusted text from `{source}`")), "{refused}");
    }
}

#[test]
fn reads_wait_in_the_queue_of_their_server_and_are_in_the_journal() {
    let place = offering(&["up"], r#", "queues": {"default": {"maxConcurrency": 1, "maxWaiting": 0}}"#);
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.names();
    let read = json!({"uri": "haft:up/note://1"});
    let id = client.begin("resources/read", json!({"uri": "haft:up/note://never"}));
    let begun = || std::fs::read_to_string(place.path("home/data/gateway-calls.jsonl")).unwrap_or_default();
    eventually("the first read is in progress", || begun().contains("note://never"));
    let refused = refusal(&mut client, "resources/read", read.clone());
    assert!(refused.contains("queue"), "{refused}");
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    client.ask("ping", json!({}));
    assert_eq!(client.ask("resources/read", read)["contents"][0]["text"], "read note://1");
    assert!(client.others.iter().all(|message| message["id"] != id), "a cancelled read gets no reply");
    let journal = begun();
    assert_eq!(journal.matches(r#""tool":"up__resources_read""#).count(), 2, "{journal}");
}

#[test]
fn resource_that_is_too_large_is_refused() {
    let place = offering(&["up"], "");
    for mut client in clients(&place, &json!({})) {
        let read = client.ask("resources/read", json!({"uri": "haft:up/note://huge/15"}));
        assert_eq!(read["contents"][0]["text"].as_str().unwrap().len(), 15 << 20);
        let refused = refusal(&mut client, "resources/read", json!({"uri": "haft:up/note://huge/17"}));
        assert!(refused.contains("the limit is 16777216 bytes"), "{refused}");
        assert!(client.ask("resources/read", json!({"uri": "haft:up/note://1"}))["contents"].is_array());
    }
}

#[test]
fn completion_of_a_template_names_the_uri_that_its_server_uses() {
    let place = offering(&["one", "two"], "");
    for mut client in clients(&place, &json!({})) {
        let reference = json!({"type": "ref/resource", "uri": "haft:two/note://{number}"});
        let asked = json!({"ref": reference, "argument": {"name": "number", "value": "1"}});
        let completed = client.ask("completion/complete", asked);
        let sent: Value =
            serde_json::from_str(completed["completion"]["values"][0].as_str().unwrap()).unwrap();
        assert_eq!(sent, json!({"type": "ref/resource", "uri": "note://{number}"}));
        let unknown = json!({"type": "ref/resource", "uri": "haft:none/note://{number}"});
        let asked = json!({"ref": unknown, "argument": {"name": "number", "value": "1"}});
        assert_eq!(
            client.error("completion/complete", asked),
            if client.meta.is_some() { -32602 } else { -32002 }
        );
    }
}

#[test]
fn images_and_audio_of_a_result_are_passed_unchanged() {
    let place = offering(&["up"], "");
    for mut client in clients(&place, &json!({})) {
        let called = client.call("up__echo", json!({"text": "media"}));
        let image = json!({"type": "image", "data": "AAAA", "mimeType": "image/png",
            "annotations": {"audience": ["user"]}, "vendor": 9});
        let audio = json!({"type": "audio", "data": "BBBB", "mimeType": "audio/wav", "vendor": 10});
        assert_eq!(called["content"], json!([image, audio]), "{called}");
    }
}

/// Reading a resource or a prompt changes nothing, whatever the server is. A read-only gateway still offers them only
/// if at least one tool of the server is read-only.
#[test]
fn read_only_gateway_offers_content_only_of_servers_with_a_read_only_tool() {
    let place = place();
    let server = |effects: &str| format!("{{{}{effects}}}", place.misbehaving_server("offers", &[]));
    let reading = server(r#", "effects": {"echo": "read-only"}"#);
    place.file(
        "home/haft.json",
        &format!(r#"{{"mcpServers": {{"reads": {reading}, "other": {}}}}}"#, server("")),
    );
    let mut client = McpClient::handshake(&place, &["--read-only"], json!({}));
    let listed = client.ask("resources/list", json!({})).to_string();
    assert!(listed.contains("haft:reads/note://1") && !listed.contains("haft:other/"), "{listed}");
    let prompts = client.ask("prompts/list", json!({})).to_string();
    assert!(prompts.contains("reads__greet") && !prompts.contains("other__greet"), "{prompts}");
    let read = client.ask("resources/read", json!({"uri": "haft:reads/note://1"}));
    assert_eq!(read["contents"][0]["text"], "read note://1");
    assert_eq!(client.error("resources/read", json!({"uri": "haft:other/note://1"})), -32002);
    assert_eq!(client.error("prompts/get", json!({"name": "other__greet"})), -32602);
}

#[test]
fn client_of_an_older_revision_gets_only_content_that_this_revision_knows() {
    let place = offering(&["up"], "");
    for (revision, media, links) in [
        ("2025-11-25", ["image", "audio"], ["resource_link", "resource"]),
        ("2025-06-18", ["image", "audio"], ["resource_link", "resource"]),
        ("2025-03-26", ["image", "audio"], ["text", "resource"]),
        ("2024-11-05", ["image", "resource"], ["text", "resource"]),
    ] {
        let mut client = McpClient::start(&place, &[]);
        let greeted = client
            .ask("initialize", json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {}}));
        assert_eq!(greeted["protocolVersion"], revision);
        for (text, expected) in [("media", media), ("", links)] {
            let called = client.call("up__echo", json!({"text": text}));
            let kinds =
                called["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap());
            assert_eq!(kinds.collect::<Vec<_>>(), expected, "{revision}: {called}");
            assert!(text == "media" || called.to_string().contains("haft:up/note://1"), "{called}");
        }
    }
}

#[test]
fn server_learns_that_defaults_of_forms_are_applied_only_if_the_client_applies_them() {
    let place = place();
    configure(&place, &[("up", "asks-model", &[])], "");
    for (offered, expected) in [
        (json!({}), json!({"form": {}})),
        (json!({"form": {}, "url": {}}), json!({"form": {}, "url": {}})),
        (json!({"form": {"applyDefaults": true}}), json!({"form": {"applyDefaults": true}})),
        (json!({"url": {}}), json!({"url": {}})),
    ] {
        let mut client = McpClient::handshake(&place, &[], json!({"elicitation": offered}));
        let declared = client.call("up__echo", json!({"what": "capabilities"}));
        let declared: Value = serde_json::from_str(text(&declared)).unwrap();
        assert_eq!(declared["elicitation"], expected, "{offered}");
        client.end();
    }
}
