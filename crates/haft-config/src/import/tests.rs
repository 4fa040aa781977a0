use serde_json::json;

use super::*;

fn imported(source: ImportSource, text: &str) -> Value {
    let found = read(source, text, None).unwrap();
    let server = |server: &ImportedServer| (server.name.clone(), Value::Object(server.entry.clone()));
    Value::Object(found.servers.iter().map(server).collect())
}

fn notes(source: ImportSource, text: &str) -> Vec<String> {
    let found = read(source, text, None).unwrap();
    let of_server = |server: &ImportedServer| {
        server.notes.iter().map(|note| format!("{}: {note}", server.name)).collect::<Vec<_>>()
    };
    let skipped = found.skipped.iter().map(|(name, reason)| format!("{name} skipped: {reason}"));
    found.servers.iter().flat_map(of_server).chain(skipped).collect()
}

/// Checks the import of a program's example file. The entries must also be valid in `haft.json`.
fn check(source: ImportSource, text: &str, expected: &Value, expected_notes: &[&str]) {
    let found = imported(source, text);
    assert_eq!(&found, expected, "{}", source.name());
    let found_notes = notes(source, text);
    assert_eq!(found_notes.len(), expected_notes.len(), "{}: {found_notes:?}", source.name());
    for (note, expected) in found_notes.iter().zip(expected_notes) {
        assert!(note.contains(expected), "{}: {note}", source.name());
    }
    let Value::Object(servers) = found else { unreachable!() };
    let variables = |_: &str| Some("x".to_owned());
    crate::mcp_servers_of(std::path::Path::new("/x"), &servers, &variables)
        .unwrap_or_else(|errors| panic!("{}: {errors:?}", source.name()));
}

#[test]
fn claude_and_editor_fixtures_become_valid_entries() {
    check(
        ImportSource::ClaudeDesktop,
        include_str!("fixtures/claude-desktop.json"),
        &json!({
            "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/Documents"]},
            "github": {
                "command": "docker",
                "args": ["run", "-i", "--rm", "-e", "GITHUB_TOKEN", "ghcr.io/github/github-mcp-server"],
                "env": {"GITHUB_TOKEN": "ghp_example"},
            },
        }),
        &["github: the server starts a container, so it needs the unix socket of `docker`"],
    );
    check(
        ImportSource::ClaudeCode,
        include_str!("fixtures/claude-code.json"),
        &json!({
            "docs": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}},
            "time": {"type": "stdio", "command": "uvx", "args": ["mcp-server-time"], "env": {}},
        }),
        &["local skipped: the server belongs to the project `/home/me/project`"],
    );
    check(
        ImportSource::Cursor,
        include_str!("fixtures/cursor.json"),
        &json!({
            "local": {"command": "node", "args": ["./server.js", "--home", "${HOME}"], "env": {"API_KEY": "${API_KEY}"}},
            "remote": {"url": "https://example.com/sse"},
        }),
        &["local: haft did not import the key `envFile`", "remote: haft cannot import the login"],
    );
    check(
        ImportSource::VsCode,
        include_str!("fixtures/vscode.json"),
        &json!({
            "github": {"type": "http", "url": "https://api.example.com/mcp/"},
            "perplexity": {
                "type": "stdio",
                "command": "npx",
                "args": ["-y", "server-perplexity-ask"],
                "env": {"PERPLEXITY_API_KEY": "${PERPLEXITY_KEY}"},
            },
        }),
        &[
            "github: haft did not import the key `sandboxEnabled`: haft runs every server in its own sandbox",
            "github: haft did not import the keys `gallery`, `version`, which only describe the server",
            "perplexity: set the environment variable `PERPLEXITY_KEY`: the other program asks the user for the value `perplexity-key` (Perplexity API key)",
        ],
    );
    check(
        ImportSource::Windsurf,
        include_str!("fixtures/windsurf.json"),
        &json!({
            "off": {"command": "npx", "args": ["-y", "x"], "disabled": true},
            "remote": {
                "url": "https://example.com/mcp",
                "headers": {"API_KEY": "${REMOTE_KEY}"},
                "toolsDenied": ["delete"],
            },
        }),
        &[],
    );
    check(
        ImportSource::Cline,
        include_str!("fixtures/cline.json"),
        &json!({"remote": {
            "type": "http",
            "url": "https://example.com/mcp",
            "headers": {"Authorization": "Bearer token"},
            "requestTimeout": "1m",
        }}),
        &["remote: haft did not import the key `alwaysAllow`: haft uses its own policy rules"],
    );
}

