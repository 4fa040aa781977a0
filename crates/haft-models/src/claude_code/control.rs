//! The control protocol of Claude Code: JSON lines with which haft offers its tools, and Claude Code sends its
//! requests.
//!
//! haft is an MCP server for Claude Code over the standard streams of the `claude` process, so there is no port and no
//! token that another process could use.

use haft_core::conversation::ToolReply;
use haft_core::model_request::ModelTool;
use haft_core::output::OutputContent;
use haft_core::tool::CallId;
use serde_json::{Value, json};

use super::{PERMISSION_HOOK_TIMEOUT, PERMISSIONS, own_tool_names};
use crate::media;

/// The name of haft as an MCP server of Claude Code.
pub(super) const SERVER: &str = "haft";

/// The id of haft's only hook.
const PERMISSION_HOOK: &str = "permission";

/// The tools for which Claude Code runs the hook: all tools except haft's. If the hook also ran for haft's tools,
/// Claude Code would delay each call until haft has answered the hook. The calls would then arrive after the end of
/// their message, and haft could not make the calls of one message together.
const HOOKED_TOOLS: &str = "^(?!mcp__haft__)";

/// The tools that Claude Code has renamed: the name in its requests, and the earlier name, which `allowedTools` may
/// still contain.
const RENAMED_TOOLS: [(&str, &str); 2] = [("Agent", "Task"), ("TaskStop", "KillShell")];

/// The tool with which Claude Code returns an answer in the format of `--json-schema`. It acts on nothing.
const STRUCTURED_ANSWER: &str = "StructuredOutput";

const PROTOCOL_VERSION: &str = "2025-11-25";
const METHOD_NOT_FOUND: i32 = -32601;

/// Returns the content of `--mcp-config`: the only MCP server of Claude Code is haft itself.
pub(super) fn server_config() -> String {
    json!({"mcpServers": {SERVER: {"type": "sdk", "name": SERVER}}}).to_string()
}

/// Returns the input lines that begin a turn. The hook makes Claude Code ask haft before each tool use, because Claude
/// Code asks for permission only if its own rules and the user's settings require it.
pub(super) fn opening(prompt: &str) -> Vec<u8> {
    let hook = json!({
        "matcher": HOOKED_TOOLS,
        "hookCallbackIds": [PERMISSION_HOOK],
        "timeout": PERMISSION_HOOK_TIMEOUT.as_secs(),
        // Without this key, Claude Code goes ahead with the action if it cannot read haft's answer.
        "onFailure": "block",
    });
    let initialize = json!({
        "type": "control_request",
        "request_id": "initialize",
        "request": {"subtype": "initialize", "hooks": {"PreToolUse": [hook]}},
    });
    let user = json!({
        "type": "user",
        "session_id": "",
        "message": {"role": "user", "content": prompt},
        "parent_tool_use_id": null,
    });
    format!("{initialize}\n{user}\n").into_bytes()
}

/// An output line with which Claude Code requests an action from haft.
#[derive(Debug, PartialEq)]
pub(super) enum ControlRequest {
    /// A request that haft answers itself; the value is the answer line.
    Answered(Vec<u8>),
    /// A tool call or a permission request, which the run handles.
    Call(CommandCall),
    /// Claude Code does not wait for this call any more.
    Cancelled { request: String },
}

/// A call of Claude Code that waits for its result.
#[derive(Debug, PartialEq)]
pub(super) struct CommandCall {
    pub(super) id: CallId,
    pub(super) name: String,
    pub(super) arguments: Value,
    pub(super) request: String,
    waits_for: AwaitedReply,
}

/// The format of the reply that Claude Code expects.
#[derive(Debug, PartialEq)]
enum AwaitedReply {
    /// The result of a haft tool, for the MCP request with this id.
    ToolResult { id: Value },
    /// The permission for one use of Claude Code's own tools. The reply repeats the input of the tool.
    Permission { tool_use: Option<String> },
    /// The decision of the hook that Claude Code runs before it uses one of its own tools.
    HookDecision,
}

