//! Prints how much time and memory the stores need for different amounts of data: `cargo run --release --example
//! store_costs`.
//!
//! The example generates all data below a temporary directory, about 1 GB. Each start is measured in a separate
//! process, because the store sweeps once per process.
#![allow(clippy::print_stdout, reason = "a program that prints figures")]

use std::env;
use std::fs::{self, File, FileTimes};
use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use haft_core::conversation::{Conversation, Message};
use haft_core::event_log::{EventEnvelope, LogEvent};
use haft_core::home::Home;
use haft_core::model_request::ModelRequest;
use haft_core::output_store::OutputStore;
use haft_core::position::SessionId;
use haft_core::run::input::RunInput;
use haft_core::run::snapshot::StoredInput;
use haft_core::run::{AgentRun, DriverReadings, RunPlan};
use haft_store::accounting::{FileAccounting, ModelRecord, ToolRecord};
use haft_store::outputs::{FileStore, StoreLimits};
use haft_store::sessions::line::{SessionJournalLine, SessionStart};
use haft_store::sessions::{SessionLimits, SessionStore};
use serde_json::Value;

type MeasureResult<T> = Result<T, Box<dyn std::error::Error>>;

/// The number of processes per start measurement. The printed figure is their median.
const STARTS: usize = 40;

/// The time that the process waits after it has stored an output, as if it did other work. Its background sweep can run
/// during this time.
const WORK: Duration = Duration::from_millis(20);

const LIST_LIMIT: usize = 50;

fn main() -> MeasureResult<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["start-with-outputs", root] => start_with_outputs(Path::new(root)),
        ["start-session", home] => start_session(Path::new(home)),
        _ => measure_all(),
    }
}

fn measure_all() -> MeasureResult<()> {
    println!("load average: {}", fs::read_to_string("/proc/loadavg")?.trim());
    let starts = [measure_outputs(100)?, measure_outputs(10_000)?];
    print("start, with 100 or 10,000 outputs: open and store one", starts.map(|start| start.time));
    print("the same: CPU time of the process", starts.map(|start| start.cpu));
    let summaries = [measure_stats(100_000)?, measure_stats(1_000_000)?];
    print("stats, over 100,000 or 1,000,000 lines", summaries.map(|(time, _)| time));
    println!(
        "stats, over 100,000 or 1,000,000 lines: peak memory {} MB, {} MB",
        summaries[0].1 / 1_000,
        summaries[1].1 / 1_000
    );
    let sessions = [measure_sessions(500)?, measure_sessions(5_000)?, measure_sessions(50_000)?];
    print("list of 50, out of 500 or 5,000 sessions", [sessions[0].0, sessions[1].0]);
    print("list of 50, out of 5,000 or 50,000 sessions", [sessions[1].0, sessions[2].0]);
    print("start of a session, with 500 or 5,000 kept", [sessions[0].1, sessions[1].1]);
    println!("load average: {}", fs::read_to_string("/proc/loadavg")?.trim());
    Ok(())
}

fn print(figure: &str, [small, large]: [Duration; 2]) {
    let ratio = large.as_secs_f64() / small.as_secs_f64();
    println!("{figure}: {small:.2?}, {large:.2?}, ratio {ratio:.1}");
}

#[derive(Debug, Clone, Copy, Default)]
struct StartCosts {
    time: Duration,
    cpu: Duration,
}

fn measure_outputs(count: usize) -> MeasureResult<StartCosts> {
    let directory = tempfile::tempdir()?;
    for _ in 0..count {
        store_output(&FileStore::open(directory.path(), StoreLimits::untouched())?)?;
    }
    // The store reads the time of the last sweep from the access time. For a new directory, the store would wait a
    // minute before its first sweep.
    File::open(directory.path())?.set_times(FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH))?;
    measure_starts("start-with-outputs", directory.path())
}

fn start_with_outputs(root: &Path) -> MeasureResult<()> {
    let start = Instant::now();
    store_output(&FileStore::open(root, StoreLimits::default())?)?;
    println!("{}", start.elapsed().as_nanos());
    thread::sleep(WORK);
    Ok(())
}

fn store_output(store: &FileStore) -> MeasureResult<()> {
    let mut spool = store.begin()?;
    spool.write(&[b'x'; 1_000])?;
    spool.finish()?;
    Ok(())
}

/// Starts this program repeatedly. Each process prints the nanoseconds of its measured part.
fn measure_starts(word: &str, path: &Path) -> MeasureResult<StartCosts> {
    let cpu_before = cpu_of_children()?;
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let output = Command::new(env::current_exe()?).arg(word).arg(path).output()?;
        times.push(Duration::from_nanos(String::from_utf8(output.stdout)?.trim().parse()?));
    }
    let cpu = cpu_of_children()?.saturating_sub(cpu_before) / u32::try_from(STARTS)?;
    Ok(StartCosts { time: median(times), cpu })
}

