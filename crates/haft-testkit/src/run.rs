//! Runs the real `haft` binary.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::test_tree::TestTree;
use crate::user::{NOBODY, TestUser};

/// A run of haft that has not started yet.
#[derive(Debug)]
pub struct HaftCommand {
    /// The command that switches to the user and then executes the program in `words`.
    command: Command,
    pub(crate) words: Vec<OsString>,
    stdin: Vec<u8>,
}

/// The exit code and output of a finished run.
#[derive(Debug)]
pub struct HaftOutput {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A command that runs a program in a user namespace in which no further namespaces can be created.
pub const WITHOUT_NAMESPACES: &[&str] = &["unshare", "-Ur", "bash", "-c", NO_MORE, "bash"];
const NO_MORE: &str = r#"echo 0 > /proc/sys/user/max_user_namespaces &&
exec setpriv --bounding-set -all --inh-caps -all --no-new-privs -- "$@""#;

/// A program that runs a command and prints its peak memory in kilobytes on standard error.
const PEAK: &str = "import resource, subprocess, sys; code = subprocess.run(sys.argv[1:]).returncode; \
    print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); sys.exit(code)";

/// The environment variable that forces all runs of `haft sandbox` to one level. Its only value is `landlock`.
pub const SANDBOX_LEVEL: &str = "HAFT_TEST_SANDBOX_LEVEL";

/// Returns true if the tests run without namespaces.
pub fn is_forced_to_landlock() -> bool {
    std::env::var_os(SANDBOX_LEVEL).is_some_and(|level| level == "landlock")
}

impl HaftCommand {
    pub(crate) fn new(tree: &TestTree, words: &[&str]) -> Self {
        Self::of_program(tree, &binary(), words)
    }

    /// Prepares a run of any program in the same directory and environment.
    pub(crate) fn of_program(tree: &TestTree, program: &Path, words: &[&str]) -> Self {
        let mut command = as_user(tree.user());
        command.env_clear().current_dir(tree.path("ws"));
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HAFT_HOME", tree.path("home")).env("HOME", tree.path("user")).env("USER", "tester");
        let words = std::iter::once(program.into()).chain(words.iter().map(OsString::from)).collect();
        Self { command, words, stdin: Vec::new() }
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn in_directory(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Runs the program through a wrapper. The wrapper runs as the tree's user, and executes the command line after it.
    pub fn through(mut self, wrapper: &[&str]) -> Self {
        // The first wrapper forbids further user namespaces, so a second wrapper could not create its own.
        if wrapper == WITHOUT_NAMESPACES && self.words.iter().any(|word| word == NO_MORE) {
            return self;
        }
        self.words.splice(0..0, wrapper.iter().map(OsString::from));
        self
    }

    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Runs the program to its end.
    pub fn output(mut self) -> HaftOutput {
        let input = std::mem::take(&mut self.stdin);
        let mut child = self.start();
        let mut stdin = child.stdin.take().unwrap();
        // Write from another thread: haft may answer, and fill its output pipe, before it has read all input.
        let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let watchdog = Watchdog::over(&child);
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        drop(watchdog);
        feeder.join().unwrap();
        HaftOutput {
            code: status.code(),
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }

    /// Runs the program to its end. Also returns the peak memory of the program and its child processes, in megabytes.
    pub fn output_with_peak_memory(self) -> (HaftOutput, u64) {
        let mut ran = self.through(&["python3", "-c", PEAK]).output();
        let (stderr, peak) = ran.stderr.rsplit_once("peak ").expect("the wrapper prints the peak");
        let megabytes = peak.trim().parse::<u64>().unwrap() / 1024;
        ran.stderr = stderr.to_owned();
        (ran, megabytes)
    }

    /// Starts the program and leaves it running, with pipes for all three streams.
    pub fn start(mut self) -> Child {
        let command =
            self.command.args(self.words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }
}

impl HaftOutput {
    /// Returns the events of the `stream-json` output. Adds the id of its run to each event, as `session`.
    pub fn events(&self) -> Vec<Value> {
        stream_events(&self.stdout)
    }
}

/// Parses lines of `stream-json`, and returns their events. Adds the id of its run to each event, as `session`.
pub fn stream_events(stream: &str) -> Vec<Value> {
    let event = |line: &str| {
        let mut envelope: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let mut event = envelope["event"].take();
        event["session"] = envelope["run"].take();
        event
    };
    stream.lines().map(event).collect()
}

/// Kills a run that does not end, so that a call that hangs fails its own test and does not block all others.
pub(crate) struct Watchdog {
    _ended: mpsc::Sender<()>,
}

const RUN_SECONDS_MAX: u64 = 60;

impl Watchdog {
    pub(crate) fn over(child: &Child) -> Self {
        let (ended, wait) = mpsc::channel::<()>();
        let pid = rustix::process::Pid::from_child(child);
        std::thread::spawn(move || {
            if wait.recv_timeout(Duration::from_secs(RUN_SECONDS_MAX)) == Err(mpsc::RecvTimeoutError::Timeout)
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        });
        Self { _ended: ended }
    }
}

impl HaftOutput {
    /// Fails the test and shows all output, unless the exit code is `code`.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

/// Waits for a limited time until `holds` returns true because of another process.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "timed out; expected: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Builds a command that executes the program in its next argument as the given user.
fn as_user(user: TestUser) -> Command {
    let mut command = match user {
        TestUser::Ourselves => Command::new("env"),
        TestUser::Nobody => Command::new("setpriv"),
    };
    match user {
        TestUser::Ourselves => {}
        TestUser::Nobody => {
            command
                .arg(format!("--reuid={NOBODY}"))
                .arg(format!("--regid={NOBODY}"))
                .args(["--clear-groups", "--"]);
        }
    }
    command
}

/// Returns a copy of the binary that every user can access: build directories are often below a private home directory.
pub fn binary() -> PathBuf {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        let own = std::env::current_exe().unwrap();
        let built = own.ancestors().map(|tree| tree.join("haft")).find(|path| path.is_file());
        let built = built.expect("the haft binary must be built beside the tests");
        remove_stale_copies();
        let reachable = Path::new("/var/tmp").join(format!("{COPY_PREFIX}{}", std::process::id()));
        std::fs::create_dir_all(&reachable).unwrap();
        let copy = reachable.join("haft");
        copy_program(&built, &copy);
        copy
    })
    .clone()
}

const COPY_PREFIX: &str = "haft-test-binary-";

/// Removes copies left by earlier test binaries, because a test binary has no hook at its end to remove its own copy.
fn remove_stale_copies() {
    for entry in std::fs::read_dir("/var/tmp").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(COPY_PREFIX);
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Copies a program with another process. If this process wrote the file, a child that another test is starting could
/// inherit the open descriptor, and executing the file would fail.
pub fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success(), "{}", from.display());
}
