//! The arguments of `haft skills`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::super::args::FileArgs;

/// List and check skills
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SkillsArgs {
    #[command(subcommand)]
    pub(crate) command: SkillsCommand,
}

const EXAMPLES: &str = "\
Examples:
  haft skills list
  haft skills check
  haft skills check skills/browser/SKILL.md";

#[derive(Debug, Subcommand)]
pub(crate) enum SkillsCommand {
    List(SkillsListArgs),
    Check(SkillsCheckArgs),
}

/// List the skills of haft's home and of the current project
#[derive(Debug, Args)]
pub(crate) struct SkillsListArgs {
    #[arg(long, help = "Print the list as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Check skills, and print each error with file and line
#[derive(Debug, Args)]
pub(crate) struct SkillsCheckArgs {
    /// The files to check, even if they are not trusted [default: all skills]
    #[arg(value_name = "FILE")]
    pub(crate) paths: Vec<PathBuf>,

    #[arg(long, help = "Print the errors as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}
