//! Tests of MCP servers through the real binary, in the real sandbox, including misbehaving servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::time::{Duration, Instant};

use haft_model_server::{ModelServer, Script, ScriptStep};
use haft_testkit::{TestTree, TestUser, eventually, processes_with, send_signal, unique_marker};

use crate::run::haft;

mod commands;
mod doctor;
mod hostile;
pub(crate) mod http;
mod import;
mod leaks;
mod login;
pub(crate) mod real;
mod sampling;
mod server_requests;
mod sharing;
mod sockets;
mod sse;
mod tasks;

fn tree() -> TestTree {
    TestTree::new(TestUser::Ourselves)
}

/// Configures the server `bad`. Runs wait for this server, because on a busy machine its start may take longer than
/// `mcp.readyWait`.
pub(crate) fn configure(tree: &TestTree, mode: &str, args: &[&str], keys: &str) {
    let server = tree.misbehaving_server(mode, args);
    tree.file(
        "home/haft.json",
        &format!("{{\"mcpServers\": {{\"bad\": {{{server}, \"startup\": \"required\"{keys}}}}}}}"),
    );
}

fn echo(tree: &TestTree) -> haft_testkit::HaftOutput {
    tree.haft(&["call", "bad__echo", r#"{"text": "hi"}"#]).output()
}

/// A running haft process that gets a stream of calls.
struct McpCallStream {
    child: Child,
    answers: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl McpCallStream {
    fn open(tree: &TestTree, flags: &[&str]) -> Self {
        let mut child = tree.haft(&[&["call", "--stdin"], flags].concat()).start();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, answers }
    }

    fn ask(&mut self, tool: &str, args: &str) -> String {
        let line = format!("{{\"id\":1,\"tool\":\"{tool}\",\"args\":{args}}}\n");
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        self.answers.next().unwrap().unwrap()
    }

    /// Sends the same call twice before waiting for a result.
    fn ask_twice(&mut self, tool: &str, args: &str) -> String {
        let line = format!("{{\"id\":0,\"tool\":\"{tool}\",\"args\":{args}}}\n");
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        self.ask(tool, args)
    }

    fn answer(&mut self) -> String {
        self.answers.next().unwrap().unwrap()
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    /// Closes the input and returns all of standard error.
    fn end_and_read(mut self) -> String {
        let mut said = String::new();
        drop(self.child.stdin.take());
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success());
        said
    }
}

#[test]
fn configured_server_tools_are_listed_and_called() {
    let tree = tree();
    configure(&tree, "good", &[], "");
    let listed = tree.haft(&["tools"]).output().expect_code(0);
    assert!(listed.stdout.contains("bad__echo") && listed.stdout.contains("bash"), "{}", listed.stdout);
    assert_eq!(echo(&tree).expect_code(0).stdout, "echo: hi\n");
    let failed = tree.haft(&["call", "bad__fail"]).output().expect_code(3);
    assert_eq!(failed.stdout, "it went wrong\n");
}

#[test]
fn tool_schema_that_does_not_compile_causes_warnings() {
    let tree = tree();
    let schema = r#"{"type": "object", "properties": {"text": {"pattern": "("}}}"#;
    configure(&tree, "good", &[], &format!(r#", "toolSchemas": {{"echo": {schema}}}"#));
    let reason = "the schema does not compile";
    let listed = tree.haft(&["tools"]).output().expect_code(0).stderr;
    assert!(
        listed.contains(&format!("haft does not check the arguments of tool `bad__echo`: {reason}")),
        "{listed}"
    );
    let tested = tree.haft(&["mcp", "test", "bad"]).output().expect_code(0).stdout;
    assert!(tested.contains(&format!("unchecked  echo: {reason}")), "{tested}");
    let called = tree.haft(&["call", "-v", "bad__echo", r#"{"text": "hi"}"#]).output().expect_code(0);
    assert_eq!(called.stdout, "echo: hi\n");
    assert!(called.stderr.contains(&format!("unvalidated: \"{reason}")), "{}", called.stderr);
    assert!(
        !echo(&tree).expect_code(0).stderr.contains(reason),
        "a call without `-v` prints no warning about the schema"
    );
}

/// Without the reduction, one such schema would make the provider refuse every request of the run.
#[test]
fn run_and_tools_check_report_a_schema_that_was_reduced_for_the_provider() {
    let tree = tree();
    let schema =
        r#"{"type": "object", "properties": {"text": {"type": "any"}, "$filter": {"type": "string"}}}"#;
    configure(&tree, "good", &[], &format!(r#", "toolSchemas": {{"echo": {schema}}}"#));
    for model in ["openai/m", "anthropic/m", "gemini/m", "ollama/m"] {
        let server = ModelServer::start(Script::of([ScriptStep::text("Done.")])).unwrap();
        let ran = haft(&tree, &server, &["run", "-m", model, "go"]).output().expect_code(0);
        let warning = "haft shows the model a reduced schema of the tool `bad__echo` of `bad`: ";
        assert!(ran.stderr.contains(warning), "{model}: {}", ran.stderr);
    }
    let checked = tree.haft(&["tools", "check", "--provider", "anthropic"]).output().expect_code(0).stdout;
    assert!(checked.contains("bad__echo:\n  /properties/text: `type`: the type is unknown"), "{checked}");
}

#[test]
fn server_with_a_cached_tool_list_starts_on_first_call() {
    let tree = tree();
    let marker = unique_marker();
    configure(&tree, "good", &[&marker], "");
    tree.haft(&["tools"]).output().expect_code(0);
    let mut stream = McpCallStream::open(&tree, &[]);
    assert!(stream.ask("current_date", "{}").contains("content"));
    assert!(
        processes_with(&marker).is_empty(),
        "the server has no process before the first call to its tools"
    );
    assert!(stream.ask("bad__echo", r#"{"text":"x"}"#).contains("echo: x"));
    assert!(!processes_with(&marker).is_empty());
    stream.end();
    assert!(processes_with(&marker).is_empty());
}

#[test]
fn server_environment_has_only_declared_variables() {
    let tree = tree();
    configure(&tree, "tells", &[], r#", "env": {"DECLARED": "${SECRET_TOKEN}"}"#);
    let run = tree
        .haft(&["call", "bad__echo"])
        .env("SECRET_TOKEN", "s3cret")
        .env("npm_config_registry", "http://r");
    let told = run.output().expect_code(0).stdout;
    assert!(told.contains("DECLARED") && told.contains("npm_config_registry"), "{told}");
    assert!(!told.contains("SECRET_TOKEN") && !told.contains("HAFT_HOME"), "{told}");
    let cache = tree.path("home/cache/bad");
    assert!(cache.is_dir(), "haft creates the cache directory of the server");
    assert!(!tree.text("home/data/mcp/bad.json").contains("s3cret"));
    assert!(!tree.haft(&["config", "show"]).env("SECRET_TOKEN", "s3cret").output().stdout.contains("s3cret"));
}

#[test]
fn server_can_write_only_its_cache_directory() {
    let tree = tree();
    let script = "import json,os,sys\nfor line in sys.stdin:\n r=json.loads(line)\n def w(p):\n  try: open(p,'w').write('x'); return 'written'\n  except OSError as e: return str(e)\n h=os.environ['UV_CACHE_DIR'].rsplit('/',2)[0]\n m=r.get('method')\n res={'protocolVersion':'2025-11-25','capabilities':{'tools':{}},'serverInfo':{}} if m=='initialize' else {'tools':[{'name':'t'}]} if m=='tools/list' else {'content':[{'type':'text','text':' / '.join([w(h+'/mine/f'),w(h+'/other'),w(h+'/../data/f'),w('/var/tmp/outside')])}]}\n if 'id' in r and m!='server/discover': print(json.dumps({'jsonrpc':'2.0','id':r['id'],'result':res}),flush=True)\n elif 'id' in r: print(json.dumps({'jsonrpc':'2.0','id':r['id'],'error':{'code':-1,'message':'?'}}),flush=True)\n";
    let file = tree.file("outside/tries.py", script);
    let config =
        format!("{{\"mcpServers\": {{\"mine\": {{\"command\": \"python3\", \"args\": [{file:?}]}}}}}}");
    tree.file("home/haft.json", &config);
    let ran = tree.haft(&["call", "mine__t"]).output().expect_code(0);
    let tried: Vec<&str> = ran.stdout.trim().split(" / ").collect();
    assert_eq!(tried[0], "written", "{tried:?}");
    assert!(tried[1..].iter().all(|result| *result != "written"), "{tried:?}");
}

#[test]
fn failed_or_unanswered_revision_probe_falls_back_to_initialize() {
    for mode in ["dies-on-probe", "silent-on-probe"] {
        let tree = tree();
        configure(&tree, mode, &[], "");
        assert_eq!(echo(&tree).expect_code(0).stdout, "echo: hi\n", "{mode}");
        assert!(tree.text("home/data/mcp/bad.json").contains("2025-11-25"));
    }
}

/// haft reports the server's own error to `initialize`, not the failure of the probe that follows.
#[test]
fn initialize_error_of_server_is_reported_verbatim() {
    let tree = tree();
    let used_up = tree.path("ws/used-up");
    configure(&tree, "refuses-later", &[used_up.to_str().unwrap()], "");
    assert_eq!(echo(&tree).expect_code(0).stdout, "echo: hi\n");
    tree.file("ws/used-up", "");
    let refused = echo(&tree).expect_code(5);
    assert!(refused.stderr.contains("the licence is used up"), "{}", refused.stderr);
}

#[test]
fn server_that_never_answers_initialize_fails_at_the_startup_timeout() {
    let tree = tree();
    let marker = unique_marker();
    configure(&tree, "never-greets", &[&marker], r#", "startupTimeout": "300ms""#);
    let began = Instant::now();
    let ran = echo(&tree).expect_code(5);
    assert!(ran.stderr.contains("was not ready within 300 ms"), "{}", ran.stderr);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(processes_with(&marker).is_empty());
}

#[test]
fn unanswered_call_times_out_and_is_cancelled() {
    let tree = tree();
    let noted = tree.path("ws/noted");
    configure(&tree, "never-answers", &["x", noted.to_str().unwrap()], r#", "requestTimeout": 300"#);
    let ran = echo(&tree).expect_code(124);
    assert!(ran.stderr.contains("neither a result nor progress for 300 ms"), "{}", ran.stderr);
    // More lines may follow: on a slow machine, haft may also have cancelled its ping.
    assert!(tree.text("ws/noted").starts_with("cancelled\n"));
}

/// haft restarts a hanging server after any timeout. In this test, the tool's timeout is shorter than the server's.
#[test]
fn hanging_server_is_restarted_after_tool_timeout() {
    let tree = tree();
    configure(&tree, "never-answers", &[], "");
    let mut stream = McpCallStream::open(&tree, &["--timeout", "300ms"]);
    assert!(stream.ask("bad__echo", "{}").contains("timed out"));
    let log = || tree.text("home/data/mcp/bad.log");
    eventually("haft probes the server and then restarts it", || log().contains("degraded ► restarting"));
    eventually("the server runs again", || log().matches("starting ► ready").count() == 2);
    stream.end();
}

#[test]
fn mcp_response_with_wrong_id_is_ignored() {
    let tree = tree();
    configure(&tree, "wrong-id", &[], r#", "requestTimeout": 300"#);
    echo(&tree).expect_code(124);
}

#[test]
fn progress_extends_the_request_timeout() {
    let tree = tree();
    configure(&tree, "good", &[], r#", "requestTimeout": 1200"#);
    let ran = tree.haft(&["call", "bad__slow", r#"{"text": "done"}"#]).output().expect_code(0);
    assert_eq!(ran.stdout, "echo: done\n");
}

#[test]
fn server_exit_at_start_is_a_warning_with_reason() {
    let tree = tree();
    configure(&tree, "exits-at-once", &[], "");
    let ran = tree.haft(&["tools"]).output().expect_code(0);
    assert!(ran.stdout.contains("bash"));
    assert!(ran.stderr.contains("exit code 1") && ran.stderr.contains("no licence found"), "{}", ran.stderr);
}

#[test]
fn crashed_server_is_restarted_without_repeating_the_call() {
    let tree = tree();
    configure(&tree, "exits-after-3", &[], "");
    let mut stream = McpCallStream::open(&tree, &["--jobs", "1"]);
    for _ in 0..3 {
        assert!(stream.ask("bad__slow", r#"{"text":"x"}"#).contains("echo: x"));
    }
    let lost = stream.ask("bad__slow", "{}");
    assert!(lost.contains("unknown_outcome") && lost.contains("about to fall over"), "{lost}");
    eventually("the server runs again", || {
        stream.ask("bad__echo", r#"{"text":"again"}"#).contains("echo: again")
    });
    stream.end();
}

#[test]
fn stdout_noise_is_ignored_and_invalid_utf8_is_replaced() {
    let tree = tree();
    configure(&tree, "noise", &[], "");
    assert_eq!(echo(&tree).expect_code(0).stdout, "echo: hi\n");
    configure(&tree, "not-utf8", &[], "");
    assert_eq!(echo(&tree).expect_code(0).stdout, "a\u{fffd}\u{fffd}b\n");
}

#[test]
fn oversized_or_too_deep_result_fails_only_its_call() {
    let tree = tree();
    for (mode, expected) in
        [("huge-result", "larger than"), ("endless-line", "larger than"), ("deep", "cannot parse")]
    {
        configure(&tree, mode, &[], "");
        let ran = tree.haft(&["call", "--json", "bad__echo", "{}"]).output().expect_code(3);
        assert!(ran.stdout.contains(expected), "{mode}: {}", ran.stdout);
        assert_eq!(tree.haft(&["call", "current_date"]).output().code, Some(0));
    }
}

#[test]
fn long_tool_list_is_truncated_and_invalid_tools_skipped() {
    let tree = tree();
    configure(&tree, "bad-tools", &[], "");
    assert_eq!(echo(&tree).expect_code(0).stdout, "echo: hi\n");
    let tree = TestTree::new(TestUser::Ourselves);
    configure(&tree, "many-tools", &[], "");
    let ran = tree.haft(&["tools"]).output().expect_code(0);
    assert_eq!(ran.stdout.matches("bad__tool_").count(), 10_000);
    let warning = "the server has more than 10000 tools, of which haft uses the first 10000";
    assert!(ran.stderr.contains(warning), "{}", ran.stderr);
    configure(&tree, "small-pages", &[], "");
    let ran = tree.haft(&["tools"]).output().expect_code(0);
    assert_eq!(ran.stdout.matches("bad__tool_").count(), 2_000, "haft lists the tools of all small pages");
}

#[test]
fn shutdown_kills_stubborn_servers_and_their_daemons() {
    for mode in ["daemon", "ignores-term", "hangs-in-shutdown"] {
        let tree = tree();
        let marker = unique_marker();
        let sleep = format!("{}", 100_000 + std::process::id());
        configure(&tree, mode, &[&sleep, &marker], "");
        assert_eq!(echo(&tree).expect_code(0).stdout, "echo: hi\n", "{mode}");
        assert!(processes_with(&marker).is_empty(), "{mode}");
        assert!(processes_with(&format!("sleep\0{sleep}")).is_empty(), "{mode}");
    }
}

#[test]
fn shutdown_sends_sigterm_before_sigkill() {
    let tree = tree();
    let noted = tree.path("ws/noted");
    configure(&tree, "obeys-term", &["x", noted.to_str().unwrap()], "");
    echo(&tree).expect_code(0);
    assert_eq!(tree.text("ws/noted"), "the server shuts down cleanly");
}

#[test]
fn sigterm_shuts_servers_down_cleanly() {
    let tree = tree();
    let noted = tree.path("ws/noted");
    configure(&tree, "obeys-term", &["x", noted.to_str().unwrap()], "");
    let mut stream = McpCallStream::open(&tree, &[]);
    assert!(stream.ask("bad__echo", r#"{"text":"x"}"#).contains("echo: x"));
    // Keep standard input open, because its end would also make haft shut down.
    let _stdin = stream.child.stdin.take();
    send_signal(stream.child.id(), 15);
    assert_eq!(stream.child.wait().unwrap().code(), Some(143));
    assert_eq!(tree.text("ws/noted"), "the server shuts down cleanly");
}

#[test]
fn server_dies_when_haft_is_killed() {
    let tree = tree();
    let marker = unique_marker();
    configure(&tree, "ignores-term", &[&marker], "");
    let mut stream = McpCallStream::open(&tree, &[]);
    assert!(stream.ask("bad__echo", r#"{"text":"x"}"#).contains("echo: x"));
    assert!(!processes_with(&marker).is_empty());
    send_signal(stream.child.id(), 9);
    stream.child.wait().unwrap();
    eventually("the server is gone", || processes_with(&marker).is_empty());
}

#[test]
fn server_with_unset_variable_is_skipped_with_warning() {
    let tree = tree();
    configure(&tree, "good", &[], r#", "env": {"KEY": "${NOT_SET_ANYWHERE}"}"#);
    let ran = tree.haft(&["tools"]).output().expect_code(0);
    assert!(ran.stderr.contains("mcpServers.bad.env.KEY"), "{}", ran.stderr);
}
