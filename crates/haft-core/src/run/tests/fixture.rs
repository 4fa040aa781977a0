//! Drives a run with scripted replies and logs its steps.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::json;

use crate::arguments::RawArguments;
use crate::compaction::size::conversation_tokens;
use crate::conversation::{Conversation, Message, MessagePart, PartBody, Role, ToolReply};
use crate::internal_tools::final_report::ReportShape;
use crate::internal_tools::report_format::ReportFormat;
use crate::model_reply::{ModelReply, StopReason};
use crate::model_request::{ModelRequest, ModelTool, ToolChoice};
use crate::output::ToolOutput;
use crate::output_store::{Handle, StoreEntry};
use crate::result::{Receipt, ToolError, ToolErrorKind, ToolResult};
use crate::run::final_report::FinalReport;
use crate::run::finish::RunFinish;
use crate::run::input::ArchiveOutcome;
use crate::run::{AgentRun, ArchiveRequest, CallDecision, DriverReadings, RunPlan, RunStep};
use crate::tool::{CallId, ToolCall};

pub(super) fn part(text: &str) -> MessagePart {
    MessagePart::text(text)
}

pub(super) fn reply(parts: Vec<MessagePart>, stop: StopReason) -> ModelReply {
    ModelReply { id: None, model: None, parts, stop, usage: None, notes: Vec::new() }
}

pub(super) fn says(text: &str) -> ModelReply {
    reply(vec![part(text)], StopReason::EndOfTurn)
}

pub(super) fn cut(text: &str) -> ModelReply {
    reply(vec![part(text)], StopReason::Length)
}

pub(super) fn empty() -> ModelReply {
    reply(Vec::new(), StopReason::EndOfTurn)
}

pub(super) fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: CallId(id.into()), name: name.into(), arguments: RawArguments::from_text(arguments) }
}

/// Returns a reply with these calls, which have the ids `0`, `1` …
pub(super) fn calls(calls: &[(&str, &str)]) -> ModelReply {
    let parts = calls.iter().enumerate().map(|(at, (name, arguments))| {
        MessagePart::new(PartBody::Call(call(&at.to_string(), name, arguments)))
    });
    reply(parts.collect(), StopReason::ToolCalls)
}

pub(super) fn request() -> ModelRequest {
    let mut conversation = Conversation::default();
    conversation.push(Message::user("go")).unwrap();
    let tool = |name: &str| ModelTool {
        name: name.into(),
        description: String::new(),
        input_schema: Arc::new(json!({"type": "object"})),
        strict: false,
    };
    let mut request = ModelRequest::new("m", Arc::new(conversation));
    request.tools = ["read", "write", "client"].map(tool).into();
    request
}

pub(super) fn report_tool() -> FinalReport {
    FinalReport::Tool(ReportShape::plain(ReportFormat::Text))
}

pub(super) fn report_xml() -> FinalReport {
    FinalReport::Xml { shape: ReportShape::plain(ReportFormat::Text), nonce: "n1".into() }
}

