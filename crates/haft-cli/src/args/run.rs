//! The arguments of `haft run` and `haft demo`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{LogFormat, PolicyArgs};
use haft_config::agents::AgentOverride;

/// Let a model work on a request with tools
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The request, in one or several words, or - to read it from standard input; put @AGENT before it to run an agent's
    /// file. Other input that is piped in joins the request
    #[arg(value_name = "[@AGENT] REQUEST", required = true, num_args = 1..)]
    pub(crate) words: Vec<String>,

    /// The model as PROVIDER/MODEL; if given more than once, each is a fallback for those before it
    /// [default: the agent's, else `models.default` of the configuration]
    #[arg(short, long, value_name = "PROVIDER/MODEL")]
    pub(crate) model: Vec<String>,

    /// Let `models.fast` choose between itself and `models.complex`; ignored if a model is named
    #[arg(long)]
    pub(crate) route: bool,

    /// The system prompt, instead of the agent's text
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,

    /// The tools the model is shown, as names, patterns, servers or @groups, with commas between them
    /// [default: all]
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<String>>,

    /// The only tools that the model may call, comma-separated; it may see more
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    pub(crate) allowed_tools: Option<Vec<String>>,

    /// Override a key of the agent's file, for example budget.usd=0.5; may be given more than once
    #[arg(long = "override", value_name = "KEY=VALUE", value_parser = AgentOverride::parse)]
    pub(crate) overrides: Vec<AgentOverride>,

    /// An image that belongs to the request (PNG, JPEG, GIF or WebP); may be given more than once
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,

    /// Leave out the instructions in the project's AGENTS.md and CLAUDE.md
    #[arg(long)]
    pub(crate) no_project_instructions: bool,

    /// What the model may or must call first: auto, none, required, or the name of a tool [default: auto]
    #[arg(long, value_name = "CHOICE")]
    pub(crate) tool_choice: Option<String>,

    /// The most tokens of one reply, with thinking [default: by the model]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_output_tokens: Option<u32>,

    /// Start although a model without a known price works within a budget in dollars
    #[arg(long)]
    pub(crate) allow_unpriced: bool,

    /// The maximum number of turns; the last one is for the answer [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,

    /// The time limit of the whole run, for example 90s or 20m; a plain number is seconds [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = crate::settings::duration)]
    pub(crate) timeout: Option<Duration>,

    /// How long to wait for the first byte of piped standard input, which joins the request; a plain number is seconds,
    /// and `off` reads nothing [default: 3s]
    #[arg(long, value_name = "DURATION", value_parser = crate::piped_input::wait_of, default_value = "3s", hide_default_value = true)]
    pub(crate) stdin_wait: Duration,

    #[command(flatten)]
    pub(crate) show: ShowArgs,

    /// A file with a JSON Schema; the answer is JSON that matches it
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,

    /// Record models, tools and clock in a new file, for `haft replay`
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

const RUN_EXAMPLES: &str = "\
Examples:
  haft run -m anthropic/claude-sonnet-4-5 'Why is the build red?'
  git diff | haft run -m ollama/llama3 Review this change
  haft run -m ollama/llama3 --tools read,bash - < request.txt
  haft run @reviewer.md 'Review the last commit.'
  haft run -m openai/gpt-4o --output-schema answer.json --output-format json 'How many tests are there?'";

/// The output options of a run
#[derive(Debug, Clone, Copy, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own on the command line")]
pub(crate) struct ShowArgs {
    /// The format of standard output
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output_format: OutputFormat,

    /// Print only the answer and errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Print more: each decision about a call, and each model request that was repeated
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// The format of log lines [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,

    /// Print a tree of all agents and calls to standard error
    #[arg(long)]
    pub(crate) tree: bool,

    /// Print every message to and from MCP servers to standard error, shortened and without secrets
    #[arg(long)]
    pub(crate) trace_mcp: bool,

    /// Disable colours; the variable `NO_COLOR` does the same
    #[arg(long)]
    pub(crate) no_color: bool,
}

/// The format of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// The answer
    Text,
    /// The answer, what it cost and how the run ended, as one JSON object
    Json,
    /// All events, one JSON object per line
    StreamJson,
}

/// Show a run with real tools and a scripted model; needs no API key and no network
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft demo")]
pub(crate) struct DemoArgs {
    /// Disable colours
    #[arg(long)]
    pub(crate) no_color: bool,
}
