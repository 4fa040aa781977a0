//! Finds and reads agent files.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use haft_core::home::Home;

use crate::agents::foreign::{self, TranslatedAgent};
use crate::agents::{AgentDefinition, AgentError, AgentOverrides, AgentReadContext};
use crate::{UntrustedReason, environment};

/// The agent directories of a project. The first takes precedence.
const PROJECT_DIRECTORIES: [&str; 2] = [".haft/agents", "agents"];

/// The maximum number of files that are read from one agent directory; further files are ignored.
const FILES_MAX: usize = 200;

/// The extensions of the files that are trusted together: agents, their includes, and schemas.
const ENDINGS: [&str; 3] = ["md", "json", "txt"];

/// The directories in which agents are looked up by name.
#[derive(Debug, Clone, Default)]
pub struct AgentLoader {
    home: Option<Home>,
    /// The agent directories of the project. A file in them is used only while its digest is trusted.
    project: Vec<PathBuf>,
    /// The directories in the project that hold agent files of other programs. These files need the same trust.
    foreign: Vec<PathBuf>,
}

/// An agent, its file, and the texts that it was read from.
#[derive(Debug, Clone)]
pub struct AgentFile {
    pub agent: AgentDefinition,
    pub file: PathBuf,
    pub source: AgentSource,
}

/// The texts of one agent. They are stored with a run, so that the run can continue with the same agent after its files
/// have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSource {
    /// The path as shown in errors. The agent name is derived from it.
    pub file: String,
    pub text: String,
    /// The files that the agent includes, by the name in the include.
    pub includes: BTreeMap<String, String>,
}

impl AgentSource {
    /// Resolves the agent from its texts, without reading a file.
    pub fn resolve(
        &self,
        overrides: &AgentOverrides,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<AgentDefinition, AgentError> {
        let read = |name: &str| {
            self.includes.get(name).cloned().ok_or_else(|| {
                "a stored agent can include only the files that were stored with it".to_owned()
            })
        };
        AgentDefinition::read_with_overrides(
            &self.file,
            &self.text,
            overrides,
            AgentReadContext { read: &read, variable },
        )
    }
}

/// The reasons why an agent cannot be loaded, as messages for the user who named it.
#[derive(Debug, thiserror::Error)]
pub enum AgentLoadError {
    #[error("there is no agent `{}`", crate::printable(.name))]
    Unknown { name: String },
    #[error("{}: {}", .file.display(), untrusted_message(.reason))]
    Untrusted { file: PathBuf, reason: UntrustedReason },
    /// An include is not trusted, or has changed since it was trusted. The error has the line with the include.
    #[error("{0}")]
    UntrustedInclude(AgentError),
    #[error("{}: {problem}", .file.display())]
    Unreadable { file: PathBuf, problem: String },
    #[error("{0}")]
    Wrong(AgentError),
}

impl AgentLoader {
    pub fn new(home: Option<Home>, project: Option<&Path>) -> Self {
        let project = project.and_then(|project| project.canonicalize().ok());
        let dirs = |names: &[&str]| match &project {
            Some(project) => names.iter().map(|dir| project.join(dir)).collect(),
            None => Vec::new(),
        };
        Self { home, project: dirs(&PROJECT_DIRECTORIES), foreign: dirs(&foreign::PROJECT_DIRECTORIES) }
    }

    /// Reads a named agent: a file, or an agent in one of the directories, with or without its extension. The overrides
    /// apply to this agent only.
    pub fn read(&self, name: &str, overrides: &AgentOverrides) -> Result<AgentFile, AgentLoadError> {
        let file = Path::new(name);
        if file.is_file() && (is_explicit_path(file) || !self.has_agent(name)) {
            // A user who writes a path has chosen that file, so trust is not checked.
            return read(file, overrides, &|_, _| Ok(()));
        }
        self.read_file(&self.find(name)?, overrides)
    }

    /// Reads an agent that another agent names.
    pub fn open(&self, file: &Path) -> Result<AgentFile, AgentLoadError> {
        self.read_file(file, &AgentOverrides::default())
    }

    /// Finds the file of an agent that another agent's file names: in the directory of that file or below it, or in one
    /// of the agent directories.
    pub fn find_beside(&self, file: &Path, name: &str) -> Result<PathBuf, AgentLoadError> {
        let beside = file.parent().unwrap_or(Path::new(""));
        match with_ending(beside, name).find(|path| path.is_file()) {
            Some(path) => self.found(path),
            None => self.find(name),
        }
    }

