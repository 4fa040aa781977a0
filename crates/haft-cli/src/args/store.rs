//! The arguments of `haft store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use haft_core::principal::Principal;

/// Back up haft's data, and export or delete the data of one principal
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  haft store backup haft.tar\n  haft store export --principal acme/anna anna.tar\n  haft store delete --principal acme/anna"
)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    pub(crate) command: StoreCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Write haft's data to a tar archive; a server may run at the same time
    #[command(
        after_help = "Examples:\n  haft store backup haft.tar\n  haft store backup haft.tar --force --json"
    )]
    Backup(ArchiveArgs),
    /// Write all data of one principal to a tar archive
    #[command(after_help = "Example:\n  haft store export --principal acme/anna anna.tar")]
    Export {
        #[command(flatten)]
        owner: OwnerArgs,

        #[command(flatten)]
        archive: ArchiveArgs,
    },
    /// Delete all data of one principal, and revoke its keys
    ///
    /// Usage records and logs keep their lines, with a pseudonym instead of the principal.
    #[command(
        after_help = "Examples:\n  haft store delete --principal acme/anna\n  haft store delete --principal acme/anna --yes"
    )]
    Delete {
        #[command(flatten)]
        owner: OwnerArgs,

        /// Delete the data without asking
        #[arg(long)]
        yes: bool,

        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveArgs {
    /// The archive to write
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OwnerArgs {
    /// The tenant and the subject, as `haft keys list` shows them
    #[arg(long, value_name = "TENANT/SUBJECT", value_parser = principal)]
    pub(crate) principal: Principal,
}

/// Parses a principal that is written as `TENANT/SUBJECT`.
pub(crate) fn principal(text: &str) -> Result<Principal, String> {
    match text.split_once('/') {
        Some((tenant, subject)) if !tenant.is_empty() && !subject.is_empty() => {
            Ok(Principal::new(tenant, subject, ""))
        }
        _ => Err(format!("expected TENANT/SUBJECT; got `{text}`")),
    }
}
