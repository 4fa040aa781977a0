//! Tests of the native API: runs, events, approvals, lists of names, the `OpenAPI` document, and other principals.

use std::io::{Read, Write};
use std::net::TcpStream;

use haft_model_server::{ResponsePace, Script, ScriptStep};
use haft_store::api_keys::{KeyLimits, KeyScope};
use haft_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use super::approvals::types;
use super::fixture::{Reply, TestServer, key, limited_key, scoped_key};
use super::responses::{ask, poll, text};
use super::tool_server::ToolServer;

fn send_json(server: &TestServer, key: &str, method: Method, path: &str, body: &Value) -> Reply {
    let request = server.without_key(method, path).bearer_auth(key);
    server.send(request.header("content-type", "application/json").body(body.to_string()))
}

fn get_with(server: &TestServer, key: &str, path: &str) -> Reply {
    server.send(server.without_key(Method::GET, path).bearer_auth(key))
}

/// Starts a server whose model never completes its reply to a request with the text `Block`.
fn server() -> TestServer {
    let pace = ResponsePace { between_milliseconds: 600_000, ..ResponsePace::default() };
    let script = Script::of([ScriptStep::text("Hello.")]);
    let script = script.about("Block", [ScriptStep::text("Late.").at_pace(pace)]);
    let config = json!({"models": {"default": "openai/m"}, "serve": {"maxRuns": 1}});
    TestServer::configured(script, &config, &[])
}

/// Returns the data of the events of a stream.
fn data(reply: &Reply) -> Vec<Value> {
    let lines = reply.text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns true if two replies contain the same error.
fn is_same_error(reply: &Reply, other: &Reply) -> bool {
    let message = |reply: &Reply| {
        serde_json::from_str::<Value>(&reply.text).map(|body| body["error"]["message"].clone()).ok()
    };
    reply.status == other.status && message(reply) == message(other)
}

#[test]
fn every_documented_route_exists_and_needs_a_key() {
    let server = server();
    let document = server.get("/api/v1/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    // A route also answers 404 for the unknown id `none`, so compare the message with the message for an unknown path.
    let unknown = server.get("/api/v1/none");
    assert_eq!(unknown.status, 404, "{}", unknown.text);
    let mut routes = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let path =
                ["{id}", "{handle}", "{name}"].iter().fold(path.clone(), |path, of| path.replace(of, "none"));
            let path = format!("/api/v1{path}");
            let method: Method = method.to_uppercase().parse().unwrap();
            let reply = send_json(&server, &server.key, method.clone(), &path, &json!({"approve": true}));
            let is_route = reply.status != 405 && !is_same_error(&reply, &unknown);
            assert!(is_route, "{method} {path}: {} {}", reply.status, reply.text);
            let open = server.send(server.without_key(method.clone(), &path));
            // After ten requests without a key, the address is limited.
            assert!([401, 429].contains(&open.status), "{method} {path}: {}", open.status);
            routes += 1;
        }
    }
    assert_eq!(routes, 23);
    let command = json!({"command": "sh"});
    for (method, path) in [(Method::POST, "/api/v1/servers"), (Method::PUT, "/api/v1/agents")] {
        let reply = send_json(&server, &server.key, method, path, &command);
        assert_eq!(reply.status, 405, "no route adds a command: {path}");
    }
    let run = send_json(&server, &server.key, Method::POST, "/api/v1/runs", &command);
    assert_eq!((run.status, &run.json()["error"]["param"]), (400, &json!("command")), "{}", run.text);
    let admin = scoped_key(&server.store, &[KeyScope::Api, KeyScope::Admin]);
    let tool = send_json(&server, &admin, Method::PUT, "/api/v1/tools/current_date", &command);
    assert_eq!((tool.status, &tool.json()["error"]["param"]), (400, &json!("command")), "{}", tool.text);
}

