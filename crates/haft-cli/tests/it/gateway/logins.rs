//! Tests of upstream servers that require a login: the user of a client logs in, and each principal has its own account.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use haft_testkit::{AccountServer, LoginFault, TestTree, TokenIssuer, eventually};
use serde_json::{Value, json};

use super::super::mcp::real::module;
use super::http::{GatewayReply, GatewayServer, request};
use super::{McpClient, place, text};

const URL_REQUIRED: i64 = -32042;

fn abilities() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}})
}

fn configured(server: &AccountServer, oauth: &Value) -> TestTree {
    configured_with(server, oauth, json!({}))
}

fn configured_with(server: &AccountServer, oauth: &Value, serve: Value) -> TestTree {
    let place = place();
    let mut config = json!({"mcpServers": {"far": {"url": server.url()}}});
    config["mcpServers"]["far"]["oauth"] = oauth.clone();
    config["serve"] = serve;
    place.file("home/haft.json", &config.to_string());
    place
}

/// Sends a request as a browser does, and returns the whole response.
fn browse(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> GatewayReply {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let mut head = format!("{method} /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&[name, ": ", value, "\r\n"].concat());
    }
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    GatewayReply::of(answer)
}

/// Logs in at the authorization server, and returns the address of the redirect.
fn consent(url: &str, account: &str) -> String {
    browse("GET", &format!("{url}&account={account}"), &[], "").header_as_sent("location")
}

/// Returns the login of an error that requires a URL.
fn elicitation(reply: &Value) -> Value {
    assert_eq!(reply["error"]["code"], URL_REQUIRED, "{reply}");
    let elicitation = reply["error"]["data"]["elicitations"][0].clone();
    assert_eq!(elicitation["mode"], "url", "{reply}");
    assert!(elicitation["message"].as_str().unwrap().contains("far"), "{reply}");
    elicitation
}

fn called(client: &mut McpClient, tool: &str) -> Value {
    let id = client.begin("tools/call", json!({"name": tool, "arguments": {}}));
    client.reply(id)
}

fn url_of(elicitation: &Value) -> String {
    elicitation["url"].as_str().unwrap().to_owned()
}

#[test]
fn client_with_handshake_gets_the_url_and_repeats_its_call_after_the_login() {
    let server = AccountServer::start();
    let place = configured(&server, &json!({}));
    let mut client = McpClient::handshake(&place, &[], abilities());
    assert!(client.names().contains(&"far__haft_login".to_owned()), "the tools are unknown before the login");
    let first = elicitation(&called(&mut client, "far__haft_login"));
    let again = elicitation(&called(&mut client, "far__haft_login"));
    assert_eq!(first, again, "a second call returns the open login");
    let back = consent(&url_of(&first), "local");
    assert_eq!(
        browse("GET", &back.replace("state=", "state=x"), &[], "").status(),
        400,
        "haft refuses an unknown state"
    );
    assert_eq!(browse("GET", &back, &[], "").status(), 200);
    let finished = client.wait_for("notifications/elicitation/complete");
    assert_eq!(finished["params"]["elicitationId"], first["elicitationId"]);
    client.wait_for("notifications/tools/list_changed");
    assert!(client.names().contains(&"far__of_local".to_owned()));
    assert_eq!(text(&client.call("far__whoami", json!({}))), "local");
    assert!(text(&client.call("far__haft_login", json!({}))).contains("finished"));
    let mode = place.path("home/data/tokens/far.json").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A client on the standard streams acts for the local user, so `haft call` uses the token from the client's login.
    let called = place.haft(&["call", "far__whoami", "{}"]).output().expect_code(0);
    assert!(called.stdout.contains("local"), "{called:?}");

    // A token that is no longer valid leads to the next login, even for resources.
    server.revoke("local");
    let required = elicitation(&self::called(&mut client, "far__whoami"));
    let read = client.begin("resources/read", json!({"uri": "haft:far/who://am-i"}));
    assert_eq!(elicitation(&client.reply(read)), required);
    browse("GET", &consent(&url_of(&required), "other"), &[], "");
    client.wait_for("notifications/elicitation/complete");
    assert_eq!(text(&client.call("far__whoami", json!({}))), "other");
    let read = client.ask("resources/read", json!({"uri": "haft:far/who://am-i"}));
    assert_eq!(read["contents"][0]["text"], "other", "{read}");
    assert_eq!(client.end(), 0);
}

/// Returns a client that has logged in, and whose token is no longer valid.
fn with_revoked_token(server: &AccountServer, mut client: McpClient) -> McpClient {
    client.names();
    let reply = called(&mut client, "far__haft_login");
    if client.meta.is_none() {
        browse("GET", &consent(&url_of(&elicitation(&reply)), "local"), &[], "");
        client.wait_for("notifications/elicitation/complete");
    } else {
        let (url, state) = asked(&reply);
        browse("GET", &consent(&url, "local"), &[], "");
        client.ask("tools/call", answered("far__haft_login", &state, "accept"));
    }
    assert_eq!(text(&client.call("far__whoami", json!({}))), "local");
    server.revoke("local");
    client
}

#[test]
fn prompts_completions_and_subscriptions_lead_to_the_login() {
    let server = AccountServer::start();
    let argument = json!({"name": "whom", "value": ""});
    let requests = [
        ("prompts/get", json!({"name": "far__greet"})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "far__greet"}, "argument": argument}),
        ),
        ("resources/subscribe", json!({"uri": "haft:far/who://am-i"})),
    ];
    for (method, params) in requests {
        let place = configured(&server, &json!({}));
        let mut client = with_revoked_token(&server, McpClient::handshake(&place, &[], abilities()));
        let refused = client.begin(method, params.clone());
        let login = elicitation(&client.reply(refused));
        browse("GET", &consent(&url_of(&login), "other"), &[], "");
        let finished = client.wait_for("notifications/elicitation/complete");
        assert_eq!(finished["params"]["elicitationId"], login["elicitationId"], "{method}");
        let result = client.ask(method, params);
        assert!(
            method == "resources/subscribe" || result.to_string().contains("other"),
            "{method}: {result}"
        );
        // Ending a subscription needs no account at the server, so haft must not ask for a login.
        server.revoke("other");
        let ended = client.error("resources/unsubscribe", json!({"uri": "haft:far/who://am-i"}));
        assert_ne!(ended, URL_REQUIRED, "{method}");
        assert_eq!(client.end(), 0);
    }
}