#[test]
fn gemini_opencode_goose_and_codex_fixtures_become_valid_entries() {
    check(
        ImportSource::Gemini,
        include_str!("fixtures/gemini.json"),
        &json!({
            "events": {"url": "https://example.com/sse"},
            "local": {
                "command": "python",
                "args": ["-m", "server"],
                "cwd": "./server",
                "env": {"PORT": "8080", "TOKEN": "${TOKEN}", "KEY": "${KEY}", "PRICE": "5$"},
                "toolsAllowed": ["read_*"],
                "toolsDenied": ["read_secret"],
            },
            "streamed": {"type": "http", "url": "https://example.com/mcp", "requestTimeout": "5s"},
        }),
        &["streamed: haft did not import the key `trust`: haft uses its own policy rules"],
    );
    check(
        ImportSource::Opencode,
        include_str!("fixtures/opencode.jsonc"),
        &json!({
            "local": {"command": "bun", "args": ["x", "my-mcp"], "env": {"KEY": "${MY_KEY}", "NOTE": "${NOTE_TXT}"}},
            "remote": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${T}"}, "disabled": true, "requestTimeout": "8s"},
        }),
        &[
            "local: set the environment variable `NOTE_TXT` to the content",
            "odd skipped: the server has neither a command nor a URL",
            "agent planner skipped: haft reads agents from agent files",
        ],
    );
    check(
        ImportSource::Goose,
        include_str!("fixtures/goose.yaml"),
        &json!({
            "fetch": {
                "command": "uvx",
                "args": ["mcp-server-fetch"],
                "env": {"MODE": "fast", "FETCH_TOKEN": "${FETCH_TOKEN}"},
                "requestTimeout": "5m",
                "toolsAllowed": ["fetch"],
            },
            "remote": {"url": "https://example.com/mcp", "headers": {"X-Key": "value"}, "disabled": true},
        }),
        &[
            "fetch: set the environment variable `FETCH_TOKEN`",
            "fetch: haft did not import the key `description`, which only describes the server",
            "developer skipped: haft cannot import extensions of type `builtin`",
        ],
    );
    check(
        ImportSource::Codex,
        include_str!("fixtures/codex.toml"),
        &json!({
            "docs": {
                "command": "npx",
                "args": ["-y", "docs-server"],
                "env": {"MODE": "fast", "DOCS_TOKEN": "${DOCS_TOKEN}"},
                "startupTimeout": "20s",
                "requestTimeout": "7500ms",
                "toolsAllowed": ["search"],
            },
            "remote": {
                "url": "https://example.com/mcp",
                "headers": {"Authorization": "Bearer ${REMOTE_TOKEN}", "X-Region": "eu", "X-Key": "${REMOTE_KEY}"},
                "startup": "required",
            },
        }),
        &[
            "docs: haft did not import the key `supports_parallel_tool_calls`: the effects of a tool decide",
            "remote: haft did not import the key `default_tools_approval_mode`: haft uses its own policy rules",
        ],
    );
}

