//! The table of programs that run other programs, with the option grammar from their manuals.
//!
//! If a row lacks an option, the worst result is an unnecessary question: with an unlisted option, the command that a
//! wrapper runs is treated as unknown. A program without a row is assumed to run no other program, so a missing row can
//! hide a command.

use super::options::OptionGrammar;

/// A program that runs other programs.
pub(super) struct ProgramRow {
    /// The program names, separated by spaces. A subcommand name is joined with dashes: `git-bisect-run`.
    names: &'static str,
    pub(super) options: OptionGrammar,
    pub(super) runs: ProgramRuns,
}

/// The part of the arguments that a program runs as commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramRuns {
    /// The words after the options are a command, except the first `after` words.
    Command { after: usize },
    /// The words after the options are a command, and the program adds words from its input, as `xargs` does.
    CommandAndInput,
    /// The words after the options, joined with spaces, are a command line.
    Line,
    /// Each word that is not an option is a command line.
    Lines,
    /// The first word after the options is a script. Without such a word, the program reads its standard input.
    Script,
    /// The first word after the options is the name of a subcommand, which has its own row.
    Subcommand,
    /// The values of options at any position are command lines or code.
    Options,
    /// The values of options at any position, and the values of variables, as for `make CC=cc`.
    OptionsAndVariables,
    /// The values of options before `--`. The words after `--` belong to another program.
    OptionsBeforeDashes,
    /// The values of options at any position. The first word may be a cluster of options without a dash, as in
    /// `tar xzf`.
    OptionsAndCluster,
    /// Anything: the parser cannot determine what the program runs. Without arguments it reads commands from standard
    /// input.
    Anything,
    /// Anything: the parser cannot determine what the program runs. Without arguments it only prints text.
    AnythingInWords,
}

/// Returns the row for a program name. Removes the directory and the version first, as in `/usr/bin/python3.12`.
pub(super) fn row(name: &str) -> Option<&'static ProgramRow> {
    let unversioned = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let loader = (name.starts_with("ld-") && name.contains(".so")).then_some("ld.so");
    [Some(name), loader, Some(unversioned)].into_iter().flatten().find_map(named)
}

fn named(name: &str) -> Option<&'static ProgramRow> {
    PROGRAMS.iter().find(|row| row.names.split(' ').any(|listed| listed == name))
}

/// Returns true for a wrapper that starts a shell if no command is given. The shell then reads its standard input.
pub(super) fn starts_shell(name: &str) -> bool {
    const NAMES: [&str; 16] = [
        "sudo",
        "doas",
        "unshare",
        "nsenter",
        "chroot",
        "setarch",
        "linux32",
        "linux64",
        "i386",
        "i486",
        "i586",
        "i686",
        "x86_64",
        "uname26",
        "fakeroot",
        "fakechroot",
    ];
    NAMES.contains(&name)
}

const fn program(names: &'static str, runs: ProgramRuns, options: &'static str) -> ProgramRow {
    ProgramRow { names, options: OptionGrammar(options), runs }
}

const COMMAND: ProgramRuns = ProgramRuns::Command { after: 0 };
const AFTER_ONE: ProgramRuns = ProgramRuns::Command { after: 1 };

