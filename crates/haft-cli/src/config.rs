//! `haft config`: shows which files apply, the effective values, and the schema of a file.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use haft_config::{
    self, ConfigError, ConfigErrors, ConfigFile, ConfigFileStatus, ConfigRow, ConfigSources, LoadedConfig,
    UntrustedReason,
};

use super::args::{ConfigCommand, ConfigFilesArgs, FileArgs};
use super::exit::ExitReason;
use super::table::{Table, left};
use super::terminal;

pub(super) fn run(command: &ConfigCommand) -> ExitCode {
    match command {
        ConfigCommand::Check(args) => check(args),
        ConfigCommand::Show(args) => show(args),
        ConfigCommand::Schema => terminal::answer(&format!("{:#}", haft_config::schema())),
    }
}

/// Loads the configuration of a run. Warns once about each project file that is ignored.
pub(super) fn load(args: &FileArgs) -> Result<LoadedConfig, ConfigErrors> {
    let loaded = read(args)?;
    for file in &loaded.files {
        if let ConfigFileStatus::Ignored(reason) = &file.standing {
            terminal::warn(&format!(
                "haft ignores the configuration file `{}`: {}",
                file.path.display(),
                why(reason, file)
            ));
        }
    }
    loaded.warnings.iter().for_each(|warning| terminal::warn(&warning.to_string()));
    Ok(loaded)
}

fn read(args: &FileArgs) -> Result<LoadedConfig, ConfigErrors> {
    let home = haft_runtime::home::find();
    let project = args.workspace.clone().or_else(|| std::env::current_dir().ok());
    let sources =
        ConfigSources { home: home.as_ref(), project: project.as_deref(), named: args.config.as_deref() };
    haft_config::load(sources, &crate::variables::variable)
}

fn check(args: &ConfigFilesArgs) -> ExitCode {
    match (read(&args.files), args.json) {
        (Ok(loaded), true) => {
            let files: Vec<Value> = loaded.files.iter().map(file_json).collect();
            let warnings: Vec<Value> = loaded.warnings.iter().map(error_json).collect();
            terminal::answer(&format!(
                "{:#}",
                json!({ "ok": true, "files": files, "errors": [], "warnings": warnings })
            ))
        }
        (Ok(loaded), false) => {
            loaded.warnings.iter().for_each(|warning| terminal::warn(&warning.to_string()));
            terminal::answer(&file_status_table(&loaded.files))
        }
        (Err(ConfigErrors(errors)), true) => {
            let errors: Vec<Value> = errors.iter().map(error_json).collect();
            let code = terminal::answer(&format!("{:#}", json!({ "ok": false, "errors": errors })));
            if code == ExitCode::SUCCESS { ExitReason::Input.into() } else { code }
        }
        (Err(errors), false) => terminal::failed(ExitReason::Input, &errors.to_string()),
    }
}

fn show(args: &ConfigFilesArgs) -> ExitCode {
    match load(&args.files) {
        Ok(loaded) if args.json => {
            let files: Vec<Value> = loaded.files.iter().map(file_json).collect();
            let keys: Vec<Value> = loaded.rows().iter().map(row_json).collect();
            terminal::answer(&format!("{:#}", json!({ "files": files, "keys": keys })))
        }
        Ok(loaded) => terminal::answer(&table(&loaded.rows())),
        Err(errors) => terminal::failed(ExitReason::Input, &errors.to_string()),
    }
}

fn file_status_table(files: &[ConfigFile]) -> String {
    if files.is_empty() {
        return "there is no configuration file; every key has its default value".into();
    }
    let mut text = String::new();
    for file in files {
        let standing = match &file.standing {
            ConfigFileStatus::Counts => "is in use".to_owned(),
            ConfigFileStatus::Ignored(reason) => format!("is ignored: {}", why(reason, file)),
        };
        let _ = writeln!(text, "{} {standing}", file.path.display());
    }
    text
}

/// Explains why a file is ignored and gives a hint.
fn why(reason: &UntrustedReason, file: &ConfigFile) -> String {
    let directory = file.path.parent().map(PathBuf::from).unwrap_or_default();
    let hint =
        format!("to review and trust the file, run `haft trust {}`", quoted(&directory.to_string_lossy()));
    match reason {
        UntrustedReason::Never => format!("the file is not trusted; {hint}"),
        UntrustedReason::Changed => format!("the file changed since it was trusted; {hint}"),
        UntrustedReason::Undecided(reason) => reason.clone(),
    }
}

/// Quotes text for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Formats keys, values and origins in columns.
pub(super) fn table(rows: &[ConfigRow]) -> String {
    let mut table = Table::new(["KEY", "VALUE", "FROM"].map(left));
    for row in rows {
        table.row(cells(row));
    }
    table.text()
}

fn cells(row: &ConfigRow) -> [String; 3] {
    let value = row.value.as_ref().map_or("-".to_owned(), Value::to_string);
    let value = match &row.unit {
        Some(unit) if row.value.as_ref().is_some_and(Value::is_number) => format!("{value} {unit}"),
        Some(_) | None => value,
    };
    let from = row.origin.as_ref().map_or_else(
        || if row.value.is_some() { "default".to_owned() } else { "not set".to_owned() },
        |origin| format!("{}:{}", origin.file.display(), origin.line),
    );
    [row.key.clone(), haft_config::printable(&value), from]
}

fn row_json(row: &ConfigRow) -> Value {
    let from = row.origin.as_ref().map(
        |origin| json!({ "file": origin.file.to_string_lossy(), "line": origin.line, "column": origin.column }),
    );
    json!({ "key": row.key, "value": row.value, "unit": row.unit, "from": from })
}

fn file_json(file: &ConfigFile) -> Value {
    let path = file.path.to_string_lossy();
    match &file.standing {
        ConfigFileStatus::Counts => json!({ "path": path, "counts": true }),
        ConfigFileStatus::Ignored(reason) => {
            json!({ "path": path, "counts": false, "reason": why(reason, file) })
        }
    }
}

fn error_json(error: &ConfigError) -> Value {
    let ConfigError { file, at, key, message, hint } = error;
    let (file, line, column) = (file.to_string_lossy(), at.map(|at| at.0), at.map(|at| at.1));
    json!({ "file": file, "line": line, "column": column, "key": key, "message": message, "hint": hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_path_is_shell_quoted() {
        assert_eq!(quoted("/a/b-c.d"), "/a/b-c.d");
        assert_eq!(quoted("/a b/$(x)'y"), "'/a b/$(x)'\\''y'");
    }

    #[test]
    fn config_table_prints_units_and_origins() {
        let row = |key: &str, value: Option<Value>, unit: Option<&str>| ConfigRow {
            key: key.into(),
            value,
            unit: unit.map(str::to_owned),
            origin: None,
        };
        let rows = [row("toolTimeout", Some(json!(5)), Some("milliseconds")), row("x", None, None)];
        let expected = "\
KEY          VALUE           FROM
toolTimeout  5 milliseconds  default
x            -               not set
";
        assert_eq!(table(&rows), expected);
    }
}
