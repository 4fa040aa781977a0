//! The checks of the fuzz targets: no input may make a parser panic or hang, and the result must be usable. The tests
//! of `haft-runtime` run the same checks on the corpora and on a few mutations of them.

use std::collections::VecDeque;
use std::io::{self, Cursor};
use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use haft_config::agents::{AgentDefinition, AgentReadContext};
use haft_core::conversation::{Conversation, Message, MessagePart, ModelApiFormat};
use haft_core::event::NoEvents;
use haft_core::framing::Framing;
use haft_core::glob::ToolGlob;
use haft_core::model_error::ModelError;
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{ModelContext, ModelProvider};
use haft_core::model_reply::{ModelReply, ReplyFold, StopReason};
use haft_core::model_request::{ModelRequest, ModelTool};
use haft_core::provider::Principal;
use haft_core::rules::{CommandPattern, PermissionDecision, PermissionRule, PermissionRules};
use haft_core::settings::method::Method;
use haft_core::shell;
use haft_models::cassette::{MatchRule, Recording, Replayer};
use haft_models::claude_code::{
    ClaudeCode, ClaudeCodeSettings, ClaudeCommand, ClaudeExit, RunningCommand, StartCommand,
};
use haft_models::framing;
use haft_models::http::read_page;
use haft_models::prompted_tools::read_calls;
use haft_models::{DecodeContext, ErrorHead, WireFormat};
use haft_store::sessions::{JournalLines, SessionHistory};
use haft_tools::mcp::server_input;
use haft_tools::rest::openapi::{
    DeprecatedOperations, ImportSettings, OpenApiDownload, OperationFilter, import,
};
use tokio::runtime::Builder;

/// Decodes a complete reply, and the same bytes as the response to a failed request.
pub fn whole(wire: &dyn WireFormat, bytes: &[u8]) {
    check(wire.decode(bytes, &asked()));
    let error = wire.decode_error(&ErrorHead::of_status(400), bytes);
    assert!(!error.message.is_empty());
}

/// Decodes a streamed reply. The position of the cut between two chunks must not change the result.
pub fn stream(wire: &dyn WireFormat, bytes: &[u8]) {
    let at = bytes.first().map_or(0, |byte| usize::from(*byte) % bytes.len());
    let (one, two) = (read(wire, &[bytes]), read(wire, &[&bytes[..at], &bytes[at..]]));
    assert_eq!(format!("{one:?}"), format!("{two:?}"), "cut at {at}");
    check(one.0.map(|()| ReplyFold::of(one.1)));
}

/// Decodes server-sent events. The position of the cut between two chunks must not change the result.
pub fn sse(bytes: &[u8]) {
    frames(bytes, framing::sse);
}

/// Decodes NDJSON lines. The position of the cut between two chunks must not change the result.
pub fn ndjson(bytes: &[u8]) {
    frames(bytes, framing::lines);
}

fn frames(bytes: &[u8], framing: fn() -> Framing) {
    let read = |pieces: &[&[u8]]| {
        let mut decoder = framing();
        let mut found = Vec::new();
        for piece in pieces {
            match decoder.push(piece) {
                Ok(frames) => found.extend(frames),
                Err(error) => return (found, Some(error)),
            }
        }
        let last = decoder.finish();
        found.extend(last.iter().flatten().cloned());
        (found, last.err())
    };
    let middle = bytes.len() / 2;
    assert_eq!(read(&[bytes]), read(&[&bytes[..middle], &bytes[middle..]]));
}

/// Reads tool calls from the text of a model whose prompt describes the tools.
pub fn prompted(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let reply = ModelReply {
        id: None,
        model: None,
        parts: vec![MessagePart::text(text)],
        stop: StopReason::EndOfTurn,
        usage: None,
        notes: Vec::new(),
    };
    check(Ok(read_calls(reply, &asked())));
}