#[test]
fn stateless_client_must_log_in_for_a_prompt_but_not_for_a_completion() {
    let server = AccountServer::start();
    let place = configured(&server, &json!({}));
    let mut client = with_revoked_token(&server, McpClient::stateless(&place, &[], abilities()));
    let completion = json!({
        "ref": {"type": "ref/prompt", "name": "far__greet"}, "argument": {"name": "whom", "value": ""},
    });
    // The stateless revision allows no questions in the reply to `completion/complete`.
    let refused = client.begin("completion/complete", completion.clone());
    let refused = client.reply(refused);
    assert!(refused["error"]["message"].as_str().unwrap().contains("requires a login"), "{refused}");
    let prompt = client.begin("prompts/get", json!({"name": "far__greet"}));
    let (url, state) = asked(&client.reply(prompt));
    browse("GET", &consent(&url, "other"), &[], "");
    let mut repeated = answered("far__greet", &state, "accept");
    repeated.as_object_mut().unwrap().remove("arguments");
    let got = client.ask("prompts/get", repeated);
    assert_eq!(got["messages"][0]["content"]["text"], "other", "{got}");
    assert_eq!(client.ask("completion/complete", completion)["completion"]["values"], json!(["other"]));
    assert_eq!(client.end(), 0);
}

#[test]
fn typescript_sdk_gets_the_url_of_the_login_and_repeats_its_call() {
    let server = AccountServer::start();
    let place = configured(&server, &json!({}));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp_clients/url_login_v1.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(haft_testkit::binary());
    command.env("HAFT_HOME", place.path("home")).env("MCP_SDK", module());
    let ran = command.current_dir(place.path("ws")).stdin(Stdio::null()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let report: Value =
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}\n{stdout}\n{stderr}"));
    assert_eq!(report, json!({"page": 200, "completed": true, "whoami": "sdk"}), "{stderr}");
}