#[rustfmt::skip]
const PROGRAMS: &[ProgramRow] = &[
    // Builtins of bash that run other commands.
    program("builtin", COMMAND, ""),
    program("command", COMMAND, "-p -v~ -V~"),
    program("exec", COMMAND, "-c -l -a="),
    program("jobs", ProgramRuns::Options, "-x&"),
    program("mapfile readarray", ProgramRuns::Options, "-C% -d= -n= -O= -s= -u= -c="),
    program(". alias bind compgen complete enable fc hash shopt source", ProgramRuns::AnythingInWords, ""),

    // Wrappers from coreutils, util-linux and procps.
    program("env", COMMAND, "- -i -0 -v -u= -C= -S% -a= --ignore-environment --null --unset= --chdir= --split-string% \
        --argv0= --block-signal? --default-signal? --ignore-signal? --list-signal-handling --debug --help~ --version~"),
    program("nohup", COMMAND, "--help~ --version~"),
    program("nice", COMMAND, "-n= --adjustment= --help~ --version~"),
    program("stdbuf", COMMAND, "-i= -o= -e= --input= --output= --error= --help~ --version~"),
    program("timeout", AFTER_ONE, "-f -p -v -k= -s= --foreground --preserve-status --verbose --kill-after= --signal= --help~ --version~"),
    program("chroot", AFTER_ONE, "--groups= --userspec= --skip-chdir --help~ --version~"),
    program("runcon", AFTER_ONE, "-c -t= -u= -r= -l= --compute --type= --user= --role= --range= --help~ --version~"),
    program("time", COMMAND, "-a -p -q -v -V~ -f= -o= --append --portability --quiet --verbose --format= --output= --help~ --version~"),
    program("split", ProgramRuns::Options, "-a= -b= -C= -l= -n= -t= --filter! --additional-suffix= --bytes= --lines= --number="),
    program("sort", ProgramRuns::Options, "-S= -T= -k= -t= -o= --compress-program! --check --files0-from="),
    program("install", ProgramRuns::Options, "-g= -m= -o= -S= -t= --strip-program! --strip"),
    program("ionice", COMMAND, "-t -c= -n= -p~ -P~ -u~ -h~ -V~ --ignore --class= --classdata= --pid~ --help~ --version~"),
    program("chrt", AFTER_ONE, "-a -b -f -i -o -r -d -R -m~ -v -p~ -T= -P= -D= -h~ -V~ --batch --deadline --fifo --idle --other --rr \
        --reset-on-fork --all-tasks --verbose --max~ --pid~ --sched-runtime= --sched-period= --sched-deadline="),
    program("taskset", AFTER_ONE, "-a -c -p~ -h~ -V~ --all-tasks --cpu-list --pid~"),
    program("uclampset", COMMAND, "-m= -M= -a -p~ -s~ -R -v -h~ -V~"),
    program("choom", COMMAND, "-n= -p~ --adjust= --pid~"),
    program("setsid", COMMAND, "-c -f -w -h~ -V~ --ctty --fork --wait"),
    program("setpriv", COMMAND, "-d~ --dump~ --nnp --no-new-privs --ambient-caps= --inh-caps= --bounding-set= --clear-groups \
        --keep-groups --init-groups --groups= --list-caps~ --ruid= --euid= --reuid= --rgid= --egid= --regid= --securebits= \
        --pdeathsig= --ptracer= --selinux-label= --apparmor-profile= --landlock-access= --landlock-rule= --seccomp-filter= --reset-env -h~ -V~"),
    program("prlimit", COMMAND, "-c? -d? -e? -f? -i? -l? -m? -n? -q? -r? -s? -t? -u? -v? -x? -y? -o= -p~ -h~ -V~ --core? --data? --nice? \
        --fsize? --sigpending? --memlock? --rss? --nofile? --msgqueue? --rtprio? --stack? --cpu? --nproc? --as? --locks? --rttime? \
        --noheadings --output= --raw --verbose --pid~"),
    program("setarch", AFTER_ONE, "-B -F -I -L -R -S -T -X -Z -3 -v -p= --32bit --fdpic-funcptrs --short-inode --addr-compat-layout \
        --addr-no-randomize --whole-seconds --sticky-timeouts --read-implies-exec --mmap-page-zero --3gb --4gb --uname-2.6 \
        --verbose --show? --list~ -h~ -V~"),
    program("linux32 linux64 i386 i486 i586 i686 x86_64 uname26", COMMAND, "-B -F -I -L -R -S -T -X -Z -3 -v --32bit --addr-no-randomize \
        --read-implies-exec --uname-2.6 --verbose"),
    program("unshare", COMMAND, "-i? -m? -n? -p? -u? -U? -C? -T? -f -r -c -S= -G= -R= -w= -l= --ipc? --mount? --net? --pid? --uts? --user? \
        --cgroup? --time? --fork --map-root-user --map-current-user --map-auto --map-user= --map-group= --map-users= --map-groups= \
        --kill-child? --mount-proc? --propagation= --setgroups= --root= --wd= --setuid= --setgid= --keep-caps --load-interp= --boottime= --monotonic="),
    program("nsenter", COMMAND, "-a -t= -m? -u? -i? -n? -N? -p? -C? -U? -T? -S? -G? -r? -w? -W= -e -F -Z -c -h~ -V~ --all --target= --mount? --uts? \
        --ipc? --net? --pid? --cgroup? --user? --time? --setuid? --setgid? --root? --wd? --wdns= --env --no-fork --follow-context \
        --preserve-credentials --keep-caps --join-cgroup --user-parent"),
    program("flock", AFTER_ONE, "-e -n -o -s -u -x -F -w= -E= -c! -h~ -V~ --exclusive --nonblock --nb --close --shared --unlock --no-fork \
        --wait= --timeout= --conflict-exit-code= --command! --verbose --fcntl --start= --length="),
    program("sg", AFTER_ONE, "-c!"),
    program("logsave", AFTER_ONE, "-a -s -v"),
    program("watch", ProgramRuns::Line, "-b -c -C -d? -e -f -g -r -t -w -x -n= -q= -s= -h~ -v~ --beep --color --no-color --differences? --errexit \
        --follow --chgexit --interval= --precise --equexit= --no-rerun --no-title --no-wrap --exec --shotsdir="),
    program("xargs", ProgramRuns::CommandAndInput, "-0 -o -p -r -t -x -a= -d= -E= -e? -I= -i? -J= -L= -l? -n= -P= -R= -S= -s= --null --arg-file= \
        --delimiter= --eof? --replace? --max-lines? --max-args= --interactive --no-run-if-empty --max-chars= --verbose --show-limits \
        --exit --max-procs= --process-slot-var= --open-tty --help~ --version~"),
    program("find gfind", ProgramRuns::Options, "-exec& -execdir& -ok& -okdir&"),
    program("fd fdfind", ProgramRuns::Options, "-x& -X& -e= -t= -d= -E= -c= -j= -S= -o= --exec& --exec-batch&"),

    // Wrappers for other users, tracing, timing and environments.
    program("sudo", COMMAND, "-A -B -b -E -H -i -K~ -k -l~ -N -n -P -S -s -v~ -V~ -e~ -a= -C= -c= -D= -g= -h= -p= -R= -r= -T= -t= -U= -u= --askpass \
        --background --bell --preserve-env? --edit~ --set-home --login --remove-timestamp~ --reset-timestamp --list~ --no-update \
        --non-interactive --preserve-groups --stdin --shell --validate~ --auth-type= --close-from= --login-class= --chdir= --group= \
        --host= --prompt= --chroot= --role= --command-timeout= --type= --other-user= --user= --version~"),
    program("doas", COMMAND, "-n -s -L -u= -C= -a="),
    program("pkexec", COMMAND, "--disable-internal-agent --keep-cwd --user= --version~ --help~"),
    program("gosu su-exec setuidgid chpst", AFTER_ONE, ""),
    program("strace ltrace", COMMAND, "-A -c -C -d -D -f -F -h~ -i -k -n -N -q -r -t -T -v -V~ -w -x -y -Y -z -Z -a= -b= -e= -E= -I= -l= -o= -O= -p= -P= -s= \
        -S= -u= -U= -X= --follow-forks --output-append-mode --summary --summary-only --quiet? --trace= --output= --env= --user= --string-limit="),
    program("valgrind", COMMAND, "-v -q -d -h~ --version~ --help~ --tool= --log-file= --leak-check= --error-exitcode= --suppressions= \
        --track-origins= --trace-children= --show-leak-kinds= --num-callers= --gen-suppressions= --quiet --verbose --xml= --xml-file="),
    program("ld.so", COMMAND, "--list~ --verify~ --inhibit-cache --library-path= --glibc-hwcaps-prepend= --glibc-hwcaps-mask= --inhibit-rpath= \
        --audit= --preload= --argv0= --list-tunables~ --list-diagnostics~ --help~ --version~"),
    program("fakeroot", COMMAND, "-l= -s= -i= -b= -u -h~ -v~ --lib= --faked= --unknown-is-real --fd-base="),
    program("fakechroot", COMMAND, "-d= -l= -e= -s -c= --use-system-libs --elfloader= --lib= --environment= --config-dir="),
    program("faketime", AFTER_ONE, "-m -f -p= --exclude-monotonic --date-prog="),
    program("eatmydata unbuffer chronic ifne torify torsocks usewithtor dbus-run-session catchsegv tini dumb-init catatonit nocache cross-env",
        COMMAND, "-p -q -v -e -n -c -g -s"),
    program("proxychains proxychains4", COMMAND, "-q -f="),
    program("ssh-agent", COMMAND, "-c -s -k~ -D -d -x -a= -E= -O= -P= -t="),
    program("xvfb-run", COMMAND, "-a -l -e= -f= -n= -p= -s= -w= --auto-servernum --listen-tcp --error-file= --auth-file= --server-num= --server-args= --wait="),
    program("hyperfine", ProgramRuns::Lines, "-i -N -u= -w= -r= -m= -M= -p! -C! -c! -s! -S= -n= --warmup= --runs= --min-runs= --max-runs= --prepare! --conclude! \
        --cleanup! --setup! --shell= --ignore-failure? --style= --export-json= --export-csv= --export-markdown= --command-name= --show-output \
        --output= --input= --time-unit= --help~ --version~"),
    program("caffeinate", COMMAND, "-d -i -m -s -u -t= -w="),
    program("numactl", COMMAND, "-a -l -H~ -s~ -C= -N= -m= -i= -p= --all --localalloc --show~ --hardware~ --physcpubind= --cpunodebind= --membind= \
        --interleave= --preferred="),
    program("busybox toybox", COMMAND, "--list~ --help~ --install~"),
    program("at batch entr parallel rlwrap runuser script su systemd-run systemd-inhibit systemd-cat systemd-nspawn machinectl tmux screen \
        dtach abduco expect autoexpect gdb lldb rr perf socat ed red dc gnuplot m4 bwrap firejail proot capsh aa-exec cgexec start-stop-daemon \
        daemonize daemon run-parts crontab pee nodemon watchexec concurrently npm-run-all chokidar foreman honcho xterm dialog R octave \
        csh tcsh fish elvish nu pwsh powershell xonsh osascript sbcl clisp erl rc es \
        irb pry byebug ipython bpython ptpython ghci jshell clojure clj bb lein jjs jrunscript kotlin kotlinc mongo mongosh raku rakudo perl6 crystal \
        csi fsi fsharpi dotnet-script cling gforth maxima sage gp gs qjs d8 slsh sash posh tasksh lftp ftp telnet psftp smbclient mail mailx mutt \
        bpftrace stap crash scanmem gimp puppet knife chef-apply msfconsole openvpn pexec logrotate latexmk dvips",
        ProgramRuns::Anything, ""),
    program("ssh grc multitime cpulimit distcc ccache sccache msgfilter openvt softlimit sshpass setlock tsp", ProgramRuns::AnythingInWords, ""),
    program("ansible", ProgramRuns::Options, "-a% -e% --args% --extra-vars% -i= -m= -u="),
    program("ansible-playbook", ProgramRuns::Options, "-e% --extra-vars% -i= -u="),
    program("ansible-console", ProgramRuns::Anything, ""),
    program("composer xdotool", ProgramRuns::Options, "exec%"),
    program("cowsay cowthink", ProgramRuns::Options, "-f%"),
    program("dnf yum", ProgramRuns::Options, "--setopt%"),
    program("facter", ProgramRuns::Options, "--custom-dir%"),
    program("pandoc", ProgramRuns::Options, "-F% -L% --filter% --lua-filter% -f= -t= -o= -V= -M="),
    program("restic", ProgramRuns::Options, "--password-command%"),
    program("scrot", ProgramRuns::Options, "-e% --exec%"),
    program("ssh-keygen", ProgramRuns::Options, "-D% -w% -f= -t= -b= -C= -N="),
    program("tshark", ProgramRuns::Options, "-X% -f= -i= -r= -w= -Y="),
    program("vagrant", ProgramRuns::Options, "-c! --command!"),
    program("zathura", ProgramRuns::Options, "-x%"),
    program("tex latex pdftex pdflatex xetex xelatex luatex lualatex", ProgramRuns::Options,
        "-shell-escape% --shell-escape% -enable-write18% --enable-write18% -lua% --lua% -luaonly% --luaonly%"),

    // Interpreters, which run code in an option, a script, or standard input.
    program("python pypy", ProgramRuns::Script, "-c% -m. -W= -X= -Q= -B -b -d -E -h~ -i -I -O -P -q -R -s -S -t -u -v -V~ -x --version~ --help~ \
        --help-all~ --help-env~ --help-xoptions~ --check-hash-based-pycs="),
    program("perl", ProgramRuns::Script, "-e% -E% -M% -m% -d? -C? -D? -F? -I= -i? -x? -0 -a -c -f -h~ -l -n -p -s -S -t -T -u -U -v~ -V~ -w -W -X"),
    program("ruby jruby", ProgramRuns::Script, "-e% -r= -I= -C= -E= -F? -K? -T? -W? -x? -i? -a -c -d -h~ -l -n -p -s -S -v~ -w -y --version~ \
        --help~ --copyright~ --encoding= --external-encoding= --internal-encoding="),
    program("node nodejs ts-node tsx", ProgramRuns::Script, "-e% -p% -i% -r= -C= -c -h~ -v~ -pe% --eval% --print% --interactive% --require= --import= \
        --loader= --conditions= --check --version~ --help~ --v8-options~ --test~ --run. --env-file= --input-type="),
    program("deno", ProgramRuns::Options, "eval% repl% -% -e% --eval%"),
    program("bun", ProgramRuns::Options, "-% -e% -p% --eval% --print% repl% exec%"),
    program("php", ProgramRuns::Script, "-r% -B% -R% -E% -a% -F= -f. -c= -d= -z= -t= -S= -h~ -i~ -l -m~ -n -q -s -v~ -w -e -C -H --run% --process-begin% \
        --process-code% --process-end% --interactive% --file. --define= --php-ini= --version~ --help~ --ini~ --info~ --modules~ --server="),
    program("lua luajit", ProgramRuns::Script, "-e% -i% -l= -v~ -E -W -b -j= -O?"),
    program("Rscript", ProgramRuns::Script, "-e% --version~ --help~"),
    program("tclsh wish guile racket julia ghc runghc ocaml elixir iex scala groovy swift janet", ProgramRuns::Script,
        "-e% -E% -c% -r% --eval% --print% --execute% -encoding= -v~ -h~ --version~ --help~"),
    program("vi vim nvim view ex rview rvim vimdiff gvim emacs emacsclient", ProgramRuns::Options, "-c% -S% -s% -es% -u% -f% -l% -e% -eval% --cmd% --eval% --funcall% --execute% \
        --load% --script% --batch%"),
    program("bunx npx", COMMAND, "-c! -p= -y -q -w= --call! --package= --yes --no --no-install --quiet --bun --workspace= --help~ --version~"),
    program("uvx", COMMAND, "-p= -q -v -w= --from= --with= --python= --quiet --verbose --isolated --help~ --version~"),

    // Programs whose options name commands.
    program("tar gtar bsdtar", ProgramRuns::OptionsAndCluster, "-I% -F% -b= -C= -f= -g= -H= -K= -L= -N= -T= -V= -X= --checkpoint-action% \
        --checkpoint --to-command! --to-stdout --use-compress-program! --rsh-command! --rmt-command! --info-script! --new-volume-script! --index-file="),
    program("rsync", ProgramRuns::Options, "-e! -B= -f= -T= -M= --rsh! --rsync-path! --exclude= --existing --executability"),
    program("cpio", ProgramRuns::Options, "--rsh-command!"),
    program("zip", ProgramRuns::Options, "-TT% --unzip-command%"),
    program("make gmake", ProgramRuns::OptionsAndVariables, "-E% --eval% -C= -f= -I= -j? -l? -o= -W= --environment-overrides"),
    program("cmake", ProgramRuns::Options, "-E%"),
    program("rg", ProgramRuns::Options, "--pre! --hostname-bin! --pretty --pre-glob= -A= -B= -C= -e= -f= -g= -m= -t= -T= -d= -j= -M= -r="),
    program("ag ack bat delta", ProgramRuns::Options, "--pager!"),
    program("man", ProgramRuns::Options, "-P! -H% --pager! --html% -C= -L= -m= -M= -S= -s= -e= -p= -E= -r= -R="),
    program("fzf", ProgramRuns::Options, "--bind% --preview% --preview-window= --execute%"),
    program("scp sftp", ProgramRuns::Options, "-S% -o% -F% -D% -b%"),
    program("wget", ProgramRuns::Options, "-e% --execute% --use-askpass%"),
    program("nc ncat netcat", ProgramRuns::Options, "-e% -c% --exec% --sh-exec% --lua-exec% --lua-exec-internal%"),
    program("tcpdump", ProgramRuns::Options, "-z% -B= -c= -C= -D -E= -F= -G= -i= -j= -M= -m= -r= -s= -T= -V= -w= -y= -Z="),
    program("nmap", ProgramRuns::Options, "--script% --script-args="),
    program("hg", ProgramRuns::Options, "--config%"),
    program("svn", ProgramRuns::Options, "--diff-cmd% --diff3-cmd% --editor-cmd% --config-option% --diff --config-dir="),
    program("sdiff", ProgramRuns::Options, "--diff-program!"),
    program("rpm rpmbuild", ProgramRuns::Options, "-E% -D% --eval% --define% --pipe! --erase"),
    program("apt apt-get aptitude", ProgramRuns::Options, "-o% -c% --option% --config-file%"),
    program("nix-shell", ProgramRuns::Options, "-c& --run! --command!"),

    // Subcommands that run commands.
    program("git", ProgramRuns::Subcommand, "-C= -c% -p -P -h~ -v~ --exec-path? --git-dir= --work-tree= --namespace= --super-prefix= --config-env% --paginate \
        --no-pager --bare --no-replace-objects --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs --no-optional-locks \
        --no-lazy-fetch --attr-source= --version~ --help~ --html-path~ --man-path~ --info-path~"),
    program("git-rebase", ProgramRuns::Options, "-x! --exec! -s= -X= -C= -S?"),
    program("git-difftool", ProgramRuns::Options, "-x! --extcmd! -t= -O="),
    program("git-grep", ProgramRuns::Options, "-O% --open-files-in-pager% -e= -f= -A= -B= -C= -m="),
    program("git-clone", ProgramRuns::Options, "-c% --config% -u! --upload-pack! -b= -o= -j= --template%"),
    program("git-init", ProgramRuns::Options, "--template%"),
    program("git-fetch git-pull git-ls-remote git-fetch-pack", ProgramRuns::Options, "--upload-pack! --exec! -j= -o= -s= -X= --update-head-ok --update-shallow"),
    program("git-push git-send-pack", ProgramRuns::Options, "--receive-pack! --exec! --recurse-submodules= -o="),
    program("git-archive", ProgramRuns::Options, "--exec!"),
    program("git-submodule", ProgramRuns::Subcommand, "-q --quiet --cached"),
    program("git-submodule-foreach", ProgramRuns::Line, "-q --quiet --recursive"),
    program("git-bisect", ProgramRuns::Subcommand, ""),
    program("git-bisect-run", COMMAND, ""),
    program("git-filter-branch git-config git-send-email git-mergetool git-daemon git-instaweb git-for-each-repo git-p4 git-remote-ext git-hook git-shell",
        ProgramRuns::Anything, ""),
    program("npm pnpm yarn", ProgramRuns::Subcommand, "-C= -s -w= -r --script-shell! --node-options% --prefix= --silent --dir= --workspace= --filter= --cwd= --recursive --version~"),
    program("npm-run npm-run-script npm-test npm-t npm-start npm-restart npm-install npm-i npm-ci npm-add npm-rebuild npm-pack npm-publish npm-edit npm-help",
        ProgramRuns::OptionsBeforeDashes, "--script-shell! --node-options% --git! --editor! --browser! --viewer! --shell!"),
    program("npm-explore", AFTER_ONE, "--shell!"),
    program("yarn-node pnpm-node", COMMAND, ""),
    program("cargo", ProgramRuns::OptionsBeforeDashes, "--config%"),
    program("go", ProgramRuns::OptionsBeforeDashes, "-exec! -toolexec! -vettool! --exec! --toolexec! --vettool!"),
    program("gcc g++ cc c++ clang clang++", ProgramRuns::Options, "-wrapper%"),
    program("npm-exec npm-x pnpm-exec pnpm-dlx yarn-exec yarn-dlx", COMMAND, "-c! -p= -y -q -w= -r --call! --package= --yes --no --quiet --workspace= --recursive \
        --parallel --filter="),
    program("uv", ProgramRuns::Subcommand, "-q -v -n --quiet --verbose --directory= --project= --offline --config-file= --cache-dir="),
    program("uv-run uv-tool-run", COMMAND, "-p= -q -v -w= -m. -s. --module. --script. --from= --with= --with-editable= --with-requirements= --python= --extra= --group= \
        --only-group= --all-extras --all-groups --frozen --locked --no-sync --isolated --no-project --project= --directory= --env-file= --quiet \
        --verbose --dev --no-dev --active --exact --offline --package="),
    program("uv-tool", ProgramRuns::Subcommand, ""),
    program("poetry pipenv hatch rye pdm pipx bundle direnv mise asdf rbenv pyenv nodenv conda mamba micromamba nix ip", ProgramRuns::Subcommand,
        "-C= -q -v -n= --quiet --verbose --directory= --project="),
    program("poetry-run pipenv-run hatch-run rye-run pdm-run bundle-exec rbenv-exec pyenv-exec nodenv-exec asdf-exec mise-exec mise-x", COMMAND, "-q -v"),
    program("pipx-run", COMMAND, "--spec= --python= --pip-args= --no-cache --verbose --quiet"),
    program("conda-run mamba-run micromamba-run", COMMAND, "-n= -p= -v --name= --prefix= --cwd= --no-capture-output --live-stream --verbose"),
    program("direnv-exec", AFTER_ONE, ""),
    program("nix-develop nix-run", ProgramRuns::Options, "-c& --command&"),
    program("ip-netns", ProgramRuns::Subcommand, ""),
    program("ip-netns-exec", AFTER_ONE, ""),
];