/// Reads an output line; returns `None` if the line is not a request to haft. `tools` are haft's tools, and `own_tools`
/// the enabled tools of Claude Code itself.
pub(super) fn request(line: &Value, tools: &[ModelTool], own_tools: &[String]) -> Option<ControlRequest> {
    let id = line["request_id"].as_str()?.to_owned();
    match line["type"].as_str()? {
        "control_cancel_request" => return Some(ControlRequest::Cancelled { request: id }),
        "control_request" => {}
        _ => return None,
    }
    let asked = &line["request"];
    Some(match asked["subtype"].as_str() {
        Some("mcp_message") => mcp_request(id, &asked["message"], tools),
        Some("can_use_tool") => ControlRequest::Call(CommandCall {
            // Use the id of the request, because the hook's call for the same tool use already has the id of the tool
            // use.
            id: CallId(id.clone()),
            name: permission_name(asked["tool_name"].as_str(), own_tools),
            arguments: object(&asked["input"]),
            request: id,
            waits_for: AwaitedReply::Permission {
                tool_use: asked["tool_use_id"].as_str().map(str::to_owned),
            },
        }),
        Some("hook_callback") => hook(id, asked, own_tools),
        _ => ControlRequest::Answered(refusal(&id)),
    })
}

/// Returns the name of the call that requests permission for a tool of Claude Code. The name contains the tool name in
/// `allowedTools`, because the operator's rules use this name.
fn permission_name(tool: Option<&str>, own_tools: &[String]) -> String {
    let tool = tool.unwrap_or_default();
    let own = own_tool_names(own_tools);
    let is_renamed = |(new, old): &&(&str, &str)| *new == tool && !own.contains(new) && own.contains(old);
    let name = RENAMED_TOOLS.iter().find(is_renamed).map_or(tool, |(_, old)| old);
    format!("{PERMISSIONS}__{name}")
}

/// Reads a request of the hook. A tool of haft needs no decision here, because the run decides about its call.
fn hook(request: String, asked: &Value, own_tools: &[String]) -> ControlRequest {
    let input = &asked["input"];
    let tool = input["tool_name"].as_str();
    if tool.is_some_and(|name| is_haft_tool(name) || name == STRUCTURED_ANSWER) {
        return ControlRequest::Answered(success(&request, &json!({})));
    }
    ControlRequest::Call(CommandCall {
        id: CallId(asked["tool_use_id"].as_str().unwrap_or(&request).into()),
        name: permission_name(tool, own_tools),
        arguments: object(&input["tool_input"]),
        request,
        waits_for: AwaitedReply::HookDecision,
    })
}

/// Returns true if this is the name that Claude Code gives to a tool of haft.
pub(super) fn is_haft_tool(name: &str) -> bool {
    name.strip_prefix("mcp__")
        .and_then(|name| name.strip_prefix(SERVER))
        .is_some_and(|name| name.starts_with("__"))
}

/// Returns the output of the hook.
fn hook_decision(decision: &str, reason: &str) -> Value {
    json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": reason,
    }})
}

/// Returns the arguments of a call; an empty object if the call has none.
fn object(arguments: &Value) -> Value {
    if arguments.is_null() { json!({}) } else { arguments.clone() }
}

fn mcp_request(request: String, message: &Value, tools: &[ModelTool]) -> ControlRequest {
    let (id, params) = (&message["id"], &message["params"]);
    let result = match message["method"].as_str().unwrap_or_default() {
        "tools/call" => {
            let call = params["_meta"]["claudecode/toolUseId"].as_str().unwrap_or(&request);
            return ControlRequest::Call(CommandCall {
                id: CallId(call.into()),
                name: params["name"].as_str().unwrap_or_default().to_owned(),
                arguments: object(&params["arguments"]),
                request,
                waits_for: AwaitedReply::ToolResult { id: id.clone() },
            });
        }
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"].as_str().unwrap_or(PROTOCOL_VERSION),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": SERVER, "version": env!("CARGO_PKG_VERSION")},
        }),
        "tools/list" => json!({"tools": tools.iter().map(definition).collect::<Vec<_>>()}),
        "ping" => json!({}),
        // Answer notifications too, because Claude Code waits for a reply to them.
        _ if id.is_null() => return ControlRequest::Answered(mcp_response(&request, &json!({"result": {}}))),
        other => {
            let error = json!({"code": METHOD_NOT_FOUND, "message": format!("unknown method `{other}`")});
            return ControlRequest::Answered(mcp_response(&request, &json!({"id": id, "error": error})));
        }
    };
    ControlRequest::Answered(mcp_response(&request, &json!({"id": id, "result": result})))
}

