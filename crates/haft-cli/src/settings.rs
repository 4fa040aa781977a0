//! Turns the arguments of the command line into settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use haft_sandbox::{CommandLimits, GitMetadata, Home, PolicyError, ResourceAccess, SandboxPolicy, user_home};

use super::args::{FileArgs, GitMetadataArg, GrantArg, PolicyArgs};
use super::exit::ExitReason;
use super::hints;
use haft_config::{
    ConfigErrors, ConfigFileStatus, ResolvedConfig, SandboxSettings, duration as config_duration,
};

/// Parses the duration of a flag: `90s`, `1500ms`, `2m`, or a number of seconds. A number in a configuration file means
/// milliseconds, but a person who types `--timeout 5` means seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let is_number = text.ends_with(|c: char| c.is_ascii_digit());
    let with_unit = if is_number { format!("{text}s") } else { text.to_owned() };
    config_duration::parse(&with_unit)
}

/// An error message with its exit code.
pub(super) type CliError = (ExitReason, String);

/// Returns haft's home and creates it if needed. The sandbox cannot protect a path that does not exist.
pub(super) fn home() -> Result<Home, CliError> {
    let unknown = "neither HAFT_HOME nor HOME is set\nhint: set HAFT_HOME to a directory for haft's data";
    let home = haft_runtime::home::find().ok_or((ExitReason::Usage, unknown.to_owned()))?;
    match haft_config::home::create(&home) {
        Ok(()) => Ok(home),
        // In a directory that haft cannot write, confined commands cannot either; where they could, planning the
        // sandbox fails.
        Err(_) if !home.root().exists() => Ok(home),
        Err(error) => {
            let hint = "hint: set HAFT_HOME to a directory that you may write";
            Err((
                ExitReason::Internal,
                format!("haft's home `{}` cannot be used: {error}\n{hint}", home.root().display()),
            ))
        }
    }
}

/// The values of the configuration files that apply, and the paths of those files.
pub(super) struct Configuration {
    pub(super) resolved: ResolvedConfig,
    in_use: Vec<PathBuf>,
}

impl Configuration {
    /// Returns the files that apply.
    pub(super) fn in_use(&self) -> &[PathBuf] {
        &self.in_use
    }

    /// Returns the configuration without any files.
    pub(super) fn defaults() -> Result<Self, CliError> {
        let resolved = haft_config::defaults().map_err(|error| (ExitReason::Internal, error.to_string()))?;
        Ok(Self { resolved, in_use: Vec::new() })
    }
}

pub(super) fn configuration(args: &FileArgs) -> Result<Configuration, CliError> {
    // A home that cannot be used is reported before a problem of its configuration.
    home()?;
    match super::config::load(args) {
        Ok(loaded) => {
            let counts = loaded.files.iter().filter(|file| file.standing == ConfigFileStatus::Counts);
            let mut in_use: Vec<PathBuf> = counts.map(|file| file.path.clone()).collect();
            let mut resolved = loaded.resolved;
            for path in &args.mcp_config {
                add_servers(&mut resolved, path)?;
                in_use.push(std::path::absolute(path).unwrap_or_else(|_| path.clone()));
            }
            Ok(Configuration { resolved, in_use })
        }
        Err(errors) => Err((ExitReason::Input, errors.to_string())),
    }
}

/// Adds the servers of a file to those of the configuration. The operator named the file, so its servers win.
fn add_servers(resolved: &mut ResolvedConfig, path: &Path) -> Result<(), CliError> {
    let servers = super::mcp::import::servers_of(path)?;
    let servers = haft_config::mcp_servers_of(path, &servers, &haft_config::environment)
        .map_err(|errors| (ExitReason::Input, ConfigErrors(errors).to_string()))?;
    resolved.mcp_servers.extend(servers);
    Ok(())
}

/// Builds the operator's policy: arguments win over the configuration.
pub(super) fn policy(args: &PolicyArgs, configuration: &Configuration) -> Result<SandboxPolicy, CliError> {
    let home = home()?;
    let config = &configuration.resolved.sandbox;
    let workspace = workspace(args, config)?;
    let user_home = user_home();
    let mode = args.mode.unwrap_or(config.mode);
    let readable = [config.readable.as_slice(), args.readable.as_slice()].concat();
    // The readable paths must be known here, because the workspace is checked against the list of secrets.
    let mut policy =
        SandboxPolicy::new_with_readable(mode, &workspace, &home, user_home.as_deref(), &readable)
            .map_err(|error| not_granted(&error))?;
    for directory in config.writable.iter().chain(&args.writable) {
        policy = policy.writable(directory).map_err(|error| not_granted(&error))?;
    }
    for name in config.environment.iter().chain(&args.environment) {
        policy = policy.environment(name);
    }
    if let Some(granted) = args.network.map(access).or(config.network) {
        policy = policy.network(granted);
    }
    if let Some(granted) = args.unix_sockets.map(access).or(config.unix_sockets) {
        policy = policy.unix_sockets(granted);
    }
    for file in &configuration.in_use {
        policy = policy.protect(file);
    }
    for path in &config.secrets {
        policy = policy.hide(path).map_err(|error| not_granted(&error))?;
    }
    Ok(policy.git(args.git.map_or(config.git, git)).limits(limits(args, config)?))
}

pub(super) fn workspace(args: &PolicyArgs, config: &SandboxSettings) -> Result<PathBuf, CliError> {
    match args.files.workspace.as_ref().or(config.workspace.as_ref()) {
        Some(directory) => Ok(directory.clone()),
        None => std::env::current_dir().map_err(|error| {
            usage(&format!("the current directory cannot be read: {error}\nhint: name one with --workspace"))
        }),
    }
}

pub(super) fn limits(args: &PolicyArgs, config: &SandboxSettings) -> Result<CommandLimits, CliError> {
    let mut limits = config.limits.clone();
    for (name, value) in &args.limit {
        limits.set(name, *value).map_err(|error| usage(&error))?;
    }
    Ok(limits)
}

fn not_granted(error: &PolicyError) -> CliError {
    usage(&hints::with(error, Some(hints::policy(error))))
}

fn usage(error: &dyn std::fmt::Display) -> CliError {
    (ExitReason::Usage, error.to_string())
}

pub(super) fn access(grant: GrantArg) -> ResourceAccess {
    match grant {
        GrantArg::Allow => ResourceAccess::Allow,
        GrantArg::Deny => ResourceAccess::Deny,
    }
}

pub(super) fn git(git: GitMetadataArg) -> GitMetadata {
    match git {
        GitMetadataArg::Frozen => GitMetadata::Frozen,
        GitMetadataArg::Writable => GitMetadata::Writable,
    }
}

/// Parses `NAME=NUMBER`.
pub(super) fn limit(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("expected NAME=NUMBER; got `{text}`"))?;
    let value =
        value.parse().map_err(|_| format!("expected a whole number after `{name}=`; got `{value}`"))?;
    CommandLimits::default().set(name, value).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_number_is_seconds() {
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
        for bad in ["open-files", "open-files=many", "speed=1", "open-files=0"] {
            assert!(limit(bad).is_err(), "{bad}");
        }
    }
}
