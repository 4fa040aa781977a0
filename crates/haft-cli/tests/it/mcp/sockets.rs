//! Tests of unix sockets: the sockets that a confined server can connect to, and how an import grants one.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

use haft_testkit::TestTree;
use serde_json::{Value, json};

use super::tree;

/// A server whose tool connects to a socket.
const SERVER: &str = r#"
import json, socket, sys

def connect(path, kind):
    try:
        name = "\0" + path[1:] if path.startswith("@") else path
        socket.socket(socket.AF_UNIX, getattr(socket, kind)).connect(name)
        return "connected"
    except OSError as error:
        return f"refused: {error}"

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "sockets", "version": "1"}
            reply["result"] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            reply["result"] = {"tools": [{"name": "connect", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            text = connect(**message["params"]["arguments"])
            reply["result"] = {"content": [{"type": "text", "text": text}]}
        case _:
            reply["error"] = {"code": -32601, "message": "unknown method"}
    print(json.dumps(reply), flush=True)
"#;

/// Configures the server with these keys.
fn configure(tree: &TestTree, keys: &Value) {
    let script = tree.file("outside/sockets.py", SERVER);
    let mut server = json!({"command": "python3", "args": [script]});
    for (key, value) in keys.as_object().unwrap() {
        server[key] = value.clone();
    }
    tree.file("home/haft.json", &json!({"mcpServers": {"sockets": server}}).to_string());
}

/// Lets the server connect to a socket, and returns its report.
fn connect(tree: &TestTree, path: &str, kind: &str) -> String {
    let arguments = json!({"path": path, "kind": kind}).to_string();
    tree.haft(&["call", "sockets__connect", &arguments]).output().expect_code(0).stdout.trim().to_owned()
}

#[test]
fn confined_server_connects_only_to_the_named_socket() {
    let tree = tree();
    let text = |name: &str| tree.path(name).to_str().unwrap().to_owned();
    let (named, other, datagram) =
        (text("outside/named.sock"), text("outside/other.sock"), text("outside/datagram.sock"));
    let abstract_name = format!("@haft-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&abstract_name[1..]).unwrap();
    let _listeners = (
        UnixListener::bind(&named).unwrap(),
        UnixListener::bind(&other).unwrap(),
        UnixListener::bind_addr(&address).unwrap(),
        UnixDatagram::bind(&datagram).unwrap(),
    );
    let check = |keys: Value, expected: [bool; 4]| {
        configure(&tree, &keys);
        let stream = [&named, &other, &abstract_name].map(|path| connect(&tree, path, "SOCK_STREAM"));
        let found = [&stream[..], &[connect(&tree, &datagram, "SOCK_DGRAM")]].concat();
        let is_connected = found.iter().map(|report| report == "connected").collect::<Vec<_>>();
        assert_eq!(is_connected, expected, "{keys}: {found:?}");
    };
    check(json!({}), [false, false, false, false]);
    check(json!({"sockets": [named]}), [true, false, false, false]);
    check(json!({"sockets": [named, other]}), [true, true, false, false]);
    check(json!({"unixSockets": "allow"}), [true, true, true, true]);
}

#[test]
fn symlink_in_the_sockets_setting_grants_the_socket_that_it_points_to() {
    let tree = tree();
    let (named, link) = (tree.path("outside/named.sock"), tree.path("outside/link.sock"));
    let _listener = UnixListener::bind(&named).unwrap();
    std::os::unix::fs::symlink(&named, &link).unwrap();
    configure(&tree, &json!({"sockets": [link]}));
    for path in [&link, &named] {
        assert_eq!(connect(&tree, path.to_str().unwrap(), "SOCK_STREAM"), "connected");
    }
}

/// Writes a configuration file of another program, with a server that starts a container.
fn with_docker(tree: &TestTree) {
    let server = json!({"command": "docker", "args": ["run", "-i", "--rm", "example/server"]});
    tree.file("ws/servers.json", &json!({"mcpServers": {"box": server}}).to_string());
}

fn written(tree: &TestTree) -> Value {
    let file: Value = serde_json::from_str(&tree.text("home/haft.json")).unwrap();
    file["mcpServers"]["box"].clone()
}

#[test]
fn import_asks_for_the_socket_of_a_container_engine() {
    for (key, is_granted) in [("y", true), ("n", false)] {
        let tree = tree();
        with_docker(&tree);
        let host = format!("unix://{}", tree.path("outside/docker.sock").display());
        let import = tree.haft(&["mcp", "import", "--file", "servers.json"]).env("DOCKER_HOST", &host);
        let mut run = import.on_terminal();
        run.wait_for("so it needs the unix socket of `docker`");
        run.wait_for("add 1 server?");
        run.type_keys("y");
        run.wait_for("let the server connect to this socket?");
        run.type_keys(key);
        let shown = run.finish().expect_code(0).stdout;
        assert!(shown.contains("outside/docker.sock"), "{shown}");
        let socket = tree.path("outside/docker.sock");
        let expected = if is_granted { json!([socket]) } else { Value::Null };
        assert_eq!(written(&tree)["sockets"], expected, "{shown}");
        assert_eq!(written(&tree)["env"]["DOCKER_HOST"].is_string(), is_granted);
        assert_eq!(shown.contains("set `mcpServers.box.sockets` to"), !is_granted, "{shown}");
    }
}

#[test]
fn import_with_yes_grants_no_socket_and_names_the_config_key() {
    let tree = tree();
    with_docker(&tree);
    let import = |host: &str, flags: &[&str]| {
        let words = [&["mcp", "import", "--file", "servers.json", "--yes"], flags].concat();
        let shown = tree.haft(&words).env("DOCKER_HOST", host).output().expect_code(0).stdout;
        assert_eq!(written(&tree)["sockets"], Value::Null);
        tree.haft(&["mcp", "remove", "box"]).output().expect_code(0);
        shown
    };
    let shown = import("", &[]);
    let expected = "haft did not let `box` connect to the socket `/var/run/docker.sock`; to allow it, set \
                    `mcpServers.box.sockets` to `[\"/var/run/docker.sock\"]`";
    assert!(shown.contains(expected), "{shown}");
    let shown: Value = serde_json::from_str(&import("", &["--json"])).unwrap();
    let missing =
        json!([{"server": "box", "socket": "/var/run/docker.sock", "key": "mcpServers.box.sockets"}]);
    assert_eq!(shown["missing"], missing, "{shown}");
    let shown = import("tcp://10.0.0.1:2376", &[]);
    assert!(!shown.contains("haft did not let"), "{shown}");
}