#[test]
fn only_the_owner_can_list_follow_and_cancel_a_run() {
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
    let session = ended.replace("/runs/", "/sessions/");
    let shown = server.get(&session).json();
    assert_eq!((&shown["state"], &shown["model_requests"]), (&json!("ended"), &json!(1)), "{shown}");
    assert!(shown["last_ms"].as_u64() >= shown["started_ms"].as_u64(), "{shown}");
    let sessions = server.get("/api/v1/sessions").json();
    assert_eq!(sessions["data"].as_array().unwrap().len(), 3, "{sessions}");
    assert!(sessions["data"].as_array().unwrap().contains(&shown), "{sessions}");
    assert_eq!(get_with(&server, &eve, &session).status, 404);
    assert_eq!(get_with(&server, &eve, "/api/v1/sessions").json(), json!({"data": [], "has_more": false}));
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
fn decision_continues_a_response_with_its_conversation_and_servers() {
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

/// Returns the handle of a stored output in a response, as a part of a path.
fn handle_in(response: &Value) -> String {
    let shown = response["output"][0]["output"].as_str().unwrap();
    let is_handle = |word: &&str| word.contains('-') && word.contains('/');
    let handle = shown.split(|c: char| !(c.is_ascii_alphanumeric() || "-/_.".contains(c))).find(is_handle);
    handle.unwrap_or_else(|| panic!("no handle in {shown}")).replace('/', "%2F")
}

#[test]
fn stored_output_is_read_by_range_and_searched() {
    let tools = ToolServer::start();
    // Make the output larger than one mebibyte, the maximum of one read.
    let lines: Vec<String> = (0..5_000).map(|number| format!("line {number} of the output")).collect();
    let begin = format!("{}\n{}\n", lines[..4_999].join("\n"), "x".repeat(1 << 20));
    tools.answer_with(&format!("{begin}{}", lines[4_999]));
    let steps = [ScriptStep::call("docs__look", json!({"n": 1})), ScriptStep::text("Done.")];
    let server = TestServer::configured(Script::of(steps), &tools.config(), &[]);
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "never"});
    let response = ask(&server, &json!({"model": "openai/m", "input": "Look.", "tools": [tool]}));
    let run = server.get("/api/v1/runs").json()["data"][0]["id"].as_str().unwrap().to_owned();
    let handle = handle_in(&response);
    let part = |query: &str| server.get(&format!("/api/v1/runs/{run}/outputs/{handle}?{query}"));
    let begin = part("bytes=6").json();
    assert_eq!((&begin["text"], &begin["to"]), (&json!("line 0"), &json!(6)), "{begin}");
    assert_eq!(begin["is_end"], false);
    let found = part("find=line+4999").json();
    assert_eq!((found["lines"].as_array().unwrap().len(), &found["is_end"]), (1, &json!(true)), "{found}");
    let line = &found["lines"][0];
    assert_eq!(line["text"], "line 4999 of the output");
    let bytes = line["to"].as_u64().unwrap() - line["from"].as_u64().unwrap();
    let read = part(&format!("from={}&bytes={bytes}", line["from"])).json();
    assert_eq!((&read["text"], &read["is_end"]), (&line["text"], &json!(true)), "the positions can be read");
    let many = part("find=of+the").json();
    assert_eq!((many["lines"].as_array().unwrap().len(), &many["is_end"]), (200, &json!(false)));
    let next = part(&format!("find=of+the&from={}", many["to"])).json();
    assert_eq!(next["lines"][0]["text"], "line 200 of the output");
    assert_eq!(part("find=none+such").json()["lines"], json!([]));
    assert_eq!(part("bytes=0").json()["error"]["param"], "bytes");
    assert_eq!(part("bytes=9&find=line").json()["error"]["param"], "bytes");
    let eve = key(&server.store, "default", "eve", None);
    let foreign = format!("/api/v1/runs/{run}/outputs/{handle}?find=line");
    assert_eq!(get_with(&server, &eve, &foreign).status, 404);
    assert_eq!(server.get(&format!("/api/v1/runs/{run}/outputs/none")).status, 404);
}

/// Sends a request whose path reaches the server as it is, and returns the status and the body of the reply. The HTTP
/// client of the other tests would resolve dots in the path.
fn get_exactly(server: &TestServer, path: &str) -> (String, String) {
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n", server.key);
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head[9..12].to_owned(), body.to_owned())
}