#[test]
fn tool_restrictions_are_imported_from_every_known_key() {
    let check_one = |members: &Value, expected: &Value, expected_notes: &[&str]| {
        let mut server = json!({"url": "https://example.com/mcp"});
        server.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let mut entry = json!({"url": "https://example.com/mcp"});
        entry.as_object_mut().unwrap().extend(expected.as_object().unwrap().clone());
        let text = json!({"mcpServers": {"a": server}}).to_string();
        check(ImportSource::Windsurf, &text, &json!({ "a": entry }), expected_notes);
    };
    for key in ["includeTools", "toolNamesAllowed", "allowedTools", "enabledTools", "tools"] {
        check_one(&json!({key: ["x"]}), &json!({"toolsAllowed": ["x"]}), &[]);
    }
    for key in ["excludeTools", "disabledTools", "disallowedTools"] {
        check_one(&json!({key: ["x"]}), &json!({"toolsDenied": ["x"]}), &[]);
    }
    check_one(
        &json!({"disabledTools": ["x"], "excludeTools": ["y"], "includeTools": ["z", "w"], "toolsAllowed": ["z"]}),
        &json!({"toolsDenied": ["x", "y"], "toolsAllowed": ["z"]}),
        &[],
    );
    check_one(
        &json!({"disabledTools": "x"}),
        &json!({"disabled": true}),
        &["a: haft disabled the server, because the key `disabledTools` is not a list"],
    );
}

#[test]
fn time_limits_are_converted_or_a_note_gives_the_reason() {
    let limit = |source: ImportSource, value: Value| {
        let text = json!({"mcpServers": {"a": {"command": "x", "timeout": value}}}).to_string();
        (imported(source, &text)["a"]["requestTimeout"].clone(), notes(source, &text))
    };
    assert_eq!(limit(ImportSource::Cline, json!(30)), (json!("30s"), vec![]));
    assert_eq!(limit(ImportSource::Gemini, json!(30)), (json!("30ms"), vec![]));
    assert_eq!(limit(ImportSource::ClaudeCode, json!(900.9)), (json!("900ms"), vec![]));
    for (source, value) in [(ImportSource::Cline, json!("30")), (ImportSource::Gemini, json!(-1))] {
        let (limit, notes) = limit(source, value);
        assert!(
            limit.is_null() && notes[0].contains("is not a positive number; set `requestTimeout`"),
            "{notes:?}"
        );
    }
    let (unknown, notes) = limit(ImportSource::Cursor, json!(30));
    assert!(unknown.is_null() && notes[0].contains("different units"), "{notes:?}");
}

#[test]
fn claude_code_servers_of_the_current_project_are_imported_first() {
    let text = json!({
        "mcpServers": {"docs": {"command": "user"}},
        "projects": {
            "/home/me": {"mcpServers": {"docs": {"command": "outer"}, "home": {"command": "x"}}},
            "/home/me/project": {"mcpServers": {"docs": {"command": "inner"}}},
            "/home/me/project2": {"mcpServers": {"other": {"command": "x"}}},
            "/none": {},
        },
    });
    let read_in = |directory: &str| {
        let found = read(ImportSource::ClaudeCode, &text.to_string(), Some(Path::new(directory))).unwrap();
        let command = |server: &ImportedServer| format!("{} {}", server.name, server.entry["command"]);
        let notes = found.servers.iter().flat_map(|server| server.notes.clone()).collect::<Vec<_>>();
        (found.servers.iter().map(command).collect::<Vec<_>>(), notes, found.skipped)
    };
    let (servers, notes, skipped) = read_in("/home/me/project/src");
    assert_eq!(servers, ["docs \"inner\"", "docs \"outer\"", "home \"x\"", "docs \"user\""]);
    assert_eq!(notes[0], "the imported file defines this server only for the project `/home/me/project`");
    let reason = "the server belongs to the project `/home/me/project2`; import it in that directory";
    assert_eq!(skipped, [("other".to_owned(), reason.to_owned())]);
    let (servers, _, skipped) = read_in("/elsewhere");
    assert_eq!((servers, skipped.len()), (vec!["docs \"user\"".to_owned()], 4));
}

