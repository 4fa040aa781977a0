//! `haft serve`: the HTTP server.

use std::process::ExitCode;

use haft_config::printable;
use haft_core::principal::Principal;
use haft_runtime::runtime::Runtime;
use haft_runtime::spec::{UserHomeView, WorkspaceSpec};
use haft_server::{AgentCatalog, AuthMode, ServeError, Server, ServerSettings};
use haft_store::api_keys::{KeyScope, NewApiKey};

use super::args::ServeArgs;
use super::cancel::SignalListener;
use super::exit::ExitReason;
use super::settings::{self, CliError, Configuration};
use super::{agents, keys, skills, terminal};

/// Serves until it is interrupted or terminated, and then exits with 0.
pub(super) async fn run(args: &ServeArgs) -> ExitCode {
    let mut signals = SignalListener::begin();
    let server = match prepare(args).await {
        Ok(server) => server,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    if args.check {
        return terminal::answer(&format!("ok: the server can listen on {}", server.address()));
    }
    let first_key = match first_key(args) {
        Ok(key) => key,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    let printed = terminal::answer(&format!("http://{}", server.address()));
    if printed != ExitCode::SUCCESS {
        return printed;
    }
    if let Some(key) = first_key {
        terminal::note(&format!("API key, shown only now: {key}"));
    }
    let stop = async move {
        signals.first_signal().await;
    };
    server.run(stop).await;
    ExitReason::Success.into()
}

async fn prepare(args: &ServeArgs) -> Result<Server, CliError> {
    let configuration = settings::configuration(&args.files)?;
    let home = settings::home()?;
    let settings = ServerSettings {
        allowed_hosts: args.allow_host.clone(),
        allowed_origins: args.allow_origin.clone(),
        auth: if args.no_auth { AuthMode::NoAuth } else { AuthMode::Keys },
        ..ServerSettings::at(args.address, workspace(&home.workspace(), &configuration))
    };
    let (agents, mut warnings) = AgentCatalog::load(&agents::loader(&args.files)?);
    let builder = Runtime::builder(configuration.resolved).home(home).skills(skills::found(&args.files)?);
    let built = builder.build_with_warnings().await;
    let (runtime, of_runtime) = built.map_err(|error| (ExitReason::Usage, error.to_string()))?;
    warnings.extend(of_runtime);
    for warning in &warnings {
        terminal::warn(&printable(warning));
    }
    Server::bind(settings, runtime, agents).await.map_err(|error| refused(&error))
}

/// Returns the sandbox of runs, from the configuration. The server replaces the directory by that of the caller.
fn workspace(directory: &std::path::Path, configuration: &Configuration) -> WorkspaceSpec {
    let config = &configuration.resolved.sandbox;
    WorkspaceSpec {
        directory: directory.to_owned(),
        mode: config.mode,
        network: config.network,
        unix_sockets: config.unix_sockets,
        git: config.git,
        writable: config.writable.clone(),
        readable: config.readable.clone(),
        secrets: config.secrets.clone(),
        environment: config.environment.clone(),
        protected: configuration.in_use().to_vec(),
        limits: config.limits.clone(),
        home: UserHomeView::Covered,
    }
}

/// Creates a key if there is none, so that the first start needs no further command.
fn first_key(args: &ServeArgs) -> Result<Option<String>, CliError> {
    let store = keys::store()?;
    let known = store.load().map_err(|error| keys::unusable(&error))?;
    if args.no_auth || !known.all().is_empty() {
        return Ok(None);
    }
    let owner = Principal::local();
    let new = NewApiKey {
        name: "first".into(),
        tenant: "default".into(),
        subject: owner.subject().to_owned(),
        scopes: vec![KeyScope::Api, KeyScope::Approvals],
        expires_ms: None,
    };
    let (_, secret) = store.create(new, keys::now_ms()).map_err(|error| keys::unusable(&error))?;
    Ok(Some(secret.expose().to_owned()))
}

fn refused(error: &ServeError) -> CliError {
    let (exit, hint) = match error {
        ServeError::OpenWithoutKeys { .. } => {
            (ExitReason::Usage, "leave out --no-auth, or listen on 127.0.0.1")
        }
        ServeError::Bind { .. } => (ExitReason::Unavailable, "choose another address with --address IP:PORT"),
        ServeError::Keys(_) => (ExitReason::Internal, "`haft keys list` reads the same file"),
    };
    (exit, super::hints::with(error, Some(hint)))
}