#[test]
fn handle_of_a_stored_output_reaches_no_other_file_and_no_other_run() {
    let tools = ToolServer::start();
    tools.answer_with(&"a line of the output\n".repeat(50_000));
    let look = || [ScriptStep::call("docs__look", json!({"n": 1})), ScriptStep::text("Done.")];
    let script = Script::default().about("First", look()).about("Second", look());
    let server = TestServer::configured(script, &tools.config(), &[]);
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "never"});
    let run = |input: &str| {
        let response = ask(&server, &json!({"model": "openai/m", "input": input, "tools": [tool]}));
        let run = server.get("/api/v1/runs").json()["data"][0]["id"].as_str().unwrap().to_owned();
        (format!("/api/v1/runs/{run}/outputs"), handle_in(&response))
    };
    let ((first, handle), (second, foreign)) = (run("First"), run("Second"));
    let own = get_exactly(&server, &format!("{first}/{handle}"));
    assert!(own.0 == "200" && own.1.contains("a line of the output"), "{own:?}");
    assert_eq!(get_exactly(&server, &format!("{second}/{foreign}")).0, "200");
    assert!(server.data().join("api-keys.json").is_file(), "the file that the handles below name");

    let mut handles =
        vec![foreign, format!("{handle}%00"), format!("{handle}%2F.."), "%00".into(), ".".into()];
    for depth in 1..=6 {
        let names = ["api-keys.json", "..%2Fapi-keys.json"];
        let ways = ["../", "..%2F", "%2e%2e/", "%2e%2e%2f", "%252e%252e%252f", "..%5C", "x/../"];
        for (way, name) in ways.iter().flat_map(|way| names.map(|name| (way, name))) {
            handles.push(format!("{}{name}", way.repeat(depth)));
            handles.push(format!("{handle}%2F{}{name}", way.repeat(depth)));
        }
    }
    let path = server.data().join("api-keys.json").display().to_string();
    handles.extend([path.replace('/', "%2F"), format!("%2F{path}")]);
    for wrong in handles {
        let (status, body) = get_exactly(&server, &format!("{first}/{wrong}"));
        assert_eq!(status, "404", "{wrong}: {body}");
        assert!(body.contains("\"not_found\"") && !body.contains("a line of the output"), "{wrong}: {body}");
    }
}

#[test]
fn catalog_hides_server_commands_and_stats_require_the_admin_scope() {
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
    let admin = scoped_key(&server.store, &[KeyScope::Api, KeyScope::Admin]);
    let groups = get_with(&server, &admin, "/api/v1/groups");
    let is_g = |group: &&Value| group["name"] == "g";
    let g = groups.json()["data"].as_array().unwrap().iter().find(is_g).cloned().unwrap();
    assert_eq!(g, json!({"name": "g", "patterns": ["local__*"], "tools": [], "active": true}));
    let plain = server.get("/api/v1/groups");
    assert!(!plain.text.contains("local__"), "the key can use no tool of the group: {}", plain.text);
    let tools = server.get("/api/v1/tools");
    assert_eq!(tools.json()["unknown_servers"], json!(["local"]), "{}", tools.text);
    for shown in [groups.text, plain.text, tools.text] {
        assert!(!shown.contains("secret"), "{shown}");
    }
    assert_eq!(server.get("/api/v1/models").json(), server.get("/v1/models").json());
    assert_eq!(server.get("/api/v1/stats").status, 403);
    assert_eq!(get_with(&server, &admin, "/api/v1/stats").json()["pending_approvals"], 0);
    assert_eq!(
        get_with(&server, &admin, "/api/v1/queues").json()["all"],
        json!({"running": 0, "waiting": 0})
    );
    eventually("the refusal is audited", || {
        server.data_lines("audit.jsonl").iter().any(|line| line["event"] == "authz.denied")
    });
}

/// Returns the configuration of a server with the tools `docs__add` and `docs__look`, and with further settings.
fn config_with(tools: &ToolServer, more: &[(&str, Value)]) -> Value {
    let mut config = tools.config();
    for (key, value) in more {
        config[*key] = value.clone();
    }
    config
}

