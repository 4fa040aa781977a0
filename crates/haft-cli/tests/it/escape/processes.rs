//! Attempts to escape through other processes, and through resources that a command could inherit by mistake:
//! environment, descriptors, a terminal. The keeper is haft's process inside the sandbox, which starts the command.

use haft_testkit::{HaftOutput, TestTree, checks, libc, users};

use super::{CANARY, ESCAPED, EscapeTrial, TRIAL, python, refused, tried, whole};

checks!(assert_environment_is_not_leaked {
    command_cannot_read_the_environment_of_any_process:
        &[],
        r"cat /proc/*/environ | tr '\0' '\n'; cat /proc/*/task/*/environ | tr '\0' '\n'";
    command_cannot_read_the_environment_in_full_mode: &["--mode", "full"], r"env; cat /proc/*/environ | tr '\0' '\n'";
});

#[test]
fn command_cannot_read_the_memory_of_the_keeper() {
    let read_all = "
for line in open('/proc/1/maps'):
    low, high = (int(part, 16) for part in line.split()[0].split('-'))
    try: sys.stdout.buffer.write(os.pread(os.open('/proc/1/mem', os.O_RDONLY), high - low, low))
    except (OSError, OverflowError): pass";
    for mode in ["workspace", "full"] {
        let tree = TRIAL.arena(haft_testkit::TestUser::Ourselves);
        let script = whole(&tree, &python(read_all));
        let ran =
            tree.confined(&["--mode", mode], &script).env("API_KEY", "canary-of-the-environment").output();
        assert!(
            ran.stdout.ends_with("tried\n") && !ran.stdout.contains("canary-of-the-environment"),
            "{mode}"
        );
    }
}

#[test]
fn command_cannot_read_secret_variable_from_own_environment() {
    assert_environment_is_not_leaked(&[], "env; set");
}

#[test]
fn command_cannot_inject_code_through_environment_variables() {
    for user in users() {
        let tree = TRIAL.arena(user);
        let evil = tree.file("outside/evil.sh", "echo ESCAPED");
        let run = tree.confined(&[], &whole(&tree, "bash -c 'env'; sh -c 'env'"));
        let ran = [("BASH_ENV", &*evil.to_string_lossy()), ("ENV", &evil.to_string_lossy())]
            .iter()
            .fold(run, |run, (name, value)| run.env(name, value))
            .env("PROMPT_COMMAND", "echo ESCAPED")
            .env("BASH_FUNC_env%%", "() { echo ESCAPED; }")
            .env("LD_LIBRARY_PATH", "ESCAPED")
            .env("PYTHONPATH", "ESCAPED")
            .env("GIT_DIR", "ESCAPED")
            .env("SSH_AUTH_SOCK", "ESCAPED")
            .env("http_proxy", "http://ESCAPED")
            .env("ALL_PROXY", "http://ESCAPED")
            .output();
        tried(&ran);
        assert!(!ran.stdout.contains(ESCAPED), "as {user:?}: {ran:?}");
    }
}

#[test]
fn env_flag_passes_only_named_variables() {
    for user in users() {
        let tree = TRIAL.arena(user);
        let run = tree.confined(
            &["--env", "WANTED", "--env", "NOT_SET"],
            "echo \"${WANTED}${NOT_SET-unset}${OTHER-unset}\"",
        );
        let ran = run.env("WANTED", "here ").env("OTHER", "ESCAPED").output();
        assert_eq!(ran.stdout, "here unsetunset\n", "as {user:?}: {ran:?}");
    }
}

#[test]
fn environment_contains_only_allowlisted_variables() {
    for user in users() {
        let tree = TRIAL.arena(user);
        let ran = tree
            .confined(&[], "cut -z -d= -f1 /proc/self/environ | tr '\\0' ' '")
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .output();
        let mut names: Vec<&str> = ran.stdout.split_whitespace().collect();
        names.sort_unstable();
        // bash may add the last four variables itself.
        let expected =
            ["HOME", "LC_ALL", "PATH", "TERM", "TMPDIR", "TZ", "USER", "OLDPWD", "PWD", "SHLVL", "_"];
        assert!(names.iter().all(|name| expected.contains(name)), "as {user:?}: {names:?}");
        assert!(expected[..7].iter().all(|name| names.contains(name)), "as {user:?}: {names:?}");
    }
}

