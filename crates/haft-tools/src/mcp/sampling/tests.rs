use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use haft_core::event::NoEvents;
use haft_core::provider::CallContext;
use haft_core::run::context::RunContext;
use haft_core::sampling::{OriginatingCall, Sampler};
use haft_core::tool::CallId;

use super::super::in_flight::InFlightCalls;
use super::*;

fn settings(consent: SamplingConsent) -> SamplingLimits {
    SamplingLimits { consent, model: None, output_tokens_max: 100, requests_per_call_max: 2 }
}

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

fn read_value(value: &Value) -> Result<SamplingRequest, ServerRequestRefusal> {
    read("s", &raw(value), &settings(SamplingConsent::Given))
}

fn hello() -> Value {
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "hello" } }], "maxTokens": 20 })
}

#[test]
fn sampling_request_is_parsed_and_its_token_limit_clamped() {
    let sample = read_value(&hello()).unwrap();
    assert_eq!((sample.output_tokens_max, sample.conversation.messages().len()), (20, 1));
    let several = json!({
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "image", "data": "aGk=", "mimeType": "image/png" }] },
            { "role": "assistant", "content": { "type": "text", "text": "b" } },
        ],
        "systemPrompt": "be kind", "temperature": 0.5, "stopSequences": ["END"], "maxTokens": 1e30, "includeContext": "allServers",
    });
    let sample = read_value(&several).unwrap();
    assert_eq!((sample.output_tokens_max, sample.system.as_str()), (100, "be kind"));
    assert_eq!(sample.conversation.messages()[0].parts.len(), 2);
    assert_eq!((sample.temperature, sample.stop), (Some(0.5), vec!["END".to_owned()]));
}

#[test]
fn unsupported_sampling_request_is_refused_with_the_reason() {
    let check = |change: Value, expected: &str| {
        let mut request = hello();
        request.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let refusal = read_value(&request).unwrap_err();
        assert!(refusal.reason().contains(expected), "{refusal:?}");
    };
    let said = |content: Value| json!({ "messages": [{ "role": "user", "content": content }] });
    check(json!({ "tools": [{ "name": "x" }] }), "`tools` are not supported");
    check(json!({ "messages": [] }), "1 to 100 messages");
    check(json!({ "messages": "hi" }), "cannot parse the parameters");
    check(
        json!({ "messages": [{ "role": "system", "content": { "type": "text" } }] }),
        "cannot parse the parameters",
    );
    check(said(json!({ "type": "tool_use" })), "`tool_use` is not supported");
    check(said(json!({ "type": "image", "data": "?" })), "base64");
    check(json!({ "stopSequences": vec!["x"; 17] }), "16 sequences");
    check(said(json!({ "type": "text", "text": "x".repeat(10 << 20) })), "the limit is 1048576");
}

/// A sampler and elicitor that records every request and answers it.
struct RecordingElicitor(Mutex<Vec<String>>, ElicitationAnswer);

impl Sampler for RecordingElicitor {
    fn sample<'a>(
        &'a self,
        wanted: SamplingRequest,
        _: &'a OriginatingCall,
    ) -> BoxFuture<'a, Result<SamplingReply, String>> {
        self.0.lock().unwrap().push(wanted.server);
        let sampled = SamplingReply { model: "m".into(), text: "hi".into(), stop: StopReason::Length };
        Box::pin(async { Ok(sampled) })
    }
}

impl Elicitor for RecordingElicitor {
    fn elicit<'a>(&'a self, _: &'a str, request: Value) -> BoxFuture<'a, ElicitationAnswer> {
        self.0.lock().unwrap().push(request["message"].as_str().unwrap().to_owned());
        Box::pin(async { self.1.clone() })
    }
}

fn policy(consent: SamplingConsent) -> SamplingPolicy {
    SamplingPolicy { settings: settings(consent) }
}

/// Returns a call of a run with this sampler and this user.
fn caller(sampler: impl Sampler + 'static, elicitor: Option<Arc<dyn Elicitor>>) -> OriginatingCall {
    let run = RunContext { sampler: Some(Arc::new(sampler)), elicitor, ..RunContext::default() };
    OriginatingCall::of(&CallContext::new(CallId("1".into()), Arc::new(run), None, Arc::new(NoEvents)))
}

fn writer() -> RecordingElicitor {
    RecordingElicitor(Mutex::default(), ElicitationAnswer::Declined)
}

fn declined_for(outcome: Result<String, ServerRequestRefusal>) -> String {
    match outcome {
        Err(ServerRequestRefusal::Declined(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn sampling_is_limited_per_call() {
    let (calls, policy) = (InFlightCalls::default(), policy(SamplingConsent::Given));
    let hello = raw(&hello());
    let begun = calls.begin(caller(writer(), None));
    for _ in 0..2 {
        let written: Value =
            serde_json::from_str(&policy.answer("s", &hello, &begun.call).await.unwrap()).unwrap();
        assert_eq!(
            (&written["content"]["text"], &written["stopReason"]),
            (&json!("hi"), &json!("maxTokens"))
        );
    }
    let third = policy.answer("s", &hello, &begun.call).await;
    assert!(declined_for(third).contains("at most 2 sampling requests"));
}

#[tokio::test]
async fn sampling_requires_user_consent_unless_configured() {
    let (calls, policy) = (InFlightCalls::default(), policy(SamplingConsent::Ask));
    let hello = raw(&hello());
    let check = async |person: Option<Arc<dyn Elicitor>>| {
        let begun = calls.begin(caller(writer(), person));
        policy.answer("s", &hello, &begun.call).await
    };
    assert!(declined_for(check(None).await).contains("no user is available"));
    for no in [
        ElicitationAnswer::Declined,
        ElicitationAnswer::Cancelled,
        ElicitationAnswer::Accepted(json!({ "allow": false })),
    ] {
        let person = Arc::new(RecordingElicitor(Mutex::default(), no));
        assert!(declined_for(check(Some(person)).await).contains("rejected"));
    }
    let person =
        Arc::new(RecordingElicitor(Mutex::default(), ElicitationAnswer::Accepted(json!({ "allow": true }))));
    assert!(check(Some(Arc::clone(&person) as _)).await.is_ok());
    let asked = person.0.lock().unwrap().join("");
    assert!(asked.contains("up to 20 tokens") && asked.contains("hello"), "{asked}");
}

/// A sampler that never answers.
struct SilentElicitor;

impl Sampler for SilentElicitor {
    fn sample<'a>(
        &'a self,
        _: SamplingRequest,
        _: &'a OriginatingCall,
    ) -> BoxFuture<'a, Result<SamplingReply, String>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn sampling_is_cancelled_when_its_call_ends() {
    let calls = InFlightCalls::default();
    let policy = policy(SamplingConsent::Given);
    let begun = calls.begin(caller(SilentElicitor, None));
    let call = Arc::clone(&begun.call);
    let hello = raw(&hello());
    let mut writing = Box::pin(policy.answer("s", &hello, &call));
    assert!(writing.as_mut().now_or_never().is_none());
    drop(begun);
    assert!(declined_for(writing.await).contains("the tool call has ended"));
}