fn names(list: &Value) -> Vec<&str> {
    list["data"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn tool_list_of_a_key_says_why_a_tool_is_inactive() {
    let tools = ToolServer::start();
    let rules = json!({"rules": [{"tool": "docs__look", "decision": "ask"}]});
    let config = config_with(&tools, &[("toolsDenied", json!(["docs__add"])), ("policy", rules)]);
    let server = TestServer::configured(Script::of([ScriptStep::text("x")]), &config, &[]);
    let listed = server.get("/api/v1/tools").json();
    let plain = names(&listed);
    assert!(plain.contains(&"docs__add") && plain.contains(&"docs__look"), "{listed}");
    assert!(!plain.contains(&"bash") && !plain.contains(&"read"), "the key lacks the scope: {listed}");
    assert_eq!(server.get("/api/v1/tools/bash").status, 404);
    let look = server.get("/api/v1/tools/docs__look").json();
    let expected = json!({
        "name": "docs__look", "kind": "mcp", "source": "docs", "groups": ["docs"], "effects": "read-only",
        "decision": "ask", "active": true, "description": "Looks.",
        "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    });
    assert_eq!(look, expected);
    let add = server.get("/api/v1/tools/docs__add").json();
    assert_eq!(
        (&add["active"], &add["reason"]),
        (&json!(false), &json!("`toolsDenied` of the configuration matches this tool"))
    );
    let hidden = [&add["description"], &add["input_schema"]];
    assert_eq!(hidden, [&Value::Null; 2], "a tool that cannot be called reveals nothing: {add}");
    let builtin = scoped_key(&server.store, &[KeyScope::Api, KeyScope::BuiltinTools]);
    assert_eq!(get_with(&server, &builtin, "/api/v1/tools/bash").json()["kind"], "builtin");
    let groups = server.get("/api/v1/groups").json();
    assert!(names(&groups).contains(&"docs"), "{groups}");
    let page = server.get("/api/v1/tools?limit=1&skip=1").json();
    assert_eq!((names(&page), &page["has_more"]), (vec![plain[1]], &json!(plain.len() > 2)), "{page}");
}

fn switch(server: &TestServer, key: &str, path: &str, active: bool) -> Reply {
    send_json(server, key, Method::PUT, &format!("/api/v1/{path}"), &json!({"active": active}))
}

#[test]
fn body_of_a_decision_is_limited_to_64_kibibytes() {
    let server = server();
    let admin = scoped_key(&server.store, &[KeyScope::Api, KeyScope::Admin, KeyScope::Approvals]);
    let routes = [
        (Method::POST, "/api/v1/approvals/none"),
        (Method::PUT, "/api/v1/tools/bash"),
        (Method::PUT, "/api/v1/groups/builtin"),
    ];
    for (method, path) in routes {
        let send = |bytes: usize| {
            let body = json!({"padding": "x".repeat(bytes)});
            send_json(&server, &admin, method.clone(), path, &body)
        };
        let large = send(64 << 10);
        assert_eq!(large.status, 413, "{path}: {}", large.text);
        assert!(large.text.contains("more than 65536 bytes"), "{path}: {}", large.text);
        assert_eq!(send(60_000).status, 400, "{path}");
    }
}

#[test]
fn tool_is_turned_off_for_new_runs_and_new_calls_until_it_is_turned_on() {
    let tools = ToolServer::start();
    let look = |number: i32| ScriptStep::call("docs__look", json!({"n": number}));
    let steps = [look(1), look(2), ScriptStep::text("Done.")];
    let mut server = TestServer::configured(Script::of(steps), &tools.config(), &[]);
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "never"});
    let request = json!({"model": "openai/m", "input": "Look.", "tools": [tool], "background": true});
    assert_eq!(
        switch(&server, &server.key, "tools/docs__look", false).status,
        403,
        "needs the scope `admin`"
    );
    let admin = scoped_key(&server.store, &[KeyScope::Api, KeyScope::Admin]);
    assert_eq!(switch(&server, &admin, "tools/none", false).status, 404);

    tools.hold_calls();
    let first = ask(&server, &request);
    eventually("the first call runs", || tools.calls().len() == 1);
    let off = switch(&server, &admin, "tools/docs__look", false);
    assert_eq!((off.status, &off.json()["active"]), (200, &json!(false)), "{}", off.text);
    tools.release_calls();
    poll(&server, first["id"].as_str().unwrap(), "completed");
    assert_eq!(tools.calls().len(), 1, "the second call of the run is refused");
    let told = server.model.requests().last().unwrap().raw.clone();
    for part in ["default/local", "PUT /api/v1/tools/docs__look", "scope `admin`"] {
        assert!(told.contains(part), "{part}: {told}");
    }

    server.restart();
    let shown = server.get("/api/v1/tools/docs__look").json();
    assert_eq!((&shown["active"], &shown["input_schema"]), (&json!(false), &Value::Null), "{shown}");
    let second = ask(&server, &request);
    poll(&server, second["id"].as_str().unwrap(), "completed");
    assert_eq!(tools.calls().len(), 1, "a switch survives a restart");
    let asked = server.model.requests();
    let of_second = &asked[asked.len() - 2].body;
    assert!(of_second["tools"].to_string().contains("docs__add"), "{of_second}");
    assert!(
        !of_second["tools"].to_string().contains("docs__look"),
        "models do not see the tool: {of_second}"
    );

    let on = switch(&server, &admin, "tools/docs__look", true);
    assert_eq!(on.json(), json!({"name": "docs__look", "active": true}));
    let third = ask(&server, &request);
    poll(&server, third["id"].as_str().unwrap(), "completed");
    assert_eq!(tools.calls().len(), 3, "both calls of the third run reach the tool");
    eventually("both changes are audited", || {
        let lines = server.data_lines("audit.jsonl");
        let switched = lines.iter().filter(|line| line["event"] == "tool.switched");
        let found: Vec<_> = switched.map(|line| (line["target"].clone(), line["detail"].clone())).collect();
        found == [(json!("docs__look"), json!("off")), (json!("docs__look"), json!("on"))]
    });
}

#[test]
fn turning_a_tool_or_group_on_never_overrides_the_configuration() {
    let tools = ToolServer::start();
    let config = config_with(&tools, &[("toolsDenied", json!(["docs__add"]))]);
    let steps =
        [ScriptStep::call("docs__add", json!({"n": 1})), ScriptStep::call("docs__look", json!({"n": 2}))];
    let steps = steps.into_iter().chain([ScriptStep::text("Done.")]);
    let server = TestServer::configured(Script::of(steps), &config, &[]);
    let admin = scoped_key(&server.store, &[KeyScope::Api, KeyScope::Admin]);
    let reason = "`toolsDenied` of the configuration matches this tool";
    let denied = json!({"name": "docs__add", "active": false, "reason": reason});
    assert_eq!(switch(&server, &admin, "tools/docs__add", true).json(), denied);
    assert_eq!(switch(&server, &admin, "groups/none", false).status, 404);
    let off = switch(&server, &admin, "groups/docs", false).json();
    assert_eq!(off["active"], false, "{off}");
    let look = server.get("/api/v1/tools/docs__look").json();
    assert!(look["reason"].as_str().unwrap().contains("PUT /api/v1/groups/docs"), "{look}");
    let on = switch(&server, &admin, "tools/docs__look", true).json();
    assert_eq!(on["active"], false, "the tool is inactive while its group is off: {on}");
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "never"});
    ask(&server, &json!({"model": "openai/m", "input": "Go.", "tools": [tool]}));
    assert_eq!(tools.calls(), [] as [Value; 0]);
    assert_eq!(switch(&server, &admin, "groups/docs", true).json(), json!({"name": "docs", "active": true}));
    assert_eq!(server.get("/api/v1/tools/docs__look").json()["active"], true);
}