/// Parses a shell line, and applies permission rules to it. A line that also contains a denied command is never
/// allowed.
pub fn shell_line(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    if let Ok(reading) = shell::read_line(&line) {
        assert!(reading.commands.len() <= shell::COMMANDS_MAX);
        assert!(
            reading.commands.iter().all(|read| read.carrier.is_none_or(|at| at < reading.commands.len()))
        );
        let _ = reading.commands.iter().map(|read| read.command.to_string().len()).sum::<usize>();
    }
    let rule = |pattern: &str| {
        let command = CommandPattern::new(pattern).ok();
        let tool = ToolGlob::new("bash").ok();
        tool.map(|tool| PermissionRule { tool, command, decision: PermissionDecision::Deny })
    };
    let rules: Vec<PermissionRule> = ["rm", "rm *"].iter().filter_map(|pattern| rule(pattern)).collect();
    let rules = PermissionRules { rules, default: PermissionDecision::Allow };
    let _ = rules.decide("bash", Some(&line));
    for denied in [format!("rm x; {line}"), format!("rm x\n{line}"), format!("sudo rm x && {line}")] {
        assert_ne!(rules.decide("bash", Some(&denied)).decision, PermissionDecision::Allow, "{denied:?}");
    }
}

/// Reads a configuration file. Every error names a reason.
pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let variable = |name: &str| (name == "SET").then(|| "value".to_owned());
    match haft_config::load_text(Path::new("/haft.json"), &text, &variable) {
        Ok(resolved) => assert!(!format!("{resolved:?}").is_empty()),
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
}

