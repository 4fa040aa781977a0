//! The arguments of `haft agents`.

use clap::{Args, Subcommand};

use super::super::args::FileArgs;

/// List and check agents, or create a new one
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

/// List the agents of haft's home and of the current project
#[derive(Debug, Args)]
pub(crate) struct AgentsListArgs {
    #[arg(long, help = "Print the list as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Check agents, and all agents that they can call
#[derive(Debug, Args)]
pub(crate) struct AgentsCheckArgs {
    /// Agents to check, as names or files [default: all agents of `haft agents list`]
    #[arg(value_name = "AGENT")]
    pub(crate) names: Vec<String>,

    #[arg(long, help = "Print the errors as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Create a file for a new agent
#[derive(Debug, Args)]
pub(crate) struct AgentsNewArgs {
    /// The agent name; the file is `agents/NAME.md`
    pub(crate) name: String,

    /// Create the file in haft's home, for all projects
    #[arg(long)]
    pub(crate) home: bool,
}
