use std::sync::Arc;

use haft_core::arguments::RawArguments;
use haft_core::compaction::CompactionRules;
use haft_core::conversation::{Conversation, Message, MessagePart, PartBody, ToolReply};
use haft_core::model_error::ModelErrorKind;
use haft_core::model_provider::ModelContext;
use haft_core::model_request::ModelRequest;
use haft_core::provider::Principal;
use haft_core::tool::{CallId, ToolCall};
use haft_engine::compact::{CompactError, CompactedConversation, compact};

use crate::drive::ScriptedModel;
use crate::fake::SharedLog;

/// Returns a request with this many turns, each a call with an output of about 250 tokens.
fn request(turns: usize) -> ModelRequest {
    let mut conversation = Conversation::default();
    conversation.push(Message::user("Read all files.")).unwrap();
    for turn in 0..turns {
        let call = ToolCall {
            id: CallId(format!("c{turn}")),
            name: "read".into(),
            arguments: RawArguments::from_text(format!("{{\"file\": {turn}}}")),
        };
        let reply = ToolReply::text(&call, format!("file {turn}: {}", "some text ".repeat(100)));
        conversation.push(Message::assistant(vec![MessagePart::new(PartBody::Call(call))])).unwrap();
        conversation.push(Message::tool(vec![reply])).unwrap();
    }
    ModelRequest::new("m", Arc::new(conversation))
}

async fn compacted(
    turns: usize,
    replies: Vec<Result<Vec<PartBody>, ModelErrorKind>>,
) -> Result<CompactedConversation, CompactError> {
    let cx = ModelContext::new("1", Principal::local(), Arc::new(SharedLog::default()));
    let rules = CompactionRules { keep_turns: 2, ..CompactionRules::default() };
    compact(&request(turns), &rules, 100_000, (&ScriptedModel::new(replies), &cx)).await
}

fn text_reply(text: &str) -> Vec<PartBody> {
    vec![PartBody::Text { text: text.into(), annotations: Vec::new() }]
}

#[tokio::test]
async fn summary_replaces_old_turns_but_not_recent_ones() {
    let found = compacted(10, vec![Ok(text_reply("Eight files were read."))]).await.unwrap();
    assert_eq!((found.summary.as_str(), found.messages), ("Eight files were read.", 16));
    assert!(found.after_tokens * 2 < found.before_tokens, "{} {}", found.before_tokens, found.after_tokens);
    assert_eq!(found.usage.unwrap().input, 100);
    let before = request(10);
    let (before, after) = (before.conversation.messages(), found.conversation.messages());
    assert_eq!(after[0], before[0]);
    assert!(format!("{:?}", after[1]).contains("Eight files were read."), "{:?}", after[1]);
    assert_eq!(after[2..], before[17..]);
}

#[tokio::test]
async fn unusable_summary_is_requested_a_second_time() {
    let found = compacted(10, vec![Ok(text_reply("")), Ok(text_reply("Files were read."))]).await.unwrap();
    assert_eq!(found.summary, "Files were read.");
    let failed = compacted(10, vec![Ok(text_reply("")), Err(ModelErrorKind::Overloaded)]).await;
    assert!(matches!(failed, Err(CompactError::NoSummary(_))), "{failed:?}");
}

#[tokio::test]
async fn conversation_without_old_turns_is_not_compacted() {
    for turns in [0, 1] {
        let found = compacted(turns, Vec::new()).await;
        assert!(matches!(found, Err(CompactError::NothingToCompact)), "{turns}: {found:?}");
    }
}