/// Imports an OpenAPI document in JSON or YAML. The result must have the URL of a server.
pub fn openapi(bytes: &[u8]) {
    let Ok(at) = "https://api.example.com/openapi.json".parse() else { return };
    let mut download = OpenApiDownload::of(at);
    let Some(next_url) = download.next_url() else { return };
    if download.take(&next_url, bytes).is_err() {
        return;
    }
    let filter = OperationFilter {
        methods: vec![Method::Get, Method::Post],
        tags: Vec::new(),
        include: Vec::new(),
        exclude: Vec::new(),
        deprecated: DeprecatedOperations::LeftOut,
    };
    let settings = ImportSettings {
        name: "api",
        base_url: None,
        headers: Vec::new(),
        logins: Default::default(),
        filter,
        hosts: Vec::new(),
        private: None,
    };
    match import(&download.finished(), settings) {
        Ok(result) => {
            assert!(result.base.has_host() && ["http", "https"].contains(&result.base.scheme()));
            assert!(result.tools.len() + result.skipped.len() <= bytes.len());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Reads bytes of an MCP server: as messages, as a list of tools, as the result of a call, and as the state of a task.
pub fn mcp(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines() {
        assert!(server_input::messages(line) <= 1_000);
    }
    let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let _ = server_input::id_in_fragment(&text[..middle], &text[middle..]);
    if let Some(list) = server_input::tools(&text) {
        assert!(list.tools().len() + list.skipped.len() <= text.len());
    }
    for parse in [server_input::call_result, server_input::task_state] {
        if let Some(Err(error)) = parse(&text) {
            assert!(!error.message.is_empty());
        }
    }
}

/// Reads an agent file. The files that it includes have the same text, so an agent may include itself.
pub fn agent(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let read = |_: &str| Ok(text.clone());
    let variable = |name: &str| (name == "SET").then(|| "value".to_owned());
    let around = AgentReadContext { read: &read, variable: &variable };
    match AgentDefinition::read("agent.md", &text, around) {
        Ok(agent) => assert!(!agent.name.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Reads the journal of a session, and restores its run.
pub fn journal(bytes: &[u8]) {
    let history = SessionHistory::of(JournalLines::of(Cursor::new(bytes)));
    let Ok(mut history) = history else { return };
    history.left();
    let _ = history.overview();
    if history.plan().is_ok() {
        let request = ModelRequest::new("m", Arc::new(Conversation::default()));
        let _ = history.run(request).map(|restored| restored.turns_before);
    }
}

/// Reads a page of a provider's list of models.
pub fn models(bytes: &[u8]) {
    for format in ModelApiFormat::ALL {
        match read_page(format, bytes) {
            Ok((_, next)) => assert!(next.is_none_or(|next| next.starts_with("models?") && next.is_ascii())),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Reads a file whose first line claims that it is a recording, and replays it.
pub fn cassette(bytes: &[u8]) {
    let text = [b"{\"type\":\"recording\",\"version\":3}\n", bytes].concat();
    let Ok(recording) = Recording::read_from(Path::new("r"), Cursor::new(text)) else { return };
    for matching in [MatchRule::Digest, MatchRule::Turn] {
        let Ok(replayer) = Replayer::new(&recording, matching) else { return };
        let cx = ModelContext::new("1", Principal::local(), Arc::new(NoEvents));
        let request = ModelRequest::new("m", Arc::new(Conversation::default()));
        let said = replayer.ask(request, &cx).collect::<Vec<_>>().now_or_never();
        assert!(said.is_some_and(|said| matching == MatchRule::Turn || !said.is_empty()));
    }
}

/// Reads the output of the `claude` command, with and without tools. The cut between two chunks must not change the
/// result.
pub fn claude_code(bytes: &[u8]) {
    let middle = bytes.len() / 2;
    let tool = ModelTool {
        name: "t".into(),
        description: String::new(),
        input_schema: Arc::default(),
        strict: false,
    };
    for tools in [vec![], vec![tool]] {
        let one = said_by_command(&tools, &[bytes]);
        assert_eq!(one, said_by_command(&tools, &[&bytes[..middle], &bytes[middle..]]));
    }
}

fn said_by_command(tools: &[ModelTool], pieces: &[&[u8]]) -> String {
    let pieces = pieces.iter().filter(|piece| !piece.is_empty()).map(|piece| piece.to_vec()).collect();
    let settings = ClaudeCodeSettings { resumes_max: 0, ..ClaudeCodeSettings::default() };
    let provider = ClaudeCode::new(settings, Box::new(FuzzedCommand(pieces)));
    let cx = ModelContext::new("1", Principal::local(), Arc::new(NoEvents));
    let mut conversation = Conversation::default();
    assert!(conversation.push(Message::user("hi")).is_ok());
    let request = ModelRequest { tools: tools.into(), ..ModelRequest::new("m", Arc::new(conversation)) };
    let clock = Builder::new_current_thread().enable_time().start_paused(true).build();
    let said = clock.map(|clock| clock.block_on(provider.ask(request, &cx).collect::<Vec<_>>()));
    let Ok(said) = said else { return String::new() };
    let told = format!("{said:?}");
    check(said.into_iter().collect::<Result<Vec<_>, _>>().map(ReplyFold::of));
    told
}

/// A command that prints these chunks one by one and ends.
struct FuzzedCommand(VecDeque<Vec<u8>>);

impl StartCommand for FuzzedCommand {
    fn start(&self, _: ClaudeCommand) -> BoxFuture<'_, Result<Box<dyn RunningCommand>, String>> {
        let running = Box::new(Self(self.0.clone())) as Box<dyn RunningCommand>;
        Box::pin(async { Ok(running) })
    }
}

impl RunningCommand for FuzzedCommand {
    fn read(&mut self) -> BoxFuture<'_, io::Result<Vec<u8>>> {
        let piece = self.0.pop_front().unwrap_or_default();
        Box::pin(async { Ok(piece) })
    }

    fn write(&mut self, _: Vec<u8>) {}

    fn close_input(&mut self) {}

    fn end(self: Box<Self>) -> BoxFuture<'static, Result<ClaudeExit, String>> {
        Box::pin(async { Ok(ClaudeExit { how: "ended".into(), stderr_tail: String::new() }) })
    }
}

type DecodedStream = (Result<(), ModelError>, Vec<ModelEvent>);

fn read(wire: &dyn WireFormat, pieces: &[&[u8]]) -> DecodedStream {
    let mut decoder = wire.stream_decoder(&asked());
    let mut events = Vec::new();
    for piece in pieces {
        if let Err(error) = decoder.push(piece, &mut events) {
            return (Err(error), events);
        }
    }
    (decoder.finish(&mut events), events)
}

fn check(reply: Result<ModelReply, ModelError>) {
    match reply {
        Ok(reply) => assert!(Conversation::default().push(reply.into_message()).is_ok()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn asked() -> DecodeContext {
    DecodeContext { turn: 1, text_bytes: 100, context_tokens: Some(10) }
}
