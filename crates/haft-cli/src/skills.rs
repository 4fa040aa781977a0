//! `haft skills`: lists skills with their missing requirements, and checks their files.

pub(super) mod args;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use self::args::{SkillsCheckArgs, SkillsCommand, SkillsListArgs};
use super::args::FileArgs;
use super::cli_error::CliError;
use super::exit::ExitReason;
use super::settings;
use super::table::{Table, left};
use super::{hints, terminal};
use haft_config::agents::loader;
use haft_config::skills::{self, Skill, SkillError, Skills};
use haft_config::{self, printable};

pub(super) fn run(command: &SkillsCommand) -> ExitCode {
    match command {
        SkillsCommand::List(args) => list(args),
        SkillsCommand::Check(args) => check(args),
    }
}

/// Finds all skills of haft's home and of the project.
pub(super) fn found(files: &FileArgs) -> Result<Skills, CliError> {
    let home = settings::home()?;
    let project = files.workspace.clone().or_else(|| std::env::current_dir().ok());
    Ok(skills::load(Some(&home), project.as_deref(), &crate::variables::variable))
}

fn list(args: &SkillsListArgs) -> ExitCode {
    let found = match found(&args.files) {
        Ok(found) => found,
        Err(error) => return error.report(),
    };
    for error in &found.errors {
        terminal::warn(&format!("haft ignores a skill with an error: {error}"));
    }
    warn_of_keys(&found.skills);
    for (path, reason) in &found.ignored {
        let named = printable(&path.to_string_lossy());
        let message = format!("haft ignores the skill `{named}`: {}", loader::untrusted_message(reason));
        terminal::warn(&hints::with(&message, hints::untrusted(reason)));
    }
    let rows = found.skills.iter();
    terminal::answer(&if args.json {
        format!("{:#}", rows.map(as_json).collect::<Value>())
    } else {
        table(&found.skills)
    })
}

fn lacks(skill: &Skill) -> Vec<String> {
    skill.missing(&crate::variables::variable).iter().map(ToString::to_string).collect()
}

fn as_json(skill: &Skill) -> Value {
    json!({
        "name": skill.name,
        "description": skill.description,
        "triggers": skill.triggers,
        "requires": { "bins": skill.requires.programs, "env": skill.requires.variables },
        "missing": lacks(skill),
        "servers": skill.servers.keys().collect::<Vec<_>>(),
        "path": skill.path.to_string_lossy(),
    })
}

fn table(skills: &[Skill]) -> String {
    if skills.is_empty() {
        return "there are no skills; to add one, create $HAFT_HOME/skills/NAME/SKILL.md".into();
    }
    let mut table = Table::new(["NAME", "STATE", "SERVERS", "DESCRIPTION"].map(left));
    for skill in skills {
        let lacks = lacks(skill);
        let state = if lacks.is_empty() { "ready" } else { "lacking" };
        let servers = skill.servers.keys().cloned().collect::<Vec<_>>().join(", ");
        let servers = if servers.is_empty() { "-".to_owned() } else { servers };
        table.row([skill.name.as_str(), state, &servers, &printable(&skill.description)]);
        for sentence in &lacks {
            table.note(format!("  {}", printable(sentence)));
        }
    }
    table.text()
}

fn warn_of_keys(skills: &[Skill]) {
    for warning in skills.iter().flat_map(|skill| &skill.warnings) {
        terminal::warn(&warning.to_string());
    }
}

fn check(args: &SkillsCheckArgs) -> ExitCode {
    let errors = if args.paths.is_empty() {
        found(&args.files).map(|found| {
            warn_of_keys(&found.skills);
            found.errors
        })
    } else {
        let errors = args.paths.iter().map(|path| errors_of(path)).collect::<Result<Vec<_>, CliError>>();
        errors.map(|errors| errors.concat())
    };
    match errors {
        Err(error) => error.report(),
        Ok(errors) => {
            let code = terminal::answer(&if args.json { errors_json(&errors) } else { error_lines(&errors) });
            if code == ExitCode::SUCCESS && !errors.is_empty() { ExitReason::Input.into() } else { code }
        }
    }
}

/// Returns the errors of one skill. A directory means the skill file in it.
fn errors_of(path: &Path) -> Result<Vec<SkillError>, CliError> {
    let file: PathBuf = if path.is_dir() { path.join(skills::FILE_NAME) } else { path.to_owned() };
    let refused = |reason: String| CliError::input(format!("`{}`: {reason}", file.display()));
    let bytes = haft_config::file_bytes(&file).map_err(refused)?;
    let text = String::from_utf8(bytes).map_err(|_| refused("the file is not UTF-8".into()))?;
    let read = Skill::read(&file, &text, &crate::variables::variable);
    Ok(read.map(|skill| warn_of_keys(&[skill])).err().unwrap_or_default())
}

fn error_lines(errors: &[SkillError]) -> String {
    if errors.is_empty() {
        return "no errors".into();
    }
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn errors_json(errors: &[SkillError]) -> String {
    let error = |error: &SkillError| {
        let SkillError { path, line, message, hint } = error;
        json!({ "file": path.to_string_lossy(), "line": line, "message": message, "hint": hint })
    };
    let errors: Vec<Value> = errors.iter().map(error).collect();
    format!("{:#}", json!({ "ok": errors.is_empty(), "errors": errors }))
}
