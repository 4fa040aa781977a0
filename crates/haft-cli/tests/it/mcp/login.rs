//! Tests of servers that require a login: the login itself, tokens that are renewed once for all callers, and secrets
//! that never leak.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{McpCallStream, tree as place};
use haft_testkit::{CANARY, GuardedServer, HaftCommand, HaftOutput, TestTree, eventually};

fn configured(server: &GuardedServer) -> TestTree {
    let place = place();
    write(&place, &server.url());
    place
}

fn write(place: &TestTree, url: &str) {
    place.file("home/haft.json", &format!("{{\"mcpServers\": {{\"far\": {{\"url\": \"{url}\"}}}}}}"));
}

fn echo(place: &TestTree) -> HaftOutput {
    place.haft(&["call", "far__echo", "{}"]).output()
}

/// Starts a login, and returns the URL that the user is asked to open.
fn begin(place: &TestTree) -> (Child, String) {
    begin_with(place.haft(&["mcp", "login", "far"]))
}

fn begin_with(login: HaftCommand) -> (Child, String) {
    let mut child = login.start();
    let lines = BufReader::new(child.stderr.as_mut().unwrap()).lines().map_while(Result::ok);
    let address = lines.map(|line| line.trim().to_owned()).find(|line| line.starts_with("http"));
    (child, address.unwrap())
}

/// Returns the whole HTTP response to a browser that opens this address.
fn visit(address: &str) -> String {
    let (host, path) = address.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns the address to which the authorization server redirects the browser.
fn sent_back(address: &str) -> String {
    let answer = visit(address);
    let line = answer.lines().find_map(|line| line.strip_prefix("location: "));
    line.unwrap_or_else(|| panic!("{answer}")).trim().to_owned()
}

fn log_in(place: &TestTree) {
    log_in_with(place.haft(&["mcp", "login", "far"]));
}

fn log_in_with(login: HaftCommand) {
    let (mut child, address) = begin_with(login);
    let page = visit(&sent_back(&address));
    assert!(page.contains("200 OK") && page.contains("close this page"), "{page}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn browser_login_authorizes_calls_until_logout() {
    let server = GuardedServer::start();
    let place = configured(&server);
    // The tools are unknown before the first login, and this is not the caller's mistake.
    let refused = echo(&place).expect_code(5);
    assert!(refused.stderr.contains("haft mcp login far"), "{}", refused.stderr);

    log_in(&place);
    let called = echo(&place).expect_code(0);
    assert!(called.stdout.contains("let in"), "{called:?}");
    let mode = place.path("home/data/tokens/far.json").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    place.haft(&["mcp", "logout", "far"]).output().expect_code(0);
    assert!(!place.path("home/data/tokens/far.json").exists());
    let again = place.haft(&["mcp", "logout", "far"]).output().expect_code(0);
    assert!(again.stdout.contains("haft has no stored token"), "{}", again.stdout);
    let refused = echo(&place).expect_code(5);
    assert!(refused.stderr.contains("haft mcp login far"), "{refused:?}");
}

/// A terminal or a desktop would open the link with the program of its scheme.
#[test]
fn login_refuses_forged_metadata_and_prints_no_link() {
    let check = |field: &str, value: &str, reason: &str| {
        let server = GuardedServer::start();
        let place = configured(&server);
        server.forge_metadata(field, value);
        let refused = place.haft(&["mcp", "login", "far"]).output().expect_code(5);
        let said = format!("{}{}", refused.stdout, refused.stderr);
        assert!(said.contains(reason), "{field}: {said}");
        assert!(!said.contains("$(") && !said.contains("redirect_uri"), "{field}: {said}");
        assert!(!place.path("ws/x").exists() && !place.path("home/data/tokens/far.json").exists());
    };
    check("authorization_endpoint", "file:///..$(touch x)", "does not use https");
    check("authorization_endpoint", "http://as.example.com/$(touch x)", "does not use https");
    check("token_endpoint", "http://as.example.com/token", "does not use https");
    check("issuer", "https://as.example.com", "different issuer");
    check("resource", "https://other.example.com/mcp", "another server URL");
}

#[test]
fn removing_a_server_deletes_its_token() {
    let server = GuardedServer::start();
    let place = configured(&server);
    log_in(&place);
    let kept = place.haft(&["mcp", "remove", "far", "--scope", "project"]).output().expect_code(42);
    assert!(
        kept.stderr.contains("hint: `haft config show` shows which file has the entry"),
        "{}",
        kept.stderr
    );
    assert!(place.path("home/data/tokens/far.json").exists());
    echo(&place).expect_code(0);
    place.haft(&["mcp", "remove", "far"]).output().expect_code(0);
    assert!(!place.path("home/data/tokens/far.json").exists());
}

#[test]
fn login_accepts_a_pasted_redirect_url() {
    let server = GuardedServer::start();
    let place = configured(&server);
    let (mut child, address) = begin(&place);
    let back = sent_back(&address);
    let stdin = child.stdin.as_mut().unwrap();
    writeln!(stdin, "what now\n{back}").unwrap();
    assert!(child.wait().unwrap().success());
    echo(&place).expect_code(0);
}

#[test]
fn login_callback_with_wrong_state_is_rejected() {
    let server = GuardedServer::start();
    let place = configured(&server);
    let (mut child, address) = begin(&place);
    let forged = sent_back(&address).replace("state=", "state=x");
    writeln!(child.stdin.as_mut().unwrap(), "{forged}").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert!(!place.path("home/data/tokens/far.json").exists());
}

/// Any web page can send a browser to the callback port, and any local program can connect to it.
#[test]
fn foreign_requests_at_the_callback_port_do_not_end_or_delay_a_login() {
    let server = GuardedServer::start();
    let place = configured(&server);
    let (mut child, address) = begin(&place);
    let back = sent_back(&address);
    let host = back.strip_prefix("http://").unwrap().split_once('/').unwrap().0;
    let silent: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(host).unwrap()).collect();
    let begun = Instant::now();
    let refused = visit(&back.replace("state=", "state=x"));
    assert!(refused.contains("400 Bad Request") && refused.contains("another login"), "{refused}");
    assert!(visit(&format!("http://{host}/")).contains("404 Not Found"));
    assert!(visit(&back).contains("200 OK"));
    assert!(child.wait().unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    drop(silent);
}

#[test]
fn concurrent_processes_refresh_a_token_once() {
    let server = GuardedServer::start();
    let place = configured(&server);
    log_in(&place);
    echo(&place).expect_code(0);
    server.expire();
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..4).map(|_| scope.spawn(|| echo(&place))).collect();
        for call in calls {
            call.join().unwrap().expect_code(0);
        }
    });
    assert_eq!(server.refreshes(), 1, "the processes refresh the token once");
}

