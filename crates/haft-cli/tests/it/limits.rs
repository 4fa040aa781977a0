//! Tests of resource limits of a command, which the command itself cannot raise.

use haft_testkit::{HaftOutput, TestTree, TestUser, checks, processes_with, unique_marker, users};

#[track_caller]
fn check(limit: &str, script: &str, holds: impl Fn(&HaftOutput) -> bool) {
    for user in users() {
        let tree = TestTree::new(user);
        let ran = tree.confined(&["--limit", limit], script).output();
        assert!(holds(&ran), "as {user:?}: {ran:?}");
    }
}

fn number(ran: &HaftOutput) -> u64 {
    ran.stdout.trim().parse().unwrap_or(u64::MAX)
}

#[test]
fn process_limit_is_enforced() {
    let fork_all = "python3 -c '
import os, signal
count = 0
while count < 2000:
    try: pid = os.fork()
    except OSError: break
    if pid == 0: signal.pause()
    count += 1
print(count)'";
    check("processes=400", fork_all, |ran| (1..400).contains(&number(ran)));
}

#[test]
fn process_limit_counts_threads() {
    let start_all = "python3 -c '
import threading
stop, count = threading.Event(), 0
while count < 2000:
    try: threading.Thread(target=stop.wait, daemon=True).start()
    except RuntimeError: break
    count += 1
print(count, flush=True)
import os; os._exit(0)'";
    check("processes=400", start_all, |ran| (1..400).contains(&number(ran)));
}

#[test]
fn fork_bomb_is_bounded_and_killed_at_timeout() {
    for user in users() {
        for mode in ["workspace", "full"] {
            let (tree, marker) = (TestTree::new(user), unique_marker().replace('-', "_"));
            let script = format!("{marker}() {{ {marker} | {marker} & }}; {marker}; sleep 600");
            let arguments = serde_json::json!({ "command": script }).to_string();
            let flags =
                ["call", "--timeout", "1s", "--mode", mode, "--limit", "processes=400", "bash", &arguments];
            tree.haft(&flags).output().expect_code(124);
            assert!(processes_with(&marker).is_empty(), "{mode} as {user:?}");
        }
    }
}

#[test]
fn open_file_limit_is_enforced() {
    let open_all = "python3 -c '
files = []
try:
    while len(files) < 500: files.append(open(\"/dev/null\"))
except OSError: pass
print(len(files))'";
    check("open-files=64", open_all, |ran| (1..64).contains(&number(ran)));
}

#[test]
fn file_size_limit_is_enforced() {
    check("file-bytes=100000", "head -c 200000 /dev/zero > f; stat -c %s f", |ran| number(ran) == 100_000);
}

#[test]
fn memory_limit_is_enforced() {
    let fill = "python3 -c '
small = bytearray(10_000_000)
try: print(len(bytearray(400_000_000)))
except MemoryError: print(0)'";
    check("memory-bytes=200000000", fill, |ran| number(ran) == 0);
    check("memory-bytes=800000000", fill, |ran| number(ran) == 400_000_000);
}

#[test]
fn memory_limit_counts_anonymous_maps() {
    let map = "python3 -c '
import mmap
try: print(len(mmap.mmap(-1, 400_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)))
except OSError: print(0)'";
    check("memory-bytes=200000000", map, |ran| number(ran) == 0);
}

checks!(check {
    cpu_time_limit_kills_the_command: "cpu-seconds=1", "while :; do :; done", |ran| {
        ran.code == Some(128 + 9) || ran.code == Some(128 + 24)
    };
    shared_memory_limit_is_enforced:
        "shm-bytes=1000000", "head -c 3000000 /dev/zero > /dev/shm/f; stat -c %s /dev/shm/f", |ran| {
        number(ran) <= 1_003_520
    };
    crashes_write_no_core_dump:
        "open-files=64", "ulimit -c; bash -c 'kill -SEGV $$'; ls | grep -c core", |ran| {
        ran.stdout == "0\n0\n"
    };
});

#[test]
fn command_cannot_raise_its_limits() {
    check("open-files=64", "ulimit -n 65; ulimit -Hn 65; ulimit -n", |ran| number(ran) == 64);
    check("file-bytes=4096", "ulimit -f unlimited; ulimit -f", |ran| number(ran) == 4);
}

#[test]
fn command_cannot_raise_its_process_limit() {
    let raise = "for f in /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max; do (echo 4000000 > $f) && echo raised; done; cat /proc/sys/kernel/pid_max";
    check("processes=400", raise, |ran| number(ran) == 400);
}

#[test]
fn calls_have_default_limits() {
    for user in users() {
        let tree = TestTree::new(user);
        let ran = tree.confined(&[], "ulimit -n; ulimit -c; ulimit -t").output().expect_code(0);
        assert_eq!(ran.stdout, "4096\n0\n3600\n", "as {user:?}");
    }
}

/// With a control group, the limit is the same for twenty small processes as for one large process.
#[test]
fn memory_limit_covers_all_processes_of_a_call() {
    let tree = TestTree::new(TestUser::Ourselves);
    let hog = "python3 -c 'x = bytearray(60 << 20); x[::4096] = bytes(len(x[::4096])); import time; time.sleep(3); print(\"kept\")'";
    let script = format!("for i in $(seq 20); do {hog} & done; wait; echo tried");
    let flags = ["-v", "--limit", "memory-bytes=400000000"];
    let ran = tree.confined(&flags, &script).output();
    if ran.stderr.contains("memory of the whole call") {
        assert!(ran.stdout.matches("kept").count() < 20, "{ran:?}");
    } else {
        assert!(ran.stderr.contains("memory per process"), "{ran:?}");
        assert!(ran.stdout.contains("tried"), "{ran:?}");
    }
}
