//! The arguments of the command line.

mod approvals;
mod models;
mod run;
#[cfg(feature = "serve")]
mod serve;
mod sessions;
mod store;

use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::agents::args::AgentsArgs;
use super::mcp::args::McpArgs;
use super::rest::args::RestArgs;
use super::skills::args::SkillsArgs;

pub(super) use approvals::{ApprovalsArgs, ApprovalsCommand};
pub(super) use run::{DemoArgs, OutputFormat, RunArgs, ShowArgs};
#[cfg(feature = "serve")]
pub(super) use serve::{KeysArgs, KeysCommand, KeysCreateArgs, KeysRotateArgs, ServeArgs};
pub(super) use sessions::{ReplayArgs, ResumeArgs, SessionsArgs, SessionsCommand};
pub(super) use store::{ArchiveArgs, StoreArgs, StoreCommand};

pub(super) use models::{
    AskArgs, DevArgs, DevCommand, GrammarName, ModelServerArgs, ModelsArgs, ToolsCheckArgs, ToolsCommand,
    ToolsSearchArgs,
};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(AnsiColor::Cyan.on_default());

/// Gives any language model real tools. haft runs them safely and fast, and records every call.
#[derive(Debug, Parser)]
#[command(name = "haft", version, styles = STYLES, arg_required_else_help = true, after_help = EXAMPLES)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: CliCommand,
}

const EXAMPLES: &str = "\
Examples:
  haft demo
  haft run -m anthropic/claude-sonnet-4-5 \"Why is the build red?\"
  haft call bash '{\"command\":\"echo hello from $(pwd)\"}'
  haft call read '{\"file_path\":\"README.md\",\"limit\":10}'
  haft tools --schema
  haft ask -m anthropic/claude-sonnet-4-5 \"What is a haft?\"
  haft sandbox -- make test
  haft doctor
  haft config show

Exit codes: 0 success, 1 internal error, 2 usage, 3 the tool failed, 4 denied,
5 sandbox, tool or model unavailable, 6 missing or wrong API key, 7 quota, 8 network,
9 run limit reached, 10 run budget used up, 42 bad input, 124 timeout, 130 interrupted, 141 output pipe closed, 143 terminated. `haft sandbox` returns the exit code of its command.";

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "the process creates only one value of this type")]
pub(super) enum CliCommand {
    Run(RunArgs),
    Resume(ResumeArgs),
    Replay(ReplayArgs),
    Sessions(SessionsArgs),
    Demo(DemoArgs),
    Call(CallArgs),
    Tools(ToolsArgs),
    Ask(AskArgs),
    Models(ModelsArgs),
    #[cfg(feature = "serve")]
    Serve(ServeArgs),
    #[cfg(feature = "serve")]
    Keys(KeysArgs),
    Dev(DevArgs),
    Rest(RestArgs),
    Sandbox(SandboxArgs),
    Doctor(DoctorArgs),
    Config(ConfigArgs),
    Trust(TrustArgs),
    Store(StoreArgs),
    Lock(LockArgs),
    Policy(PolicyCommandArgs),
    Approvals(ApprovalsArgs),
    Output(OutputArgs),
    Mcp(McpArgs),
    Skills(SkillsArgs),
    Agents(AgentsArgs),
    Stats(StatsArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  haft completions bash > ~/.local/share/bash-completion/completions/haft"
    )]
    Completions {
        shell: clap_complete::Shell,
    },
}

/// Call one tool, or many from standard input; no model is involved
#[derive(Debug, Args)]
#[command(after_help = CALL_EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each bool is a separate command-line flag")]
pub(super) struct CallArgs {
    /// The name of the tool to call
    #[arg(required_unless_present = "stdin")]
    pub(super) tool: Option<String>,

    /// The arguments of the tool as a JSON object, or - to read them from standard input
    #[arg(value_name = "JSON")]
    pub(super) arguments: Option<String>,

