//! The command line: takes arguments and returns an exit code. Answers are written to standard output, and all other
//! text to standard error. Start reading at `dispatch`: each command has a module of its own.

mod agents;
mod answer_writer;
mod approvals;
mod approver;
mod args;
mod ask;
mod call;
mod call_stdin;
mod cancel;
mod cli_error;
mod config;
mod demo;
mod dev;
mod doctor;
mod elicitor;
mod exit;
mod hints;
mod images;
#[cfg(feature = "serve")]
mod keys;
mod lock;
mod log;
mod markdown;
mod mcp;
mod memory_secrecy;
mod models;
#[cfg(feature = "serve")]
mod open_files;
mod output;
mod piped_input;
mod policy;
mod question;
mod remedy;
mod rest;
mod run;
mod sandbox;
mod sandbox_refusal;
#[cfg(feature = "serve")]
mod serve;
mod servers;
mod sessions;
mod settings;
mod skills;
mod stats;
mod status_line;
mod store;
mod table;
mod terminal;
mod tool_names;
mod tools;
mod tools_check;
mod tools_search;
mod tree;
mod trust;
mod variables;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};

use args::{Cli, CliCommand, DevArgs, DevCommand, PolicyCommand, PolicyCommandArgs, ToolsCommand};
pub use exit::ExitReason;

/// The maximum time that haft waits for sandboxed processes to end before it exits.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// Runs the command line and returns its exit code.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => return terminal::usage(&error),
    };
    if let Err(error) = memory_secrecy::protect() {
        terminal::warn(&format!(
            "haft could not protect its memory from other processes of this user: {error}"
        ));
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return terminal::failed(
                ExitReason::Internal,
                &format!("haft cannot start its async runtime: {error}"),
            );
        }
    };
    let exit = runtime.block_on(dispatch(cli.command));
    // Do not wait for a blocked read of standard input, but wait for confined processes: they must not outlive haft.
    runtime.shutdown_background();
    haft_sandbox::wait_until_gone(GONE_WITHIN);
    exit
}

async fn dispatch(command: CliCommand) -> ExitCode {
    match command {
        CliCommand::Run(args) => run::run(&args).await,
        CliCommand::Resume(args) => run::resume(&args).await,
        CliCommand::Replay(args) => run::replay(&args).await,
        CliCommand::Sessions(args) => sessions::run(&args.command),
        CliCommand::Demo(args) => demo::run(&args).await,
        CliCommand::Call(args) if args.stdin => call_stdin::run(&args).await,
        CliCommand::Call(args) => call::run(&args).await,
        CliCommand::Ask(args) => ask::run(&args).await,
        CliCommand::Models(args) => models::run(&args).await,
        #[cfg(feature = "serve")]
        CliCommand::Serve(args) => Box::pin(serve::serve(&args)).await,
        #[cfg(feature = "serve")]
        CliCommand::Keys(args) => keys::run(&args.command),
        CliCommand::Dev(DevArgs { command: DevCommand::ModelServer(args) }) => dev::model_server(&args).await,
        CliCommand::Dev(DevArgs { command: DevCommand::Events { .. } }) => dev::events(),
        CliCommand::Tools(args) => match &args.command {
            Some(ToolsCommand::Check(args)) => tools_check::run(args).await,
            Some(ToolsCommand::Search(args)) => tools_search::run(args).await,
            None => tools::run(&args).await,
        },
        CliCommand::Rest(args) => rest::run(&args.command).await,
        CliCommand::Sandbox(args) => sandbox::run(&args).await,
        CliCommand::Doctor(args) => doctor::run(&args).await,
        CliCommand::Config(args) => config::run(&args.command),
        CliCommand::Trust(args) => trust::run(&args).await,
        CliCommand::Store(args) => store::run(&args.command).await,
        CliCommand::Lock(args) => lock::run(&args).await,
        CliCommand::Policy(PolicyCommandArgs { command: PolicyCommand::Explain(args) }) => {
            policy::explain(&args).await
        }
        CliCommand::Approvals(args) => approvals::run(&args.command).await,
        CliCommand::Output(args) => output::run(&args).await,
        CliCommand::Mcp(args) => mcp::run(&args.command).await,
        CliCommand::Skills(args) => skills::run(&args.command),
        CliCommand::Agents(args) => agents::run(&args.command),
        CliCommand::Stats(args) => stats::run(&args),
        CliCommand::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "haft", &mut script);
    terminal::answer_bytes(&script)
}
