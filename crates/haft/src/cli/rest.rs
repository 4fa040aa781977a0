//! `haft rest`: descriptions of APIs, added, listed and looked through.

use std::fmt::Write;
use std::process::ExitCode;

use haft_core::name::Namespace;
use haft_sandbox::Home;
use haft_tools::rest::RestTool;
use haft_tools::rest::openapi::{Imported, Source};
use serde_json::{Value, json};

use super::args::{RestAddArgs, RestCheckArgs, RestCommand, RestListArgs};
use super::exit::Exit;
use super::settings::{self, Refused};
use super::terminal;
use crate::config::resolved::{Secret, Spec};
use crate::config::{self, Resolved};
use crate::rest::{self, Addition, Around, Freshness};

/// What is said, to a person and to a program.
struct Answer {
    text: String,
    json: Value,
}

pub(super) async fn run(command: &RestCommand) -> ExitCode {
    let (answer, as_json) = match command {
        RestCommand::Add(args) => (add(args).await, args.json),
        RestCommand::List(args) => (list(args).await, args.json),
        RestCommand::Check(args) => (check(args).await, args.json),
    };
    match answer {
        Ok(answer) if as_json => terminal::answer(&format!("{:#}", answer.json)),
        Ok(answer) => terminal::answer(&answer.text),
        Err((exit, message)) => terminal::failed(exit, &message),
    }
}

/// All tools over HTTP; what cannot be used is said on standard error.
pub(super) async fn tools(config: &Resolved, home: &Home, freshness: Freshness) -> Vec<RestTool> {
    let loaded = rest::load(&config.rest, around(home, freshness)).await;
    for problem in &loaded.problems {
        terminal::warn(&format!("{} is left out: {}", problem.key, config::printable(&problem.message)));
    }
    loaded.tools
}

fn around(home: &Home, freshness: Freshness) -> Around<'_> {
    Around { home: Some(home), variables: &config::environment, freshness }
}

/// `NAME: VALUE`.
pub(super) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    let (name, value) = (name.trim(), value.trim());
    match http::HeaderName::from_bytes(name.as_bytes()) {
        Ok(_) => Ok((name.to_owned(), value.to_owned())),
        Err(_) => Err(format!("`{name}` is no name of a header")),
    }
}

/// The description is read before anything is written: what is added works.
async fn add(args: &RestAddArgs) -> Result<Answer, Refused> {
    let home = settings::home()?;
    let usage = |message: String| (Exit::Usage, message);
    Namespace::new(&args.name).map_err(|error| usage(error.to_string()))?;
    let addition = Addition {
        name: args.name.clone(),
        spec: absolute(&args.source)?,
        base_url: args.base_url.clone(),
        headers: args.headers.clone(),
    };
    let imported = rest::import(&args.name, &spec(&addition), around(&home, Freshness::Fetched))
        .await
        .map_err(|error| not_added(&config::printable(&error)))?;
    if imported.tools.is_empty() {
        return Err(not_added("no operation of it can be a tool"));
    }
    let path = rest::add(&home, &addition).map_err(|error| (Exit::Input, error.to_string()))?;
    let (tools, skipped) = (imported.tools.len(), imported.skipped.len());
    let name = &args.name;
    let text = format!(
        "added `{name}` to {}: {tools} tools, {skipped} operations skipped\n\
         `haft rest check {name}` lists them",
        path.display()
    );
    Ok(Answer {
        text,
        json: json!({ "name": name, "file": path.to_string_lossy(), "tools": tools, "skipped": skipped }),
    })
}

fn not_added(reason: &str) -> Refused {
    let hint =
        "hint: --base-url names the server, --header what lets you in; a variable must be set here too";
    (Exit::Input, format!("nothing was added: {reason}\n{hint}"))
}

/// A path that means the same wherever haft is run.
fn absolute(source: &str) -> Result<String, Refused> {
    match Source::parse(source).map_err(|error| (Exit::Usage, error.to_string()))? {
        Source::Url(_) => Ok(source.to_owned()),
        Source::File(path) => {
            let path = std::path::absolute(&path).map_err(|error| (Exit::Usage, error.to_string()))?;
            let text = path.to_str().ok_or((Exit::Usage, "the path is not UTF-8".to_owned()))?;
            Ok(text.to_owned())
        }
    }
}

