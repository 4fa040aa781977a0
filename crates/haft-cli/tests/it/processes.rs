//! Tests that no process of a call outlives it, whichever way the call ends. The watcher is haft's process outside the
//! sandbox, which kills the process tree of the command. The keeper is haft's process inside the sandbox, which starts
//! the command.

use std::process::Child;
use std::time::{Duration, Instant};

use haft_testkit::{
    TestTree, TestUser, WITHOUT_NAMESPACES, checks, eventually, libc, processes_with, send_signal,
    unique_marker, users,
};

/// A process that would run for ten minutes. Tests find it by its name.
struct SleeperProcess {
    marker: String,
}

impl SleeperProcess {
    fn new() -> Self {
        Self { marker: unique_marker() }
    }

    fn in_script(&self, script: &str) -> String {
        script.replace("SLEEPER", &format!("bash -c 'echo > started; exec -a {} sleep 600'", self.marker))
    }

    /// Returns the processes with this name, including the scripts that started them.
    fn left(&self) -> Vec<i32> {
        processes_with(&self.marker)
    }

    /// Waits for the command line of the sleeper itself, not of the script that names it.
    fn wait_until_asleep(&self) {
        let asleep = format!("{}\0600", self.marker);
        eventually("the sleeper sleeps", || !processes_with(&asleep).is_empty());
    }
}

/// Ways to start the sleeper so that it is detached from the shell before the shell continues.
const DAEMONS: [&str; 7] = [
    "SLEEPER &",
    "setsid SLEEPER &",
    "(setsid SLEEPER &)",
    "(setsid -f bash -c '(SLEEPER2) &' &)",
    "nohup SLEEPER > /dev/null 2>&1 &",
    "(trap '' TERM INT HUP QUIT CHLD; SLEEPER) &",
    "SLEEPER < /dev/null > /dev/null 2> /dev/null & disown",
];
const STARTED: &str = "until [ -e started ]; do sleep 0.01; done";

fn daemon(sleeper: &SleeperProcess, daemon: &str) -> String {
    let nested = format!("echo > started; exec -a {} sleep 600", sleeper.marker);
    format!("{}\n{STARTED}", sleeper.in_script(&daemon.replace("SLEEPER2", &nested)))
}

fn call(tree: &TestTree, flags: &[&str], command: &str) -> haft_testkit::HaftCommand {
    let arguments = serde_json::json!({ "command": command }).to_string();
    tree.haft(&[&["call"], flags, &["bash", &arguments]].concat())
}

#[test]
fn daemons_are_killed_when_the_shell_exits() {
    for user in users() {
        for way in DAEMONS {
            let (tree, sleeper, began) = (TestTree::new(user), SleeperProcess::new(), Instant::now());
            let ran =
                call(&tree, &[], &format!("{}; echo done", daemon(&sleeper, way))).output().expect_code(0);
            assert_eq!(ran.stdout, "done\n", "{way}");
            assert!(sleeper.left().is_empty(), "{way} as {user:?}");
            assert!(began.elapsed() < Duration::from_secs(10), "{way} delayed the result");
        }
    }
}

#[test]
fn daemons_are_killed_at_the_timeout() {
    for user in users() {
        for way in [DAEMONS[3], DAEMONS[5]] {
            let (tree, sleeper) = (TestTree::new(user), SleeperProcess::new());
            let script = format!("{}; echo waiting; sleep 600", daemon(&sleeper, way));
            let ran = call(&tree, &["--timeout", "1s"], &script).output().expect_code(124);
            assert!(ran.stderr.contains("timed out after 1") && ran.stderr.contains("waiting"), "{ran:?}");
            assert!(sleeper.left().is_empty(), "{way} as {user:?}");
        }
    }
}

#[test]
fn signal_ignoring_shell_is_killed_at_the_timeout() {
    for mode in ["workspace", "full"] {
        let (tree, sleeper) = (TestTree::new(TestUser::Ourselves), SleeperProcess::new());
        let script = sleeper.in_script("trap '' TERM INT HUP QUIT; while :; do SLEEPER; done");
        call(&tree, &["--timeout", "500ms", "--mode", mode], &script).output().expect_code(124);
        assert!(sleeper.left().is_empty(), "{mode}");
    }
}

