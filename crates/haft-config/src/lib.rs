//! Reads `haft.json` from several files, checks the merged result, and resolves it into the effective configuration.
//!
//! Start with [`load`]. A file passes through `file` (bytes), `read` (the check against the schema), `layers` (the
//! merge with files of lower precedence) and `resolve` (defaults, and references between keys). `written` lists all
//! keys; the schema, `haft config show` and the documentation are generated from it. This crate starts no tool and no
//! sandbox.

pub mod agents;
mod compaction;
mod default;
#[cfg(test)]
mod document;
pub mod duration;
pub mod edit;
pub mod env_file;
mod error;
pub mod expand;
mod expected;
mod file;
pub mod foreign_file;
mod gateway;
mod glob;
mod groups;
pub mod home;
pub mod import;
mod layers;
pub mod mcp;
mod models;
pub mod namespace_conflict;
mod oauth;
mod own_entry;
mod position;
mod printable;
pub mod project_instructions;
mod read;
mod renamed;
mod resolve;
pub mod resolved;
mod rest;
mod rows;
mod sampling;
mod schema;
mod serve;
pub mod skills;
pub mod tool_lock;
pub mod trust;
mod value_format;
mod written;
mod yaml;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haft_core::home::Home;
use haft_core::tool_lock::ToolLock;
use serde_json::{Map, Value};

pub use error::{ConfigError, ConfigErrors};
pub use haft_core::glob::ToolGlob;
pub use layers::ConfigOrigin;
pub use printable::printable;
pub use read::nearest;
pub use resolved::{ResolvedConfig, SandboxSettings};
pub use rows::ConfigRow;
pub use schema::schema;

use expand::VariableSource;
use layers::ConfigLayers;
use trust::{FileDigest, FileTrust, TrustRecord};

/// The name of the configuration file, in haft's home directory and in a project.
pub const FILE_NAME: &str = "haft.json";

/// The name of the file in which other programs keep the MCP servers of a project.
pub const MCP_FILE_NAME: &str = ".mcp.json";

/// The locations of the configuration files, lowest precedence first.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConfigSources<'a> {
    pub home: Option<&'a Home>,
    /// The workspace. Its files are used only if they are trusted.
    pub project: Option<&'a Path>,
    /// A file that the operator named. It must exist.
    pub named: Option<&'a Path>,
}

/// A configuration, and the files and positions that it came from.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    pub resolved: ResolvedConfig,
    /// The configuration files that exist, lowest precedence first.
    pub files: Vec<ConfigFile>,
    pub template: ConfigTemplate,
    /// Warnings about old names of keys and values in the files.
    pub warnings: Vec<ConfigError>,
}

impl LoadedConfig {
    /// Returns every key with its value and origin. The rows are computed on demand: they need the schema of all keys,
    /// whose construction takes longer than the rest of a load without files.
    pub fn rows(&self) -> Vec<ConfigRow> {
        rows::rows(&self.template.layers)
    }
}

/// The merged files before `${VARIABLE}` is replaced in them, so that they can be resolved again with the secrets of
/// one run.
#[derive(Debug, Clone)]
pub struct ConfigTemplate {
    layers: Arc<ConfigLayers>,
    /// The lock file, which contains no variables.
    tool_lock: Option<Arc<ToolLock>>,
}

impl ConfigTemplate {
    /// Resolves the files with these variables. Paths were resolved when the files were read, and stay the same.
    pub fn resolve(&self, variables: VariableSource<'_>) -> Result<ResolvedConfig, ConfigErrors> {
        let layers = &*self.layers;
        let resolved = match serde_json::from_value(Value::Object(layers.value.clone())) {
            Ok(written) => resolve::resolve(written, layers, variables),
            // The schema accepted a value that the type refuses. This is a bug in haft, reported as an error.
            Err(error) => Err(vec![layers.error("", error.to_string())]),
        };
        let locked = |resolved| ResolvedConfig { tool_lock: self.tool_lock.clone(), ..resolved };
        resolved.map(locked).map_err(ConfigErrors)
    }
}

/// A configuration file that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    pub path: PathBuf,
    pub standing: ConfigFileStatus,
}

/// Whether a file is used or ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigFileStatus {
    Counts,
    /// The file is not trusted, for this reason.
    Ignored(UntrustedReason),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UntrustedReason {
    Never,
    Changed,
    /// haft cannot know if the file is trusted: there is no home directory, or the trust record in it cannot be read.
    Undecided(String),
}

/// Returns a variable of the process environment.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns the default configuration, without any file.
pub fn defaults() -> Result<ResolvedConfig, ConfigErrors> {
    load(ConfigSources { home: None, project: None, named: None }, &|_| None).map(|loaded| loaded.resolved)
}

