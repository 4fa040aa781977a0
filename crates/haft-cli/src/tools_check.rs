//! `haft tools check`: shows the parts of tool schemas that a provider does not support.

use std::fmt::Write;
use std::process::ExitCode;

use haft_models::schema::{DowngradedSchema, SchemaDialect, downgrade};
use serde_json::{Value, json};

use super::args::{GrammarName, ToolsCheckArgs};
use super::tools::listed;
use super::{settings, terminal};

pub(super) async fn run(args: &ToolsCheckArgs) -> ExitCode {
    let listed = match settings::configuration(&args.files) {
        Ok(configuration) => listed(&args.files, None, configuration).await,
        Err(refused) => Err(refused),
    };
    let tools = match listed {
        Ok(tools) => tools,
        Err(error) => return error.report(),
    };
    let grammar = grammar(args.provider);
    let downgraded: Vec<(String, DowngradedSchema)> = tools
        .into_iter()
        .map(|tool| (tool.name.as_str().to_owned(), downgrade(&tool.input_schema, grammar)))
        .collect();
    terminal::answer(&if args.json { as_json(&downgraded) } else { table(&downgraded, grammar) })
}

fn grammar(name: GrammarName) -> SchemaDialect {
    match name {
        GrammarName::Openai => SchemaDialect::Json,
        GrammarName::OpenaiStrict => SchemaDialect::OpenaiStrict,
        GrammarName::Anthropic => SchemaDialect::Anthropic,
        GrammarName::Gemini => SchemaDialect::Gemini,
        GrammarName::Ollama => SchemaDialect::Ollama,
    }
}

fn as_json(downgraded: &[(String, DowngradedSchema)]) -> String {
    let list = downgraded.iter().map(|(tool, downgraded)| {
        let losses = downgraded.losses.iter();
        let losses: Vec<Value> =
            losses.map(|loss| json!({ "at": loss.at, "keyword": loss.keyword, "why": loss.why })).collect();
        json!({ "tool": tool, "losses": losses, "schema": downgraded.schema })
    });
    format!("{:#}", Value::Array(list.collect()))
}

fn table(downgraded: &[(String, DowngradedSchema)], grammar: SchemaDialect) -> String {
    let mut text = String::new();
    for (tool, downgraded) in downgraded {
        match downgraded.losses.as_slice() {
            [] => {
                let _ = writeln!(text, "{tool}: fully supported");
            }
            losses => {
                let _ = writeln!(text, "{tool}:");
                for loss in losses {
                    let _ = writeln!(text, "  {loss}");
                }
            }
        }
    }
    let _ = write!(
        text,
        "\nhaft checks arguments against the complete schema, even if {} gets a reduced one.",
        grammar.name()
    );
    text
}
