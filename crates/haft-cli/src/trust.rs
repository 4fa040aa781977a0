//! `haft trust`: lets the operator trust the configuration of a project.

mod programs;

use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use haft_sandbox::Home;
use serde_json::{Value, json};

use haft_config::agents::loader::project_agent_files;
use haft_config::project_instructions::{is_instruction_file, project_instruction_files};
use haft_config::skills::{self, Skill, project_skill_files};
use haft_config::trust::{self, FileDigest, FileTrust, TrustRecord};
use haft_config::{self, InspectedFile};

use super::args::TrustArgs;
use super::cli_error::CliError;
use super::config;
use super::settings;
use super::table::{Table, left};
use super::{question, terminal};

pub(super) async fn run(args: &TrustArgs) -> ExitCode {
    match answer(args).await {
        Ok(answer) if args.json => terminal::answer(&format!("{:#}", answer.json)),
        Ok(answer) => terminal::answer(&answer.text),
        Err(error) => error.report(),
    }
}

/// The output of a command, as text and as JSON.
struct TrustCommandOutput {
    text: String,
    json: Value,
}

async fn answer(args: &TrustArgs) -> Result<TrustCommandOutput, CliError> {
    let home = settings::home()?;
    if args.list {
        return list(&home);
    }
    let directory = args.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let paths = project_paths(&directory, args)?;
    if args.revoke {
        let answers = paths.iter().map(|path| revoke(&home, path)).collect::<Result<Vec<_>, _>>()?;
        return joined(answers);
    }
    let files = paths.iter().map(|path| inspect(&directory, path)).collect::<Result<Vec<_>, _>>()?;
    let overview = overview(&files);
    if !args.yes {
        consent(&overview, files.len()).await?;
    }
    change(&home, |record| {
        for file in &files {
            record.files.insert(file.path.clone(), file.digest.clone());
        }
    })?;
    let shown = if args.yes { format!("{overview}\n") } else { String::new() };
    let answer = joined(files.into_iter().map(ProjectFile::trusted).collect())?;
    Ok(TrustCommandOutput { text: format!("{shown}{}", answer.text), ..answer })
}

/// Returns the files of the project that can be trusted.
fn project_paths(directory: &Path, args: &TrustArgs) -> Result<Vec<PathBuf>, CliError> {
    let [servers, own] = trust::project_files(directory).map_err(|error| {
        CliError::input(format!("haft cannot read the project directory `{}`: {error}", directory.display()))
    })?;
    let also: Vec<PathBuf> = std::iter::once(servers)
        .filter(|path| path.exists())
        .chain(project_instruction_files(directory))
        .chain(project_skill_files(directory))
        .chain(project_agent_files(directory))
        .collect();
    let first = (own.exists() || args.revoke || also.is_empty()).then_some(own);
    Ok(first.into_iter().chain(also).collect())
}

/// Asks the user at the terminal. A script must pass `--yes`.
async fn consent(overview: &str, files: usize) -> Result<(), CliError> {
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !can_ask {
        terminal::note(overview);
        let hint = "review the files above, then trust them with `haft trust --yes`";
        return Err(CliError::denied("nothing was trusted: haft needs a terminal to ask for your consent")
            .with_hint(hint));
    }
    let mut turn = question::turn().await;
    terminal::prompt(overview);
    let these = if files == 1 { "this file".to_owned() } else { format!("these {files} files") };
    let typed = turn.key(&format!("trust {these}? [y] yes, any other key: no")).await;
    let agreed = typed.is_some_and(|typed| typed.trim_end().eq_ignore_ascii_case("y"));
    if agreed { Ok(()) } else { Err(CliError::denied("nothing was trusted, because you did not confirm")) }
}

/// Joins the outputs for all files of a project.
fn joined(answers: Vec<TrustCommandOutput>) -> Result<TrustCommandOutput, CliError> {
    let mut answers = answers.into_iter();
    // There is always a first output: if the project has no other file, it is the output for the project's
    // configuration.
    let first = answers.next().ok_or_else(|| CliError::input("the project has no files that need trust"))?;
    Ok(answers.fold(first, TrustCommandOutput::and))
}

impl TrustCommandOutput {
    /// Appends the output for another file of the project.
    fn and(mut self, other: Self) -> Self {
        match &mut self.json["also"] {
            Value::Array(others) => others.push(other.json),
            none => *none = Value::Array(vec![other.json]),
        }
        Self { text: format!("{}\n{}", self.text.trim_end(), other.text), json: self.json }
    }
}

/// A project file as the operator sees it before the decision. Exactly these bytes are trusted.
struct ProjectFile {
    path: PathBuf,
    digest: FileDigest,
    /// The content, escaped so that it is safe on a terminal.
    content: String,
    /// The programs, servers, agents and skills that the file defines, one line each.
    runs: Vec<String>,
    json: Value,
}

impl ProjectFile {
    fn trusted(self) -> TrustCommandOutput {
        let text = format!("trusted: {} (sha256 {})", named(&self.path), self.digest.as_str());
        TrustCommandOutput { text, json: self.json }
    }
}

/// Returns the content of all files, followed by the programs that they would run.
fn overview(files: &[ProjectFile]) -> String {
    let mut text = String::new();
    for file in files {
        let _ = writeln!(text, "{}:\n{}\n", named(&file.path), file.content.trim_end());
    }
    text.push_str("trusting these files allows:\n");
    for line in files.iter().flat_map(|file| &file.runs) {
        let _ = writeln!(text, "  {line}");
    }
    text
}

