//! Tests of ordinary work that succeeds inside the sandbox, for every user.

use haft_testkit::{TestTree, TestUser, checks, users};

/// Checks that the script succeeds and prints `expected`.
#[track_caller]
fn check(script: &str, expected: &str) {
    check_with(&[], script, expected);
}

#[track_caller]
fn check_with(flags: &[&str], script: &str, expected: &str) {
    for user in users() {
        let tree = TestTree::new(user);
        let ran = tree.confined(flags, &format!("set -e\n{script}")).output();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected), "as {user:?}: {}", ran.stderr);
        assert_eq!(ran.stderr, "", "as {user:?}");
    }
}

checks!(check {
    echo_works: "echo hello", "hello\n";
    workspace_files_can_be_created_moved_and_linked:
        "mkdir -p a/b; echo x > a/b/c; mv a/b a/d; chmod 700 a/d/c; ln a/d/c e; ln -s e f; rm e; ls -R | tr '\\n' ' '",
        ".: a f  ./a: d  ./a/d: c ";
    tmp_files_can_be_created: "f=$(mktemp); echo x > $f; cat $f; rm $f; echo $TMPDIR", "x\n/tmp\n";
});

#[test]
fn commands_start_in_the_workspace() {
    for user in users() {
        let tree = TestTree::new(user);
        let ran = tree.confined(&[], "pwd").output();
        assert_eq!(ran.stdout.trim_end(), tree.path("ws").to_str().unwrap());
    }
}

checks!(check {
    pipes_and_redirections_work:
        "seq 100 | sort -rn | head -1; wc -l < <(seq 7); cat <<END\nhere\nEND\ntee >(cat > copy) <<< both > /dev/null; echo $((1+2)) 2>&1",
        "100\n7\nhere\n3\n";
    background_jobs_can_be_awaited:
        "(sleep 0.05; echo one) & (sleep 0.01; echo two) & wait; echo three", "two\none\nthree\n";
});

#[test]
fn sandbox_returns_exit_codes_and_signals() {
    for user in users() {
        let tree = TestTree::new(user);
        tree.confined(&[], "exit 42").output().expect_code(42);
        tree.confined(&[], "kill -TERM $$").output().expect_code(143);
        tree.haft(&["sandbox", "--", "no-such-program-anywhere"]).output().expect_code(127);
    }
}

checks!(check {
    named_pipes_work: "mkfifo p; (echo through > p) & cat p; wait", "through\n";
    standard_devices_work:
        "echo x > /dev/null; head -c 2 /dev/zero | wc -c; head -c 3 /dev/urandom | wc -c; echo y > /dev/full 2> /dev/null || echo full",
        "2\n3\nfull\n";
    git_init_commit_and_merge_work:
        "git init -q -b main .; echo x > file; git add file; git -c user.name=n -c user.email=e@x commit -qm first; git log --format=%s
         git checkout -q -b side; echo y > file; git -c user.name=n -c user.email=e@x commit -qam second; git checkout -q main
         git -c user.name=n -c user.email=e@x merge -q side; git log --format=%s | wc -l",
        "first\n2\n";
});

#[test]
fn git_works_in_an_existing_repository() {
    for user in users() {
        let tree = TestTree::new(user);
        assert_eq!(tree.unconfined("git init -q -b main .").code, Some(0));
        let script = "set -e; echo x > file; git add .; git -c user.name=n -c user.email=e@x commit -qm first
            git branch side; git tag v1; git stash list; git gc -q; git worktree add -q ../ws/tree side; git log --format=%s";
        let ran = tree.confined(&[], script).output().expect_code(0);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("first\n", ""), "as {user:?}");
    }
}

#[test]
fn git_init_works_in_a_subdirectory_of_a_repository() {
    for user in users() {
        let tree = TestTree::new(user);
        assert_eq!(tree.unconfined("git init -q .").code, Some(0));
        let script =
            "mkdir sub; cd sub; git init -q .; git config a.b c; echo x > .git/hooks/new; git config a.b";
        let ran = tree.confined(&[], script).output().expect_code(0);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("c\n", ""), "as {user:?}");
    }
}

