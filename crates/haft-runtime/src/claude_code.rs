//! Runs the `claude` command in the sandbox, for the provider `claude-code`.

mod permissions;
mod run_directory;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use haft_models::claude_code::{
    self, ClaudeCode, ClaudeCodeSettings, ClaudeCommand, ClaudeExit, CommandInput, RunningCommand,
    StartCommand,
};
use haft_sandbox::{
    CommandExit, OutputPipes, ResourceAccess, SandboxPolicy, SandboxedChild, StandardInput,
    sandboxed_command, user_home,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

pub(crate) use self::permissions::CommandPermissions;
use self::run_directory::{DirectoryClaim, LOGIN, RunDirectory};
use crate::models::ModelsError;
use haft_config::ResolvedConfig;
use haft_config::resolved::ProviderSettings;

/// The environment variables that the command needs: its credentials, its base URL and its proxies.
const PASSED: [&str; 11] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
];

/// The time limit that the command gets for a call to haft's tools.
const MCP_TOOL_TIMEOUT_MILLISECONDS: u64 = 24 * 60 * 60 * 1000;

/// The maximum number of bytes of the command's standard error that haft keeps for an error message.
const LAST_WORDS_BYTES_MAX: usize = 2 << 10;

/// The maximum number of bytes of output that one read returns.
const PIECE_BYTES: usize = 64 << 10;

/// Builds the provider. `policy` confines its command; without a policy, derives one from the configuration.
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
        own_tools: wanted.command.allowed_tools.clone(),
        timeout: wanted.timeouts.total,
        resumes_max: wanted.command.resumes_max,
        resume_delay: claude_code::RESUME_DELAY,
    };
    let (policy, directory) = command_policy(policy).map_err(unusable)?;
    let start = SandboxedStarter { command: wanted.command.command.clone(), policy, _directory: directory };
    Ok(ClaudeCode::new(settings, Box::new(start)))
}

/// Returns true if the command exists on this machine, without starting it.
pub(crate) fn is_installed(program: &str) -> bool {
    let search = std::env::var_os("PATH").unwrap_or_default();
    // A program name with a slash is a path, so `PATH` is not searched.
    let directories =
        if program.contains('/') { vec![PathBuf::new()] } else { std::env::split_paths(&search).collect() };
    directories.iter().any(|directory| directory.join(program).is_file())
}

fn plain_policy(config: &ResolvedConfig) -> Result<SandboxPolicy, String> {
    let home = crate::home::find().ok_or("haft's home directory is not known; set HAFT_HOME")?;
    let workspace = match &config.sandbox.workspace {
        Some(workspace) => workspace.clone(),
        None => std::env::current_dir()
            .map_err(|error| format!("haft cannot determine the current directory: {error}"))?,
    };
    let user_home = user_home();
    let sandbox = &config.sandbox;
    let policy = SandboxPolicy::new_with_readable(
        sandbox.mode,
        &workspace,
        &home,
        user_home.as_deref(),
        &sandbox.readable,
    );
    let hidden =
        sandbox.secrets.iter().fold(policy, |policy, path| policy.and_then(|policy| policy.hide(path)));
    hidden.map_err(|error| error.to_string())
}

/// Returns the operator's policy, extended for the command: network access for its model, and a directory for this run.
/// The user's own configuration directory stays read-only: hooks and instructions that the command wrote there would
/// take effect, unconfined, the next time the user starts the command.
fn command_policy(policy: SandboxPolicy) -> Result<(SandboxPolicy, RunDirectory), String> {
    let unusable = |error: io::Error| format!("haft cannot use its cache directory for Claude Code: {error}");
    let claim = DirectoryClaim::new(policy.home()).map_err(unusable)?;
    let mut policy =
        policy.network(ResourceAccess::Allow).cache(&claim.name).map_err(|error| error.to_string())?;
    let directory = RunDirectory::open(policy.home(), &claim).map_err(unusable)?;
    drop(claim);
    policy = PASSED.iter().fold(policy, |policy, name| policy.environment(*name));
    policy =
        policy.variable("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").variable("DISABLE_AUTOUPDATER", "1");
    // Give the command a long timeout for tool calls: haft limits the calls itself, and a user may take long to approve
    // a call.
    policy = policy.variable("MCP_TOOL_TIMEOUT", MCP_TOOL_TIMEOUT_MILLISECONDS.to_string());
    let named = std::env::var_os("CLAUDE_CONFIG_DIR").map(PathBuf::from);
    let users = named.or_else(|| user_home().map(|home| home.join(".claude"))).filter(|users| users.is_dir());
    if let Some(users) = users {
        directory.link_configuration(&users).map_err(|error| {
            format!(
                "haft cannot create links to the files in Claude Code's configuration directory `{}`: {error}",
                users.display()
            )
        })?;
        let login = users.join(LOGIN);
        if login.is_file() {
            policy = policy.writable_file(&login).map_err(|error| error.to_string())?;
        }
        policy = policy.freeze(&users);
    }
    let policy = policy.variable("CLAUDE_CONFIG_DIR", directory.path());
    Ok((policy, directory))
}

