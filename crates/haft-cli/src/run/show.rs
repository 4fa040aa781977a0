//! The output of a run: its answer on standard output, its progress on standard error.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haft_core::event::{Event, EventSink};
use haft_core::result::ToolErrorKind;
use haft_core::run::finish::Finish;

use super::ending::{self, Summary};
use super::screen::Screen;
use super::wire::Output;
use crate::args::ShowArgs;
use crate::exit::Exit;
use crate::terminal;

/// The outputs that show a run to the user.
pub(super) struct Show {
    output: Arc<Output>,
    /// `None` with `--quiet`.
    screen: Option<Arc<Screen>>,
    denials: Arc<Denials>,
}

impl Show {
    pub(super) fn new(args: ShowArgs, output: Output) -> Self {
        let output = Arc::new(output);
        let screen = (!args.quiet).then(|| Arc::new(Screen::new(args, &output)));
        Self { output, screen, denials: Arc::default() }
    }

    pub(super) fn sinks(&self) -> Vec<Arc<dyn EventSink>> {
        let mut sinks: Vec<Arc<dyn EventSink>> =
            vec![Arc::clone(&self.denials) as _, Arc::clone(&self.output) as _];
        sinks.extend(self.screen.iter().map(|screen| Arc::clone(screen) as Arc<dyn EventSink>));
        sinks
    }

    pub(super) fn screen(&self) -> Option<&Screen> {
        self.screen.as_deref()
    }

    /// Returns the exit code of a run that no signal ended.
    pub(super) fn exit(&self, finish: &Finish) -> Exit {
        ending::exit(finish, self.denials.count())
    }

    /// Prints the answer and the summary, and returns the exit code.
    pub(super) fn end(&self, finish: &Finish, summary: &Summary) -> ExitCode {
        let written = self.output.end(finish, summary);
        self.screen.iter().for_each(|screen| screen.end(summary));
        let complaint = ending::complaint(finish, summary.exit);
        if let Some(complaint) = complaint.filter(|_| summary.exit != Exit::ClosedPipe) {
            let _ = terminal::failed(summary.exit, &complaint);
        }
        if written == ExitCode::SUCCESS { summary.exit.into() } else { written }
    }
}

/// Counts denied calls: a run that fails because of them has its own exit code.
#[derive(Debug, Default)]
struct Denials(AtomicU64);

impl Denials {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl EventSink for Denials {
    fn emit(&self, event: Event) {
        if let Event::ToolFinished { failure: Some(ToolErrorKind::Denied), .. } = event {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}