#[test]
fn refresh_outage_keeps_the_token_and_revocation_needs_login() {
    let server = GuardedServer::start();
    let place = configured(&server);
    log_in(&place);
    let kept = place.text("home/data/tokens/far.json");
    server.expire();
    server.stop_token_endpoint();
    let down = echo(&place);
    assert!(down.code != Some(0) && down.stderr.contains("stored tokens are unchanged"), "{down:?}");
    assert_eq!(place.text("home/data/tokens/far.json"), kept);
    server.start_token_endpoint();
    echo(&place).expect_code(0);

    server.expire();
    server.revoke();
    let revoked = echo(&place).expect_code(5);
    assert!(revoked.stderr.contains("haft mcp login far"), "{}", revoked.stderr);
}

/// haft renews a token half a minute before its expiry, and the issuer may be unavailable at that time.
#[test]
fn valid_token_is_used_while_its_issuer_is_down() {
    let server = GuardedServer::start();
    let place = configured(&server);
    log_in(&place);
    let file = "home/data/tokens/far.json";
    let ends_in = |seconds: u64| {
        let mut token: serde_json::Value = serde_json::from_str(&place.text(file)).unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        token["expires_at"] = (now.as_secs() + seconds).into();
        place.file(file, &token.to_string());
    };
    ends_in(28);
    server.stop_token_endpoint();
    echo(&place).expect_code(0);
    ends_in(0);
    let ended = echo(&place);
    assert!(ended.code != Some(0) && ended.stderr.contains("stored tokens are unchanged"), "{ended:?}");
    server.start_token_endpoint();
    echo(&place).expect_code(0);
}

#[test]
fn next_login_requests_the_missing_scope_in_addition_to_the_old_ones() {
    let server = GuardedServer::start();
    let place = configured(&server);
    log_in(&place);
    server.demand("write");
    let refused = echo(&place).expect_code(5);
    assert!(refused.stderr.contains("requires OAuth scopes"), "{refused:?}");
    log_in(&place);
    assert_eq!(server.requested_scopes(), "read write");
    echo(&place).expect_code(0);
}

#[test]
fn token_is_not_sent_to_another_url() {
    let (server, other) = (GuardedServer::start(), GuardedServer::start());
    let place = configured(&server);
    log_in(&place);
    write(&place, &other.url());
    echo(&place).expect_code(5);
    assert_eq!(other.shown(), Vec::<String>::new());
}

