//! The arguments of `haft agents`.

use clap::{Args, Subcommand};

use super::super::args::FileArgs;

/// Look at agents: which there are and what is wrong with them; begin a new one
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AgentsArgs {
    #[command(subcommand)]
    pub(crate) command: AgentsCommand,
}

const EXAMPLES: &str = "\
Examples:
  haft agents new reviewer
  haft agents list
  haft agents check
  haft agents check agents/reviewer.md";

#[derive(Debug, Subcommand)]
pub(crate) enum AgentsCommand {
    List(AgentsListArgs),
    Check(AgentsCheckArgs),
    New(AgentsNewArgs),
}

/// List the agents of haft's home and of the project here
#[derive(Debug, Args)]
pub(crate) struct AgentsListArgs {
    #[arg(long, help = "Print them as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Say what is wrong with agents and with everybody they lead to
#[derive(Debug, Args)]
pub(crate) struct AgentsCheckArgs {
    /// Agents to look at, as names or files [default: all that `haft agents list` looks at]
    #[arg(value_name = "AGENT")]
    pub(crate) names: Vec<String>,

    #[arg(long, help = "Print what is wrong as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Write the file of an agent to begin with
#[derive(Debug, Args)]
pub(crate) struct AgentsNewArgs {
    /// Its name; the file is `agents/NAME.md`
    pub(crate) name: String,

    /// Put it into haft's home, where every project finds it
    #[arg(long)]
    pub(crate) home: bool,
}
