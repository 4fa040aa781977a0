//! Shows a run: its answer on standard output, its progress on standard error.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haft_core::event::{Event, EventSink};
use haft_core::result::ToolErrorKind;
use haft_core::run::finish::RunFinish;

use super::output::RunOutput;
use super::screen::RunScreen;
use super::summary::{self, RunSummary};
use crate::args::ShowArgs;
use crate::exit::ExitReason;
use crate::terminal;

/// The outputs that show a run to the user.
pub(super) struct RunDisplay {
    output: Arc<RunOutput>,
    /// The progress on standard error; `None` with `--quiet`.
    screen: Option<Arc<RunScreen>>,
    denials: Arc<DenialCounter>,
}

impl RunDisplay {
    pub(super) fn new(args: ShowArgs, output: RunOutput) -> Self {
        let output = Arc::new(output);
        let screen = (!args.quiet).then(|| Arc::new(RunScreen::new(args, &output)));
        Self { output, screen, denials: Arc::default() }
    }

    pub(super) fn sinks(&self) -> Vec<Arc<dyn EventSink>> {
        let mut sinks: Vec<Arc<dyn EventSink>> =
            vec![Arc::clone(&self.denials) as _, Arc::clone(&self.output) as _];
        sinks.extend(self.screen.iter().map(|screen| Arc::clone(screen) as Arc<dyn EventSink>));
        sinks
    }

    pub(super) fn screen(&self) -> Option<&RunScreen> {
        self.screen.as_deref()
    }

    /// Clears the `^C` that the terminal shows when the user presses Ctrl-C.
    pub(super) fn clear_key_echo(&self) {
        if self.screen.is_some() && !self.output.is_mid_line() {
            terminal::clear_row();
        }
    }

    /// Returns the exit code of a run that was not ended by a signal.
    pub(super) fn exit(&self, finish: &RunFinish) -> ExitReason {
        summary::exit(finish, self.denials.count())
    }

    /// Returns the number of denied calls.
    pub(super) fn denied(&self) -> u64 {
        self.denials.count()
    }

    /// Prints the answer and the summary, and returns the exit code.
    pub(super) fn end(&self, finish: &RunFinish, summary: &RunSummary) -> ExitCode {
        let written = self.output.end(finish, summary);
        self.screen.iter().for_each(|screen| screen.end(summary));
        let complaint = summary::complaint(finish, summary.exit);
        if let Some(complaint) = complaint.filter(|_| summary.exit != ExitReason::ClosedPipe) {
            let _ = complaint.report();
        }
        if written == ExitCode::SUCCESS { summary.exit.into() } else { written }
    }
}

/// Counts denied calls. A run that fails because of denied calls has a separate exit code.
#[derive(Debug, Default)]
struct DenialCounter(AtomicU64);

impl DenialCounter {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl EventSink for DenialCounter {
    fn emit(&self, event: Event) {
        if let Event::ToolFinished { failure: Some(ToolErrorKind::Denied), .. } = event {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}
