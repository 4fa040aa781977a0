//! The arguments of `haft approvals`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// List and revoke remembered approvals
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    pub(crate) command: ApprovalsCommand,
}

const EXAMPLES: &str = "\
Examples:
  haft approvals list
  haft approvals list --workspace . --json
  haft approvals revoke 3f2a9c1b
  haft approvals revoke --all";

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the remembered approvals, by workspace
    #[command(after_help = "Examples:\n  haft approvals list\n  haft approvals list --workspace ~/project")]
    List {
        /// Print the result as JSON
        #[arg(long)]
        json: bool,

        /// Only approvals for this workspace, and approvals for any workspace
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
    },
    /// Revoke approvals, so that haft asks again
    #[command(after_help = "Examples:\n  haft approvals revoke 3f2a9c1b\n  haft approvals revoke --all")]
    Revoke {
        /// The approval ids, or prefixes of them
        #[arg(value_name = "ID", required_unless_present = "all")]
        ids: Vec<String>,

        /// All approvals in all workspaces
        #[arg(long, conflicts_with = "ids")]
        all: bool,

        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
}
