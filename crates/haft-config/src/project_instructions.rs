//! Finds the instruction files of a project (`AGENTS.md`, `CLAUDE.md`). A file is used only if the operator has
//! reviewed its current content.

use std::path::{Path, PathBuf};

use haft_core::home::Home;

use crate::{UntrustedReason, file_bytes, trusted};

/// The file names, in the order in which models read them.
pub const FILE_NAMES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// The import line with which a `CLAUDE.md` includes the `AGENTS.md` in the same directory.
const IMPORT: &str = "@AGENTS.md";

/// One instruction file, as it was read when the run started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionFile {
    pub path: PathBuf,
    pub text: String,
}

/// The instruction files of a project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectInstructions {
    pub files: Vec<InstructionFile>,
    /// The files that are not trusted or cannot be read, with the reasons.
    pub ignored: Vec<(PathBuf, UntrustedReason)>,
}

impl ProjectInstructions {
    /// Reads the instruction files of a project. Leaves out a file that only repeats the file before it.
    pub fn load(home: Option<&Home>, project: &Path) -> Self {
        let mut found = Self::default();
        let outside = |path| {
            (path, UntrustedReason::Undecided("the path is a link to a file outside the project".into()))
        };
        found.ignored.extend(existing(project).filter(|path| !is_inside(path)).map(outside));
        for path in project_instruction_files(project) {
            match read(&path, home) {
                Ok(text) if found.has(&text) => {}
                Ok(text) => found.files.push(InstructionFile { path, text }),
                Err(reason) => found.ignored.push((path, reason)),
            }
        }
        found
    }

    fn has(&self, text: &str) -> bool {
        let text = text.trim();
        text.is_empty() || self.files.iter().any(|file| file.text.trim() == text || text == IMPORT)
    }
}

/// Lists the instruction files that exist, trusted or not. Trust is recorded under these paths. A link is not resolved,
/// because a model could point it at a file that is trusted elsewhere. A link that leads out of the project is left
/// out: a hostile project could link to a secret key, whose text would be sent to the model.
pub fn project_instruction_files(project: &Path) -> Vec<PathBuf> {
    existing(project).filter(|path| is_inside(path)).collect()
}

fn existing(project: &Path) -> impl Iterator<Item = PathBuf> {
    let project = project.canonicalize().ok();
    let paths = project.into_iter().flat_map(|project| FILE_NAMES.map(|name| project.join(name)));
    paths.filter(|path| path.is_file())
}

/// Returns true if a project file is still inside the directory of its path after all links are followed.
fn is_inside(path: &Path) -> bool {
    let Some(project) = path.parent() else { return false };
    path.canonicalize().is_ok_and(|real| real.starts_with(project))
}

/// Returns true if a path is one of the instruction files of the project.
pub fn is_instruction_file(project: &Path, path: &Path) -> bool {
    project_instruction_files(project).iter().any(|file| file == path)
}

fn read(path: &Path, home: Option<&Home>) -> Result<String, UntrustedReason> {
    let bytes = file_bytes(path).map_err(UntrustedReason::Undecided)?;
    trusted(path, &bytes, home)?;
    String::from_utf8(bytes).map_err(|_| UntrustedReason::Undecided("the file is not UTF-8".into()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::trust::{FileDigest, TrustRecord};

    #[test]
    fn only_trusted_and_unchanged_instruction_files_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let (home, project) = (Home::at(&dir.path().join("home")), dir.path().join("project"));
        crate::home::create(&home).unwrap();
        fs::create_dir(&project).unwrap();
        let project = project.canonicalize().unwrap();
        let load = || ProjectInstructions::load(Some(&home), &project);
        let trust = |name: &str, text: &str| {
            fs::write(project.join(name), text).unwrap();
            let (path, digest) = (project.join(name), FileDigest::of(text.as_bytes()));
            TrustRecord::change(&home, |record| drop(record.files.insert(path, digest))).unwrap();
        };
        assert_eq!(load(), ProjectInstructions::default());

        fs::write(project.join("AGENTS.md"), "Use tabs.").unwrap();
        assert_eq!(load().ignored, [(project.join("AGENTS.md"), UntrustedReason::Never)]);

        trust("AGENTS.md", "Use tabs.");
        trust("CLAUDE.md", "@AGENTS.md\n");
        let only = InstructionFile { path: project.join("AGENTS.md"), text: "Use tabs.".into() };
        assert_eq!(load(), ProjectInstructions { files: vec![only], ignored: Vec::new() });

        trust("CLAUDE.md", "Run the tests.");
        assert_eq!(load().files.len(), 2);

        let link = |to: &Path, name: &str| {
            fs::remove_file(project.join(name)).unwrap();
            std::os::unix::fs::symlink(to, project.join(name)).unwrap();
        };
        fs::write(project.join("rules.md"), "Run the tests.").unwrap();
        link(Path::new("rules.md"), "CLAUDE.md");
        assert_eq!(load().files.len(), 2, "a link to a file in the project is read");
        fs::write(dir.path().join("key"), "Run the tests.").unwrap();
        link(&dir.path().join("key"), "CLAUDE.md");
        assert_eq!(project_instruction_files(&project), [project.join("AGENTS.md")]);
        let reason = UntrustedReason::Undecided("the path is a link to a file outside the project".into());
        assert_eq!(load().ignored, [(project.join("CLAUDE.md"), reason)]);
        link(Path::new("rules.md"), "CLAUDE.md");

        fs::write(project.join("AGENTS.md"), "Use spaces.").unwrap();
        let found = load();
        assert_eq!(found.ignored, [(project.join("AGENTS.md"), UntrustedReason::Changed)]);
        assert_eq!(found.files.len(), 1);
    }
}
