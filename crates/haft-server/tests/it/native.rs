//! The native API: runs, events, approvals and names, its document, and other principals.

use haft_model_server::{ResponsePace, Script, ScriptStep};
use haft_store::api_keys::KeyScope;
use haft_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use super::approvals::types;
use super::fixture::{Reply, TestServer, key, scoped_key};
use super::responses::{ask, poll, text};
use super::tool_server::ToolServer;

fn send_json(server: &TestServer, key: &str, method: Method, path: &str, body: &Value) -> Reply {
    let request = server.without_key(method, path).bearer_auth(key);
    server.send(request.header("content-type", "application/json").body(body.to_string()))
}

fn get_with(server: &TestServer, key: &str, path: &str) -> Reply {
    server.send(server.without_key(Method::GET, path).bearer_auth(key))
}

/// A server whose model never answers a request with the text `Block`.
fn server() -> TestServer {
    let pace = ResponsePace { between_milliseconds: 600_000, ..ResponsePace::default() };
    let script = Script::of([ScriptStep::text("Hello.")]);
    let script = script.about("Block", [ScriptStep::text("Late.").at_pace(pace)]);
    let config = json!({"models": {"default": "openai/m"}, "serve": {"maxRuns": 1}});
    TestServer::configured(script, &config, &[])
}

/// The data of the events of a stream.
fn data(reply: &Reply) -> Vec<Value> {
    let lines = reply.text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_documented_route_exists_and_needs_a_key() {
    let server = server();
    let document = server.get("/api/v1/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let mut routes = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let path = format!("/api/v1{}", path.replace("{id}", "none").replace("{handle}", "none"));
            let method: Method = method.to_uppercase().parse().unwrap();
            let reply = send_json(&server, &server.key, method.clone(), &path, &json!({"approve": true}));
            assert!(
                !reply.text.contains("no such route") && reply.status != 405,
                "{method} {path}: {}",
                reply.text
            );
            let open = server.send(server.without_key(method.clone(), &path));
            // After ten requests without a key, the address is limited.
            assert!([401, 429].contains(&open.status), "{method} {path}: {}", open.status);
            routes += 1;
        }
    }
    assert_eq!(routes, 14);
    assert_eq!(server.get("/api/v1/none").status, 404);
    for (method, path) in
        [(Method::POST, "/api/v1/servers"), (Method::PUT, "/api/v1/agents"), (Method::POST, "/api/v1/runs")]
    {
        let reply = send_json(&server, &server.key, method, path, &json!({"command": "sh"}));
        assert_eq!(reply.status, 405, "no route adds a command: {path}");
    }
}

#[test]
fn runs_are_listed_followed_from_any_event_and_cancelled_by_their_owner_alone() {
    let server = server();
    let start = |input: &str| ask(&server, &json!({"model": "openai/m", "input": input, "background": true}));
    let first = start("Hi");
    poll(&server, first["id"].as_str().unwrap(), "completed");
    start("Block");
    start("Later");
    let listed = server.get("/api/v1/runs").json();
    let with = |status: &str| -> Vec<Value> {
        let runs = listed["data"].as_array().unwrap().iter();
        runs.filter(|run| run["status"] == status).cloned().collect()
    };
    assert_eq!(listed["data"].as_array().unwrap().len(), 3, "{listed}");
    assert_eq!((with("ended").len(), with("in_progress").len(), with("queued").len()), (1, 1, 1), "{listed}");
    let queues = server.get("/api/v1/queues").json();
    assert_eq!(queues, json!({"tenant": {"running": 1, "waiting": 1}}));
    let page = server.get("/api/v1/runs?limit=2").json();
    assert_eq!((page["data"].as_array().unwrap().len(), &page["has_more"]), (2, &json!(true)));
    assert_eq!(server.get("/api/v1/runs?limit=0").json()["error"]["param"], "limit");

    let ended = format!("/api/v1/runs/{}", with("ended")[0]["id"].as_str().unwrap());
    let all = data(&server.get(&format!("{ended}/events")));
    let numbers: Vec<u64> = all.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=all.len() as u64).collect::<Vec<_>>());
    assert_eq!(data(&server.get(&format!("{ended}/events?after=2"))), all[2..]);
    assert_eq!(all[0]["event"]["type"], "run_started", "{}", all[0]);

    let waiting = format!("/api/v1/runs/{}", with("queued")[0]["id"].as_str().unwrap());
    let eve = key(&server.store, "default", "eve", None);
    for path in ["", "/events", "/outputs/x"] {
        assert_eq!(get_with(&server, &eve, &format!("{ended}{path}")).status, 404, "{path}");
    }
    let foreign = send_json(&server, &eve, Method::POST, &format!("{waiting}/cancel"), &json!({}));
    assert_eq!(foreign.status, 404);
    assert_eq!(get_with(&server, &eve, "/api/v1/runs").json()["data"], json!([]));
    let cancelled = server.send(server.request(Method::POST, &format!("{waiting}/cancel"))).json();
    assert_eq!(cancelled["status"], "ended", "{cancelled}");
    assert_eq!(server.get("/api/v1/queues").json()["tenant"]["waiting"], 0);
}

