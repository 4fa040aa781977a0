//! Tests of the library in a program that is not haft: this test binary, which starts itself again.

use std::path::Path;
use std::process::{Command, Output};

use haft::prelude::*;
use haft_config::ResolvedConfig;
use haft_config::resolved::{CacheTtl, PerToolSettings as ToolKeys};
use haft_core::name::GroupName;
use haft_engine::RunContext;
use haft_runtime::executor::ToolExecutor;
use haft_runtime::wiring::{self, ToolSettings};
use haft_sandbox::{Home, SandboxMode, SandboxPolicy};
use haft_testkit::{TestTree, TestUser, copy_program};
use serde_json::json;

/// The environment variable with the workspace. It is set only in the process that embeds the library.
const WORKSPACE: &str = "HAFT_TEST_WORKSPACE";

/// Runs one test of this binary as a separate program with its own environment.
fn embed(test: &str, program: &Path, tree: &TestTree, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args([&format!("library::{test}"), "--exact", "--nocapture"]).env_clear();
    command
        .env("HAFT_HOME", tree.path("home"))
        .env("HOME", tree.path("user"))
        .env(WORKSPACE, tree.path("ws"));
    command.envs(variables.iter().copied()).output().unwrap()
}

/// Acts as the embedding program: makes one call and stores the result.
fn embedding(tool: &str, arguments: &serde_json::Value) -> bool {
    let Some(workspace) = std::env::var_os(WORKSPACE) else { return false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut executor = ToolExecutor::new(workspace.into(), SandboxMode::Workspace);
    let result = runtime.block_on(executor.execute(tool, arguments));
    std::fs::write(
        Path::new(&std::env::var_os("HOME").unwrap()).join("answer"),
        format!("{} {}", result.is_error, result.content),
    )
    .unwrap();
    true
}

#[track_caller]
fn answer(output: &Output, tree: &TestTree) -> String {
    assert!(output.status.success(), "{output:?}");
    tree.text("user/answer")
}

const PATH: (&str, &str) = ("PATH", "/usr/local/bin:/usr/bin:/bin");

#[test]
fn embedding_program_finds_adjacent_launcher() {
    if embedding(
        "bash",
        &json!({ "command": "pwd; echo x > made; echo x > ../outside/made || echo refused" }),
    ) {
        return;
    }
    let tree = TestTree::new(TestUser::Ourselves);
    let output =
        embed("embedding_program_finds_adjacent_launcher", &std::env::current_exe().unwrap(), &tree, &[PATH]);
    let answer = answer(&output, &tree);
    assert!(answer.starts_with(&format!("false {}\n", tree.path("ws").display())), "{answer}");
    assert!(tree.exists("ws/made"), "{answer}");
}

#[test]
fn missing_launcher_is_reported_in_the_result() {
    if embedding("bash", &json!({ "command": "echo ran" })) {
        return;
    }
    let tree = TestTree::new(TestUser::Ourselves);
    let copy = tree.path("outside/program");
    copy_program(&std::env::current_exe().unwrap(), &copy);
    let output =
        embed("missing_launcher_is_reported_in_the_result", &copy, &tree, &[("PATH", "/nonexistent")]);
    let answer = answer(&output, &tree);
    assert!(answer.starts_with("true ") && answer.contains("haft found no sandbox launcher"), "{answer}");
    assert!(answer.contains("; call haft::init()") && !answer.contains("ran\n"), "{answer}");
}

#[test]
fn nonexistent_launcher_path_is_an_error() {
    if embedding("bash", &json!({ "command": "echo ran" })) {
        return;
    }
    let tree = TestTree::new(TestUser::Ourselves);
    let variables = [PATH, ("HAFT_LAUNCHER", "/nonexistent/haft")];
    let output =
        embed("nonexistent_launcher_path_is_an_error", &std::env::current_exe().unwrap(), &tree, &variables);
    let answer = answer(&output, &tree);
    assert!(
        answer.starts_with("true ") && answer.contains("launcher") && answer.contains("No such file"),
        "{answer}"
    );
}

/// A program that is not a launcher must not be used as one: the command would run without a sandbox.
#[test]
fn wrong_launcher_binary_is_an_error() {
    if embedding("bash", &json!({ "command": "echo ran" })) {
        return;
    }
    let tree = TestTree::new(TestUser::Ourselves);
    let variables = [PATH, ("HAFT_LAUNCHER", "/usr/bin/true")];
    let output =
        embed("wrong_launcher_binary_is_an_error", &std::env::current_exe().unwrap(), &tree, &variables);
    let answer = answer(&output, &tree);
    assert!(answer.starts_with("true ") && answer.contains("launcher"), "{answer}");
}

#[test]
fn embedding_program_can_use_file_tools() {
    if embedding("write", &json!({ "file_path": "note", "content": "hello" })) {
        return;
    }
    let tree = TestTree::new(TestUser::Ourselves);
    let output =
        embed("embedding_program_can_use_file_tools", &std::env::current_exe().unwrap(), &tree, &[PATH]);
    let answer = answer(&output, &tree);
    assert!(answer.starts_with("false Wrote 5 bytes to "), "{answer}");
    assert_eq!(tree.text("ws/note"), "hello");
}

/// A tool that returns the number of its earlier calls. Tests add and remove it at run time.
struct CountingTool(std::sync::atomic::AtomicUsize);

impl Tool for CountingTool {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition::new("count", "Counts its calls.", json!({"type": "object"}))
            .with_effects(Effects::ReadOnly)
    }

    async fn call(&self, _: &ValidArguments, _: &CallContext) -> Result<ToolOutput, ToolError> {
        let before = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(ToolOutput::text(before.to_string()))
    }
}

