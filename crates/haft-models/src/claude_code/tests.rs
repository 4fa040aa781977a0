use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use haft_core::conversation::{Conversation, Message, ToolReply};
use haft_core::event::{Event, EventSink};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{AttemptFollowUp, ModelContext, ModelProvider};
use haft_core::model_reply::{ReplyFold, TokenUsage};
use haft_core::model_request::{ModelRequest, ModelTool};
use haft_core::provider::Principal;
use haft_core::tool::ToolCall;
use serde_json::{Value, json};

use super::*;

/// A launcher whose runs print scripted output, one run after the other.
struct ScriptedLauncher {
    runs: Mutex<VecDeque<&'static str>>,
    orders: Arc<Mutex<Vec<ClaudeCommand>>>,
    written: Arc<Mutex<String>>,
}

impl StartCommand for ScriptedLauncher {
    fn start(&self, order: ClaudeCommand) -> BoxFuture<'_, Result<Box<dyn RunningCommand>, String>> {
        self.orders.lock().unwrap().push(order);
        let printed = self.runs.lock().unwrap().pop_front().unwrap().as_bytes().to_vec();
        let written = Arc::clone(&self.written);
        Box::pin(async move { Ok(Box::new(ScriptedCommand { printed, written }) as Box<dyn RunningCommand>) })
    }
}

/// A process that yields one byte per read. If the output ends with `…`, the process never finishes.
struct ScriptedCommand {
    printed: Vec<u8>,
    written: Arc<Mutex<String>>,
}

impl RunningCommand for ScriptedCommand {
    fn read(&mut self) -> BoxFuture<'_, io::Result<Vec<u8>>> {
        Box::pin(async {
            if self.printed == "…".as_bytes() {
                std::future::pending::<()>().await;
            }
            let rest = self.printed.split_off(self.printed.len().min(1));
            Ok(std::mem::replace(&mut self.printed, rest))
        })
    }

    fn write(&mut self, line: Vec<u8>) {
        self.written.lock().unwrap().push_str(&String::from_utf8(line).unwrap());
    }

    fn close_input(&mut self) {}

    fn end(self: Box<Self>) -> BoxFuture<'static, Result<ClaudeExit, String>> {
        Box::pin(async {
            Ok(ClaudeExit { how: "ended with code 1".into(), stderr_tail: "key sk-0123456789".into() })
        })
    }
}

#[derive(Default)]
struct ClaudeEventLog(Mutex<Vec<Event>>);

