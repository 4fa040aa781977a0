//! `haft dev`: commands for developers who build on haft.

use std::process::ExitCode;

use haft_runtime::model_server::{Script, serve};
use tokio::net::TcpListener;

use super::args::ModelServerArgs;
use super::cli_error::CliError;
use super::exit::ExitReason;
use super::{cancel, terminal};

/// The largest script that is read, in bytes.
const SCRIPT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Runs the scripted model server on the loopback interface until the command is interrupted.
pub(super) async fn model_server(args: &ModelServerArgs) -> ExitCode {
    let (script, listener) = match prepare(args).await {
        Ok(prepared) => prepared,
        Err(error) => return error.report(),
    };
    let address = match listener.local_addr() {
        Ok(address) => address,
        Err(error) => return terminal::failed(ExitReason::Internal, &error.to_string()),
    };
    let printed = terminal::answer(&format!("http://{address}"));
    if printed != ExitCode::SUCCESS {
        return printed;
    }
    tokio::select! {
        biased;
        exit = cancel::cancelled() => exit.into(),
        served = serve(script, listener) => match served {
            Ok(()) => ExitReason::Success.into(),
            Err(error) => terminal::failed(
                ExitReason::Internal,
                &format!("the scripted model server stopped with an error: {error}"),
            ),
        },
    }
}

/// Prints the schema of the events in `stream-json`, stored event logs, JSON log lines and usage records.
pub(super) fn events() -> ExitCode {
    terminal::answer(&format!("{:#}", haft_core::event_log::schema()))
}

async fn prepare(args: &ModelServerArgs) -> Result<(Script, TcpListener), CliError> {
    let file = args.script.display();
    let wrong = |reason: &dyn std::fmt::Display| {
        CliError::input(format!("haft cannot use the model script `{file}`: {reason}"))
            .with_hint("docs/models.md shows an example script")
    };
    let size = std::fs::metadata(&args.script).map_err(|error| wrong(&error))?.len();
    if size > SCRIPT_BYTES_MAX {
        return Err(wrong(&format!("the script has {size} bytes; the limit is {SCRIPT_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(&args.script).map_err(|error| wrong(&error))?;
    let script = Script::parse(&text).map_err(|error| wrong(&error))?;
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await.map_err(|error| {
        let hint = "choose another port with --port, or omit --port to use any free port";
        CliError::unavailable(format!("the model server cannot listen on port {}: {error}", args.port))
            .with_hint(hint)
    })?;
    Ok((script, listener))
}
