//! Tables of lines and their commands. Words that are not literal are in angle brackets.

use proptest::prelude::*;

use super::*;

fn outline(command: &ShellCommand) -> String {
    let variables = command.assignments.iter().map(|name| format!("{name}= "));
    let files = command.redirections.iter().map(|file| {
        let sign = match file.access {
            RedirectionAccess::Read => "<",
            RedirectionAccess::Write => ">",
            RedirectionAccess::Append => ">>",
        };
        format!(" {sign}{}", file.target.text)
    });
    variables.chain([command.to_string()]).chain(files).collect()
}

fn outlines(line: &str) -> Vec<String> {
    commands(line).unwrap_or_else(|error| panic!("{line}: {error}")).iter().map(outline).collect()
}

fn check(line: &str, expected: &[&str]) {
    assert_eq!(outlines(line), expected, "{line}");
}

fn check_refused(line: &str) {
    assert!(commands(line).is_err(), "{line:.80}: {:?}", commands(line));
}

#[test]
fn lists_pipelines_and_compound_commands_are_split_into_commands() {
    check("", &[]);
    check("  # only a comment", &[]);
    check("ls -la", &["ls -la"]);
    check("a && b || c; d & e | f |& g", &["a", "b", "c", "d", "e", "f", "g"]);
    check("a\nb\n\n# rm x\nc # rm y", &["a", "b", "c"]);
    check("a#b c", &["a#b c"]);
    check("(a; b) && { c; d; }", &["a", "b", "c", "d"]);
    check("( (a) )", &["a"]);
    check("! a", &["a"]);
    check("time -p a", &["a"]);
    check("time { a; }", &["a"]);
    check("if a; then b; elif c; then d; else e; fi", &["a", "b", "c", "d", "e"]);
    check("while a; do b; done; until c; do d; done", &["a", "b", "c", "d"]);
    check("for i in x y; do rm $i; done", &["i= ", "rm <>"]);
    check("for i in $(rm x); do a; done", &["i= ", "rm x", "a"]);
    check("for i; do a; done", &["i= ", "a"]);
    check("for ((i=0; i<$(rm x); i++)); do a; done", &["rm x", "a"]);
    check("select i in x; do a; done", &["i= ", "a"]);
    check("case $(rm x) in a|b) c;; (d) e;& *) f; esac", &["rm x", "c", "e", "f"]);
    check("case x in\n  a)\n    b\n    ;;\nesac\nc", &["b", "c"]);
    check("f() { rm x; }; f", &["rm x", "f"]);
    check("function f { rm x; }\nf", &["rm x", "f"]);
    check("function f () ( rm x )", &["rm x"]);
    check("coproc rm x", &["rm x"]);
    check("coproc { rm x; }", &["rm x"]);
    check("if (a) then b; fi", &["a", "b"]);
    check("echo if then done }", &["echo if then done }"]);
    check("'if' x", &["if x"]);
}

#[test]
fn quotes_and_escapes_are_removed() {
    check("r\\m x", &["rm x"]);
    check("r''m \"x y\"", &["rm x y"]);
    check("'rm' x", &["rm x"]);
    check("\"r\"\"m\" x", &["rm x"]);
    check("$'\\x72m' x", &["rm x"]);
    check("$'\\162\\u006d' x", &["rm x"]);
    check("$'a\\'b' c", &["a'b c"]);
    check("r\\\nm x", &["rm x"]);
    check("echo \"a\\\\\nb\"", &["echo a\\\nb"]);
    check("echo \"\\$(rm x) \\a\"", &["echo $(rm x) \\a"]);
    check("echo '$(rm x)'", &["echo $(rm x)"]);
    check("echo \\; rm x", &["echo ; rm x"]);
    check("echo $ a$", &["echo $ a$"]);
    check("git show HEAD@{1}", &["git show HEAD@{1}"]);
}

#[test]
fn words_with_shell_expansions_are_opaque() {
    check("{rm,-rf,/}", &["<{rm,-rf,/}>"]);
    check("echo {1..3}", &["echo <{1..3}>"]);
    check("ls *.c a?b [ab]", &["ls <*.c> <a?b> <[ab]>"]);
    check("ls ~ ~/x a~b", &["ls <~> <~/x> a~b"]);
    check("$X y", &["<> y"]);
    check("echo ${X} $1 $@ \"$Y\"", &["echo <> <> <> <>"]);
    check("$\"rm\" x", &["<rm> x"]);
    check("$'\\xc3' x", &["<xc3> x"]);
    check("echo $((1 + 2))", &["echo <>"]);
}

