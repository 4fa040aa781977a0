//! `haft doctor`: reports which parts of haft work on this machine, by trying them.

mod agents;
mod models;
mod queues;
mod servers;
mod tools;

use std::fmt::Write;
use std::process::ExitCode;

use haft_sandbox::{
    Launcher, PROBE, SandboxError, SandboxLevel, SandboxMode, SandboxPolicy, SandboxStatus, SandboxedWorker,
};
use serde_json::{Value, json};

use super::args::DoctorArgs;
use super::cancel;
use super::cli_error::CliError;
use super::exit::ExitReason;
use super::table::hanging;
use super::{hints, settings, terminal};
use crate::variables::variable;
use haft_config::ResolvedConfig;

/// A limit of the protection by mounts. If another program replaces a protected file, the new file has no mount until
/// haft protects it again.
const REPLACED_FILE: &str = "if another program replaces a protected file of the workspace, such as .git/config, a running \
    command can write to the new file for about a millisecond, until haft protects it again; haft ends a command that may \
    have changed the file, and the error names the file";

pub(super) async fn run(args: &DoctorArgs) -> ExitCode {
    let config = settings::configuration(&args.policy.files);
    let mode = args
        .policy
        .mode
        .or_else(|| Some(config.as_ref().ok()?.resolved.sandbox.mode))
        .unwrap_or(SandboxMode::Workspace);
    let both = async {
        let config = config?;
        Ok::<_, CliError>((settings::policy(&args.policy, &config).await?, config.resolved))
    };
    let both = both.await;
    let confinement = match &both {
        Ok((policy, _)) => probe(policy).await.map_err(|error| hints::with(&error, hints::sandbox(&error))),
        Err(error) => Err(error.to_string()),
    };
    let servers = match (&both, &confinement) {
        (Ok((policy, config)), Ok(_)) => tokio::select! {
            biased;
            exit = cancel::cancelled() => return exit.into(),
            servers = servers::try_all(config, policy) => servers,
        },
        // Without a sandbox, no servers can be started.
        (Err(_), _) | (_, Err(_)) => Vec::new(),
    };
    let config = both.as_ref().ok().map(|(_, config)| config);
    let models = config.map(|config| models::check_all(config, &variable)).unwrap_or_default();
    let queues = config.map(queues::check_all).unwrap_or_default();
    let tools = match config.filter(|config| tools::shows_all(config)) {
        Some(config) => tools_fit(args, config).await,
        None => None,
    };
    let loader = super::agents::loader(&args.policy.files);
    let agents = loader.map(|loader| agents::check_all(&loader)).unwrap_or_default();
    let policy = both.ok().map(|(policy, _)| policy);
    let findings = DoctorReport { policy, mode, confinement, servers, models, queues, agents, tools };
    let code =
        terminal::answer(&if args.json { format!("{:#}", findings.as_json()) } else { findings.as_text() });
    if code == ExitCode::SUCCESS && !findings.are_good() { ExitReason::Unavailable.into() } else { code }
}

/// Lists all tools and checks that they fit into a request. Returns `None` if they cannot be listed, which other checks
/// report.
async fn tools_fit(args: &DoctorArgs, config: &ResolvedConfig) -> Option<tools::ToolsFinding> {
    let files = &args.policy.files;
    let configuration = settings::configuration(files).ok()?;
    let listed = super::tools::listed(files, None, configuration).await.ok()?;
    Some(tools::check(config, &listed))
}

/// Sets up the whole sandbox without running a command in it.
async fn probe(policy: &SandboxPolicy) -> Result<SandboxStatus, SandboxError> {
    let worker = SandboxedWorker::start(PROBE, policy, &Launcher::find()?).await?;
    let confinement = worker.confinement().clone();
    worker.stop().await;
    Ok(confinement)
}

struct DoctorReport {
    policy: Option<SandboxPolicy>,
    mode: SandboxMode,
    confinement: Result<SandboxStatus, String>,
    servers: Vec<servers::ServerFinding>,
    models: Vec<models::ModelFinding>,
    queues: Vec<queues::QueueFinding>,
    agents: Vec<agents::AgentFinding>,
    /// The check of the tools; `None` if models search for tools.
    tools: Option<tools::ToolsFinding>,
}

/// Returns the column at which the text of a line begins: after a label, or after the name of a sandbox layer.
fn text_column(line: &str) -> usize {
    const LABEL: usize = "workspace  ".len();
    const LAYER: usize = "  off  capabilities  ".len();
    if line.starts_with("  on ") || line.starts_with("  off ") {
        LAYER
    } else if line.starts_with("  ") && !line.starts_with("           ") {
        "  ".len()
    } else {
        LABEL
    }
}

impl DoctorReport {
    fn are_good(&self) -> bool {
        self.confinement.is_ok()
            && self.servers.iter().all(servers::ServerFinding::is_ready)
            && self.models.iter().all(models::ModelFinding::is_good)
            && self.agents.iter().all(agents::AgentFinding::is_good)
            && self.tools.iter().all(tools::ToolsFinding::is_good)
    }