    /// Read calls from standard input, one per line: {"id":1,"tool":"bash","args":{"command":"ls"}}
    #[arg(long, conflicts_with_all = ["tool", "arguments"])]
    pub(super) stdin: bool,

    // Not `requires = "stdin"`: clap drops a requirement that conflicts with a given argument, here the tool.
    /// With --stdin: the maximum number of calls that run at the same time
    #[arg(long, value_name = "N", default_value_t = 4, conflicts_with = "tool", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) jobs: u16,

    /// With --stdin: keep the order of the lines; only consecutive read-only calls run at the same time
    #[arg(long, conflicts_with = "tool")]
    pub(super) ordered: bool,

    /// Print the complete result as JSON, with its text, error kind, latency and sandbox layers
    #[arg(long, conflicts_with = "stdin")]
    pub(super) json: bool,

    /// Log each call to standard error; set `HAFT_LOG=info`, `warn` or `error` to log always
    #[arg(short, long)]
    pub(super) verbose: bool,

    /// The format of log lines [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(super) log_format: Option<LogFormat>,

    /// Print all messages to and from MCP servers on standard error, shortened and without secrets
    #[arg(long)]
    pub(super) trace_mcp: bool,

    /// Print a tree of all calls on standard error; with --json the tree is part of the result
    #[arg(long)]
    pub(super) tree: bool,

    /// The time limit of a call, for example 90s, 1500ms or 2m; a plain number is seconds [default: 120s]
    #[arg(long, value_name = "DURATION", value_parser = super::settings::duration)]
    pub(super) timeout: Option<std::time::Duration>,

    #[command(flatten)]
    pub(super) policy: PolicyArgs,
}

const CALL_EXAMPLES: &str = "\
Examples:
  haft call bash '{\"command\":\"ls -la\"}'
  haft call write '{\"file_path\":\"notes.txt\",\"content\":\"hello\"}'
  echo '{\"command\":\"uname -a\"}' | haft call bash -
  haft call --mode network --timeout 20s bash '{\"command\":\"curl -sI https://example.com\"}'
  printf '%s\\n' '{\"id\":1,\"tool\":\"current_date\",\"args\":{}}' | haft call --stdin";

/// The operator's decisions about the sandbox. No output of a model can change them.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Sandbox")]
pub(super) struct PolicyArgs {
    /// The access of commands to files and the network. workspace: commands write only to the workspace and /tmp, and
    /// have no network; network: the same, but with network; full: everything except the blocklist [default: workspace]
    #[arg(long, value_name = "MODE", value_parser = super::settings::mode)]
    pub(super) mode: Option<haft_sandbox::SandboxMode>,

    #[command(flatten)]
    pub(super) files: FileArgs,

    /// A directory that commands may write to, in addition to the workspace
    #[arg(long, value_name = "DIR")]
    pub(super) writable: Vec<PathBuf>,

    /// Let commands read a path that the sandbox hides as a secret
    #[arg(long, value_name = "PATH")]
    pub(super) readable: Vec<PathBuf>,

    /// Whether commands can use the network [default: the mode decides]
    #[arg(long, value_name = "ALLOW|DENY")]
    pub(super) network: Option<GrantArg>,

    /// Whether commands may open unix sockets (docker, ssh-agent …) [default: only in mode full]
    #[arg(long, value_name = "ALLOW|DENY")]
    pub(super) unix_sockets: Option<GrantArg>,

    /// Whether commands may change git hooks and git configuration in the workspace [default: frozen]
    #[arg(long, value_name = "FROZEN|WRITABLE")]
    pub(super) git: Option<GitMetadataArg>,

    /// Pass one more variable of the current environment to commands
    #[arg(long = "env", value_name = "NAME")]
    pub(super) environment: Vec<String>,

    /// Set a resource limit: processes, open-files, file-bytes, cpu-time (a duration), memory-bytes or shm-bytes
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::settings::limit)]
    pub(super) limit: Vec<(String, u64)>,
}

impl PolicyArgs {
    /// Returns arguments that override nothing, so that only the configuration files decide.
    pub(super) fn of_files(files: &FileArgs) -> Self {
        Self { files: files.clone(), ..Self::default() }
    }
}