/// Returns the URL of a reply that asks for a login, and its state.
fn asked(reply: &Value) -> (String, Value) {
    let result = &reply["result"];
    assert_eq!(result["resultType"], "input_required", "{reply}");
    let question = &result["inputRequests"]["login"];
    assert_eq!(
        (&question["method"], &question["params"]["mode"]),
        (&json!("elicitation/create"), &json!("url"))
    );
    assert_eq!(question["params"].get("elicitationId"), None, "{reply}");
    (url_of(&question["params"]), result["requestState"].clone())
}

fn answered(tool: &str, state: &Value, action: &str) -> Value {
    json!({
        "name": tool, "arguments": {}, "requestState": state,
        "inputResponses": {"login": {"action": action}},
    })
}

#[test]
fn stateless_client_gets_the_login_url_as_a_question_and_repeats_its_call() {
    let server = AccountServer::start();
    let place = configured(&server, &json!({}));
    let mut client = McpClient::stateless(&place, &[], abilities());
    assert!(client.names().contains(&"far__haft_login".to_owned()));
    let (_, state) = asked(&called(&mut client, "far__haft_login"));
    let declined = client.ask("tools/call", answered("far__haft_login", &state, "decline"));
    assert!(declined["isError"] == true && text(&declined).contains("did not log in"), "{declined}");
    let (url, state) = asked(&called(&mut client, "far__haft_login"));
    // The repeated request waits for the end of the login.
    let repeated = client.begin("tools/call", answered("far__haft_login", &state, "accept"));
    browse("GET", &consent(&url, "local"), &[], "");
    let repeated = client.reply(repeated);
    assert!(text(&repeated["result"]).contains("finished"), "{repeated}");
    assert_eq!(text(&client.call("far__whoami", json!({}))), "local");

    // If a call led to the login, the repeated request makes this call after the login.
    server.revoke("local");
    let (url, state) = asked(&called(&mut client, "far__whoami"));
    browse("GET", &consent(&url, "other"), &[], "");
    let repeated = client.ask("tools/call", answered("far__whoami", &state, "accept"));
    assert_eq!(text(&repeated), "other");
    assert_eq!(
        client.error("tools/call", answered("far__whoami", &state, "accept")),
        -32602,
        "a state can be used only once"
    );
    assert_eq!(client.end(), 0);
}

#[test]
fn client_that_cannot_open_urls_gets_the_hint_for_the_operator() {
    let server = AccountServer::start();
    let place = configured(&server, &json!({}));
    let mut client = McpClient::handshake(&place, &[], json!({"elicitation": {}}));
    assert!(!client.names().iter().any(|name| name.starts_with("far__")));
    let mut able = McpClient::handshake(&place, &[], abilities());
    able.names();
    let login = elicitation(&called(&mut able, "far__haft_login"));
    browse("GET", &consent(&url_of(&login), "local"), &[], "");
    able.wait_for("notifications/elicitation/complete");
    assert_eq!(able.end(), 0);
    server.revoke("local");
    let mut client = McpClient::handshake(&place, &[], json!({"elicitation": {}}));
    let refused = client.call("far__whoami", json!({}));
    assert!(refused["isError"] == true && text(&refused).contains("haft mcp login far"), "{refused}");
}

#[test]
fn login_tool_is_offered_only_if_its_server_is_selected() {
    let server = AccountServer::start();
    let place = configured(&server, &json!({}));
    let check = |flags: &[&str], expected: bool| {
        let mut client = McpClient::handshake(&place, flags, abilities());
        assert_eq!(client.names().contains(&"far__haft_login".to_owned()), expected, "{flags:?}");
        if !expected {
            let refused = called(&mut client, "far__haft_login");
            assert_ne!(refused["error"]["code"], URL_REQUIRED, "{refused}");
        }
        assert_eq!(client.end(), 0);
    };
    check(&["--read-only"], true);
    check(&["--group", "far"], true);
    check(&["--tools", "far__*"], true);
    check(&["--tools", "near__*"], false);
    let config = json!({"mcpServers": {"far": {"url": server.url()}}, "toolsDenied": ["far__*"]});
    place.file("home/haft.json", &config.to_string());
    check(&[], false);
}