    /// Reads all agents of the directories, sorted by name. If two agents have the same name, the one in the directory
    /// with precedence is used.
    pub fn all(&self) -> Vec<(PathBuf, Result<AgentFile, AgentLoadError>)> {
        let mut names = BTreeSet::new();
        let files = self.directories().flat_map(|dir| files_in(&dir));
        let agents = files.filter(|file| file.extension().is_some_and(|ending| ending == "md"));
        let mut all: Vec<_> = agents
            .filter(|file| names.insert(file.file_stem().map(ToOwned::to_owned)))
            .map(|file| (file.clone(), self.open(&file)))
            .collect();
        all.sort_by(|(one, _), (other, _)| one.file_stem().cmp(&other.file_stem()));
        all
    }

    /// Lists the directories in the order of precedence. Directories with agents of other programs come last, so that
    /// such an agent never replaces an agent that was written for haft.
    fn directories(&self) -> impl Iterator<Item = PathBuf> {
        let home = self.home.iter().map(|home| home.root().join("agents"));
        self.project.iter().cloned().chain(home).chain(self.foreign.iter().cloned())
    }

    fn of_project(&self) -> impl Iterator<Item = &PathBuf> {
        self.project.iter().chain(&self.foreign)
    }

    fn find(&self, name: &str) -> Result<PathBuf, AgentLoadError> {
        let unknown = || AgentLoadError::Unknown { name: name.to_owned() };
        self.found(self.look_for(name).ok_or_else(unknown)?)
    }

    fn has_agent(&self, name: &str) -> bool {
        self.look_for(name).is_some()
    }

    fn look_for(&self, name: &str) -> Option<PathBuf> {
        let mut paths = self.directories().flat_map(|dir| with_ending(&dir, name).collect::<Vec<_>>());
        paths.find(|path| path.is_file())
    }

    fn found(&self, file: PathBuf) -> Result<PathBuf, AgentLoadError> {
        match self.refuse_outside_link(&file) {
            Ok(()) => Ok(file),
            Err(reason) => Err(AgentLoadError::Untrusted { file, reason }),
        }
    }

    fn read_file(&self, file: &Path, overrides: &AgentOverrides) -> Result<AgentFile, AgentLoadError> {
        read(file, overrides, &|file, bytes| self.counts(file, bytes))
    }

    /// Checks trust: a file in a project's agent directory is used only if the operator has reviewed its current
    /// content.
    fn counts(&self, file: &Path, bytes: &[u8]) -> Result<(), UntrustedReason> {
        self.refuse_outside_link(file)?;
        let real = real(file);
        if self.of_project().any(|dir| real.starts_with(dir)) {
            return crate::trusted(&real, bytes, self.home.as_ref());
        }
        Ok(())
    }

    /// Refuses a link that leads out of a project's agent directory: it would turn a file elsewhere into an agent that
    /// the operator has not reviewed.
    fn refuse_outside_link(&self, file: &Path) -> Result<(), UntrustedReason> {
        let real = real(file);
        let leads_out = |dir: &PathBuf| is_below(file, dir) && !real.starts_with(dir);
        if self.of_project().any(leads_out) {
            let why = "the agent file is a symlink to a file outside the project's agents directory";
            return Err(UntrustedReason::Undecided(why.into()));
        }
        Ok(())
    }
}

/// Returns true for a path with a directory or an extension. For a bare name, the agent directories take precedence,
/// because a file with that name in the current directory could come from an untrusted source.
fn is_explicit_path(file: &Path) -> bool {
    file.extension().is_some() || file.components().count() > 1
}

/// Returns true if the path names a file below the directory, in any spelling.
fn is_below(file: &Path, dir: &Path) -> bool {
    let dir = real(dir);
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    file.ancestors().skip(1).any(|above| real(above) == dir)
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Lists the agent files of a project and the files next to them, trusted or not.
pub fn project_agent_files(project: &Path) -> Vec<PathBuf> {
    let loader = AgentLoader::new(None, Some(project));
    loader.of_project().flat_map(|dir| files_in(dir)).collect()
}

/// Lists files in the order of their paths, including subdirectories. Does not follow links.
fn files_in(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(directory) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten().take(FILES_MAX) {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && waiting.len() < FILES_MAX => waiting.push(entry.path()),
                Ok(kind) if kind.is_file() && is_ours(&entry.path()) => files.push(entry.path()),
                Ok(_) | Err(_) => {}
            }
        }
        if files.len() >= FILES_MAX {
            break;
        }
    }
    files.sort();
    files.truncate(FILES_MAX);
    files
}

fn is_ours(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known))
}

/// Checks that a file may be used, with exactly these bytes.
type TrustCheck<'a> = &'a dyn Fn(&Path, &[u8]) -> Result<(), UntrustedReason>;