/// Starts the command in the sandbox.
struct SandboxedStarter {
    command: String,
    policy: SandboxPolicy,
    /// The directory of the command, which is removed when the provider is dropped.
    _directory: RunDirectory,
}

impl StartCommand for SandboxedStarter {
    fn start(&self, order: ClaudeCommand) -> BoxFuture<'_, Result<Box<dyn RunningCommand>, String>> {
        Box::pin(async move {
            let command = sandboxed_command(&self.command, &self.policy).args(&order.words);
            let command = command.stdin(StandardInput::Piped).output(OutputPipes::Separate);
            let child = command.spawn().await.map_err(|error| cannot_start(&self.command, &error))?;
            Ok(Box::new(ClaudeCodeProcess::over(&self.command, child, order.input))
                as Box<dyn RunningCommand>)
        })
    }
}

/// The running command. Dropping it makes the sandbox kill the command and every process that it started.
struct ClaudeCodeProcess {
    program: String,
    child: SandboxedChild,
    stdout: Option<pipe::Receiver>,
    stderr_tail: Arc<Mutex<Vec<u8>>>,
    tasks: Vec<JoinHandle<()>>,
    /// The lines for standard input; `None` after standard input was closed. A separate task writes them, because a
    /// command that waits until haft reads its output does not read its input. Their number is bounded, because each
    /// line answers a line of the command.
    input: Option<UnboundedSender<Vec<u8>>>,
}

impl ClaudeCodeProcess {
    fn over(program: &str, mut child: SandboxedChild, input: CommandInput) -> Self {
        let stderr_tail = Arc::<Mutex<Vec<u8>>>::default();
        let mut tasks = Vec::new();
        let (sender, lines) = unbounded_channel();
        if let Some(stdin) = child.stdin.take() {
            tasks.push(tokio::spawn(write_lines(stdin, lines)));
        }
        let (first, more) = match input {
            CommandInput::Prompt(prompt) => (prompt, None),
            CommandInput::Lines(lines) => (lines, Some(sender.clone())),
        };
        let _ = sender.send(first);
        if let Some(stderr) = child.stderr.take() {
            tasks.push(tokio::spawn(keep_stderr_tail(stderr, Arc::clone(&stderr_tail))));
        }
        Self {
            program: program.to_owned(),
            stdout: child.stdout.take(),
            child,
            stderr_tail,
            tasks,
            input: more,
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

    fn write(&mut self, line: Vec<u8>) {
        if let Some(input) = &self.input {
            let _ = input.send(line);
        }
    }

    fn close_input(&mut self) {
        self.input = None;
    }

    fn end(mut self: Box<Self>) -> BoxFuture<'static, Result<ClaudeExit, String>> {
        Box::pin(async move {
            let how = match self.child.wait().await {
                Ok(CommandExit::Code(code)) => format!("ended with code {code}"),
                Ok(CommandExit::Signal(signal)) => format!("was killed by signal {signal}"),
                Err(error) => return Err(cannot_start(&self.program, &error)),
            };
            let words = self.stderr_tail.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Ok(ClaudeExit { how, stderr_tail: String::from_utf8_lossy(&words).into_owned() })
        })
    }
}

impl Drop for ClaudeCodeProcess {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn cannot_start(program: &str, error: &dyn std::fmt::Display) -> String {
    format!("haft cannot start the program `{program}`: {error}; {HOW_TO_INSTALL}")
}

/// The installation hint in errors about a missing command.
pub(crate) const HOW_TO_INSTALL: &str = "install Claude Code with `npm install -g @anthropic-ai/claude-code`, \
                                         or set the provider's `command` to the path of its program";

/// Writes the lines until the channel is closed. A command that stops reading its input reports the reason in its
/// output, so a write error is ignored.
async fn write_lines(mut stdin: pipe::Sender, mut lines: UnboundedReceiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(&line).await.is_err() {
            return;
        }
    }
}

async fn keep_stderr_tail(mut stderr: pipe::Receiver, stderr_tail: Arc<Mutex<Vec<u8>>>) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(read @ 1..) = stderr.read(&mut piece).await {
        let mut words = stderr_tail.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend_from_slice(&piece[..read]);
        let too_much = words.len().saturating_sub(LAST_WORDS_BYTES_MAX);
        words.drain(..too_much);
    }
}
