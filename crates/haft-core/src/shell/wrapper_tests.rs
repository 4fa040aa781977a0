//! Spellings that hide a command behind programs that run programs. Without the net of the rules, the reader alone must
//! find the command, see that something unknown runs, or refuse the line.

use proptest::prelude::*;

use super::*;

fn finds_rm(line: &str) -> bool {
    let is_it = |command: &ShellCommand| {
        command
            .program()
            .is_some_and(|word| word.opaque || word.text.rsplit('/').next().is_some_and(|name| name == "rm"))
    };
    commands(line).map_or(true, |found| found.iter().any(is_it))
}

const HIDING: [&str; 200] = [
    "bash -euo pipefail -c 'rm x'",
    "bash -eo pipefail -uc 'rm x'",
    "bash +eO extglob -c 'rm x'",
    "bash -O extglob -o pipefail -ec 'rm x'",
    "bash -posix -c 'rm x'",
    "bash --norc -noprofile -c 'rm x'",
    "bash -c -- 'rm x'",
    "bash --rcfile f -i",
    "bash -s x",
    "bash /dev/stdin",
    "bash /proc/self/fd/0",
    "sh -ec 'rm x'",
    "zsh -fc 'rm x'",
    "fish -c 'rm x'",
    "tcsh -c 'rm x'",
    "{fd}>f rm x",
    "{fd}<f {other}>>g rm x",
    "env --sp='rm x'",
    "env --split-string 'rm x'",
    "env -vS 'rm x'",
    "env -u A -C / rm x",
    "env --uns=A rm x",
    "env - rm x",
    "sudo -A -u root -g wheel rm x",
    "sudo --us=root rm x",
    "sudo A=1 -u root rm x",
    "sudo -s",
    "doas -u root rm x",
    "setpriv --reuid=1 --clear-groups rm x",
    "setpriv --nnp rm x",
    "prlimit --nproc=5 rm x",
    "prlimit -n10 rm x",
    "setarch x86_64 -R rm x",
    "linux32 rm x",
    "unshare -r -n rm x",
    "unshare --map-root-user rm x",
    "nsenter -t 1 -m rm x",
    "nsenter --target 1 --mount rm x",
    "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
    "/lib64/ld-linux-x86-64.so.2 --library-path /lib /bin/rm x",
    "ld.so --preload x /bin/rm x",
    "fakeroot rm x",
    "fakeroot -l lib -- rm x",
    "faketime '2020-01-01' rm x",
    "faketime -f '2020' rm x",
    "valgrind --leak-check=full rm x",
    "valgrind -q rm x",
    "hyperfine 'rm x'",
    "hyperfine -w 3 -p 'rm x' ls",
    "hyperfine ls 'rm x'",
    "strace -f -o out rm x",
    "ltrace -c rm x",
    "taskset -c 1 rm x",
    "chrt -f 5 rm x",
    "ionice -c 3 rm x",
    "nice -5 rm x",
    "nice --adj=5 rm x",
    "stdbuf -oL rm x",
    "stdbuf --out=L rm x",
    "timeout --sig=KILL 5 rm x",
    "timeout -s KILL -k 1 5 rm x",
    "flock f rm x",
    "flock f -c 'rm x'",
    "flock -n f -c 'rm x'",
    "flock --comm 'rm x' f",
    "flock -w 5 f --command 'rm x'",
    "sg users -c 'rm x'",
    "watch -n 1 rm x",
    "watch --int=1 'rm x'",
    "watch -d rm x",
    "xargs -a f rm",
    "xargs -I{} {} x",
    "xargs -0I % % x",
    "xargs --rep=@ @ x",
    "xargs --max-a=1 rm",
    "find . -exec rm {} +",
    "find . -execdir rm {} ';'",
    "find . -ok rm {} ';'",
    "find . -exec {} ';'",
    "fd -x rm",
    "fd -Hx rm",
    "fd -HIX rm",
    "fd -xrm",
    "fd --exec rm",
    "fd --exec=rm",
    "fd -e txt --exec-batch rm",
    "split --filter='rm x' f",
    "split --fil 'rm x' f",
    "sort --compress-prog='rm x' f",
    "tar --use-c='rm x' -cf a b",
    "tar --to-c 'rm x' -xf a",
    "tar --checkpoint-a=exec='rm x' -cf a b",
    "tar -cf a -I 'rm x' b",
    "tar -cvIf 'rm x' a b",
    "tar cIf 'rm x' a b",
    "tar -F 'rm x' -cf a b",
    "rsync -e 'rm x' a b",
    "rsync -ave 'rm x' a b",
    "rsync --rs='rm x' a b",
    "rsync -av --rsync-p='rm x' a b",
    "zip -TT 'rm x' a b",
    "zip a b -T --unzip-command='rm x'",
    "git rebase -x'rm x' main",
    "git rebase -x 'rm x' main",
    "git rebase -i --ex='rm x' main",
    "git clone --upload-pac='rm x' a",
    "git clone -u'rm x' a",
    "git fetch --upload-p='rm x' a",
    "git push --receive-pa='rm x' a",
    "git push --exe='rm x' a",
    "git -C d -c alias.x='!rm x' x",
    "git --config-e=a=b x",
    "git -c core.pager='rm x' log",
    "git submodule foreach 'rm x'",
    "git submodule -q foreach --recursive rm x",
    "git bisect run rm x",
    "git difftool -x'rm x'",
    "git difftool --extc='rm x'",
    "git grep -O'rm x' a",
    "git grep --open-files='rm x' a",
    "git clone 'ext::rm x'",
    "git --exec-path=. x",
    "git config alias.x '!rm x'",
    "git archive --remote=a --exec='rm x' HEAD",
    "sed 'e rm x' f",
    "sed '1e rm x' f",
    "sed -n '/a/,/b/e' f",
    "sed 's/a/rm x/e' f",
    "sed 's|a|rm x|ge' f",
    "sed -e p -e 's/[^/]*/rm x/e' f",
    "sed --expr='s/a/b/;e rm x' f",
    "sed -ne 'e rm x' f",
    "sed -Ee 'e rm x' f",
    "sed '{p;e rm x\n}' f",
    "awk 'BEGIN{system(\"rm x\")}'",
    "awk '{f=\"sys\" \"tem\"; @f(\"rm x\")}'",
    "make --eval='$(shell rm x)'",
    "make --ev '$(shell rm x)'",
    "make -E '$(shell rm x)'",
    "socat - EXEC:'rm x'",
    "sqlite3 db '.shell rm x'",
    "sqlite3 db '.sh rm x'",
    "sqlite3 db 'select 1' '.system rm x'",
    "sqlite3 -cmd '.shell rm x' db 'select 1'",
    "sqlite3 db",
    "psql -c '\\! rm x'",
    "psql",
    "gdb -batch -ex 'shell rm x'",
    "npm exec rm x",
    "npm exec -- rm x",
    "npm exec -c 'rm x'",
    "npm x -y rm x",
    "npx -c 'rm x'",
    "npx rm x",
    "pnpm dlx rm x",
    "uv run rm x",
    "uv run --with a -- rm x",
    "poetry run rm x",
    "bundle exec rm x",
    "conda run -n base rm x",
    "ip netns exec a rm x",
    "perl -we 'x'",
    "perl -le 'x'",
    "perl -lane 'x' f",
    "perl -0777ne 'x' f",
    "perl -MPOSIX f",
    "perl",
    "perl -",
    "perl -w - x",
    "python3 -uc 'x'",
    "python3.12 -c 'x'",
    "python3 -",
    "python3 -u",
    "python3 -W ignore",
    "python3 /dev/stdin",
    "ruby -ne 'x'",
    "ruby",
    "node -pe 'x'",
    "node --ev='x'",
    "node",
    "php -dx=y -r 'x'",
    "php",
    "lua -",
    "deno eval 'x'",
    "mapfile -C 'rm x' -c 1 < f",
    "mapfile -tC 'rm x' a",
    "jobs -x rm x",
    "BASH_ENV=f bash g",
    "ENV=f sh g",
    "GIT_SSH_COMMAND='rm x' git fetch",
    "PAGER='rm x' git log",
    "BASH_CMDS[ls]=/bin/rm; ls",
    "env GIT_PAGER='rm x' git log",
    "export GIT_EDITOR='rm x'; git commit",
    "declare -x PAGER='rm x'",
    "read BASH_ENV",
    "printf -v PROMPT_COMMAND x",
    "for BASH_ENV in f; do bash g; done",
    "cmake -E env rm x",
    "vim +'!rm x'",
];

