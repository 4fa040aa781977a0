//! Where skills lie, and which of them count: those of home, and those of a project that the operator has looked at.

use std::path::{Path, PathBuf};

use haft_core::home::Home;

use super::error::SkillError;
use super::{FILE_NAME, Skill, matching};
use crate::expand::Lookup;
use crate::{Untrusted, file_bytes, trusted};

/// How many directories are looked into in one place.
const SKILLS_MAX: usize = 256;

/// Where the skills of a project lie, the stronger first.
const PROJECT_PLACES: [&str; 2] = [".haft/skills", "skills"];

/// All that was found.
#[derive(Debug, Clone, Default)]
pub struct Skills {
    /// Those that count, by name. A project's stands before one of home that has its name.
    pub skills: Vec<Skill>,
    /// Those that do not count because something is wrong with them.
    pub errors: Vec<SkillError>,
    /// Those of a project that is not trusted.
    pub ignored: Vec<(PathBuf, Untrusted)>,
}

impl Skills {
    /// Those that a request asks for and that lack nothing.
    pub fn matching(&self, request: &str, variables: Lookup<'_>) -> Vec<&Skill> {
        matching(self.skills.iter().filter(|skill| skill.missing(variables).is_empty()), request)
    }

    fn add(&mut self, path: &Path, bytes: Vec<u8>, variables: Lookup<'_>) {
        let read = String::from_utf8(bytes)
            .map_err(|_| vec![SkillError::new(path, 1, "the file is not UTF-8")])
            .and_then(|text| Skill::read(path, &text, variables));
        match read {
            Err(errors) => self.errors.extend(errors),
            Ok(skill) if self.skills.iter().all(|known| known.name != skill.name) => self.skills.push(skill),
            // What stands nearer to the work has the name.
            Ok(_) => {}
        }
    }
}

/// Finds the skills of a project and of home.
pub fn load(home: Option<&Home>, project: Option<&Path>, variables: Lookup<'_>) -> Skills {
    let mut found = Skills::default();
    for path in project.into_iter().flat_map(project_skill_files) {
        match file_bytes(&path).map(|bytes| trusted(&path, &bytes, home).map(|()| bytes)) {
            Ok(Ok(bytes)) => found.add(&path, bytes, variables),
            Ok(Err(reason)) => found.ignored.push((path, reason)),
            Err(reason) => found.ignored.push((path, Untrusted::Undecided(reason))),
        }
    }
    let of_home = home.map(|home| files_in(&home.root().join("skills"))).unwrap_or_default();
    for path in of_home {
        match file_bytes(&path) {
            Ok(bytes) => found.add(&path, bytes, variables),
            Err(reason) => found.errors.push(SkillError::new(&path, 1, reason)),
        }
    }
    found.skills.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// The files of a project's skills, whether they count or not. Their paths are those by which trust is recorded.
pub fn project_skill_files(project: &Path) -> Vec<PathBuf> {
    let Ok(project) = project.canonicalize() else { return Vec::new() };
    // What is trusted in another project names programs of that one, not of this.
    let inside = |place: &PathBuf| place.canonicalize().is_ok_and(|place| place.starts_with(&project));
    let places = PROJECT_PLACES.iter().map(|place| project.join(place)).filter(inside);
    places.flat_map(|place| files_in(&place)).collect()
}

/// In order of their names. A link that leads out of the place is not followed.
fn files_in(place: &Path) -> Vec<PathBuf> {
    let (Ok(place), Ok(entries)) = (place.canonicalize(), std::fs::read_dir(place)) else {
        return Vec::new();
    };
    let files = entries.flatten().map(|entry| place.join(entry.file_name()).join(FILE_NAME));
    let inside = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path.starts_with(&place));
    let mut files: Vec<PathBuf> = files.filter(inside).take(SKILLS_MAX).collect();
    files.sort();
    files
}
