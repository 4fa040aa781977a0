//! `haft store`: backups of haft's data, and the export and deletion of the data of one principal.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use haft_config::printable;
use haft_core::principal::Principal;
use haft_store::audit_log::{AuditEvent, AuditLine, AuditLogFile};
use haft_store::backup::{self, ArchiveSummary, ExistingFile};
use haft_store::principal_data::{DeleteError, DeletedData, ExportError, PrincipalData};
use serde_json::json;

use super::args::{ArchiveArgs, StoreCommand};
use super::cli_error::CliError;
use super::settings;
use super::{question, terminal};
use haft_store::accounting::now_ms;

/// The interval between two progress lines of a backup.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn run(command: &StoreCommand) -> ExitCode {
    let done = match command {
        StoreCommand::Backup(args) => back_up(args),
        StoreCommand::Export { owner, archive } => export(&owner.principal, archive),
        StoreCommand::Delete { owner, yes, json } => delete(&owner.principal, *yes, *json).await,
    };
    match done {
        Ok(text) => terminal::answer(&text),
        Err(error) => error.report(),
    }
}

fn back_up(args: &ArchiveArgs) -> Result<String, CliError> {
    let mut last = Instant::now();
    let progress = |files: u64, bytes: u64| {
        if last.elapsed() >= PROGRESS_INTERVAL {
            last = Instant::now();
            terminal::note(&format!("{files} files, {bytes} bytes so far"));
        }
    };
    let written = backup::backup(&settings::home()?, &args.file, existing(args), progress);
    written.map(|summary| answer(args, summary)).map_err(|error| not_written(&args.file, &error))
}

fn export(owner: &Principal, args: &ArchiveArgs) -> Result<String, CliError> {
    let data = PrincipalData::of(&settings::home()?, owner.clone());
    let written = data.export(&args.file, existing(args)).map_err(|error| match error {
        ExportError::NotFound => no_data(owner),
        ExportError::Io(error) => not_written(&args.file, &error),
    });
    written.map(|summary| answer(args, summary))
}

fn existing(args: &ArchiveArgs) -> ExistingFile {
    if args.force { ExistingFile::Replaced } else { ExistingFile::Refused }
}

fn answer(args: &ArchiveArgs, summary: ArchiveSummary) -> String {
    let ArchiveSummary { files, bytes, skipped } = summary;
    let shown = printable(&args.file.to_string_lossy());
    if args.json {
        let skipped = paths(&skipped);
        return json!({"file": shown, "files": files, "bytes": bytes, "skipped": skipped}).to_string();
    }
    note_each(&skipped, "is not in the archive, because haft cannot read it or its holes are too large");
    format!("wrote {files} files with {bytes} bytes to {shown}")
}

fn paths(all: &[PathBuf]) -> Vec<String> {
    all.iter().map(|path| printable(&path.to_string_lossy())).collect()
}

fn note_each(all: &[PathBuf], text: &str) {
    for path in paths(all) {
        terminal::note(&format!("{path} {text}"));
    }
}

fn not_written(file: &Path, error: &io::Error) -> CliError {
    let shown = printable(&file.to_string_lossy());
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let hint = "choose another name, or replace the file with --force";
            CliError::input(format!("{shown} already exists")).with_hint(hint)
        }
        _ => CliError::internal(format!("haft cannot write {shown}: {error}")),
    }
}

async fn delete(owner: &Principal, yes: bool, json: bool) -> Result<String, CliError> {
    let shown = printable(&owner.to_string());
    if !yes {
        consent(&shown).await?;
    }
    let home = settings::home()?;
    let deleted = PrincipalData::of(&home, owner.clone()).delete().map_err(|error| match error {
        DeleteError::NotFound => no_data(owner),
        DeleteError::Busy => CliError::unavailable(error),
        DeleteError::Io(_) | DeleteError::Incomplete(_) => CliError::internal(printable(&error.to_string())),
    })?;
    let line = AuditLine {
        target: Some(deleted.pseudonym.clone()),
        ..AuditLine::new(now_ms(), AuditEvent::PrincipalDeleted)
    };
    let written = AuditLogFile::of(&home).append(line);
    written.map_err(|error| {
        let message = format!("haft deleted the data of {shown}, but cannot write to the audit log: {error}");
        CliError::internal(message)
    })?;
    if json {
        let DeletedData { removed, pseudonym, unreadable } = &deleted;
        let unreadable = paths(unreadable);
        return Ok(json!({"removed": removed, "pseudonym": pseudonym, "unreadable": unreadable}).to_string());
    }
    note_each(
        &deleted.unreadable,
        "was not deleted, because haft cannot read it; it may belong to another subject",
    );
    let pseudonym = printable(&deleted.pseudonym);
    Ok(format!(
        "deleted {} files and directories of {shown}; the usage records stay, under the pseudonym {pseudonym}",
        deleted.removed
    ))
}

fn no_data(owner: &Principal) -> CliError {
    let hint = "`haft keys list` shows the tenants and subjects of keys";
    CliError::input(format!("haft has no data of the principal {}", printable(&owner.to_string())))
        .with_hint(hint)
}

/// Asks the user at the terminal. A script must pass `--yes`.
async fn consent(owner: &str) -> Result<(), CliError> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        let hint = "--yes deletes the data without asking";
        let message = "nothing was deleted: haft needs a terminal to ask for your consent";
        return Err(CliError::denied(message).with_hint(hint));
    }
    let mut turn = question::turn().await;
    let typed = turn.key(&format!("delete all data of {owner}? [y] yes, any other key: no")).await;
    let agreed = typed.is_some_and(|typed| typed.trim_end().eq_ignore_ascii_case("y"));
    if agreed { Ok(()) } else { Err(CliError::denied("nothing was deleted, because you did not confirm")) }
}
