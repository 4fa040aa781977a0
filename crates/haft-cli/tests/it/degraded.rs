//! Tests of the sandbox on a kernel without namespaces: only Landlock and seccomp, and a report of each lost guarantee.

use haft_testkit::{HaftOutput, TestTree, WITHOUT_NAMESPACES, libc, processes_with, unique_marker, users};
use serde_json::Value;

use crate::escape::network::ConnectionOutcome::{Reached, Refused};
use crate::escape::network::{ABSTRACT, DATAGRAM, DATAGRAM_OF_A_PAIR, PATHNAME, TCP, UDP, check_through};
use crate::escape::{EscapeTrial, TRIAL, python, tried, whole};

const DEGRADED: EscapeTrial<'static> = EscapeTrial { wrapper: WITHOUT_NAMESPACES, ..TRIAL };
const BELOW_TMP: EscapeTrial<'static> = EscapeTrial { below: "/tmp", watched: &["home"], ..DEGRADED };

#[track_caller]
fn for_each_user(words: &[&str], check: impl Fn(HaftOutput)) {
    for user in users() {
        let tree = TestTree::new(user);
        check(tree.haft(words).through(WITHOUT_NAMESPACES).output().expect_code(0));
    }
}

#[test]
fn call_result_lists_degraded_level_and_lost_guarantees() {
    for_each_user(&["call", "--json", "bash", r#"{"command":"echo hi"}"#], |ran| {
        let result: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(result["content"], "hi\n", "{ran:?}");
        let sandbox = &result["notes"]["sandbox"];
        assert_eq!(sandbox["level"], "landlock", "{ran:?}");
        named(&sandbox["weaker"], &ran.stderr);
        assert!(ran.stderr.starts_with("warning: the sandbox is weaker on this machine"), "{ran:?}");
    });
}

#[test]
fn doctor_lists_degraded_level_and_lost_guarantees() {
    for_each_user(&["doctor", "--json"], |ran| {
        let sandbox = &serde_json::from_str::<Value>(&ran.stdout).unwrap()["sandbox"];
        assert_eq!(sandbox["level"], "landlock", "{ran:?}");
        for_each_user(&["doctor"], |ran| {
            named(&sandbox["weaker"], &ran.stdout);
            assert!(
                ran.stdout.contains("level landlock") && ran.stdout.contains("off  namespaces"),
                "{ran:?}"
            );
        });
    });
}

#[test]
fn sandbox_command_warns_about_degraded_sandbox() {
    for_each_user(&["sandbox", "--", "true"], |ran| {
        let warnings = ran.stderr.lines().filter(|line| line.starts_with("warning: ")).count();
        assert!(warnings > LOST, "{ran:?}");
    });
}

/// `cargo xtask test --long` skips these attempts at the level landlock. For each attempt, `doctor` must state the
/// limit, or the list must give another reason.
#[test]
fn doctor_states_every_limit_on_the_list_of_exceptions() {
    let list = include_str!("escape/landlock.txt");
    let limits: Vec<&str> = list.lines().filter_map(|line| line.strip_prefix("limit: ")).collect();
    assert!(limits.len() > LOST, "{limits:?}");
    for_each_user(&["doctor", "--json"], |ran| {
        let weaker = &serde_json::from_str::<Value>(&ran.stdout).unwrap()["sandbox"]["weaker"];
        for limit in &limits {
            assert!(weaker.as_array().unwrap().iter().any(|sentence| sentence == limit), "{limit}: {weaker}");
        }
    });
}

/// The minimum number of guarantees that are lost without namespaces.
const LOST: usize = 4;

#[track_caller]
fn named(weaker: &Value, text: &str) {
    let sentences: Vec<&str> =
        weaker.as_array().unwrap().iter().map(|sentence| sentence.as_str().unwrap()).collect();
    assert!(sentences.len() > LOST, "{sentences:?}");
    for sentence in sentences {
        assert!(text.contains(sentence), "`{sentence}` is not in\n{text}");
    }
}

#[test]
fn ordinary_commands_work_in_degraded_sandbox() {
    DEGRADED.granted(
        "git init -q . && echo x > file && git add . && git -c user.name=n -c user.email=e commit -qm x &&
         f=$(mktemp) && rm $f && python3 -c 'import subprocess; subprocess.run(\"true\")' && echo x > /dev/null && echo granted",
    );
}

