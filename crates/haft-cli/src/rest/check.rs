//! `haft rest check`: lists the operations of an OpenAPI document that are tools, and the skipped ones with a reason.

use std::fmt::Write;

use haft_tools::rest::RestTool;
use haft_tools::rest::openapi::ImportResult;
use serde_json::{Value, json};

use super::super::cli_error::CliError;
use super::super::settings;
use super::super::table::{Table, left};
use super::super::terminal::counted;
use super::args::RestCheckArgs;
use super::{RestCommandOutput, around};
use haft_runtime::rest::{self, Freshness};

pub(super) async fn check(args: &RestCheckArgs) -> Result<RestCommandOutput, CliError> {
    let home = settings::home()?;
    let config = settings::configuration(&args.files)?.resolved;
    let Some(spec) = config.rest.specs.get(&args.name) else {
        let known: Vec<&str> = config.rest.specs.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let message =
            format!("there is no OpenAPI document named `{}`; configured documents: {known}", args.name);
        return Err(CliError::input(message).with_hint("`haft rest add` adds one"));
    };
    let imported = rest::import(&args.name, spec, around(&home, Freshness::Fetched)).await;
    let imported = imported.map_err(|error| {
        let hint = format!("change `openapiSpecs.{}` in haft.json", args.name);
        CliError::input(haft_config::printable(&error)).with_hint(hint)
    })?;
    Ok(RestCommandOutput { text: findings(&imported), json: findings_json(&imported) })
}

fn findings(imported: &ImportResult) -> String {
    let title = imported.title.as_deref().unwrap_or("no title");
    let mut text = format!("{} at {}\n\n", haft_config::printable(title), imported.base);
    let mut table = Table::new(["TOOL", "EFFECTS", "DESCRIPTION"].map(left));
    for RestTool { definition, .. } in &imported.tools {
        let description: String = definition.description.chars().take(80).collect();
        let name = format!("rest__{}", definition.name);
        table.row([name.as_str(), definition.effects.name(), &haft_config::printable(&description)]);
    }
    text.push_str(&table.text());
    if !imported.skipped.is_empty() {
        text.push_str("\nskipped:\n");
    }
    for skipped in &imported.skipped {
        let _ = writeln!(
            text,
            "  {}: {}",
            haft_config::printable(&skipped.operation),
            haft_config::printable(&skipped.reason)
        );
    }
    let _ = write!(text, "\n{}, {} skipped", counted(imported.tools.len(), "tool"), imported.skipped.len());
    text
}

fn findings_json(imported: &ImportResult) -> Value {
    let tools = imported.tools.iter().map(|tool| {
        json!({
            "name": format!("rest__{}", tool.definition.name),
            "method": tool.plan.method().name(),
            "effects": tool.definition.effects.name(),
            "description": tool.definition.description,
        })
    });
    let skipped = imported.skipped.iter();
    let skipped = skipped.map(|skipped| json!({ "operation": skipped.operation, "reason": skipped.reason }));
    json!({
        "title": imported.title,
        "server": imported.base.as_str(),
        "tools": tools.collect::<Vec<_>>(),
        "skipped": skipped.collect::<Vec<_>>(),
    })
}
