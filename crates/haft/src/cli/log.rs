//! What is said on standard error about how calls were carried out.

use haft_core::result::ToolResult;
use serde_json::Value;

use super::terminal;

/// Speaks of every call when asked to, and once of a sandbox that cannot keep every promise.
#[derive(Debug)]
pub(super) struct Log {
    verbose: bool,
    warned: bool,
}

impl Log {
    pub(super) fn new(verbose: bool) -> Self {
        Self { verbose, warned: false }
    }

    pub(super) fn tell(&mut self, result: &ToolResult) {
        if !self.warned {
            self.warned = warn_if_weaker(result);
        }
        if self.verbose {
            tell_how(result);
        }
    }
}

fn tell_how(result: &ToolResult) {
    let receipt = &result.receipt;
    terminal::note(&format!("{} in {} ms", result.call.name, receipt.latency.as_millis()));
    for repair in &receipt.repairs {
        terminal::note(&format!("  arguments repaired: {repair}"));
    }
    for (topic, value) in &receipt.notes {
        terminal::note(&format!("  {topic}: {value}"));
    }
}

fn warn_if_weaker(result: &ToolResult) -> bool {
    let weaker = result.receipt.notes.get("sandbox").and_then(|sandbox| sandbox.get("weaker")?.as_array());
    let sentences: Vec<&str> = weaker.into_iter().flatten().filter_map(Value::as_str).collect();
    if sentences.is_empty() {
        return false;
    }
    terminal::warn(&format!(
        "the sandbox is weaker here (`haft doctor` tells why): {}",
        sentences.join("; ")
    ));
    true
}
