//! Tests of Claude Code and Codex as clients of the gateway, with the scripted model server.

use std::process::{Command, Stdio};

use haft_model_server::{ModelServer, Script, ScriptStep};
use haft_testkit::TestTree;
use serde_json::{Value, json};

use super::super::claude_code::{accounted_calls, installed, results, tool};
use super::{configure, place};

/// Returns a test directory whose rules deny `rm`, and a model that calls the tool `echo` of a server and the command
/// `rm`. `prefix` is the prefix with which the client names the tools of the gateway.
fn scripted(prefix: &str) -> (TestTree, ModelServer) {
    let place = place();
    let rules = r#", "policy": {"rules": [{"tool": "bash", "command": "rm *", "decision": "deny"}]}"#;
    configure(&place, &[("up", "good", &[])], rules);
    place.file("ws/kept", "x");
    // Clients list tools only once. If haft already knows the tools of a server, they are in the list before the server
    // has started.
    place.haft(&["tools"]).output().expect_code(0);
    let call = |name: &str, arguments: Value| ScriptStep::call(&format!("{prefix}{name}"), arguments);
    let steps = [
        call("up__echo", json!({"text": "hi"})),
        call("bash", json!({"command": "rm kept"})).expecting(results(&["echo: hi"])),
        ScriptStep::text("Done.").expecting(results(&["denied"])),
    ];
    (place, ModelServer::start(Script::of(steps)).unwrap())
}

/// Runs the client in the workspace, and checks that its calls went through the gateway.
fn check(place: &TestTree, command: &mut Command) {
    command.current_dir(place.path("ws")).env("HOME", place.path("user")).stdin(Stdio::null());
    let ran = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert_eq!(stdout.trim(), "Done.", "{stderr}");
    assert!(place.exists("ws/kept"), "the rule of the gateway denies the call");
    let denied = Some("denied".to_owned());
    assert_eq!(accounted_calls(place), [("up__echo".to_owned(), None), ("bash".to_owned(), denied)]);
}

#[test]
fn claude_code_calls_tools_through_the_gateway() {
    let (place, server) = scripted("mcp__haft__");
    let env = json!({"HAFT_HOME": place.path("home")});
    let entry = json!({"command": haft_testkit::binary(), "args": ["mcp", "serve"], "env": env});
    let mut claude = claude(&place, &server);
    claude.args(["-p", "--model", "sonnet", "--tools", "", "--allowedTools", "mcp__haft"]);
    claude.args(["--strict-mcp-config", "--mcp-config", &json!({"mcpServers": {"haft": entry}}).to_string()]);
    claude.args(["--", "go"]);
    check(&place, &mut claude);
}

/// Returns the real Claude Code, which uses the scripted model and does not reach the network.
fn claude(place: &TestTree, server: &ModelServer) -> Command {
    let mut claude = Command::new(installed());
    claude.env("HAFT_HOME", place.path("home")).env("CLAUDE_CONFIG_DIR", place.path("user"));
    claude.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("DISABLE_AUTOUPDATER", "1");
    claude.env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", "sk-test-0123456789");
    claude
}

/// Claude Code reads the entry that `haft mcp install` wrote, and the entry of its own command.
#[test]
fn claude_code_uses_its_configured_gateway() {
    for is_installed in [true, false] {
        let (place, server) = scripted("mcp__haft__");
        let directory = place.path("user");
        let program = haft_testkit::binary();
        if is_installed {
            let install = place.haft(&["mcp", "install", "claude"]);
            install.env("CLAUDE_CONFIG_DIR", directory.to_str().unwrap()).output().expect_code(0);
        } else {
            let mut add = claude(&place, &server);
            add.args(["mcp", "add", "haft", "--"]).arg(program).args(["mcp", "serve"]);
            let added = add.current_dir(place.path("ws")).stdin(Stdio::null()).output().unwrap();
            assert!(added.status.success(), "{added:?}");
        }
        assert!(place.text("user/.claude.json").contains("\"serve\""));
        let mut claude = claude(&place, &server);
        claude.args(["-p", "--model", "sonnet", "--tools", "", "--allowedTools", "mcp__haft", "--", "go"]);
        check(&place, &mut claude);
    }
}

/// Codex would ask its own user about tools that may change something. In this test, haft's rules decide instead.
#[test]
fn codex_calls_tools_through_the_gateway() {
    let (place, server) = scripted("");
    let config = format!(
        "{}[mcp_servers.haft]\ncommand = {:?}\nargs = [\"mcp\", \"serve\"]\n{}",
        codex_config(&server),
        haft_testkit::binary(),
        codex_entry_keys(&place),
    );
    place.file("user/config.toml", &config);
    check(&place, &mut codex(&place));
}

/// Codex reads the entry that `haft mcp install` wrote.
#[test]
fn codex_uses_its_configured_gateway() {
    let (place, server) = scripted("");
    place.file("user/config.toml", &codex_config(&server));
    let directory = place.path("user");
    let install = || {
        let install = place.haft(&["mcp", "install", "codex"]);
        install.env("CODEX_HOME", directory.to_str().unwrap()).output().expect_code(0);
        place.text("user/config.toml")
    };
    // The user adds keys to the entry, and the second install keeps them.
    let written = install();
    place.file("user/config.toml", &format!("{}\n{}", written.trim_end(), codex_entry_keys(&place)));
    let kept = install();
    assert!(kept.contains("HAFT_HOME") && kept.contains("\"serve\""), "{kept}");
    check(&place, &mut codex(&place));
}

/// Returns a configuration of Codex that uses the scripted model.
fn codex_config(server: &ModelServer) -> String {
    format!(
        "model = \"m\"\nmodel_provider = \"scripted\"\napproval_policy = \"never\"\n\
         [model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{}/v1\"\n\
         experimental_bearer_token = \"k\"\nwire_api = \"responses\"\n",
        server.url(),
    )
}

/// Returns keys for the entry of haft. Codex passes only a few environment variables to servers.
fn codex_entry_keys(place: &TestTree) -> String {
    let home = place.path("home");
    let home = home.to_str().unwrap();
    format!("default_tools_approval_mode = \"approve\"\nenv = {{ HAFT_HOME = {home:?} }}\n")
}

fn codex(place: &TestTree) -> Command {
    let mut codex = Command::new(tool("clients/node_modules/.bin/codex"));
    codex.args(["exec", "--skip-git-repo-check", "go"]).env("CODEX_HOME", place.path("user"));
    codex
}