fn definition(tool: &ModelTool) -> Value {
    json!({
        "name": tool.name,
        "description": tool.description,
        "inputSchema": *tool.input_schema,
        // Mark all tools as read-only, because Claude Code makes several calls at the same time only if the tools are
        // read-only. haft itself decides which calls may run together.
        "annotations": {"readOnlyHint": true},
        // Turn off the tool search of Claude Code, because haft has already decided which tools the model sees.
        "_meta": {"anthropic/alwaysLoad": true},
    })
}

impl CommandCall {
    /// Returns the line with the result of a call. `note` is additional text that the model must see.
    pub(super) fn result(&self, reply: &ToolReply, note: &str) -> Vec<u8> {
        let mut content: Vec<Value> = reply.content.iter().map(mcp_content).collect();
        if !note.is_empty() {
            content.push(json!({"type": "text", "text": note}));
        }
        match &self.waits_for {
            AwaitedReply::ToolResult { id } => {
                let result = json!({"content": content, "isError": reply.is_error});
                mcp_response(&self.request, &json!({"id": id, "result": result}))
            }
            AwaitedReply::Permission { .. } if reply.is_error => {
                let message = message(reply, note);
                success(&self.request, &json!({"behavior": "deny", "message": message}))
            }
            AwaitedReply::Permission { .. } => self.permitted(),
            AwaitedReply::HookDecision if reply.is_error => {
                success(&self.request, &hook_decision("deny", &message(reply, note)))
            }
            // With `allow`, a hook in the user's settings could still change the arguments. With `ask`, Claude Code shows
            // its permission prompt, and haft's answer contains the arguments that haft has checked.
            AwaitedReply::HookDecision => {
                let mut output = hook_decision("ask", "haft allows these arguments");
                if !note.is_empty() {
                    output["hookSpecificOutput"]["additionalContext"] = json!(note);
                }
                success(&self.request, &output)
            }
        }
    }

    /// Returns true if the call comes from the hook.
    pub(super) fn is_of_hook(&self) -> bool {
        self.waits_for == AwaitedReply::HookDecision
    }

    /// Returns true if this is the permission prompt for the action of a call of the hook.
    pub(super) fn repeats(&self, hooked: &Self) -> bool {
        match &self.waits_for {
            AwaitedReply::Permission { tool_use: Some(tool_use) } => {
                // A hook of the user may have changed the arguments.
                *tool_use == hooked.id.0 && self.arguments == hooked.arguments
            }
            AwaitedReply::Permission { tool_use: None }
            | AwaitedReply::ToolResult { .. }
            | AwaitedReply::HookDecision => false,
        }
    }

    /// Returns the line that grants a permission.
    pub(super) fn permitted(&self) -> Vec<u8> {
        success(&self.request, &json!({"behavior": "allow", "updatedInput": self.arguments}))
    }

    /// Returns the line that refuses a call whose id another waiting call has.
    pub(super) fn refused(&self) -> Vec<u8> {
        match self.waits_for {
            AwaitedReply::ToolResult { .. } | AwaitedReply::Permission { .. } => refusal(&self.request),
            AwaitedReply::HookDecision => success(
                &self.request,
                &hook_decision("deny", "another call with this id still waits for haft's decision"),
            ),
        }
    }
}

/// Returns the reason of a denial, with the additional text for the model.
fn message(reply: &ToolReply, note: &str) -> String {
    let text = reply.content.iter().map(OutputContent::as_text).collect::<Vec<_>>().join("\n");
    format!("{text}\n{note}").trim().to_owned()
}

fn mcp_content(content: &OutputContent) -> Value {
    match content.as_image() {
        Some((media_type, bytes)) => {
            json!({"type": "image", "mimeType": media_type, "data": media::base64(bytes)})
        }
        None => json!({"type": "text", "text": content.as_text()}),
    }
}

fn mcp_response(request: &str, response: &Value) -> Vec<u8> {
    let mut response = response.clone();
    response["jsonrpc"] = json!("2.0");
    success(request, &json!({"mcp_response": response}))
}

fn success(request: &str, response: &Value) -> Vec<u8> {
    control_response(&json!({"subtype": "success", "request_id": request, "response": response}))
}

