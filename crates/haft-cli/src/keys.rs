//! `haft keys`: manages the API keys of `haft serve`.

use std::io;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haft_config::printable;
use haft_store::api_keys::{ApiKeyRecord, ApiKeySecret, ApiKeyStore, KeyLimits, KeyScope, NewApiKey};
use haft_store::audit_log::{AuditEvent, AuditLine, AuditLogFile};
use serde_json::{Value, json};

use super::args::{KeysCommand, KeysCreateArgs, KeysRotateArgs};
use super::cli_error::CliError;
use super::settings;
use super::table::{Table, left};
use super::terminal;

pub(super) fn run(command: &KeysCommand) -> ExitCode {
    let done = match command {
        KeysCommand::Create(args) => create(args),
        KeysCommand::Rotate(args) => rotate(args),
        KeysCommand::List { json: true } => list().map(|keys| format!("{keys:#}")),
        KeysCommand::List { json: false } => table(),
        KeysCommand::Revoke { ids } => revoke(ids),
    };
    match done {
        Ok(text) => terminal::answer(&text),
        Err(error) => error.report(),
    }
}

pub(super) fn store() -> Result<ApiKeyStore, CliError> {
    Ok(ApiKeyStore::of(&settings::home()?))
}

fn create(args: &KeysCreateArgs) -> Result<String, CliError> {
    let now = now_ms();
    let new = NewApiKey {
        name: args.name.clone(),
        tenant: args.tenant.clone(),
        subject: args.subject.clone().unwrap_or_else(|| args.name.clone()),
        scopes: if args.scopes.is_empty() { vec![KeyScope::Api] } else { args.scopes.clone() },
        expires_ms: args.expires.map(|expires| later(now, expires)),
        limits: KeyLimits {
            requests_per_minute: args.requests_per_minute,
            tokens_per_minute: args.tokens_per_minute,
            concurrent_responses: args.concurrent_responses,
            nano_usd_per_month: args.usd_per_month.map(|usd| u64::from(usd) * 1_000_000_000),
        },
    };
    let (record, secret) = create_key(new, now)?;
    if args.json {
        return Ok(secret_json(&record, &secret));
    }
    terminal::note(&format!("created the API key {}; haft shows the key only this once", record.id));
    Ok(secret.expose().to_owned())
}

/// Gives a key a new secret. The old secret stays valid for the overlap.
fn rotate(args: &KeysRotateArgs) -> Result<String, CliError> {
    let rotated = store()?.rotate(&args.id, later(now_ms(), args.overlap));
    let (record, secret) = rotated.map_err(|error| unusable(&error))?.ok_or_else(|| no_key(&args.id))?;
    audit(AuditEvent::KeyRotated, &record)?;
    if args.json {
        return Ok(secret_json(&record, &secret));
    }
    terminal::note(&format!(
        "rotated the API key {}; haft shows the new key only this once, and the old key stays valid for {} s",
        record.id,
        args.overlap.as_secs()
    ));
    Ok(secret.expose().to_owned())
}

fn secret_json(record: &ApiKeyRecord, secret: &ApiKeySecret) -> String {
    let mut shown = as_json(record);
    shown["key"] = secret.expose().into();
    format!("{shown:#}")
}

/// Returns a time after `now_ms`, in milliseconds since 1970.
fn later(now_ms: u64, time: Duration) -> u64 {
    now_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn no_key(id: &str) -> CliError {
    let message = format!("there is no API key with the id `{}`", printable(id));
    CliError::input(message).with_hint("`haft keys list` shows the ids of all keys")
}

/// Creates a key and records that in the audit log.
pub(super) fn create_key(new: NewApiKey, now_ms: u64) -> Result<(ApiKeyRecord, ApiKeySecret), CliError> {
    let created = store()?.create(new, now_ms).map_err(|error| unusable(&error))?;
    audit(AuditEvent::KeyCreated, &created.0)?;
    Ok(created)
}

/// Appends a line about a key to the audit log. Returns an error if the line cannot be written, although the key is
/// already changed.
fn audit(event: AuditEvent, key: &ApiKeyRecord) -> Result<(), CliError> {
    let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.name()).collect();
    let line = AuditLine {
        target: Some(key.id.clone()),
        detail: Some(format!("{}/{} {}", key.tenant, key.subject, scopes.join(","))),
        ..AuditLine::new(now_ms(), event)
    };
    let written = AuditLogFile::of(&settings::home()?).append(line);
    written.map_err(|error| {
        let message =
            format!("haft changed the API key {}, but cannot write to the audit log: {error}", key.id);
        CliError::internal(message)
    })
}

fn list() -> Result<Value, CliError> {
    let keys = store()?.load().map_err(|error| unusable(&error))?;
    Ok(keys.all().iter().map(as_json).collect())
}

fn as_json(key: &ApiKeyRecord) -> Value {
    json!({
        "id": key.id, "name": key.name, "prefix": key.prefix, "tenant": key.tenant, "subject": key.subject,
        "scopes": key.scopes, "created_ms": key.created_ms, "expires_ms": key.expires_ms,
        "previous_key_expires_ms": key.previous_expires_ms(), "limits": key.limits,
    })
}

fn table() -> Result<String, CliError> {
    let keys = store()?.load().map_err(|error| unusable(&error))?;
    if keys.all().is_empty() {
        return Ok("There are no API keys. `haft keys create NAME` creates one.".into());
    }
    let now = now_ms();
    let mut table = Table::new(["ID", "KEY", "NAME", "OWNER", "SCOPES", "STATE"].map(left));
    for key in keys.all() {
        let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.name()).collect();
        let owner = format!("{}/{}", printable(&key.tenant), printable(&key.subject));
        let prefix = format!("{}…", key.prefix);
        let state = if key.is_expired(now) { "expired" } else { "valid" };
        let name = printable(&key.name);
        table.row([key.id.as_str(), &prefix, &name, &owner, &scopes.join(", "), state]);
    }
    Ok(table.text())
}

fn revoke(ids: &[String]) -> Result<String, CliError> {
    let revoked = store()?.revoke(ids).map_err(|error| unusable(&error))?;
    for key in &revoked {
        audit(AuditEvent::KeyRevoked, key)?;
    }
    let missing: Vec<&String> = ids.iter().filter(|id| revoked.iter().all(|key| key.id != **id)).collect();
    if let Some(id) = missing.first() {
        return Err(no_key(id));
    }
    Ok(format!("revoked {}", terminal::counted(revoked.len(), "key")))
}

pub(super) fn unusable(error: &io::Error) -> CliError {
    CliError::internal(format!("haft cannot read or write the API keys: {error}"))
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