/// Returns the CPU time (user and system) of all child processes that have ended, from fields 16 and 17 of
/// `/proc/self/stat` in ticks of 10 ms.
fn cpu_of_children() -> MeasureResult<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the program is in parentheses and may contain spaces.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    let ticks = fields.skip(13).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(10 * ticks))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Returns the time of a summary, and the peak memory of this process during it, in KB.
fn measure_stats(lines: u64) -> MeasureResult<(Duration, u64)> {
    let directory = tempfile::tempdir()?;
    let home = Home::at(directory.path());
    fs::create_dir_all(home.data())?;
    write_accounting(&home, lines)?;
    // Reset the peak memory of this process.
    fs::write("/proc/self/clear_refs", "5")?;
    let mut times = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let summary = FileAccounting::of(&home).summarize_all(0)?;
        times.push(start.elapsed());
        let calls = summary.tools.iter().map(|tool| tool.calls).sum::<u64>();
        let attempts = summary.models.iter().map(|model| model.attempts).sum::<u64>();
        assert_eq!((calls + attempts, summary.unreadable_lines), (lines, 0));
    }
    Ok((median(times), peak_memory()?))
}

fn peak_memory() -> MeasureResult<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(peak.trim().trim_end_matches(" kB").parse()?)
}

/// Writes usage records, with two calls for each model request.
fn write_accounting(home: &Home, lines: u64) -> MeasureResult<()> {
    let mut file = BufWriter::new(File::create(home.data().join("accounting.jsonl"))?);
    for number in 0..lines {
        let line = if number % 3 == 0 { model_event(number)? } else { tool_event(number)? };
        serde_json::to_writer(&mut file, &line)?;
        file.write_all(b"\n")?;
    }
    Ok(file.flush()?)
}

fn tool_event(number: u64) -> MeasureResult<EventEnvelope> {
    let text = r#"{"seq":1,"run":"01234567-89ab-4def-8123-456789abcdef","event":{"turn":7,"type":"tool_finished",
        "id":"call_0123456789abcdef01234567","operation":1,"tool":"","error_kind":null,"latency_ms":1,"executed":true,
        "cached":false,"bytes_in":120,"bytes_out":4096,"principal":"local/local",
        "arguments_digest":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","provider_kind":"builtin",
        "namespace":"haft","decision":"allow","rule":"allow read"}}"#;
    let mut line: EventEnvelope = serde_json::from_str(text)?;
    (line.seq, line.at) = (number + 1, Some(1_700_000_000_000 + number));
    if let LogEvent::ToolFinished { operation, tool, latency_ms, .. } = &mut line.event.kind {
        (*operation, *tool) = (number, format!("tool-{}", number % 40));
        *latency_ms = number * 7_919 % 50_000;
    }
    Ok(line)
}

fn model_event(number: u64) -> MeasureResult<EventEnvelope> {
    let text = r#"{"seq":1,"run":"01234567-89ab-4def-8123-456789abcdef","event":{"turn":7,"type":"model_finished","model":"",
        "attempt":1,"error_kind":null,"latency_ms":900,"usage":{"input_tokens":20000,"output_tokens":300,
        "cache_read_tokens":15000,"cache_write_tokens":0,"reasoning_tokens":0},"cost_nano_usd":1000000,
        "principal":"local/local","request_id":"req-01234567","first_event_ms":300}}"#;
    let mut line: EventEnvelope = serde_json::from_str(text)?;
    (line.seq, line.at) = (number + 1, Some(1_700_000_000_000 + number));
    if let LogEvent::ModelFinished { model, .. } = &mut line.event.kind {
        *model = format!("openai/model-{}", number % 7);
    }
    Ok(line)
}

fn tool_record(number: u64) -> MeasureResult<ToolRecord> {
    let text = r#"{"timestampMs":1,"status":"ok","errorKind":null,"tool":"","callId":"call_0123456789abcdef01234567",
        "principal":"local/local","latencyMs":1,"bytesIn":120,"bytesOut":4096,"executed":true,"cached":false,
        "argumentsDigest":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","providerKind":"builtin",
        "namespace":"haft","session":"01234567-89ab-4def-8123-456789abcdef","turn":7,"operation":1,
        "origin":"01234567-89ab-4def-8123-456789abcdef","decision":"allow","rule":"allow read"}"#;
    let mut record: ToolRecord = serde_json::from_str(text)?;
    record.timestamp_ms = 1_700_000_000_000 + number;
    record.tool = format!("tool-{}", number % 40);
    record.latency_ms = number * 7_919 % 50_000;
    record.standing.operation = number;
    Ok(record)
}

