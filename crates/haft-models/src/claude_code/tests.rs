use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use haft_core::conversation::{Conversation, Message};
use haft_core::event::{Event, EventSink};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{AttemptFollowUp, ModelContext, ModelProvider};
use haft_core::model_reply::ReplyFold;
use haft_core::model_request::ModelRequest;
use haft_core::provider::Principal;
use serde_json::json;

use super::*;

/// A launcher whose runs print scripted output, one run after the other.
struct ScriptedLauncher {
    runs: Mutex<VecDeque<&'static str>>,
    orders: Arc<Mutex<Vec<ClaudeCommand>>>,
}

impl StartCommand for ScriptedLauncher {
    fn start(&self, order: ClaudeCommand) -> BoxFuture<'_, Result<Box<dyn RunningCommand>, String>> {
        self.orders.lock().unwrap().push(order);
        let printed = self.runs.lock().unwrap().pop_front().unwrap();
        Box::pin(async move {
            Ok(Box::new(ScriptedCommand(printed.as_bytes().to_vec())) as Box<dyn RunningCommand>)
        })
    }
}

/// A run that yields one byte per read. If the output ends with `…`, the run never finishes.
struct ScriptedCommand(Vec<u8>);

impl RunningCommand for ScriptedCommand {
    fn read(&mut self) -> BoxFuture<'_, io::Result<Vec<u8>>> {
        Box::pin(async {
            if self.0 == "…".as_bytes() {
                std::future::pending::<()>().await;
            }
            let rest = self.0.split_off(self.0.len().min(1));
            Ok(std::mem::replace(&mut self.0, rest))
        })
    }

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

async fn ask(runs: &[&'static str]) -> ClaudeTestRun {
    let orders = Arc::default();
    let runs = Mutex::new(runs.iter().copied().collect());
    let start = ScriptedLauncher { runs, orders: Arc::clone(&orders) };
    let provider = ClaudeCode::new(ClaudeCodeSettings::default(), Box::new(start));
    let log = Arc::new(ClaudeEventLog::default());
    let cx = ModelContext::new("1", Principal::local(), Arc::clone(&log) as _);
    let mut conversation = Conversation::default();
    conversation.push(Message::user("hi")).unwrap();
    let request =
        ModelRequest { output_tokens_max: Some(5), ..ModelRequest::new("sonnet", Arc::new(conversation)) };
    let events_of_reply = provider.ask(request, &cx).collect().await;
    let orders = std::mem::take(&mut *orders.lock().unwrap());
    ClaudeTestRun { events_of_reply, orders, log }
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
    let prompts: Vec<_> = asked.orders.iter().map(|order| String::from_utf8_lossy(&order.stdin)).collect();
    assert_eq!(
        (prompts.len(), prompts[0].as_ref(), prompts[3].as_ref()),
        (4, "hi", "Continue where you left off.")
    );
}

#[tokio::test(start_paused = true)]
async fn command_failing_six_times_is_an_error_with_the_key_redacted() {
    let asked = ask(&[BEGUN; 6]).await;
    assert_eq!(asked.log.waits(), [2, 4, 8, 16, 32]);
    let error = asked.events_of_reply.last().unwrap().as_ref().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::ServerFailed);
    assert_eq!(error.message, "the command ended with code 1 before it answered: key [redacted]");
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

#[test]
fn request_without_tools_disables_the_commands_built_in_tools() {
    let turn = super::session::ClaudeInput { session: None, system: String::new(), prompt: "p".into() };
    let tool = haft_core::model_request::ModelTool {
        name: "t".into(),
        description: String::new(),
        input_schema: Arc::new(json!({})),
    };
    let plain = ModelRequest::new("sonnet", Arc::default());
    let offering = ModelRequest { tools: [tool].into(), ..plain.clone() };
    let check = |request: &ModelRequest, allowed: Option<&[&str]>, expected: &str| {
        let allowed_tools = allowed.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let settings = ClaudeCodeSettings { allowed_tools, ..ClaudeCodeSettings::default() };
        let words = super::command::order(&settings, request, &turn).words.join(" ");
        assert_eq!(
            words,
            format!(
                "-p --output-format stream-json --verbose --include-partial-messages --model sonnet --max-turns 25{expected}"
            )
        );
    };
    check(&plain, Some(&["Read"]), " --tools ");
    check(&offering, Some(&[]), " --tools ");
    check(&offering, None, "");
    check(&offering, Some(&["Read", "Bash(git *)"]), " --allowedTools Read,Bash(git *)");
}