#[test]
fn pending_login_ends_when_its_client_disconnects() {
    let server = AccountServer::start();
    let place = configured(&server, &json!({}));
    let mut client = McpClient::handshake(&place, &[], abilities());
    client.names();
    let login = elicitation(&called(&mut client, "far__haft_login"));
    let back = consent(&url_of(&login), "local");
    assert_eq!(client.end(), 0);
    let host = back.strip_prefix("http://").unwrap().split_once('/').unwrap().0.to_owned();
    assert!(TcpStream::connect(host).is_err(), "the port is closed");
    assert!(!place.path("home/data/tokens/far.json").exists());
}

#[test]
fn failed_login_stores_no_token_and_can_be_repeated() {
    let server = AccountServer::start();
    let place = configured(&server, &json!({}));
    let mut client = McpClient::handshake(&place, &[], abilities());
    client.names();
    server.set_fault(LoginFault::GarbageMetadata);
    let refused = client.call("far__haft_login", json!({}));
    assert!(refused["isError"] == true, "{refused}");
    let mut last = Value::Null;
    for fault in [LoginFault::NoIssuer, LoginFault::AccessDenied, LoginFault::GarbageToken] {
        server.set_fault(fault);
        let login = elicitation(&called(&mut client, "far__haft_login"));
        assert_ne!(login["url"], last, "{fault:?}: a new login has a new URL");
        browse("GET", &consent(&url_of(&login), "local"), &[], "");
        // haft first removes the failed login from its table. Only after that, the next call starts a new login.
        eventually("the next call starts another login", || {
            elicitation(&called(&mut client, "far__haft_login"))["url"] != login["url"]
        });
        assert!(!place.path("home/data/tokens/far.json").exists(), "{fault:?}");
        last = login["url"].clone();
    }
    server.set_fault(LoginFault::None);
    let login = elicitation(&called(&mut client, "far__haft_login"));
    browse("GET", &consent(&url_of(&login), "local"), &[], "");
    client.wait_for("notifications/elicitation/complete");
    assert_eq!(text(&client.call("far__whoami", json!({}))), "local");
}

/// A client over HTTP with a session.
struct LoginClient<'a> {
    server: &'a GatewayServer,
    headers: Vec<(String, String)>,
}

impl<'a> LoginClient<'a> {
    fn begin(server: &'a GatewayServer, key: Option<&str>) -> Self {
        let mut headers: Vec<(String, String)> =
            key.iter().map(|key| ("Authorization".to_owned(), format!("Bearer {key}"))).collect();
        let mut hello = super::http::initialize();
        hello["params"]["capabilities"] = abilities();
        let greeted = server.post(&borrowed(&headers), &hello);
        assert_eq!(greeted.status(), 200);
        headers.push(("Mcp-Session-Id".into(), greeted.header("mcp-session-id")));
        let client = Self { server, headers };
        // The first list waits until the servers were tried.
        client.names();
        client
    }

    fn ask(&self, method: &str, params: &Value) -> Value {
        self.server.post(&borrowed(&self.headers), &request(7, method, params)).message()
    }

    fn call(&self, tool: &str) -> Value {
        self.ask("tools/call", &json!({"name": tool, "arguments": {}}))
    }

    fn names(&self) -> String {
        self.ask("tools/list", &json!({})).to_string()
    }

    /// Returns the page on which the user begins the login.
    fn login_page(&self) -> String {
        url_of(&elicitation(&self.call("far__haft_login")))
    }
}

