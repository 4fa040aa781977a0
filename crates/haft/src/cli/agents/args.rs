//! What can be typed after `haft agents`.

use clap::{Args, Subcommand};

use super::super::args::FileArgs;

/// Look at agents: which there are and what is wrong with them; begin a new one
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct AgentsArgs {
    #[command(subcommand)]
    pub(in crate::cli) command: AgentsCommand,
}

const EXAMPLES: &str = "\
Examples:
  haft agents new reviewer
  haft agents list
  haft agents check
  haft agents check agents/reviewer.md";

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum AgentsCommand {
    List(ListArgs),
    Check(CheckArgs),
    New(NewArgs),
}

/// List the agents of haft's home and of the project here
#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    #[arg(long, help = "Print them as JSON")]
    pub(in crate::cli) json: bool,

    #[command(flatten)]
    pub(in crate::cli) files: FileArgs,
}

/// Say what is wrong with agents and with everybody they lead to
#[derive(Debug, Args)]
pub(in crate::cli) struct CheckArgs {
    /// Agents to look at, as names or files [default: all that `haft agents list` looks at]
    #[arg(value_name = "AGENT")]
    pub(in crate::cli) names: Vec<String>,

    #[arg(long, help = "Print what is wrong as JSON")]
    pub(in crate::cli) json: bool,

    #[command(flatten)]
    pub(in crate::cli) files: FileArgs,
}

/// Write the file of an agent to begin with
#[derive(Debug, Args)]
pub(in crate::cli) struct NewArgs {
    /// Its name; the file is `agents/NAME.md`
    pub(in crate::cli) name: String,

    /// Put it into haft's home, where every project finds it
    #[arg(long)]
    pub(in crate::cli) home: bool,
}
