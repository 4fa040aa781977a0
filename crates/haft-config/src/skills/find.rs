//! Finds skills: in haft's home directory, and in a project. A skill of a project is used only if the operator has
//! reviewed its current content.

use std::io::Read;
use std::path::{Path, PathBuf};

use haft_core::home::Home;

use super::error::SkillError;
use super::{FILE_NAME, Skill, matching};
use crate::expand::VariableSource;
use crate::{UntrustedReason, file_bytes, trusted};

/// The maximum number of skills that are read from one directory.
const SKILLS_MAX: usize = 256;

/// The skill directories of a project. The first takes precedence.
const PROJECT_DIRECTORIES: [&str; 2] = [".haft/skills", "skills"];

/// The skill directories of other programs in a project. Their skills never replace a skill of haft.
const FOREIGN_DIRECTORIES: [&str; 3] = [".claude/skills", ".opencode/skills", ".opencode/skill"];

/// Returns true for a skill file that was written for another program.
pub fn is_foreign_skill(path: &Path) -> bool {
    path.ancestors().skip(1).any(|dir| FOREIGN_DIRECTORIES.iter().any(|foreign| dir.ends_with(foreign)))
}

/// All skills that were found.
#[derive(Debug, Clone, Default)]
pub struct Skills {
    /// The skills that are used, by name. A project skill takes precedence over a skill with the same name in the home
    /// directory.
    pub skills: Vec<Skill>,
    /// The errors of the skills that could not be read.
    pub errors: Vec<SkillError>,
    /// The project skill files that are not trusted, with the reasons.
    pub ignored: Vec<(PathBuf, UntrustedReason)>,
}

impl Skills {
    /// Returns the skills that a request triggers and whose requirements are met.
    pub fn matching(&self, request: &str, variables: VariableSource<'_>) -> Vec<&Skill> {
        matching(self.skills.iter().filter(|skill| skill.missing(variables).is_empty()), request)
    }

    /// Adds the files that the operator has reviewed, and lists the others.
    fn add_trusted(&mut self, files: Vec<PathBuf>, home: Option<&Home>, variables: VariableSource<'_>) {
        for path in files {
            match file_bytes(&path).map(|bytes| trusted(&path, &bytes, home).map(|()| bytes)) {
                Ok(Ok(bytes)) => self.add(&path, bytes, variables),
                Ok(Err(reason)) => self.ignored.push((path, reason)),
                Err(reason) => self.ignored.push((path, UntrustedReason::Undecided(reason))),
            }
        }
    }

    fn add(&mut self, path: &Path, bytes: Vec<u8>, variables: VariableSource<'_>) {
        let read = String::from_utf8(bytes)
            .map_err(|_| vec![SkillError::new(path, 1, "the skill file is not UTF-8")])
            .and_then(|text| Skill::read(path, &text, variables));
        match read {
            Err(errors) => self.errors.extend(errors),
            Ok(skill) if self.skills.iter().all(|known| known.name != skill.name) => self.skills.push(skill),
            // Ignore this skill: a skill with the same name was found in a directory with precedence.
            Ok(_) => {}
        }
    }
}

/// Finds the skills of a project and of haft's home directory.
pub fn load(home: Option<&Home>, project: Option<&Path>, variables: VariableSource<'_>) -> Skills {
    let mut found = Skills::default();
    let of_project =
        |directories: &[&str]| project.map(|project| files_of(project, directories)).unwrap_or_default();
    found.add_trusted(of_project(&PROJECT_DIRECTORIES), home, variables);
    let of_home = home.map(|home| files_in(&home.root().join("skills"))).unwrap_or_default();
    for path in of_home {
        match file_bytes(&path) {
            Ok(bytes) => found.add(&path, bytes, variables),
            Err(reason) => found.errors.push(SkillError::new(&path, 1, reason)),
        }
    }
    found.add_trusted(of_project(&FOREIGN_DIRECTORIES), home, variables);
    found.skills.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// Lists the skill files of a project, trusted or not. Trust is recorded under these paths.
pub fn project_skill_files(project: &Path) -> Vec<PathBuf> {
    let own = files_of(project, &PROJECT_DIRECTORIES);
    own.into_iter().chain(files_of(project, &FOREIGN_DIRECTORIES)).collect()
}

fn files_of(project: &Path, directories: &[&str]) -> Vec<PathBuf> {
    let Ok(project) = project.canonicalize() else { return Vec::new() };
    // Do not follow a link out of the project: skills that are trusted in another project would be used in this one,
    // where their commands refer to other programs.
    let inside = |dir: &PathBuf| dir.canonicalize().is_ok_and(|dir| dir.starts_with(&project));
    let dirs = directories.iter().map(|dir| project.join(dir)).filter(inside);
    dirs.flat_map(|dir| files_in(&dir)).collect()
}

/// Returns true for a skill that is a single Markdown file without a directory of its own. Other Markdown files, such
/// as a README, do not begin with keys.
fn is_flat_skill(path: &Path) -> bool {
    let begins_with_keys = |path: &Path| {
        let mut begin = [0; 3];
        let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut begin));
        read.is_ok() && (&begin == b"---" || &begin == b"+++")
    };
    let is_markdown = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("md"));
    is_markdown && path.is_file() && begins_with_keys(path)
}

/// Lists skill files, sorted by name. Skips links that lead out of the directory.
fn files_in(dir: &Path) -> Vec<PathBuf> {
    let (Ok(dir), Ok(entries)) = (dir.canonicalize(), std::fs::read_dir(dir)) else {
        return Vec::new();
    };
    let file = |entry: std::fs::DirEntry| {
        let path = dir.join(entry.file_name());
        if is_flat_skill(&path) { path } else { path.join(FILE_NAME) }
    };
    let files = entries.flatten().map(file);
    let inside = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path.starts_with(&dir));
    let mut files: Vec<PathBuf> = files.filter(inside).take(SKILLS_MAX).collect();
    files.sort();
    files
}