#[test]
fn workspace_inside_haft_home_is_writable() {
    EscapeTrial { flags: &["--workspace", "@/home/workspace"], ..DEGRADED }.granted(
        r#"echo x > note && echo x > new && ! cat "$home/data/db" && ! echo x > "$home/new" && echo granted"#,
    );
}

#[test]
fn command_cannot_write_a_file() {
    DEGRADED.attempt(r#"echo x > "$outside/file"; echo x >> "$outside/file""#);
}

#[test]
fn command_cannot_truncate_a_file() {
    DEGRADED.attempt(r#"truncate -s 0 "$outside/file""#);
}

#[test]
fn command_cannot_create_a_file() {
    DEGRADED.attempt(r#"touch "$outside/new"; mkdir "$outside/newer"; mkfifo "$outside/newest""#);
}

#[test]
fn command_cannot_delete_a_file() {
    DEGRADED.attempt(r#"rm -rf "$outside" "$user""#);
}

#[test]
fn command_cannot_rename_a_file() {
    DEGRADED.attempt(
        r#"mv "$outside/file" "$outside/other"; mv "$outside" "$outside.gone"; mv own "$outside/new""#,
    );
}

#[test]
fn command_cannot_write_outside_through_a_link() {
    DEGRADED
        .attempt(r#"ln "$outside/file" hard && echo x > hard; ln -s "$outside" soft; echo x > soft/file"#);
}

#[test]
fn command_cannot_write_through_proc() {
    DEGRADED.attempt(
        r#"exec 3< "$outside/file"; echo x > /proc/self/fd/3; for p in /proc/[0-9]*; do echo x > "$p/root$outside/file"; done"#,
    );
}

#[test]
fn command_cannot_open_a_fifo_for_writing() {
    EscapeTrial { setup: r#"mkfifo "$outside/pipe""#, ..DEGRADED }
        .refused(r#"if exec 3<> "$outside/pipe"; then echo ESCAPED; fi"#);
}

#[test]
fn command_cannot_write_haft_home() {
    for way in [DEGRADED, BELOW_TMP] {
        way.attempt(r#"echo x > "$home/data/db"; echo x > "$home/haft.json"; echo x > "$home/new""#);
        way.attempt(r#"rm -rf "$home""#);
        way.attempt(r#"mv "$home" "$home.moved""#);
        way.attempt(r#"mv "$root" "$root.moved" || mv "$home" "$home.moved""#);
    }
}

#[test]
fn command_cannot_write_haft_home_in_full_mode() {
    EscapeTrial { flags: &["--mode", "full"], watched: &["home"], ..DEGRADED }
        .attempt(r#"echo x > "$home/data/db"; echo x > "$home/haft.json"; mv "$home" "$home.moved""#);
}

#[test]
fn command_cannot_create_missing_config_file() {
    for way in [DEGRADED, BELOW_TMP] {
        EscapeTrial { setup: r#"rm "$home/haft.json""#, ..way }.attempt(r#"echo x > "$home/haft.json""#);
    }
}

#[test]
fn command_cannot_read_haft_home() {
    for way in [DEGRADED, BELOW_TMP, EscapeTrial { flags: &["--mode", "full"], ..DEGRADED }] {
        way.attempt_to_read(
            r#"cat "$home/data/db" "$home/haft.json" "/proc/self/root$home/data/db"; ln "$home/data/db" hard; cat hard
               mv "$home" "$home.x"; cat "$home.x/data/db""#,
        );
    }
}

#[test]
fn command_cannot_read_a_cache() {
    EscapeTrial {
        setup: r#"mkdir -p "$home/cache/server"; cp "$home/data/db" "$home/cache/server/token""#,
        ..DEGRADED
    }
    .attempt_to_read(r#"cat "$home/cache/server/token""#);
}

/// Without an IPC namespace, a command would use the shared memory, semaphores and message queues of the whole machine.
#[test]
fn shared_memory_semaphores_and_message_queues_are_refused() {
    DEGRADED.refused("for kind in '-M 4096' '-S 1' -Q; do ipcmk $kind && echo ESCAPED; done");
}

#[test]
fn command_cannot_read_secrets() {
    DEGRADED.attempt_to_read(r#"cat "$user/.ssh/id_ed25519" "$user/.netrc" "$user/.docker/config.json"; cat ~/.config/gcloud/token"#);
}

#[test]
fn command_cannot_write_git_hooks_and_config() {
    EscapeTrial { setup: r#"git init -q "$ws""#, watched: &["ws/.git/hooks", "ws/.git/config"], ..DEGRADED }
        .attempt(
            "echo x > .git/hooks/pre-commit; git config a.b c; echo x >> .git/config; rm -rf .git/hooks",
        );
}

#[test]
fn tcp_and_udp_are_refused_without_network() {
    let check =
        |flags: &[&str], script: &str, expected| check_through(WITHOUT_NAMESPACES, flags, script, expected);
    check(&[], TCP, Refused);
    check(&[], UDP, Refused);
    check(&["--mode", "network"], TCP, Reached);
}

#[test]
fn unix_sockets_are_refused() {
    for flags in [&[][..], &["--mode", "network"]] {
        for connect in [PATHNAME, ABSTRACT, DATAGRAM] {
            check_through(WITHOUT_NAMESPACES, flags, &python(connect), Refused);
        }
    }
}

#[test]
fn unix_datagram_from_socketpair_is_refused() {
    check_through(WITHOUT_NAMESPACES, &[], &python(DATAGRAM_OF_A_PAIR), Refused);
}

#[test]
fn command_cannot_signal_limit_inspect_or_trace_other_processes() {
    let pid = std::process::id();
    DEGRADED.refused(&format!(
        "kill -0 {pid} && echo ESCAPED; prlimit --pid {pid} --nofile && echo ESCAPED
         renice -n 5 -p {pid} && echo ESCAPED; cat /proc/{pid}/environ && echo ESCAPED; readlink /proc/{pid}/fd/0 /proc/{pid}/exe && echo ESCAPED; head -c 1 /proc/{pid}/maps | grep . && echo ESCAPED"
    ));
    DEGRADED.refused(&python(&format!("refused({}, 16, {pid}, 0, 0)", libc::SYS_ptrace)));
}

#[test]
fn command_cannot_read_the_environment_of_any_process() {
    for user in users() {
        let tree = TRIAL.arena(user);
        let script = whole(&tree, r"cat /proc/[0-9]*/environ | tr '\0' '\n'");
        let ran = tree
            .confined(&[], &script)
            .through(WITHOUT_NAMESPACES)
            .env("API_KEY", "canary-of-the-environment")
            .output();
        tried(&ran);
        assert!(!ran.stdout.contains("canary-of-the-environment"), "as {user:?}: {ran:?}");
    }
}

#[test]
fn command_cannot_open_devices_and_write_kernel_parameters() {
    DEGRADED.refused(
        r#"for disk in /sys/block/*; do head -c 1 "/dev/${disk##*/}" && echo ESCAPED; done; (: >> /dev/kmsg) && echo ESCAPED
           (: >> /proc/sys/kernel/core_pattern) && echo ESCAPED; (: >> /proc/sysrq-trigger) && echo ESCAPED; mkdir /sys/fs/cgroup/x && echo ESCAPED
           mknod node c 1 3 && echo ESCAPED; echo x > /dev/shm/x && echo ESCAPED"#,
    );
}

#[test]
fn daemons_do_not_outlive_the_call() {
    for daemon in [
        "setsid -f bash -c 'exec -a MARKER sleep 600'",
        "(setsid bash -c 'exec -a MARKER sleep 600' &) &",
        "(trap '' TERM INT HUP; exec -a MARKER sleep 600) &",
    ] {
        assert_no_process_is_left(daemon);
    }
}

/// Processes fork and exit in a loop, so that each has ended before a watcher can kill it.
#[test]
fn fork_chains_do_not_outlive_the_call() {
    assert_no_process_is_left(
        "python3 -c 'MARKER = 1
import os
for chain in range(6):
    if os.fork() == 0:
        os.setsid()
        while True:
            if os.fork(): os._exit(0)' &",
    );
}

#[track_caller]
fn assert_no_process_is_left(script: &str) {
    for user in users() {
        let marker = unique_marker().replace('-', "_");
        let tree = TestTree::new(user);
        let script = format!("{}\necho tried", script.replace("MARKER", &marker));
        let ran = tree.confined(&[], &script).through(WITHOUT_NAMESPACES).output();
        assert_eq!(ran.stdout, "tried\n", "as {user:?}: {ran:?}");
        let left = processes_with(&marker);
        assert!(left.is_empty(), "as {user:?}: {left:?}");
    }
}