fn borrowed(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn key(place: &TestTree, tenant: &str) -> String {
    let created = place.haft(&["keys", "create", tenant, "--tenant", tenant]).output().expect_code(0);
    created.stdout.trim().to_owned()
}

/// Submits the form of a login page.
fn submit(page: &str, key: &str) -> GatewayReply {
    let origin = page.split("/mcp/").next().unwrap().to_owned();
    submit_from(page, key, &[("Origin", &origin)])
}

fn submit_from(page: &str, key: &str, headers: &[(&str, &str)]) -> GatewayReply {
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    browse("POST", page, &[&form, headers].concat(), &format!("key={key}"))
}

/// Returns the link and the cookie of the page after the form.
fn link_and_cookie(reply: &GatewayReply) -> (String, String) {
    assert_eq!(reply.status(), 200, "{reply:?}");
    let text = reply.body();
    let link = text.split("<a href=\"").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&");
    let cookie = reply.header_as_sent("set-cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
    (link, cookie.split(';').next().unwrap().to_owned())
}

/// Logs in on the page as its principal, with this account at the upstream server.
fn log_in(page: &str, key: &str, account: &str) -> GatewayReply {
    let (link, cookie) = link_and_cookie(&submit(page, key));
    browse("GET", &consent(&link, account), &[("Cookie", &cookie)], "")
}

#[test]
fn each_principal_logs_in_with_its_own_account_over_http() {
    let upstream = AccountServer::start();
    let place = configured(&upstream, &json!({}));
    let (anna_key, bert_key) = (key(&place, "anna"), key(&place, "bert"));
    let server = GatewayServer::start(&place, &[]);
    let (anna, bert) =
        (LoginClient::begin(&server, Some(&anna_key)), LoginClient::begin(&server, Some(&bert_key)));
    let page = anna.login_page();
    assert!(page.starts_with(&server.url()) && !page.contains(&anna_key), "{page}");
    let shown = browse("GET", &page, &[], "");
    for part in ["<b>anna/anna</b>", "<b>far</b>", "<b>127.0.0.1</b>"] {
        assert!(shown.body().contains(part), "{part}: {shown:?}");
    }
    let ended = log_in(&page, &anna_key, "anna-account");
    assert!(ended.status() == 200 && ended.body().contains("logged in"), "{ended:?}");
    assert_eq!(anna.call("far__whoami")["result"]["content"][0]["text"], "anna-account");
    assert!(anna.names().contains("far__of_anna"));

    // `bert` uses nothing from the account of `anna`: no token, no connection and no tool list.
    assert!(!bert.names().contains("far__of_anna"), "{}", bert.names());
    // `carl` connects for the first time when haft has already stored the tool list of the account of `anna`.
    let carl = LoginClient::begin(&server, Some(&key(&place, "carl"))).names();
    assert!(!carl.contains("far__of_anna") && carl.contains("far__haft_login"), "{carl}");
    assert_eq!(log_in(&bert.login_page(), &bert_key, "bert-account").status(), 200);
    assert_eq!(bert.call("far__whoami")["result"]["content"][0]["text"], "bert-account");
    assert_eq!(anna.call("far__whoami")["result"]["content"][0]["text"], "anna-account");

    // haft renews each expired token for the principal that it belongs to.
    upstream.expire();
    assert_eq!(bert.call("far__whoami")["result"]["content"][0]["text"], "bert-account");
    assert_eq!(anna.call("far__whoami")["result"]["content"][0]["text"], "anna-account");
    upstream.revoke("anna-account");
    assert_eq!(anna.call("far__whoami")["error"]["code"], URL_REQUIRED);
    assert_eq!(bert.call("far__whoami")["result"]["content"][0]["text"], "bert-account");

    // The local user is another principal, so the token of another principal does not help.
    let local = place.haft(&["call", "far__whoami", "{}"]).output().expect_code(5);
    assert!(local.stderr.contains("haft mcp login far"), "{local:?}");
    for sent in upstream.shown() {
        assert!(!sent.contains(&anna_key) && !sent.contains(&bert_key), "{sent}");
    }
    drop(server);
    let deleted = place.haft(&["store", "delete", "--principal", "bert/bert", "--yes"]).output();
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    let left =
        Command::new("grep").args(["-rl", "bert-account"]).arg(place.path("home/data/tokens")).output();
    assert_eq!(String::from_utf8_lossy(&left.unwrap().stdout), "", "the tokens of the principal are deleted");
}

#[test]
fn only_the_principal_that_asked_can_complete_a_login_over_http() {
    let upstream = AccountServer::start();
    let place = configured(&upstream, &json!({}));
    let (anna_key, bert_key) = (key(&place, "anna"), key(&place, "bert"));
    let server = GatewayServer::start(&place, &[]);
    let anna = LoginClient::begin(&server, Some(&anna_key));
    let page = anna.login_page();
    let origin = page.split("/mcp/").next().unwrap().to_owned();

    // haft must refuse the key of another principal, a wrong key, and forms of other pages.
    let foreign = submit(&page, &bert_key);
    assert!(foreign.status() == 403 && foreign.body().contains("another user"), "{foreign:?}");
    assert_eq!(submit(&page, "haft_wrong").status(), 401);
    assert_eq!(
        submit_from(&page, &anna_key, &[]).status(),
        403,
        "haft refuses a form without an `Origin` header"
    );
    assert_eq!(submit_from(&page, &anna_key, &[("Origin", "null")]).status(), 403);
    assert_eq!(submit_from(&page, &anna_key, &[("Origin", "https://evil.example")]).status(), 403);
    let json = [("Content-Type", "application/json"), ("Origin", origin.as_str())];
    assert_eq!(browse("POST", &page, &json, "{}").status(), 415);
    assert_eq!(browse("GET", &format!("{origin}/mcp/login?id=0"), &[], "").status(), 404);

    for _ in 0..9 {
        submit(&page, "haft_wrong");
    }
    let limited = submit(&page, "haft_wrong");
    let wait = limited.header_as_sent("retry-after").parse::<u32>();
    assert!(limited.status() == 429 && wait.is_ok_and(|wait| (1..=61).contains(&wait)), "{limited:?}");

    // The attacker identifies itself and sends the link of the authorization server to another person.
    let (link, cookie) = link_and_cookie(&submit(&page, &anna_key));
    let back = consent(&link, "victim");
    for stolen in [&[][..], &[("Cookie", "haft_login_0=1")], &[("Cookie", &format!("{cookie}0"))]] {
        let refused = browse("GET", &back, stolen, "");
        assert!(refused.status() == 403 && refused.body().contains("another browser"), "{refused:?}");
    }
    assert_eq!(browse("GET", &back.replace("state=", "state=x"), &[("Cookie", &cookie)], "").status(), 404);
    assert_eq!(anna.call("far__haft_login")["error"]["code"], URL_REQUIRED, "haft still has no token");

    // The right browser completes the login once.
    let back = consent(&link, "anna-account");
    assert_eq!(browse("GET", &back, &[("Cookie", &cookie)], "").status(), 200);
    assert_eq!(
        browse("GET", &back, &[("Cookie", &cookie)], "").status(),
        404,
        "a state can be used only once"
    );
    assert_eq!(browse("GET", &page, &[], "").status(), 404, "a link can be used only once");
    assert_eq!(anna.call("far__whoami")["result"]["content"][0]["text"], "anna-account");
}

#[test]
fn login_pages_are_protected_and_wrong_keys_are_limited() {
    let upstream = AccountServer::start();
    let place = configured(&upstream, &json!({}));
    let anna_key = key(&place, "anna");
    let server = GatewayServer::start(&place, &[]);
    let page = LoginClient::begin(&server, Some(&anna_key)).login_page();
    let shown = browse("GET", &page, &[], "");
    let confirmed = submit(&page, &anna_key);
    for (reply, referrer) in [(&shown, "same-origin"), (&confirmed, "no-referrer")] {
        let policy = reply.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none';") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert_eq!(reply.header("x-frame-options"), "deny");
        assert_eq!(reply.header("cache-control"), "no-store");
        assert_eq!(reply.header("referrer-policy"), referrer);
        assert!(!reply.body().contains("<script") && !reply.body().contains(&anna_key), "{reply:?}");
    }
    let statuses: Vec<u16> = (0..12).map(|_| submit(&page, "haft_wrong").status()).collect();
    assert_eq!((statuses[0], statuses[11]), (401, 429), "{statuses:?}");
    assert_eq!(submit(&page, &anna_key).status(), 200, "a valid key is always accepted");
    let log = std::fs::read_to_string(place.path("home/data/access.jsonl")).unwrap_or_default();
    assert!(!log.contains(&anna_key) && !log.contains(page.split("id=").nth(1).unwrap()), "{log}");
}

#[test]
fn failed_login_over_http_shows_its_reason() {
    let upstream = AccountServer::start();
    let place = configured(&upstream, &json!({}));
    let anna_key = key(&place, "anna");
    let server = GatewayServer::start(&place, &[]);
    let anna = LoginClient::begin(&server, Some(&anna_key));
    for (fault, reason) in [
        (LoginFault::NoIssuer, "has no `iss` field"),
        (LoginFault::AccessDenied, "access_denied"),
        (LoginFault::GarbageToken, "failed"),
    ] {
        upstream.set_fault(fault);
        let ended = log_in(&anna.login_page(), &anna_key, "anna-account");
        assert!(ended.status() == 502 && ended.body().contains(reason), "{fault:?}: {ended:?}");
    }
}

#[test]
fn stateless_client_over_http_is_asked_until_its_user_has_logged_in() {
    let upstream = AccountServer::start();
    let place = configured(&upstream, &json!({}));
    let anna_key = key(&place, "anna");
    let server = GatewayServer::start(&place, &[]);
    let bearer = format!("Bearer {anna_key}");
    let call = |mut params: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": abilities(),
        });
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let method = if name.is_empty() { "tools/list" } else { "tools/call" };
        let headers = [
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", method),
            ("Mcp-Name", name.as_str()),
            ("Authorization", bearer.as_str()),
        ];
        let used = if name.is_empty() { [&headers[..2], &headers[3..]].concat() } else { headers.to_vec() };
        server.post(&used, &request(1, method, &params)).message()
    };
    assert!(call(json!({})).to_string().contains("far__haft_login"));
    let (page, state) = asked(&call(json!({"name": "far__haft_login", "arguments": {}})));
    assert_eq!(log_in(&page, &anna_key, "anna-account").status(), 200);
    let repeated = call(answered("far__haft_login", &state, "accept"));
    assert!(text(&repeated["result"]).contains("finished"), "{repeated}");
    assert_eq!(text(&call(json!({"name": "far__whoami", "arguments": {}}))["result"]), "anna-account");
}