/// Returns the answer to a request that haft cannot fulfil.
fn refusal(request: &str) -> Vec<u8> {
    control_response(
        &json!({"subtype": "error", "request_id": request, "error": "haft does not support this request"}),
    )
}

fn control_response(response: &Value) -> Vec<u8> {
    format!("{}\n", json!({"type": "control_response", "response": response})).into_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn tool() -> ModelTool {
        ModelTool {
            name: "shell".into(),
            description: "runs".into(),
            input_schema: Arc::new(json!({"type": "object"})),
            strict: false,
        }
    }

    fn mcp(message: &Value) -> Value {
        json!({"type": "control_request", "request_id": "r",
               "request": {"subtype": "mcp_message", "server_name": "haft", "message": message}})
    }

    fn parsed(line: &[u8]) -> Value {
        assert_eq!(line.last(), Some(&b'\n'));
        serde_json::from_slice(line).unwrap()
    }

    fn answer(message: &Value) -> Value {
        match request(&mcp(message), &[tool()], &[]) {
            Some(ControlRequest::Answered(line)) => {
                parsed(&line)["response"]["response"]["mcp_response"].clone()
            }
            other => panic!("{other:?}"),
        }
    }

    fn call(line: &Value) -> CommandCall {
        match request(line, &[], &[]) {
            Some(ControlRequest::Call(call)) => call,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn mcp_messages_other_than_calls_are_answered_at_once() {
        let initialize =
            answer(&json!({"method": "initialize", "id": 0, "params": {"protocolVersion": "x"}}));
        assert_eq!((&initialize["id"], &initialize["result"]["protocolVersion"]), (&json!(0), &json!("x")));
        let tools = answer(&json!({"method": "tools/list", "id": 1}));
        assert_eq!(tools["result"]["tools"][0]["name"], "shell");
        assert_eq!(answer(&json!({"method": "notifications/initialized"}))["result"], json!({}));
        assert_eq!(answer(&json!({"method": "prompts/list", "id": 2}))["error"]["code"], -32601);
    }

    #[test]
    fn output_lines_that_are_not_control_requests_go_to_the_reader() {
        for line in [json!({"type": "assistant", "request_id": "r"}), json!({"type": "result"}), json!(7)] {
            assert_eq!(request(&line, &[], &[]), None, "{line}");
        }
        let cancelled = request(&json!({"type": "control_cancel_request", "request_id": "r"}), &[], &[]);
        assert_eq!(cancelled, Some(ControlRequest::Cancelled { request: "r".into() }));
        let unknown = json!({"type": "control_request", "request_id": "r", "request": {"subtype": "new"}});
        let Some(ControlRequest::Answered(line)) = request(&unknown, &[], &[]) else { panic!() };
        assert_eq!(parsed(&line)["response"]["subtype"], "error");
    }

    #[test]
    fn result_of_a_call_has_the_ids_of_the_control_request() {
        let meta = json!({"claudecode/toolUseId": "toolu_1"});
        let params = json!({"name": "shell", "arguments": {"command": "ls"}, "_meta": meta});
        let call = call(&mcp(&json!({"method": "tools/call", "id": 7, "params": params})));
        assert_eq!((call.id.0.as_ref(), call.name.as_str()), ("toolu_1", "shell"));
        let reply = ToolReply {
            call: call.id.clone(),
            name: "shell".into(),
            content: vec![OutputContent::Text("a.txt".into())],
            is_error: true,
        };
        let response = parsed(&call.result(&reply, "be quick"))["response"].clone();
        assert_eq!(response["request_id"], "r");
        let sent = &response["response"]["mcp_response"];
        assert_eq!((&sent["id"], &sent["result"]["isError"]), (&json!(7), &json!(true)));
        assert_eq!(sent["result"]["content"][0]["text"], "a.txt");
        assert_eq!(sent["result"]["content"][1]["text"], "be quick");
    }

    fn hook(tool: &str) -> Value {
        let input =
            json!({"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": {"file_path": "a"}});
        let asked = json!({"subtype": "hook_callback", "callback_id": "permission", "input": input,
                           "tool_use_id": "toolu_3"});
        json!({"type": "control_request", "request_id": "h", "request": asked})
    }

    #[test]
    fn hook_denies_if_its_call_failed_and_asks_otherwise() {
        let call = call(&hook("Read"));
        assert_eq!((call.id.0.as_ref(), call.name.as_str()), ("toolu_3", "claude_code__Read"));
        assert_eq!(call.arguments, json!({"file_path": "a"}));
        let reply = |is_error| ToolReply {
            call: call.id.clone(),
            name: call.name.clone(),
            content: vec![OutputContent::Text("no".into())],
            is_error,
        };
        let output = |line: &[u8]| {
            let response = parsed(line)["response"].clone();
            assert_eq!((&response["subtype"], &response["request_id"]), (&json!("success"), &json!("h")));
            response["response"]["hookSpecificOutput"].clone()
        };
        let allowed = output(&call.result(&reply(false), "be quick"));
        assert_eq!(allowed["permissionDecision"], "ask", "the prompt grants the permission");
        assert_eq!(allowed["additionalContext"], "be quick");
        let denied = output(&call.result(&reply(true), ""));
        assert_eq!(
            (&denied["permissionDecision"], &denied["permissionDecisionReason"]),
            (&json!("deny"), &json!("no"))
        );
        // An error would let Claude Code go ahead with the action if it does not know `onFailure`.
        assert_eq!(output(&call.refused())["permissionDecision"], "deny");
    }

    #[test]
    fn hook_makes_no_decision_about_tools_of_haft() {
        for tool in ["mcp__haft__bash", "StructuredOutput"] {
            let Some(ControlRequest::Answered(line)) = request(&hook(tool), &[], &[]) else {
                panic!("{tool}")
            };
            assert_eq!(parsed(&line)["response"]["response"], json!({}), "{tool}");
        }
        for tool in ["mcp__haft_other__bash", "mcp__other__bash", "Bash", ""] {
            assert_eq!(call(&hook(tool)).name, format!("claude_code__{tool}"));
        }
    }

    #[test]
    fn permission_request_uses_the_tool_name_that_the_operator_enabled() {
        let check = |tool: &str, own: &[&str], expected: &str| {
            let own: Vec<String> = own.iter().map(|name| (*name).to_owned()).collect();
            let Some(ControlRequest::Call(call)) = request(&hook(tool), &[], &own) else { panic!("{tool}") };
            assert_eq!(call.name, expected, "{tool} {own:?}");
        };
        check("Agent", &["Read", "Task(general)"], "claude_code__Task");
        check("Agent", &["Agent", "Task"], "claude_code__Agent");
        check("Agent", &[], "claude_code__Agent");
        check("TaskStop", &["KillShell"], "claude_code__KillShell");
        check("Bash", &["Task"], "claude_code__Bash");
    }

    #[test]
    fn permission_prompt_repeats_a_hook_call_only_if_tool_use_and_arguments_are_equal() {
        let hooked = call(&hook("Read"));
        let check = |tool_use: Value, input: Value, expected: bool| {
            let asked = json!({"subtype": "can_use_tool", "tool_name": "Read", "input": input,
                               "tool_use_id": tool_use});
            let prompt = call(&json!({"type": "control_request", "request_id": "r", "request": asked}));
            assert_eq!(prompt.repeats(&hooked), expected, "{prompt:?}");
            assert!(!hooked.repeats(&prompt));
        };
        check(json!("toolu_3"), json!({"file_path": "a"}), true);
        check(json!("toolu_3"), json!({"file_path": "b"}), false);
        check(json!("toolu_4"), json!({"file_path": "a"}), false);
        check(Value::Null, json!({"file_path": "a"}), false);
    }

    #[test]
    fn permission_is_granted_only_by_a_successful_call() {
        let asked = json!({"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"},
                           "tool_use_id": "toolu_2"});
        let call = call(&json!({"type": "control_request", "request_id": "r", "request": asked}));
        assert_eq!(call.name, "claude_code__Bash");
        let reply = |is_error| ToolReply {
            call: call.id.clone(),
            name: call.name.clone(),
            content: vec![OutputContent::Text("no".into())],
            is_error,
        };
        let decision = |is_error| parsed(&call.result(&reply(is_error), ""))["response"]["response"].clone();
        assert_eq!(decision(false), json!({"behavior": "allow", "updatedInput": {"command": "ls"}}));
        assert_eq!(decision(true), json!({"behavior": "deny", "message": "no"}));
    }
}
