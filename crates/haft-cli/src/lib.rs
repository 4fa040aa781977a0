//! The command line: arguments in, an exit code out. Answers go to standard output, everything else to standard error.
//! Start reading at `dispatch`: each command has a module of its own.

mod agents;
mod approvals;
mod approver;
mod args;
mod ask;
mod call;
mod cancel;
mod config;
mod demo;
mod dev;
mod doctor;
mod elicitor;
mod exit;
mod hints;
mod lines;
mod log;
mod markdown;
mod mcp;
mod models;
mod output;
mod policy;
mod prose;
mod question;
mod remedy;
mod rest;
mod run;
mod sandbox;
mod servers;
mod sessions;
mod settings;
mod skills;
mod stats;
mod stream;
mod terminal;
mod tools;
mod tools_check;
mod tree;
mod trust;
mod waiting;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};

use args::{Cli, Command, DevArgs, DevCommand, PolicyCommand, PolicyCommandArgs, ToolsCommand};
pub use exit::Exit;

/// The longest wait, at the end of the program, until confined processes are gone.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// Runs the command line and returns its exit code.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => return terminal::usage(&error),
    };
    // Single-threaded: work that waits for a model, a server or a process gains nothing from moving between threads.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return terminal::failed(Exit::Internal, &format!("no runtime: {error}")),
    };
    let exit = runtime.block_on(dispatch(cli.command));
    // A blocked read of standard input must not delay the exit, and confined processes must not outlive haft.
    runtime.shutdown_background();
    haft_sandbox::wait_until_gone(GONE_WITHIN);
    exit
}

async fn dispatch(command: Command) -> ExitCode {
    match command {
        Command::Run(args) => run::run(&args).await,
        Command::Resume(args) => run::resume(&args).await,
        Command::Replay(args) => run::replay(&args).await,
        Command::Sessions(args) => sessions::run(&args.command),
        Command::Demo(args) => demo::run(&args).await,
        Command::Call(args) if args.stdin => stream::run(&args).await,
        Command::Call(args) => call::run(&args).await,
        Command::Ask(args) => ask::run(&args).await,
        Command::Models(args) => models::run(&args).await,
        Command::Dev(DevArgs { command: DevCommand::ModelServer(args) }) => dev::model_server(&args).await,
        Command::Dev(DevArgs { command: DevCommand::Events { .. } }) => dev::events(),
        Command::Tools(args) => match &args.command {
            Some(ToolsCommand::Check(args)) => tools_check::run(args).await,
            None => tools::run(&args).await,
        },
        Command::Rest(args) => rest::run(&args.command).await,
        Command::Sandbox(args) => sandbox::run(&args).await,
        Command::Doctor(args) => doctor::run(&args).await,
        Command::Config(args) => config::run(&args.command),
        Command::Trust(args) => trust::run(&args),
        Command::Policy(PolicyCommandArgs { command: PolicyCommand::Explain(args) }) => {
            policy::explain(&args).await
        }
        Command::Approvals(args) => approvals::run(&args.command).await,
        Command::Output(args) => output::run(&args),
        Command::Mcp(args) => mcp::run(&args.command).await,
        Command::Skills(args) => skills::run(&args.command),
        Command::Agents(args) => agents::run(&args.command),
        Command::Stats(args) => stats::run(&args),
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "haft", &mut script);
    terminal::answer_bytes(&script)
}
