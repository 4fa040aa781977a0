//! Tests of resources and prompts of upstream servers, and of result fields that haft does not define.

use haft_testkit::TestTree;
use serde_json::{Value, json};

use super::{McpClient, configure, place, text};

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
    configure(&place, &[], r#", "toolResponseMaxBytes": 2000"#);
    let mut client = McpClient::handshake(&place, &[], json!({}));
    assert_eq!(client.ask("resources/list", json!({}))["resources"], json!([]));
    client.call("bash", json!({"command": "seq 1 10000"}));
    let listed = client.ask("resources/list", json!({}))["resources"][0].take();
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
fn reads_of_resources_and_prompts_are_accounted() {
    let place = place();
    configure(&place, &[("notes", "offers", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.ask("resources/read", json!({"uri": "haft:notes/note://1"}));
    client.error("resources/read", json!({"uri": "haft:notes/note://none"}));
    client.ask("prompts/get", json!({"name": "notes__greet", "arguments": {"who": "Ada"}}));
    client.end();
    let stats = place.haft(&["stats", "--json"]).output().expect_code(0);
    for name in ["resources/read", "prompts/get"] {
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
