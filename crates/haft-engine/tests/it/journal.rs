use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use haft_core::position::CallOperation;
use haft_core::run::RunPlan;
use haft_core::run::input::RunInput;
use haft_core::tool::ToolCall;
use haft_engine::{Durability, JournalError, RunJournal};

use crate::drive::{DriveFixture, ScriptedModel, call, done, run, text};

/// A journal that accepts `entries_max` entries and then fails.
#[derive(Debug)]
struct LimitedJournal {
    entries: Mutex<Vec<String>>,
    entries_max: usize,
    secured: Mutex<Vec<Durability>>,
}

impl LimitedJournal {
    fn of(entries_max: usize) -> Arc<Self> {
        Arc::new(Self { entries: Mutex::default(), entries_max, secured: Mutex::default() })
    }

    fn put(&self, entry: String) -> Result<(), JournalError> {
        let mut entries = self.entries.lock().unwrap();
        if entries.len() == self.entries_max {
            return Err(JournalError::unavailable("it is full"));
        }
        entries.push(entry);
        Ok(())
    }

    fn entries(&self) -> Vec<String> {
        self.entries.lock().unwrap().clone()
    }
}

impl RunJournal for LimitedJournal {
    fn append(&self, input: &RunInput) -> Result<(), JournalError> {
        self.put(match input {
            RunInput::Stepped(_) => "step".into(),
            RunInput::Replied(_) => "reply".into(),
            RunInput::Ended(ends) => format!("end {}", ends[0].call().0),
            other => format!("{other:?}"),
        })
    }

    fn append_call(&self, call: &ToolCall, _: &CallOperation) -> Result<(), JournalError> {
        self.put(format!("begin {}", call.id.0))
    }

    fn sync(&self, durability: Durability) -> BoxFuture<'_, Result<(), JournalError>> {
        self.secured.lock().unwrap().push(durability);
        async { Ok(()) }.boxed()
    }
}

fn models() -> ScriptedModel {
    ScriptedModel::new(vec![
        Ok(vec![call("1", "store", r#"{"text":"a"}"#), call("2", "nothing_like_it", "{}")]),
        Ok(vec![text("done")]),
    ])
}

#[tokio::test(start_paused = true)]
async fn journal_records_a_call_before_it_starts_and_after_it_ends() {
    let (world, notebook, models) = (DriveFixture::new(), LimitedJournal::of(usize::MAX), models());
    let mut driver = world.driver(&models);
    driver.options.journal = Some(Arc::clone(&notebook) as _);
    done(driver.drive(&mut run(RunPlan::default())).await.unwrap());
    let expected = ["step", "reply", "step", "begin 1", "end 1", "end 2", "step", "reply", "step"];
    assert_eq!(notebook.entries(), expected, "a call to an unknown tool has no `begin`");
}

#[tokio::test(start_paused = true)]
async fn journal_syncs_for_mutating_calls_and_buffers_for_read_only_ones() {
    let secured = async |tool: &str| {
        let models =
            ScriptedModel::new(vec![Ok(vec![call("1", tool, r#"{"text":"a"}"#)]), Ok(vec![text("done")])]);
        let (world, notebook) = (DriveFixture::new(), LimitedJournal::of(usize::MAX));
        let mut driver = world.driver(&models);
        driver.options.journal = Some(Arc::clone(&notebook) as _);
        done(driver.drive(&mut run(RunPlan::default())).await.unwrap());
        notebook.secured.lock().unwrap().clone()
    };
    let expected = [Durability::Synced, Durability::Synced, Durability::Ended];
    assert_eq!(
        secured("store").await,
        expected,
        "syncs before the call, after it, and at the end of the run"
    );
    assert_eq!(secured("echo").await, [Durability::Buffered, Durability::Buffered, Durability::Ended]);
}

#[tokio::test(start_paused = true)]
async fn journal_failure_ends_the_run_before_its_next_call() {
    for entries_max in 0..8 {
        let (world, notebook, models) = (DriveFixture::new(), LimitedJournal::of(entries_max), models());
        let mut driver = world.driver(&models);
        driver.options.journal = Some(Arc::clone(&notebook) as _);
        let finish = done(driver.drive(&mut run(RunPlan::default())).await.unwrap());
        assert_eq!(finish.reason.name(), "unrecorded", "{entries_max}");
        assert!(finish.detail.contains("it is full"), "{}", finish.detail);
        let made = usize::from(notebook.entries().contains(&"begin 1".to_owned()));
        assert_eq!(world.count("1 store started"), made, "{entries_max}: {:?}", world.log.lines());
    }
}