#[test]
fn variables_that_a_container_gets_are_added_to_the_environment() {
    let args = json!(["run", "-i", "--rm", "-e", "TOKEN", "-e", "REGION", "image"]);
    let server = json!({"command": "podman", "args": args, "env": {"REGION": "eu"}});
    let text = json!({"mcpServers": {"a": server}}).to_string();
    let env = json!({"REGION": "eu", "TOKEN": "${TOKEN}"});
    check(
        ImportSource::ClaudeDesktop,
        &text,
        &json!({"a": {"command": "podman", "args": args, "env": env}}),
        &[
            "a: the server starts a container, so it needs the unix socket of `podman`",
            "a: the container gets the environment variable `TOKEN`: haft added it to `env`",
        ],
    );
    let found = read(ImportSource::ClaudeDesktop, &text, None).unwrap();
    let asked: Vec<&str> = found.servers[0].asked.iter().map(|asked| asked.name.as_str()).collect();
    assert_eq!(asked, ["TOKEN"]);
}

#[test]
fn vs_code_inputs_offer_options_and_name_unsupported_commands() {
    let text = json!({
        "inputs": [
            {"type": "pickString", "id": "region", "description": "Region", "default": "eu",
             "options": ["eu", {"label": "America", "value": "us"}]},
            {"type": "command", "id": "token", "command": "extension.token"},
            {"type": "promptString", "id": "name", "default": "me"},
        ],
        "servers": {"a": {"url": "https://e.com", "headers": {
            "R": "${input:region}", "T": "${input:token}", "N": "${input:name}",
        }}},
    });
    let found = read(ImportSource::VsCode, &text.to_string(), None).unwrap();
    let server = &found.servers[0];
    assert_eq!(server.asked.len(), 2, "{:?}", server.asked);
    let asked = |id: &str| server.asked.iter().find(|asked| asked.id == id).unwrap();
    let (name, region) = (asked("name"), asked("region"));
    assert_eq!(
        (region.options.as_slice(), region.default.as_deref()),
        (&["eu".into(), "us".into()][..], Some("eu"))
    );
    assert_eq!((name.name.as_str(), name.default.as_deref()), ("NAME", Some("me")));
    let note = server.notes.iter().find(|note| note.contains("`token`")).unwrap();
    assert!(note.contains("haft does not support the input `token`") && note.contains("`TOKEN`"), "{note}");
    let value = |answer: &str| region.value_of(answer);
    assert_eq!(value(" us \n"), Ok(Some("us".into())));
    assert_eq!(value("2"), Ok(Some("us".into())));
    assert_eq!(value(""), Ok(Some("eu".into())));
    for wrong in ["0", "3", "asia"] {
        assert!(value(wrong).unwrap_err().contains("not one of the 2 options"));
    }
    assert_eq!(name.value_of("x"), Ok(Some("x".into())));
}

