//! Converts the arguments of the command line to settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use haft_core::settings::limits::CPU_TIME;
use haft_core::settings::mode::UnknownMode;
use haft_runtime::spec::{UserHomeView, WorkspaceSpec};
use haft_sandbox::{CommandLimits, GitMetadata, Home, ResourceAccess, SandboxMode, SandboxPolicy, user_home};

use super::args::{FileArgs, GitMetadataArg, GrantArg, PolicyArgs};
use super::cli_error::CliError;
use super::question::{self, Consent};
use super::terminal;
use haft_config::{
    ConfigErrors, ConfigFileStatus, ResolvedConfig, SandboxSettings, duration as config_duration,
};

/// Parses the duration of a flag: `90s`, `1500ms`, `2m`, or a number of seconds. A number in a configuration file means
/// milliseconds, but a user who types `--timeout 5` means seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let is_number = text.ends_with(|c: char| c.is_ascii_digit());
    let with_unit = if is_number { format!("{text}s") } else { text.to_owned() };
    config_duration::parse(&with_unit)
}

/// Returns haft's home directory, and creates it if needed. The sandbox cannot protect a path that does not exist.
pub(super) fn home() -> Result<Home, CliError> {
    let unknown = "neither HAFT_HOME nor HOME is set";
    let hint = "set HAFT_HOME to a directory for haft's data";
    let home = haft_runtime::home::find().ok_or_else(|| CliError::usage(unknown).with_hint(hint))?;
    match haft_config::home::create(&home) {
        Ok(()) => Ok(home),
        // haft cannot create its home directory. This is safe if confined commands cannot create the directory
        // either. If they can, the sandbox planner reports an error later.
        Err(_) if !home.root().exists() => Ok(home),
        Err(error) => {
            let hint = "set HAFT_HOME to a directory that you can write to";
            Err(CliError::internal(format!(
                "haft cannot use its home directory `{}`: {error}",
                home.root().display()
            ))
            .with_hint(hint))
        }
    }
}

/// The values of the configuration files in use, and the paths of those files.
#[derive(Clone)]
pub(super) struct Configuration {
    pub(super) resolved: ResolvedConfig,
    in_use: Vec<PathBuf>,
    ignored: Vec<PathBuf>,
}

impl Configuration {
    /// Returns the files in use.
    pub(super) fn in_use(&self) -> &[PathBuf] {
        &self.in_use
    }

    /// Returns the project files that are ignored, because they are not trusted.
    pub(super) fn ignored(&self) -> &[PathBuf] {
        &self.ignored
    }

    /// Returns the default configuration, without any files.
    pub(super) fn defaults() -> Result<Self, CliError> {
        let resolved = haft_config::defaults().map_err(CliError::internal)?;
        Ok(Self { resolved, in_use: Vec::new(), ignored: Vec::new() })
    }
}

pub(super) fn configuration(args: &FileArgs) -> Result<Configuration, CliError> {
    // Check the home directory first: if haft cannot use it, a problem with its configuration would be a misleading
    // error.
    home()?;
    match super::config::load(args) {
        Ok(loaded) => {
            let (counts, ignored): (Vec<_>, Vec<_>) =
                loaded.files.into_iter().partition(|file| file.standing == ConfigFileStatus::Counts);
            let mut in_use: Vec<PathBuf> = counts.into_iter().map(|file| file.path).collect();
            let ignored = ignored.into_iter().map(|file| file.path).collect();
            let mut resolved = loaded.resolved;
            for path in &args.mcp_config {
                add_servers(&mut resolved, path)?;
                in_use.push(std::path::absolute(path).unwrap_or_else(|_| path.clone()));
            }
            Ok(Configuration { resolved, in_use, ignored })
        }
        Err(errors) => Err(CliError::input(errors)),
    }
}

/// Adds the servers of a file to the servers of the configuration. The operator named the file, so its servers take
/// precedence.
fn add_servers(resolved: &mut ResolvedConfig, path: &Path) -> Result<(), CliError> {
    let servers = super::mcp::import::servers_of(path)?;
    let servers = haft_config::mcp_servers_of(path, &servers, &crate::variables::variable)
        .map_err(|errors| CliError::input(ConfigErrors(errors)))?;
    resolved.mcp_servers.extend(servers);
    Ok(())
}

/// Builds the operator's policy. Asks before the user's home directory becomes the workspace.
pub(super) async fn policy(
    args: &PolicyArgs,
    configuration: &Configuration,
) -> Result<SandboxPolicy, CliError> {
    granted(&workspace_spec(args, configuration).await?)
}

