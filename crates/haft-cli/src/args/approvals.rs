//! The arguments of `haft approvals`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use haft_core::principal::Principal;

use super::store::principal;

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
  haft approvals revoke --all
  haft approvals list --principal default/anna";

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the remembered approvals, by workspace
    #[command(after_help = "Examples:\n  haft approvals list\n  haft approvals list --workspace ~/project")]
    List {
        /// Print the result as JSON
        #[arg(long)]
        json: bool,

        /// List only approvals for this workspace, and approvals for any workspace
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,

        /// Use the approvals of this client of a haft server instead of your own
        #[arg(long, value_name = "TENANT/SUBJECT", value_parser = principal)]
        principal: Option<Principal>,
    },
    /// Revoke approvals, so that haft asks again
    #[command(after_help = "Examples:\n  haft approvals revoke 3f2a9c1b\n  haft approvals revoke --all")]
    Revoke {
        /// The approval ids, or prefixes of them
        #[arg(value_name = "ID", required_unless_present = "all")]
        ids: Vec<String>,

        /// Revoke all approvals in all workspaces
        #[arg(long, conflicts_with = "ids")]
        all: bool,

        /// Print the result as JSON
        #[arg(long)]
        json: bool,

        /// Use the approvals of this client of a haft server instead of your own
        #[arg(long, value_name = "TENANT/SUBJECT", value_parser = principal)]
        principal: Option<Principal>,
    },
}