/// Reads and resolves all files, or returns every error in them.
pub fn load(sources: ConfigSources<'_>, variables: VariableSource<'_>) -> Result<LoadedConfig, ConfigErrors> {
    let mut loader = ConfigLoader::new(variables);
    let of_home = sources.home.map(Home::config);
    if let Some(path) = &of_home {
        loader.trusted_file(path);
    }
    let of_project = sources.project.and_then(|directory| trust::project_files(directory).ok());
    for path in of_project.into_iter().flatten().filter(|path| Some(path) != of_home.as_ref()) {
        loader.project_file(&path, sources.home);
    }
    if let Some(path) = sources.named {
        loader.named_file(path);
    }
    loader.tool_lock = loader.read_lock(sources);
    loader.finish()
}

/// Reads and resolves the text of one file, as if it were the only one.
pub fn load_text(
    file: &Path,
    text: &str,
    variables: VariableSource<'_>,
) -> Result<ResolvedConfig, ConfigErrors> {
    let mut loader = ConfigLoader::new(variables);
    loader.add(file, text.as_bytes().to_vec());
    loader.finish().map(|loaded| loaded.resolved)
}

/// Reads a project file, trusted or not, for a user who decides whether to trust it. References to keys of other files
/// are not checked, because only this file is read.
pub fn inspect(path: &Path, variables: VariableSource<'_>) -> Result<Option<InspectedFile>, ConfigErrors> {
    let failed = |error| ConfigErrors(vec![error]);
    let Some(bytes) = file::bytes(path).map_err(failed)? else { return Ok(None) };
    let digest = FileDigest::of(&bytes);
    let text = file::text(path, bytes).map_err(failed)?;
    let mut layers = ConfigLayers::default();
    layers.add(path, read::read(path, &text, variables).map_err(ConfigErrors)?);
    let rows = rows::rows(&layers).into_iter().filter(|row| row.origin.is_some()).collect();
    Ok(Some(InspectedFile { digest, rows }))
}

/// Reads `mcpServers` entries from a file that is not a configuration, such as a skill.
pub fn mcp_servers_of(
    file: &Path,
    servers: &Map<String, Value>,
    variables: VariableSource<'_>,
) -> Result<BTreeMap<String, resolved::McpServerSettings>, Vec<ConfigError>> {
    let text = serde_json::json!({ "mcpServers": servers }).to_string();
    let mut layers = ConfigLayers::default();
    layers.add(file, read::read(file, &text, variables)?);
    let written = serde_json::from_value(Value::Object(layers.value.clone()))
        .map_err(|error| vec![layers.error("", error.to_string())])?;
    resolve::resolve(written, &layers, variables).map(|resolved| resolved.mcp_servers)
}

/// Returns the bytes of a file that must exist. The error is a sentence for the user.
pub fn file_bytes(path: &Path) -> Result<Vec<u8>, String> {
    file::bytes(path).map_err(|error| error.message)?.ok_or_else(|| "the file does not exist".into())
}

/// Checks that a project file with exactly these bytes is trusted.
pub fn trusted(path: &Path, bytes: &[u8], home: Option<&Home>) -> Result<(), UntrustedReason> {
    match check_trust(path, bytes, home) {
        Ok(FileTrust::Trusted) => Ok(()),
        Ok(FileTrust::Changed) => Err(UntrustedReason::Changed),
        Ok(FileTrust::Never) => Err(UntrustedReason::Never),
        Err(reason) => Err(UntrustedReason::Undecided(reason)),
    }
}

/// Returns the digest of a file, or `None` if it cannot be read.
pub fn digest_of(path: &Path) -> Option<FileDigest> {
    file::bytes(path).ok().flatten().map(|bytes| FileDigest::of(&bytes))
}

/// The keys that a file sets, and the digest of the bytes that were read.
#[derive(Debug, Clone)]
pub struct InspectedFile {
    pub digest: FileDigest,
    pub rows: Vec<ConfigRow>,
}

/// Reads configuration files, and collects their layers, errors and warnings.
struct ConfigLoader<'a> {
    variables: VariableSource<'a>,
    layers: ConfigLayers,
    files: Vec<ConfigFile>,
    errors: Vec<ConfigError>,
    warnings: Vec<ConfigError>,
    tool_lock: Option<Arc<ToolLock>>,
}

impl<'a> ConfigLoader<'a> {
    fn new(variables: VariableSource<'a>) -> Self {
        Self {
            variables,
            layers: ConfigLayers::default(),
            files: Vec::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
            tool_lock: None,
        }
    }

    fn trusted_file(&mut self, path: &Path) {
        if let Some(bytes) = self.bytes(path) {
            self.add(path, bytes);
        }
    }

    fn named_file(&mut self, path: &Path) {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        match file::bytes(&path) {
            Ok(Some(bytes)) => self.add(&path, bytes),
            Ok(None) => self.errors.push(file::whole(&path, "the file does not exist")),
            Err(error) => self.errors.push(error),
        }
    }

