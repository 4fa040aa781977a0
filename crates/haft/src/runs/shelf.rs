//! Where the files of agents are found, and how they are read.

use std::fmt;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use crate::agents::{AGENT_BYTES_MAX, Agent, AgentError, Around};
use crate::config::environment;

/// The directories in which agents are looked for by name.
#[derive(Debug, Clone, Default)]
pub struct Shelf {
    pub directories: Vec<PathBuf>,
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
    Unreadable { file: PathBuf, problem: String },
    Wrong(AgentError),
}

impl Shelf {
    /// A file, else one of a directory, with or without its ending.
    pub fn find(&self, name: &str) -> Result<PathBuf, ShelfError> {
        let file = Path::new(name);
        if file.is_file() { Ok(file.to_owned()) } else { self.on_shelf(name) }
    }

    fn on_shelf(&self, name: &str) -> Result<PathBuf, ShelfError> {
        let paths = self.directories.iter().filter_map(|agents| inside(agents, name).ok());
        let mut paths = paths.flat_map(|path| [path.with_added_extension("md"), path]);
        let found = paths.find(|path| path.is_file());
        found.ok_or_else(|| ShelfError::Unknown { name: name.to_owned() })
    }

    pub fn read(&self, name: &str) -> Result<OnShelf, ShelfError> {
        self.open(&self.find(name)?)
    }

    /// As `find`, but a name may also mean a file beside or below that of the agent that says it.
    pub fn find_beside(&self, file: &Path, name: &str) -> Result<PathBuf, ShelfError> {
        let beside = file.parent().unwrap_or(Path::new(""));
        let near = inside(beside, name).into_iter().flat_map(|path| [path.with_added_extension("md"), path]);
        match near.into_iter().find(|path| path.is_file()) {
            Some(path) => Ok(path),
            None => self.on_shelf(name),
        }
    }

    pub fn open(&self, file: &Path) -> Result<OnShelf, ShelfError> {
        Ok(OnShelf { agent: read(file)?, file: file.to_owned() })
    }
}

fn read(path: &Path) -> Result<Agent, ShelfError> {
    let unreadable = |problem: String| ShelfError::Unreadable { file: path.to_owned(), problem };
    let text = read_bounded(path, AGENT_BYTES_MAX as u64).map_err(unreadable)?;
    let beside = path.parent().unwrap_or(Path::new(""));
    let read = |name: &str| read_bounded(&inside(beside, name)?, AGENT_BYTES_MAX as u64);
    let around = Around { read: &read, variable: &environment };
    Agent::read(&path.display().to_string(), &text, around).map_err(ShelfError::Wrong)
}

/// An agent that says nothing of itself has every default.
pub fn unnamed() -> Result<OnShelf, AgentError> {
    let agent = Agent::read("run", "", Around { read: &|_| Err(String::new()), variable: &|_| None })?;
    Ok(OnShelf { agent, file: PathBuf::new() })
}

/// What an agent includes lies beside it or below.
fn inside(directory: &Path, name: &str) -> Result<PathBuf, String> {
    let stays =
        Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if stays { Ok(directory.join(name)) } else { Err("it must lie in the agent's own directory".into()) }
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
            Self::Unknown { name } => {
                let hint = "hint: name a file, or put it into `agents` below haft's home";
                write!(f, "there is no agent `{}`\n{hint}", crate::config::printable(name))
            }
            Self::Unreadable { file, problem } => write!(f, "{}: {problem}", file.display()),
            Self::Wrong(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ShelfError {}