/// Returns an orchestrator with a registry and the built-in tools, under a configuration of the embedding program.
fn with_registry(tree: &TestTree, change: impl FnOnce(&mut ResolvedConfig)) -> (Arc<Registry>, Orchestrator) {
    let mut config = haft_config::defaults().unwrap();
    change(&mut config);
    let home = Home::at(&tree.path("home"));
    let policy = SandboxPolicy::new(SandboxMode::Workspace, &tree.path("ws"), &home, None).unwrap();
    let settings = ToolSettings { policy, timeout: None, config };
    let registry = Arc::new(Registry::new(Namespace::new("app").unwrap()));
    let orchestrator = wiring::orchestrator_with(settings, vec![Arc::clone(&registry) as _]);
    (registry, orchestrator)
}

async fn count(orchestrator: &Orchestrator) -> Result<String, String> {
    let result = orchestrator.execute(ToolCall::new("1", "count", &json!({}))).await;
    result.outcome.map(|output| output.as_text()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn program_tools_can_be_registered_at_any_time() {
    let tree = TestTree::new(TestUser::Ourselves);
    let (registry, orchestrator) = with_registry(&tree, |_| {});
    assert!(count(&orchestrator).await.unwrap_err().starts_with("unknown_tool"));
    registry.register(CountingTool(0.into())).unwrap();
    assert_eq!(count(&orchestrator).await.unwrap(), "0");
    assert_eq!(count(&orchestrator).await.unwrap(), "1");
    let tools = orchestrator.tools(
        &ToolFilter::of([ToolFilterItem::Group(GroupName::new("app").unwrap())]),
        &RunContext::default(),
    );
    assert_eq!(tools.iter().map(|tool| tool.entry.exposed().as_str()).collect::<Vec<_>>(), ["count"]);
    assert!(orchestrator.tools(&ToolFilter::All, &RunContext::default()).len() > 6);
    assert!(registry.unregister("count"));
    assert!(count(&orchestrator).await.unwrap_err().starts_with("unknown_tool"));
    assert!(wiring::shut_down(&orchestrator).await.is_empty());
}

#[tokio::test]
async fn config_applies_to_tools_registered_later() {
    let tree = TestTree::new(TestUser::Ourselves);
    let glob = |pattern: &str| haft_core::glob::ToolGlob::new(pattern).unwrap();
    let (registry, orchestrator) = with_registry(&tree, |config| config.tools_denied = vec![glob("COUNT")]);
    registry.register(CountingTool(0.into())).unwrap();
    let denied = "denied: tool `count` is not active: `toolsDenied` of the configuration matches this tool";
    assert_eq!(count(&orchestrator).await.unwrap_err(), denied);
    let (registry, orchestrator) = with_registry(&tree, |config| {
        let kept = ToolKeys {
            cache: Some(CacheTtl::Time(std::time::Duration::from_mins(1))),
            ..ToolKeys::default()
        };
        config.tools = vec![(glob("cou*"), kept)];
    });
    registry.register(CountingTool(0.into())).unwrap();
    assert_eq!(count(&orchestrator).await.unwrap(), "0");
    assert_eq!(count(&orchestrator).await.unwrap(), "0", "the second output comes from the configured cache");
}
