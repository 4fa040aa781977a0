//! The arguments of `haft mcp`.

use clap::{Args, Subcommand, ValueEnum};

use super::super::args::FileArgs;

/// Add, list, test and remove MCP servers, whose tools models can call
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) command: McpCommand,
}

const EXAMPLES: &str = "\
Examples:
  haft mcp add time -- uvx mcp-server-time
  haft mcp add docs https://example.com/mcp --header 'Authorization: Bearer ${TOKEN}'
  haft mcp test time
  haft mcp logs time";

#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    Add(McpAddArgs),
    List(McpListArgs),
    Test(McpTestArgs),
    Logs(McpLogsArgs),
    Login(McpLoginArgs),
    Logout(McpLogoutArgs),
    Remove(McpRemoveArgs),
}

/// Add a server to haft.json; the rest of the file stays as it is
#[derive(Debug, Args)]
#[command(after_help = ADD_EXAMPLES)]
pub(crate) struct McpAddArgs {
    /// The name of the server; the names of its tools begin with it
    pub(crate) name: String,

    /// An environment variable for the server; `${VAR}` in the value is expanded when it starts
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::add::variable)]
    pub(crate) env: Vec<(String, String)>,

    /// A header of every request to the URL; `${VAR}` in the value is expanded when haft connects
    #[arg(long, value_name = "NAME: VALUE", value_parser = super::add::header)]
    pub(crate) header: Vec<(String, String)>,

    /// The transport [default: stdio for a command, by scheme and path for a URL]
    #[arg(long, value_name = "TRANSPORT")]
    pub(crate) transport: Option<McpTransportArg>,

    /// Which haft.json to change: in haft's home, or in the current project
    #[arg(long, value_name = "SCOPE", default_value = "user")]
    pub(crate) scope: ConfigScopeArg,

    #[arg(long, help = "Print the result as JSON")]
    pub(crate) json: bool,

    /// The URL of the server, if it is not a command
    #[arg(required_unless_present = "command")]
    pub(crate) url: Option<String>,

    /// The command that starts the server, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

const ADD_EXAMPLES: &str = "\
Examples:
  haft mcp add time -- uvx mcp-server-time
  haft mcp add github --env 'GITHUB_TOKEN=${GITHUB_TOKEN}' -- npx -y @modelcontextprotocol/server-github
  haft mcp add docs https://example.com/mcp --header 'Authorization: Bearer ${TOKEN}'
  haft mcp add old --transport sse https://example.com/events --scope project";

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum McpTransportArg {
    Stdio,
    Http,
    Sse,
    Websocket,
}

impl McpTransportArg {
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Sse => "sse",
            Self::Websocket => "websocket",
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ConfigScopeArg {
    User,
    Project,
}

/// List the servers with their transport and cached state; no server is started
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft mcp list --json")]
pub(crate) struct McpListArgs {
    #[arg(long, help = "Print it as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Connect to a server and show its version, its tools, and the tools left out and why
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  haft mcp test time\n  haft mcp test time --trace-mcp")]
pub(crate) struct McpTestArgs {
    /// The server
    pub(crate) name: String,

    /// Print every message to and from it to standard error, shortened and without secrets
    #[arg(long)]
    pub(crate) trace_mcp: bool,

    #[arg(long, help = "Print it as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Show the log of a server's last run: standard error, log messages, output that is not MCP
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft mcp logs time --lines 20")]
pub(crate) struct McpLogsArgs {
    /// The server
    pub(crate) name: String,

    /// Number of lines to show, from the end of the log
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub(crate) lines: usize,

    #[arg(long, help = "Print it as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Log in to a remote server that requires OAuth; haft stores the token and renews it
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft mcp login docs")]
pub(crate) struct McpLoginArgs {
    /// The server
    pub(crate) name: String,

    #[arg(long, help = "Print the result as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Delete the stored token of a server
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft mcp logout docs")]
pub(crate) struct McpLogoutArgs {
    /// The server
    pub(crate) name: String,

    #[arg(long, help = "Print the result as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Remove a server from haft.json, and delete its stored data
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft mcp remove time")]
pub(crate) struct McpRemoveArgs {
    /// The server
    pub(crate) name: String,

    /// Which haft.json to change: in haft's home, or in the current project
    #[arg(long, value_name = "SCOPE", default_value = "user")]
    pub(crate) scope: ConfigScopeArg,

    #[arg(long, help = "Print the result as JSON")]
    pub(crate) json: bool,
}
