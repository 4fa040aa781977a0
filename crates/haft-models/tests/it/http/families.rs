use std::sync::Arc;

use haft_core::conversation::ModelApiFormat;
use haft_core::model_request::{ModelRequest, ModelTool, ReasoningEffort, SamplingParameters, ToolChoice};
use haft_model_server::ScriptStep;
use haft_models::model_data::families;
use serde_json::Value;

use super::client::{ClientFixture, asking, whole};
use crate::fixture::{tests_folder, tools};

const EFFORTS: [Option<ReasoningEffort>; 7] = [
    None,
    Some(ReasoningEffort::Off),
    Some(ReasoningEffort::Minimal),
    Some(ReasoningEffort::Low),
    Some(ReasoningEffort::Medium),
    Some(ReasoningEffort::High),
    Some(ReasoningEffort::Highest),
];

fn samplings() -> [SamplingParameters; 3] {
    let none = SamplingParameters::default();
    let temperature = SamplingParameters { temperature: Some(0.5), ..none.clone() };
    let both = SamplingParameters { top_p: Some(0.9), ..temperature.clone() };
    let all = SamplingParameters {
        top_k: Some(40),
        presence_penalty: Some(0.1),
        frequency_penalty: Some(0.1),
        stop: vec!["END".to_owned()],
        ..both.clone()
    };
    [none, both, all]
}

/// The scripted server rejects the same fields as the real models, according to its own tables. Every family must
/// accept every combination of settings in every format, and no field may be dropped without a note.
#[tokio::test]
async fn every_model_family_accepts_every_request_in_every_format() {
    let mut cells = 0;
    for family in families() {
        for format in ModelApiFormat::ALL
            .into_iter()
            .filter(|format| family.formats.contains(&format.name().to_owned()))
        {
            let mut requests = Vec::new();
            for effort in EFFORTS {
                for sampling in samplings() {
                    for output_tokens_max in [Some(1000), Some(200_000)] {
                        let plain = ModelRequest {
                            model: family.example.clone(),
                            reasoning: effort,
                            sampling: sampling.clone(),
                            output_tokens_max,
                            ..asking("hi")
                        };
                        let (tools, tool_choice) = match output_tokens_max {
                            Some(1000) if sampling.top_k.is_some() => (tools(), ToolChoice::Required),
                            Some(1000) => (tools(), ToolChoice::Auto),
                            _ => ([].into(), ToolChoice::Auto),
                        };
                        requests.push(ModelRequest { tools, tool_choice, ..plain });
                    }
                }
            }
            let asker = ClientFixture::new(format, [ScriptStep::text("yes")]);
            let provider = asker.provider();
            for request in requests {
                cells += 1;
                let (effort, sampling) = (request.reasoning, request.sampling.clone());
                let reply = whole(&provider, request, &asker.context()).await;
                let reply = reply.unwrap_or_else(|error| {
                    panic!("{} {format:?} {effort:?} {sampling:?}: {error}", family.example)
                });
                let sent = asker.server.requests().last().map(|sent| sent.raw.clone()).unwrap_or_default();
                let noted = reply.notes.iter().any(|note| note.to_string().contains("temperature"));
                let said = sent.contains("\"temperature\"");
                assert_eq!(said || noted, sampling.temperature.is_some(), "{} {format:?}", family.example);
            }
        }
    }
    assert!(cells > 2000, "{cells}");
}

/// The server checks the schemas of all tools before it answers, as real providers do.
#[tokio::test]
async fn tool_with_an_invalid_schema_does_not_break_a_request() {
    let folder = tests_folder().join("schemas");
    let schemas: Vec<Value> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| serde_json::from_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap()).unwrap())
        .collect();
    let named = |(number, schema): (usize, &Value)| ModelTool {
        name: format!("tool_{number}"),
        description: String::new(),
        input_schema: Arc::new(schema.clone()),
        strict: false,
    };
    let tools: Arc<[ModelTool]> = schemas.iter().enumerate().map(named).collect();
    for format in ModelApiFormat::ALL {
        let asker = ClientFixture::new(format, [ScriptStep::text("yes")]);
        let reply = asker.ask(ModelRequest { tools: Arc::clone(&tools), ..asking("hi") }).await;
        assert!(reply.is_ok(), "{format:?}: {reply:?}");
    }
}
