//! Tests of `haft serve` and `haft keys`: the first start, the API keys, `--check` and the shutdown.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::Duration;

use haft_model_server::{ModelServer, Script, ScriptStep};
use haft_testkit::{
    HaftCommand, SpanCollector, TestTree, TestUser, TokenIssuer, eventually, libc, send_signal, users,
    write_certificate,
};
use serde_json::{Value, json};

use super::mcp::configure;

fn tree() -> TestTree {
    TestTree::new(TestUser::Ourselves)
}

/// Starts the server on a free port, and returns it with its address.
fn start(tree: &TestTree, flags: &[&str]) -> (Child, String) {
    listening(tree.haft(&[&["serve", "--address", "127.0.0.1:0"], flags].concat()))
}

pub(crate) fn listening(command: HaftCommand) -> (Child, String) {
    let mut child = command.start();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().trim_start_matches("http://").to_owned())
}

/// Ends the server with a signal and returns its standard error.
pub(crate) fn stop(mut child: Child) -> String {
    send_signal(child.id(), libc::SIGTERM);
    let status = child.wait().unwrap();
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(status.code(), Some(0), "{errors}");
    errors
}

fn get(address: &str, path: &str, key: &str) -> String {
    send(address, &format!("GET {path}"), key)
}

/// Sends a request without a body, and returns the whole reply.
pub(crate) fn send(address: &str, what: &str, key: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("{what} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\n");
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn first_start_prints_a_working_api_key_once() {
    let tree = tree();
    let (child, address) = start(&tree, &[]);
    assert!(get(&address, "/healthz", "").starts_with("HTTP/1.1 200"));
    assert!(get(&address, "/v1/models", "").starts_with("HTTP/1.1 401"));
    let errors = stop(child);
    let key =
        errors.lines().find_map(|line| line.strip_prefix("API key (haft shows it only now): ")).unwrap();

    let (child, address) = start(&tree, &[]);
    assert!(get(&address, "/v1/models", key).starts_with("HTTP/1.1 200"));
    let listed = tree.haft(&["keys", "list", "--json"]).output().expect_code(0);
    let id = serde_json::from_str::<Value>(&listed.stdout).unwrap()[0]["id"].as_str().unwrap().to_owned();
    tree.haft(&["keys", "revoke", &id]).output().expect_code(0);
    assert!(
        get(&address, "/v1/models", key).starts_with("HTTP/1.1 401"),
        "the server refuses a revoked key at once"
    );
    let created = tree.haft(&["keys", "create", "laptop"]).output().expect_code(0);
    assert!(get(&address, "/v1/models", created.stdout.trim()).starts_with("HTTP/1.1 200"));
    assert!(!stop(child).contains("API key"), "the key is shown once");
    let audit = std::fs::read_to_string(tree.path("home/data/audit.jsonl")).unwrap();
    let events: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str| events.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    assert_eq!((of("key.created").len(), of("server.stopped").len()), (2, 2), "{audit}");
    assert_eq!(of("key.revoked")[0]["target"], *id);
    assert!(!audit.contains(key) && !audit.contains(created.stdout.trim()), "{audit}");
}

#[test]
fn keys_are_listed_without_their_secrets() {
    let tree = tree();
    let words = ["keys", "create", "ci", "--expires", "90d", "--scope", "api", "--tenant", "acme"];
    let secret = tree.haft(&words).output().expect_code(0).stdout.trim().to_owned();
    let table = tree.haft(&["keys", "list"]).output().expect_code(0).stdout;
    assert!(
        table.contains(&secret[..13]) && table.contains("acme/ci") && !table.contains(&secret),
        "{table}"
    );
    let json = tree.haft(&["keys", "list", "--json"]).output().expect_code(0).stdout;
    assert!(json.contains("expires_ms") && !json.contains(&secret) && !json.contains("digest"), "{json}");
    tree.haft(&["keys", "revoke", "key_none"]).output().expect_code(42);
    tree.haft(&["keys", "create", "x", "--scope", "root"]).output().expect_code(2);
    let local = tree.haft(&["keys", "create", "x", "--tenant", "local"]).output().expect_code(2);
    assert!(local.stderr.contains("is reserved for the user at the terminal"), "{}", local.stderr);
}

#[test]
fn serve_check_reports_problems_without_serving() {
    let tree = tree();
    tree.haft(&["serve", "--check", "--address", "127.0.0.1:0"]).output().expect_code(0);
    let open =
        tree.haft(&["serve", "--check", "--no-auth", "--address", "0.0.0.0:0"]).output().expect_code(2);
    assert!(open.stderr.contains("loopback"), "{}", open.stderr);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    tree.haft(&["serve", "--check", "--address", &address]).output().expect_code(5);
    assert!(!tree.path("home/data/api-keys.json").exists(), "a check creates no key");
}

#[test]
fn server_raises_its_limit_of_open_files_and_warns_if_it_stays_too_low() {
    let tree = tree();
    let files = |child: &Child| {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
        let row = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        row.split_whitespace().next().unwrap().to_owned()
    };
    let served = |limit: &str| {
        let command = tree.haft(&["serve", "--address", "127.0.0.1:0"]);
        let (child, _) = listening(command.through(&["prlimit", limit, "--"]));
        (files(&child), stop(child))
    };
    let (limit, errors) = served("--nofile=100:4000");
    assert!(limit == "4000" && !errors.contains("can open"), "{limit}: {errors}");
    let (limit, errors) = served("--nofile=100:1000");
    assert!(limit == "1000" && errors.contains("the server can open 1000 files"), "{limit}: {errors}");
}

#[test]
fn sighup_reloads_the_configuration_unless_the_file_is_invalid() {
    let tree = tree();
    let admin = tree.haft(&["keys", "create", "a", "--scope", "admin", "--scope", "api"]).output();
    let admin = admin.expect_code(0).stdout.trim().to_owned();
    let config = |text: &str| tree.file("home/haft.json", text);
    config(r#"{"models": {"default": "openai/first"}}"#);
    let (child, address) = start(&tree, &[]);
    let models = || get(&address, "/v1/models", &admin);
    let has_counted = |row: &str| get(&address, "/metrics", &admin).contains(row);
    assert!(models().contains("openai/first"), "{}", models());
    config(r#"{"models": {"default": "openai/second"}}"#);
    send_signal(child.id(), libc::SIGHUP);
    eventually("the new configuration is in use", || models().contains("openai/second"));
    config(r#"{"models": {"default": 7}}"#);
    send_signal(child.id(), libc::SIGHUP);
    eventually("the metrics count the invalid file", || {
        has_counted(r#"haft_config_reloads_total{outcome="refused"} 1"#)
    });
    assert!(models().contains("openai/second") && has_counted(r#"{outcome="ok"} 1"#), "{}", models());
    let errors = stop(child);
    assert!(errors.contains("haft cannot reload the configuration and keeps the old one"), "{errors}");
}

#[test]
fn sighup_refuses_a_webhook_whose_secret_is_missing() {
    let tree = tree();
    let admin = tree.haft(&["keys", "create", "a", "--scope", "admin", "--scope", "api"]).output();
    let admin = admin.expect_code(0).stdout.trim().to_owned();
    tree.file("home/haft.json", r#"{"models": {"default": "openai/first"}}"#);
    let (child, address) = start(&tree, &[]);
    let webhook = json!({"url": "https://example.com/hook", "secret": "${MISSING_SECRET}"});
    let config = json!({"models": {"default": "openai/second"}, "serve": {"approvalWebhook": webhook}});
    tree.file("home/haft.json", &config.to_string());
    send_signal(child.id(), libc::SIGHUP);
    eventually("the metrics count the refused reload", || {
        get(&address, "/metrics", &admin).contains(r#"haft_config_reloads_total{outcome="refused"} 1"#)
    });
    let models = get(&address, "/v1/models", &admin);
    assert!(models.contains("openai/first") && !models.contains("openai/second"), "{models}");
    assert!(!get(&address, "/metrics", &admin).contains(r#"haft_config_reloads_total{outcome="ok"} 1"#));
    let errors = stop(child);
    assert!(errors.contains("the server cannot sign its webhooks"), "{errors}");
}

#[test]
fn rotated_key_keeps_its_owner_and_the_old_key_works_until_the_overlap_ends() {
    let tree = tree();
    let (child, address) = start(&tree, &[]);
    let old = tree.haft(&["keys", "create", "ci"]).output().expect_code(0).stdout.trim().to_owned();
    let listed = tree.haft(&["keys", "list", "--json"]).output().expect_code(0).stdout;
    let keys: Value = serde_json::from_str(&listed).unwrap();
    let id = keys.as_array().unwrap().iter().find(|key| key["name"] == "ci").unwrap()["id"].clone();
    let rotate = |flags: &[&str]| {
        let words = [&["keys", "rotate", id.as_str().unwrap()], flags].concat();
        tree.haft(&words).output().expect_code(0).stdout.trim().to_owned()
    };
    let is_valid = |key: &str| get(&address, "/v1/models", key).starts_with("HTTP/1.1 200");
    let new = rotate(&[]);
    assert!(new != old && is_valid(&new) && is_valid(&old));
    let newest = rotate(&["--overlap", "0"]);
    assert!(is_valid(&newest) && !is_valid(&new) && !is_valid(&old), "the overlap is over");
    tree.haft(&["keys", "rotate", "key_none"]).output().expect_code(42);
    stop(child);
    let audit = std::fs::read_to_string(tree.path("home/data/audit.jsonl")).unwrap();
    assert_eq!(audit.matches("key.rotated").count(), 2, "{audit}");
    assert!([&old, &new, &newest].iter().all(|key| !audit.contains(key.as_str())));
}

#[test]
fn sighup_reloads_agents_and_skills_unless_a_file_is_invalid() {
    let tree = tree();
    let admin = tree.haft(&["keys", "create", "a", "--scope", "admin", "--scope", "api"]).output();
    let admin = admin.expect_code(0).stdout.trim().to_owned();
    let agent = |name: &str, description: &str| {
        let text = format!("---\ndescription: {description}\nmodels: openai/m\n---\nYou help.\n");
        tree.file(&format!("home/agents/{name}.md"), &text);
    };
    let skill = |description: &str| {
        let text =
            format!("---\nname: notes\ndescription: {description}\ntriggers: [note]\n---\nTake notes.\n");
        tree.file("home/skills/notes/SKILL.md", &text);
    };
    let wrong = "---\nmaxTurns: many\n---\nx\n";
    agent("helper", "First agent.");
    skill("First skill.");
    tree.file("home/agents/part.md", wrong);
    let (child, address) = start(&tree, &[]);
    let reply = |path: &str| get(&address, path, &admin);
    let has = |path: &str, text: &str| reply(path).contains(text);
    assert!(has("/api/v1/agents", "First agent.") && has("/api/v1/skills/notes", "First skill."));
    assert!(reply("/api/v1/skills/none").starts_with("HTTP/1.1 404"));
    agent("helper", "Second agent.");
    agent("other", "Another agent.");
    skill("Second skill.");
    send_signal(child.id(), libc::SIGHUP);
    eventually("the new files are in use, although `part.md` is still wrong", || {
        has("/api/v1/agents", "Second agent.") && has("/api/v1/skills", "Second skill.")
    });
    assert!(has("/v1/models", "other"), "{}", reply("/v1/models"));

    tree.file("home/agents/helper.md", wrong);
    tree.file("home/haft.json", r#"{"models": {"default": "openai/third"}}"#);
    skill("Third skill.");
    send_signal(child.id(), libc::SIGHUP);
    let refusals = |count: u32| {
        let row = format!(r#"haft_config_reloads_total{{outcome="refused"}} {count}"#);
        eventually("the metrics count the invalid file", || reply("/metrics").contains(&row));
    };
    refusals(1);
    assert!(has("/api/v1/agents", "Second agent.") && has("/api/v1/skills", "Second skill."));
    assert!(!has("/v1/models", "openai/third"), "an invalid file prevents the reload of all files");
    agent("helper", "Third agent.");
    tree.file("home/skills/notes/SKILL.md", "---\nname: [\n---\nx\n");
    send_signal(child.id(), libc::SIGHUP);
    refusals(2);
    assert!(has("/api/v1/agents", "Second agent.") && has("/api/v1/skills", "Second skill."));
    let errors = stop(child);
    for part in [
        "haft cannot reload the configuration and keeps the old one",
        "helper.md",
        "whole number",
        "SKILL.md",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}

#[test]
fn sighup_ends_the_trust_in_an_issuer_removed_from_the_configuration() {
    let (tree, issuer) = (tree(), TokenIssuer::start());
    let settings =
        json!({"issuer": issuer.url(), "audience": ["haft"], "tenant": "acme", "scopes": {"haft": ["api"]}});
    tree.file("home/haft.json", &json!({"serve": {"issuers": [settings]}}).to_string());
    let (child, address) = start(&tree, &[]);
    let token = issuer.token(json!({"aud": "haft", "sub": "anna", "scope": "haft"}));
    let status = || get(&address, "/v1/models", &token).split(' ').nth(1).unwrap().to_owned();
    assert_eq!(status(), "200");
    tree.file("home/haft.json", "{}");
    send_signal(child.id(), libc::SIGHUP);
    eventually("the token is refused", || status() == "401");
    stop(child);
}

/// Sends a request to a server over TLS, and returns the status and the HTTP version. Returns an error if the server's
/// certificate is not trusted.
fn get_securely(address: &str, authority: &str) -> Result<(u16, reqwest::Version), reqwest::Error> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let trusted = reqwest::Certificate::from_pem(authority.as_bytes())?;
        let client = reqwest::Client::builder().tls_certs_only([trusted]).build()?;
        let reply = client.get(format!("{address}/healthz")).send().await?;
        Ok((reply.status().as_u16(), reply.version()))
    })
}

#[test]
fn server_speaks_tls_and_http2_and_reloads_its_certificate_at_sighup() {
    let tree = tree();
    tree.file("home/haft.json", r#"{"serve": {"tls": {"certificate": "cert.pem", "key": "key.pem"}}}"#);
    let authority = write_certificate(&tree.path("home"));
    let (child, address) = start(&tree, &["--no-auth"]);
    assert!(address.starts_with("https://"), "{address}");
    assert_eq!(get_securely(&address, &authority).unwrap(), (200, reqwest::Version::HTTP_2));
    let renewed = write_certificate(&tree.path("home"));
    assert!(get_securely(&address, &renewed).is_err(), "the old certificate is in use until the signal");
    send_signal(child.id(), libc::SIGHUP);
    eventually("the new certificate is in use", || get_securely(&address, &renewed).is_ok());
    tree.file("home/key.pem", "no key");
    send_signal(child.id(), libc::SIGHUP);
    let audit = || std::fs::read_to_string(tree.path("home/data/audit.jsonl")).unwrap_or_default();
    eventually("the server reads the invalid key file", || audit().contains("config.refused"));
    assert_eq!(audit().matches("config.reloaded").count(), 1);
    assert_eq!(get_securely(&address, &renewed).unwrap().0, 200);
    let errors = stop(child);
    assert!(errors.contains("keeps the old one: the server cannot use the TLS certificate"), "{errors}");
    let broken = tree.haft(&["serve", "--check", "--address", "127.0.0.1:0"]).output().expect_code(2);
    assert!(broken.stderr.contains("key.pem"), "{}", broken.stderr);
}

#[test]
fn local_user_needs_no_key_if_authentication_is_off() {
    let tree = tree();
    let (child, address) = start(&tree, &["--no-auth"]);
    assert!(get(&address, "/v1/models", "anything").starts_with("HTTP/1.1 200"));
    assert!(!stop(child).contains("API key"));
}

#[test]
fn response_uses_only_the_allowed_tools_of_a_configured_mcp_server() {
    let tree = tree();
    configure(&tree, "good", &[], "");
    let steps = [ScriptStep::call("bad__echo", json!({"text": "hi"})), ScriptStep::text("It said hi.")];
    let model = ModelServer::start(Script::of(steps)).unwrap();
    let serve = tree.haft(&["serve", "--address", "127.0.0.1:0", "--no-auth"]);
    let serve = serve.env("OPENAI_BASE_URL", &format!("{}/v1", model.url())).env("OPENAI_API_KEY", "k");
    let (child, address) = listening(serve);
    let tools = json!([{"type": "mcp", "server_label": "bad", "allowed_tools": ["echo"]}]);
    let response = post(&address, &json!({"model": "openai/m", "input": "x", "tools": tools}));
    let item = &response["output"][0];
    assert_eq!(
        (&item["type"], &item["server_label"], &item["name"]),
        (&json!("mcp_call"), &json!("bad"), &json!("echo")),
        "{response}"
    );
    assert_eq!((&item["status"], &item["error"]), (&json!("completed"), &json!(null)), "{response}");
    let shown = model.requests()[0].body["tools"].to_string();
    assert!(shown.contains("bad__echo") && !shown.contains("bash"), "{shown}");
    let unknown = json!([{"type": "mcp", "server_label": "none"}]);
    let refused = post(&address, &json!({"model": "openai/m", "input": "x", "tools": unknown}));
    assert_eq!(refused["error"]["param"], "tools[0].server_label");
    stop(child);
}

#[test]
fn server_writes_no_core_file_and_its_own_user_cannot_read_its_environment() {
    for user in users() {
        let tree = TestTree::new(user);
        tree.directory("home/agents");
        let agent = "---\ndescription: Works.\nmodels: openai/m\ntools: [bash]\n---\nYou work.\n";
        tree.file("home/agents/worker.md", agent);
        let steps =
            [ScriptStep::call("bash", json!({"command": "echo $((6 * 7))"})), ScriptStep::text("Done.")];
        let model = ModelServer::start(Script::of(steps)).unwrap();
        let words = ["keys", "create", "k", "--scope", "api", "--scope", "builtin-tools"];
        let key = tree.haft(&words).output().expect_code(0).stdout.trim().to_owned();
        let serve = tree.haft(&["serve", "--address", "127.0.0.1:0"]);
        let serve = serve.env("OPENAI_BASE_URL", &format!("{}/v1", model.url())).env("OPENAI_API_KEY", "k");
        let (child, address) = listening(serve);
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        let values: Vec<&str> = core.split_whitespace().skip(4).collect();
        assert_eq!(values, ["0", "0", "bytes"], "as {user:?}");
        let read = tree.unconfined(&format!("cat /proc/{}/environ", child.id()));
        // Do not check this as root, which can read the environment of every process.
        if !(user == TestUser::Ourselves && users().len() > 1) {
            assert!(
                read.stdout.is_empty() && read.stderr.contains("Permission denied"),
                "as {user:?}: {read:?}"
            );
        }
        let head = format!("Authorization: Bearer {key}\r\n");
        let response = post_with(&address, &head, &json!({"model": "worker", "input": "x"}));
        assert!(response["output"][0]["output"].as_str().unwrap().contains("42"), "as {user:?}: {response}");
        stop(child);
    }
}

#[test]
fn spans_of_a_run_continue_the_trace_of_the_client_up_to_the_mcp_server() {
    let tree = tree();
    configure(&tree, "shows-meta", &[], "");
    let steps = [ScriptStep::call("bad__echo", json!({"text": "hi"})), ScriptStep::text("Done.")];
    let model = ModelServer::start(Script::of(steps.into_iter().cycle().take(4))).unwrap();
    let collector = SpanCollector::start();
    let serve = tree.haft(&["serve", "--address", "127.0.0.1:0", "--no-auth"]);
    let serve = serve.env("OPENAI_BASE_URL", &format!("{}/v1", model.url())).env("OPENAI_API_KEY", "k");
    let (child, address) = listening(serve.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint()));
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let tools = json!([{"type": "mcp", "server_label": "bad", "require_approval": "never"}]);
    let body = json!({"model": "openai/m", "input": "x", "tools": tools});
    let response = post_with(&address, &format!("traceparent: 00-{trace}-{span}-01\r\n"), &body);
    let meta: Value = serde_json::from_str(response["output"][0]["output"].as_str().unwrap()).unwrap();
    let without_parent = post(&address, &body);
    assert_eq!(without_parent["status"], "completed", "{without_parent}");
    stop(child);
    let spans = collector.spans();
    let of_trace: Vec<_> = spans.iter().filter(|one| one.trace == trace).collect();
    let named = |name: &str| *of_trace.iter().find(|one| one.name.starts_with(name)).unwrap();
    let (run, call, request) = (named("invoke_agent"), named("execute_tool"), named("tools/call"));
    assert_eq!((run.parent.as_str(), &call.parent, &request.parent), (span, &run.id, &call.id), "{spans:?}");
    assert_eq!(meta["traceparent"], format!("00-{trace}-{}-01", request.id), "{meta}");
    assert_eq!(named("chat").parent, run.id);
    let other = spans.iter().find(|one| one.name.starts_with("invoke_agent") && one.trace != trace);
    assert!(other.is_some_and(|run| run.parent.is_empty()), "{spans:?}");
}

#[test]
fn spans_of_a_websocket_run_continue_the_trace_of_the_handshake() {
    let tree = tree();
    let model = ModelServer::start(Script::of([ScriptStep::text("Done.")])).unwrap();
    let collector = SpanCollector::start();
    let serve = tree.haft(&["serve", "--address", "127.0.0.1:0", "--no-auth"]);
    let serve = serve.env("OPENAI_BASE_URL", &format!("{}/v1", model.url())).env("OPENAI_API_KEY", "k");
    let (child, address) = listening(serve.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint()));
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let create = json!({"type": "response.create", "model": "openai/m", "input": "x"});
    let read = exchange(&address, &format!("traceparent: 00-{trace}-{span}-01\r\n"), &create);
    assert!(read.contains("\"Done.\""), "{read}");
    stop(child);
    let spans = collector.spans();
    let run = spans.iter().find(|one| one.name.starts_with("invoke_agent")).unwrap();
    assert_eq!((run.trace.as_str(), run.parent.as_str()), (trace, span), "{spans:?}");
}

#[test]
fn spans_of_a_compaction_continue_the_trace_of_the_client() {
    let tree = tree();
    let model = ModelServer::start(Script::of([ScriptStep::text("Summary: foxes.")])).unwrap();
    let collector = SpanCollector::start();
    let serve = tree.haft(&["serve", "--address", "127.0.0.1:0", "--no-auth"]);
    let serve = serve.env("OPENAI_BASE_URL", &format!("{}/v1", model.url())).env("OPENAI_API_KEY", "k");
    let (child, address) = listening(serve.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint()));
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let message = |role: &str| json!({"role": role, "content": "The quick brown fox jumps. ".repeat(40)});
    let turns = (0..12).flat_map(|_| ["user", "assistant"]).chain(["user"]);
    let body = json!({"model": "openai/m", "input": turns.map(message).collect::<Vec<_>>()});
    let lines = format!("traceparent: 00-{trace}-{span}-01\r\n");
    let compacted = post_to(&address, "/v1/responses/compact", &lines, &body);
    assert_eq!(compacted["object"], "response.compaction", "{compacted}");
    stop(child);
    let spans = collector.spans();
    let request = spans.iter().find(|one| one.name.starts_with("chat")).unwrap();
    assert_eq!((request.trace.as_str(), request.parent.as_str()), (trace, span), "{spans:?}");
}

/// Opens a WebSocket with further header lines, sends one message, and reads until the response has ended.
fn exchange(address: &str, lines: &str, message: &Value) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!("GET /v1/responses HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\n{lines}");
    let head = format!("{head}Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n");
    write!(stream, "{head}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").unwrap();
    let message = message.to_string();
    // A text frame of less than 126 bytes. A mask of zeros leaves the text unchanged.
    let mut frame = vec![0x81, 0x80 | u8::try_from(message.len()).unwrap(), 0, 0, 0, 0];
    assert!(message.len() < 126, "{message}");
    frame.extend(message.as_bytes());
    stream.write_all(&frame).unwrap();
    let (mut read, mut bytes) = (String::new(), [0; 4096]);
    while !read.contains("response.completed") {
        let length = stream.read(&mut bytes).unwrap();
        assert!(length > 0, "{read}");
        read.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    read
}

pub(crate) fn post(address: &str, body: &Value) -> Value {
    post_with(address, "", body)
}

/// Sends a request with further header lines.
fn post_with(address: &str, lines: &str, body: &Value) -> Value {
    post_to(address, "/v1/responses", lines, body)
}

fn post_to(address: &str, path: &str, lines: &str, body: &Value) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n{lines}");
    let head = format!("{head}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (_, reply) = text.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(reply).unwrap_or_else(|error| panic!("{error}: {text}"))
}
