//! The arguments of `haft mcp`.

use clap::{Args, Subcommand, ValueEnum};

use super::super::args::FileArgs;

/// Give models the tools of MCP servers: add, list, try and remove them
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

/// Put a server into haft.json; everything else in the file stays as it is
#[derive(Debug, Args)]
#[command(after_help = ADD_EXAMPLES)]
pub(crate) struct McpAddArgs {
    /// What it is called; the names of its tools begin with it
    pub(crate) name: String,

    /// A variable it sees; `${VAR}` in the value is read when it is started
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::add::variable)]
    pub(crate) env: Vec<(String, String)>,

    /// Sent with every request to a URL; `${VAR}` in the value is read when it is reached
    #[arg(long, value_name = "NAME: VALUE", value_parser = super::add::header)]
    pub(crate) header: Vec<(String, String)>,

    /// How it is reached [default: a command is stdio; a URL says it]
    #[arg(long, value_name = "TRANSPORT")]
    pub(crate) transport: Option<McpTransportArg>,

    /// Which haft.json: the one in haft's home, or the one here
    #[arg(long, value_name = "SCOPE", default_value = "user")]
    pub(crate) scope: ConfigScopeArg,

    #[arg(long, help = "Print what was done as JSON")]
    pub(crate) json: bool,

    /// Where it is, when it is no command
    #[arg(required_unless_present = "command")]
    pub(crate) url: Option<String>,

    /// The command that starts it, with its arguments
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

/// Which servers there are, how each is reached, and what is known of it; nothing is started
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft mcp list --json")]
pub(crate) struct McpListArgs {
    #[arg(long, help = "Print it as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Connect to a server and say what it is, what it has, and what was left out and why
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  haft mcp test time\n  haft mcp test time --trace-mcp")]
pub(crate) struct McpTestArgs {
    /// The server
    pub(crate) name: String,

    /// Show on standard error every message to and from it, without secrets and cut
    #[arg(long)]
    pub(crate) trace_mcp: bool,

    #[arg(long, help = "Print it as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// What a server said beside the protocol when it last ran: standard error, log messages, noise
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft mcp logs time --lines 20")]
pub(crate) struct McpLogsArgs {
    /// The server
    pub(crate) name: String,

    /// How many lines, the last ones
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub(crate) lines: usize,

    #[arg(long, help = "Print it as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Log in at a server elsewhere that asks who you are; the token is kept in haft's own data and renewed by itself
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft mcp login docs")]
pub(crate) struct McpLoginArgs {
    /// The server
    pub(crate) name: String,

    #[arg(long, help = "Print what was done as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Forget the token of a server
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft mcp logout docs")]
pub(crate) struct McpLogoutArgs {
    /// The server
    pub(crate) name: String,

    #[arg(long, help = "Print what was done as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Take a server out of haft.json, and forget what is known of it
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft mcp remove time")]
pub(crate) struct McpRemoveArgs {
    /// The server
    pub(crate) name: String,

    /// Which haft.json: the one in haft's home, or the one here
    #[arg(long, value_name = "SCOPE", default_value = "user")]
    pub(crate) scope: ConfigScopeArg,

    #[arg(long, help = "Print what was done as JSON")]
    pub(crate) json: bool,
}
