//! `haft trust`: lets the operator trust the configuration of a project.

mod programs;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use haft_sandbox::Home;
use serde_json::{Value, json};

use haft_config::agents::loader::project_agent_files;
use haft_config::skills::{self, Skill, project_skill_files};
use haft_config::trust::{self, FileDigest, FileTrust, TrustRecord};
use haft_config::{self, InspectedFile};

use super::args::TrustArgs;
use super::config::table;
use super::exit::ExitReason;
use super::settings::{self, CliError};
use super::terminal;

pub(super) fn run(args: &TrustArgs) -> ExitCode {
    match answer(args) {
        Ok(answer) if args.json => terminal::answer(&format!("{:#}", answer.json)),
        Ok(answer) => terminal::answer(&answer.text),
        Err((exit, message)) => terminal::failed(exit, &message),
    }
}

/// The output of a command, as text and as JSON.
struct TrustCommandOutput {
    text: String,
    json: Value,
}

fn answer(args: &TrustArgs) -> Result<TrustCommandOutput, CliError> {
    let home = settings::home()?;
    if args.list {
        return list(&home);
    }
    let directory = args.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let [servers, own] = trust::project_files(&directory)
        .map_err(|error| (ExitReason::Input, format!("directory `{}`: {error}", directory.display())))?;
    let also: Vec<PathBuf> = std::iter::once(servers)
        .filter(|path| path.exists())
        .chain(project_skill_files(&directory))
        .chain(project_agent_files(&directory))
        .collect();
    let first = (own.exists() || args.revoke || also.is_empty()).then_some(own);
    let answers = first
        .iter()
        .chain(&also)
        .map(|path| if args.revoke { revoke(&home, path) } else { grant(&home, &directory, path) });
    let mut answers = answers.collect::<Result<Vec<TrustCommandOutput>, CliError>>()?.into_iter();
    // Always present: without any other file it is the configuration of the project itself.
    let first = answers.next().ok_or_else(|| (ExitReason::Input, "there is nothing to trust".to_owned()))?;
    Ok(answers.fold(first, TrustCommandOutput::and))
}

impl TrustCommandOutput {
    /// Appends the output for another file of the project.
    fn and(mut self, other: Self) -> Self {
        match &mut self.json["also"] {
            Value::Array(others) => others.push(other.json),
            none => *none = Value::Array(vec![other.json]),
        }
        Self { text: format!("{}\n\n{}", self.text.trim_end(), other.text), json: self.json }
    }
}

fn grant(home: &Home, project: &Path, path: &Path) -> Result<TrustCommandOutput, CliError> {
    let is_config =
        [haft_config::FILE_NAME, haft_config::MCP_FILE_NAME].iter().any(|name| path.ends_with(name));
    if is_config {
        grant_config(home, project, path)
    } else if path.ends_with(skills::FILE_NAME) {
        grant_skill(home, project, path)
    } else {
        grant_agent(home, path)
    }
}

