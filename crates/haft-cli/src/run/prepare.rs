//! Prepares everything around a run of the command line: the runtime, the screen, the watchers and the recording.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use haft_core::model_provider::ModelProvider;
use haft_core::output_store::OutputStore;
use haft_core::position::SessionId;
use haft_models::cassette::Tape;
use haft_sandbox::Home;
use haft_store::outputs::FileStore;

use super::display::RunDisplay;
use super::output::RunOutput;
use crate::approver::TerminalApprover;
use crate::args::{FileArgs, ShowArgs};
use crate::cli_error::CliError;
use crate::elicitor::TerminalElicitor;
use crate::exit::ExitReason;
use crate::hints;
use crate::piped_input;
use crate::sandbox_refusal;
use crate::servers;
use crate::settings::{self, Configuration};
use crate::skills;
use crate::status_line::waiting;
use crate::terminal;
use crate::variables::variable;
use crate::watch::{self, CommandWatchers};
use haft_config::skills::Skills;
use haft_config::{ResolvedConfig, printable};
use haft_runtime::models;
use haft_runtime::recordings::RunRecorder;
use haft_runtime::runs::Variables;
use haft_runtime::runtime::{Stores, Takeover};
use haft_runtime::spec::{RunSecrets, RunSpec};
use haft_runtime::{AnswerSource, RunHandle, RunHooks, Runtime, SessionStorage};

/// The configuration and environment of a run, apart from its spec.
pub(crate) struct RunSetup {
    pub(crate) configuration: Configuration,
    pub(crate) skills: Skills,
    /// The variables that name the model provider and hold its API key.
    pub(crate) variables: Variables,
    /// A provider that replaces the configured models.
    pub(crate) models: Option<Arc<dyn ModelProvider>>,
    /// False for a run that stores nothing: no session and no usage records. With records, `haft stats` would include
    /// the cost of a scripted or replayed model as if it had been paid.
    pub(crate) keeps_session: bool,
    /// Standard input that is added to the request.
    pub(crate) piped: Option<String>,
}

impl RunSetup {
    /// Reads the operator's files and environment.
    pub(super) fn configured(files: &FileArgs) -> Result<Self, CliError> {
        Ok(Self {
            configuration: settings::configuration(files)?,
            skills: skills::found(files)?,
            variables: Arc::new(variable),
            models: None,
            keeps_session: true,
            piped: None,
        })
    }
}

/// The kind of run that the command line requests.
pub(crate) enum RunLaunch {
    New(Box<RunSpec>),
    Resume { id: SessionId, spec: Box<RunSpec>, more: Option<String>, takeover: Takeover },
}

impl RunLaunch {
    fn spec(&self) -> &RunSpec {
        match self {
            RunLaunch::New(spec) | RunLaunch::Resume { spec, .. } => spec,
        }
    }

    /// Adds piped input to the request.
    fn add_input(&mut self, input: &str, store: Option<&dyn OutputStore>) {
        match self {
            RunLaunch::New(spec) => spec.request = piped_input::beside(&spec.request, input, store),
            RunLaunch::Resume { more: Some(more), .. } => *more = piped_input::beside(more, input, store),
            RunLaunch::Resume { more: None, .. } => {}
        }
    }
}

/// Opens the store in which the run finds its stored outputs; `None` if outputs are not stored.
fn outputs(
    config: &ResolvedConfig,
    home: &Home,
    session: SessionId,
) -> Result<Option<Box<dyn OutputStore>>, CliError> {
    if !config.tool_output.enabled {
        return Ok(None);
    }
    let root = home.data().join("outputs");
    let store = FileStore::of_session(&root, session, config.tool_output.limits.clone());
    let refused = |error| CliError::internal(format!("haft cannot open the store of tool outputs: {error}"));
    store.map(|store| Some(Box::new(store) as _)).map_err(refused)
}

/// A started run, and its watchers.
pub(crate) struct StartedRun {
    pub(super) handle: RunHandle,
    pub(super) watch: CommandWatchers,
    pub(super) show: RunDisplay,
    recorder: Option<Arc<RunRecorder>>,
    pub(super) began: Instant,
    /// The number of warnings that were shown when the run began.
    pub(super) shown_warnings: usize,
    /// True if the run can be resumed.
    pub(super) keeps_session: bool,
}

