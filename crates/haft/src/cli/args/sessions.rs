//! What can be typed about sessions.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{OutputFormat, ShowArgs};

/// Go on with a run that ended early, or ask more in its conversation
#[derive(Debug, Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub(in crate::cli) struct ResumeArgs {
    /// The session, or the beginning of its id; `last` is the newest
    #[arg(value_name = "ID", default_value = "last")]
    pub(in crate::cli) id: String,

    /// What else it shall do, or - to read it from standard input
    pub(in crate::cli) request: Option<String>,

    /// Another model, as PROVIDER/MODEL [default: as the session began]
    #[arg(short, long, value_name = "PROVIDER/MODEL")]
    pub(in crate::cli) model: Vec<String>,

    #[command(flatten)]
    pub(in crate::cli) show: ShowArgs,
}

const RESUME_EXAMPLES: &str = "\
Examples:
  haft resume
  haft resume 3f2a
  haft resume last 'And now write the tests.'";

/// See what runs did, and remove them
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  haft sessions list\n  haft sessions show last\n  haft sessions rm 3f2a")]
pub(in crate::cli) struct SessionsArgs {
    #[command(subcommand)]
    pub(in crate::cli) command: SessionsCommand,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum SessionsCommand {
    /// The sessions, the newest first
    List {
        /// How many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
        limit: u16,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// What was asked and done in a session, with times, tokens and cost
    Show {
        /// The session, or the beginning of its id; `last` is the newest
        #[arg(value_name = "ID", default_value = "last")]
        id: String,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove sessions for good
    Rm {
        /// The sessions, or the beginnings of their ids
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// See a recorded run again, without a model and without making its calls
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  haft run --record run.jsonl -m openai/gpt-4o 'What is in here?'\n  haft replay run.jsonl\n  haft replay --live-tools run.jsonl"
)]
pub(in crate::cli) struct ReplayArgs {
    /// A file that `haft run --record` wrote
    pub(in crate::cli) file: PathBuf,

    /// Make the calls again, as the run was begun; only the model is the recorded one
    #[arg(long)]
    pub(in crate::cli) live_tools: bool,

    /// What is written to standard output
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(in crate::cli) output_format: OutputFormat,

    /// Write nothing but the answer and errors
    #[arg(short, long)]
    pub(in crate::cli) quiet: bool,

    /// Write without colours; the variable `NO_COLOR` does the same
    #[arg(long)]
    pub(in crate::cli) no_color: bool,
}