/// Builds the policy of a workspace.
pub(super) fn granted(spec: &WorkspaceSpec) -> Result<SandboxPolicy, CliError> {
    Ok(spec.policy(&home()?)?)
}

/// Builds the workspace of a principal of `haft serve`. The user's home directory is hidden, because the principal may
/// be another person.
#[cfg(feature = "serve")]
pub(super) fn workspace_of_stranger(
    directory: PathBuf,
    args: &PolicyArgs,
    configuration: &Configuration,
) -> Result<WorkspaceSpec, CliError> {
    spec_at(directory, UserHomeView::Covered, args, configuration)
}

/// Builds the policy for a command that only explains it and runs nothing, so that no question is needed.
pub(super) fn explained_policy(
    args: &PolicyArgs,
    configuration: &Configuration,
) -> Result<SandboxPolicy, CliError> {
    let directory = workspace(args, &configuration.resolved.sandbox)?;
    let spec = spec_at(directory, UserHomeView::AsWorkspace, args, configuration)?;
    Ok(spec.policy(&home()?)?)
}

/// Builds the policy for a command that asks no question. Returns an error if the workspace is the user's home
/// directory.
pub(super) fn policy_outside_home(
    args: &PolicyArgs,
    configuration: &Configuration,
) -> Result<SandboxPolicy, CliError> {
    let directory = workspace(args, &configuration.resolved.sandbox)?;
    if is_user_home(&directory) {
        return Err(CliError::usage("the workspace is your home directory, and you have not allowed this"));
    }
    let spec = spec_at(directory, UserHomeView::WithoutSecrets, args, configuration)?;
    Ok(spec.policy(&home()?)?)
}

/// Builds the workspace and its sandbox. Asks before the user's home directory becomes the workspace.
pub(super) async fn workspace_spec(
    args: &PolicyArgs,
    configuration: &Configuration,
) -> Result<WorkspaceSpec, CliError> {
    let directory = workspace(args, &configuration.resolved.sandbox)?;
    let view = home_view(&directory, &args.files).await?;
    spec_at(directory, view, args, configuration)
}

/// Builds the workspace of a question, which has no tools. A question may be asked in any directory, even in one that
/// cannot be a workspace, such as the user's home; then the workspace is in haft's home directory.
pub(super) fn workspace_of_question(
    files: &FileArgs,
    configuration: &Configuration,
) -> Result<WorkspaceSpec, CliError> {
    let args = PolicyArgs { files: files.clone(), ..PolicyArgs::default() };
    let (home, sandbox) = (home()?, &configuration.resolved.sandbox);
    if let Ok(directory) = workspace(&args, sandbox)
        && !is_user_home(&directory)
    {
        let spec = spec_at(directory, UserHomeView::WithoutSecrets, &args, configuration)?;
        if spec.policy(&home).is_ok() {
            return Ok(spec);
        }
    }
    std::fs::create_dir_all(home.workspace()).map_err(CliError::usage)?;
    Ok(WorkspaceSpec {
        mode: sandbox.mode,
        secrets: sandbox.secrets.clone(),
        ..WorkspaceSpec::at(home.workspace())
    })
}

/// Builds a workspace. Arguments take precedence over the configuration.
fn spec_at(
    directory: PathBuf,
    home: UserHomeView,
    args: &PolicyArgs,
    configuration: &Configuration,
) -> Result<WorkspaceSpec, CliError> {
    let config = &configuration.resolved.sandbox;
    Ok(WorkspaceSpec {
        directory,
        mode: args.mode.unwrap_or(config.mode),
        network: args.network.map(access).or(config.network),
        unix_sockets: args.unix_sockets.map(access).or(config.unix_sockets),
        git: args.git.map_or(config.git, git),
        writable: config.writable.iter().chain(&args.writable).cloned().collect(),
        readable: [config.readable.as_slice(), args.readable.as_slice()].concat(),
        secrets: config.secrets.clone(),
        environment: config.environment.iter().chain(&args.environment).cloned().collect(),
        protected: configuration.in_use.clone(),
        limits: limits(args, config)?,
        home,
    })
}