fn inspect(project: &Path, path: &Path) -> Result<ProjectFile, CliError> {
    let is_config =
        [haft_config::FILE_NAME, haft_config::MCP_FILE_NAME].iter().any(|name| path.ends_with(name));
    if is_config {
        inspect_config(project, path)
    } else if is_instruction_file(project, path) {
        inspect_text(path, "instructions for every model")
    } else if is_skill(path) {
        inspect_skill(project, path)
    } else {
        inspect_text(path, "agent")
    }
}

fn is_skill(path: &Path) -> bool {
    let in_skills = path.parent().is_some_and(|directory| directory.ends_with("skills"));
    path.ends_with(skills::FILE_NAME) || in_skills || skills::is_foreign_skill(path)
}

/// Reads a file whose whole text is used: an agent, a file that agents may include, or instructions.
fn inspect_text(path: &Path, purpose: &str) -> Result<ProjectFile, CliError> {
    let shown = named(path);
    let bytes =
        haft_config::file_bytes(path).map_err(|reason| CliError::input(format!("`{shown}`: {reason}")))?;
    let digest = FileDigest::of(&bytes);
    Ok(ProjectFile {
        path: path.to_owned(),
        content: printable_lines(&String::from_utf8_lossy(&bytes)),
        runs: vec![format!("{purpose} {shown}")],
        json: json!({ "path": path.to_string_lossy(), "sha256": digest.as_str() }),
        digest,
    })
}

/// Reads a skill file, and lists the servers that it starts.
fn inspect_skill(project: &Path, path: &Path) -> Result<ProjectFile, CliError> {
    let shown = named(path);
    let bytes =
        haft_config::file_bytes(path).map_err(|reason| CliError::input(format!("`{shown}`: {reason}")))?;
    let digest = FileDigest::of(&bytes);
    let text = String::from_utf8_lossy(&bytes);
    let skill = match Skill::read(path, &text, &crate::variables::variable) {
        Ok(skill) => skill,
        // The program for which this skill was written may accept the file, so show its text instead of an error.
        Err(_) if skills::is_foreign_skill(path) => {
            return inspect_text(path, "nothing: haft cannot use the skill");
        }
        Err(errors) => {
            let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let message = format!(
                "haft does not trust `{shown}`, because the file has errors: {}",
                messages.join("\n")
            );
            return Err(CliError::input(message));
        }
    };
    let servers: Vec<&String> = skill.servers.keys().collect();
    let programs = programs::of_skill(project, &skill);
    let mut runs = vec![format!("skill {}", haft_config::printable(&skill.name))];
    runs.extend(programs::servers_of_skill(&skill));
    Ok(ProjectFile {
        path: path.to_owned(),
        content: format!("{}{}", printable_lines(&text), programs::uncovered_lines(&programs)),
        runs,
        json: json!({
            "path": path.to_string_lossy(), "sha256": digest.as_str(), "skill": skill.name, "servers": servers,
            "notCovered": programs,
        }),
        digest,
    })
}

/// Reads the settings of a configuration file.
fn inspect_config(project: &Path, path: &Path) -> Result<ProjectFile, CliError> {
    let shown = named(path);
    let InspectedFile { digest, rows } = match haft_config::inspect(path, &crate::variables::variable) {
        Ok(Some(inspected)) => inspected,
        Ok(None) => return Err(CliError::input(format!("there is no file `{shown}`"))),
        Err(errors) => {
            return Err(CliError::input(format!(
                "haft does not trust `{shown}`, because the file has errors: {errors}"
            )));
        }
    };
    let sets: Vec<Value> = rows.iter().map(|row| json!({ "key": row.key, "value": row.value })).collect();
    let table = if rows.is_empty() { "the file has no settings\n".to_owned() } else { config::table(&rows) };
    let programs = programs::of_rows(project, &rows);
    let mut runs = vec![format!("settings of {shown}")];
    runs.extend(programs::commands_of_rows(&rows));
    Ok(ProjectFile {
        path: path.to_owned(),
        content: format!("{}{}", table.trim_end(), programs::uncovered_lines(&programs)),
        runs,
        json: json!({
            "path": path.to_string_lossy(), "sha256": digest.as_str(), "sets": sets, "notCovered": programs,
        }),
        digest,
    })
}

fn printable_lines(text: &str) -> String {
    text.trim_end().lines().map(haft_config::printable).collect::<Vec<_>>().join("\n")
}

fn revoke(home: &Home, path: &Path) -> Result<TrustCommandOutput, CliError> {
    let mut removed = None;
    change(home, |record| removed = record.files.remove(path))?;
    let outcome = if removed.is_some() { "no longer trusted" } else { "was not trusted" };
    Ok(TrustCommandOutput {
        text: format!("{outcome}: {}", named(path)),
        json: json!({ "path": path.to_string_lossy(), "revoked": removed.is_some() }),
    })
}

fn list(home: &Home) -> Result<TrustCommandOutput, CliError> {
    let record = TrustRecord::load(home).map_err(|error| broken(home, &error))?;
    let mut table = Table::new(["STATE", "FILE", "SHA256"].map(left));
    let mut files = Vec::new();
    for (path, digest) in &record.files {
        let (state, digest) = (state(path, digest), digest.as_str());
        table.row([state, &named(path), digest]);
        files.push(json!({ "path": path.to_string_lossy(), "sha256": digest, "state": state }));
    }
    let text = if files.is_empty() { "no file is trusted".to_owned() } else { table.text() };
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
    CliError::internal(format!(
        "haft cannot use the record of trusted files `{}`: {error}",
        trust::path_in(home).display()
    ))
}
