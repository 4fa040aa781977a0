use std::sync::Arc;

use haft_core::conversation::{
    Media, MediaSource, Message, MessagePart, ModelApiFormat, PartBody, ToolReply,
};
use haft_core::model_request::{
    ModelRequest, ModelTool, MustCall, OutputShape, ParallelCalls, ReasoningEffort, ReasoningSummary,
    ToolChoice, Verbosity,
};
use haft_core::output::OutputContent;
use haft_models::WireFormat;
use haft_models::openai_chat::OpenaiChat;
use haft_models::openai_chat::dialect::DIALECTS;
use haft_models::unsupported_features::RequestFeature;
use serde_json::json;

use crate::fixture::{call, calls, encode, request, tools, user, wire};

/// Returns a request with only this feature, and the same request without it.
fn pair(feature: RequestFeature) -> (ModelRequest, ModelRequest) {
    match feature {
        RequestFeature::SystemInside => (said(Message::system("psst")), said(Message::user("psst"))),
        RequestFeature::ImageBytes => input(PartBody::Image(media("image/png", bytes()))),
        RequestFeature::ImageUrl => input(PartBody::Image(media("image/png", url()))),
        RequestFeature::AudioBytes => input(PartBody::Audio(media("audio/wav", bytes()))),
        RequestFeature::AudioUrl => input(PartBody::Audio(media("audio/wav", url()))),
        RequestFeature::FileBytes => {
            input(PartBody::File { name: None, media: media("application/pdf", bytes()) })
        }
        RequestFeature::FileUrl => {
            input(PartBody::File { name: None, media: media("application/pdf", url()) })
        }
        RequestFeature::AssistantMedia => {
            let image = MessagePart::new(PartBody::Image(media("image/png", bytes())));
            (
                said(Message::assistant(vec![MessagePart::text("psst"), image])),
                said(Message::assistant(vec![MessagePart::text("psst")])),
            )
        }
        RequestFeature::ReplyError => (answered(true, vec![]), answered(false, vec![])),
        RequestFeature::ReplyImage => (
            answered(false, vec![OutputContent::Image { media_type: "image/png".into(), bytes: raw() }]),
            answered(false, vec![]),
        ),
        RequestFeature::ReplyAudio => (
            answered(false, vec![OutputContent::Audio { media_type: "audio/wav".into(), bytes: raw() }]),
            answered(false, vec![]),
        ),
        RequestFeature::ChoiceNone => changed(|request| request.tool_choice = ToolChoice::None),
        RequestFeature::ChoiceRequired => changed(|request| request.tool_choice = ToolChoice::Required),
        RequestFeature::ChoiceNamed => {
            changed(|request| request.tool_choice = ToolChoice::Named("read".into()))
        }
        RequestFeature::ChoiceAllowed => changed(|request| {
            request.tool_choice = ToolChoice::Allowed { names: vec!["read".into()], must_call: MustCall::No };
        }),
        RequestFeature::OneCallAtATime => {
            changed(|request| request.parallel_calls = ParallelCalls::OneAtATime)
        }
        RequestFeature::OutputJson => changed(|request| request.output = OutputShape::Json),
        RequestFeature::OutputSchema => changed(|request| {
            let schema = Arc::new(json!({"type": "object", "properties": {"answer": {"type": "string"}}}));
            request.output = OutputShape::Schema { name: "answer".into(), schema };
        }),
        RequestFeature::Temperature => changed(|request| request.sampling.temperature = Some(0.5)),
        RequestFeature::TopP => changed(|request| request.sampling.top_p = Some(0.5)),
        RequestFeature::TopK => changed(|request| request.sampling.top_k = Some(5)),
        RequestFeature::Seed => changed(|request| request.sampling.seed = Some(5)),
        RequestFeature::PresencePenalty => changed(|request| request.sampling.presence_penalty = Some(0.5)),
        RequestFeature::FrequencyPenalty => changed(|request| request.sampling.frequency_penalty = Some(0.5)),
        RequestFeature::StopSequences => changed(|request| request.sampling.stop = vec!["END".into()]),
        RequestFeature::EffortOff => changed(|request| request.reasoning = Some(ReasoningEffort::Off)),
        RequestFeature::Effort => changed(|request| request.reasoning = Some(ReasoningEffort::High)),
        RequestFeature::ReasoningSummary => {
            changed(|request| request.reasoning_summary = Some(ReasoningSummary::Detailed))
        }
        RequestFeature::Verbosity => changed(|request| request.verbosity = Some(Verbosity::Low)),
        RequestFeature::StrictTools => changed(|request| {
            let strict = |tool: &ModelTool| ModelTool { strict: true, ..tool.clone() };
            request.tools = request.tools.iter().map(strict).collect();
        }),
        RequestFeature::OutputTokensMax => changed(|request| request.output_tokens_max = Some(77)),
        RequestFeature::ContextTokens => changed(|request| request.context_tokens = Some(77_777)),
    }
}

