//! The arguments of `haft mcp`.

use clap::{Args, Parser, Subcommand, ValueEnum};
use haft_config::import::ImportSource;

use super::super::args::FileArgs;
#[cfg(feature = "serve")]
use super::super::args::PolicyArgs;
use super::super::cli_error::CliError;

/// Manage MCP servers; models can call their tools
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
    #[cfg(feature = "serve")]
    Serve(Box<McpServeArgs>),
    Import(McpImportArgs),
    Install(McpInstallArgs),
}

/// Add a server to haft.json; the rest of the file does not change
#[derive(Debug, Clone, Args)]
#[command(after_help = ADD_EXAMPLES)]
pub(crate) struct McpAddArgs {
    /// The server name; it is the prefix of the tool names
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) options: McpAddOptions,

    /// The URL of the server, or the command that starts it, with its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "URL|COMMAND")]
    pub(crate) target: Vec<String>,
}

impl McpAddArgs {
    /// Parses the options after a URL. After a command, all words belong to the command.
    pub(crate) fn with_options_after_url(mut self) -> Result<Self, CliError> {
        if self.target.first().is_some_and(|first| super::add::is_url(first)) {
            let rest = self.target.split_off(1);
            let after = OptionsAfterUrl::try_parse_from(rest).map_err(|error| {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
                CliError::usage(first)
                    .with_hint("only options can follow a URL; give a URL or a command, not both")
            })?;
            self.options.extend(after.options);
        }
        Ok(self)
    }
}

#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct OptionsAfterUrl {
    #[command(flatten)]
    options: McpAddOptions,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct McpAddOptions {
    /// An environment variable for the server; `${VAR}` in the value is expanded when the server starts
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = super::add::variable)]
    pub(crate) env: Vec<(String, String)>,

    /// A header for every request to the URL; `${VAR}` in the value is expanded when haft connects
    #[arg(long, value_name = "NAME: VALUE", value_parser = super::add::header)]
    pub(crate) header: Vec<(String, String)>,

    /// The transport [default: stdio for a command; for a URL, haft infers it from scheme and path]
    #[arg(long, value_name = "TRANSPORT")]
    pub(crate) transport: Option<McpTransportArg>,

    /// Which haft.json to change: in haft's home, or in the current project [default: user]
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Option<ConfigScopeArg>,

    #[arg(long, help = "Print the result as JSON")]
    pub(crate) json: bool,
}

impl McpAddOptions {
    fn extend(&mut self, after: Self) {
        self.env.extend(after.env);
        self.header.extend(after.header);
        self.transport = after.transport.or(self.transport);
        self.scope = after.scope.or(self.scope);
        self.json |= after.json;
    }
}

const ADD_EXAMPLES: &str = "\
Examples:
  haft mcp add time uvx mcp-server-time
  haft mcp add github -e 'GITHUB_TOKEN=${GITHUB_TOKEN}' -- npx -y @modelcontextprotocol/server-github
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

/// List the servers with their transport and cached state, without starting them
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft mcp list --json")]
pub(crate) struct McpListArgs {
    #[arg(long, help = "Print the result as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Connect to a server and show its version, its tools, and which tools haft skips and why
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  haft mcp test time\n  haft mcp test time --trace-mcp")]
pub(crate) struct McpTestArgs {
    /// The name of the server
    pub(crate) name: String,

    /// Print all messages to and from the server on standard error, shortened and without secrets
    #[arg(long)]
    pub(crate) trace_mcp: bool,

    #[arg(long, help = "Print the result as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Show the log of a server's last run: standard error, log messages, output that is not MCP
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft mcp logs time --lines 20")]
pub(crate) struct McpLogsArgs {
    /// The name of the server
    pub(crate) name: String,

    /// Number of lines to show, from the end of the log
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub(crate) lines: usize,

    #[arg(long, help = "Print the result as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Log in to a remote server that requires OAuth; haft stores the token and renews it
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft mcp login docs")]
pub(crate) struct McpLoginArgs {
    /// The name of the server
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
    /// The name of the server
    pub(crate) name: String,

    #[arg(long, help = "Print the result as JSON")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Offer all tools as one MCP server on standard input and output
#[cfg(feature = "serve")]
#[derive(Debug, Clone, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct McpServeArgs {
    /// Offer only the tools of this group; can be repeated
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Vec<String>,

    /// Offer only tools whose names match this pattern; can be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) tools: Vec<String>,

    /// Offer only read-only tools: built-in ones, HTTP GET, and tools whose `effects` setting says so
    #[arg(long)]
    pub(crate) read_only: bool,

    /// List all tools, or list only search tools with which a model finds and calls the others
    #[arg(long, value_enum, value_name = "FORM", default_value_t = ListForm::All)]
    pub(crate) expose: ListForm,

    /// Offer only the tools of this profile in `gateway.profiles` of haft.json
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,

    /// The server name that clients see
    #[arg(long, value_name = "NAME", default_value = "haft")]
    pub(crate) name: String,

