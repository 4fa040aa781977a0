//! Runs the `claude` command in the sandbox, for the provider that uses it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use haft_models::claude_code::{
    self, ClaudeCode, ClaudeCodeSettings, ClaudeCommand, ClaudeExit, ClaudeMcpServers, RunningCommand,
    StartCommand,
};
use haft_sandbox::{
    CommandExit, OutputPipes, ResourceAccess, SandboxPolicy, SandboxedChild, StandardInput,
    sandboxed_command, user_home,
};
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use crate::models::ModelsError;
use haft_config::ResolvedConfig;
use haft_config::resolved::{McpEndpoint, ProviderSettings};

/// The environment variables that the command needs: its credentials, its base URL and its proxies.
const PASSED: [&str; 12] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CONFIG_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
];

/// The subdirectory of haft's cache that holds the command's sessions when the user has no `.claude` directory, and the
/// files that list MCP servers for it.
const CACHE: &str = "claude-code";

/// The prefix of the files that list MCP servers.
const HANDED: &str = "servers-";

/// The age at which no running command can need such a file any more.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(24);

/// The most bytes of standard error that are kept for an error message.
const LAST_WORDS_BYTES_MAX: usize = 2 << 10;

/// The most bytes of output that one read returns.
const PIECE_BYTES: usize = 64 << 10;

/// Builds the provider, confined by `policy`, or by a policy from the configuration when there is none.
pub(crate) fn provider(
    config: &ResolvedConfig,
    name: &str,
    wanted: &ProviderSettings,
    policy: Option<&SandboxPolicy>,
) -> Result<ClaudeCode, ModelsError> {
    let unusable = |problem: String| ModelsError::Command { provider: name.to_owned(), problem };
    let policy = match policy {
        Some(policy) => policy.clone(),
        None => plain_policy(config).map_err(unusable)?,
    };
    let settings = ClaudeCodeSettings {
        name: name.into(),
        turns_max: wanted.command.turns_max,
        allowed_tools: wanted.command.allowed_tools.clone(),
        servers: mcp_servers_for_command(config),
        timeout: wanted.timeouts.total,
        resumes_max: wanted.command.resumes_max,
        resume_delay: claude_code::RESUME_DELAY,
    };
    let policy = command_policy(policy).map_err(unusable)?;
    let start = SandboxedStarter { command: wanted.command.command.clone(), policy };
    Ok(ClaudeCode::new(settings, Box::new(start)))
}

/// Tests if the command exists on this machine, without starting it.
pub(crate) fn is_installed(program: &str) -> bool {
    let search = std::env::var_os("PATH").unwrap_or_default();
    // A program with a slash in its name is a path, so `PATH` does not apply.
    let directories =
        if program.contains('/') { vec![PathBuf::new()] } else { std::env::split_paths(&search).collect() };
    directories.iter().any(|directory| directory.join(program).is_file())
}

fn plain_policy(config: &ResolvedConfig) -> Result<SandboxPolicy, String> {
    let home = crate::home::find().ok_or("haft has no home; set HAFT_HOME")?;
    let workspace = match &config.sandbox.workspace {
        Some(workspace) => workspace.clone(),
        None => std::env::current_dir().map_err(|error| format!("there is no current directory: {error}"))?,
    };
    let user_home = user_home();
    let sandbox = &config.sandbox;
    SandboxPolicy::new_with_readable(sandbox.mode, &workspace, &home, user_home.as_deref(), &sandbox.readable)
        .map_err(|error| error.to_string())
}

