//! The `introspect` tool: a repository as text, either its file names and readme or all of its text files.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::path;
use super::protocol::{FileError, IntrospectLevel};
use super::text_file::{LoadError, SymlinkHandling, load};
use omitted::{OmissionReason, OmittedEntry};
use page::IntrospectPage;
use walk::{Directory, IntrospectTree, walk};

mod excluded;
mod ignored;
mod markup;
mod omitted;
mod page;
mod walk;

/// The maximum size of a file whose content is shown, in bytes. Larger files are only listed at the end.
const FILE_BYTES_MAX: u64 = 128 * 1024;

const NOTE: &str = "Not listed: files that git ignores, .git, lock files, symbolic links, and files that may hold secrets. \
                    The level \"all\" shows the content of the text files.";

pub(super) fn introspect(path: &str, level: IntrospectLevel) -> Result<String, FileError> {
    let root = open_root(path)?;
    let tree = walk(&root);
    Ok(match level {
        IntrospectLevel::Overview => overview(&root, tree),
        IntrospectLevel::All => codebase(&root, tree),
    })
}

/// Opens the root directory. Follows a link at the root, because the caller named this path, but no links below the
/// root.
fn open_root(path: &str) -> Result<PathBuf, FileError> {
    path::check(path).map_err(|fault| LoadError::Path(fault).file_error(path))?;
    let root = fs::canonicalize(path).map_err(|error| LoadError::Io(error).file_error(path))?;
    fs::read_dir(&root).map_err(|error| LoadError::Io(error).file_error(path))?;
    Ok(root)
}

/// Returns the overview. Loads the readme first, so that a long list of names cannot use up its space.
fn overview(root: &Path, tree: IntrospectTree) -> String {
    let mut page = IntrospectPage::new(tree.left_out);
    let readme = readme_name(&tree.directories).and_then(|name| readme_section(root, name, &mut page));
    let names: String =
        tree.directories.iter().filter_map(|directory| listed(directory, &mut page)).collect();
    let files = format!("<files>\n{names}</files>\n");
    let note = format!("<note>\n{NOTE}\n</note>\n");
    format!("<overview>\n{files}{note}{}{}</overview>\n", readme.unwrap_or_default(), page.left_out_section())
}

fn codebase(root: &Path, tree: IntrospectTree) -> String {
    let mut page = IntrospectPage::new(tree.left_out);
    let paths = tree.directories.iter().flat_map(Directory::file_paths);
    let files: String = paths.filter_map(|file| file_section(root, &file, &mut page)).collect();
    format!("<codebase>\n{files}{}</codebase>\n", page.left_out_section())
}

fn listed(directory: &Directory, page: &mut IntrospectPage) -> Option<String> {
    if directory.files.is_empty() {
        return None;
    }
    let mut lines = format!("{}:\n", markup::shown_path(&directory.path));
    for name in &directory.files {
        lines.push_str("  ");
        lines.push_str(&markup::shown_path(Path::new(name)));
        lines.push('\n');
    }
    page.admit(&directory.path, lines)
}

fn file_section(root: &Path, file: &Path, page: &mut IntrospectPage) -> Option<String> {
    let content = shown_content(root, file, page)?;
    let content = markup::content(&content, &["file", "codebase"]);
    page.admit(file, format!("<file path=\"{}\">\n{content}</file>\n", markup::shown_path(file)))
}

fn readme_section(root: &Path, name: &OsStr, page: &mut IntrospectPage) -> Option<String> {
    let file = Path::new(name);
    let content = shown_content(root, file, page)?;
    let content = markup::content(&content, &["readme", "overview"]);
    page.admit(file, format!("<readme>\n{content}</readme>\n"))
}

/// Returns the content of a text file if it fits into the page. A file larger than the remaining space is not read.
fn shown_content(root: &Path, file: &Path, page: &mut IntrospectPage) -> Option<String> {
    let bytes_max = FILE_BYTES_MAX.min(page.chars_left() as u64);
    let reason = match load(&root.join(file), bytes_max, SymlinkHandling::Refuse) {
        Ok(text) => return Some(text),
        Err(LoadError::Binary { .. } | LoadError::Utf16 | LoadError::NotUtf8 { .. }) => return None,
        Err(LoadError::TooLarge { .. }) if bytes_max < FILE_BYTES_MAX => OmissionReason::TotalReached,
        Err(LoadError::TooLarge { .. }) => OmissionReason::FileTooLarge,
        Err(LoadError::Path(_) | LoadError::NotRegular(_) | LoadError::Io(_)) => OmissionReason::Unreadable,
    };
    page.leave_out(OmittedEntry { path: file.to_owned(), reason });
    None
}

fn readme_name(directories: &[Directory]) -> Option<&OsStr> {
    let root = directories.iter().find(|directory| directory.path.as_os_str().is_empty())?;
    let readmes = root.files.iter().filter_map(|name| Some((readme_rank(name)?, name)));
    readmes.min().map(|(_, name)| name.as_os_str())
}

fn readme_rank(name: &OsStr) -> Option<u8> {
    match name.to_str()?.to_ascii_lowercase().as_str() {
        "readme.md" => Some(0),
        "readme" => Some(1),
        other => other.starts_with("readme.").then_some(2),
    }
}

#[cfg(test)]
mod tests;