#[test]
fn all_principals_share_the_account_of_the_operator_if_configured() {
    let upstream = AccountServer::start();
    let place = configured(&upstream, &json!({"account": "operator"}));
    let anna_key = key(&place, "anna");
    let server = GatewayServer::start(&place, &[]);
    let anna = LoginClient::begin(&server, Some(&anna_key));
    assert!(!anna.names().contains("far__"), "a principal cannot log in for the operator");
    let mut operator = McpClient::handshake(&place, &[], abilities());
    operator.names();
    let login = elicitation(&called(&mut operator, "far__haft_login"));
    browse("GET", &consent(&url_of(&login), "operator"), &[], "");
    operator.wait_for("notifications/elicitation/complete");
    let anna = LoginClient::begin(&GatewayServer::start(&place, &[]), Some(&anna_key)).call("far__whoami");
    assert_eq!(anna["result"]["content"][0]["text"], "operator", "{anna}");
    upstream.revoke("operator");
    let later = GatewayServer::start(&place, &[]);
    let refused = LoginClient::begin(&later, Some(&anna_key)).call("far__whoami");
    assert!(text(&refused["result"]).contains("haft mcp login far"), "{refused}");
}

#[test]
fn user_of_a_gateway_without_keys_confirms_the_login_without_a_key() {
    let upstream = AccountServer::start();
    let place = configured(&upstream, &json!({}));
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let client = LoginClient::begin(&server, None);
    let page = client.login_page();
    let shown = browse("GET", &page, &[], "");
    assert!(!shown.body().contains("name=\"key\"") && shown.body().contains("<b>local</b>"), "{shown:?}");
    assert_eq!(log_in(&page, "", "local-account").status(), 200);
    assert_eq!(client.call("far__whoami")["result"]["content"][0]["text"], "local-account");
}

#[test]
fn principal_of_a_token_issuer_identifies_itself_with_an_access_token() {
    let (upstream, issuer) = (AccountServer::start(), TokenIssuer::start());
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let public = format!("http://{free}");
    let accepted = json!({"issuer": issuer.url(), "tenant": "acme", "scopes": {"tools": ["api"]}});
    let place = configured_with(&upstream, &json!({}), json!({"publicUrl": public, "issuers": [accepted]}));
    let server = GatewayServer::at(&place, &free.to_string(), &[]);
    let token = |subject: &str| {
        issuer.token(json!({"sub": subject, "scope": "tools", "aud": format!("{public}/mcp")}))
    };
    let anna = LoginClient::begin(&server, Some(&token("anna")));
    let page = anna.login_page();
    assert!(page.starts_with(&public), "{page}");
    assert_eq!(submit(&page, &token("bert")).status(), 403);
    assert_eq!(log_in(&page, &token("anna"), "anna-account").status(), 200);
    assert_eq!(anna.call("far__whoami")["result"]["content"][0]["text"], "anna-account");
}
