//! Specs, journals and stores that are damaged, missing or of another version.

use haft_core::position::SessionId;
use haft_model_server::ScriptStep;
use haft_runtime::runtime::{ResumeFailure, StartError};
use haft_runtime::spec::SpecError;
use haft_runtime::{RunSecrets, RunSpec};
use serde_json::json;

use crate::fixture::{RuntimeFixture, answer, finished, note};

#[tokio::test]
async fn unknown_run_cannot_be_resumed_or_attached() {
    let fixture = RuntimeFixture::new([ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let error = runtime.resume(SessionId(7), None, RunSecrets::none()).await.unwrap_err();
    assert!(matches!(error, ResumeFailure::Session(_)), "{error}");
    assert!(runtime.attach(SessionId(7)).is_err());
}

#[tokio::test]
async fn resume_rejects_spec_of_other_version_or_without_agents() {
    let fixture = RuntimeFixture::new([ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    finished(&run).await;
    run.closed().await;
    let path = fixture.home().data().join(format!("sessions/{}.jsonl", run.id()));
    let text = std::fs::read_to_string(&path).unwrap();
    let other = text.replacen("\"version\":1,\"workspace\"", "\"version\":9,\"workspace\"", 1);
    assert_ne!(other, text);
    std::fs::write(&path, &other).unwrap();
    let more = || Some("more".to_owned());
    let error = runtime.resume(run.id(), more(), RunSecrets::none()).await.unwrap_err();
    assert!(matches!(error, ResumeFailure::Spec(SpecError::Version { found: 9 })), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
    std::fs::write(&path, &text).unwrap();
    std::fs::remove_dir_all(fixture.home().data().join("blobs")).unwrap();
    let error = runtime.resume(run.id(), more(), RunSecrets::none()).await.unwrap_err();
    assert!(matches!(error, ResumeFailure::Spec(SpecError::Sources { .. })), "{error}");
}

#[tokio::test]
async fn resume_ignores_an_incomplete_last_journal_line() {
    let fixture = RuntimeFixture::new([note("one"), ScriptStep::text("done"), ScriptStep::text("more done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    finished(&run).await;
    run.closed().await;
    let path = fixture.home().data().join(format!("sessions/{}.jsonl", run.id()));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"type\":\"told\",\"at_ms\":17");
    std::fs::write(&path, &bytes).unwrap();
    let run = runtime.resume(run.id(), Some("more".into()), RunSecrets::none()).await.unwrap();
    assert_eq!(answer(&finished(&run).await), "more done");
    assert_eq!(fixture.calls.count(), 1, "no call was repeated");
}

#[tokio::test]
async fn json_agent_rejects_a_plain_text_request() {
    let fixture = RuntimeFixture::new([ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let agent = "---\nmodels: openai/m\ninput: {format: json}\n---\n";
    let error = runtime.start(fixture.spec_of(agent, "not json"), RunSecrets::none()).await.unwrap_err();
    assert!(matches!(error, StartError::Input { .. }), "{error}");
    assert!(!error.to_string().contains("hint:"), "hints are for the interface to add");
}

#[tokio::test]
async fn workspace_missing_or_containing_home_is_rejected() {
    let fixture = RuntimeFixture::new([ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    for directory in [fixture.directory.path().join("nowhere"), fixture.directory.path().to_owned()] {
        let mut spec = fixture.spec("go");
        spec.workspace.directory = directory;
        let error = runtime.start(spec, RunSecrets::none()).await.unwrap_err();
        assert!(matches!(error, StartError::Policy(_)), "{error}");
    }
}

/// The journal's directory becomes read-only in the middle of a run: calls that change something are not made.
#[tokio::test]
async fn failing_journal_ends_the_run_before_the_next_call() {
    let config = json!({"sessions": {"bytesMax": 6000}});
    let long = "x".repeat(4_000);
    let fixture = RuntimeFixture::new([note(&long), note("two"), ScriptStep::text("done")]);
    let runtime = fixture.runtime(&config).await;
    let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
    let outcome = finished(&run).await;
    assert!(fixture.calls.count() <= 1, "{:?}", outcome.finish);
    assert!(outcome.finish.detail.contains("sessions.bytesMax"), "{:?}", outcome.finish);
}

#[tokio::test]
async fn unknown_model_provider_fails_before_any_request() {
    let fixture = RuntimeFixture::new([ScriptStep::text("done")]);
    let runtime = fixture.runtime(&json!({})).await;
    let mut spec: RunSpec = fixture.spec("go");
    spec.changes.models = vec!["nobody/m".into()];
    let error = runtime.start(spec, RunSecrets::none()).await.unwrap_err();
    assert!(matches!(error, StartError::Models(_)), "{error}");
    assert!(fixture.model.requests().is_empty());
}
