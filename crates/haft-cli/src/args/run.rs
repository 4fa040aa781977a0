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
    /// The request, in one or several words, or - to read it from standard input; put @AGENT before it to run the agent
    /// of that name or file. haft adds other piped input to the request
    #[arg(value_name = "[@AGENT] REQUEST", required = true, num_args = 1..)]
    pub(crate) words: Vec<String>,

    /// The model as PROVIDER/MODEL; repeat the option to add fallback models, in order
    /// [default: the model in the agent file, else `models.default` of the configuration]
    #[arg(short, long, value_name = "PROVIDER/MODEL")]
    pub(crate) model: Vec<String>,

    /// Let the model `models.fast` choose between itself and `models.complex`; ignored if -m names a model
    #[arg(long)]
    pub(crate) route: bool,

    /// The system prompt; replaces the text of the agent file
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,

    /// The tools that the model sees: names, patterns, servers or @groups, separated by commas
    /// [default: all]
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<String>>,

    /// The only tools that the model may call, separated by commas; the model may see more tools
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    pub(crate) allowed_tools: Option<Vec<String>>,

    /// Override a key of the agent file, for example budget.usd=0.5; can be repeated
    #[arg(long = "override", value_name = "KEY=VALUE", value_parser = AgentOverride::parse)]
    pub(crate) overrides: Vec<AgentOverride>,

    /// An image for the request (PNG, JPEG, GIF or WebP); can be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,

    /// Do not send the instructions in the project's AGENTS.md and CLAUDE.md
    #[arg(long)]
    pub(crate) no_project_instructions: bool,

    /// Whether the model must call a tool first: auto, none, required, or a tool name [default: auto]
    #[arg(long, value_name = "CHOICE")]
    pub(crate) tool_choice: Option<String>,

    /// The maximum number of tokens in one reply, including reasoning [default: the limit of the model]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_output_tokens: Option<u32>,

    /// Start even if the budget is in dollars and the price of a model is not known
    #[arg(long)]
    pub(crate) allow_unpriced: bool,

    /// The maximum number of turns; in the last turn the model must answer [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,

    /// The time limit of the whole run, for example 90s or 20m; a plain number is seconds [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = crate::settings::duration)]
    pub(crate) timeout: Option<Duration>,

    /// How long to wait for the first byte of piped standard input, which haft adds to the request; a plain number is
    /// seconds, and `off` ignores standard input [default: 3s]
    #[arg(long, value_name = "DURATION", value_parser = crate::piped_input::wait_of, default_value = "3s", hide_default_value = true)]
    pub(crate) stdin_wait: Duration,

    #[command(flatten)]
    pub(crate) show: ShowArgs,

    /// A file with a JSON Schema; the answer is JSON that matches it
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,

    /// Record the run (model replies, tool results and times) in a new file, for `haft replay`
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
#[expect(clippy::struct_excessive_bools, reason = "each bool is a separate command-line flag")]
pub(crate) struct ShowArgs {
    /// The format of standard output
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output_format: OutputFormat,

    /// Print only the answer and errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Also print the policy decision for each call, and each retried model request
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// The format of log lines [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,

    /// Print a tree of all agents and calls on standard error
    #[arg(long)]
    pub(crate) tree: bool,

    /// Print all messages to and from MCP servers on standard error, shortened and without secrets
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
    /// The answer, the cost and the reason why the run ended, as one JSON object
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