/// Starts a call that would take ten minutes, and waits until its sleeper runs.
fn start_sleeping_call(tree: &TestTree, sleeper: &SleeperProcess, words: &[&str]) -> Child {
    let child = tree.haft(words).start();
    sleeper.wait_until_asleep();
    child
}

/// Returns the arguments of the two commands that run a script. The script starts the daemon that is hardest to kill,
/// and then waits.
fn ways(sleeper: &SleeperProcess) -> [Vec<String>; 2] {
    let script = format!("{}; sleep 600", daemon(sleeper, "(trap '' TERM INT HUP; setsid SLEEPER) &"));
    let arguments = serde_json::json!({ "command": script }).to_string();
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
    [words(&["call", "bash", &arguments]), words(&["sandbox", "--", "bash", "-c", &script])]
}

#[track_caller]
fn ends(end: impl Fn(&mut Child), code: Option<i32>) {
    for user in users() {
        for way in 0..2 {
            let (tree, sleeper) = (TestTree::new(user), SleeperProcess::new());
            let words = ways(&sleeper);
            let words: Vec<&str> = words[way].iter().map(String::as_str).collect();
            let mut child = start_sleeping_call(&tree, &sleeper, &words);
            end(&mut child);
            let ended = child.wait().unwrap();
            assert_eq!(ended.code(), code, "{} as {user:?}", words[0]);
            if code.is_some() {
                assert!(sleeper.left().is_empty(), "{} as {user:?}", words[0]);
            }
            eventually("the tree is gone", || sleeper.left().is_empty());
        }
    }
}

checks!(ends {
    sigkill_of_haft_kills_the_process_tree: |child| child.kill().unwrap(), None;
    sigint_kills_the_process_tree: |child| send_signal(child.id(), libc::SIGINT), Some(130);
    sigterm_kills_the_process_tree: |child| send_signal(child.id(), libc::SIGTERM), Some(143);
    sighup_kills_the_process_tree: |child| send_signal(child.id(), libc::SIGHUP), Some(143);
    closed_stdout_kills_the_process_tree: |child| drop(child.stdout.take()), Some(141);
});

/// Returns the children of a process, as the kernel lists them.
fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Returns the only child of a process.
fn only_child(pid: u32) -> u32 {
    let found = children(pid);
    assert_eq!(found.len(), 1, "children of {pid}");
    found[0]
}

#[test]
fn killing_the_watcher_kills_the_process_tree() {
    for user in users() {
        let (tree, sleeper) = (TestTree::new(user), SleeperProcess::new());
        let words = ways(&sleeper);
        let words: Vec<&str> = words[1].iter().map(String::as_str).collect();
        let mut child = start_sleeping_call(&tree, &sleeper, &words);
        send_signal(only_child(child.id()), libc::SIGKILL);
        child.wait().unwrap();
        eventually("the tree is gone", || sleeper.left().is_empty());
    }
}

/// Without a PID namespace the kernel does not kill the process tree, so the keeper must do it.
#[test]
fn killing_the_watcher_kills_the_process_tree_if_there_are_no_namespaces() {
    for user in users() {
        let (tree, sleeper) = (TestTree::new(user), SleeperProcess::new());
        let words = ways(&sleeper);
        let words: Vec<&str> = words[1].iter().map(String::as_str).collect();
        let mut child = tree.haft(&words).through(WITHOUT_NAMESPACES).start();
        sleeper.wait_until_asleep();
        send_signal(only_child(child.id()), libc::SIGKILL);
        child.wait().unwrap();
        eventually("the tree is gone", || sleeper.left().is_empty());
    }
}

/// The next call removes the control group of a launcher that was killed.
#[test]
fn killed_launcher_leaves_no_control_group() {
    let (tree, sleeper) = (TestTree::new(TestUser::Ourselves), SleeperProcess::new());
    let words = ways(&sleeper);
    let words: Vec<&str> = words[1].iter().map(String::as_str).collect();
    let mut child = start_sleeping_call(&tree, &sleeper, &words);
    let watcher = only_child(child.id());
    send_signal(watcher, libc::SIGKILL);
    child.wait().unwrap();
    eventually("the tree is gone", || sleeper.left().is_empty());
    tree.confined(&[], "true").output().expect_code(0);
    let left = format!("find /sys/fs/cgroup -maxdepth 8 -type d -name haft-{watcher}");
    assert_eq!(tree.unconfined(&left).stdout, "");
}

