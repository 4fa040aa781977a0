//! Tests of importing the servers of other programs, and of writing haft's own entry into their files.

use std::path::Path;

use haft_config::import::ImportSource;
use haft_model_server::ScriptStep;
use haft_testkit::TestTree;
use serde_json::{Value, json};

use super::login::SecretService;
use super::tree;
use crate::run::{haft, server};

fn json(tree: &TestTree, args: &[&str], code: i32) -> Value {
    serde_json::from_str(&tree.haft(args).output().expect_code(code).stdout).unwrap()
}

#[test]
fn imported_servers_of_other_programs_are_added_once_and_work() {
    let tree = tree();
    let server = tree.misbehaving_server("good", &[]);
    tree.file(
        "user/.cursor/mcp.json",
        &format!("{{\"mcpServers\": {{\"near\": {{{server}}}, \"odd\": {{}}}}}}"),
    );
    tree.file(
        "ws/.vscode/mcp.json",
        r#"{"servers": {"far": {"type": "http", "url": "https://example.com/mcp"}}}"#,
    );
    tree.file("user/.codex/config.toml", "[mcp_servers.near]\ncommand = \"x\"\n");
    tree.file("user/.config/goose/config.yaml", "extensions: [");
    let before = tree.text("user/.cursor/mcp.json");

    let unasked = tree.haft(&["mcp", "import"]).output().expect_code(4);
    for part in [
        "+ near",
        "+ far  https://example.com/mcp",
        "- odd: the server has neither",
        "goose",
        "not valid YAML",
        "- near: cursor has",
    ] {
        assert!(unasked.stderr.contains(part), "{part}: {}", unasked.stderr);
    }
    assert!(!tree.exists("home/haft.json"));

    let added = json(&tree, &["mcp", "import", "--yes", "--json"], 0);
    assert!(added["file"].as_str().unwrap().ends_with("haft.json"), "{added}");
    let called = tree.haft(&["call", "near__echo", r#"{"text": "hi"}"#]).output().expect_code(0);
    assert_eq!(called.stdout, "echo: hi\n");
    let again = tree.haft(&["mcp", "import"]).output().expect_code(0);
    assert!(again.stdout.contains("haft found no server to add"), "{}", again.stdout);
    assert_eq!(tree.text("user/.cursor/mcp.json"), before);
}

#[test]
fn import_finds_the_files_of_programs_at_their_paths() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../haft-config/src/import/fixtures");
    let check = |program: &str, (fixture, path): (&str, &str), expected: Value, skipped: &[&str]| {
        let tree = tree();
        let path = format!("user/{path}");
        tree.file(&path, &std::fs::read_to_string(fixtures.join(fixture)).unwrap());
        let added = json(&tree, &["mcp", "import", program, "--yes", "--json"], 0);
        let found = added["found"].as_array().unwrap();
        assert_eq!(found.len(), 1, "{added}");
        assert_eq!(found[0]["path"], tree.path(&path).to_str().unwrap(), "{added}");
        // The table of expected results contains only a part of each note.
        let servers = found[0]["servers"].as_array().unwrap();
        let rows = expected.as_array().unwrap();
        assert_eq!(servers.len(), rows.len(), "{added}");
        for (server, row) in servers.iter().zip(rows) {
            let (notes, parts) = (server["notes"].as_array().unwrap(), row[1].as_array().unwrap());
            assert_eq!((&server["name"], notes.len()), (&row[0], parts.len()), "{added}");
            for (note, part) in notes.iter().zip(parts) {
                assert!(note.as_str().unwrap().contains(part.as_str().unwrap()), "{part}: {added}");
            }
        }
        let left_out: Vec<&Value> =
            found[0]["skipped"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
        assert_eq!(left_out, skipped, "{added}");
        let written: Value = serde_json::from_str(&tree.text("home/haft.json")).unwrap();
        let mut names: Vec<&String> = written["mcpServers"].as_object().unwrap().keys().collect();
        names.sort();
        assert_eq!(names, rows.iter().map(|row| row[0].as_str().unwrap()).collect::<Vec<_>>());
    };
    check(
        "claude-desktop",
        ("claude-desktop.json", ".config/Claude/claude_desktop_config.json"),
        json!([["files", []], ["github", ["the unix socket of `docker`"]]]),
        &[],
    );
    let path = ".codeium/windsurf/mcp_config.json";
    check("windsurf", ("windsurf.json", path), json!([["off", []], ["remote", []]]), &[]);
    let path = ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json";
    check("cline", ("cline.json", path), json!([["remote", ["the key `alwaysAllow`"]]]), &[]);
    check(
        "opencode",
        ("opencode.jsonc", ".config/opencode/opencode.json"),
        json!([["local", ["the content of the file `./note.txt`"]], ["remote", []]]),
        &["odd", "agent planner"],
    );
}

#[test]
fn server_that_haft_cannot_resolve_is_not_imported() {
    let tree = tree();
    let entries = r#"{"mcpServers": {
        "near": {"type": "http", "command": "npx"},
        "far": {"type": "stdio", "url": "https://example.com/mcp"},
        "text": {"command": "npx", "args": "-y pkg"}
    }}"#;
    tree.file("user/.cursor/mcp.json", entries);
    let none = tree.haft(&["mcp", "import", "--yes"]).output().expect_code(0);
    assert!(none.stdout.contains("haft found no server to add"), "{}", none.stdout);
    for reason in
        ["- near: ", "needs a `url`", "- far: ", "needs a `command`", "- text: ", "not a list of texts"]
    {
        assert!(none.stdout.contains(reason), "{reason}: {}", none.stdout);
    }
    let server = tree.misbehaving_server("good", &[]);
    let with_good = entries.replacen("\"near\"", &format!("\"good\": {{{server}}}, \"near\""), 1);
    tree.file("user/.cursor/mcp.json", &with_good);
    let added = tree.haft(&["mcp", "import", "--yes"]).output().expect_code(0);
    assert!(added.stdout.contains("added 1 server"), "{}", added.stdout);
    let tools = tree.haft(&["tools"]).output().expect_code(0);
    assert!(tools.stdout.contains("good__echo"), "{}", tools.stdout);
}