/// Reads an agent with all its includes; `counts` checks that each file is trusted.
fn read(
    path: &Path,
    overrides: &AgentOverrides,
    counts: TrustCheck<'_>,
) -> Result<AgentFile, AgentLoadError> {
    let unreadable = |problem: String| AgentLoadError::Unreadable { file: path.to_owned(), problem };
    let text = text_of(path).map_err(unreadable)?;
    counts(path, text.as_bytes())
        .map_err(|reason| AgentLoadError::Untrusted { file: path.to_owned(), reason })?;
    let beside = path.parent().unwrap_or(Path::new(""));
    let includes = RefCell::new(BTreeMap::new());
    let untrusted = Cell::new(false);
    let read = |name: &str| {
        let file = inside(beside, name)?;
        let text = text_of(&file)?;
        counts(&file, text.as_bytes()).map_err(|reason| {
            untrusted.set(matches!(reason, UntrustedReason::Never | UntrustedReason::Changed));
            untrusted_message(&reason)
        })?;
        no_link_out(beside, &file)?;
        includes.borrow_mut().insert(name.to_owned(), text.clone());
        Ok(text)
    };
    let around = AgentReadContext { read: &read, variable: &environment };
    let name = path.display().to_string();
    let translated = foreign::translate(path, &text).map_err(AgentLoadError::Wrong)?;
    let (text, notes) =
        translated.map_or((text, Vec::new()), |TranslatedAgent { text, notes }| (text, notes));
    let mut agent =
        AgentDefinition::read_with_overrides(&name, &text, overrides, around).map_err(|error| {
            if untrusted.get() {
                AgentLoadError::UntrustedInclude(error)
            } else {
                AgentLoadError::Wrong(error)
            }
        })?;
    agent.warnings.extend(notes.iter().map(|note| format!("{}: {note}", crate::printable(&name))));
    let source = AgentSource { file: name, text, includes: includes.into_inner() };
    Ok(AgentFile { agent, file: path.to_owned(), source })
}

/// Returns the message that explains why a file is not used.
pub fn untrusted_message(reason: &UntrustedReason) -> String {
    match reason {
        UntrustedReason::Never => "the file is not trusted".to_owned(),
        UntrustedReason::Changed => "the file changed since it was trusted".to_owned(),
        UntrustedReason::Undecided(reason) => reason.clone(),
    }
}

/// Returns the paths that a name may refer to: first with the extension of agent files, then without. Returns none for
/// a name that leads out of the directory.
fn with_ending(directory: &Path, name: &str) -> impl Iterator<Item = PathBuf> {
    inside(directory, name).into_iter().flat_map(|path| [path.with_added_extension("md"), path])
}

/// Builds the agent of a run that names none. All its keys have their defaults.
pub fn default_agent(overrides: &AgentOverrides) -> Result<AgentFile, AgentError> {
    of_text("run", "", overrides)
}

/// Loads an agent from a text that is not in a file. The text cannot include files.
pub fn of_text(name: &str, text: &str, overrides: &AgentOverrides) -> Result<AgentFile, AgentError> {
    let source = AgentSource { file: name.to_owned(), text: text.to_owned(), includes: BTreeMap::new() };
    let agent = source.resolve(overrides, &environment)?;
    Ok(AgentFile { agent, file: PathBuf::new(), source })
}

/// Returns the path of an include, which must be in the directory of the agent or below.
fn inside(directory: &Path, name: &str) -> Result<PathBuf, String> {
    let stays =
        Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if stays {
        Ok(directory.join(name))
    } else {
        Err("an included file must be in the agent's directory".into())
    }
}

/// Refuses an include if a link leads out of the agent's directory. Otherwise a process that can write to that
/// directory could put any file of the user into the prompt.
fn no_link_out(directory: &Path, file: &Path) -> Result<(), String> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    if real(file).starts_with(real(directory)) {
        return Ok(());
    }
    Err("the included file is a link to a file outside the agent's directory; included files must be in that directory".into())
}

/// Reads the text of an agent or of an include. Does not block on a named pipe, which any process that can write to the
/// project could create.
fn text_of(file: &Path) -> Result<String, String> {
    String::from_utf8(crate::file_bytes(file)?).map_err(|_| "the file is not UTF-8".into())
}

/// Reads a file of at most `bytes_max` bytes; the error is a sentence for the user.
pub fn read_bounded(path: &Path, bytes_max: u64) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(bytes_max + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > bytes_max {
        return Err(format!("the file has more than {bytes_max} bytes"));
    }
    Ok(text)
}
