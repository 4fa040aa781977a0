//! Compares the cost of `bash -c true` in the sandbox with the same command unconfined, interleaved in one run.
//!
//! `cargo bench -p haft-cli --bench spawn` prints the table in the README of `haft-sandbox`. It compares minima,
//! because everything above a minimum is caused by the load of other processes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark prints"
)]

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use haft_sandbox::{Home, Launcher, SandboxMode, SandboxPolicy, sandboxed_command};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

const RUNS: usize = 200;
const RESIDENT_BYTES: usize = 1 << 30;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let home = Home::at(&dir.path().join("home"));
    haft_config::home::create(&home).unwrap();
    let workspace = dir.path().join("ws");
    std::fs::create_dir(&workspace).unwrap();
    println!("{RUNS} interleaved runs of `bash -c true` each; milliseconds");
    println!("{:<28} {:>8} {:>8} {:>8} {:>8}", "", "min", "median", "p90", "CPU");
    for mode in SandboxMode::ALL {
        let policy =
            SandboxPolicy::new(mode, &workspace, &home, haft_sandbox::user_home().as_deref()).unwrap();
        runtime.block_on(compare(mode.name(), &policy));
    }
    let resident = vec![1_u8; RESIDENT_BYTES];
    let policy = SandboxPolicy::new(SandboxMode::Workspace, &workspace, &home, None).unwrap();
    runtime.block_on(compare("sandbox, 1 GB resident", &policy));
    std::hint::black_box(resident);
}

async fn compare(name: &str, policy: &SandboxPolicy) {
    let (mut plain_runs, mut confined_runs) = (SpawnTimes::default(), SpawnTimes::default());
    for _ in 0..RUNS {
        plain_runs.add(measure(plain(policy.workspace())).await);
        confined_runs.add(measure(confined(policy)).await);
    }
    plain_runs.print("plain");
    confined_runs.print(name);
    println!(
        "{:<28} {:>7.2}x {:>7.2}x\n",
        "ratio",
        ratio(&confined_runs, &plain_runs, 0.0),
        ratio(&confined_runs, &plain_runs, 0.5)
    );
}

fn ratio(confined: &SpawnTimes, plain: &SpawnTimes, quantile: f64) -> f64 {
    confined.quantile(quantile).as_secs_f64() / plain.quantile(quantile).as_secs_f64()
}

async fn plain(workspace: &Path) {
    let mut command = Command::new("bash");
    let mut child = command
        .args(["-c", "true"])
        .current_dir(workspace)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut output).await.unwrap();
    assert!(child.wait().await.unwrap().success());
}

async fn confined(policy: &SandboxPolicy) {
    let launcher = Launcher::at(env!("CARGO_BIN_EXE_haft"));
    let mut child =
        sandboxed_command("bash", policy).args(["-c", "true"]).launcher(launcher).spawn().await.unwrap();
    let mut output = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut output).await.unwrap();
    assert!(child.wait().await.unwrap().success());
}

async fn measure(run: impl Future<Output = ()>) -> (Duration, Duration) {
    let (cpu_before, began) = (children_cpu(), Instant::now());
    run.await;
    (began.elapsed(), children_cpu().saturating_sub(cpu_before))
}

/// Returns the CPU time of all child processes that were waited for. The kernel counts in ticks of 10 ms, so only the
/// sum over many processes is exact.
fn children_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap()..].split_whitespace().collect();
    let ticks: u64 = fields[14].parse::<u64>().unwrap() + fields[15].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[derive(Default)]
struct SpawnTimes {
    wall: Vec<Duration>,
    cpu: Duration,
}

impl SpawnTimes {
    fn add(&mut self, (wall, cpu): (Duration, Duration)) {
        self.wall.push(wall);
        self.wall.sort();
        self.cpu += cpu;
    }

    fn quantile(&self, quantile: f64) -> Duration {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below RUNS")]
        let at = (quantile * (self.wall.len() - 1) as f64) as usize;
        self.wall[at]
    }

    fn print(&self, name: &str) {
        let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
        println!(
            "{name:<28} {:>8.2} {:>8.2} {:>8.2} {:>8.2}",
            ms(self.quantile(0.0)),
            ms(self.quantile(0.5)),
            ms(self.quantile(0.9)),
            ms(self.cpu) / self.wall.len() as f64
        );
    }
}