#[test]
fn import_shows_variables_and_headers_before_it_asks() {
    let tree = tree();
    let entries = r#"{"mcpServers": {
        "a": {"command": "x", "env": {"API_TOKEN": "s3cret-value", "NODE_OPTIONS": "--require ./x.js"}},
        "b": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer s3cret-value"}}
    }}"#;
    tree.file("user/.cursor/mcp.json", entries);
    let mut run = tree.haft(&["mcp", "import", "cursor"]).on_terminal();
    run.wait_for("env API_TOKEN=(hidden)");
    run.wait_for("env NODE_OPTIONS=--require ./x.js  ! can make the program run other code");
    run.wait_for("header Authorization=(hidden)");
    run.wait_for("add 2 servers?");
    run.type_keys("n");
    let refused = run.finish().expect_code(4);
    assert!(!refused.stdout.contains("s3cret-value"), "{}", refused.stdout);
    assert!(!tree.exists("home/haft.json"));
}

#[test]
fn mcp_import_can_be_limited_to_one_program_or_one_file() {
    let tree = tree();
    tree.file("user/.cursor/mcp.json", r#"{"mcpServers": {"a": {"command": "x"}}}"#);
    tree.file("user/.gemini/settings.json", r#"{"mcpServers": {"b": {"httpUrl": "https://e.com"}}}"#);
    tree.file("ws/some.json", r#"{"mcp": {"c": {"type": "local", "command": ["x", "y"]}}}"#);
    tree.haft(&["mcp", "import", "gemini", "--yes"]).output().expect_code(0);
    tree.haft(&["mcp", "import", "--file", "some.json", "--yes"]).output().expect_code(0);
    let names: Vec<Value> = json(&tree, &["mcp", "list", "--json"], 0)
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["name"].clone())
        .collect();
    assert_eq!(names, ["b", "c"]);
    tree.haft(&["mcp", "import", "--file", "none.json"]).output().expect_code(42);
    tree.haft(&["mcp", "import", "nonsense"]).output().expect_code(2);
}

#[test]
fn import_reads_project_servers_from_the_config_directory_of_claude_code() {
    let tree = tree();
    let here = tree.path("ws").canonicalize().unwrap();
    let file = json!({
        "mcpServers": {"both": {"command": "user"}},
        "projects": {
            here.to_str().unwrap(): {"mcpServers": {"both": {"command": "local"}, "mine": {"command": "x"}}},
            "/elsewhere": {"mcpServers": {"other": {"command": "x"}}},
        },
    });
    tree.file("outside/claude/.claude.json", &file.to_string());
    let directory = tree.path("outside/claude");
    let directory = directory.to_str().unwrap();
    let import = tree
        .haft(&["mcp", "import", "claude-code", "--yes"])
        .env("CLAUDE_CONFIG_DIR", directory)
        .output()
        .expect_code(0);
    assert!(
        import.stdout.contains("other: the server belongs to the project `/elsewhere`"),
        "{}",
        import.stdout
    );
    let written: Value = serde_json::from_str(&tree.text("home/haft.json")).unwrap();
    assert_eq!(written["mcpServers"], json!({"both": {"command": "local"}, "mine": {"command": "x"}}));

    tree.haft(&["mcp", "install", "claude"]).env("CLAUDE_CONFIG_DIR", directory).output().expect_code(0);
    assert!(tree.text("outside/claude/.claude.json").contains("\"serve\""));
    assert!(!tree.path("user/.claude.json").exists());
}

#[test]
fn mcp_add_accepts_a_command_without_dashes_and_options_after_a_url() {
    let tree = tree();
    tree.haft(&["mcp", "add", "a", "-e", "K=v", "npx", "-y", "pkg", "--flag", "--env", "x"])
        .output()
        .expect_code(0);
    tree.haft(&["mcp", "add", "b", "https://e.com/mcp", "--header", "K: v", "--json"])
        .output()
        .expect_code(0);
    tree.haft(&["mcp", "add", "c", "https://e.com/mcp", "more"]).output().expect_code(2);
    let written: Value = serde_json::from_str(&tree.text("home/haft.json")).unwrap();
    let expected = json!({
        "a": {"command": "npx", "args": ["-y", "pkg", "--flag", "--env", "x"], "env": {"K": "v"}},
        "b": {"url": "https://e.com/mcp", "headers": {"K": "v"}},
    });
    assert_eq!(written["mcpServers"], expected);
}

#[test]
fn mcp_config_adds_servers_to_one_command() {
    let tree = tree();
    let server = tree.misbehaving_server("good", &[]);
    tree.file("ws/servers.json", &format!("{{\"servers\": {{\"once\": {{{server}}}}}}}"));
    let call = ["call", "--mcp-config", "servers.json", "once__echo", r#"{"text": "hi"}"#];
    assert_eq!(tree.haft(&call).output().expect_code(0).stdout, "echo: hi\n");
    tree.haft(&["call", "once__echo"]).output().expect_code(42);
    let wrong = tree.haft(&["call", "--mcp-config", "none.json", "bash", "{}"]).output().expect_code(42);
    assert!(wrong.stderr.contains("does not exist"), "{}", wrong.stderr);
}

/// Writes the server `once` in the formats of Codex and goose. Runs wait for the server of Codex.
fn configure_once(tree: &TestTree) {
    let server: Value =
        serde_json::from_str(&format!("{{{}}}", tree.misbehaving_server("good", &[]))).unwrap();
    let (command, args) = (&server["command"], &server["args"]);
    tree.file(
        "ws/codex.toml",
        &format!("[mcp_servers.once]\ncommand = {command}\nargs = {args}\nrequired = true\n"),
    );
    let goose = format!("extensions:\n  once:\n    type: stdio\n    cmd: {command}\n    args: {args}\n");
    tree.file("ws/goose", &goose);
}

#[test]
fn mcp_config_reads_the_files_of_codex_and_goose() {
    let tree = tree();
    configure_once(&tree);
    for file in ["codex.toml", "goose"] {
        let call = ["call", "--mcp-config", file, "once__echo", r#"{"text": "hi"}"#];
        assert_eq!(tree.haft(&call).output().expect_code(0).stdout, "echo: hi\n", "{file}");
    }
    tree.haft(&["mcp", "import", "--file", "goose", "--yes"]).output().expect_code(0);
    assert!(tree.text("home/haft.json").contains("\"once\""));
}

#[test]
fn mcp_config_adds_servers_to_one_run() {
    let tree = tree();
    configure_once(&tree);
    let steps = [ScriptStep::call("once__echo", json!({"text": "hi"})), ScriptStep::text("Done.")];
    let model = server(steps);
    let words = ["run", "-m", "openai/m", "--mcp-config", "codex.toml", "go"];
    haft(&tree, &model, &words).output().expect_code(0);
    assert!(model.requests()[1].body.to_string().contains("echo: hi"), "{}", model.requests()[1].body);
}

#[test]
fn mcp_install_adds_and_removes_the_entry_in_a_client_file() {
    let tree = tree();
    let cursor = "{\n  // mine\n  \"mcpServers\": {\n    \"a\": { \"command\": \"x\" }\n  }\n}\n";
    let codex = "# mine\nmodel = \"m\"\n";
    tree.file("user/.cursor/mcp.json", cursor);
    tree.file("user/.codex/config.toml", codex);
    for client in ["cursor", "codex", "claude"] {
        tree.haft(&["mcp", "install", client, "--", "--read-only"]).output().expect_code(0);
    }
    let written = tree.text("user/.cursor/mcp.json");
    assert!(written.contains("// mine") && written.contains("--read-only"), "{written}");
    assert_eq!(tree.text("user/.cursor/mcp.json.haft-backup"), cursor);
    let written = tree.text("user/.codex/config.toml");
    assert!(written.starts_with(codex) && written.contains("[mcp_servers.haft]"), "{written}");
    assert!(tree.text("user/.claude.json").contains("\"type\": \"stdio\""));
    for client in ["cursor", "codex", "claude"] {
        tree.haft(&["mcp", "install", client, "--remove"]).output().expect_code(0);
        tree.haft(&["mcp", "install", client, "--remove"]).output().expect_code(42);
    }
    assert_eq!(tree.text("user/.codex/config.toml"), codex);
    assert!(!tree.text("user/.cursor/mcp.json").contains("haft"));
    tree.file("user/.cursor/mcp.json", "{");
    let broken = tree.haft(&["mcp", "install", "cursor"]).output().expect_code(42);
    assert!(broken.stderr.contains("mcp.json"), "{}", broken.stderr);
    assert_eq!(tree.text("user/.cursor/mcp.json"), "{");
}

#[test]
fn entries_that_start_haft_itself_are_neither_imported_nor_used() {
    let tree = tree();
    for (client, file) in [
        ("cursor", "user/.cursor/mcp.json"),
        ("claude", "user/.claude.json"),
        ("codex", "user/.codex/config.toml"),
    ] {
        tree.haft(&["mcp", "install", client, "--", "--read-only"]).output().expect_code(0);
        assert!(tree.exists(file), "{file}");
    }
    let reason = "it starts haft itself";
    let found = tree.haft(&["mcp", "import"]).output().expect_code(0);
    assert!(found.stdout.contains("haft found no server to add"), "{}", found.stdout);
    assert_eq!(found.stdout.matches(reason).count(), 3, "{}", found.stdout);

    let near = tree.misbehaving_server("good", &[]);
    let own = r#""command": "haft", "args": ["mcp", "serve"]"#;
    tree.file("ws/.mcp.json", &format!("{{\"mcpServers\": {{\"haft\": {{{own}}}, \"near\": {{{near}}}}}}}"));
    tree.haft(&["trust", "--yes"]).output().expect_code(0);
    let listed = tree.haft(&["tools"]).output().expect_code(0);
    assert!(listed.stdout.contains("near__echo") && !listed.stdout.contains("haft__"), "{}", listed.stdout);
    assert!(listed.stderr.contains(".mcp.json:1:") && listed.stderr.contains(reason), "{}", listed.stderr);

    let named = tree.haft(&["tools", "--mcp-config", ".mcp.json"]).output().expect_code(0);
    assert!(!named.stdout.contains("haft__"), "{}", named.stdout);
    assert!(named.stderr.contains("haft ignores MCP server `haft`"), "{}", named.stderr);
}

#[test]
fn second_install_changes_only_the_keys_of_haft() {
    let tree = tree();
    let before = "# mine\nmodel = \"m\"\n";
    tree.file("user/.codex/config.toml", before);
    tree.haft(&["mcp", "install", "codex"]).output().expect_code(0);
    let mine = "default_tools_approval_mode = \"prompt\"\n\n# about other\n[other]\na = 1\n";
    let edited = format!("{}{mine}", tree.text("user/.codex/config.toml"));
    tree.file("user/.codex/config.toml", &edited);
    let again = tree.haft(&["mcp", "install", "codex", "--", "--read-only"]).output().expect_code(0);
    assert!(again.stdout.contains("contains the file from before the first change"), "{}", again.stdout);
    let expected = edited.replace("[\"mcp\",\"serve\"]", "[\"mcp\",\"serve\",\"--read-only\"]");
    assert_eq!(tree.text("user/.codex/config.toml"), expected);
    assert_eq!(tree.text("user/.codex/config.toml.haft-backup"), before);
    tree.haft(&["mcp", "install", "codex", "--remove"]).output().expect_code(0);
    assert_eq!(tree.text("user/.codex/config.toml"), format!("{before}\n# about other\n[other]\na = 1\n"));
}

/// The user may add keys to the entry, such as an environment variable.
#[test]
fn second_install_keeps_the_keys_that_the_user_added() {
    let tree = tree();
    for (client, path) in [("claude", "user/.claude.json"), ("cursor", "user/.cursor/mcp.json")] {
        tree.haft(&["mcp", "install", client]).output().expect_code(0);
        let first = tree.text(path);
        let mine = "\"env\": { \"HAFT_HOME\": \"/mine\" }, // mine\n      \"command\"";
        let edited = first.replacen("\"command\"", mine, 1);
        tree.file(path, &edited);
        tree.haft(&["mcp", "install", client, "--", "--read-only"]).output().expect_code(0);
        let second = tree.text(path);
        assert!(second.contains(mine) && second.contains("--read-only"), "{second}");
        let entries = |text: &str| text.matches("\"command\"").count();
        assert_eq!((entries(&second), entries(&first)), (1, 1), "{second}");
    }
}

#[test]
fn import_finds_vs_code_variants_and_files_in_xdg_config_home() {
    let tree = tree();
    let file = |name: &str| format!(r#"{{"servers": {{"{name}": {{"command": "x"}}}}}}"#);
    tree.file("user/.config/Code - Insiders/User/mcp.json", &file("insiders"));
    tree.file("user/.config/VSCodium/User/mcp.json", &file("codium"));
    tree.file("outside/config/Code/User/mcp.json", &file("moved"));
    let names = |directory: &str| {
        let run = tree.haft(&["mcp", "import", "vscode", "--json"]).env("XDG_CONFIG_HOME", directory);
        let stderr = run.output().expect_code(4).stderr;
        ["insiders", "codium", "moved"].map(|name| stderr.contains(&format!("+ {name}")))
    };
    assert_eq!(names(tree.path("outside/config").to_str().unwrap()), [true, true, true]);
    // A relative path is invalid.
    assert_eq!(names("../outside/config"), [true, true, false]);
    assert_eq!(names(tree.path("user/.config").to_str().unwrap()), [true, true, false]);
}

/// Configuration files of other programs contain tokens of servers. A copy that haft makes must not be readable by
/// users who cannot read the file itself.
#[test]
fn config_files_of_other_programs_and_their_backups_are_hidden_as_secrets() {
    let home = Path::new("/home/u");
    let secrets = haft_sandbox::default_secrets(home);
    let is_hidden = |name: &str| secrets.iter().any(|secret| home.join(name).starts_with(secret));
    for name in ImportSource::ALL.iter().flat_map(|source| source.files_in_home()) {
        assert!(is_hidden(name), "{name}");
    }
    for name in [".claude.json", ".cursor/mcp.json", ".codex/config.toml"] {
        assert!(is_hidden(&format!("{name}.haft-backup")), "{name}");
    }
}

const ASKING: &str = r#"{
    "inputs": [{"type": "promptString", "id": "notes-key", "description": "Key of the notes", "password": true}],
    "servers": {"notes": {"SERVER, "env": {"NOTES_TOKEN": "${input:notes-key}"}}}
}"#;

/// Writes a VS Code entry for a server that reports the length of its token.
fn asking(tree: &TestTree) {
    let server = tree.misbehaving_server("counts-token", &[]);
    tree.file("ws/.vscode/mcp.json", &ASKING.replace("\"SERVER", &server));
}

fn token(tree: &TestTree) -> String {
    tree.haft(&["call", "notes__echo", r#"{"text": "hi"}"#]).output().expect_code(0).stdout
}

#[test]
fn variable_that_another_program_prompts_for_is_asked_once_and_stored() {
    let tree = tree();
    asking(&tree);
    let mut run = tree.haft(&["mcp", "import", "vscode"]).on_terminal();
    run.wait_for("add 1 server?");
    run.type_keys("y");
    run.wait_for("Key of the notes (NOTES_KEY)");
    run.type_keys("typed-secret\n");
    let shown = run.finish().stdout;
    assert!(shown.contains("stored 1 value") && !shown.contains("typed-secret"), "{shown}");
    assert_eq!(token(&tree), "token of 12 characters\n");
    assert!(!tree.text("home/haft.json").contains("typed-secret"));
    let one_command = tree.haft(&["call", "notes__echo", r#"{"text": "hi"}"#]).env("NOTES_KEY", "other");
    assert_eq!(
        one_command.output().expect_code(0).stdout,
        "token of 5 characters\n",
        "the environment has priority over the stored value"
    );
    tree.haft(&["mcp", "remove", "notes"]).output().expect_code(0);
    let mut run = tree.haft(&["mcp", "import", "vscode"]).on_terminal();
    run.wait_for("add 1 server?");
    run.type_keys("y");
    let again = run.finish().stdout;
    assert!(!again.contains("Key of the notes (") && again.contains("added 1 server"), "{again}");
}

#[test]
fn value_with_options_is_chosen_by_its_number() {
    let tree = tree();
    asking(&tree);
    let file = tree
        .text("ws/.vscode/mcp.json")
        .replace(r#""type": "promptString""#, r#""type": "pickString", "options": ["first", "second-one"]"#);
    tree.file("ws/.vscode/mcp.json", &file.replace(r#""password": true"#, r#""password": false"#));
    let mut run = tree.haft(&["mcp", "import", "vscode"]).on_terminal();
    run.wait_for("add 1 server?");
    run.type_keys("y");
    run.wait_for("2  second-one");
    run.type_keys("9\n");
    run.wait_for("`9` is not one of the 2 options");
    run.type_keys("2\n");
    run.finish().expect_code(0);
    assert_eq!(token(&tree), "token of 10 characters\n");
}

#[test]
fn env_file_sets_only_the_variables_that_imported_servers_use() {
    let tree = tree();
    asking(&tree);
    tree.file("ws/.env", "# keys\nexport NOTES_KEY='from-the-file'\nUNUSED=1\n");
    let words = ["mcp", "import", "vscode", "--yes", "--env-file", ".env"];
    let added = tree.haft(&words).output().expect_code(0);
    assert!(added.stdout.contains("stored 1 value"), "{}", added.stdout);
    assert_eq!(token(&tree), "token of 13 characters\n");
    assert!(!tree.text("home/data/tokens/.variables.json").contains("UNUSED"));
    tree.file("ws/.env", "nonsense\n");
    tree.haft(&["mcp", "remove", "notes"]).output().expect_code(0);
    let wrong = tree.haft(&words).output().expect_code(42);
    assert!(wrong.stderr.contains("line 1"), "{}", wrong.stderr);
}

#[test]
fn variable_with_a_value_in_the_env_file_is_not_asked_for() {
    let tree = tree();
    asking(&tree);
    tree.file("ws/.env", "NOTES_KEY=from-the-file\n");
    let mut run = tree.haft(&["mcp", "import", "vscode", "--env-file", ".env"]).on_terminal();
    run.wait_for("add 1 server?");
    run.type_keys("y");
    let shown = run.finish().stdout;
    assert!(shown.contains("stored 1 value") && !shown.contains("Key of the notes ("), "{shown}");
    assert_eq!(token(&tree), "token of 13 characters\n");
}

#[test]
fn variable_is_stored_in_the_keyring_if_the_tokens_are_stored_there() {
    let tree = tree();
    asking(&tree);
    let keyring = SecretService::start(&tree);
    tree.file("ws/.env", "NOTES_KEY=typed-secret\n");
    let words = ["mcp", "import", "vscode", "--yes", "--env-file", ".env"];
    let added = keyring.haft(&tree, &words).output().expect_code(0).stdout;
    assert!(added.contains("stored 1 value in the keyring"), "{added}");
    let file = tree.text("home/data/tokens/.variables.json");
    assert!(file.contains("NOTES_KEY") && !file.contains("typed-secret"), "{file}");
    let call = ["call", "notes__echo", r#"{"text": "hi"}"#];
    let called = || keyring.haft(&tree, &call).output().expect_code(0).stdout;
    assert_eq!(called(), "token of 12 characters\n");
    let without = tree.haft(&call).output();
    assert!(
        without.stderr.contains("the variables are in the keyring") && without.code != Some(0),
        "{without:?}"
    );
    let other = tree.haft(&["call", "bash", r#"{"command": "true"}"#]).env("NOTES_KEY", "other").output();
    assert!(
        !other.stderr.contains("keyring"),
        "haft does not need the keyring if the environment has the value: {other:?}"
    );
    assert_eq!(called(), "token of 12 characters\n", "the keyring still has the value");
}

#[test]
fn variable_in_the_token_file_moves_to_the_keyring_with_the_next_value() {
    let tree = tree();
    asking(&tree);
    tree.file("home/data/tokens/.variables.json", r#"{"NOTES_KEY": "of-an-older-haft"}"#);
    let keyring = SecretService::start(&tree);
    let call = ["call", "notes__echo", r#"{"text": "hi"}"#];
    keyring.haft(&tree, &["mcp", "import", "vscode", "--yes"]).output().expect_code(0);
    assert_eq!(keyring.haft(&tree, &call).output().expect_code(0).stdout, "token of 16 characters\n");
    assert!(
        tree.text("home/data/tokens/.variables.json").contains("of-an-older-haft"),
        "reading the value leaves it in the token file"
    );
    let server = tree.misbehaving_server("counts-token", &[]);
    let other = format!(
        r#"{{"servers": {{"other": {{{server}, "env": {{"NOTES_TOKEN": "${{env:OTHER_KEY}}"}}}}}}}}"#
    );
    tree.file("ws/.vscode/mcp.json", &other);
    tree.file("ws/.env", "OTHER_KEY=12345\n");
    let words = ["mcp", "import", "vscode", "--yes", "--env-file", ".env"];
    keyring.haft(&tree, &words).output().expect_code(0);
    assert!(
        !tree.text("home/data/tokens/.variables.json").contains("older"),
        "haft moves the old value to the keyring"
    );
    assert_eq!(keyring.haft(&tree, &call).output().expect_code(0).stdout, "token of 16 characters\n");
    let other = keyring.haft(&tree, &["call", "other__echo", r#"{"text": "hi"}"#]).output().expect_code(0);
    assert_eq!(other.stdout, "token of 5 characters\n");
}