/// Shows the file of an agent, or one that agents may include, and trusts exactly these bytes.
fn grant_agent(home: &Home, path: &Path) -> Result<TrustCommandOutput, CliError> {
    let shown = named(path);
    let bytes = haft_config::file_bytes(path)
        .map_err(|reason| (ExitReason::Input, format!("`{shown}`: {reason}")))?;
    let digest = FileDigest::of(&bytes);
    change(home, |record| {
        record.files.insert(path.to_owned(), digest.clone());
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_end().lines().map(haft_config::printable).collect::<Vec<_>>().join("\n");
    Ok(TrustCommandOutput {
        text: format!("{text}\n\ntrusted: {shown} (sha256 {})", digest.as_str()),
        json: json!({ "path": path.to_string_lossy(), "sha256": digest.as_str() }),
    })
}

/// Shows a skill as a model would read it, and trusts exactly these bytes.
fn grant_skill(home: &Home, project: &Path, path: &Path) -> Result<TrustCommandOutput, CliError> {
    let shown = named(path);
    let bytes = haft_config::file_bytes(path)
        .map_err(|reason| (ExitReason::Input, format!("`{shown}`: {reason}")))?;
    let digest = FileDigest::of(&bytes);
    let text = String::from_utf8_lossy(&bytes);
    let skill = Skill::read(path, &text, &haft_config::environment).map_err(|errors| {
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        (ExitReason::Input, format!("`{shown}` is not trusted: {}", told.join("\n")))
    })?;
    change(home, |record| {
        record.files.insert(path.to_owned(), digest.clone());
    })?;
    let servers: Vec<&String> = skill.servers.keys().collect();
    let programs = programs::of_skill(project, &skill);
    Ok(TrustCommandOutput {
        text: format!(
            "{}\n\ntrusted: {shown} (sha256 {}){}",
            text.trim_end().lines().map(haft_config::printable).collect::<Vec<_>>().join("\n"),
            digest.as_str(),
            programs::told(&programs)
        ),
        json: json!({
            "path": path.to_string_lossy(), "sha256": digest.as_str(), "skill": skill.name, "servers": servers,
            "notCovered": programs,
        }),
    })
}

/// Shows the settings of a configuration file, and trusts exactly these bytes.
fn grant_config(home: &Home, project: &Path, path: &Path) -> Result<TrustCommandOutput, CliError> {
    let shown = named(path);
    let InspectedFile { digest, rows } = match haft_config::inspect(path, &haft_config::environment) {
        Ok(Some(inspected)) => inspected,
        Ok(None) => return Err((ExitReason::Input, format!("there is no `{shown}`"))),
        Err(errors) => return Err((ExitReason::Input, format!("`{shown}` is not trusted: {errors}"))),
    };
    change(home, |record| {
        record.files.insert(path.to_owned(), digest.clone());
    })?;
    let sets: Vec<Value> = rows.iter().map(|row| json!({ "key": row.key, "value": row.value })).collect();
    let table = if rows.is_empty() { "it sets nothing\n".to_owned() } else { table(&rows) };
    let programs = programs::of_rows(project, &rows);
    Ok(TrustCommandOutput {
        text: format!("{table}\ntrusted: {shown} (sha256 {}){}", digest.as_str(), programs::told(&programs)),
        json: json!({
            "path": path.to_string_lossy(), "sha256": digest.as_str(), "sets": sets, "notCovered": programs,
        }),
    })
}

fn revoke(home: &Home, path: &Path) -> Result<TrustCommandOutput, CliError> {
    let mut removed = None;
    change(home, |record| removed = record.files.remove(path))?;
    let said = if removed.is_some() { "no longer trusted" } else { "was not trusted" };
    Ok(TrustCommandOutput {
        text: format!("{said}: {}", named(path)),
        json: json!({ "path": path.to_string_lossy(), "revoked": removed.is_some() }),
    })
}

fn list(home: &Home) -> Result<TrustCommandOutput, CliError> {
    let record = TrustRecord::load(home).map_err(|error| broken(home, &error))?;
    let mut text = String::new();
    let mut files = Vec::new();
    for (path, digest) in &record.files {
        let (state, digest) = (state(path, digest), digest.as_str());
        let _ = writeln!(text, "{state:<8} {digest} {}", named(path));
        files.push(json!({ "path": path.to_string_lossy(), "sha256": digest, "state": state }));
    }
    if files.is_empty() {
        text.push_str("nothing is trusted");
    }
    Ok(TrustCommandOutput { text, json: Value::Array(files) })
}

/// Returns the printable name of a file. The author of the project chose it, so it may contain control characters.
fn named(path: &Path) -> String {
    haft_config::printable(&path.to_string_lossy())
}

/// Returns the current state of a trusted file.
fn state(path: &Path, recorded: &FileDigest) -> &'static str {
    match haft_config::digest_of(path).map(|found| trust::decide(Some(recorded), &found)) {
        Some(FileTrust::Trusted) => "trusted",
        Some(FileTrust::Changed | FileTrust::Never) => "changed",
        None => "gone",
    }
}

fn change(home: &Home, change: impl FnOnce(&mut TrustRecord)) -> Result<(), CliError> {
    TrustRecord::change(home, change).map_err(|error| broken(home, &error))
}

fn broken(home: &Home, error: &std::io::Error) -> CliError {
    (ExitReason::Internal, format!("`{}` cannot be used: {error}", trust::path_in(home).display()))
}
