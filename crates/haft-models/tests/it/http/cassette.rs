use std::path::PathBuf;
use std::sync::Arc;

use futures_util::StreamExt;
use haft_core::conversation::{Message, ModelApiFormat, ToolReply};
use haft_core::event::Event;
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{ModelContext, ModelProvider};
use haft_core::model_reply::{ModelReply, ReplyFold};
use haft_core::model_request::ModelRequest;
use haft_model_server::{ErrorResponse, ResponseFault, ScriptPart, ScriptStep};
use haft_models::cassette::{MatchRule, Recorder, Recording, Replayer, Tape};
use serde_json::json;

use super::client::{ClientFixture, KEY, RecordedEvents, asking, request, whole};
use crate::fixture::tools;

/// The temporary directory for a test's recording.
struct RecordingDir(tempfile::TempDir);

impl RecordingDir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("r.jsonl")
    }

    fn tape(&self) -> Arc<Tape> {
        Tape::create(&self.path(), [KEY.into()]).unwrap()
    }

    fn replayer(&self, matching: MatchRule) -> Replayer {
        Replayer::new(&Recording::read(&self.path()).unwrap(), matching).unwrap()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap()
    }
}

type ReplyItems = Vec<Result<ModelEvent, ModelError>>;

async fn said(provider: &dyn ModelProvider, request: ModelRequest, cx: &ModelContext) -> ReplyItems {
    provider.ask(request, cx).collect().await
}

fn folded(said: &ReplyItems) -> ModelReply {
    ReplyFold::of(said.iter().cloned().map(Result::unwrap))
}

/// Returns the request that follows a reply with calls.
fn answered(request: &ModelRequest, reply: ModelReply, output: &str) -> ModelRequest {
    let mut conversation = (*request.conversation).clone();
    let replies = reply.calls().map(|call| ToolReply::text(call, output)).collect();
    conversation.push(reply.into_message()).unwrap();
    conversation.push(Message::tool(replies)).unwrap();
    ModelRequest { conversation: Arc::new(conversation), ..request.clone() }
}

fn watched() -> (Arc<RecordedEvents>, ModelContext) {
    let log = Arc::new(RecordedEvents::default());
    let cx = ModelContext::new("r1", haft_core::provider::Principal::local(), Arc::clone(&log) as _);
    (log, cx)
}

fn costs(log: &RecordedEvents) -> Vec<String> {
    let cost = |event: &Event| match event {
        Event::ModelFinished { account, .. } => {
            Some(format!("{:?} {:?} {}", account.usage, account.cost, account.latency.as_micros()))
        }
        _ => None,
    };
    log.all().iter().filter_map(cost).collect()
}

/// Runs two turns with a call between them, and returns the events of each.
async fn two_turns(provider: &dyn ModelProvider, cx: &ModelContext, output: &str) -> [ReplyItems; 2] {
    let first = ModelRequest { tools: tools(), ..asking("What does a say?") };
    let one = said(provider, first.clone(), cx).await;
    let second = answered(&first, folded(&one), output);
    let two = said(provider, second, cx).await;
    [one, two]
}

fn steps() -> [ScriptStep; 3] {
    [
        ScriptStep::fail(ErrorResponse::new(500, "oh")),
        ScriptStep::say([
            ScriptPart::reasoning("hm", "sig"),
            ScriptPart::Text("I look.".into()),
            ScriptPart::call("read", json!({"path": "/tmp/a"})),
        ]),
        ScriptStep::text("It says hello."),
    ]
}

#[tokio::test]
async fn replay_repeats_every_recorded_event_in_every_format() {
    for format in ModelApiFormat::ALL {
        let (reel, asker) = (RecordingDir::new(), ClientFixture::new(format, steps()));
        let recorder = Recorder::new(asker.provider(), reel.tape());
        let spoken = two_turns(&recorder, &asker.context(), "hello").await;
        assert!(!reel.text().contains(KEY), "{format:?}");

        let (log, cx) = watched();
        let replayer = reel.replayer(MatchRule::Digest);
        assert_eq!(two_turns(&replayer, &cx, "hello").await, spoken, "{format:?}");
        assert_eq!(replayer.left(), 0);
        assert_eq!(log.attempts(), ["m 1 server_failed", "m 2 ok", "m 1 ok"], "{format:?}");
        assert_eq!(costs(&log), costs(&asker.events), "{format:?}");
        assert_eq!(replayer.name(), asker.provider().name());
    }
}

#[tokio::test]
async fn recorded_line_holds_only_new_messages() {
    let (reel, asker) = (RecordingDir::new(), ClientFixture::new(ModelApiFormat::Anthropic, steps()));
    let recorder = Recorder::new(asker.provider(), reel.tape());
    two_turns(&recorder, &asker.context(), "hello").await;
    let text = reel.text();
    assert_eq!(text.matches("What does a say?").count(), 1, "{text}");
    assert_eq!(text.matches("input_schema").count(), tools().len(), "{text}");
}

#[tokio::test]
async fn replay_ignores_dates_and_paths_but_no_other_difference() {
    let (reel, asker) =
        (RecordingDir::new(), ClientFixture::new(ModelApiFormat::Ollama, [ScriptStep::text("fine")]));
    let recorder = Recorder::new(asker.provider(), reel.tape());
    whole(&recorder, asking("read /tmp/one on 2026-01-01"), &asker.context()).await.unwrap();
    let (_, cx) = watched();
    let replayer = reel.replayer(MatchRule::Digest);
    let miss = whole(&replayer, asking("write /srv/two on 2027-12-31"), &cx).await.unwrap_err();
    assert_eq!(miss.kind, ModelErrorKind::NotRecorded);
    let expected = "the most similar request is on line 2, where `messages[0].parts[0].text` is `read <path> on <date>` \
                    instead of `write <path> on <date>`";
    assert!(miss.message.contains(expected), "{miss}");
    let request =
        ModelRequest { system: "new".into(), model: "n".into(), ..asking("read /srv/two on 2027-12-31") };
    assert_eq!(whole(&replayer, request.clone(), &cx).await.unwrap().text(), "fine");
    let miss = whole(&replayer, request, &cx).await.unwrap_err();
    assert!(miss.message.contains("it was recorded once, and the replay sent it once more"), "{miss}");
}