checks!(check {
    git_clone_works_locally:
        "git init -q -b main one; cd one; git -c user.name=n -c user.email=e@x commit -qm first --allow-empty; cd ..
         git clone -q one two; git -C two log --format=%s",
        "first\n";
    python_works:
        "python3 -c 'import json, ssl, subprocess; print(json.dumps({\"a\": subprocess.getoutput(\"echo b\")}))'",
        "{\"a\": \"b\"}\n";
    python_multiprocessing_works:
        "python3 -c '
import multiprocessing
with multiprocessing.Pool(3) as pool: print(sum(pool.map(abs, range(10))), multiprocessing.Lock().acquire())'",
        "45 True\n";
    python_asyncio_works:
        "python3 -c '
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec(\"echo\", \"x\", stdout=asyncio.subprocess.PIPE)
    print((await process.communicate())[0], await asyncio.to_thread(abs, -1))
asyncio.run(main())'",
        "b'x\\n' 1\n";
    python_sqlite_works:
        "python3 -c '
import sqlite3
for name in (\"db\", \"/dev/shm/db\"):
    base = sqlite3.connect(name); base.execute(\"pragma journal_mode = wal\"); base.execute(\"create table t (x)\")
    base.execute(\"insert into t values (1)\"); base.commit(); print(base.execute(\"select * from t\").fetchall())'",
        "[(1,)]\n[(1,)]\n";
    node_works:
        "node -e 'require(\"fs\").writeFileSync(\"f\", \"x\"); console.log(require(\"child_process\").execSync(\"cat f\") + \"\")'",
        "x\n";
});

/// Run this only as the current user: the toolchain is often below a private home directory.
#[test]
fn cargo_starts_in_the_sandbox() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| env!("CARGO").into());
    let ran = TestTree::new(TestUser::Ourselves)
        .confined(&[], &format!("'{cargo}' --version"))
        .output()
        .expect_code(0);
    assert!(ran.stdout.starts_with("cargo 1."), "{ran:?}");
}

checks!(check {
    c_compiler_works: "echo 'int main(){return 7;}' > a.c; cc -o a a.c; ./a || echo $?", "7\n";
    tar_and_gzip_work:
        "mkdir d; echo x > d/f; tar czf d.tgz d; rm -r d; tar xzf d.tgz; cat d/f; gzip -k d/f; zcat d/f.gz",
        "x\nx\n";
    system_files_are_readable:
        "grep -c '^root:' /etc/passwd; test -x /usr/bin/env; ls /usr/share > /dev/null; cat /proc/self/comm; test -r /proc/cpuinfo; ls /sys/block > /dev/null",
        "1\ncat\n";
    processes_of_the_call_can_be_listed_and_signalled:
        "sleep 60 & kill %1; wait %1 || echo $?; ls /proc | grep -c '^[0-9]*$' > /dev/null; ps > /dev/null; echo seen",
        "143\nseen\n";
});

#[test]
fn locale_and_timezone_are_passed_to_commands() {
    for user in users() {
        let tree = TestTree::new(user);
        let run = tree
            .confined(&[], "echo $LC_ALL $LANG $TERM; date -d @0 +%H")
            .env("LC_ALL", "C.UTF-8")
            .env("LANG", "C")
            .env("TZ", "UTC-3");
        let ran = run.output().expect_code(0);
        assert_eq!(ran.stdout, "C.UTF-8 C dumb\n03\n", "as {user:?}");
    }
}

#[test]
fn ordinary_commands_work_in_full_and_network_mode() {
    check_with(
        &["--mode", "full"],
        "git init -q .; python3 -c 'print(1)'; echo x > /tmp/haft-test-$$; rm /tmp/haft-test-$$",
        "1\n",
    );
    check_with(&["--mode", "network"], "python3 -c 'print(1)'; echo x > f; cat f", "1\nx\n");
}

#[test]
fn workspace_below_tmp_works() {
    for user in users() {
        let tree = TestTree::below(std::path::Path::new("/tmp"), user);
        let ran = tree.confined(&[], "echo x > f; mkdir ../beside; cat f; ls ..").output().expect_code(0);
        assert_eq!(ran.stdout, "x\nbeside\nhome\noutside\nuser\nws\n", "as {user:?}: {ran:?}");
    }
}

#[test]
fn workspace_with_special_characters_works() {
    for user in users() {
        let tree = TestTree::new(user);
        let odd = tree.directory("ws/ö \"quoted\" $name\nline");
        let ran = tree
            .confined(&["--workspace", odd.to_str().unwrap()], "echo x > f; cat f")
            .output()
            .expect_code(0);
        assert_eq!(ran.stdout, "x\n", "as {user:?}");
    }
}
