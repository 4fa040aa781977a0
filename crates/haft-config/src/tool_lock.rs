//! Reads and writes `haft.lock`, the tool definitions that a team has accepted.
//!
//! The lock file of a project needs no trust, because it can only disable tools. It applies in addition to the lock
//! file in haft's home directory and never replaces that file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haft_core::digest::Digest;
use haft_core::home::Home;
use haft_core::tool_lock::{CanonicalTool, LockFormat, LockedSource, ToolLock};
use haft_fs::private_file;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::ConfigError;
use super::file;

/// The name of the lock file, in a project and in haft's home directory.
pub const LOCK_FILE_NAME: &str = "haft.lock";

/// The format version that haft writes. It is also the newest version that haft reads.
const LOCK_VERSION: u64 = 2;

/// The format version of earlier versions of haft: the version of a server contains its name, and the addresses contain
/// no directories, environment variables and hosts of HTTP APIs.
const FORMER_LOCK_VERSION: u64 = 1;

/// The maximum size of a lock file, in bytes. It contains the definitions of all tools.
const LOCK_BYTES_MAX: u64 = 64 << 20;

/// The beginnings of lines that a version control system writes into a file with a conflict.
const CONFLICT_MARKERS: [&str; 3] = ["<<<<<<< ", "=======", ">>>>>>> "];

/// Returns the path of the lock file in haft's home directory.
pub fn path_in(home: &Home) -> PathBuf {
    home.root().join(LOCK_FILE_NAME)
}

/// Returns the path of the lock file that applies: the project's file, or the one in haft's home directory if only that
/// one exists or there is no project. The file need not exist.
pub fn path_for(project: Option<&Path>, home: Option<&Home>) -> Option<PathBuf> {
    let of_project =
        project.and_then(|directory| directory.canonicalize().ok()).map(|at| at.join(LOCK_FILE_NAME));
    let of_home = home.map(path_in);
    match (of_project, of_home) {
        (Some(project), Some(home)) if !project.exists() && home.exists() => Some(home),
        (Some(project), _) => Some(project),
        (None, home) => home,
    }
}

/// Returns the nearest lock file between a project directory without a lock file and the root of its repository. haft
/// reads project files only in the project directory itself.
pub(super) fn unused_in_repository(project: &Path) -> Option<PathBuf> {
    let project = project.canonicalize().ok()?;
    let has_lock = |directory: &&Path| directory.join(LOCK_FILE_NAME).exists();
    if has_lock(&project.as_path()) {
        return None;
    }
    let root = project.ancestors().find(|directory| directory.join(".git").exists())?;
    let mut inside = project.ancestors().take_while(|directory| directory.starts_with(root));
    inside.find(has_lock).map(|directory| directory.join(LOCK_FILE_NAME))
}

/// Reads a lock file; `None` if there is none.
pub fn load(path: &Path) -> Result<Option<Arc<ToolLock>>, ConfigError> {
    let Some(bytes) = file::bytes_up_to(path, LOCK_BYTES_MAX)? else { return Ok(None) };
    let text = file::text(path, bytes)?;
    parse(&text).map(|lock| Some(Arc::new(lock))).map_err(|problem| problem.at(path))
}