/// Returns the operator's policy, extended by the needs of the command: network access for its model, and a writable
/// directory for its sessions.
fn command_policy(policy: SandboxPolicy) -> Result<SandboxPolicy, String> {
    let mut policy = policy.network(ResourceAccess::Allow).cache(CACHE).map_err(|error| error.to_string())?;
    policy = PASSED.iter().fold(policy, |policy, name| policy.environment(*name));
    policy =
        policy.variable("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").variable("DISABLE_AUTOUPDATER", "1");
    let named = std::env::var_os("CLAUDE_CONFIG_DIR").map(PathBuf::from);
    let usual = user_home().map(|home| home.join(".claude")).filter(|usual| usual.is_dir());
    if let Some(directory) = named.or(usual) {
        return policy.writable(&directory).map_err(|error| error.to_string());
    }
    let own = policy.home().cache(CACHE);
    Ok(policy.variable("CLAUDE_CONFIG_DIR", own))
}

/// Returns the configured MCP servers in the format that the command reads.
fn mcp_servers_for_command(config: &ResolvedConfig) -> Option<ClaudeMcpServers> {
    let servers: Map<String, Value> = config
        .mcp_servers
        .iter()
        .filter(|(_, server)| server.enabled)
        .filter_map(|(name, server)| Some((name.clone(), server_entry(server.reach.as_ref().ok()?))))
        .collect();
    if servers.is_empty() {
        return None;
    }
    let names = servers.keys().cloned().collect();
    Some(ClaudeMcpServers { names, config: json!({ "mcpServers": servers }).to_string().into() })
}

fn server_entry(reach: &McpEndpoint) -> Value {
    use haft_tools::mcp::RemoteTransport;
    match reach {
        McpEndpoint::Process { command, args, env, .. } => {
            let args: Vec<&str> = args.iter().map(|word| word.0.as_str()).collect();
            let env: Map<String, Value> =
                env.iter().map(|(name, value)| (name.clone(), value.0.as_str().into())).collect();
            json!({ "command": command, "args": args, "env": env })
        }
        McpEndpoint::Remote { url, headers, protocol, oauth: _ } => {
            let kind = match protocol {
                RemoteTransport::Http => "http",
                RemoteTransport::Sse => "sse",
                RemoteTransport::WebSocket => "ws",
            };
            let headers: Map<String, Value> =
                headers.iter().map(|(name, value)| (name.clone(), value.0.as_str().into())).collect();
            json!({ "type": kind, "url": url.0, "headers": headers })
        }
    }
}

/// Starts the command in the sandbox.
struct SandboxedStarter {
    command: String,
    policy: SandboxPolicy,
}

impl StartCommand for SandboxedStarter {
    fn start(&self, order: ClaudeCommand) -> BoxFuture<'_, Result<Box<dyn RunningCommand>, String>> {
        Box::pin(async move {
            let file = match &order.private_file {
                Some(text) => Some(
                    PrivateFile::write(&self.policy.home().cache(CACHE), text.expose_secret())
                        .map_err(|error| format!("MCP servers cannot be handed over: {error}"))?,
                ),
                None => None,
            };
            let path = file.iter().map(|file| file.0.as_os_str().to_owned());
            let command = sandboxed_command(&self.command, &self.policy).args(&order.words).args(path);
            let command = command.stdin(StandardInput::Piped).output(OutputPipes::Separate);
            let child = command.spawn().await.map_err(|error| cannot_start(&self.command, &error))?;
            Ok(Box::new(ClaudeCodeProcess::over(&self.command, child, order.stdin, file))
                as Box<dyn RunningCommand>)
        })
    }
}

/// The running command. Dropping it makes the sandbox kill the command and every process that it started.
struct ClaudeCodeProcess {
    program: String,
    child: SandboxedChild,
    stdout: Option<pipe::Receiver>,
    last_words: Arc<Mutex<Vec<u8>>>,
    tasks: Vec<JoinHandle<()>>,
    /// The file that lists MCP servers; removed when the command ends.
    _file: Option<PrivateFile>,
}

