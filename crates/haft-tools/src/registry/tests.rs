//! Tests of the life cycle of a registered tool.

use std::sync::Mutex;

use haft_core::arguments::{ArgumentLimits, RawArguments};
use haft_core::event::NoEvents;
use haft_core::tool::CallId;
use haft_core::validate::Schema;
use serde_json::json;

use super::*;

/// A tool that records its calls, and whose first `failures` initializations fail.
struct RecordingTool {
    name: &'static str,
    failures: Mutex<usize>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl RecordingTool {
    fn write(&self, what: &str) {
        self.lines.lock().unwrap().push(format!("{} {what}", self.name));
    }
}

impl Tool for RecordingTool {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition::new(self.name, "Writes down.", json!({"type": "object"}))
    }

    async fn initialize(&self) -> Result<(), ToolError> {
        self.write("initialize");
        let mut failures = self.failures.lock().unwrap();
        if *failures == 0 {
            return Ok(());
        }
        *failures -= 1;
        Err(ToolError::new(ToolErrorKind::Unavailable, "not today"))
    }

    async fn call(&self, _: &ValidArguments, _: &CallContext) -> Result<ToolOutput, ToolError> {
        self.write("call");
        Ok(ToolOutput::text(self.name))
    }

    async fn shutdown(&self) {
        self.write("shutdown");
    }
}

/// Creates a registry from pairs of a tool name and the number of its initializations that fail.
fn registry(tools: &[(&'static str, usize)]) -> (Registry, Arc<Mutex<Vec<String>>>) {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let registry = Registry::new(Namespace::new("app").unwrap());
    for &(name, failures) in tools {
        let diary = RecordingTool { name, failures: Mutex::new(failures), lines: Arc::clone(&lines) };
        registry.register(diary).unwrap();
    }
    (registry, lines)
}

async fn call(registry: &Registry, name: &str) -> Result<String, ToolError> {
    let parsed = RawArguments::from_text("{}").parse(&ArgumentLimits::default())?;
    let arguments = Schema::compile(&json!({"type": "object"})).validate(parsed)?;
    let cx = CallContext::new(CallId("1".into()), Arc::default(), None, Arc::new(NoEvents));
    let name = ToolName::new(name).unwrap();
    let output = ToolProvider::call(registry, &name, &arguments, &cx).await?;
    Ok(output.as_text())
}

fn names(registry: &Registry) -> Vec<String> {
    registry.list().iter().map(|tool| tool.name.to_string()).collect()
}

#[tokio::test]
async fn tool_is_initialized_once_and_shut_down_once() {
    let (registry, lines) = registry(&[("a", 0), ("b", 0)]);
    registry.warmup().await.unwrap();
    registry.warmup().await.unwrap();
    assert_eq!(call(&registry, "a").await.unwrap(), "a");
    registry.shutdown().await;
    assert_eq!(
        *lines.lock().unwrap(),
        ["a initialize", "b initialize", "a call", "a shutdown", "b shutdown"]
    );
}

#[tokio::test]
async fn tool_without_warmup_is_initialized_on_its_first_call() {
    let (registry, lines) = registry(&[("a", 0), ("b", 0)]);
    call(&registry, "a").await.unwrap();
    call(&registry, "a").await.unwrap();
    registry.shutdown().await;
    assert_eq!(*lines.lock().unwrap(), ["a initialize", "a call", "a call", "a shutdown"]);
}

#[tokio::test]
async fn failed_initialization_is_reported_and_retried() {
    let (registry, lines) = registry(&[("a", 2), ("b", 0)]);
    assert_eq!(registry.warmup().await.unwrap_err().message, "`a`: not today");
    assert_eq!(call(&registry, "b").await.unwrap(), "b");
    assert_eq!(call(&registry, "a").await.unwrap_err().kind, ToolErrorKind::Unavailable);
    assert_eq!(call(&registry, "a").await.unwrap(), "a");
    assert_eq!(lines.lock().unwrap().iter().filter(|line| *line == "a initialize").count(), 3);
}

#[tokio::test]
async fn unregistering_a_tool_announces_a_change() {
    let (registry, _) = registry(&[("a", 0), ("b", 0)]);
    let count = || registry.changes().unwrap().count();
    let before = count();
    assert_eq!(names(&registry), ["a", "b"]);
    assert_eq!(registry.get("b").unwrap().description, "Writes down.");
    assert!(registry.unregister("a"));
    assert!(!registry.unregister("a"), "the tool was already removed");
    assert_eq!(count(), before + 1);
    assert_eq!(names(&registry), ["b"]);
    assert!(registry.get("a").is_none());
    assert_eq!(call(&registry, "a").await.unwrap_err().kind, ToolErrorKind::UnknownTool);
}

#[test]
fn duplicate_tool_name_is_rejected() {
    let (registry, lines) = registry(&[("a", 0)]);
    let again = RecordingTool { name: "a", failures: Mutex::default(), lines };
    let error = registry.register(again).unwrap_err();
    assert_eq!(error.to_string(), "a tool named `a` is already registered; give the new tool another name");
    assert_eq!(names(&registry), ["a"]);
}

/// Returns the CPU time of this thread, which other programs on the machine do not affect. The kernel updates it a few
/// hundred times a second.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn registration_time_per_tool_does_not_grow_with_the_number_of_tools() {
    const TOOLS: usize = 30_000;
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let names: Vec<&'static str> =
        (0..TOOLS).map(|number| &*Box::leak(format!("tool_{number}").into_boxed_str())).collect();
    // Returns the time to register all tools, divided among registries of `in_each` tools.
    let nanos = |in_each: usize| {
        let before = cpu_nanos();
        for names in names.chunks(in_each) {
            let registry = Registry::new(Namespace::new("app").unwrap());
            for name in names {
                let diary = RecordingTool { name, failures: Mutex::default(), lines: Arc::clone(&lines) };
                registry.register(diary).unwrap();
            }
        }
        cpu_nanos() - before
    };
    let (few, many) = (nanos(300), nanos(3_000));
    assert!(many < 4 * few, "{few} ns in registries of 300 tools, {many} ns in registries of 3,000");
}