/// An agent with both tools of the server `docs`, and at most three turns.
const READER: &str =
    "---\ndescription: Reads.\nmodels: openai/m\ntools: [docs__*]\nmaxTurns: 3\n---\nYou read.\n";

fn start_run(server: &TestServer, key: &str, body: &Value, idempotency_key: Option<&str>) -> Reply {
    let request = server.without_key(Method::POST, "/api/v1/runs").bearer_auth(key);
    let request =
        idempotency_key.into_iter().fold(request, |request, key| request.header("idempotency-key", key));
    server.send(request.header("content-type", "application/json").body(body.to_string()))
}

#[test]
fn run_is_started_once_per_idempotency_key() {
    let server = server();
    let body = json!({"model": "openai/m", "input": "Hi"});
    let first = start_run(&server, &server.key, &body, Some("k"));
    assert_eq!(first.status, 202, "{}", first.text);
    let first = first.json();
    let response = poll(&server, first["response"].as_str().unwrap(), "completed");
    assert_eq!(text(&response), "Hello.");
    let again = start_run(&server, &server.key, &body, Some("k")).json();
    assert_eq!((&again["id"], &again["response"]), (&first["id"], &first["response"]), "{again}");
    assert_eq!(server.model.requests().len(), 1);
    let other = start_run(&server, &server.key, &json!({"model": "openai/m", "input": "Ho"}), Some("k"));
    assert_eq!(other.json()["error"]["code"], "idempotency_key_reused", "{}", other.text);
    let path = format!("/api/v1/runs/{}", first["id"].as_str().unwrap());
    assert_eq!(server.get(&path).json()["status"], "ended");
    let eve = key(&server.store, "default", "eve", None);
    assert_eq!(get_with(&server, &eve, &path).status, 404);
    let unknown = start_run(&server, &server.key, &json!({"agent": "none", "input": "x"}), None);
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (400, &json!("agent_not_found")));
    let costly = json!({"model": "openai/m", "input": "x", "max_cost_usd": 1});
    let costly = start_run(&server, &server.key, &costly, None);
    assert_eq!(
        (costly.status, &costly.json()["error"]["param"]),
        (400, &json!("max_cost_usd")),
        "the model has no price"
    );
}