#[test]
fn approval_is_listed_with_its_arguments_and_decided() {
    let tools = ToolServer::start();
    let steps = [ScriptStep::call("docs__add", json!({"n": 1})), ScriptStep::text("Done.")];
    let server = TestServer::configured(Script::of(steps), &tools.config(), &[]);
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "always"});
    let first = ask(&server, &json!({"model": "openai/m", "input": "Add.", "tools": [tool]}));
    assert_eq!(types(&first), ["mcp_approval_request"]);
    let listed = server.get("/api/v1/approvals").json();
    let one = &listed["data"][0];
    assert_eq!((&one["id"], &one["response"]), (&first["output"][0]["id"], &first["id"]), "{listed}");
    assert_eq!((&one["name"], &one["arguments"]), (&json!("add"), &json!({"n": 1})));
    let runs = server.get("/api/v1/runs").json();
    assert_eq!(runs["data"][0]["status"], "waiting_for_approval", "{runs}");
    let path = format!("/api/v1/approvals/{}", one["id"].as_str().unwrap());
    let eve = key(&server.store, "default", "eve", None);
    assert_eq!(get_with(&server, &eve, "/api/v1/approvals").json(), json!({"data": []}));
    assert_eq!(send_json(&server, &eve, Method::POST, &path, &json!({"approve": true})).status, 404);
    let wrong = send_json(&server, &server.key, Method::POST, &path, &json!({"approve": "yes"}));
    assert_eq!((wrong.status, &wrong.json()["error"]["param"]), (400, &json!("approve")));
    assert_eq!(tools.calls(), [] as [Value; 0]);
    let decided = send_json(&server, &server.key, Method::POST, &path, &json!({"approve": true}));
    assert_eq!(decided.status, 200, "{}", decided.text);
    let ended = poll(&server, decided.json()["id"].as_str().unwrap(), "completed");
    assert_eq!((text(&ended), tools.calls()), ("Done.", vec![json!({"n": 1})]));
    assert_eq!(server.get("/api/v1/approvals").json(), json!({"data": []}));
    assert_eq!(send_json(&server, &server.key, Method::POST, &path, &json!({"approve": true})).status, 404);
}

#[test]
fn decision_continues_a_response_with_its_conversation_and_the_servers_that_it_named() {
    let tools = ToolServer::start();
    let steps = [ScriptStep::call("far__add", json!({"n": 1})), ScriptStep::text("Done.")];
    let config = json!({"models": {"default": "openai/m"}, "serve": {"serverUrls": "any"}});
    let server = TestServer::configured(Script::of(steps), &config, &[]);
    let tool = json!({"type": "mcp", "server_label": "far", "server_url": tools.url()});
    let create = server.request(Method::POST, "/v1/conversations");
    let conversation = server.send(create.header("content-type", "application/json").body("{}")).json();
    let first = ask(
        &server,
        &json!({"model": "openai/m", "input": "Add.", "tools": [tool], "conversation": conversation["id"]}),
    );
    assert_eq!(types(&first), ["mcp_list_tools", "mcp_approval_request"], "{first}");
    let path = format!("/api/v1/approvals/{}", first["output"][1]["id"].as_str().unwrap());
    let refused = send_json(&server, &server.key, Method::POST, &path, &json!({"approve": true}));
    assert_eq!(refused.status, 400, "{}", refused.text);
    let body = json!({"approve": true, "tools": [tool]});
    let decided = send_json(&server, &server.key, Method::POST, &path, &body);
    assert_eq!(decided.status, 200, "{}", decided.text);
    let ended = poll(&server, decided.json()["id"].as_str().unwrap(), "completed");
    assert_eq!((text(&ended), tools.calls()), ("Done.", vec![json!({"n": 1})]));
    assert_eq!(ended["conversation"], json!({"id": conversation["id"]}));
    let items = format!("/v1/conversations/{}/items?order=asc", conversation["id"].as_str().unwrap());
    let items = server.get(&items).json();
    let kinds: Vec<&Value> = items["data"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds.last().unwrap(), &"message", "{items}");
    assert!(kinds.contains(&&json!("mcp_call")), "{items}");
}

