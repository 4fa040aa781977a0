//! Where the files of agents are found, and how they are read.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use haft_core::home::Home;

use crate::agents::{Agent, AgentError, Around, Overrides};
use crate::{Untrusted, environment};

/// Where agents of a project lie, the stronger first.
const PROJECT_PLACES: [&str; 2] = [".haft/agents", "agents"];

/// How many files one directory of agents may hold; more are not looked at.
const FILES_MAX: usize = 200;

/// Which files beside agents are trusted with them: what they include, and schemas.
const ENDINGS: [&str; 3] = ["md", "json", "txt"];

/// The directories in which agents are looked for by name.
#[derive(Debug, Clone, Default)]
pub struct Shelf {
    home: Option<Home>,
    /// Those of the project. A file there counts only while its digest is trusted.
    project: Vec<PathBuf>,
}

/// An agent and the file it stands in.
#[derive(Debug)]
pub struct OnShelf {
    pub agent: Agent,
    pub file: PathBuf,
}

/// Why an agent cannot be had; read by whoever named it.
#[derive(Debug)]
pub enum ShelfError {
    Unknown { name: String },
    Untrusted { file: PathBuf, reason: Untrusted },
    Unreadable { file: PathBuf, problem: String },
    Wrong(AgentError),
}

impl Shelf {
    pub fn new(home: Option<Home>, project: Option<&Path>) -> Self {
        let project = project.and_then(|project| project.canonicalize().ok());
        let places = project.iter().flat_map(|project| PROJECT_PLACES.map(|place| project.join(place)));
        Self { home, project: places.collect() }
    }

    /// An agent that was named: a file, else one of a directory, with or without its ending. What says the overrides
    /// speaks of it alone.
    pub fn read(&self, name: &str, overrides: &Overrides) -> Result<OnShelf, ShelfError> {
        let file = Path::new(name);
        if file.is_file() && (is_written_out(file) || !self.knows(name)) {
            // Whoever writes out a path has looked at what lies there.
            return read(file, overrides, &|_, _| Ok(()));
        }
        self.read_file(&self.on_shelf(name)?, overrides)
    }

    /// An agent that another one names.
    pub fn open(&self, file: &Path) -> Result<OnShelf, ShelfError> {
        self.read_file(file, &Overrides::default())
    }

    /// The file of an agent that the one of another file names: beside it or below, else in one of the directories.
    pub fn find_beside(&self, file: &Path, name: &str) -> Result<PathBuf, ShelfError> {
        let beside = file.parent().unwrap_or(Path::new(""));
        match with_ending(beside, name).find(|path| path.is_file()) {
            Some(path) => self.found(path),
            None => self.on_shelf(name),
        }
    }

    /// All agents of the directories, by name; what stands nearer to the work has the name.
    pub fn all(&self) -> Vec<(PathBuf, Result<OnShelf, ShelfError>)> {
        let mut names = BTreeSet::new();
        let files = self.directories().flat_map(|place| files_in(&place));
        let agents = files.filter(|file| file.extension().is_some_and(|ending| ending == "md"));
        let mut all: Vec<_> = agents
            .filter(|file| names.insert(file.file_stem().map(ToOwned::to_owned)))
            .map(|file| (file.clone(), self.open(&file)))
            .collect();
        all.sort_by(|(one, _), (other, _)| one.file_stem().cmp(&other.file_stem()));
        all
    }

    fn directories(&self) -> impl Iterator<Item = PathBuf> {
        let home = self.home.iter().map(|home| home.root().join("agents"));
        self.project.iter().cloned().chain(home)
    }

    fn on_shelf(&self, name: &str) -> Result<PathBuf, ShelfError> {
        let unknown = || ShelfError::Unknown { name: name.to_owned() };
        self.found(self.look_for(name).ok_or_else(unknown)?)
    }

    fn knows(&self, name: &str) -> bool {
        self.look_for(name).is_some()
    }

    fn look_for(&self, name: &str) -> Option<PathBuf> {
        let mut paths = self.directories().flat_map(|place| with_ending(&place, name).collect::<Vec<_>>());
        paths.find(|path| path.is_file())
    }

    fn found(&self, file: PathBuf) -> Result<PathBuf, ShelfError> {
        match self.stays(&file) {
            Ok(()) => Ok(file),
            Err(reason) => Err(ShelfError::Untrusted { file, reason }),
        }
    }

    fn read_file(&self, file: &Path, overrides: &Overrides) -> Result<OnShelf, ShelfError> {
        read(file, overrides, &|file, bytes| self.counts(file, bytes))
    }

    /// What lies in a project's directory of agents counts only as the operator has seen it.
    fn counts(&self, file: &Path, bytes: &[u8]) -> Result<(), Untrusted> {
        self.stays(file)?;
        let real = real(file);
        if self.project.iter().any(|place| real.starts_with(place)) {
            return crate::trusted(&real, bytes, self.home.as_ref());
        }
        Ok(())
    }

