//! The CPU time that the event log costs a run, with and without readers.
//!
//! `cargo bench -p haft-runtime --bench events` prints the CPU time per event in the thread of the run: without a
//! reader, with one reader, with 1,000 readers, and with a store. The readers and the store use a separate thread, as
//! they do in a server.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark prints"
)]

use std::sync::Arc;
use std::time::Duration;

use haft_core::event::{Event, EventSink};
use haft_core::event_store::RunKey;
use haft_core::home::Home;
use haft_core::model_event::{ModelEvent, PartDelta, PartStart};
use haft_core::position::{RunPosition, SessionId};
use haft_core::run::event::RunEvent;
use haft_runtime::event_log::{EventLog, EventSeq};
use haft_store::events::FileEvents;

const EVENTS: u32 = 200_000;
const ROUNDS: usize = 7;

fn main() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    println!("load average: {}", std::fs::read_to_string("/proc/loadavg").unwrap().trim());
    for (name, readers, stored) in [
        ("no reader", 0, false),
        ("1 reader", 1, false),
        ("1,000 readers", 1_000, false),
        ("stored", 0, true),
    ] {
        let mut rounds: Vec<Duration> = (0..ROUNDS).map(|_| round(dir.path(), readers, stored)).collect();
        rounds.sort();
        println!("{name}: {:.0} ns an event", rounds[ROUNDS / 2].as_secs_f64() * 1e9 / f64::from(EVENTS));
    }
}

/// Returns the CPU time of the thread that emits the events.
fn round(dir: &std::path::Path, readers: usize, stored: bool) -> Duration {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _inside = runtime.enter();
    let log = if stored {
        let key = RunKey { tenant: "local".into(), run: SessionId(uuid::Uuid::new_v4().as_u128()) };
        EventLog::stored(key, Arc::new(FileEvents::of(&Home::at(dir))), 1)
    } else {
        EventLog::in_memory()
    };
    for _ in 0..readers {
        let mut events = log.events(EventSeq::START);
        runtime.spawn(async move { while events.next().await.is_some() {} });
    }
    let place = RunPosition::first(SessionId(1));
    let said = |event| Event::Run { place, event: Arc::new(RunEvent::Model(event)) };
    log.emit(said(ModelEvent::PartStarted { index: 0, part: PartStart::Text, mark: None }));
    let delta = said(ModelEvent::PartDelta { index: 0, delta: PartDelta::Text("word ".into()) });
    let asked = Event::Run { place, event: Arc::new(RunEvent::Asked) };
    let began = thread_cpu();
    for number in 0..EVENTS {
        // The log numbers every fourth event at once, and joins the text deltas in between into one event.
        log.emit(if number % 4 == 0 { asked.clone() } else { delta.clone() });
    }
    let took = thread_cpu().saturating_sub(began);
    log.close();
    took
}

fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