/// Decides whether commands may work in the user's home directory. The user must allow this.
async fn home_view(directory: &Path, files: &FileArgs) -> Result<UserHomeView, CliError> {
    if !is_user_home(directory) {
        return Ok(UserHomeView::WithoutSecrets);
    }
    if files.allow_home {
        return Ok(UserHomeView::AsWorkspace);
    }
    let shown = haft_config::printable(&directory.to_string_lossy());
    let overview = format!(
        "The workspace would be your home directory `{shown}`.\nCommands could change everything in it, including files \
         that your next login runs, such as .profile. Secrets and haft's own home stay hidden."
    );
    match question::consent(&overview, "use your home directory as the workspace? [y] yes, any other key: no")
        .await
    {
        Consent::Given => Ok(UserHomeView::AsWorkspace),
        Consent::Refused => {
            let hint = "change to a project directory, or choose a workspace with --workspace";
            Err(CliError::denied(HOME_REFUSED).with_hint(hint))
        }
        Consent::NoTerminal => {
            let message =
                "the workspace is your home directory, and haft needs a terminal to ask for your permission";
            let hint = "work in a project directory, or allow the home directory with --allow-home";
            Err(CliError::usage(message).with_hint(hint))
        }
    }
}

fn is_user_home(directory: &Path) -> bool {
    let resolved = |path: &Path| path.canonicalize().ok();
    user_home().is_some_and(|home| resolved(&home) == resolved(directory))
}

const HOME_REFUSED: &str = "haft did nothing, because you did not allow your home directory as the workspace";

fn workspace(args: &PolicyArgs, config: &SandboxSettings) -> Result<PathBuf, CliError> {
    match args.files.workspace.as_ref().or(config.workspace.as_ref()) {
        Some(directory) => Ok(directory.clone()),
        None => std::env::current_dir().map_err(|error| {
            CliError::usage(format!("haft cannot read the current directory: {error}"))
                .with_hint("choose a workspace with --workspace")
        }),
    }
}

fn limits(args: &PolicyArgs, config: &SandboxSettings) -> Result<CommandLimits, CliError> {
    let mut limits = config.limits.clone();
    for (name, value) in &args.limit {
        limits.set(name, *value).map_err(CliError::usage)?;
    }
    Ok(limits)
}

pub(super) fn access(grant: GrantArg) -> ResourceAccess {
    match grant {
        GrantArg::Allow => ResourceAccess::Allow,
        GrantArg::Deny => ResourceAccess::Deny,
    }
}

fn git(git: GitMetadataArg) -> GitMetadata {
    match git {
        GitMetadataArg::Frozen => GitMetadata::Frozen,
        GitMetadataArg::Writable => GitMetadata::Writable,
    }
}

/// Parses a sandbox mode. Prints a warning for an earlier name, which scripts may still contain.
pub(super) fn mode(text: &str) -> Result<SandboxMode, String> {
    if let Some(mode) = SandboxMode::of_old_name(text) {
        terminal::warn(&format!("the sandbox mode `{text}` was renamed to `{mode}`; write `--mode {mode}`"));
    }
    text.parse().map_err(|error: UnknownMode| error.to_string())
}

/// Parses a resource limit in the form `NAME=VALUE`.
pub(super) fn limit(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("expected NAME=VALUE; got `{text}`"))?;
    let value = if name == CPU_TIME {
        // The kernel counts whole seconds of CPU time. A shorter limit must not become zero, which means no limit.
        duration(value)?.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)
    } else {
        value.parse().map_err(|_| format!("expected a whole number after `{name}=`; got `{value}`"))?
    };
    CommandLimits::default().set(name, value).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_without_a_unit_is_in_seconds() {
        let check = |text: &str, millis: u64| {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        };
        check("5", 5_000);
        check("0.5", 500);
        check("5ms", 5);
        check("5s", 5_000);
        check("2m", 120_000);
        for bad in ["", "0", "five", "5 s", "-5"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn limit_flag_requires_known_name_and_positive_number() {
        assert_eq!(limit("open-files=64"), Ok(("open-files".into(), 64)));
        for (text, seconds) in [("cpu-time=1h", 3600), ("cpu-time=90", 90), ("cpu-time=1500ms", 2)] {
            assert_eq!(limit(text), Ok(("cpu-time".into(), seconds)), "{text}");
        }
        assert_eq!(limit("cpu-seconds=3600"), Ok(("cpu-seconds".into(), 3600)));
        for bad in [
            "cpu-time=0",
            "cpu-time=soon",
            "cpu-seconds=1h",
            "open-files",
            "open-files=many",
            "speed=1",
            "open-files=0",
        ] {
            assert!(limit(bad).is_err(), "{bad}");
        }
    }
}
