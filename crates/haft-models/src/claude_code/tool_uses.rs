//! The tool uses in the message that Claude Code is working on. They tell haft which calls will still arrive.

use serde_json::Value;

use super::control::{CommandCall, is_haft_tool};

/// The own tools of Claude Code that only read. Claude Code starts consecutive uses of such tools, and of haft's tools,
/// at the same time. Before and after any other tool, it waits until the tools before it have ended.
const READING_TOOLS: [&str; 7] = ["Glob", "Grep", "LS", "NotebookRead", "Read", "WebFetch", "WebSearch"];

/// The tool uses of the current message that have neither become a call of a reply nor got a result.
#[derive(Debug, Default)]
pub(super) struct PendingToolUses(Vec<PendingToolUse>);

#[derive(Debug)]
struct PendingToolUse {
    id: String,
    /// True if the tool runs at the same time as other such tools.
    is_parallel: bool,
}

impl PendingToolUses {
    /// Begins a message.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a content block of the message, if it is a tool use.
    pub(super) fn add_block(&mut self, block: &Value) {
        if block["type"] != "tool_use" {
            return;
        }
        let name = block["name"].as_str().unwrap_or_default();
        let is_parallel = is_haft_tool(name) || READING_TOOLS.contains(&name);
        self.0.push(PendingToolUse { id: block["id"].as_str().unwrap_or_default().to_owned(), is_parallel });
    }

    /// Removes the tool uses that already have a result. Claude Code itself refuses invalid arguments, for example, so
    /// no call arrives for them.
    pub(super) fn remove_results(&mut self, message: &Value) {
        let results = message["content"].as_array().into_iter().flatten();
        for id in results.filter_map(|block| block["tool_use_id"].as_str()) {
            self.0.retain(|tool_use| tool_use.id != id);
        }
    }

    pub(super) fn remove_calls(&mut self, calls: &[CommandCall]) {
        self.0.retain(|tool_use| !is_call(tool_use, calls));
    }

    /// Returns true if Claude Code will soon send another call: one of these calls belongs to a group of tool uses that
    /// start at the same time, and the call of another tool use in this group has not arrived.
    pub(super) fn expect_more_than(&self, calls: &[CommandCall]) -> bool {
        self.0
            .split(|tool_use| !tool_use.is_parallel)
            .filter(|together| together.iter().any(|tool_use| is_call(tool_use, calls)))
            .any(|together| together.iter().any(|tool_use| !is_call(tool_use, calls)))
    }
}

fn is_call(tool_use: &PendingToolUse, calls: &[CommandCall]) -> bool {
    calls.iter().any(|call| *call.id.0 == *tool_use.id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::control::{ControlRequest, request};
    use super::*;

    fn call(id: &str) -> CommandCall {
        let message = json!({"id": 1, "method": "tools/call",
            "params": {"name": "t", "_meta": {"claudecode/toolUseId": id}}});
        let line = json!({"type": "control_request", "request_id": "r",
            "request": {"subtype": "mcp_message", "message": message}});
        match request(&line, &[], &[]) {
            Some(ControlRequest::Call(call)) => call,
            other => panic!("{other:?}"),
        }
    }

    fn pending(tools: &[(&str, &str)]) -> PendingToolUses {
        let mut pending = PendingToolUses::default();
        for (id, name) in tools {
            pending.add_block(&json!({"type": "tool_use", "id": id, "name": name}));
        }
        pending
    }

    #[test]
    fn calls_of_tools_that_start_together_are_expected() {
        let check = |tools: &[(&str, &str)], arrived: &[&str], expected: bool| {
            let calls: Vec<CommandCall> = arrived.iter().map(|id| call(id)).collect();
            assert_eq!(pending(tools).expect_more_than(&calls), expected, "{tools:?}, {arrived:?}");
        };
        let (one, two) = (("1", "mcp__haft__bash"), ("2", "Read"));
        check(&[one, two], &["1"], true);
        check(&[one, two], &["2"], true);
        check(&[one, two], &["1", "2"], false);
        check(&[one, ("b", "Bash"), two], &["1"], false);
        check(&[("b", "Bash"), one, two], &["b"], false);
        check(&[("b", "Bash"), one, two], &["2"], true);
        check(&[("b", "Bash"), ("c", "Bash")], &["b"], false);
        // The call belongs to a sub-agent of Claude Code, whose messages haft does not read.
        check(&[one, two], &["other"], false);
    }

    #[test]
    fn no_call_is_expected_for_a_refused_or_handled_tool_use() {
        let mut tools = pending(&[("1", "Read"), ("2", "Read"), ("3", "Read")]);
        let first = [call("1")];
        tools.remove_results(&json!({"content": [{"type": "tool_result", "tool_use_id": "2"}]}));
        assert!(tools.expect_more_than(&first));
        tools.remove_calls(&[call("3")]);
        assert!(!tools.expect_more_than(&first));
    }
}
