//! The arguments of the commands about sessions.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{OutputFormat, ShowArgs};

/// Continue a run that ended early, or add a request to its conversation
#[derive(Debug, Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub(crate) struct ResumeArgs {
    /// The session id, or a prefix of it; `last` is the newest session
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) id: String,

    /// Another request, or - to read it from standard input
    pub(crate) request: Option<String>,

    /// Another model, as PROVIDER/MODEL [default: the model of the session]
    #[arg(short, long, value_name = "PROVIDER/MODEL")]
    pub(crate) model: Vec<String>,

    /// Continue even if another process has the run open; that process can then no longer continue it
    #[arg(long)]
    pub(crate) take_over: bool,

    /// How long to wait for the first byte of piped standard input, which haft adds to the request; a plain number is
    /// seconds, and `off` ignores standard input [default: 3s]
    #[arg(long, value_name = "DURATION", value_parser = crate::piped_input::wait_of, default_value = "3s", hide_default_value = true)]
    pub(crate) stdin_wait: Duration,

    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

const RESUME_EXAMPLES: &str = "\
Examples:
  haft resume
  haft resume 3f2a
  haft resume last 'And now write the tests.'
  haft resume last --take-over";

/// List, show and remove sessions, the stored runs
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  haft sessions list\n  haft sessions show last\n  haft sessions show run.jsonl\n  haft sessions rm 3f2a"
)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(crate) command: SessionsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List the sessions, the newest first
    List {
        /// The maximum number of sessions to list
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
        limit: u16,

        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the requests and calls of a session, with times, tokens and cost
    Show {
        /// The session id, or a prefix of it; `last` is the newest session. A name with a dot or a slash is a
        /// recording, as `haft run --record` writes it
        #[arg(value_name = "ID|FILE", default_value = "last")]
        id: String,

        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove sessions permanently
    Rm {
        /// The session ids, or prefixes of them
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,

        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Replay a recorded run, without calling models or tools
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  haft run --record run.jsonl -m openai/gpt-4o 'What is in here?'\n  haft replay run.jsonl\n  haft replay --live-tools run.jsonl"
)]
pub(crate) struct ReplayArgs {
    /// A file that `haft run --record` wrote
    pub(crate) file: PathBuf,

    /// Call the tools again; only the replies of the model come from the recording
    #[arg(long)]
    pub(crate) live_tools: bool,

    /// The format of standard output
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output_format: OutputFormat,

    /// Print only the answer and errors
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Disable colours; the variable `NO_COLOR` does the same
    #[arg(long)]
    pub(crate) no_color: bool,
}