/// Writes a lock file atomically, with sorted keys, so that equal tools give equal bytes.
pub fn save(path: &Path, lock: &ToolLock) -> io::Result<()> {
    // Make the file readable for all users: the team reads it, in contrast to haft's own data.
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    private_file::replace_with_permissions(path, print(lock).as_bytes(), permissions)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LockFileVersion {
    lock_version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ToolLockFile {
    lock_version: u64,
    sources: BTreeMap<String, LockFileSource>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LockFileSource {
    address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instructions: Option<String>,
    tools: BTreeMap<String, LockFileTool>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockFileTool {
    digest: String,
    definition: Map<String, Value>,
}

/// A problem with a lock file.
#[derive(Debug, PartialEq, Eq)]
struct LockFileProblem {
    at: Option<(usize, usize)>,
    message: String,
}

impl LockFileProblem {
    fn whole(message: String) -> Self {
        Self { at: None, message }
    }

    fn at(self, path: &Path) -> ConfigError {
        let Self { at, message } = self;
        ConfigError { file: path.to_owned(), at, key: String::new(), message, hint: None }
    }
}

fn parse(text: &str) -> Result<ToolLock, LockFileProblem> {
    if let Some(line) = conflict(text) {
        let message =
            "the lock file has an unresolved merge conflict; resolve it, then review the tools".into();
        return Err(LockFileProblem { at: Some((line, 1)), message });
    }
    let malformed = |error: serde_json::Error| LockFileProblem {
        at: (error.line() > 0).then(|| (error.line(), error.column())),
        message: format!("the file is not a lock file: {error}"),
    };
    let LockFileVersion { lock_version } = serde_json::from_str(text).map_err(malformed)?;
    let format = match lock_version {
        LOCK_VERSION => LockFormat::Current,
        FORMER_LOCK_VERSION => LockFormat::Former,
        _ => {
            let message = format!(
                "the lock file has lock version {lock_version}, but this version of haft reads {FORMER_LOCK_VERSION} and {LOCK_VERSION}; use the version of haft that wrote the file"
            );
            return Err(LockFileProblem::whole(message));
        }
    };
    let ToolLockFile { sources, .. } = serde_json::from_str(text).map_err(malformed)?;
    let sources = sources.into_iter().map(|(key, source)| read_source(&key, source).map(|read| (key, read)));
    Ok(ToolLock { sources: sources.collect::<Result<_, _>>()?, format })
}

fn conflict(text: &str) -> Option<usize> {
    let is_marker = |line: &str| CONFLICT_MARKERS.iter().any(|marker| line.starts_with(marker));
    text.lines().position(is_marker).map(|line| line + 1)
}

fn read_source(key: &str, source: LockFileSource) -> Result<LockedSource, LockFileProblem> {
    let LockFileSource { address, name, version, instructions, tools } = source;
    let read = |(name, tool): (String, LockFileTool)| {
        let definition = CanonicalTool::from_members(tool.definition);
        if Digest::from_hex(&tool.digest) == Some(definition.digest()) {
            return Ok((name, definition));
        }
        Err(LockFileProblem::whole(format!(
            "the digest of tool `{name}` of {key} does not match its definition; the lock file was changed by hand or by a merge: restore it, or write a new one"
        )))
    };
    let tools = tools.into_iter().map(read).collect::<Result<_, _>>()?;
    Ok(LockedSource { address, name, version, instructions, tools })
}

fn print(lock: &ToolLock) -> String {
    let tool = |(name, tool): (&String, &CanonicalTool)| {
        let definition = sorted(tool.members());
        (name.clone(), LockFileTool { digest: tool.digest().to_string(), definition })
    };
    let source = |(key, source): (&String, &LockedSource)| {
        let LockedSource { address, name, version, instructions, tools } = source;
        let written = LockFileSource {
            address: address.clone(),
            name: name.clone(),
            version: version.clone(),
            instructions: instructions.clone(),
            tools: tools.iter().map(tool).collect(),
        };
        (key.clone(), written)
    };
    let file =
        ToolLockFile { lock_version: LOCK_VERSION, sources: lock.sources.iter().map(source).collect() };
    // Serialization of maps with text keys cannot fail.
    let mut text = serde_json::to_string_pretty(&file).unwrap_or_default();
    text.push('\n');
    text
}

/// Sorts the keys at every depth. Whether a `serde_json` map is sorted depends on a feature that any crate in the build
/// may enable.
fn sorted(members: &Map<String, Value>) -> Map<String, Value> {
    let by_key: BTreeMap<&String, &Value> = members.iter().collect();
    by_key.into_iter().map(|(key, value)| (key.clone(), sorted_value(value))).collect()
}

fn sorted_value(value: &Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(sorted(members)),
        Value::Array(items) => Value::Array(items.iter().map(sorted_value).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn example() -> ToolLock {
        let Value::Object(members) =
            json!({"name": "t", "description": "d", "inputSchema": {"type": "object"}})
        else {
            unreachable!()
        };
        let tools = [("t".to_owned(), CanonicalTool::from_members(members))].into();
        let source = LockedSource {
            address: "uvx x".into(),
            name: Some("x".into()),
            version: "1".into(),
            instructions: Some("i".into()),
            tools,
        };
        ToolLock { sources: [("mcp/x".to_owned(), source)].into(), ..ToolLock::default() }
    }

    #[test]
    fn printed_lock_parses_to_an_equal_lock_with_equal_bytes() {
        let text = print(&example());
        let parsed = parse(&text).unwrap();
        assert_eq!(parsed, example());
        assert_eq!(print(&parsed), text);
        assert!(text.ends_with("}\n") && text.lines().count() > 10, "{text}");
    }

    #[test]
    fn lock_file_of_the_former_format_is_read() {
        let text = print(&example())
            .replace("\"lockVersion\": 2", "\"lockVersion\": 1")
            .replace("      \"name\": \"x\",\n", "")
            .replace("\"version\": \"1\"", "\"version\": \"x 1\"");
        let former = parse(&text).unwrap();
        assert_eq!(former.format, LockFormat::Former);
        let source = &former.sources["mcp/x"];
        assert_eq!((source.name.as_deref(), source.version.as_str()), (None, "x 1"));
        assert_eq!(former.changes_to(&example()), []);
    }

    #[test]
    fn invalid_lock_file_is_refused_with_the_reason() {
        let good = print(&example());
        let check = |text: &str, expected: &str| {
            let problem = parse(text).unwrap_err();
            assert!(problem.message.contains(expected), "{problem:?}");
        };
        check("", "not a lock file");
        check("{\"lockVersion\": 1", "not a lock file");
        check("{}", "lockVersion");
        check("[]", "not a lock file");
        check(&good.replace("\"lockVersion\": 2", "\"lockVersion\": 0"), "lock version 0");
        check("{\"lockVersion\": 3, \"other\": []}", "use the version of haft that wrote the file");
        check(&good.replace("\"address\"", "\"adress\""), "adress");
        check(&good.replace("\"d\"", "\"e\""), "changed by hand or by a merge");
        check(&good.replace("  \"sources\"", "<<<<<<< HEAD\n  \"sources\""), "merge conflict");
        let conflict = parse("{\n<<<<<<< HEAD\n}").unwrap_err();
        assert_eq!(conflict.at, Some((2, 1)));
    }

    #[test]
    fn unused_lock_file_is_found_up_to_the_root_of_the_repository() {
        let dir = tempfile::tempdir().unwrap();
        let outer = dir.path().canonicalize().unwrap();
        let (root, sub) = (outer.join("repository"), outer.join("repository/a/b"));
        std::fs::create_dir_all(&sub).unwrap();
        save(&outer.join(LOCK_FILE_NAME), &example()).unwrap();
        assert_eq!(unused_in_repository(&sub), None, "there is no repository");
        std::fs::create_dir(root.join(".git")).unwrap();
        assert_eq!(unused_in_repository(&sub), None, "the lock file is outside the repository");
        save(&root.join(LOCK_FILE_NAME), &example()).unwrap();
        assert_eq!(unused_in_repository(&sub), Some(root.join(LOCK_FILE_NAME)));
        assert_eq!(unused_in_repository(&root), None);
        save(&sub.join(LOCK_FILE_NAME), &example()).unwrap();
        assert_eq!(unused_in_repository(&sub), None);
    }

    #[test]
    fn project_lock_file_overrides_the_lock_file_in_home() {
        let dir = tempfile::tempdir().unwrap();
        let (project, root) = (dir.path().join("project"), dir.path().join("home"));
        for directory in [&project, &root] {
            std::fs::create_dir(directory).unwrap();
        }
        let home = Home::at(&root);
        let project_lock = project.canonicalize().unwrap().join(LOCK_FILE_NAME);
        assert_eq!(path_for(Some(&project), Some(&home)), Some(project_lock.clone()));
        save(&root.join(LOCK_FILE_NAME), &example()).unwrap();
        assert_eq!(path_for(Some(&project), Some(&home)), Some(root.join(LOCK_FILE_NAME)));
        save(&project_lock, &example()).unwrap();
        assert_eq!(path_for(Some(&project), Some(&home)), Some(project_lock.clone()));
        assert_eq!(*load(&project_lock).unwrap().unwrap(), example());
        assert_eq!(load(&project.join("none")).unwrap(), None);
    }
}