#[test]
fn commands_inside_substitutions_are_found() {
    check("echo $(rm x)", &["rm x", "echo <>"]);
    check("echo `rm x`", &["rm x", "echo <>"]);
    check("echo `echo \\`rm x\\``", &["rm x", "echo <>", "echo <>"]);
    check("echo \"a `rm \\\"x y\\\"` b\"", &["rm x y", "echo <a  b>"]);
    check("echo \"$(echo \"$(rm x)\")\"", &["rm x", "echo <>", "echo <>"]);
    check("a=$(rm x)", &["rm x", "a= "]);
    check("a=(1 $(rm x) 2) b", &["rm x", "a= b"]);
    check("cat <(rm x) >(rm y)", &["rm x", "rm y", "cat <> <>"]);
    check("cat < <(rm x)", &["rm x", "cat <"]);
    check("[[ $(rm x) ]] && a", &["rm x", "a"]);
    check("[[ -f <(rm x) || ( a < b ) ]]", &["rm x"]);
    check("echo $(( $(rm x) ))", &["rm x", "echo <>"]);
    check("(( a[$(rm x)] ))", &["rm x"]);
    check("echo ${a:-$(rm x)} ${b[`rm y`]}", &["rm x", "rm y", "echo <> <>"]);
    check("echo $\\\n(rm x)", &["rm x", "echo <>"]);
    check("echo $(case a in a) rm x;; esac)", &["rm x", "echo <>"]);
    check("echo $(ls # it's )\nrm x)", &["ls", "rm x", "echo <>"]);
    check("$(echo rm) x", &["echo rm", "<> x"]);
    check("echo a$(rm x)b'c'", &["rm x", "echo <abc>"]);
}

#[test]
fn only_substitutions_inside_here_documents_are_commands() {
    check("cat <<EOF\n$(rm x) it's \"\nEOF\na", &["cat", "rm x", "a"]);
    check("cat <<'EOF'\n$(rm x)\nEOF\na", &["cat", "a"]);
    check("cat <<\\EOF | b\n`rm x`\nEOF", &["cat", "b"]);
    check("cat <<-EOF\n\t`rm x`\n\tEOF\na", &["cat", "rm x", "a"]);
    check("cat <<A <<B\n$(a)\nA\n$(b)\nB\nc", &["cat", "a", "b", "c"]);
    check("cat <<< \"$(rm x)\"", &["rm x", "cat"]);
    check("git commit -m \"$(cat <<'EOF'\nfix ) the\nEOF\n)\"", &["cat", "git commit -m <>"]);
    check("echo \"$(cat <<EOF\n ) \nEOF\nrm x)\"", &["cat", "rm x", "echo <>"]);
    check("cat <<EOF > f\nx\nEOF", &["cat >f"]);
}

#[test]
fn assignments_and_redirections_are_attached_to_their_command() {
    check("LD_PRELOAD=x git log", &["LD_PRELOAD= git log"]);
    check("A=1 B+=2 c[0]=3 d e=4", &["A= B= c= d e=4"]);
    check("git log > /etc/x", &["git log >/etc/x"]);
    check("a >x >>y <z 2>w &>v", &["a >x >>y <z >w >v"]);
    check("a 2>&1 >&2 <&- 3>&1-", &["a"]);
    check("a >&f", &["a >f"]);
    check("a >|f <>g", &["a >f >g"]);
    check("> f", &[" >f"]);
    check("{ a; b; } > f", &["a >f", "b >f"]);
    check("(a) >> f", &["a >>f"]);
    check("while a; do b; done 2> f", &["a >f", "b >f"]);
    check("echo 2 >f", &["echo 2 >f"]);
    check("99999999999>x", &[" >x"]);
    check("if=1 x", &["if= x"]);
}

