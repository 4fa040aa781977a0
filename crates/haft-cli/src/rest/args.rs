//! The arguments of `haft rest`.

use clap::{Args, Subcommand};

use super::super::args::FileArgs;

/// Manage HTTP tools that haft creates from API documents (`OpenAPI` 3, Swagger 2.0)
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
    /// Add an `OpenAPI` document to the haft.json in haft's home
    #[command(
        after_help = "Examples:\n  haft rest add petstore ./openapi.yaml\n  haft rest add petstore https://example.com/openapi.json --header 'Authorization: Bearer ${PETSTORE_TOKEN}'"
    )]
    Add(RestAddArgs),
    /// Remove an `OpenAPI` document from the haft.json in haft's home
    #[command(after_help = "Examples:\n  haft rest remove petstore")]
    Remove(RestRemoveArgs),
    /// List the `OpenAPI` documents, and the tools in `restTools`
    #[command(after_help = "Examples:\n  haft rest list\n  haft rest list --json | jq '.[].name'")]
    List(RestListArgs),
    /// Show which operations became tools, and why the others did not
    #[command(
        after_help = "Examples:\n  haft rest check petstore\n  haft rest check petstore --json | jq .skipped"
    )]
    Check(RestCheckArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RestAddArgs {
    /// A name for the `OpenAPI` document; it is part of every tool name
    pub(crate) name: String,

    /// The file or the URL of the `OpenAPI` document
    #[arg(value_name = "FILE|URL")]
    pub(crate) source: String,

    /// A header for every request; ${VAR} is expanded when haft sends a request
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = super::add::header)]
    pub(crate) headers: Vec<(String, String)>,

    /// The base URL for requests; replaces the server in the `OpenAPI` document
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// Replace an existing entry with the same name
    #[arg(long)]
    pub(crate) replace: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestRemoveArgs {
    /// The name of the `OpenAPI` document in haft.json
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
    /// The name of the `OpenAPI` document in haft.json
    pub(crate) name: String,

    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}