    fn as_json(&self) -> Value {
        let sandbox = match &self.confinement {
            Ok(confinement) => json!({
                "mode": self.mode.name(),
                "works": true,
                "level": confinement.level.name(),
                "layers": confinement.layers.iter().map(|layer| json!({
                    "name": layer.name, "active": layer.active, "detail": layer.detail,
                })).collect::<Vec<_>>(),
                "weaker": confinement.weaker,
                "limits": self.limits_of(confinement.level),
            }),
            Err(reason) => json!({ "mode": self.mode.name(), "works": false, "reason": reason }),
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "system": { "os": std::env::consts::OS, "arch": std::env::consts::ARCH, "kernel": kernel(),
                        "landlock_abi": haft_sandbox::landlock_version() },
            "sandbox": sandbox,
            "servers": self.servers.iter().map(servers::ServerFinding::as_json).collect::<Vec<_>>(),
            "models": self.models.iter().map(models::ModelFinding::as_json).collect::<Vec<_>>(),
            "queues": self.queues.iter().map(queues::QueueFinding::as_json).collect::<Vec<_>>(),
            "agents": self.agents.iter().map(agents::AgentFinding::as_json).collect::<Vec<_>>(),
            "tools": self.tools.as_ref().map(tools::ToolsFinding::as_json),
            "workspace": self.workspace(),
            "home": home(),
            "config": self.config_files().iter().map(|(path, exists)| json!({ "path": path, "exists": exists })).collect::<Vec<_>>(),
        })
    }

    fn as_text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "haft       {}", env!("CARGO_PKG_VERSION"));
        let landlock = haft_sandbox::landlock_version()
            .map_or("no Landlock".to_owned(), |abi| format!("Landlock ABI {abi}"));
        let _ = writeln!(
            text,
            "system     {} {}, kernel {}, {landlock}",
            std::env::consts::OS,
            std::env::consts::ARCH,
            kernel()
        );
        let _ = writeln!(text, "workspace  {}", self.workspace().unwrap_or("cannot be used".into()));
        let _ = writeln!(text, "home       {}", home().unwrap_or("not known".into()));
        for (path, exists) in self.config_files() {
            let _ = writeln!(text, "config     {path} ({})", if exists { "found" } else { "does not exist" });
        }
        self.sandbox_text(&mut text);
        self.servers.iter().for_each(|server| server.write_to(&mut text));
        self.models.iter().for_each(|provider| provider.write_to(&mut text));
        self.queues.iter().for_each(|queue| queue.write_to(&mut text));
        self.agents.iter().for_each(|agent| agent.write_to(&mut text));
        self.tools.iter().for_each(|tools| tools.write_to(&mut text));
        text.lines().map(|line| hanging(line, text_column(line)) + "\n").collect()
    }

    fn sandbox_text(&self, text: &mut String) {
        match &self.confinement {
            Err(reason) => {
                let _ = writeln!(
                    text,
                    "sandbox    {} mode: does not work\n           {}",
                    self.mode,
                    reason.replace('\n', "\n           ")
                );
            }
            Ok(confinement) => {
                let _ = writeln!(text, "sandbox    {} mode, level {}", self.mode, confinement.level.name());
                for layer in &confinement.layers {
                    let mark = if layer.active { "on " } else { "off" };
                    let _ = writeln!(text, "  {mark}  {:<13} {}", layer.name, layer.detail);
                }
                for sentence in &confinement.weaker {
                    let _ = writeln!(text, "  weaker: {sentence}");
                }
                for sentence in self.limits_of(confinement.level) {
                    let _ = writeln!(text, "  limit: {sentence}");
                }
            }
        }
    }

    /// Returns the limits of this sandbox level, which are the same on every machine.
    fn limits_of(&self, level: SandboxLevel) -> &'static [&'static str] {
        match (self.mode, level) {
            (
                SandboxMode::Workspace | SandboxMode::Network,
                SandboxLevel::Namespaces | SandboxLevel::UserNamespaces,
            ) => &[REPLACED_FILE],
            (
                SandboxMode::Workspace | SandboxMode::Network,
                SandboxLevel::Landlock | SandboxLevel::Seatbelt,
            )
            | (
                SandboxMode::Full,
                SandboxLevel::Namespaces
                | SandboxLevel::UserNamespaces
                | SandboxLevel::Landlock
                | SandboxLevel::Seatbelt,
            ) => &[],
        }
    }

    fn workspace(&self) -> Option<String> {
        self.policy.as_ref().map(|policy| policy.workspace().display().to_string())
    }

    /// Returns the paths of the configuration files and whether each exists, lowest precedence first.
    fn config_files(&self) -> Vec<(String, bool)> {
        let of_home = haft_runtime::home::find().map(|home| home.config());
        let of_project = self.policy.as_ref().map(|policy| policy.workspace().join("haft.json"));
        [of_home, of_project]
            .into_iter()
            .flatten()
            .map(|path| (path.display().to_string(), path.exists()))
            .collect()
    }
}

fn home() -> Option<String> {
    haft_runtime::home::find().map(|home| home.root().display().to_string())
}

fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}
