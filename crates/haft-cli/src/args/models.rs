//! The arguments of the commands about models.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{FileArgs, LogFormat};

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// Show which parts of each tool's schema a provider does not support, and why
    #[command(
        after_help = "Examples:\n  haft tools check --provider gemini\n  haft tools check --provider openai-strict --json"
    )]
    Check(ToolsCheckArgs),

    /// Search tools by words; the best match comes first
    #[command(
        after_help = "Examples:\n  haft tools search create an issue\n  haft tools search --json 'current time' | jq '.tools[].name'\n  echo '{\"id\":1,\"query\":\"read a file\"}' | haft tools search --stdin\n\nWith --stdin each line {\"id\":…,\"query\":…,\"limit\":…} gets one line {\"id\":…,\"names\":[…]}, in order."
    )]
    Search(ToolsSearchArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ToolsSearchArgs {
    /// The words to search for, or the name of a tool
    #[arg(required_unless_present = "stdin", value_name = "QUERY")]
    pub(crate) query: Vec<String>,

    /// Print the definitions as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Read queries as JSON lines from standard input, and print the matching tool names for each
    #[arg(long, conflicts_with = "query")]
    pub(crate) stdin: bool,

    /// The maximum number of tools to print
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) limit: usize,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ToolsCheckArgs {
    /// The provider whose schema dialect haft checks the tools against
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) provider: GrammarName,

    /// Print the unsupported schema parts and the converted schemas as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum GrammarName {
    Openai,
    OpenaiStrict,
    Anthropic,
    Gemini,
    Ollama,
}

/// Ask a model one question, without tools
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  haft ask -m anthropic/claude-sonnet-4-5 'What is a haft?'\n  git diff | haft ask -m ollama/llama3 'Review this change.'\n  haft ask -m openai/gpt-4o --image photo.jpg 'What is this?'\n  haft ask -m openai/gpt-4o --output-schema place.json 'Where is the Louvre?'\n  haft ask -m openai/gpt-4o -m anthropic/claude-sonnet-4-5 --json 'Hello'\n  haft ask -m ollama/llama3 --record hello.jsonl 'Hello'\n  haft ask --replay hello.jsonl 'Hello'"
)]
pub(crate) struct AskArgs {
    /// The question, or - to read it from standard input
    pub(crate) question: String,

    /// The model as PROVIDER/MODEL; repeat the option to add fallback models, in order
    /// [default: `models.default` of the configuration]
    #[arg(short, long, value_name = "PROVIDER/MODEL")]
    pub(crate) model: Vec<String>,

    /// The system prompt
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,

    /// An image to send with the question
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,

    /// The maximum number of tokens in the answer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_output_tokens: Option<u32>,

    /// A file with a JSON Schema for an object; the answer is JSON that matches the schema
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,

    /// Record the question and the answer in a new file, for --replay
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub(crate) record: Option<PathBuf>,

    /// Answer from a file that --record wrote; no model is called, and no API key is needed
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,

    /// How long to wait for the first byte of piped standard input, which haft adds to the question; a plain number is
    /// seconds, and `off` ignores standard input [default: 3s]
    #[arg(long, value_name = "DURATION", value_parser = crate::piped_input::wait_of, default_value = "3s", hide_default_value = true)]
    pub(crate) stdin_wait: Duration,

    /// Print the complete answer, its token usage and its cost as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Log each request to standard error; set `HAFT_LOG=info`, `warn` or `error` to log always
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// The format of log lines [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// List the model providers, or the models of one provider
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  haft models\n  haft models ollama\n  haft models openrouter --json | jq '.[].id'"
)]
pub(crate) struct ModelsArgs {
    /// The provider whose models are listed
    pub(crate) provider: Option<String>,

    /// Check that every provider with an API key answers, not only servers on this machine; the check is free
    #[arg(long, conflicts_with = "provider")]
    pub(crate) check: bool,

    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Tools for developers who build on haft
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    #[command(subcommand)]
    pub(crate) command: DevCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DevCommand {
    /// Serve a scripted model on the loopback interface, in five wire formats
    #[command(after_help = "Example:\n  haft dev model-server --script script.json --port 8901")]
    ModelServer(ModelServerArgs),
    /// Print the JSON Schema of the events of runs
    #[command(after_help = "Example:\n  haft dev events --schema")]
    Events {
        /// Print the JSON Schema
        #[arg(long, required = true)]
        schema: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ModelServerArgs {
    /// The file with the script, in JSON with comments
    #[arg(long, value_name = "FILE")]
    pub(crate) script: PathBuf,

    /// The port of the server [default: any free port]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,
}
