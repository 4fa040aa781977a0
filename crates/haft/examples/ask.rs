//! Sends one request to an agent that has a custom tool:
//! `cargo run -p haft --example ask -- openai/gpt-4o 'How many words ...'`.
#![expect(clippy::print_stdout, reason = "the example prints its result")]

use haft::prelude::*;
use serde_json::json;

struct CountWords;

impl Tool for CountWords {
    fn definition(&self) -> ToolDefinition {
        let text =
            json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        ToolDefinition::new("count_words", "Counts the words of a text.", text)
    }

    async fn call(&self, arguments: &ValidArguments, _: &CallContext) -> Result<ToolOutput, ToolError> {
        let text = arguments.value()["text"].as_str().unwrap_or_default();
        Ok(ToolOutput::text(text.split_whitespace().count().to_string()))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `init` must come before any thread starts, because the sandbox starts this binary again.
    haft::init();
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (model, request) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut agent = haft::Agent::new(model).tool(CountWords);
    if let Some(command) = words.next() {
        agent = agent.mcp("time", &command);
    }
    println!("{}", agent.run(&request).await?);
    Ok(())
}