#[test]
fn malformed_import_files_are_refused_with_the_reason() {
    for source in ImportSource::ALL {
        let text = match source {
            ImportSource::Goose => "extensions: [",
            ImportSource::Codex => "[mcp_servers",
            _ => "{\"mcpServers\": ",
        };
        assert!(
            read(source, text, None).unwrap_err().starts_with("the file is not valid"),
            "{}",
            source.name()
        );
    }
    assert_eq!(
        read(ImportSource::Cursor, "[]", None).unwrap_err(),
        "the file does not contain a JSON object"
    );
    let odd = r#"{"mcpServers": {"a": 7, "b": {}, "c": {"command": "x", "url": "https://e.com"}}}"#;
    let found = read(ImportSource::Cursor, odd, None).unwrap();
    assert!(found.servers.is_empty() && found.skipped.len() == 3, "{found:?}");
    assert!(read(ImportSource::Cursor, r#"{"mcpServers": 7}"#, None).unwrap().servers.is_empty());
}

#[test]
fn import_detects_the_file_format_by_its_extension_and_its_content() {
    let check = |path: &str, text: &str, name: &str| {
        let found = read_any(text, Path::new(path), None).unwrap();
        assert!(found.servers.iter().any(|server| server.name == name), "{path}: {found:?}");
    };
    for (extension, text, name) in [
        ("json", include_str!("fixtures/cline.json"), "remote"),
        ("json", include_str!("fixtures/vscode.json"), "github"),
        ("jsonc", include_str!("fixtures/opencode.jsonc"), "local"),
        ("toml", include_str!("fixtures/codex.toml"), "docs"),
        ("yaml", include_str!("fixtures/goose.yaml"), "fetch"),
        ("YML", include_str!("fixtures/goose.yaml"), "fetch"),
    ] {
        check(&format!("a.{extension}"), text, name);
        check("servers", text, name);
        check("servers.txt", &format!("\u{feff}{text}"), name);
    }
    check("a", "// mine\n{\"mcpServers\": {\"x\": {\"command\": \"y\"}}}", "x");
    check("settings.json", include_str!("fixtures/vscode-settings.jsonc"), "docs");
    check("devcontainer.json", include_str!("fixtures/devcontainer.json"), "browser");
    let wrong = |path: &str, text: &str| read_any(text, Path::new(path), None).unwrap_err();
    assert!(wrong("a", "{}").contains("contains no MCP servers"));
    assert!(wrong("a.toml", "a = 1").contains("`mcp_servers`"));
    assert!(wrong("a.yaml", "a: 1").contains("`extensions`"));
    assert!(wrong("a.toml", "{}").contains("not valid TOML"));
}

#[test]
fn import_accepts_servers_of_vs_code_settings_and_of_containers() {
    let settings = include_str!("fixtures/vscode-settings.jsonc");
    check(
        ImportSource::VsCode,
        settings,
        &json!({"docs": {"type": "stdio", "command": "npx", "args": ["-y", "docs-server"], "env": {"KEY": "${DOCS_KEY}"}}}),
        &["docs: set the environment variable `DOCS_KEY`"],
    );
    let found = read_any(settings, Path::new("settings.json"), None).unwrap();
    assert_eq!((found.skipped.len(), found.servers[0].asked[0].id.as_str()), (0, "docs-key"));
    // A server of opencode may have the name `servers`.
    let opencode = r#"{"mcp": {"servers": {"type": "local", "command": ["x", "y"]}}}"#;
    let found = read_any(opencode, Path::new("opencode.json"), None).unwrap();
    assert_eq!((found.servers[0].name.as_str(), &found.servers[0].entry["args"]), ("servers", &json!(["y"])));
}

#[test]
fn import_accepts_servers_without_an_enclosing_key() {
    let check = |path: &str, text: Value, expected: &[(&str, Value)], skipped: usize| {
        let found = read_any(&text.to_string(), Path::new(path), None).unwrap();
        let servers = found.servers.iter();
        let servers: Vec<_> = servers.map(|server| (server.name.as_str(), json!(server.entry))).collect();
        assert_eq!(servers, expected, "{text}");
        assert_eq!(found.skipped.len(), skipped, "{text}");
    };
    let (npx, url) = (json!({"command": "npx"}), json!({"url": "https://example.com/mcp"}));
    let map = json!({"docs": npx, "remote": url, "version": 2});
    check("a.json", map, &[("docs", npx.clone()), ("remote", url.clone())], 1);
    check("docs.json", npx.clone(), &[("docs", npx.clone())], 0);
    check("docs.json", json!({"name": "mine", "url": "https://example.com/mcp"}), &[("mine", url)], 0);
    check("docs.json", json!({"name": 7, "command": "npx"}), &[("docs", npx)], 0);
    let refused = |text: &str| read_any(text, Path::new("a.json"), None).unwrap_err();
    for text in ["{}", r#"{"docs": {"program": "npx"}}"#, r#"{"command": 7}"#, r#"{"servers": 7}"#] {
        assert!(refused(text).contains("contains no MCP servers"), "{text}");
    }
}

#[test]
fn dollar_name_gets_braces_for_gemini_and_a_note_for_unknown_programs() {
    let text =
        json!({"mcpServers": {"a": {"command": "x", "args": ["$A", "$$B-${C}", "cost: 5$ or $6", "$"]}}});
    let text = text.to_string();
    let args = |found: Value| found["a"]["args"].clone();
    let replaced = json!(["${A}", "$${B}-${C}", "cost: 5$ or $6", "$"]);
    let kept = json!(["$A", "$$B-${C}", "cost: 5$ or $6", "$"]);
    assert_eq!(args(imported(ImportSource::Gemini, &text)), replaced);
    assert_eq!(notes(ImportSource::Gemini, &text), [""; 0]);
    // Claude Code does not replace `$A`.
    assert_eq!(args(imported(ImportSource::ClaudeCode, &text)), kept);
    assert_eq!(notes(ImportSource::ClaudeCode, &text), [""; 0]);
    let found = read_any(&text, Path::new("a.json"), None).unwrap();
    assert_eq!(found.servers[0].entry["args"], kept);
    let noted: Vec<bool> = found.servers[0].notes.iter().map(|note| note.contains("as plain text")).collect();
    assert_eq!(noted, [true, true], "{:?}", found.servers[0].notes);
}

#[test]
fn entries_that_haft_cannot_resolve_are_skipped_with_the_reason() {
    let text = json!({"mcpServers": {
        "far": {"type": "stdio", "url": "https://example.com/mcp"},
        "good": {"command": "x", "env": {"TOKEN": "${UNSET}"}},
        "near": {"type": "http", "command": "npx"},
    }});
    let mut found = read(ImportSource::Cursor, &text.to_string(), None).unwrap();
    assert_eq!(found.servers.len(), 3);
    found.skip_invalid(&|_| None);
    let names: Vec<&str> = found.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["good"], "an unset variable only makes a server unavailable");
    let reasons = [("far", "type `stdio` needs a `command`"), ("near", "this `type` needs a `url`")];
    assert_eq!(found.skipped.len(), reasons.len());
    for ((name, reason), (server, part)) in found.skipped.iter().zip(reasons) {
        assert!(name == server && reason.contains(part), "{name}: {reason}");
    }
}

#[test]
fn server_with_incomplete_arguments_is_skipped() {
    for args in [json!("-y pkg"), json!({"a": 1}), json!(["-y", null]), json!(["-y", {"a": 1}])] {
        let text = json!({"mcpServers": {"a": {"command": "npx", "args": args}}}).to_string();
        assert_eq!(imported(ImportSource::Cursor, &text), json!({}), "{args}");
        assert_eq!(
            notes(ImportSource::Cursor, &text),
            ["a skipped: the value of the key `args` is not a list of texts"]
        );
    }
    let text = json!({"mcpServers": {"a": {"command": "npx", "args": null}}}).to_string();
    assert_eq!(imported(ImportSource::Cursor, &text)["a"]["command"], "npx");
    let opencode = r#"{"mcp": {"a": {"type": "local", "command": "npx -y pkg"}}}"#;
    assert_eq!(
        notes(ImportSource::Opencode, opencode),
        ["a skipped: the value of the key `command` is not a list of texts"]
    );
}

#[test]
fn server_with_an_unclear_switch_is_disabled() {
    let check = |source: ImportSource, key: &str, value: Value, disabled: bool, noted: bool| {
        let text = match source {
            ImportSource::Opencode => json!({"mcp": {"a": {"command": ["x"], key: value}}}).to_string(),
            ImportSource::Goose => {
                format!("extensions:\n  a:\n    type: stdio\n    cmd: x\n    {key}: {value}\n")
            }
            ImportSource::Codex => format!("[mcp_servers.a]\ncommand = \"x\"\n{key} = {value}\n"),
            _ => json!({"mcpServers": {"a": {"command": "x", key: value}}}).to_string(),
        };
        let entry = imported(source, &text)["a"].clone();
        assert_eq!(entry["disabled"] == true, disabled, "{text}");
        let notes = notes(source, &text);
        assert_eq!(notes.iter().any(|note| note.contains("neither `true` nor `false`")), noted, "{notes:?}");
        assert_eq!(notes.len(), usize::from(noted), "{notes:?}");
    };
    let cursor = ImportSource::Cursor;
    check(cursor, "disabled", json!(true), true, false);
    check(cursor, "disabled", json!("true"), true, false);
    check(cursor, "disabled", json!("False"), false, false);
    check(cursor, "disabled", json!(null), false, false);
    check(cursor, "disabled", json!(1), true, true);
    check(cursor, "disabled", json!("yes"), true, true);
    for source in [cursor, ImportSource::Codex, ImportSource::Goose, ImportSource::Opencode] {
        check(source, "enabled", json!(true), false, false);
        check(source, "enabled", json!(false), true, false);
        check(source, "enabled", json!("false"), true, false);
        check(source, "enabled", json!("no"), true, true);
    }
}

#[test]
fn import_lists_the_variables_that_have_no_value_in_haft() {
    let joined = |source: ImportSource, text: &str| notes(source, text).join("\n");
    let of = |word: &str| json!({"servers": {"a": {"command": "x", "args": [word]}}}).to_string();
    for word in ["${config:editor.fontSize}", "${command:pick}", "${workspaceFolderBasename}", "${file}"] {
        let notes = joined(ImportSource::VsCode, &of(word));
        assert!(notes.contains(&format!("haft has no value for `{word}`")), "{word}: {notes}");
    }
    for word in ["${NAME}", "${NAME:-default}", "${env:NAME}", "${workspaceFolder}", "$NAME", "{config:a}"] {
        assert_eq!(joined(ImportSource::VsCode, &of(word)), "", "{word}");
    }
    let plain = "`${HOME}` is plain text in the other program";
    for (source, text) in [
        (ImportSource::Codex, "[mcp_servers.a]\ncommand = \"x\"\nargs = [\"${HOME}\"]\n"),
        (ImportSource::Codex, "[mcp_servers.a]\ncommand = \"${HOME}/x\"\n"),
        (
            ImportSource::Goose,
            "extensions:\n  a:\n    type: stdio\n    cmd: x\n    envs:\n      A: ${HOME}\n",
        ),
        (ImportSource::Opencode, r#"{"mcp": {"a": {"command": ["x", "${HOME}"]}}}"#),
    ] {
        assert!(joined(source, text).contains(plain), "{text}: {}", joined(source, text));
    }
    let opencode = r#"{"mcp": {"a": {"command": ["x", "{env:HOME}", "$HOME"]}}}"#;
    assert_eq!(joined(ImportSource::Opencode, opencode), "");
}

#[test]
fn import_notes_each_key_whose_value_has_an_unusable_type() {
    let check = |source: ImportSource, text: &str, key: &str| {
        let notes = notes(source, text);
        let expected =
            format!("a: haft did not import the key `{key}`, because it cannot use a value of this type");
        assert!(notes.contains(&expected), "{text}: {notes:?}");
    };
    for (key, value) in [("env", json!([])), ("headers", json!("x")), ("cwd", json!({})), ("type", json!(7))]
    {
        let text = json!({"mcpServers": {"a": {"command": "x", key: value}}}).to_string();
        check(ImportSource::Cursor, &text, key);
    }
    let codex = |line: &str| format!("[mcp_servers.a]\ncommand = \"x\"\n{line}\n");
    check(ImportSource::Codex, &codex("env_vars = [1]"), "env_vars");
    check(ImportSource::Codex, &codex("required = 1"), "required");
    check(ImportSource::Codex, &codex("env_http_headers = { A = 1 }"), "env_http_headers");
    check(ImportSource::Goose, "extensions:\n  a:\n    type: stdio\n    cmd: x\n    envs: 7\n", "envs");
    check(ImportSource::Opencode, r#"{"mcp": {"a": {"command": ["x"], "environment": 7}}}"#, "environment");
}
