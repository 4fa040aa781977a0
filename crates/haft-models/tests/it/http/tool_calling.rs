use std::collections::HashMap;
use std::sync::Arc;

use haft_core::conversation::{Message, ModelApiFormat, ToolReply};
use haft_core::model_reply::StopReason;
use haft_core::model_request::ModelRequest;
use haft_model_server::{ErrorResponse, RequestExpectation, ScriptStep};
use haft_models::tool_calling::{ToolCalling, ToolCallingProvider};

use super::client::{ClientFixture, asking, whole};
use crate::fixture::tools;

const TAGGED: &str = "I look.\n<tool_call>{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}</tool_call>";

fn told_in_the_prompt() -> RequestExpectation {
    RequestExpectation {
        tools: Some(Vec::new()),
        system: Some("Reads a file.".into()),
        ..RequestExpectation::default()
    }
}

fn with_tools(text: &str) -> ModelRequest {
    ModelRequest { tools: tools(), ..asking(text) }
}

#[tokio::test]
async fn tools_that_a_model_refuses_move_into_the_prompt() {
    for format in ModelApiFormat::ALL {
        let refused = ErrorResponse::new(400, "registry.example/m:1b does not support tools");
        let asker = ClientFixture::new(
            format,
            [
                ScriptStep::fail(refused),
                ScriptStep::text(TAGGED).expecting(told_in_the_prompt()),
                ScriptStep::text("It says hello.")
                    .expecting(RequestExpectation { user: Some("hello".into()), ..told_in_the_prompt() }),
            ],
        );
        let (provider, cx) =
            (ToolCallingProvider::new(Box::new(asker.provider()), HashMap::new()), asker.context());
        let first = with_tools("What does a say?");
        let reply = whole(&provider, first.clone(), &cx).await.unwrap();
        assert_eq!(reply.stop, StopReason::ToolCalls, "{format:?}");
        let call = reply.calls().next().unwrap().clone();
        assert_eq!((call.name.as_str(), call.arguments.as_text()), ("read", "{\"path\": \"a\"}"));
        let mut conversation = (*first.conversation).clone();
        conversation.push(reply.into_message()).unwrap();
        conversation.push(Message::tool(vec![ToolReply::text(&call, "hello")])).unwrap();
        let second = ModelRequest { conversation: Arc::new(conversation), ..first };
        assert_eq!(whole(&provider, second, &cx).await.unwrap().text(), "It says hello.", "{format:?}");
        assert_eq!(asker.events.attempts(), ["m 1 tools_unsupported", "m 1 ok", "m 1 ok"], "{format:?}");
    }
}

#[tokio::test]
async fn configured_tool_calling_mode_is_used_without_probing() {
    let said = |calling| HashMap::from([("m".to_owned(), calling)]);
    let asker = ClientFixture::new(
        ModelApiFormat::Ollama,
        [ScriptStep::text(TAGGED).expecting(told_in_the_prompt())],
    );
    let provider = ToolCallingProvider::new(Box::new(asker.provider()), said(ToolCalling::Prompted));
    let reply = whole(&provider, with_tools("x"), &asker.context()).await.unwrap();
    assert_eq!(reply.calls().count(), 1);

    let nothing = RequestExpectation {
        tools: Some(Vec::new()),
        body_lacks: vec!["Reads a file.".into()],
        ..RequestExpectation::default()
    };
    let asker = ClientFixture::new(ModelApiFormat::Ollama, [ScriptStep::text("no tools").expecting(nothing)]);
    let provider = ToolCallingProvider::new(Box::new(asker.provider()), said(ToolCalling::None));
    assert_eq!(whole(&provider, with_tools("x"), &asker.context()).await.unwrap().text(), "no tools");

    // The request offers no tools, so tagged text is not a call.
    let asker = ClientFixture::new(ModelApiFormat::Ollama, [ScriptStep::text(TAGGED)]);
    let provider = ToolCallingProvider::new(Box::new(asker.provider()), said(ToolCalling::None));
    let reply = whole(&provider, with_tools("x"), &asker.context()).await.unwrap();
    assert_eq!((reply.calls().count(), reply.text().as_str()), (0, TAGGED));

    let refused = ErrorResponse::new(400, "m does not support tools");
    let asker = ClientFixture::new(ModelApiFormat::Ollama, [ScriptStep::fail(refused)]);
    let provider = ToolCallingProvider::new(Box::new(asker.provider()), said(ToolCalling::Native));
    let error = whole(&provider, with_tools("x"), &asker.context()).await.unwrap_err();
    assert_eq!(error.kind.name(), "tools_unsupported");
}