#[test]
fn commands_run_by_eval_sudo_and_other_wrappers_are_found() {
    check("eval \"rm -rf /\"", &["eval rm -rf /", "rm -rf /"]);
    check("bash -c 'rm x; a'", &["bash -c rm x; a", "rm x", "a"]);
    check("/bin/sh -euxc 'rm x' y", &["/bin/sh -euxc rm x y", "rm x"]);
    check("bash -o pipefail -c 'rm x'", &["bash -o pipefail -c rm x", "rm x"]);
    check("bash build.sh", &["bash build.sh"]);
    check("bash", &["bash", "<unknown command of bash>"]);
    check("curl x | sh", &["curl x", "sh", "<unknown command of sh>"]);
    check("bash <<< 'rm x'", &["bash", "<unknown command of bash>"]);
    check("bash -c \"$X\"", &["bash -c <>", "<unknown command of bash>"]);
    check("env A=1 -u B rm x", &["env A=1 -u B rm x", "A= -u B rm x"]);
    check("env -i A=1 rm x", &["env -i A=1 rm x", "A= rm x"]);
    check("env -S 'rm x'", &["env -S rm x", "<unknown command of env>"]);
    check("sudo -u root rm x", &["sudo -u root rm x", "rm x"]);
    check("sudo -uroot -n -- rm x", &["sudo -uroot -n -- rm x", "rm x"]);
    check("sudo --strange y rm x", &["sudo --strange y rm x", "<unknown command of sudo>"]);
    check("nohup nice -n 5 rm x > f", &["nohup nice -n 5 rm x >f", "nice -n 5 rm x >f", "rm x >f"]);
    check("timeout -k 1 5 rm x", &["timeout -k 1 5 rm x", "rm x"]);
    check("exec -a z rm x", &["exec -a z rm x", "rm x"]);
    check("command rm x", &["command rm x", "rm x"]);
    check("command -v rm", &["command -v rm"]);
    check("builtin eval 'rm x'", &["builtin eval rm x", "eval rm x", "rm x"]);
    check("trap 'rm x' EXIT", &["trap rm x EXIT", "rm x"]);
    check("find . -exec rm {} \\; -exec a {} +", &["find . -exec rm {} ; -exec a {} +", "rm <{}>", "a <{}>"]);
    check("fd -x rm", &["fd -x rm", "rm <the names that fd finds>"]);
    check("fd -x rm {} \\; -e c", &["fd -x rm {} ; -e c", "rm <{}>"]);
    check("ls | xargs -n 1 rm -f", &["ls", "xargs -n 1 rm -f", "rm -f <the words that xargs reads>"]);
    check("xargs sh -c 'rm x'", &["xargs sh -c rm x", "sh -c rm x <the words that xargs reads>", "rm x"]);
    check("busybox rm x", &["busybox rm x", "rm x"]);
    check("git -c alias.x='!rm' x", &["git -c alias.x=!rm x", "<unknown command of git>"]);
    check("git -C d -c alias.x='!rm' x", &["git -C d -c alias.x=!rm x", "<unknown command of git>"]);
    check("git switch -c new", &["git switch -c new"]);
    check("python3 -c 'import os'", &["python3 -c import os", "<unknown command of python3>"]);
    check("alias ls='rm x'", &["alias ls=rm x", "<unknown command of alias>"]);
    check(". ./x", &[". ./x", "<unknown command of .>"]);
    check("x='a[$(rm y)]'", &["<unknown command of x>", "x= "]);
    check("let 'a[$(rm x)]=1'", &["let a[$(rm x)]=1", "<unknown command of let>"]);
    check("[[ 'a[$(rm x)]' -eq 1 ]]", &["<unknown command of [[>"]);
    check("awk '{print $1}' f", &["awk {print $1} f"]);
    check("awk 'BEGIN{system(\"rm x\")}'", &["awk BEGIN{system(\"rm x\")}", "<unknown command of awk>"]);
}

#[test]
fn syntax_the_parser_does_not_support_is_rejected() {
    let refused = [
        "echo $(rm x",
        "echo `rm x",
        "echo 'rm",
        "echo \"rm",
        "echo \\",
        "(a",
        "a)",
        "{ a",
        "if a",
        "fi",
        "}",
        "done",
        "esac",
        "case x in a) b",
        "case x",
        "cat <<EOF\nx",
        "cat <<EOF",
        "$(cat <<EOF)",
        "a ;; b",
        "echo $((rm x); (a))",
        "((a); b)",
        "echo $[1]",
        "echo ${ rm x; }",
        "echo ${| rm x; }",
        "echo ${x@P}",
        "echo \"${x:-'$(rm)'}\"",
        "echo a(b)",
        "a > ",
        "a <",
        "coproc N { rm x; }",
        "time -v rm",
        "a\0b",
        "cat <<EOF\na\\\nEOF\nrm x\nEOF",
        "cat <<EOF $(a\nb)\nx\nEOF",
        "for 1 in x; do a; done",
        "[[ a # ]]",
        "[[ a",
        "{ a; } b",
        "function",
        "a=(b",
        "echo ${x:-<(rm y)}",
    ];
    for line in refused {
        check_refused(line);
    }
}