fn spec(addition: &Addition) -> Spec {
    let headers = addition.headers.iter();
    Spec {
        base_url: addition.base_url.as_ref().map(Secret::new),
        headers: headers.map(|(name, value)| (name.clone(), Secret::new(value))).collect(),
        ..Spec::of(Secret::new(&addition.spec))
    }
}

async fn list(args: &RestListArgs) -> Result<Answer, Refused> {
    let home = settings::home()?;
    let config = settings::configuration(&args.files)?.resolved.rest;
    let mut rows = Vec::new();
    for (name, spec) in &config.specs {
        let imported = rest::import(name, spec, around(&home, Freshness::Kept)).await;
        let state = match &imported {
            Ok(imported) => format!("{} tools, {} skipped", imported.tools.len(), imported.skipped.len()),
            Err(error) => format!("not available: {}", config::printable(error)),
        };
        rows.push((
            name.clone(),
            "openapi",
            state,
            spec.place(),
            imported.map(|imported| imported.tools.len()),
        ));
    }
    let written = rest::load(
        &crate::config::resolved::Rest { tools: config.tools.clone(), ..Default::default() },
        around(&home, Freshness::Kept),
    )
    .await;
    for (name, tool) in &config.tools {
        let key = format!("restTools.{name}");
        let problem = written.problems.iter().find(|problem| problem.key == key);
        let state = problem
            .map_or_else(|| "1 tool".to_owned(), |problem| format!("not available: {}", problem.message));
        let count = problem.map_or(Ok(1), |problem| Err(problem.message.clone()));
        rows.push((name.clone(), "tool", state, tool.method.name().to_owned(), count));
    }
    let width = rows.iter().map(|row| row.0.len()).max().unwrap_or(0).max(4);
    let mut text = format!("{:<width$}  KIND     FROM AND STATE\n", "NAME");
    for (name, kind, state, place, _) in &rows {
        let _ = writeln!(text, "{name:<width$}  {kind:<7}  {place}: {state}");
    }
    if rows.is_empty() {
        text = "nothing is configured; `haft rest add NAME FILE|URL` adds a description".into();
    }
    let json = rows.iter().map(|(name, kind, _, place, count)| {
        json!({ "name": name, "kind": kind, "from": place, "tools": count.as_ref().ok(), "problem": count.as_ref().err() })
    });
    Ok(Answer { text, json: json.collect() })
}

async fn check(args: &RestCheckArgs) -> Result<Answer, Refused> {
    let home = settings::home()?;
    let config = settings::configuration(&args.files)?.resolved;
    let Some(spec) = config.rest.specs.get(&args.name) else {
        let known: Vec<&str> = config.rest.specs.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
        let message =
            format!("there is no description `{}`\nhint: `haft rest list` lists them: {known}", args.name);
        return Err((Exit::Input, message));
    };
    let imported = rest::import(&args.name, spec, around(&home, Freshness::Fetched)).await;
    let imported = imported.map_err(|error| {
        let hint = "hint: what is asked for can be set in haft.json, below openapiSpecs";
        (Exit::Input, format!("{}\n{hint}", config::printable(&error)))
    })?;
    Ok(Answer { text: findings(&imported), json: findings_json(&imported) })
}

fn findings(imported: &Imported) -> String {
    let tools = imported.tools.iter().map(|tool| (tool, format!("rest__{}", tool.definition.name)));
    let tools: Vec<(&RestTool, String)> = tools.collect();
    let width = tools.iter().map(|(_, name)| name.len()).max().unwrap_or(0).max(4);
    let title = imported.title.as_deref().unwrap_or("no title");
    let mut text = format!("{} at {}\n\n", config::printable(title), imported.base);
    let _ = writeln!(text, "{:<width$}  {:<10}  DESCRIPTION", "TOOL", "EFFECTS");
    for (tool, name) in &tools {
        let description: String = tool.definition.description.chars().take(80).collect();
        let _ = writeln!(
            text,
            "{name:<width$}  {:<10}  {}",
            tool.definition.effects.name(),
            config::printable(&description)
        );
    }
    if !imported.skipped.is_empty() {
        text.push_str("\nskipped:\n");
    }
    for skipped in &imported.skipped {
        let _ = writeln!(
            text,
            "  {}: {}",
            config::printable(&skipped.operation),
            config::printable(&skipped.reason)
        );
    }
    let _ = write!(text, "\n{} tools, {} skipped", tools.len(), imported.skipped.len());
    text
}

fn findings_json(imported: &Imported) -> Value {
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