#[tokio::test]
async fn replay_miss_names_the_line_of_the_nearest_request() {
    let reel = RecordingDir::new();
    let asker = ClientFixture::new(ModelApiFormat::Gemini, steps());
    let recorder = Recorder::new(asker.provider(), reel.tape());
    two_turns(&recorder, &asker.context(), "hello").await;
    let (_, cx) = watched();
    let first = ModelRequest { tools: tools(), ..asking("What does a say?") };
    let replayer = reel.replayer(MatchRule::Digest);
    let reply = folded(&said(&replayer, first.clone(), &cx).await);
    let miss = whole(&replayer, answered(&first, reply, "goodbye"), &cx).await.unwrap_err();
    assert!(
        miss.message.contains("on line 3") && miss.message.contains("`hello` instead of `goodbye`"),
        "{miss}"
    );
}

#[tokio::test]
async fn turn_matching_compares_only_the_turn_and_called_tool_names() {
    let (reel, asker) = (RecordingDir::new(), ClientFixture::new(ModelApiFormat::OpenaiResponses, steps()));
    let recorder = Recorder::new(asker.provider(), reel.tape());
    let spoken = two_turns(&recorder, &asker.context(), "hello").await;
    let (_, cx) = watched();
    assert_eq!(two_turns(&reel.replayer(MatchRule::Turn), &cx, "something else").await, spoken);

    let replayer = reel.replayer(MatchRule::Turn);
    let reply = folded(&spoken[1]);
    let other = request([Message::user("x"), reply.into_message(), Message::user("y")]);
    let miss = whole(&replayer, other, &cx).await.unwrap_err();
    let expected = "turn 2 after no calls: the recording has this turn on line 3 after calls to read";
    assert!(miss.message.contains(expected), "{miss}");
}

#[tokio::test]
async fn equal_requests_and_failures_are_replayed_in_recorded_order() {
    let asker = ClientFixture::new(
        ModelApiFormat::OpenaiChat,
        [ScriptStep::fail(ErrorResponse::new(401, "who?")), ScriptStep::text("one")],
    );
    let reel = RecordingDir::new();
    let recorder = Recorder::new(asker.provider(), reel.tape());
    let failed = whole(&recorder, asking("hi"), &asker.context()).await.unwrap_err();
    whole(&recorder, asking("hi"), &asker.context()).await.unwrap();
    let (_, cx) = watched();
    let replayer = reel.replayer(MatchRule::Digest);
    assert_eq!(whole(&replayer, asking("hi"), &cx).await.unwrap_err(), failed);
    assert_eq!(whole(&replayer, asking("hi"), &cx).await.unwrap().text(), "one");
}

#[tokio::test]
async fn dropped_reply_is_recorded_up_to_its_cancellation() {
    let reel = RecordingDir::new();
    let hangs = ScriptStep::text("begun and not ended").with_fault(ResponseFault::Hang { after_frames: 3 });
    let asker = ClientFixture::new(ModelApiFormat::Anthropic, [hangs]);
    let recorder = Recorder::new(asker.provider(), reel.tape());
    drop(recorder.ask(asking("never polled"), &asker.context()));
    let mut replies = recorder.ask(asking("hi"), &asker.context());
    replies.next().await.unwrap().unwrap();
    drop(replies);
    assert!(!reel.text().contains("never polled"));
    let (log, cx) = watched();
    let events = said(&reel.replayer(MatchRule::Digest), asking("hi"), &cx).await;
    assert!(events.first().unwrap().is_ok());
    assert_eq!(events.last().unwrap().as_ref().unwrap_err().kind, ModelErrorKind::Cancelled);
    assert_eq!(log.attempts(), ["m 1 cancelled"]);
}

/// The user puts a key into the conversation, and the model repeats it in several deltas.
#[tokio::test]
async fn api_key_in_the_conversation_is_not_recorded() {
    let reel = RecordingDir::new();
    let echo = ScriptStep::text(&format!("you said {KEY}, did you not?"));
    let asker = ClientFixture::new(ModelApiFormat::OpenaiChat, [echo]);
    let recorder = Recorder::new(asker.provider(), reel.tape());
    let question = format!("my key is {KEY}");
    let reply = whole(&recorder, asking(&question), &asker.context()).await.unwrap();
    assert!(reply.text().contains(KEY));
    let text = reel.text();
    assert!(text.contains("[redacted], did you not?"), "{text}");
    let pieces: String =
        text.split("\"more\":\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(!pieces.contains(KEY) && !text.contains(KEY), "{pieces}");
    let (_, cx) = watched();
    let reply = whole(&reel.replayer(MatchRule::Digest), asking(&question), &cx).await.unwrap();
    assert_eq!(reply.text(), "you said [redacted], did you not?");
    let missed =
        whole(&reel.replayer(MatchRule::Digest), asking("my key is [redacted]"), &cx).await.unwrap_err();
    assert!(
        missed.message.ends_with("line 2 of the recording differs only in a secret that was redacted"),
        "{missed}"
    );
}