fn raw() -> Arc<[u8]> {
    Arc::from(&b"some bytes"[..])
}

fn bytes() -> MediaSource {
    MediaSource::Bytes(raw())
}

fn url() -> MediaSource {
    MediaSource::Url("https://example.org/it".into())
}

fn media(media_type: &str, source: MediaSource) -> Media {
    Media { media_type: media_type.into(), source }
}

fn said(message: Message) -> ModelRequest {
    request([Message::user("hi"), message])
}

fn input(body: PartBody) -> (ModelRequest, ModelRequest) {
    (
        said(user(vec![MessagePart::text("see"), MessagePart::new(body)])),
        said(user(vec![MessagePart::text("see")])),
    )
}

fn answered(is_error: bool, more: Vec<OutputContent>) -> ModelRequest {
    let call = call("a", "{}");
    let mut reply = ToolReply::text(&call, "done");
    reply.is_error = is_error;
    reply.content.extend(more);
    request([Message::user("hi"), calls(&[call]), Message::tool(vec![reply])])
}

fn changed(change: impl FnOnce(&mut ModelRequest)) -> (ModelRequest, ModelRequest) {
    let mut without = request([Message::user("hi")]);
    without.tools = tools();
    let mut with = without.clone();
    change(&mut with);
    (with, without)
}

fn wires() -> Vec<Box<dyn WireFormat>> {
    let dialects = DIALECTS.iter().map(|dialect| Box::new(OpenaiChat(dialect)) as Box<dyn WireFormat>);
    let others: Vec<Box<dyn WireFormat>> = vec![
        Box::new(haft_models::openai_responses::OPENAI_RESPONSES),
        Box::new(haft_models::anthropic::ANTHROPIC),
        Box::new(haft_models::gemini::GEMINI),
        Box::new(haft_models::ollama::OLLAMA),
    ];
    dialects.chain(others).collect()
}

#[test]
fn every_request_feature_is_encoded_or_declared_unsupported() {
    for wire in wires() {
        for feature in RequestFeature::ALL {
            let (with, without) = pair(feature);
            let (with, without) = (encode(&*wire, &with), encode(&*wire, &without));
            let declared = wire.unsupported().iter().any(|row| row.feature == feature);
            let reported = with.unsupported.contains(&feature);
            assert_eq!(declared, reported, "{feature:?} in {:?}", wire.format());
            assert!(declared || with.body != without.body, "{feature:?} is dropped by {:?}", wire.format());
            assert!(!without.unsupported.contains(&feature), "{feature:?} in {:?}", wire.format());
        }
    }
}

#[test]
fn unsupported_features_are_described_in_the_readme() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    for format in ModelApiFormat::ALL {
        for row in wire(format).unsupported() {
            assert!(!row.instead.is_empty());
            let line = format!("| {} | {} | {} |", format.name(), row.feature.name(), row.instead);
            assert!(readme.contains(&line), "add to README.md:\n{line}");
        }
    }
}

#[test]
fn unsupported_media_urls_are_sent_as_text() {
    for format in ModelApiFormat::ALL {
        for feature in [RequestFeature::ImageUrl, RequestFeature::AudioUrl, RequestFeature::FileUrl] {
            let (with, _) = pair(feature);
            let body = String::from_utf8(encode(wire(format), &with).body).unwrap();
            assert!(body.contains("https://example.org/it"), "{feature:?} in {format:?}");
        }
    }
}
