//! `haft tools search`: finds tools by words.

use std::io;
use std::process::ExitCode;

use haft_core::name::Namespace;
use haft_core::tool::ToolDefinition;
use haft_engine::search::ToolSearchIndex;
use haft_runtime::lines::{InputLine, InputLineReader};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, BufReader};

use super::args::ToolsSearchArgs;
use super::cli_error::CliError;
use super::exit::ExitReason;
use super::mcp::import;
use super::table::{Table, left};
use super::tools::{first_sentence, listed};
use super::{cancel, settings, terminal};

/// The maximum length of a line of `--stdin`, in bytes.
const LINE_BYTES_MAX: usize = 256 << 10;
/// The maximum number of tools that one search returns.
const LIMIT_MAX: usize = 1_000;

pub(super) async fn run(args: &ToolsSearchArgs) -> ExitCode {
    let tools = tokio::select! {
        biased;
        exit = cancel::cancelled() => return exit.into(),
        tools = tools(args) => tools,
    };
    let tools = match tools {
        Ok(tools) => tools,
        Err(error) => return error.report(),
    };
    let search = ToolSearch { index: ToolSearchIndex::new(&tools), tools: &tools };
    if args.stdin {
        return tokio::select! {
            biased;
            exit = cancel::cancelled() => exit.into(),
            exit = search.answer_lines(args.limit) => exit,
        };
    }
    let query = args.query.join(" ");
    let found = search.found(&query, args.limit);
    if args.json {
        return terminal::answer(&format!("{:#}", search.as_json(&found)));
    }
    if found.is_empty() {
        let count = tools.len();
        let message = format!("no tool matches `{query}` ({count} tools searched)");
        let hint = "try other words, or list all with `haft tools`";
        return CliError::input(message).with_hint(hint).report();
    }
    terminal::answer(&table(&found))
}

/// Lists the tools to search: the tools of the servers in `--mcp-config` files, or all tools of the configuration.
async fn tools(args: &ToolsSearchArgs) -> Result<Vec<ToolDefinition>, CliError> {
    let mut configuration = settings::configuration(&args.files)?;
    if args.files.mcp_config.is_empty() {
        return listed(&args.files, None, configuration).await;
    }
    let mut names = Vec::new();
    for file in &args.files.mcp_config {
        names.extend(import::servers_of(file)?.into_iter().map(|(name, _)| name));
    }
    configuration.resolved.mcp_servers.retain(|name, _| names.contains(name));
    let tools = listed(&args.files, None, configuration).await?;
    // Leave out built-in and HTTP tools, which do not come from these files.
    Ok(tools.into_iter().filter(|tool| names.iter().any(|name| is_of_server(tool, name))).collect())
}

fn is_of_server(tool: &ToolDefinition, server: &str) -> bool {
    let namespace = Namespace::sanitize(server);
    tool.groups.iter().any(|group| group.as_str() == namespace.as_str())
}

struct ToolSearch<'a> {
    index: ToolSearchIndex,
    tools: &'a [ToolDefinition],
}

impl<'a> ToolSearch<'a> {
    fn found(&self, query: &str, limit: usize) -> Vec<&'a ToolDefinition> {
        let hits = self.index.search(query, limit.min(LIMIT_MAX));
        hits.into_iter().map(|hit| &self.tools[hit.tool]).collect()
    }

    fn as_json(&self, found: &[&ToolDefinition]) -> Value {
        let tool = |tool: &&ToolDefinition| json!({ "name": tool.name.as_str(), "description": tool.description, "input_schema": tool.input_schema });
        json!({ "searched": self.tools.len(), "tools": found.iter().map(tool).collect::<Vec<_>>() })
    }

    /// Answers each query line with one line, in order.
    async fn answer_lines(&self, limit: usize) -> ExitCode {
        let mut lines = InputLineReader::new(BufReader::new(tokio::io::stdin()), LINE_BYTES_MAX);
        let mut exit = ExitReason::Success;
        let mut output = tokio::io::stdout();
        loop {
            let line = match lines.next().await {
                Ok(Some(line)) => line,
                Ok(None) => return exit.into(),
                Err(error) => {
                    let message = format!("haft cannot read standard input: {error}");
                    return terminal::failed(ExitReason::Internal, &message);
                }
            };
            let Some(mut answer) = self.answer(&line, limit, &mut exit) else { continue };
            answer.push('\n');
            let written: io::Result<()> =
                async { output.write_all(answer.as_bytes()).await.and(output.flush().await) }.await;
            if let Err(error) = written {
                return terminal::written(Err(error));
            }
        }
    }

    /// Returns the answer to one line; `None` for an empty line. An invalid line gets an error, and the other lines are
    /// still answered.
    fn answer(&self, line: &InputLine, limit: usize, exit: &mut ExitReason) -> Option<String> {
        let text = match line {
            InputLine::Text(text) if text.trim_ascii().is_empty() => return None,
            InputLine::Text(text) => text,
            InputLine::TooLong { bytes } => {
                *exit = ExitReason::Input;
                return Some(bad_line(&format!(
                    "the input line has {bytes} bytes; the limit is {LINE_BYTES_MAX}"
                )));
            }
        };
        match serde_json::from_slice::<SearchLine>(text) {
            Ok(SearchLine { id, query, limit: own }) => {
                let found = self.found(&query, own.unwrap_or(limit));
                let names: Vec<&str> = found.iter().map(|tool| tool.name.as_str()).collect();
                let id = id.as_ref().map_or("null", |id| id.get());
                Some(format!("{{\"id\":{id},\"names\":{}}}", json!(names)))
            }
            Err(error) => {
                *exit = ExitReason::Input;
                Some(bad_line(&format!(
                    "the input line is not a query: {error}; expected {{\"id\":…,\"query\":\"…\",\"limit\":5}}"
                )))
            }
        }
    }
}

/// One query line of `--stdin`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchLine {
    /// The id, which may be any JSON value. It is returned unchanged.
    #[serde(default)]
    id: Option<Box<RawValue>>,
    query: String,
    limit: Option<usize>,
}

fn bad_line(message: &str) -> String {
    json!({ "id": null, "error": message }).to_string()
}

fn table(found: &[&ToolDefinition]) -> String {
    let mut table = Table::new(["NAME", "DESCRIPTION"].map(left));
    for tool in found {
        table.row([tool.name.as_str(), &first_sentence(tool)]);
    }
    table.text()
}