/// The directories and files from which haft reads the configuration.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct FileArgs {
    /// The directory that tools work in [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(super) workspace: Option<PathBuf>,

    /// Allow your home directory as the workspace, without asking
    #[arg(long)]
    pub(super) allow_home: bool,

    /// A configuration file that overrides all others
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// A file with more MCP servers, in the file format of any MCP client; can be repeated
    #[arg(long, value_name = "FILE")]
    pub(super) mcp_config: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum GrantArg {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum GitMetadataArg {
    Frozen,
    Writable,
}

/// List the tools
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  haft tools\n  haft tools bash --schema\n  haft tools --tokens\n  haft tools --json | jq '.[].name'\n  haft tools search create an issue\n  haft tools check --provider gemini"
)]
pub(super) struct ToolsArgs {
    #[command(subcommand)]
    pub(super) command: Option<ToolsCommand>,

    /// Show only this tool
    pub(super) name: Option<String>,

    /// Print the definitions as JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Show the input schema of each tool
    #[arg(long)]
    pub(super) schema: bool,

    /// Show only tools of this group
    #[arg(long, value_name = "GROUP")]
    pub(super) group: Option<String>,

    /// Show the size of each definition in tokens
    #[arg(long)]
    pub(super) tokens: bool,

    #[command(flatten)]
    pub(super) files: FileArgs,
}

/// Run a command in the sandbox, to test what it can and cannot do
///
/// The command has no terminal and an empty standard input, like every tool. haft exits with the code of the command.
/// Code 125 means that haft itself failed, 127 that the command was not found, and 128+N that signal N killed it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  haft sandbox -- bash -c 'echo hi > /etc/motd'\n  haft sandbox --mode network -- curl -sI https://example.com\n  haft sandbox --workspace ~/project -- cargo test --offline"
)]
pub(super) struct SandboxArgs {
    /// Print the active layers of the sandbox to standard error
    #[arg(short, long)]
    pub(super) verbose: bool,

    #[command(flatten)]
    pub(super) policy: PolicyArgs,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<std::ffi::OsString>,
}

/// Check this machine: kernel, sandbox layers, workspace, home directory and configuration
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  haft doctor\n  haft doctor --json | jq .sandbox")]
pub(super) struct DoctorArgs {
    /// Print the findings as JSON
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) policy: PolicyArgs,
}

/// Check and show the configuration
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  haft config check\n  haft config show --json | jq '.keys[] | select(.from)'\n  haft config schema > haft.schema.json"
)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    pub(super) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// List the configuration files in use, and all errors in them
    #[command(after_help = "Examples:\n  haft config check\n  haft config check --config other.json --json")]
    Check(ConfigFilesArgs),
    /// Show the value of every key, and the file that set it
    #[command(after_help = "Examples:\n  haft config show\n  haft config show --json | jq .keys")]
    Show(ConfigFilesArgs),
    /// Print the JSON Schema of haft.json
    #[command(after_help = "Example:\n  haft config schema > haft.schema.json")]
    Schema,
}

#[derive(Debug, Args)]
pub(super) struct ConfigFilesArgs {
    /// Print the findings as JSON
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) files: FileArgs,
}

/// Trust the files of a project: its configuration, agents and skills
///
/// Shows the settings in the files and every program that they would run, asks you, and stores the digests of the
/// files. A file that changes later is no longer trusted.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  haft trust\n  haft trust ~/project\n  haft trust --yes\n  haft trust --list\n  haft trust --revoke ~/project"
)]
#[expect(clippy::struct_excessive_bools, reason = "each bool is a separate command-line flag")]
pub(super) struct TrustArgs {
    /// The project [default: the current directory]
    #[arg(value_name = "DIR")]
    pub(super) directory: Option<PathBuf>,

    /// List the trusted files
    #[arg(long, conflicts_with_all = ["directory", "revoke"])]
    pub(super) list: bool,