#[test]
fn running_stream_recovers_after_revocation_and_login() {
    let server = GuardedServer::start();
    let place = configured(&server);
    log_in(&place);
    let mut stream = McpCallStream::open(&place, &["--trace-mcp"]);
    assert!(stream.ask("far__echo", "{}").contains("let in"));
    server.expire();
    server.revoke();
    let refused = stream.ask("far__echo", "{}");
    assert!(refused.contains("unavailable") && refused.contains("a user must log in"), "{refused}");
    log_in(&place);
    assert!(stream.ask("far__echo", "{}").contains("let in"), "the running process uses the new token");
    let said = stream.end_and_read();
    assert!(said.contains("ready ► needs_auth") && said.contains("needs_auth ► ready"), "{said}");
}

/// Configures a client that logs in with its own credentials.
fn with_credentials(server: &GuardedServer, credentials: &str) -> TestTree {
    let oauth = format!(r#"{{"grant": "clientCredentials", "clientId": "robot", {credentials}}}"#);
    let (place, url) = (place(), server.url());
    let config = format!(r#"{{"mcpServers": {{"far": {{"url": "{url}", "oauth": {oauth}}}}}}}"#);
    place.file("home/haft.json", &config);
    place
}

#[test]
fn client_credentials_grant_authorizes_calls() {
    let server = GuardedServer::start();
    let place = with_credentials(&server, r#""clientSecret": "${ROBOT_SECRET}""#);
    let secret = format!("robot-{CANARY}");
    let run = || place.haft(&["call", "far__echo", "{}"]).env("ROBOT_SECRET", &secret).output();
    let called = run().expect_code(0);
    assert!(called.stdout.contains("let in") && !format!("{called:?}").contains(CANARY), "{called:?}");
    // haft replaces an expired token without asking the user.
    server.expire();
    run().expect_code(0);
    let wrong = place.haft(&["call", "far__echo", "{}"]).env("ROBOT_SECRET", "wrong").output();
    assert!(wrong.code == Some(0) || !wrong.stderr.contains("wrong"), "{wrong:?}");
    let tried = place.haft(&["mcp", "test", "far"]).env("ROBOT_SECRET", &secret).output().expect_code(0);
    assert!(tried.stdout.contains("echo"), "{tried:?}");
}

#[test]
fn strict_server_accepts_assertions_and_proofs_signed_with_a_key() {
    let server = GuardedServer::start_with_proofs();
    let place = with_credentials(&server, r#""privateKey": "${ROBOT_KEY}""#);
    let run = || place.haft(&["call", "far__echo", "{}"]).env("ROBOT_KEY", &server.private_key()).output();
    let called = run();
    assert_eq!(server.refusals(), [""; 0], "{called:?}");
    assert!(called.expect_code(0).stdout.contains("let in"));
    // The second process uses the stored token and its key. The third process gets a new token, because the stored one
    // has expired.
    run().expect_code(0);
    server.expire();
    run().expect_code(0);
    assert_eq!(server.refusals(), [""; 0]);
    let shown = server.shown();
    assert!(!shown.is_empty() && shown.iter().all(|header| header.starts_with("DPoP ")), "{shown:?}");
}

#[test]
fn tokens_appear_only_in_the_token_file() {
    let server = GuardedServer::start();
    let place = configured(&server);
    log_in(&place);
    let traced = place.haft(&["call", "far__echo", "{}", "--trace-mcp", "-vv"]).output();
    let mut seen = vec![format!("{traced:?}"), format!("{:?}", echo(&place))];
    server.expire();
    server.revoke();
    seen.push(format!("{:?}", echo(&place)));
    seen.push(format!("{:?}", place.haft(&["mcp", "test", "far"]).output()));
    files(&place.path("home"), &mut seen);
    assert!(place.text("home/data/tokens/far.json").contains(CANARY), "the token file contains the secret");
    for text in &seen {
        assert!(!text.contains(CANARY), "{text}");
    }
}

/// Reads all files except the token files.
fn files(directory: &Path, seen: &mut Vec<String>) {
    for path in std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.ends_with("data/tokens") {
            files(&path, seen);
        } else if path.is_file() {
            seen.push(String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned());
        }
    }
}

/// A secret service for the test alone, on its own bus. It ends with the test.
pub(super) struct SecretService {
    bus: Child,
    daemon: Child,
    address: String,
}

impl SecretService {
    pub(super) fn start(place: &TestTree) -> Self {
        let mut command = Command::new("dbus-daemon");
        command.args(["--session", "--nofork", "--nopidfile", "--print-address"]).stdout(Stdio::piped());
        let mut bus = command.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(bus.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        let home = place.directory("user/desktop");
        let mut command = Command::new("gnome-keyring-daemon");
        command.args(["--foreground", "--unlock", "--components=secrets"]);
        command.env("DBUS_SESSION_BUS_ADDRESS", &address).env("HOME", &home);
        command.env("XDG_DATA_HOME", home.join("data")).env("XDG_RUNTIME_DIR", &home);
        let quiet = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut daemon = quiet.spawn().unwrap();
        daemon.stdin.take().unwrap().write_all(b"password").unwrap();
        let mut started = Self { bus, daemon, address };
        eventually("the keyring answers", || started.is_there());
        started
    }

    fn is_there(&mut self) -> bool {
        let mut command = Command::new("dbus-send");
        let asked = command.env("DBUS_SESSION_BUS_ADDRESS", &self.address).args([
            "--session",
            "--print-reply",
            "--dest=org.freedesktop.DBus",
            "/org/freedesktop/DBus",
            "org.freedesktop.DBus.NameHasOwner",
            "string:org.freedesktop.secrets",
        ]);
        String::from_utf8_lossy(&asked.output().unwrap().stdout).contains("true")
    }

    pub(super) fn haft(&self, place: &TestTree, words: &[&str]) -> HaftCommand {
        place.haft(words).env("DBUS_SESSION_BUS_ADDRESS", &self.address)
    }
}

impl Drop for SecretService {
    fn drop(&mut self) {
        for child in [&mut self.daemon, &mut self.bus] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn keyring_stores_the_token_instead_of_a_file() {
    let server = GuardedServer::start();
    let place = configured(&server);
    let keyring = SecretService::start(&place);
    let call = || keyring.haft(&place, &["call", "far__echo", "{}"]).output();
    log_in_with(keyring.haft(&place, &["mcp", "login", "far"]));
    assert_eq!(place.text("home/data/tokens/far.json"), r#"{"kept_in":"keyring"}"#);
    call().expect_code(0);
    server.expire();
    assert!(call().expect_code(0).stdout.contains("let in"), "haft renews the token in the keyring");
    assert_eq!(place.text("home/data/tokens/far.json"), r#"{"kept_in":"keyring"}"#);
    // An unreachable keyring is reported as such, and no token is lost.
    let refused = echo(&place).expect_code(5);
    assert!(
        refused.stderr.contains("in the keyring") && refused.stderr.contains("no session bus"),
        "{refused:?}"
    );
    call().expect_code(0);
    keyring.haft(&place, &["mcp", "logout", "far"]).output().expect_code(0);
    assert!(!place.exists("home/data/tokens/far.json"));
    call().expect_code(5);
}

#[test]
fn token_store_setting_selects_file_or_keyring() {
    let server = GuardedServer::start();
    let place = configured(&server);
    let keyring = SecretService::start(&place);
    log_in_with(keyring.haft(&place, &["mcp", "login", "far"]));
    let url = server.url();
    let want = |store: &str| {
        let config =
            format!("{{\"tokenStore\": \"{store}\", \"mcpServers\": {{\"far\": {{\"url\": \"{url}\"}}}}}}");
        place.file("home/haft.json", &config);
    };
    // A token in the keyring is still read, and moves to the file when it is renewed.
    want("file");
    keyring.haft(&place, &["call", "far__echo", "{}"]).output().expect_code(0);
    server.expire();
    keyring.haft(&place, &["call", "far__echo", "{}"]).output().expect_code(0);
    assert!(place.text("home/data/tokens/far.json").contains("access_token"));
    echo(&place).expect_code(0);
    want("keyring");
    server.expire();
    let refused = echo(&place).expect_code(5);
    assert!(refused.stderr.contains("no session bus"), "{refused:?}");
}

/// The socket of this bus accepts connections but never answers.
#[test]
fn hanging_keyring_falls_back_to_the_token_file() {
    let server = GuardedServer::start();
    let place = configured(&server);
    let listener = std::os::unix::net::UnixListener::bind(place.path("user/bus")).unwrap();
    let address = format!("unix:path={}", place.path("user/bus").display());
    log_in_with(place.haft(&["mcp", "login", "far"]).env("DBUS_SESSION_BUS_ADDRESS", &address));
    drop(listener);
    assert!(place.text("home/data/tokens/far.json").contains("access_token"));
    echo(&place).expect_code(0);
}