    /// Serve many clients over HTTP at http://IP:PORT/mcp, instead of one client on standard input and output
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) http: Option<std::net::SocketAddr>,

    #[command(flatten)]
    pub(crate) access: McpHttpArgs,

    /// Log each call to standard error
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Print all messages to and from MCP servers on standard error, shortened and without secrets
    #[arg(long)]
    pub(crate) trace_mcp: bool,

    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// The tools in the list that the gateway sends to its clients.
#[cfg(feature = "serve")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListForm {
    All,
    Search,
}

/// The options that control access to the gateway over HTTP.
#[cfg(feature = "serve")]
#[derive(Debug, Clone, Args)]
pub(crate) struct McpHttpArgs {
    /// Require no API key; allowed only on a loopback address
    #[arg(long, requires = "http")]
    pub(crate) no_auth: bool,

    /// A host name that clients use for this server, in addition to localhost and the address
    #[arg(long, value_name = "NAME", requires = "http")]
    pub(crate) allow_host: Vec<String>,

    /// An origin whose web pages may send requests (CORS), such as `https://app.example.com`
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    pub(crate) allow_origin: Vec<String>,
}

#[cfg(feature = "serve")]
const SERVE_EXAMPLES: &str = "\
Examples:
  claude mcp add haft -- haft mcp serve
  haft mcp serve --name docs --group docs
  haft mcp serve --tools 'git__*' --read-only
  haft mcp serve --expose search
  haft mcp serve --profile docs
  haft mcp serve --http 127.0.0.1:8485";

/// Import MCP servers from other programs: Claude, Cursor, VS Code, Windsurf, Cline, Gemini, opencode, goose, Codex
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  haft mcp import\n  haft mcp import cursor vscode --yes\n  haft mcp import --file servers.json\n  haft mcp import --env-file .env"
)]
pub(crate) struct McpImportArgs {
    /// The programs to import from [default: all]
    pub(crate) program: Vec<ImportSourceArg>,

    /// Import from this file instead; haft detects the file format from the keys
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<std::path::PathBuf>,

    /// Store the values from this `.env` file for the variables that the added servers use
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Option<std::path::PathBuf>,

    /// Add the servers without asking, for scripts
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Which haft.json to change: in haft's home, or in the current project
    #[arg(long, value_name = "SCOPE", default_value = "user")]
    pub(crate) scope: ConfigScopeArg,

    #[arg(long, help = "Print the result as JSON")]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportSourceArg {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    Vscode,
    Windsurf,
    Cline,
    Gemini,
    Opencode,
    Goose,
    Codex,
}

impl ImportSourceArg {
    pub(crate) fn source(self) -> ImportSource {
        match self {
            Self::ClaudeDesktop => ImportSource::ClaudeDesktop,
            Self::ClaudeCode => ImportSource::ClaudeCode,
            Self::Cursor => ImportSource::Cursor,
            Self::Vscode => ImportSource::VsCode,
            Self::Windsurf => ImportSource::Windsurf,
            Self::Cline => ImportSource::Cline,
            Self::Gemini => ImportSource::Gemini,
            Self::Opencode => ImportSource::Opencode,
            Self::Goose => ImportSource::Goose,
            Self::Codex => ImportSource::Codex,
        }
    }
}

/// Add haft as an MCP server to the configuration of a client, or remove it
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  haft mcp install cursor\n  haft mcp install codex -- --read-only\n  haft mcp install claude --remove"
)]
pub(crate) struct McpInstallArgs {
    /// The client whose configuration haft changes
    pub(crate) client: McpClientArg,

    /// The name of the entry in the configuration of the client
    #[arg(long, value_name = "NAME", default_value = "haft", value_parser = entry_name)]
    pub(crate) name: String,

    /// Remove the entry instead of adding it
    #[arg(long, conflicts_with = "serve")]
    pub(crate) remove: bool,

    #[arg(long, help = "Print the result as JSON")]
    pub(crate) json: bool,

    /// Options that the entry passes to `haft mcp serve`
    #[arg(last = true, value_name = "OPTION")]
    pub(crate) serve: Vec<String>,
}

/// Accepts names that need no quotes in any of the configuration files.
fn entry_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !text.is_empty() && text.chars().all(is_plain) {
        Ok(text.to_owned())
    } else {
        Err("expected a name of letters, digits, - and _".into())
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum McpClientArg {
    Claude,
    Cursor,
    Codex,
}

impl McpClientArg {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Cursor => "cursor",
            Self::Codex => "codex",
        }
    }
}

/// Remove a server from haft.json, and delete its stored data
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haft mcp remove time")]
pub(crate) struct McpRemoveArgs {
    /// The name of the server
    pub(crate) name: String,

    /// Which haft.json to change: in haft's home, or in the current project
    #[arg(long, value_name = "SCOPE", default_value = "user")]
    pub(crate) scope: ConfigScopeArg,

    #[arg(long, help = "Print the result as JSON")]
    pub(crate) json: bool,
}