checks!(inherited {
    command_cannot_write_to_an_inherited_descriptor:
        "exec 9>> FILE",
        "echo x >&9; echo x > /proc/self/fd/9; for fd in /proc/*/fd/*; do echo x >> $fd; done 2> /dev/null";
    command_cannot_walk_from_an_inherited_directory:
        "exec 9< DIR",
        "cd /proc/self/fd/9 && echo x > file; echo x > /proc/self/fd/9/file; echo x > /dev/fd/9/file";
});

#[test]
fn command_cannot_take_the_control_socket_of_the_keeper() {
    let take = python(&format!(
        "keeper = os.pidfd_open(1)
for number in range(3, 20): refused({}, keeper, number, 0)",
        libc::SYS_pidfd_getfd
    ));
    for mode in ["workspace", "network", "full"] {
        EscapeTrial { flags: &["--mode", mode], ..TRIAL }.refused(&take);
    }
}

#[test]
fn command_cannot_trace_the_keeper_in_full_mode() {
    // Detach at once, because a keeper that stays stopped would block the test.
    let attach = python(&format!(
        "refused({0}, 16, 1, 0, 0)\nos.waitpid(1, 0)\ncall({0}, 17, 1, 0, 0)",
        libc::SYS_ptrace
    ));
    EscapeTrial { flags: &["--mode", "full"], ..TRIAL }.refused(&attach);
}

checks!(assert_cannot_reach_test_process {
    command_cannot_signal_a_process_outside: "kill -0 PID && echo ESCAPED; kill -CONT PID && echo ESCAPED";
    command_cannot_limit_a_process_outside: "prlimit --pid PID --nofile && echo ESCAPED";
    command_cannot_renice_a_process_outside:
        "renice -n 5 -p PID && echo ESCAPED; ionice -c 3 -p PID && echo ESCAPED; taskset -p 1 PID && echo ESCAPED";
    command_cannot_see_a_process_outside:
        "ls -d /proc/PID && echo ESCAPED; grep -l 'haft-test-binar[y]' /proc/[0-9]*/cmdline | grep -v /proc/1/ && echo ESCAPED";
});

/// A confined process cannot create a weaker sandbox, neither by running haft nor by calling its launcher.
#[test]
fn command_cannot_escape_by_running_haft_inside_the_sandbox() {
    let haft = haft_testkit::binary();
    refused(&format!(
        r#"export HAFT_HOME="$ws/home"; mkdir "$HAFT_HOME"
           {haft} sandbox --mode full -- bash -c 'echo x > "$outside/file"'
           {haft} sandbox --mode full -- bash -c "echo x > '$outside/file'; echo x > '$home/haft.json'; cat '$home/data/db' && echo ESCAPED"
           {haft} sandbox --writable "$outside" -- bash -c "echo x > '$outside/file'"
           {haft} sandbox --network allow -- bash -c "cat '$user/.ssh/id_ed25519' && echo ESCAPED"
           {haft} __haft-launcher-1 bash -c "echo x > '$outside/file'" < /dev/null"#,
        haft = haft.display()
    ));
}

#[test]
fn command_cannot_write_to_the_directory_haft_started_in() {
    for user in users() {
        let tree = TRIAL.arena(user);
        let before = tree.snapshot();
        let script = whole(
            &tree,
            "pwd; for p in self 1 $$ $PPID; do echo x > /proc/$p/cwd/file; done; cd - && echo x > file",
        );
        let run = tree
            .confined(&["--workspace", tree.path("ws").to_str().unwrap()], &script)
            .in_directory(&tree.path("outside"));
        let ran = run.output();
        tried(&ran);
        assert!(ran.stdout.starts_with(tree.path("ws").to_str().unwrap()), "as {user:?}: {ran:?}");
        assert!(before.difference(&tree.snapshot()).is_empty(), "as {user:?}: {ran:?}");
    }
}

checks!(refused {
    command_cannot_kill_the_keeper:
        "kill -KILL 1; kill -TERM 1; kill -INT 1; kill -HUP 1; kill -CHLD 1; kill -SEGV 1; kill -SYS 1";
    command_cannot_stop_the_keeper: "kill -STOP 1; kill -TSTP 1; kill -TTIN 1";
});

