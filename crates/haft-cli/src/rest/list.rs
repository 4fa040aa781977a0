//! `haft rest list`: lists the configured OpenAPI documents and tools, and the state of each.

use haft_sandbox::Home;
use serde_json::{Value, json};

use super::super::cli_error::CliError;
use super::super::settings;
use super::super::table::{Table, left};
use super::super::terminal::counted;
use super::args::RestListArgs;
use super::{RestCommandOutput, around};
use haft_config::resolved::RestSettings;
use haft_runtime::rest::{self, Freshness};

/// One line of the list of OpenAPI documents and REST tools.
struct RestToolRow {
    name: String,
    kind: &'static str,
    from: String,
    /// The number of tools and the number of skipped operations, or the problem.
    state: Result<(usize, usize), String>,
}

pub(super) async fn list(args: &RestListArgs) -> Result<RestCommandOutput, CliError> {
    let home = settings::home()?;
    let config = settings::configuration(&args.files)?.resolved.rest;
    let mut rows = described(&config, &home).await;
    rows.extend(written(&config, &home).await);
    let json = rows.iter().map(RestToolRow::json).collect();
    Ok(RestCommandOutput { text: table(&rows), json })
}

async fn described(config: &RestSettings, home: &Home) -> Vec<RestToolRow> {
    let mut rows = Vec::new();
    for (name, spec) in &config.specs {
        let imported = rest::import(name, spec, around(home, Freshness::Kept)).await;
        let state = imported.map(|imported| (imported.tools.len(), imported.skipped.len()));
        rows.push(RestToolRow { name: name.clone(), kind: "openapi", from: spec.place(), state });
    }
    rows
}

async fn written(config: &RestSettings, home: &Home) -> Vec<RestToolRow> {
    let alone = RestSettings { tools: config.tools.clone(), ..RestSettings::default() };
    let loaded = rest::load(&alone, around(home, Freshness::Kept)).await;
    let row = |(name, tool): (&String, &haft_config::resolved::RestToolSettings)| {
        let key = format!("restTools.{name}");
        let problem = loaded.problems.iter().find(|problem| problem.key == key);
        let state = problem.map_or(Ok((1, 0)), |problem| Err(problem.message.clone()));
        RestToolRow { name: name.clone(), kind: "tool", from: tool.method.name().to_owned(), state }
    };
    config.tools.iter().map(row).collect()
}

fn table(rows: &[RestToolRow]) -> String {
    if rows.is_empty() {
        return "no HTTP tools are configured; `haft rest add NAME FILE|URL` adds an OpenAPI document".into();
    }
    let mut table = Table::new(["NAME", "KIND", "FROM", "STATE"].map(left));
    for row in rows {
        table.row([row.name.as_str(), row.kind, &row.from, &haft_config::printable(&row.state())]);
    }
    table.text()
}

impl RestToolRow {
    fn state(&self) -> String {
        match &self.state {
            Ok((1, 0)) => "1 tool".into(),
            Ok((tools, skipped)) => format!("{}, {skipped} skipped", counted(tools, "tool")),
            Err(problem) => format!("not available: {problem}"),
        }
    }

    fn json(&self) -> Value {
        let (tools, skipped) =
            self.state.as_ref().map_or((None, None), |(tools, skipped)| (Some(tools), Some(skipped)));
        json!({
            "name": self.name,
            "kind": self.kind,
            "from": self.from,
            "tools": tools,
            "skipped": skipped,
            "problem": self.state.as_ref().err(),
        })
    }
}
