//! The arguments of `haft rest`.

use clap::{Args, Subcommand};

use super::super::args::FileArgs;

/// Manage HTTP tools that come from API descriptions (`OpenAPI` 3, Swagger 2.0)
#[derive(Debug, Args)]
#[command(after_help = REST_EXAMPLES)]
pub(crate) struct RestArgs {
    #[command(subcommand)]
    pub(crate) command: RestCommand,
}

const REST_EXAMPLES: &str = "\
Examples:
  haft rest add petstore ./openapi.yaml --base-url https://petstore.example.com/v2
  haft rest add github https://example.com/api.json --header 'Authorization: Bearer ${GITHUB_TOKEN}'
  haft rest list
  haft rest check petstore
  haft rest remove petstore
  haft call rest__petstore_getPetById '{\"petId\": 1}'";

#[derive(Debug, Subcommand)]
pub(crate) enum RestCommand {
    /// Read a description and add it to the haft.json in haft's home
    #[command(
        after_help = "Examples:\n  haft rest add petstore ./openapi.yaml\n  haft rest add petstore https://example.com/openapi.json --header 'Authorization: Bearer ${PETSTORE_TOKEN}'"
    )]
    Add(RestAddArgs),
    /// Remove a description from the haft.json in haft's home
    #[command(after_help = "Examples:\n  haft rest remove petstore")]
    Remove(RestRemoveArgs),
    /// List the descriptions and the tools of `restTools`
    #[command(after_help = "Examples:\n  haft rest list\n  haft rest list --json | jq '.[].name'")]
    List(RestListArgs),
    /// Show which operations are tools, and which are not and why
    #[command(
        after_help = "Examples:\n  haft rest check petstore\n  haft rest check petstore --json | jq .skipped"
    )]
    Check(RestCheckArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RestAddArgs {
    /// The name of the description; part of the name of every tool
    pub(crate) name: String,

    /// A file, or a URL
    #[arg(value_name = "FILE|URL")]
    pub(crate) source: String,

    /// A header of every request; ${VAR} is expanded when a request is made
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = super::add::header)]
    pub(crate) headers: Vec<(String, String)>,

    /// The base URL of requests, instead of the server in the description
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// Replace the description of that name
    #[arg(long)]
    pub(crate) replace: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestRemoveArgs {
    /// The name of the description in haft.json
    pub(crate) name: String,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestListArgs {
    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RestCheckArgs {
    /// The name of the description in haft.json
    pub(crate) name: String,

    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}