/// Runs as root with a workspace of another user: the kernel clears the parent-death signal when credentials change.
#[test]
fn killing_the_watcher_of_another_user_kills_the_process_tree() {
    if !users().contains(&TestUser::Nobody) {
        return;
    }
    let (tree, sleeper) = (TestTree::new(TestUser::Ourselves), SleeperProcess::new());
    std::os::unix::fs::chown(tree.path("ws"), Some(65534), Some(65534)).unwrap();
    let words = ways(&sleeper);
    let words: Vec<&str> = words[1].iter().map(String::as_str).collect();
    let mut child = start_sleeping_call(&tree, &sleeper, &words);
    send_signal(only_child(child.id()), libc::SIGKILL);
    let gone = std::panic::catch_unwind(|| eventually("the tree is gone", || sleeper.left().is_empty()));
    let _ = child.kill();
    child.wait().unwrap();
    assert!(gone.is_ok(), "the process tree outlived its watcher");
}

#[test]
fn stopped_keeper_does_not_delay_the_timeout() {
    for user in users() {
        let (tree, sleeper) = (TestTree::new(user), SleeperProcess::new());
        let arguments =
            serde_json::json!({ "command": daemon(&sleeper, "SLEEPER &") + "; wait" }).to_string();
        let mut child =
            start_sleeping_call(&tree, &sleeper, &["call", "--timeout", "2s", "bash", &arguments]);
        send_signal(only_child(only_child(child.id())), libc::SIGSTOP);
        assert_eq!(child.wait().unwrap().code(), Some(124), "as {user:?}");
        assert!(sleeper.left().is_empty(), "as {user:?}");
    }
}

#[test]
fn orphaned_processes_of_a_command_are_reaped() {
    for user in users() {
        let tree = TestTree::new(user);
        let script = "set -e; for i in {1..1200}; do (true &); done; echo reaped";
        let ran = tree.confined(&["--limit", "processes=500"], script).output().expect_code(0);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("reaped\n", ""), "as {user:?}");
    }
}

#[test]
fn command_that_kills_all_processes_reaches_only_those_of_the_call() {
    for user in users() {
        let tree = TestTree::new(user);
        let ran = tree
            .confined(&[], "sleep 600 & trap '' TERM; kill -TERM -1; wait; echo done")
            .output()
            .expect_code(0);
        assert_eq!(ran.stdout, "done\n", "as {user:?}");
        tree.confined(&[], "bash -c 'kill -KILL -1'; kill -KILL $$").output().expect_code(137);
    }
}

#[test]
fn background_output_after_shell_exit_is_not_awaited() {
    for user in users() {
        let (tree, began) = (TestTree::new(user), Instant::now());
        let ran = call(&tree, &[], "(sleep 600; echo late) & echo early").output().expect_code(0);
        assert_eq!(ran.stdout, "early\n", "as {user:?}");
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn command_runs_in_a_separate_session() {
    let tree = TestTree::new(TestUser::Ourselves);
    let marker = unique_marker();
    let mut haft = tree.confined(&[], &format!("exec -a {marker} sleep 60")).start();
    // The arguments of haft contain the marker too, but only the command line of the command begins with the marker.
    let command = || processes_with(&marker).into_iter().find(|pid| arguments_of(*pid).starts_with(&marker));
    eventually("the command runs", || command().is_some());
    let haft_pid = i32::try_from(haft.id()).unwrap();
    assert_ne!(session_of(command().unwrap()), session_of(haft_pid));
    send_signal(haft.id(), libc::SIGTERM);
    haft.wait().unwrap();
}

fn arguments_of(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// Returns the session of a process from its `stat`.
fn session_of(pid: i32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat[stat.rfind(')').unwrap()..].split_whitespace().nth(4).unwrap().to_owned()
}

#[test]
fn command_has_no_blocked_signals() {
    let tree = TestTree::new(TestUser::Ourselves);
    let ran =
        tree.confined(&[], "grep SigBlk /proc/self/status; timeout -k 9 0.1 sleep 50; echo $?").output();
    assert!(ran.stdout.contains("0000000000000000") && ran.stdout.contains("124"), "{ran:?}");
}