    /// Reads a project file. Checks the digest of the same bytes that it parses, so that the file cannot change in
    /// between. Errors in an ignored file are not reported.
    fn project_file(&mut self, path: &Path, home: Option<&Home>) {
        let bytes = match file::bytes(path) {
            Ok(None) => return,
            Ok(Some(bytes)) => bytes,
            Err(error) => return self.ignored(path, UntrustedReason::Undecided(error.message)),
        };
        match trusted(path, &bytes, home) {
            Ok(()) => self.add(path, bytes),
            Err(reason) => self.ignored(path, reason),
        }
    }

    /// Reads the lock file of the project and the one in haft's home directory. The project's lock file is used without
    /// trust, because it can only disable tools. It never replaces the lock file in the home directory, because a
    /// sandboxed command could create a project lock file.
    fn read_lock(&mut self, sources: ConfigSources<'_>) -> Option<Arc<ToolLock>> {
        self.warn_about_unused_lock(sources.project);
        let of_home = sources.home.map(tool_lock::path_in);
        let path = tool_lock::path_for(sources.project, sources.home)?;
        let locked = self.lock_at(&path)?;
        match of_home.filter(|home| *home != path).and_then(|home| self.lock_at(&home)) {
            Some(home) => Some(Arc::new(locked.limited_by(&home))),
            None => Some(locked),
        }
    }

    /// Warns about a lock file in a directory above the project. A user who started haft in a subdirectory would expect
    /// its protection.
    fn warn_about_unused_lock(&mut self, project: Option<&Path>) {
        let Some(path) = project.and_then(tool_lock::unused_in_repository) else { return };
        let directory = path.parent().unwrap_or(&path).display();
        let hint = Some(format!("use the directory `{directory}` as the workspace"));
        let message = "haft does not use this lock file, because it is above the workspace".to_owned();
        self.warnings.push(ConfigError { file: path, at: None, key: String::new(), message, hint });
    }

    fn lock_at(&mut self, path: &Path) -> Option<Arc<ToolLock>> {
        let lock = tool_lock::load(path).unwrap_or_else(|error| {
            self.errors.push(error);
            None
        })?;
        self.files.push(ConfigFile { path: path.to_owned(), standing: ConfigFileStatus::Counts });
        Some(lock)
    }

    fn ignored(&mut self, path: &Path, reason: UntrustedReason) {
        self.files.push(ConfigFile { path: path.to_owned(), standing: ConfigFileStatus::Ignored(reason) });
    }

    fn bytes(&mut self, path: &Path) -> Option<Vec<u8>> {
        file::bytes(path).unwrap_or_else(|error| {
            self.errors.push(error);
            None
        })
    }

    fn add(&mut self, path: &Path, bytes: Vec<u8>) {
        self.files.push(ConfigFile { path: path.to_owned(), standing: ConfigFileStatus::Counts });
        let text = match file::text(path, bytes) {
            Ok(text) => text,
            Err(error) => return self.errors.push(error),
        };
        match read::read(path, &text, self.variables) {
            Ok(mut layer) => {
                self.warnings.append(&mut layer.warnings);
                if path.ends_with(MCP_FILE_NAME) {
                    self.remove_own_entries(path, &mut layer);
                }
                self.layers.add(path, layer);
            }
            Err(errors) => self.errors.extend(errors),
        }
    }

    /// Removes haft's own entry, which is in `.mcp.json` for the programs that haft serves.
    fn remove_own_entries(&mut self, path: &Path, layer: &mut read::ConfigLayer) {
        let program = std::env::current_exe().ok();
        let removed = own_entry::remove_from(layer, program.as_deref());
        self.warnings.extend(removed.into_iter().map(|(key, at)| ConfigError {
            file: path.to_owned(),
            at,
            key,
            message: own_entry::REASON.into(),
            hint: None,
        }));
    }

    fn finish(self) -> Result<LoadedConfig, ConfigErrors> {
        if !self.errors.is_empty() {
            return Err(ConfigErrors(self.errors));
        }
        let template = ConfigTemplate { layers: Arc::new(self.layers), tool_lock: self.tool_lock };
        let resolved = template.resolve(self.variables)?;
        Ok(LoadedConfig { resolved, files: self.files, template, warnings: self.warnings })
    }
}

fn check_trust(path: &Path, bytes: &[u8], home: Option<&Home>) -> Result<FileTrust, String> {
    let home =
        home.ok_or("haft's home directory is not known, so no file is trusted; set HAFT_HOME or HOME")?;
    let record = TrustRecord::load(home).map_err(|error| {
        format!("haft cannot read the list of trusted files `{}`: {error}", trust::path_in(home).display())
    })?;
    Ok(trust::decide(record.files.get(path), &FileDigest::of(bytes)))
}

#[cfg(test)]
mod tests;
