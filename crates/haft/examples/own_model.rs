//! A custom model provider. Any type that streams events can be one.
#![expect(clippy::print_stdout, reason = "the example prints its result")]

use futures_util::stream;
use haft::core::conversation::PartBody;
use haft::core::model_event::{ModelEvent, PartDelta, PartStart};
use haft::core::model_provider::{ModelContext, ModelProvider, ReplyStream};
use haft::core::model_reply::StopReason;
use haft::core::model_request::ModelRequest;
use haft::prelude::*;

/// A model that repeats the last message of the conversation.
struct Parrot;

impl ModelProvider for Parrot {
    fn name(&self) -> &'static str {
        "parrot"
    }

    fn ask(&self, request: ModelRequest, _: &ModelContext) -> ReplyStream<'_> {
        let parts = request.conversation.messages().last().map(|message| message.parts.as_slice());
        let heard = parts.into_iter().flatten().find_map(|part| match &part.body {
            PartBody::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        let heard = heard.unwrap_or_default();
        let events = [
            ModelEvent::Started { id: None, model: None },
            ModelEvent::PartStarted { index: 0, part: PartStart::Text, mark: None },
            ModelEvent::PartDelta { index: 0, delta: PartDelta::Text(format!("{heard}!")) },
            ModelEvent::PartFinished { index: 0, mark: None },
            ModelEvent::Finished { stop: StopReason::EndOfTurn },
        ];
        Box::pin(stream::iter(events.map(Ok)))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `init` must come before any thread starts, because the sandbox starts this binary again.
    haft::init();
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let answer = haft::Agent::new("parrot/one").models(Arc::new(Parrot)).run("Hello").await?;
    println!("{answer}");
    Ok(())
}