/// Starts or resumes a run, and attaches the watchers that the command line requests.
pub(crate) async fn start(
    show_args: ShowArgs,
    record: Option<&Path>,
    setup: RunSetup,
    mut job: RunLaunch,
) -> Result<StartedRun, CliError> {
    let RunSetup { mut configuration, skills, variables, models, keeps_session, piped } = setup;
    let home = settings::home()?;
    let config = &mut configuration.resolved;
    config.trace_mcp |= show_args.trace_mcp;
    let show = RunDisplay::new(show_args, RunOutput::new(show_args.output_format));
    if let Some(screen) = show.screen() {
        let workspace = &job.spec().workspace;
        screen.set_network(sandbox_refusal::network(workspace.network, workspace.mode));
    }
    let mut watch = CommandWatchers::of_run(show_args, watch::content(config.telemetry), show.sinks());
    if let RunLaunch::Resume { id, .. } = &job {
        watch.continue_session(*id);
    }
    config.telemetry.capture_content = watch.captures_content();
    if let Some(input) = piped {
        let outputs = outputs(config, &home, watch.place().session)?;
        job.add_input(&input, outputs.as_deref());
    }
    let recording = record.map(|file| PendingRecording::create(file, config, &variables)).transpose()?;
    let stores =
        if keeps_session { accounting_stores(&home) } else { Stores::at(&home).without_accounting() };
    let keeps_session = keeps_session && configuration.resolved.sessions.enabled;
    let hooks = RunHooks {
        approvals: AnswerSource::by(TerminalApprover::for_interactive_terminal()),
        elicitations: AnswerSource::by(TerminalElicitor::for_interactive_terminal()),
        watchers: watch.sinks(),
        recorder: recording.as_ref().map(PendingRecording::hook),
        models,
        session: Some(watch.place().session),
        sessions: if keeps_session { SessionStorage::Stores } else { SessionStorage::None },
        ..RunHooks::default()
    };
    let trace = servers::trace(&configuration.resolved);
    let preparation = preparation(&servers::awaited(&configuration.resolved, &home));
    let mut builder = Runtime::builder(configuration.resolved)
        .home(home)
        .stores(stores)
        .variables(variables)
        .skills(skills)
        .trace_parents(watch.trace_parents());
    if let Some(trace) = trace {
        builder = builder.trace_mcp(trace);
    }
    let began = Instant::now();
    let launched = Box::pin(launch(builder, hooks, job));
    let handle = waiting(&preparation, String::new, launched).await?;
    let warnings = handle.warnings();
    for warning in &warnings {
        warn(warning);
    }
    if let (Some(screen), Some(meter)) = (show.screen(), handle.meter()) {
        screen.show_budget(&meter);
    }
    let recorder = recording.map(PendingRecording::keep);
    Ok(StartedRun { handle, watch, show, recorder, began, shown_warnings: warnings.len(), keeps_session })
}

/// Returns the stores of a run whose usage is recorded.
pub(crate) fn accounting_stores(home: &Home) -> Stores {
    watch::warn_if_unwritable(home);
    Stores::at(home)
}

/// Describes the wait for servers before a run. This wait can be long, because the first start of a server may download
/// its package.
fn preparation(servers: &[&str]) -> String {
    match servers {
        [] => "preparing tools".to_owned(),
        servers => format!("preparing tools: {}", servers.join(", ")),
    }
}

pub(crate) async fn launch(
    builder: haft_runtime::RuntimeBuilder,
    hooks: RunHooks,
    job: RunLaunch,
) -> Result<RunHandle, CliError> {
    let built = builder.build_with_warnings().await;
    let (runtime, warnings) = built.map_err(CliError::usage)?;
    for warning in &warnings {
        terminal::warn(&printable(warning));
    }
    match job {
        RunLaunch::New(spec) => {
            runtime.start_with(*spec, RunSecrets::none(), hooks).await.map_err(CliError::from)
        }
        RunLaunch::Resume { id, spec, more, takeover } => {
            let hooks = RunHooks { takeover, ..hooks };
            let resumed = runtime.resume_with(id, *spec, more, RunSecrets::none(), hooks).await;
            resumed.map_err(CliError::from)
        }
    }
}

/// Prints a warning, with a hint about the command that helps.
pub(crate) fn warn(warning: &str) {
    terminal::warn(&hints::with(&warning, hints::warning(warning)));
}

impl StartedRun {
    /// Records the end. Returns the reason why the recording is incomplete, if it is.
    pub(super) fn record_end(&self, took: Duration, stopped_by: Option<ExitReason>) -> Option<String> {
        let recorder = self.recorder.as_ref()?;
        recorder.end(took, stopped_by.map(ExitReason::code));
        recorder.problem()
    }
}

/// The recording of a run that has not started yet. Dropping it removes the file, so that the user can correct a
/// mistake and run the same command again.
pub(crate) struct PendingRecording {
    tape: Arc<Tape>,
    recorder: Arc<RunRecorder>,
    unused: Cell<Option<PathBuf>>,
}

impl PendingRecording {
    pub(crate) fn create(
        file: &Path,
        config: &ResolvedConfig,
        variables: &Variables,
    ) -> Result<Self, CliError> {
        let tape = Tape::create(file, models::secrets(config, &**variables));
        let tape = tape?;
        let recorder = RunRecorder::new(Arc::clone(&tape));
        Ok(Self { tape, recorder: Arc::new(recorder), unused: Cell::new(Some(file.to_owned())) })
    }

    /// Returns the parts that record the run.
    pub(crate) fn hook(&self) -> (Arc<Tape>, Arc<RunRecorder>) {
        (Arc::clone(&self.tape), Arc::clone(&self.recorder))
    }

    /// Keeps the file, because the run has started.
    pub(crate) fn keep(self) -> Arc<RunRecorder> {
        self.unused.take();
        Arc::clone(&self.recorder)
    }
}

impl Drop for PendingRecording {
    fn drop(&mut self) {
        if let Some(file) = self.unused.take() {
            let _ = std::fs::remove_file(file);
        }
    }
}