#[test]
fn run_has_the_limits_and_scopes_of_a_response() {
    let pace = ResponsePace { between_milliseconds: 600_000, ..ResponsePace::default() };
    let script = Script::of([ScriptStep::text("Late.").at_pace(pace)]);
    let config = json!({"models": {"default": "openai/m"}});
    let all = "---\ndescription: Works.\nmodels: openai/m\n---\nYou work.\n";
    let server = TestServer::configured(script, &config, &[("worker", all)]);
    let refused = start_run(&server, &server.key, &json!({"agent": "worker", "input": "x"}), None);
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (403, &json!("insufficient_scope")));
    let named = json!({"model": "openai/m", "input": "x", "tools": ["bash"]});
    assert_eq!(start_run(&server, &server.key, &named, None).status, 403, "built-in tools need the scope");
    let limits = KeyLimits { concurrent_responses: Some(1), ..KeyLimits::default() };
    let key = limited_key(&server.store, limits);
    let body = json!({"model": "openai/m", "input": "x"});
    assert_eq!(start_run(&server, &key, &body, None).status, 202);
    assert_eq!(start_run(&server, &key, &body, None).status, 429);
}

#[test]
fn run_request_can_only_narrow_the_tools_and_turns_of_its_agent() {
    let check = |limits: Value, calls: &[i64]| {
        let tools = ToolServer::start();
        let call = |name: &str, number: i64| ScriptStep::call(name, json!({"n": number}));
        let steps = [call("docs__add", 1), call("docs__look", 2), call("docs__look", 3)];
        let steps = steps.into_iter().chain([ScriptStep::text("Done.")]);
        let server = TestServer::configured(Script::of(steps), &tools.config(), &[("reader", READER)]);
        let mut body = json!({"agent": "reader", "input": "Go."});
        body.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        let started = start_run(&server, &server.key, &body, None);
        assert_eq!(started.status, 202, "{body}: {}", started.text);
        let run = format!("/api/v1/runs/{}", started.json()["id"].as_str().unwrap());
        eventually("the run has ended", || server.get(&run).json()["status"] == "ended");
        let made: Vec<_> = tools.calls().iter().map(|call| call["n"].as_i64().unwrap()).collect();
        assert_eq!(made, calls, "{body}");
    };
    // In the last turn of a run, the model cannot call tools.
    check(json!({}), &[1, 2]);
    check(json!({"max_turns": 50}), &[1, 2]);
    check(json!({"max_turns": 2}), &[1]);
    check(json!({"max_tool_calls": 1}), &[1]);
    // A call that the run refuses does not use up a turn.
    check(json!({"tools": ["docs__look"]}), &[2, 3]);
    check(json!({"tools": ["docs__look", "bash"]}), &[2, 3]);
    check(json!({"tools": []}), &[]);
}