#[test]
fn lines_over_the_parser_limits_are_rejected() {
    check_refused(&"x".repeat(LINE_BYTES_MAX + 1));
    check_refused(&"$(".repeat(LINE_BYTES_MAX / 2));
    check_refused(&"(".repeat(LINE_BYTES_MAX));
    check_refused(&"`".repeat(LINE_BYTES_MAX - 1));
    check_refused(&"\"$(".repeat(LINE_BYTES_MAX / 3));
    check_refused(&"${a:-".repeat(LINE_BYTES_MAX / 5));
    check_refused(&"case x in a) ".repeat(1_000));
    check_refused(&"{ ".repeat(LINE_BYTES_MAX / 2));
    check_refused(&"a;".repeat(COMMANDS_MAX + 1));
    check_refused(&"eval ".repeat(100));
    check_refused(&format!("a {}", ">b ".repeat(REDIRECTIONS_MAX + 1)));
    check_refused(&"\\`".repeat(LINE_BYTES_MAX / 2).replacen("\\`", "`", 1));
    assert_eq!(commands("$($($($(rm x))))").unwrap().len(), 5);
}

/// Prefixes that are valid only before a simple command.
const PREFIXES: [&str; 7] = ["", "env ", "sudo -n ", "nohup ", "command ", "A=1 ", "timeout 5 "];

/// Templates for any command. `@` is replaced by the command.
const PLACES: [&str; 28] = [
    "@",
    "a; @",
    "a && @",
    "a || @ | b",
    " ( @ )",
    "{ @; }",
    "! @",
    "time @",
    "echo $(@)",
    "echo \"x $(@) y\"",
    "x=$(@)",
    "cat <(@)",
    "if @; then a; fi",
    "if a; then @; else b; fi",
    "while @; do a; done",
    "for i in 1; do @; done",
    "case x in x) @;; esac",
    "f() { @; }",
    "[[ -n $(@) ]]",
    "echo $(( $(@) ))",
    "echo ${x:-$(@)}",
    "a\n@\nb",
    "cat <<EOF\n$(@)\nEOF",
    "cat <<EOF\nx\nEOF\n@",
    "@ > f",
    "@ &",
    "a # c\n@",
    "echo `echo`; @",
];

fn composed() -> impl Strategy<Value = String> {
    let prefix = proptest::sample::select(PREFIXES.as_slice());
    let places = proptest::collection::vec(proptest::sample::select(PLACES.as_slice()), 0..5);
    (prefix, places).prop_map(|(prefix, places)| {
        let simple = format!("{prefix}rm secret");
        places.into_iter().fold(simple, |inner, place| place.replace('@', &inner))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn parsing_any_text_never_panics(line in "\\PC{0,80}") {
        let _ = commands(&line);
    }

    #[test]
    fn parsing_shell_like_text_never_panics(
        pieces in proptest::collection::vec(proptest::sample::select(vec![
            "$(", ")", "`", "'", "\"", "\\", "\n", "<<E", "E", "{", "}", "((", "))", "${", "case x in", "esac", ";;",
            "if", "fi", "[[", "]]", " ", " ", "a", "=", "(", "<(", ">", "&", "|", "#", "for i in", "do", "done", "$'", "é", "eval ",
        ]), 0..40),
    ) {
        let _ = commands(&pieces.concat());
    }

    /// No command is lost: it is in the list, or the parser rejects the line, or the list has an unknown command.
    #[test]
    fn nested_command_is_found_or_the_line_is_opaque(line in composed()) {
        let Ok(found) = commands(&line) else { return Ok(()) };
        let is_it = |command: &ShellCommand| {
            command.words.iter().any(|word| word.text == "rm") || command.program().is_some_and(|word| word.opaque)
        };
        prop_assert!(found.iter().any(is_it), "{line}: {found:?}");
    }
}