#[test]
fn command_cannot_see_or_remove_shared_memory_of_others() {
    use std::process::Command;
    let made = Command::new("ipcmk").args(["-M", "4096", "-p", "0666"]).output().unwrap();
    let text = String::from_utf8(made.stdout).unwrap();
    let id = text.trim().rsplit(' ').next().unwrap().to_owned();
    refused(&format!("ipcs -m | grep -w {id} && echo ESCAPED; ipcrm -m {id} && echo ESCAPED"));
    assert!(
        Command::new("ipcrm").args(["-m", &id]).status().unwrap().success(),
        "the segment of shared memory still exists"
    );
}

#[test]
fn command_cannot_leave_data_in_shared_memory() {
    let name = haft_testkit::unique_marker();
    refused(&format!("echo x > /dev/shm/{name} || echo ESCAPED no shared memory at all"));
    assert!(!std::path::Path::new("/dev/shm").join(&name).exists());
}

#[test]
fn command_cannot_read_shared_memory_of_others() {
    let path = std::path::Path::new("/dev/shm").join(haft_testkit::unique_marker());
    std::fs::write(&path, CANARY).unwrap();
    refused(&format!("cat {} && echo ESCAPED; ls -A /dev/shm | grep . && echo ESCAPED", path.display()));
    std::fs::remove_file(path).unwrap();
}

/// If this were possible, a command could type into the terminal in which haft runs.
#[test]
fn command_cannot_type_into_the_terminal() {
    let on_a_terminal = ["python3", "-c", "import pty, sys; pty.spawn(sys.argv[1:])"];
    for user in users() {
        let tree = TRIAL.arena(user);
        let script = python(
            "
for name in ('/dev/tty', '/dev/console', *('/dev/pts/' + name for name in os.listdir('/dev/pts'))):
    attempt(os.open, name, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
for number in range(20):
    try: fcntl.ioctl(number, termios.TIOCSTI, b'x'); print('ESC' + 'APED', number)
    except OSError as error: pass
print('tty' if any(os.isatty(number) for number in range(3)) else 'no tty')",
        );
        let ran = tree.confined(&["--mode", "full"], &whole(&tree, &script)).through(&on_a_terminal).output();
        assert!(ran.stdout.contains("no tty") && ran.stdout.contains("tried"), "as {user:?}: {ran:?}");
        assert!(!ran.stdout.contains("ESCAPED"), "as {user:?}: {ran:?}");
    }
}

#[test]
fn standard_input_of_a_command_is_empty() {
    for user in users() {
        let tree = TRIAL.arena(user);
        let ran = tree.confined(&[], "cat; readlink /proc/self/fd/0").stdin(CANARY).output();
        assert_eq!(ran.stdout, "/dev/null\n", "as {user:?}: {ran:?}");
    }
}

#[track_caller]
fn assert_environment_is_not_leaked(flags: &[&str], script: &str) {
    for user in users() {
        let tree = TRIAL.arena(user);
        let secret = "canary-of-the-environment";
        let run =
            |run: haft_testkit::HaftCommand| run.env("API_KEY", secret).env("INNOCENT_NAME", secret).output();
        let ran: HaftOutput = run(tree.confined(flags, &whole(&tree, script)));
        tried(&ran);
        assert!(!ran.stdout.contains(secret), "as {user:?}: {ran:?}");
        assert!(
            ran.stdout.contains("PATH="),
            "the script prints no environment at all, as {user:?}: {ran:?}"
        );
    }
}

#[track_caller]
fn inherited(open: &str, script: &str) {
    for user in users() {
        let tree: TestTree = TRIAL.arena(user);
        let before = tree.snapshot();
        let open = open.replace("FILE", &tree.path("outside/file").to_string_lossy());
        let open = open.replace("DIR", &tree.path("outside").to_string_lossy());
        let wrapper = ["bash", "-c", &format!("{open}; exec \"$@\""), "bash"];
        let ran = tree.confined(&[], &whole(&tree, script)).through(&wrapper).output();
        tried(&ran);
        let changed = before.difference(&tree.snapshot());
        assert!(changed.is_empty(), "as {user:?}: {changed}{ran:?}");
    }
}

/// Runs the script with the test's own process id in place of `PID`. The script must not reach this process.
#[track_caller]
fn assert_cannot_reach_test_process(script: &str) {
    refused(&script.replace("PID", &std::process::id().to_string()));
}
