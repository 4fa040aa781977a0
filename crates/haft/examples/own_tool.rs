//! A custom tool in a few lines.
#![expect(clippy::print_stdout, reason = "the example prints its result")]

use haft::prelude::*;
use serde_json::json;

// The fifteen lines that the documents show.
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

// To here.

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = Registry::new(Namespace::new("app")?);
    registry.register(CountWords)?;
    let orchestrator = Orchestrator::new(
        Catalog::new(vec![Arc::new(registry)], NamingScheme::Double),
        OrchestratorConfig::default(),
    );
    let call = ToolCall::new("1", "count_words", &json!({"text": "one two three"}));
    let result = orchestrator.execute(call).await;
    println!("{}", result.text());
    Ok(())
}
