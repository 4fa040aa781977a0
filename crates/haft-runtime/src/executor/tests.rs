//! Tests whose names begin with `test_` have the names that the specification of the executor gives them. The
//! specification calls [`SandboxMode::Full`] `Rwx`.

use serde_json::json;

use super::*;

/// A workspace below its own data directory, as a service would arrange it. It is not below `/tmp`, which is writable
/// in every mode.
struct ExecutorFixture {
    dir: tempfile::TempDir,
}

impl ExecutorFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir(dir.path().join("workspace")).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn executor(&self, mode: SandboxMode) -> ToolExecutor {
        ToolExecutor::new(self.path("workspace"), mode)
    }
}

#[test]
fn test_builtin_tool_defs_count() {
    let names: Vec<String> = builtin_tool_defs().into_iter().map(|def| def.name).collect();
    assert_eq!(names, ["bash", "read", "write", "edit"]);
}

#[test]
fn all_tool_defs_without_servers_are_the_four_builtins() {
    let all = ExecutorFixture::new().executor(SandboxMode::Workspace).all_tool_defs();
    let names: Vec<&str> = all.iter().map(|def| def.name.as_str()).collect();
    assert_eq!(names, ["bash", "read", "write", "edit"]);
}

#[test]
fn test_tool_def_serialization() {
    for def in builtin_tool_defs() {
        let value = serde_json::to_value(&def).unwrap();
        assert!(value["name"].is_string());
        assert!(value["description"].is_string());
        assert_eq!(value["parameters"]["type"], "object");
    }
}

#[test]
fn test_truncate_output_short() {
    assert_eq!(truncate_output("hello", 10), "hello");
}

#[test]
fn test_truncate_output_exact() {
    assert_eq!(truncate_output("héllo", 5), "héllo");
}

#[test]
fn test_truncate_output_long() {
    assert_eq!(truncate_output("ééééé!", 5), "ééééé\n... (output truncated: 6 total chars, showing first 5)");
}

#[test]
fn test_is_write_allowed_full() {
    let executor = ExecutorFixture::new().executor(SandboxMode::Full);
    assert!(executor.is_write_allowed(Path::new("/etc/passwd")));
    assert!(executor.is_write_allowed(Path::new("/anywhere")));
}

#[test]
fn test_is_write_allowed_sandbox_inside_data_dir() {
    let place = ExecutorFixture::new();
    for mode in [SandboxMode::Workspace, SandboxMode::Network] {
        let executor = place.executor(mode);
        assert!(executor.is_write_allowed(&place.path("workspace/a.txt")));
        assert!(executor.is_write_allowed(&place.path("notes/b.txt")));
        assert!(executor.is_write_allowed(Path::new("relative.txt")));
        assert!(executor.is_write_allowed(Path::new("/tmp/c.txt")));
    }
}

#[test]
fn test_is_write_allowed_sandbox_outside() {
    let executor = ExecutorFixture::new().executor(SandboxMode::Workspace);
    assert!(!executor.is_write_allowed(Path::new("/etc/passwd")));
    assert!(!executor.is_write_allowed(Path::new("/home/someone/.bashrc")));
    assert!(!executor.is_write_allowed(Path::new("/tmp/../etc/passwd")));
}

#[tokio::test]
async fn test_exec_bash_empty_command() {
    let result = ExecutorFixture::new().executor(SandboxMode::Workspace).execute("bash", &json!({})).await;
    assert!(result.is_error);
    assert!(result.content.contains("'command' parameter is required"), "{}", result.content);
}

#[tokio::test]
async fn test_exec_bash_echo() {
    let place = ExecutorFixture::new();
    let result =
        place.executor(SandboxMode::Workspace).execute("bash", &json!({"command": "echo hello"})).await;
    assert!(!result.is_error, "{}", result.content);
    assert!(result.content.contains("hello"));
}

#[tokio::test]
async fn test_exec_read_nonexistent() {
    let place = ExecutorFixture::new();
    let result = place
        .executor(SandboxMode::Workspace)
        .execute("read", &json!({"file_path": "/nonexistent/file"}))
        .await;
    assert!(result.is_error);
    assert!(result.content.starts_with("Error reading /nonexistent/file"), "{}", result.content);
}

#[tokio::test]
async fn test_exec_write_and_read() {
    let place = ExecutorFixture::new();
    let mut executor = place.executor(SandboxMode::Workspace);
    let path = place.path("workspace/sub/file.txt");
    let written = executor.execute("write", &json!({"file_path": path, "content": "grüße\n"})).await;
    assert!(!written.is_error, "{}", written.content);
    assert_eq!(written.content, format!("Wrote 8 bytes to {}", path.display()));
    let read = executor.execute("read", &json!({"file_path": path})).await;
    assert_eq!(read.content, "grüße\n");
}

#[tokio::test]
async fn test_exec_edit() {
    let place = ExecutorFixture::new();
    let path = place.path("workspace/file.txt");
    std::fs::write(&path, "one two one").unwrap();
    let args = json!({"file_path": path, "old_string": "one", "new_string": "1"});
    let result = place.executor(SandboxMode::Workspace).execute("Edit", &args).await;
    assert!(!result.is_error, "{}", result.content);
    assert_eq!(
        result.content,
        format!("Edited {} (2 occurrence(s) of pattern, replaced first)", path.display())
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "1 two one");
}

