//! The arguments of `haft skills`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::super::args::FileArgs;

/// Look at skills: what they are for, what they lack, and what is wrong with them
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

/// List the skills of haft's home and of the project here
#[derive(Debug, Args)]
pub(crate) struct SkillsListArgs {
    #[arg(long, help = "Print them as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Say what is wrong with skills, with file and line
#[derive(Debug, Args)]
pub(crate) struct SkillsCheckArgs {
    /// Files to look at, whether they count or not [default: all skills]
    #[arg(value_name = "FILE")]
    pub(crate) paths: Vec<PathBuf>,

    #[arg(long, help = "Print what is wrong as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}