    /// Stop trusting the project
    #[arg(long)]
    pub(super) revoke: bool,

    /// Trust the files without asking, for scripts
    #[arg(short, long, conflicts_with_all = ["list", "revoke"])]
    pub(super) yes: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Write haft.lock, which pins the tool definitions; tools that are new or change later are quarantined
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = LOCK_EXAMPLES)]
pub(super) struct LockArgs {
    #[command(subcommand)]
    pub(super) command: Option<LockCommand>,

    /// Compare without writing: print the differences, and exit with code 3 if there are any, for CI
    #[arg(long)]
    pub(super) check: bool,

    /// Print all lines of long differences
    #[arg(long)]
    pub(super) full: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) files: FileArgs,
}

const LOCK_EXAMPLES: &str = "\
Examples:
  haft lock
  haft lock --check
  haft lock review
  haft lock review --yes";

#[derive(Debug, Subcommand)]
pub(super) enum LockCommand {
    Review(LockReviewArgs),
}

/// Show the tool definitions that changed since haft.lock was written, and accept them
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  haft lock review\n  haft lock review mcp/docs --full\n  haft lock review --yes"
)]
pub(super) struct LockReviewArgs {
    /// Review only these servers and HTTP APIs, such as `mcp/docs` or `docs` [default: all]
    #[arg(value_name = "SOURCE")]
    pub(super) sources: Vec<String>,

    /// Print all lines of long differences
    #[arg(long)]
    pub(super) full: bool,

    /// Accept all changes without asking, for scripts
    #[arg(short, long)]
    pub(super) yes: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) files: FileArgs,
}

/// Show which calls the policy rules allow, deny, or ask about
#[derive(Debug, Args)]
pub(super) struct PolicyCommandArgs {
    #[command(subcommand)]
    pub(super) command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Show which rule applies to a call, and why; the call is not made
    #[command(
        after_help = "Examples:\n  haft policy explain bash '{\"command\":\"git push && ls\"}'\n  haft policy explain write"
    )]
    Explain(ExplainArgs),
}

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The name of the tool
    pub(super) tool: String,

    /// The arguments of the call, as a JSON object
    #[arg(value_name = "JSON")]
    pub(super) arguments: Option<String>,

    /// Print the decision as JSON
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) policy: PolicyArgs,
}

/// Print a stored tool output, or a part of it
#[derive(Debug, Args)]
#[command(
    after_help = "Queries: lines 10-40, first 50 lines, last 50 lines, bytes 0-4096, grep [-i] [-B n] [-A n] PATTERN,\njq FILTER, schema, stats. Long results have pages: `page 2 of lines 1-9000`\n\nExamples:\n  haft output session-…/… last 20 lines\n  haft output session-…/… grep -i error\n  haft output session-…/… jq '.items[].id'\n  haft output session-…/… -o picture.png"
)]
pub(super) struct OutputArgs {
    /// The handle of the stored output
    pub(super) handle: String,

    /// Print the bytes unchanged, even if they are not text
    #[arg(long, conflicts_with_all = ["file", "extract"])]
    pub(super) raw: bool,

    /// Write the bytes to a file; haft replaces an existing file atomically
    #[arg(short = 'o', long = "output", value_name = "FILE", conflicts_with = "extract")]
    pub(super) file: Option<std::path::PathBuf>,

    /// A query for a part of the output [default: the whole output]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) extract: Vec<String>,
}

/// Show statistics of tool calls, grouped by tool
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  haft stats\n  haft stats --since 1h --json\n  haft stats --models")]
pub(super) struct StatsArgs {
    /// Count only calls of the last 30m, 12h, 7d or another period; a plain number is seconds
    #[arg(long, value_name = "DURATION", value_parser = super::settings::duration)]
    pub(super) since: Option<std::time::Duration>,

    /// Show statistics of model requests instead of tool calls
    #[arg(long)]
    pub(super) models: bool,

    /// Print the statistics as JSON
    #[arg(long)]
    pub(super) json: bool,
}