impl EventSink for ClaudeEventLog {
    fn emit(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

impl ClaudeEventLog {
    /// Returns the delay after each failed attempt, in seconds.
    fn waits(&self) -> Vec<u64> {
        let wait = |event: &Event| match event {
            Event::ModelFinished { account, .. } => match account.next {
                AttemptFollowUp::Retry { after } => Some(after.as_secs()),
                AttemptFollowUp::Nothing => None,
            },
            _ => None,
        };
        self.0.lock().unwrap().iter().filter_map(wait).collect()
    }
}

struct ClaudeTestRun {
    events_of_reply: Vec<Result<ModelEvent, ModelError>>,
    orders: Vec<ClaudeCommand>,
    log: Arc<ClaudeEventLog>,
}

/// A provider whose `claude` processes print scripted output, and its conversation.
struct ClaudeTestBench {
    provider: ClaudeCode,
    conversation: Conversation,
    tools: Arc<[ModelTool]>,
    orders: Arc<Mutex<Vec<ClaudeCommand>>>,
    /// Everything that the provider wrote to the commands after their start.
    written: Arc<Mutex<String>>,
    log: Arc<ClaudeEventLog>,
}

impl ClaudeTestBench {
    fn new(runs: &[&'static str]) -> Self {
        let (orders, written) = (Arc::default(), Arc::default());
        let runs = Mutex::new(runs.iter().copied().collect());
        let start = ScriptedLauncher { runs, orders: Arc::clone(&orders), written: Arc::clone(&written) };
        let mut conversation = Conversation::default();
        conversation.push(Message::user("hi")).unwrap();
        Self {
            provider: ClaudeCode::new(ClaudeCodeSettings::default(), Box::new(start)),
            conversation,
            tools: Arc::new([]),
            orders,
            written,
            log: Arc::default(),
        }
    }

    async fn ask(&self) -> Vec<Result<ModelEvent, ModelError>> {
        let cx = ModelContext::new("1", Principal::local(), Arc::clone(&self.log) as _);
        let request = ModelRequest {
            output_tokens_max: Some(5),
            tools: Arc::clone(&self.tools),
            ..ModelRequest::new("sonnet", Arc::new(self.conversation.clone()))
        };
        self.provider.ask(request, &cx).collect().await
    }
}

async fn ask(runs: &[&'static str]) -> ClaudeTestRun {
    let bench = ClaudeTestBench::new(runs);
    let events_of_reply = bench.ask().await;
    let orders = std::mem::take(&mut *bench.orders.lock().unwrap());
    ClaudeTestRun { events_of_reply, orders, log: bench.log }
}

const BEGUN: &str = "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s\"}\n";

#[tokio::test(start_paused = true)]
async fn broken_session_is_resumed_after_two_four_and_eight_seconds() {
    let answer = "{\"type\":\"result\",\"result\":\"done\",\"is_error\":false}";
    let asked = ask(&[BEGUN, BEGUN, BEGUN, answer]).await;
    assert_eq!(asked.log.waits(), [2, 4, 8]);
    let events = asked.events_of_reply.into_iter().map(Result::unwrap).collect::<Vec<_>>();
    assert!(matches!(events[0], ModelEvent::Started { .. }), "{events:?}");
    assert!(matches!(events[1], ModelEvent::Noted(_)), "{events:?}");
    assert_eq!(ReplyFold::of(events).text(), "done");
    let prompts: Vec<_> = asked.orders.iter().map(|order| order.input.clone()).collect();
    let prompt = |text: &str| CommandInput::Prompt(text.into());
    assert_eq!(prompts.len(), 4);
    assert_eq!((&prompts[0], &prompts[3]), (&prompt("hi"), &prompt("Continue where you left off.")));
}

#[tokio::test(start_paused = true)]
async fn command_that_fails_six_times_gives_an_error_without_the_key() {
    let asked = ask(&[BEGUN; 6]).await;
    assert_eq!(asked.log.waits(), [2, 4, 8, 16, 32]);
    let error = asked.events_of_reply.last().unwrap().as_ref().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::ServerFailed);
    assert_eq!(error.message, "Claude Code ended with code 1 before it answered: key [redacted]");
}

#[tokio::test(start_paused = true)]
async fn hanging_command_times_out_after_an_hour() {
    let began = tokio::time::Instant::now();
    let asked = ask(&["…"]).await;
    assert_eq!(asked.events_of_reply.last().unwrap().as_ref().unwrap_err().kind, ModelErrorKind::Timeout);
    assert!(began.elapsed() >= Duration::from_hours(1) && began.elapsed() < Duration::from_mins(61));
    let failure = |event: &Event| match event {
        Event::ModelFinished { account, .. } => account.failure,
        _ => None,
    };
    let log = asked.log.0.lock().unwrap();
    assert_eq!(log.iter().filter_map(failure).collect::<Vec<_>>(), [ModelErrorKind::Timeout]);
}

#[tokio::test(start_paused = true)]
async fn unknown_output_lines_are_ignored() {
    let printed = "hello\n[1,2]\n{\"type\":7}\n{\"type\":\"assistant\",\"message\":[]}\n\
                   {\"type\":\"result\",\"result\":\"fine\",\"usage\":\"much\"}\n";
    let asked = ask(&[printed]).await;
    assert_eq!(ReplyFold::of(asked.events_of_reply.into_iter().map(Result::unwrap)).text(), "fine");
}

const CALLS: &str = r#"{"type":"system","subtype":"init","session_id":"s"}
{"type":"stream_event","event":{"type":"message_start","message":{"id":"m","usage":{"input_tokens":10}}}}
{"type":"control_request","request_id":"r1","request":{"subtype":"mcp_message","message":{"method":"tools/call","id":1,"params":{"name":"t","arguments":{"a":1},"_meta":{"claudecode/toolUseId":"c1"}}}}}
{"type":"control_request","request_id":"r2","request":{"subtype":"can_use_tool","tool_name":"Bash","tool_use_id":"c2","input":{"command":"ls"}}}
{"type":"stream_event","event":{"type":"message_delta","usage":{"output_tokens":5}}}
{"type":"stream_event","event":{"type":"message_stop"}}
"#;

const ANSWER: &str = r#"{"type":"result","result":"done","is_error":false,"total_cost_usd":1,"usage":{"input_tokens":30,"output_tokens":15}}"#;

/// Returns a bench whose command has made its calls, and the calls.
async fn bench_after_calls(runs: &[&'static str]) -> (ClaudeTestBench, Vec<ToolCall>) {
    let mut bench = ClaudeTestBench::new(runs);
    bench.tools = [tool()].into();
    let reply = ReplyFold::of(bench.ask().await.into_iter().map(Result::unwrap));
    let calls: Vec<ToolCall> = reply.parts.iter().filter_map(|part| part.as_call().cloned()).collect();
    assert_eq!(reply.usage.unwrap(), TokenUsage { input: 10, output: 5, ..TokenUsage::default() });
    bench.conversation.push(Message::assistant(reply.parts)).unwrap();
    (bench, calls)
}

#[tokio::test(start_paused = true)]
async fn tool_results_continue_the_same_claude_code_process() {
    let run = Box::leak(format!("{CALLS}{ANSWER}").into_boxed_str());
    let (mut bench, calls) = bench_after_calls(&[run]).await;
    let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["t", "claude_code__Bash"]);
    let replies = vec![ToolReply::text(&calls[0], "one"), ToolReply::error(&calls[1], "denied")];
    bench.conversation.push(Message::tool(replies)).unwrap();
    bench.conversation.push(Message::user("be quick")).unwrap();
    let reply = ReplyFold::of(bench.ask().await.into_iter().map(Result::unwrap));
    assert_eq!((reply.text().as_str(), reply.id.as_deref()), ("done", Some("s")));
    // The total usage of the process, without the usage of the first reply.
    assert_eq!(reply.usage.unwrap(), TokenUsage { input: 20, output: 10, ..TokenUsage::default() });
    assert_eq!(bench.orders.lock().unwrap().len(), 1, "the results start no second process");
    let written = bench.written.lock().unwrap();
    let lines: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let result = &lines[0]["response"]["response"]["mcp_response"]["result"];
    assert_eq!((&result["content"][0]["text"], &result["isError"]), (&json!("one"), &json!(false)));
    let permission = &lines[1]["response"]["response"];
    assert_eq!(permission["behavior"], "deny");
    assert_eq!(permission["message"], "denied\nUser:\nbe quick");
}

const TWO_TOOL_USES: &str = r#"{"type":"system","subtype":"init","session_id":"s"}
{"type":"stream_event","event":{"type":"message_start","message":{"id":"m"}}}
{"type":"stream_event","event":{"type":"content_block_start","content_block":{"type":"tool_use","id":"c1","name":"mcp__haft__t"}}}
{"type":"stream_event","event":{"type":"content_block_start","content_block":{"type":"tool_use","id":"c2","name":"mcp__haft__t"}}}
{"type":"control_request","request_id":"r1","request":{"subtype":"mcp_message","message":{"method":"tools/call","id":1,"params":{"name":"t","_meta":{"claudecode/toolUseId":"c1"}}}}}
{"type":"stream_event","event":{"type":"message_stop"}}
"#;

const LATE_CALL: &str = r#"{"type":"control_request","request_id":"r2","request":{"subtype":"mcp_message","message":{"method":"tools/call","id":2,"params":{"name":"t","_meta":{"claudecode/toolUseId":"c2"}}}}}
"#;

/// Returns the ids of the calls of a reply.
async fn call_ids(bench: &ClaudeTestBench) -> Vec<String> {
    let reply = ReplyFold::of(bench.ask().await.into_iter().map(Result::unwrap));
    reply.parts.iter().filter_map(|part| Some(part.as_call()?.id.0.clone())).collect()
}

#[tokio::test(start_paused = true)]
async fn call_after_the_end_of_its_message_joins_the_other_calls() {
    let run = Box::leak(format!("{TWO_TOOL_USES}{LATE_CALL}").into_boxed_str());
    assert_eq!(call_ids(&ClaudeTestBench::new(&[run])).await, ["c1", "c2"]);
}

#[tokio::test(start_paused = true)]
async fn call_is_made_alone_if_the_other_call_of_its_message_does_not_arrive() {
    let began = tokio::time::Instant::now();
    let run = Box::leak(format!("{TWO_TOOL_USES}…").into_boxed_str());
    assert_eq!(call_ids(&ClaudeTestBench::new(&[run])).await, ["c1"]);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn results_are_sent_to_the_resumed_session_if_the_command_has_ended() {
    for (waited, label) in
        [(CALL_WAIT_MAX * 2, "the results are too late"), (Duration::ZERO, "the command died")]
    {
        let (mut bench, calls) = bench_after_calls(&[CALLS, ANSWER]).await;
        tokio::time::sleep(waited).await;
        let replies = vec![ToolReply::text(&calls[0], "one"), ToolReply::text(&calls[1], "two")];
        bench.conversation.push(Message::tool(replies)).unwrap();
        let reply = ReplyFold::of(bench.ask().await.into_iter().map(Result::unwrap));
        assert_eq!(reply.text(), "done", "{label}");
        let orders = bench.orders.lock().unwrap();
        assert_eq!(orders.len(), 2, "{label}");
        assert!(orders[1].words.join(" ").contains("--resume s"), "{label}");
        let CommandInput::Lines(lines) = &orders[1].input else { panic!("{label}") };
        assert!(String::from_utf8_lossy(lines).contains("(t answered)\\none"), "{label}");
    }
}

#[tokio::test(start_paused = true)]
async fn command_of_a_cancelled_run_ends_within_seconds() {
    let (mut bench, _) = bench_after_calls(&[CALLS]).await;
    // The bench, the launcher and the command.
    let holders = || Arc::strong_count(&bench.written);
    assert_eq!(holders(), 3, "the command waits for the results of its calls");
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(holders(), 3, "the command still waits while the run exists");
    bench.conversation = Conversation::default();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(Arc::strong_count(&bench.written), 2, "the command ends after its run");
}

fn tool() -> ModelTool {
    ModelTool {
        name: "t".into(),
        description: String::new(),
        input_schema: Arc::new(json!({})),
        strict: false,
    }
}

#[test]
fn only_configured_tools_of_claude_code_are_enabled() {
    let turn = super::session::ClaudeInput { session: None, system: String::new(), prompt: "p".into() };
    let plain = ModelRequest::new("sonnet", Arc::default());
    let offering = ModelRequest { tools: [tool()].into(), ..plain.clone() };
    let check = |request: &ModelRequest, own: &[&str], expected: &str| {
        let own_tools = own.iter().map(|name| (*name).to_owned()).collect();
        let settings = ClaudeCodeSettings { own_tools, ..ClaudeCodeSettings::default() };
        let words = super::command::order(&settings, request, &turn).words.join(" ");
        let always = "-p --output-format stream-json --verbose --include-partial-messages --model sonnet --max-turns 25";
        assert_eq!(words, format!("{always}{expected}"));
    };
    let with_tools = |tools: &str, allowed: &str| {
        format!(
            " --input-format stream-json --permission-prompt-tool stdio --permission-mode default --tools {tools} \
             --allowedTools {allowed} --strict-mcp-config --mcp-config \
             {{\"mcpServers\":{{\"haft\":{{\"name\":\"haft\",\"type\":\"sdk\"}}}}}}"
        )
    };
    check(&plain, &["Read"], " --tools ");
    check(&offering, &[], &with_tools("", "mcp__haft"));
    let own = ["Read", "Bash(git *)", "Bash(ls)"];
    check(&offering, &own, &with_tools("Bash,Read", "Read,Bash(git *),Bash(ls),mcp__haft"));
}