#[tokio::test]
async fn test_exec_write_denied_sandbox() {
    let place = ExecutorFixture::new();
    let args = json!({"file_path": "/etc/test", "content": "x"});
    let result = place.executor(SandboxMode::Workspace).execute("write", &args).await;
    assert!(result.is_error);
    assert!(result.content.contains("denied"), "{}", result.content);
    assert!(!Path::new("/etc/test").exists());
}

#[tokio::test]
async fn test_execute_unknown_tool() {
    let result =
        ExecutorFixture::new().executor(SandboxMode::Workspace).execute("no_such_tool", &json!({})).await;
    assert!(result.is_error);
    assert!(result.content.starts_with("Unknown tool: no_such_tool"), "{}", result.content);
}

#[tokio::test]
async fn data_directory_is_writable_except_protected_files() {
    let place = ExecutorFixture::new();
    std::fs::create_dir(place.path("data")).unwrap();
    std::fs::write(place.path("data/memory.db"), "secret").unwrap();
    let mut executor = place.executor(SandboxMode::Workspace);
    let command = "cd ..; echo note > note && cat data/memory.db; echo x > config.toml; echo x > skills/x; echo x > agents/x; mv data d2; true";
    let result = executor.execute("bash", &json!({ "command": command })).await;
    assert!(!result.content.contains("secret"), "{}", result.content);
    assert_eq!(std::fs::read_to_string(place.path("note")).unwrap(), "note\n");
    assert_eq!(std::fs::read_to_string(place.path("data/memory.db")).unwrap(), "secret");
    assert_eq!(std::fs::read_to_string(place.path("config.toml")).unwrap(), "");
    assert!(!place.path("skills/x").exists() && !place.path("agents/x").exists());
}

#[tokio::test]
async fn call_in_a_missing_workspace_is_an_error() {
    let mut executor = ToolExecutor::new("/nonexistent/workspace".into(), SandboxMode::Workspace);
    let result = executor.execute("bash", &json!({"command": "true"})).await;
    assert!(result.is_error);
    assert!(result.content.contains("does not exist"), "{}", result.content);
}

/// Returns a real MCP server, which the executor starts in the real sandbox.
fn echo_server(place: &ExecutorFixture, name: &str) -> McpServer {
    let script = include_str!("../../../haft-testkit/src/mcp_server.py");
    let file = place.path("workspace/server.py");
    std::fs::write(&file, script).unwrap();
    McpServer::new(name, "python3", &[file.to_str().unwrap(), "good"])
}

/// Without MCP servers, the executor has no clients and routes no tools to them.
#[test]
fn test_tool_executor_mcp_tool_map_routing() {
    let executor = ExecutorFixture::new().executor(SandboxMode::Workspace);
    assert!(executor.mcp_clients().is_empty());
    assert!(executor.mcp_tool_map().is_empty());
}

#[tokio::test]
async fn mcp_tools_are_listed_called_and_removed_at_shutdown() {
    let place = ExecutorFixture::new();
    let mut executor = place.executor(SandboxMode::Workspace);
    let servers = [
        echo_server(&place, "one"),
        McpServer::new("gone", "/no/such/program", &[]),
        McpServer::configured("wrong", &json!({ "command": "a", "url": "http://b" })),
        echo_server(&place, "two"),
    ];
    let failed = executor.connect_mcp_servers(&servers).await;
    let named: Vec<&str> = failed.iter().map(|failed| failed.name.as_str()).collect();
    assert_eq!(named, ["gone", "wrong"], "{failed:?}");
    assert_eq!(executor.mcp_clients().len(), 2);
    let map = executor.mcp_tool_map();
    assert_eq!((map["one__echo"].as_str(), map["two__fail"].as_str(), map.len()), ("one", "two", 6));
    let listed: Vec<String> = executor.all_tool_defs().into_iter().map(|def| def.name).collect();
    assert_eq!(
        (listed.len(), listed[0].as_str()),
        (10, "bash"),
        "four built-in tools, and three tools of each server"
    );
    executor = executor.with_naming(NamingScheme::Claude);
    assert_eq!(executor.mcp_tool_map()["mcp__one__echo"], "one");
    executor = executor.with_naming(NamingScheme::Double);

    let called = executor.execute("one__echo", &json!({ "text": "hi" })).await;
    assert_eq!((called.content.as_str(), called.is_error), ("echo: hi", false));
    // Other agent programs call the same tool by this name.
    assert_eq!(executor.execute("mcp__two__echo", &json!({ "text": "x" })).await.content, "echo: x");
    assert!(executor.execute("two__fail", &json!({})).await.is_error);

    executor.shutdown_mcp().await;
    executor.shutdown_mcp().await;
    assert!(executor.mcp_clients().is_empty() && executor.mcp_tool_map().is_empty());
    let gone = executor.execute("one__echo", &json!({})).await;
    assert!(gone.is_error && gone.content.contains("one__echo"), "{}", gone.content);
    assert!(!executor.execute("bash", &json!({ "command": "true" })).await.is_error);
}