pub(super) const REPORT: (&str, &str) =
    ("agent__final_report", r#"{"status": "success", "content": "all done"}"#);

pub(super) fn succeeded(call: &ToolCall) -> ToolResult {
    let outcome = Ok(ToolOutput::text(format!("{} ok", call.name)));
    ToolResult { call: call.clone(), outcome, receipt: Receipt::default() }
}

/// Returns the outcome of appending a text to an archive. The test archive stores no content, only its size.
pub(super) fn stored(request: &ArchiveRequest) -> ArchiveOutcome {
    const NAME: &str = "0a1b2c3d-0000-4000-8000-000000000000";
    let (bytes, lines) = request.archive.as_ref().map_or((0, 0), |entry| (entry.bytes, entry.lines));
    ArchiveOutcome::Stored(StoreEntry {
        handle: Handle::new(NAME, NAME).unwrap(),
        bytes: bytes + request.text.len() as u64,
        lines: lines + request.text.matches('\n').count() as u64,
        complete: true,
    })
}

pub(super) fn pending(call: &ToolCall) -> ToolResult {
    let outcome = Err(ToolError::new(ToolErrorKind::ApprovalPending, "wait"));
    ToolResult { call: call.clone(), outcome, receipt: Receipt::default() }
}

/// A run and the steps that it took.
pub(super) struct RunTestBench {
    pub(super) run: AgentRun,
    pub(super) readings: DriverReadings,
    pub(super) log: Vec<String>,
    /// The replies to requests for summaries. When the list is empty, every summary succeeds.
    pub(super) summaries: VecDeque<ModelReply>,
    asked: bool,
}

impl RunTestBench {
    pub(super) fn new(plan: RunPlan) -> Self {
        Self {
            run: AgentRun::new(request(), plan),
            readings: DriverReadings::default(),
            log: Vec::new(),
            summaries: VecDeque::new(),
            asked: false,
        }
    }

    pub(super) fn step(&mut self) -> RunStep {
        let step = self.run.next_step(&self.readings);
        self.log.push(shown(&step));
        step
    }

    /// Sets the context size to the size of the compacted conversation, as a driver would measure it.
    pub(super) fn shrink(&mut self) {
        if self.readings.context_tokens.is_some() {
            self.readings.context_tokens = Some(conversation_tokens(self.run.conversation()));
        }
    }

    /// Steps until the model request is due or the run is done. All tools succeed, except that the tool `ask` waits for
    /// approval once.
    pub(super) fn until_model(&mut self) -> Option<RunFinish> {
        loop {
            match self.step() {
                RunStep::CallModel(_) => return None,
                RunStep::Archive(request) => {
                    let outcome = stored(&request);
                    self.run.archived(outcome).unwrap();
                    self.shrink();
                }
                RunStep::Summarize(_) => {
                    let reply = self.summaries.pop_front().unwrap_or_else(|| says("the gist"));
                    self.run.summarized(&reply).unwrap();
                    self.shrink();
                }
                RunStep::CallTools(calls) => {
                    let results = calls.iter().map(|call| match call.name.as_str() {
                        "ask" if !self.asked => pending(call),
                        _ => succeeded(call),
                    });
                    self.run.tools_replied(results.collect()).unwrap();
                }
                RunStep::AwaitApproval(calls) => {
                    self.asked = true;
                    for call in calls {
                        self.run.approval_given(&call.id, CallDecision::Allow).unwrap();
                    }
                }
                RunStep::AwaitClient(calls) => {
                    let replies = calls.iter().map(|call| ToolReply::text(call, "client ok"));
                    self.run.client_replied(replies.collect()).unwrap();
                }
                RunStep::Done(finish) => return Some(finish),
            }
        }
    }

    pub(super) fn play(&mut self, replies: Vec<ModelReply>) -> Option<RunFinish> {
        for reply in replies {
            if let Some(finish) = self.until_model() {
                panic!("the run ended before a model reply: {finish:?}");
            }
            self.run.model_replied(reply).unwrap();
        }
        self.until_model()
    }

    /// Returns the operator's messages to the model, in order.
    pub(super) fn told(&self) -> Vec<String> {
        let messages = self.run.conversation().messages().iter();
        messages.filter(|message| message.role == Role::System).map(|message| text(message)).collect()
    }

    /// Returns the results of the calls, in order.
    pub(super) fn replies(&self) -> Vec<String> {
        let messages = self.run.conversation().messages().iter();
        let parts = messages.flat_map(|message| message.parts.iter());
        parts
            .filter_map(|part| match &part.body {
                PartBody::Reply(reply) => {
                    Some(reply.content.iter().map(crate::output::OutputContent::as_text).collect())
                }
                _ => None,
            })
            .collect()
    }
}

/// Plays the replies and compares the steps.
pub(super) fn check(plan: RunPlan, replies: Vec<ModelReply>, expected: &[&str]) -> RunTestBench {
    let mut bench = RunTestBench::new(plan);
    bench.play(replies);
    assert_eq!(bench.log, expected);
    bench
}

fn text(message: &Message) -> String {
    message
        .parts
        .iter()
        .map(|part| match &part.body {
            PartBody::Text { text, .. } => text.as_str(),
            _ => "",
        })
        .collect()
}

fn shown(step: &RunStep) -> String {
    let names = |calls: &[ToolCall]| calls.iter().map(|call| call.name.clone()).collect::<Vec<_>>().join(",");
    match step {
        RunStep::CallModel(request) => format!("model {}", shown_choice(&request.tool_choice)),
        RunStep::Archive(_) => "archive".into(),
        RunStep::Summarize(_) => "summarize".into(),
        RunStep::CallTools(calls) => format!("tools {}", names(calls)),
        RunStep::AwaitClient(calls) => format!("client {}", names(calls)),
        RunStep::AwaitApproval(calls) => format!("approval {}", names(calls)),
        RunStep::Done(finish) => {
            let answer =
                finish.answer.as_ref().map(|answer| format!(": {}", answer.text())).unwrap_or_default();
            format!("done {}{answer}", finish.reason.name())
        }
    }
}

fn shown_choice(choice: &ToolChoice) -> String {
    match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Named(name) => format!("={name}"),
        ToolChoice::Allowed { names, .. } => format!("[{}]", names.join(",")),
    }
}