#[test]
fn run_that_waits_for_approval_can_be_cancelled() {
    let tools = ToolServer::start();
    let steps = [ScriptStep::call("docs__add", json!({"n": 1})), ScriptStep::text("Done.")];
    let server = TestServer::configured(Script::of(steps), &tools.config(), &[]);
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "always"});
    ask(&server, &json!({"model": "openai/m", "input": "Add.", "tools": [tool]}));
    let run = server.get("/api/v1/runs").json()["data"][0]["id"].as_str().unwrap().to_owned();
    let cancelled = server.send(server.request(Method::POST, &format!("/api/v1/runs/{run}/cancel"))).json();
    assert_eq!(cancelled["status"], "ended", "{cancelled}");
    assert_eq!(server.get("/api/v1/approvals").json(), json!({"data": []}));
    assert_eq!((tools.calls(), server.model.requests().len()), (Vec::<Value>::new(), 1));
}

#[test]
fn stored_output_is_read_by_range_and_searched() {
    let tools = ToolServer::start();
    let lines: Vec<String> = (0..5_000).map(|number| format!("line {number} of the output")).collect();
    tools.answer_with(&lines.join("\n"));
    let steps = [ScriptStep::call("docs__look", json!({"n": 1})), ScriptStep::text("Done.")];
    let server = TestServer::configured(Script::of(steps), &tools.config(), &[]);
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "never"});
    let response = ask(&server, &json!({"model": "openai/m", "input": "Look.", "tools": [tool]}));
    let run = server.get("/api/v1/runs").json()["data"][0]["id"].as_str().unwrap().to_owned();
    let shown = response["output"][0]["output"].as_str().unwrap();
    let is_handle = |word: &&str| word.contains('-') && word.contains('/');
    let handle = shown.split(|c: char| !(c.is_ascii_alphanumeric() || "-/_.".contains(c))).find(is_handle);
    let handle = handle.unwrap_or_else(|| panic!("no handle in {shown}")).replace('/', "%2F");
    let part = |query: &str| server.get(&format!("/api/v1/runs/{run}/outputs/{handle}?{query}"));
    let begin = part("bytes=6").json();
    assert_eq!((&begin["text"], &begin["to"]), (&json!("line 0"), &json!(6)), "{begin}");
    let found = part("from=60000&bytes=1048576&find=line+4999").json();
    assert_eq!(found["text"], "line 4999 of the output");
    assert_eq!(part("bytes=0").json()["error"]["param"], "bytes");
    assert_eq!(server.get(&format!("/api/v1/runs/{run}/outputs/none")).status, 404);
}

#[test]
fn names_are_shown_without_commands_and_stats_need_the_scope() {
    let server_config = json!({"command": "secret-program", "args": ["secret-word"]});
    let config = json!({
        "models": {"default": "openai/m"}, "mcpServers": {"local": server_config}, "groups": {"g": ["local__*"]},
    });
    let agent = "---\ndescription: Answers.\nmodels: openai/m\ntools: []\n---\nYou answer.\n";
    let server = TestServer::configured(Script::of([ScriptStep::text("x")]), &config, &[("helper", agent)]);
    let servers = server.get("/api/v1/servers");
    assert_eq!(servers.json()["data"], json!([{"name": "local", "kind": "process", "enabled": true}]));
    assert!(!servers.text.contains("secret"), "{}", servers.text);
    assert_eq!(
        server.get("/api/v1/agents").json()["data"],
        json!([{"name": "helper", "description": "Answers."}])
    );
    assert_eq!(server.get("/api/v1/groups").json()["data"][0]["tools"], json!(["local__*"]));
    assert_eq!(server.get("/api/v1/models").json(), server.get("/v1/models").json());
    assert_eq!(server.get("/api/v1/stats").status, 403);
    let admin = scoped_key(&server.store, &[KeyScope::Api, KeyScope::Admin]);
    assert_eq!(get_with(&server, &admin, "/api/v1/stats").json()["pending_approvals"], 0);
    assert_eq!(
        get_with(&server, &admin, "/api/v1/queues").json()["all"],
        json!({"running": 0, "waiting": 0})
    );
    eventually("the refusal is audited", || {
        server.data_lines("audit.jsonl").iter().any(|line| line["event"] == "authz.denied")
    });
}
