//! `haft models`: lists the providers, or the models of one provider.

use std::fmt::Write;
use std::process::ExitCode;

use haft_models::http::ListedModel;
use serde_json::{Value, json};

use super::args::ModelsArgs;
use super::ask::refused;
use super::settings::{self, CliError};
use super::{cancel, terminal};
use haft_config::{ResolvedConfig, environment};
use haft_runtime::models::{self, ModelsError};

pub(super) async fn run(args: &ModelsArgs) -> ExitCode {
    let config = match settings::configuration(&args.files) {
        Ok(config) => config.resolved,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    let Some(provider) = &args.provider else { return providers(args, &config) };
    let listed = tokio::select! {
        biased;
        listed = listed(&config, provider) => listed,
        exit = cancel::cancelled() => return exit.into(),
    };
    match listed {
        Ok(models) if args.json => terminal::answer(&as_json(&models)),
        Ok(models) => terminal::answer(&table(provider, &models)),
        Err((exit, message)) => terminal::failed(exit, &message),
    }
}

async fn listed(config: &ResolvedConfig, provider: &str) -> Result<Vec<ListedModel>, CliError> {
    models::listed(config, provider, &environment).await.map_err(|error| match error {
        ModelsError::Client(error) => {
            (error.kind.into(), format!("{}\nhint: {}", error.message, error.kind.row().hint))
        }
        error => refused(&error),
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
    let mut text = format!("{:<60} {:>12} {:>12}\n", "MODEL", "CONTEXT", "OUTPUT");
    let count = |tokens: Option<u64>| tokens.map_or_else(String::new, |tokens| tokens.to_string());
    for model in models {
        let name = haft_config::printable(&format!("{provider}/{}", model.id));
        let (context, output) = (count(model.context_tokens), count(model.output_tokens_max));
        let _ = writeln!(text, "{name:<60} {context:>12} {output:>12}");
    }
    text
}

/// Lists the known providers and whether each has a key. No request is sent.
fn providers(args: &ModelsArgs, config: &ResolvedConfig) -> ExitCode {
    let rows: Vec<(String, &'static str, String)> = models::known(config)
        .into_iter()
        .map(|name| {
            let (format, state) = models::state(config, &name, &environment);
            let state = state.map_or_else(|error| error.to_string(), |()| "ready".to_owned());
            (name, format, state)
        })
        .collect();
    if args.json {
        let list = rows
            .iter()
            .map(|(name, format, state)| json!({ "provider": name, "format": format, "state": state }));
        return terminal::answer(&format!("{:#}", Value::Array(list.collect())));
    }
    let mut text = format!("{:<18} {:<18} {:<9} {}\n", "PROVIDER", "FORMAT", "STATE", "NEEDS");
    for (name, format, state) in rows {
        let (state, needs) = if state == "ready" { ("ready", "") } else { ("not ready", remedy(&state)) };
        let _ = writeln!(text, "{}", format!("{name:<18} {format:<18} {state:<9} {needs}").trim_end());
    }
    terminal::answer(&text)
}

/// Returns the remedy, the last part of an error message.
fn remedy(complaint: &str) -> &str {
    complaint.rsplit_once("; ").map_or(complaint, |(_, remedy)| remedy)
}