    /// What is named in a project's directory of agents lies there: a link to a file elsewhere would make of that an agent that
    /// nobody has looked at.
    fn stays(&self, file: &Path) -> Result<(), Untrusted> {
        let real = real(file);
        let leads_out = |place: &PathBuf| is_below(file, place) && !real.starts_with(place);
        if self.project.iter().any(leads_out) {
            let why = "it is a link to a file elsewhere; agents of a project, and what they include, lie in their directory";
            return Err(Untrusted::Undecided(why.into()));
        }
        Ok(())
    }
}

/// A bare name may mean an agent of a directory, and a file of that name may be anybody's.
fn is_written_out(file: &Path) -> bool {
    file.extension().is_some() || file.components().count() > 1
}

/// Whether a file is named by way of a directory, however that is written.
fn is_below(file: &Path, place: &Path) -> bool {
    let place = real(place);
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    file.ancestors().skip(1).any(|above| real(above) == place)
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The files of a project's agents and what lies beside them, whether they count or not.
pub fn project_agent_files(project: &Path) -> Vec<PathBuf> {
    let shelf = Shelf::new(None, Some(project));
    shelf.project.iter().flat_map(|place| files_in(place)).collect()
}

/// In order of their paths, those in directories below included. Links are not followed.
fn files_in(place: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut waiting = vec![place.to_owned()];
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

/// Whether a file may be used, with exactly these bytes.
type Counts<'a> = &'a dyn Fn(&Path, &[u8]) -> Result<(), Untrusted>;

/// Reads an agent with all it includes; `counts` says of each file whether it may be used.
fn read(path: &Path, overrides: &Overrides, counts: Counts<'_>) -> Result<OnShelf, ShelfError> {
    let unreadable = |problem: String| ShelfError::Unreadable { file: path.to_owned(), problem };
    let text = text_of(path).map_err(unreadable)?;
    counts(path, text.as_bytes())
        .map_err(|reason| ShelfError::Untrusted { file: path.to_owned(), reason })?;
    let beside = path.parent().unwrap_or(Path::new(""));
    let read = |name: &str| {
        let file = inside(beside, name)?;
        let text = text_of(&file)?;
        counts(&file, text.as_bytes()).map_err(|reason| why(&reason))?;
        Ok(text)
    };
    let around = Around { read: &read, variable: &environment };
    let agent = Agent::read_with(&path.display().to_string(), &text, overrides, around);
    Ok(OnShelf { agent: agent.map_err(ShelfError::Wrong)?, file: path.to_owned() })
}

/// Why a file does not count, in words.
pub fn why(reason: &Untrusted) -> String {
    let hint = "`haft trust` in the project shows what is in it and trusts it";
    match reason {
        Untrusted::Never => format!("it is not trusted; {hint}"),
        Untrusted::Changed => format!("it changed since it was trusted; {hint}"),
        Untrusted::Undecided(reason) => reason.clone(),
    }
}

/// A name as it is, and with the ending of agents. One that leads elsewhere means nothing.
fn with_ending(directory: &Path, name: &str) -> impl Iterator<Item = PathBuf> {
    inside(directory, name).into_iter().flat_map(|path| [path.with_added_extension("md"), path])
}

/// An agent that says nothing of itself has every default.
pub fn unnamed(overrides: &Overrides) -> Result<OnShelf, AgentError> {
    let around = Around { read: &|_| Err("there is no file".into()), variable: &|_| None };
    let agent = Agent::read_with("run", "", overrides, around)?;
    Ok(OnShelf { agent, file: PathBuf::new() })
}

/// What an agent includes lies beside it or below.
fn inside(directory: &Path, name: &str) -> Result<PathBuf, String> {
    let stays =
        Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if stays { Ok(directory.join(name)) } else { Err("it must lie in the agent's own directory".into()) }
}

/// The text of an agent, or of what one includes. Whoever may write a project may put a pipe there, for which nobody waits.
fn text_of(file: &Path) -> Result<String, String> {
    String::from_utf8(crate::file_bytes(file)?).map_err(|_| "it is not UTF-8".into())
}

/// The text of a file of at most so many bytes; the error is a sentence for a person.
pub fn read_bounded(path: &Path, bytes_max: u64) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(bytes_max + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > bytes_max {
        return Err(format!("it has more than {bytes_max} bytes"));
    }
    Ok(text)
}

impl fmt::Display for ShelfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untrusted { file, reason } => write!(f, "{}: {}", file.display(), why(reason)),
            Self::Unknown { name } => {
                let hint = "hint: name a file, or one of those that `haft agents list` shows";
                write!(f, "there is no agent `{}`\n{hint}", crate::printable(name))
            }
            Self::Unreadable { file, problem } => write!(f, "{}: {problem}", file.display()),
            Self::Wrong(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ShelfError {}