#[test]
fn no_listed_spelling_hides_a_command() {
    let hidden: Vec<_> = HIDING.into_iter().filter(|line| !finds_rm(line)).collect();
    assert!(hidden.is_empty(), "{hidden:#?}");
}

#[test]
fn ordinary_uses_of_programs_that_run_programs_are_seen() {
    let seen = [
        "bash -eu build.sh",
        "bash -o pipefail build.sh",
        "sed -n '1,5p' f",
        "sed -i 's/[^/]*$//; s/[[:space:]]*$//' f",
        "sed -e 's/a/b/g' -e '/x/d' f",
        "sed '/start/,/end/{s/a/e/;p}' f",
        "sed 's/e/f/w out' f",
        "sed -E 's#(a|b)#\\1e#' f",
        "sed 'y/abc/def/' f",
        "sed --quiet '$p' f",
        "tar xzf a.tgz",
        "tar -czvf a.tgz --exclude=b c",
        "rsync -av --delete a/ b/",
        "rsync -avz -e ssh a h:b",
        "git log --oneline",
        "git -C d status",
        "git --no-pager diff",
        "git rebase main",
        "git config --get user.name",
        "git clone https://example.com/a",
        "git push -u origin main",
        "sort -k2 f",
        "split -l 10 f",
        "python3 -m pytest -c x",
        "python3 script.py -c x",
        "python3 --version",
        "perl script.pl -e",
        "node server.js -e x",
        "node --version",
        "find . -name '*.c'",
        "fd -e rs",
        "fd -t f pattern",
        "make -j4 all",
        "sqlite3 db 'select 1'",
        "sqlite3 db .tables",
        "PAGER=cat git log",
        "GIT_EDITOR=true git commit",
        "export PATH=a:b",
        "rg pattern src",
        "npm run build",
        "uv pip list",
    ];
    for line in seen {
        let found = commands(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let unseen = found.iter().find(|command| command.program().is_some_and(|word| word.opaque));
        assert!(unseen.is_none(), "{line}: {unseen:?}");
    }
}

/// Wrappers for a command, with `@` for it.
const BEFORE: [&str; 34] = [
    "@",
    "A=1 @",
    "{fd}>f @",
    "env @",
    "env -u A B=1 @",
    "env --ch=/ @",
    "sudo -n @",
    "sudo -u root -- @",
    "nohup @",
    "nice -n 5 @",
    "ionice -c2 @",
    "timeout -k 1 5 @",
    "timeout --fore 5 @",
    "stdbuf -oL -eL @",
    "setsid -w @",
    "setpriv --nnp @",
    "prlimit --nproc=5 @",
    "setarch x86_64 @",
    "unshare -r @",
    "nsenter -t 1 -a @",
    "flock -n f @",
    "fakeroot @",
    "faketime 2020 @",
    "valgrind -q @",
    "strace -f @",
    "taskset -c 1 @",
    "busybox @",
    "command @",
    "exec @",
    "ld.so @",
    "npx -y @",
    "uv run @",
    "xargs -n 1 @",
    "find . -exec @ {} \\;",
];

/// Places for a command line, with `@` for the line in single quotes.
const QUOTED: [&str; 14] = [
    "bash -c @",
    "sh -euc @",
    "bash -euo pipefail -c @",
    "eval @",
    "trap @ EXIT",
    "flock f -c @",
    "watch -n 1 @",
    "hyperfine -N @",
    "git rebase -x @ main",
    "split --filter=@ f",
    "PAGER=@ git log",
    "npx -c @",
    "tar --to-command=@ -xf a",
    "su -c @",
];

/// Spellings of the program.
const SPELLED: [&str; 8] = ["rm", "r\\m", "'r'm", "\"rm\"", "/bin/rm", "$'\\x72m'", "r''m", "../rm"];

fn nested() -> impl Strategy<Value = String> {
    let layer = prop_oneof![
        proptest::sample::select(BEFORE.as_slice()).prop_map(|before| (before, false)),
        proptest::sample::select(QUOTED.as_slice()).prop_map(|quoted| (quoted, true)),
    ];
    let spelled = proptest::sample::select(SPELLED.as_slice());
    (spelled, proptest::collection::vec(layer, 0..5)).prop_map(|(spelled, layers)| {
        layers.into_iter().fold(format!("{spelled} x"), |inner, (place, quotes)| {
            let quoted = format!("'{}'", inner.replace('\'', "'\\''"));
            place.replace('@', if quotes { &quoted } else { &inner })
        })
    })
}

proptest! {
    // A fixed seed, so that a failure of one run is a failure of every run.
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        rng_seed: proptest::test_runner::RngSeed::Fixed(16),
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_nesting_of_wrappers_hides_a_command(line in nested()) {
        prop_assert!(finds_rm(&line), "{line}: {:?}", commands(&line));
    }

    #[test]
    fn any_words_of_known_programs_are_read_without_a_panic(
        words in proptest::collection::vec(proptest::sample::select(vec![
            "env", "sudo", "git", "-c", "-x", "--exec=", "--", "-", "sed", "'s/a/'", "'[^'", "'e'", "é", "-é", "$X", "xargs",
            "-I", "-Ié", "tar", "xIf", "fd", "-Hx", "flock", "f", "A=1", "perl", "-le", "bash", "+O", "-o", "hyperfine", "'y/é/'",
        ]), 0..12),
    ) {
        let _ = commands(&words.join(" "));
    }
}