impl ClaudeCodeProcess {
    fn over(program: &str, mut child: SandboxedChild, input: Vec<u8>, file: Option<PrivateFile>) -> Self {
        let last_words = Arc::<Mutex<Vec<u8>>>::default();
        let mut tasks = Vec::new();
        if let Some(mut stdin) = child.stdin.take() {
            tasks.push(tokio::spawn(async move {
                // A command that stops reading its input reports the reason in its output, so a write error is ignored.
                let _ = stdin.write_all(&input).await;
            }));
        }
        if let Some(stderr) = child.stderr.take() {
            tasks.push(tokio::spawn(keep_stderr_tail(stderr, Arc::clone(&last_words))));
        }
        Self {
            program: program.to_owned(),
            stdout: child.stdout.take(),
            child,
            last_words,
            tasks,
            _file: file,
        }
    }
}

impl RunningCommand for ClaudeCodeProcess {
    fn read(&mut self) -> BoxFuture<'_, io::Result<Vec<u8>>> {
        Box::pin(async {
            let Some(stdout) = &mut self.stdout else { return Ok(Vec::new()) };
            let mut piece = vec![0; PIECE_BYTES];
            let read = stdout.read(&mut piece).await?;
            piece.truncate(read);
            Ok(piece)
        })
    }

    fn end(mut self: Box<Self>) -> BoxFuture<'static, Result<ClaudeExit, String>> {
        Box::pin(async move {
            let how = match self.child.wait().await {
                Ok(CommandExit::Code(code)) => format!("ended with code {code}"),
                Ok(CommandExit::Signal(signal)) => format!("was killed by signal {signal}"),
                Err(error) => return Err(cannot_start(&self.program, &error)),
            };
            let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Ok(ClaudeExit { how, last_words: String::from_utf8_lossy(&words).into_owned() })
        })
    }
}

impl Drop for ClaudeCodeProcess {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn cannot_start(program: &str, error: &dyn std::fmt::Display) -> String {
    format!("`{program}` cannot be started: {error}; {HOW_TO_INSTALL}")
}

/// The installation hint in errors about a missing command.
pub(crate) const HOW_TO_INSTALL: &str =
    "install it with `npm install -g @anthropic-ai/claude-code`, or name it in `command` of the provider";

async fn keep_stderr_tail(mut stderr: pipe::Receiver, last_words: Arc<Mutex<Vec<u8>>>) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(read @ 1..) = stderr.read(&mut piece).await {
        let mut words = last_words.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend_from_slice(&piece[..read]);
        let too_much = words.len().saturating_sub(LAST_WORDS_BYTES_MAX);
        words.drain(..too_much);
    }
}

/// A file that only the command may read. Dropping it removes the file.
struct PrivateFile(PathBuf);

impl PrivateFile {
    /// Writes the file and gives it to the owner of the directory: the command runs as the owner of its workspace.
    fn write(directory: &Path, text: &str) -> io::Result<Self> {
        remove_stale_files(directory, SystemTime::now());
        let path = directory.join(format!("{HANDED}{}.json", uuid::Uuid::new_v4().simple()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let this = Self(path);
        file.write_all(text.as_bytes())?;
        let owner = std::fs::metadata(directory)?;
        chown(&this.0, Some(owner.uid()), Some(owner.gid()))?;
        Ok(this)
    }
}

/// Removes old files of runs that were killed before they could do so: the files may hold secrets.
fn remove_stale_files(directory: &Path, now: SystemTime) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let written = entry.metadata().and_then(|about| about.modified());
        let age = written.ok().and_then(|written| now.duration_since(written).ok()).unwrap_or_default();
        if name.starts_with(HANDED) && age > FORGOTTEN_AFTER {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stale_private_files_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let file = PrivateFile::write(directory.path(), "{}").unwrap();
        let other = directory.path().join("settings.json");
        std::fs::write(&other, "{}").unwrap();
        remove_stale_files(directory.path(), SystemTime::now());
        assert!(file.0.exists() && other.exists());
        remove_stale_files(directory.path(), SystemTime::now() + FORGOTTEN_AFTER + Duration::from_mins(1));
        assert!(!file.0.exists() && other.exists());
    }
}
