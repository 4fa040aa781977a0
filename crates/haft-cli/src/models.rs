//! `haft models`: lists the providers, or the models of one provider.

use std::process::ExitCode;

use futures_util::future::join_all;
use haft_models::http::ListedModel;
use serde_json::{Value, json};

use super::args::ModelsArgs;
use super::cli_error::CliError;
use super::settings;
use super::table::{Table, left, right};
use super::{cancel, terminal};
use crate::variables::variable;
use haft_config::ResolvedConfig;
use haft_runtime::models::{self, ModelsError, ProbeScope, ServerProbeOutcome};

pub(super) async fn run(args: &ModelsArgs) -> ExitCode {
    let config = match settings::configuration(&args.files) {
        Ok(config) => config.resolved,
        Err(error) => return error.report(),
    };
    let Some(provider) = &args.provider else {
        return tokio::select! {
            biased;
            code = providers(args, &config) => code,
            exit = cancel::cancelled() => exit.into(),
        };
    };
    let listed = tokio::select! {
        biased;
        listed = listed(&config, provider) => listed,
        exit = cancel::cancelled() => return exit.into(),
    };
    match listed {
        Ok(models) if args.json => terminal::answer(&as_json(&models)),
        Ok(models) => terminal::answer(&table(provider, &models)),
        Err(error) => error.report(),
    }
}

async fn listed(config: &ResolvedConfig, provider: &str) -> Result<Vec<ListedModel>, CliError> {
    models::listed(config, provider, &variable).await.map_err(|error| match error {
        ModelsError::Client(error) => {
            CliError::new(error.kind.into(), error.message).with_hint(error.kind.row().hint)
        }
        error => CliError::from(&error),
    })
}

fn as_json(models: &[ListedModel]) -> String {
    let list = models.iter().map(|model| {
        json!({
            "id": model.id, "context_tokens": model.context_tokens, "output_tokens_max": model.output_tokens_max,
        })
    });
    format!("{:#}", Value::Array(list.collect()))
}

fn table(provider: &str, models: &[ListedModel]) -> String {
    let mut table = Table::new([left("MODEL"), right("CONTEXT"), right("OUTPUT")]);
    let count = |tokens: Option<u64>| tokens.map_or_else(String::new, |tokens| tokens.to_string());
    for model in models {
        let name = haft_config::printable(&format!("{provider}/{}", model.id));
        table.row([name, count(model.context_tokens), count(model.output_tokens_max)]);
    }
    table.text()
}

/// One row of the provider list.
struct ProviderLine {
    name: String,
    format: &'static str,
    /// The reason why the provider cannot be used.
    problem: Option<String>,
    server: ServerProbeOutcome,
}

/// Lists the known providers, whether each has an API key, and whether its server answers. Probes only servers on this
/// machine, unless the user asks for all.
async fn providers(args: &ModelsArgs, config: &ResolvedConfig) -> ExitCode {
    let scope = if args.check { ProbeScope::All } else { ProbeScope::Local };
    let lines = models::known(config).into_iter().map(|name| async move {
        let (format, state) = models::state(config, &name, &variable);
        let server = models::server_state(config, &name, &variable, scope).await;
        ProviderLine { name, format, problem: state.err().map(|error| error.to_string()), server }
    });
    let lines: Vec<ProviderLine> = join_all(lines).await;
    let text = if args.json { lines_json(&lines) } else { lines_text(&lines) };
    terminal::answer(&text)
}

fn lines_json(lines: &[ProviderLine]) -> String {
    let list = lines.iter().map(|line| {
        let server = match line.server {
            ServerProbeOutcome::NotAsked => Value::Null,
            ServerProbeOutcome::Answers => true.into(),
            ServerProbeOutcome::Silent => false.into(),
        };
        let state = line.problem.as_deref().unwrap_or("ready");
        json!({ "provider": line.name, "format": line.format, "state": state, "serverAnswers": server })
    });
    format!("{:#}", Value::Array(list.collect()))
}

fn lines_text(lines: &[ProviderLine]) -> String {
    let mut table = Table::new(["PROVIDER", "FORMAT", "STATE", "SERVER", "NEEDS"].map(left));
    for ProviderLine { name, format, problem, server } in lines {
        let state = if problem.is_none() { "ready" } else { "not ready" };
        let server = match server {
            ServerProbeOutcome::NotAsked => "",
            ServerProbeOutcome::Answers => "answers",
            ServerProbeOutcome::Silent => "silent",
        };
        let needs = problem.as_deref().map(remedy).unwrap_or_default();
        table.row([name.as_str(), *format, state, server, needs]);
    }
    table.text()
}

/// Returns the remedy, which is the last part of an error message.
fn remedy(complaint: &str) -> &str {
    complaint.rsplit_once("; ").map_or(complaint, |(_, remedy)| remedy)
}