#[test]
fn every_listed_tool_can_be_named_in_a_run_under_every_naming_scheme() {
    for naming in ["double", "claude", "single", "bare"] {
        let tools = ToolServer::start();
        let server = json!({"url": tools.url()});
        let ping = json!({"method": "GET", "url": "http://127.0.0.1:9/ping", "description": "Pings."});
        let config = json!({
            "naming": naming,
            "models": {"default": "openai/m"},
            "mcpServers": {"my docs": server, "a__b": server},
            "restTools": {"ping": ping},
        });
        let replies = Script::of([(); 5].map(|()| ScriptStep::text("Done.")));
        let server = TestServer::configured(replies, &config, &[]);
        let listed = server.get("/api/v1/tools").json();
        let of_kind = |kind: &str| {
            let all = listed["data"].as_array().unwrap().iter().filter(|tool| tool["kind"] == kind);
            all.map(|tool| tool["name"].as_str().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!((of_kind("mcp").len(), of_kind("rest").len()), (4, 1), "{naming}: {listed}");
        for name in of_kind("mcp").into_iter().chain(of_kind("rest")) {
            let body = json!({"model": "openai/m", "input": "Go.", "tools": [name]});
            let started = start_run(&server, &server.key, &body, None);
            assert_eq!(started.status, 202, "{naming} {name}: {}", started.text);
            let run = format!("/api/v1/runs/{}", started.json()["id"].as_str().unwrap());
            eventually("the run has ended", || server.get(&run).json()["status"] == "ended");
            let sent = server.model.requests().last().unwrap().raw.clone();
            assert!(
                sent.contains(&format!("\"{name}\"")),
                "{naming} {name}: the model sees the tool: {sent}"
            );
        }
        let hidden = json!({"model": "openai/m", "input": "Go.", "tools": ["bash"]});
        assert_eq!(start_run(&server, &server.key, &hidden, None).status, 403, "{naming}");
    }
}

#[test]
fn key_without_the_builtin_tools_scope_can_approve_a_call_of_an_http_tool() {
    let config = json!({
        "models": {"default": "openai/m"},
        "restTools": {"ping": {"url": "http://127.0.0.1:9/ping", "method": "GET", "description": "Pings."}},
        "policy": {"rules": [{"tool": "rest__ping", "decision": "ask"}]},
    });
    let script = Script::of([ScriptStep::call("rest__ping", json!({})), ScriptStep::text("Done.")]);
    let server = TestServer::configured(script, &config, &[]);
    let key = scoped_key(&server.store, &[KeyScope::Api, KeyScope::Approvals]);
    let body = json!({"model": "openai/m", "input": "Go.", "tools": ["rest__ping"]});
    let started = start_run(&server, &key, &body, None);
    assert_eq!(started.status, 202, "{}", started.text);
    let first = poll(&server, started.json()["response"].as_str().unwrap(), "completed");
    let item = first["output"].as_array().unwrap().last().unwrap();
    assert_eq!(item["type"], "mcp_approval_request", "{first}");
    let answer = json!({"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": true});
    let next = json!({"model": "openai/m", "previous_response_id": first["id"], "input": [answer]});
    let reply = send_json(&server, &key, Method::POST, "/v1/responses", &next);
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(text(&reply.json()), "Done.");
}
