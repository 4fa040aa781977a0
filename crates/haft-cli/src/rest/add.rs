//! `haft rest add` and `haft rest remove`: change one entry of a configuration file, and leave the rest unchanged.

use std::path::Path;

use haft_core::name::Namespace;
use haft_tools::rest::openapi::OpenApiSource;
use serde_json::{Map, Value, json};

use super::super::cli_error::CliError;
use super::super::settings;
use super::super::terminal::counted;
use super::super::tools::{search_note, tokens_by_length, tokens_text};
use super::args::{RestAddArgs, RestRemoveArgs};
use super::{RestCommandOutput, around};
use haft_config::edit::{self, ConfigEntry, EditError};
use haft_config::resolved::{OpenapiSettings, Secret};
use haft_config::{self};
use haft_runtime::rest::{self, Freshness};

/// The section of a configuration file for OpenAPI documents.
const SECTION: &str = "openapiSpecs";

/// Parses a header in the form `NAME: VALUE`.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected a header as NAME: VALUE")?;
    let (name, value) = (name.trim(), value.trim());
    match http::HeaderName::from_bytes(name.as_bytes()) {
        Ok(_) => Ok((name.to_owned(), value.to_owned())),
        Err(_) => Err(format!("`{name}` is not a valid header name")),
    }
}

/// Adds an OpenAPI document. Reads it before writing the configuration, so that only a valid document is added.
pub(super) async fn add(args: &RestAddArgs) -> Result<RestCommandOutput, CliError> {
    let home = settings::home()?;
    Namespace::new(&args.name).map_err(CliError::usage)?;
    let entry = ConfigEntry { section: SECTION, name: &args.name };
    let path = home.config();
    if !args.replace {
        // Check this first, because reading the document is slow.
        edit::check_free(&path, entry).map_err(|error| refused(&error))?;
    }
    let source = absolute(&args.source)?;
    let imported = rest::import(&args.name, &spec(args, &source), around(&home, Freshness::Fetched))
        .await
        .map_err(|error| not_added(&haft_config::printable(&error)))?;
    if imported.tools.is_empty() {
        return Err(not_added("haft cannot use any operation of the OpenAPI document as a tool"));
    }
    let write = if args.replace { edit::put } else { edit::add };
    write(&path, entry, &value(args, &source)).map_err(|error| refused(&error))?;
    let (tools, skipped) = (imported.tools.len(), imported.skipped.len());
    let name = &args.name;
    let tokens = tokens_by_length(imported.tools.iter().map(|tool| &tool.definition));
    let (cost, search) = (tokens_text(tokens), search_note(tools));
    let text = format!(
        "added `{name}` to {}: {} ({cost}), {} skipped\n`haft rest check {name}` lists the tools{search}",
        path.display(),
        counted(tools, "tool"),
        counted(skipped, "operation")
    );
    Ok(RestCommandOutput {
        text,
        json: json!({
            "name": name, "file": path.to_string_lossy(), "tools": tools, "tokens": tokens.count(), "skipped": skipped
        }),
    })
}

pub(super) fn remove(args: &RestRemoveArgs) -> Result<RestCommandOutput, CliError> {
    let home = settings::home()?;
    let (path, name) = (home.config(), &args.name);
    edit::remove(&path, ConfigEntry { section: SECTION, name })
        .map_err(|error| removal_refused(&path, &error))?;
    let text = format!("removed `{name}` from {}", path.display());
    Ok(RestCommandOutput { text, json: json!({ "name": name, "file": path.to_string_lossy() }) })
}

fn refused(error: &EditError) -> CliError {
    let hint = match error {
        EditError::Exists { .. } => {
            Some("choose another name, remove the old entry first, or replace it with --replace")
        }
        EditError::Absent { .. }
        | EditError::Unreadable(..)
        | EditError::Invalid(_)
        | EditError::Unwritable(..)
        | EditError::Changed(_) => None,
    };
    CliError::input(error).with_optional_hint(hint)
}

fn removal_refused(path: &Path, error: &EditError) -> CliError {
    let hint = match error {
        EditError::Absent { .. } => Some(format!(
            "`haft rest list` lists all OpenAPI documents; this command changes only {}",
            path.display()
        )),
        EditError::Exists { .. }
        | EditError::Unreadable(..)
        | EditError::Invalid(_)
        | EditError::Unwritable(..)
        | EditError::Changed(_) => None,
    };
    CliError::input(error).with_optional_hint(hint)
}

fn not_added(reason: &str) -> CliError {
    let hint = "--base-url sets the server and --header sets credentials; the variables in both must be set in this shell";
    CliError::input(format!("haft did not add the OpenAPI document: {reason}")).with_hint(hint)
}

/// Returns the source with an absolute path, so that it is valid from every directory.
fn absolute(source: &str) -> Result<String, CliError> {
    match OpenApiSource::parse(source).map_err(CliError::usage)? {
        OpenApiSource::Url(_) => Ok(source.to_owned()),
        OpenApiSource::File(path) => {
            let path = std::path::absolute(&path).map_err(CliError::usage)?;
            let text =
                path.to_str().ok_or(CliError::usage("the path of the OpenAPI document is not UTF-8"))?;
            Ok(text.to_owned())
        }
    }
}

/// Returns the entry of the document for the configuration file.
fn value(args: &RestAddArgs, source: &str) -> Value {
    let mut spec = Map::from_iter([("spec".to_owned(), json!(source))]);
    spec.extend(args.base_url.iter().map(|url| ("baseUrl".to_owned(), json!(url))));
    if !args.headers.is_empty() {
        let headers: Map<String, Value> =
            args.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        spec.insert("headers".into(), Value::Object(headers));
    }
    Value::Object(spec)
}

/// Returns the resolved form of the same entry.
fn spec(args: &RestAddArgs, source: &str) -> OpenapiSettings {
    let headers = args.headers.iter();
    OpenapiSettings {
        base_url: args.base_url.as_ref().map(Secret::new),
        headers: headers.map(|(name, value)| (name.clone(), Secret::new(value))).collect(),
        ..OpenapiSettings::of(Secret::new(source))
    }
}