fn model_record(number: u64) -> MeasureResult<ModelRecord> {
    let text = r#"{"timestampMs":1,"status":"ok","errorKind":null,"provider":"openai","model":"","requestId":"req-01234567",
        "session":"01234567-89ab-4def-8123-456789abcdef","turn":7,"attempt":1,"principal":"local/local","latencyMs":900,
        "firstEventMs":300,"inputTokens":20000,"outputTokens":300,"cacheReadTokens":15000,"cacheWriteTokens":0,
        "reasoningTokens":0,"costNanoUsd":1000000,"retryAfterMs":null}"#;
    let mut record: ModelRecord = serde_json::from_str(text)?;
    record.timestamp_ms = 1_700_000_000_000 + number;
    record.model = format!("model-{}", number % 7);
    Ok(record)
}

/// Returns the time that `haft sessions list` takes, and the time that the start of a session takes.
fn measure_sessions(count: u64) -> MeasureResult<(Duration, Duration)> {
    let directory = tempfile::tempdir()?;
    let home = Home::at(directory.path());
    write_sessions(&home, count)?;
    let sessions = SessionStore::of(&home, SessionLimits { bytes_max: u64::MAX, keep: Duration::MAX });
    let mut times = Vec::new();
    for _ in 0..9 {
        let start = Instant::now();
        for id in sessions.newest_roots(LIST_LIMIT)? {
            black_box((sessions.overview(id)?, sessions.is_busy(id)));
        }
        times.push(start.elapsed());
    }
    let start = measure_starts("start-session", home.root())?;
    Ok((median(times), start.time))
}

fn start_session(home: &Path) -> MeasureResult<()> {
    let limits = SessionLimits { bytes_max: 64 << 20, keep: Duration::from_hours(30 * 24) };
    let opened = opened("a request");
    let start = Instant::now();
    let id = SessionId(uuid::Uuid::new_v4().as_u128());
    let journal = SessionStore::of(&Home::at(home), limits).open(id, opened)?;
    println!("{}", start.elapsed().as_nanos());
    thread::sleep(WORK);
    drop(journal);
    Ok(())
}

/// Writes sessions of which every third is a root session. The newest ones, which a list can reach, have twenty turns;
/// the older ones have one turn, to save space.
fn write_sessions(home: &Home, count: u64) -> MeasureResult<()> {
    const NEWEST: u64 = 300;
    let root = home.data().join("sessions");
    fs::create_dir_all(&root)?;
    let (long, short) = (session_text(20)?, session_text(1)?);
    let now = SystemTime::now();
    for number in 0..count {
        let id = SessionId(u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let text = if count - number <= NEWEST { &long } else { &short };
        let mut text = text.replace(&SessionId(0).to_string(), &id.to_string());
        if number % 3 != 0 {
            let origin = format!(r#""agent":"below","origin":"{}""#, SessionId(1));
            text = text.replacen(r#""agent":"""#, &origin, 1);
        }
        let mut file = File::create(root.join(format!("{id}.jsonl")))?;
        file.write_all(text.as_bytes())?;
        file.set_modified(now - Duration::from_secs(count - number))?;
    }
    Ok(())
}

/// Returns a session of about 5 KB per turn.
fn session_text(turns: u32) -> MeasureResult<String> {
    let opened = opened(&"Look at this file and tell me what it does.\n".repeat(100));
    let mut lines = vec![SessionJournalLine::Session(Box::new(opened))];
    for turn in 1..=turns {
        let input = |input: RunInput| SessionJournalLine::Input { at_ms: 1, input: StoredInput::of(&input) };
        lines.extend([
            input(RunInput::Stepped(DriverReadings::default())),
            SessionJournalLine::Model(Box::new(model_record(turn.into())?)),
            SessionJournalLine::Begun {
                at_ms: 1,
                call: "1".into(),
                tool: "read".into(),
                turn,
                operation: turn.into(),
            },
            SessionJournalLine::Tool(Box::new(tool_record(turn.into())?)),
            input(RunInput::Requested("0123456789abcdef\n".repeat(240))),
        ]);
    }
    lines.push(SessionJournalLine::Finished { at_ms: 1, reason: "completed".into(), turns });
    let lines: Result<Vec<String>, _> = lines.iter().map(serde_json::to_string).collect();
    Ok(lines?.join("\n") + "\n")
}

fn opened(request: &str) -> SessionStart {
    let mut conversation = Conversation::default();
    // The first message of an empty conversation is always accepted.
    let _ = conversation.push(Message::user(request));
    let run = AgentRun::new(ModelRequest::new("m", Arc::new(conversation)), RunPlan::default());
    SessionStart::new(SessionId(0), request, Value::Null, run.snapshot())
}
