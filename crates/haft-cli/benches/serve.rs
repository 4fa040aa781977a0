//! Measures `haft serve`: CPU time of the server for one response, responses per second, start time and idle memory.
//!
//! `cargo bench -p haft-cli --bench serve` prints the table in `docs/serving.md`. The scripted model answers at once.
//! The model, the server and the clients are three processes, so the measured CPU time is only the server's.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark prints"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use model_server_process::ModelServerProcess;
use process_stats::cpu_of;
use serde_json::{Value, json};

#[path = "support/model_server_process.rs"]
mod model_server_process;
#[path = "support/process_stats.rs"]
mod process_stats;

const STARTS: usize = 15;
const RESPONSES: usize = 2_000;
const CLIENTS: usize = 16;

fn main() {
    println!("load average: {}", std::fs::read_to_string("/proc/loadavg").unwrap().trim());
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let model = ModelServerProcess::start(dir.path(), &json!({"steps": [{"say": [{"text": "done"}]}]}));
    let key = create_key(dir.path(), &model.url);
    let mut starts: Vec<Duration> = (0..STARTS)
        .map(|_| {
            let began = Instant::now();
            let _server = ServeProcess::start(dir.path(), &model.url);
            began.elapsed()
        })
        .collect();
    starts.sort();
    println!("exec to ready: median {:.1} ms of {STARTS}", starts[STARTS / 2].as_secs_f64() * 1e3);
    let server = ServeProcess::start(dir.path(), &model.url);
    println!("idle: {:.1} MB", server.resident_megabytes());
    for store in [false, true] {
        let body = json!({"model": "openai/m", "input": "go", "store": store}).to_string();
        let mut client = Client::connect(server.address, &key);
        // The first requests prepare the agent and open the connection to the model.
        (0..200).for_each(|_| client.post(&body));
        let before = server.cpu();
        (0..RESPONSES).for_each(|_| client.post(&body));
        let each = server.cpu().saturating_sub(before).as_secs_f64() * 1e6 / RESPONSES as f64;
        let rate = responses_per_second(&server, &key, &body);
        println!(
            "store {store}: {each:.0} µs of CPU a response, {rate:.0} responses/s with {CLIENTS} clients"
        );
    }
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "go"}]}).to_string();
    let direct = latency(
        model.url.trim_start_matches("http://").parse().unwrap(),
        &key,
        "/v1/chat/completions",
        &body,
    );
    let body = json!({"model": "openai/m", "input": "go", "store": false}).to_string();
    let through = latency(server.address, &key, "/v1/responses", &body);
    println!(
        "median of one response: {:.2} ms, of the model alone {:.2} ms",
        through.as_secs_f64() * 1e3,
        direct.as_secs_f64() * 1e3
    );
    println!("after all responses: {:.1} MB", server.resident_megabytes());
}

fn latency(address: SocketAddr, key: &str, path: &str, body: &str) -> Duration {
    let mut client = Client::connect(address, key);
    let mut times: Vec<Duration> = (0..500)
        .map(|_| {
            let began = Instant::now();
            client.post_to(path, body);
            began.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

fn responses_per_second(server: &ServeProcess, key: &str, body: &str) -> f64 {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = Client::connect(server.address, key);
                (0..RESPONSES / CLIENTS).for_each(|_| client.post(body));
            });
        }
    });
    RESPONSES as f64 / began.elapsed().as_secs_f64()
}

fn haft(dir: &Path, model: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haft"));
    command.current_dir(dir).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("HAFT_HOME", dir.join("home")).env("HOME", dir);
    command.env("OPENAI_BASE_URL", format!("{model}/v1")).env("OPENAI_API_KEY", "k");
    command
}

fn create_key(dir: &Path, model: &str) -> String {
    let created = haft(dir, model).args(["keys", "create", "bench", "--json"]).output().unwrap();
    let created: Value = serde_json::from_slice(&created.stdout).unwrap();
    created["key"].as_str().unwrap().to_owned()
}

/// `haft serve`, on a port of its own.
struct ServeProcess {
    child: Child,
    address: SocketAddr,
}

impl ServeProcess {
    /// Starts the server, and returns once it is ready.
    fn start(dir: &Path, model: &str) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = haft(dir, model);
        command.args(["serve", "--address", &address.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        while !is_ready(address) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Self { child, address }
    }

    fn cpu(&self) -> Duration {
        cpu_of(self.child.id())
    }

    fn resident_megabytes(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1e3
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_ready(address: SocketAddr) -> bool {
    let Ok(mut connection) = TcpStream::connect(address) else { return false };
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    connection.read_to_string(&mut reply).is_ok() && reply.starts_with("HTTP/1.1 200")
}

/// One connection that stays open between requests.
struct Client {
    connection: BufReader<TcpStream>,
    head: String,
}

impl Client {
    fn connect(address: SocketAddr, key: &str) -> Self {
        let connection = TcpStream::connect(address).unwrap();
        connection.set_nodelay(true).unwrap();
        let head = format!(
            "Host: {address}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: "
        );
        Self { connection: BufReader::new(connection), head }
    }

    fn post(&mut self, body: &str) {
        self.post_to("/v1/responses", body);
    }

    /// Sends a request and reads the whole reply, which must be a success.
    fn post_to(&mut self, path: &str, body: &str) {
        let request = format!("POST {path} HTTP/1.1\r\n{}{}\r\n\r\n{body}", self.head, body.len());
        self.connection.get_mut().write_all(request.as_bytes()).unwrap();
        let mut line = self.line();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        let mut length = None;
        while line != "\r\n" {
            line = self.line().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Some(value.trim().parse().unwrap());
            }
        }
        match length {
            Some(length) => self.skip(length),
            None => loop {
                // A chunk begins with its length, and ends with a line break.
                let length = usize::from_str_radix(self.line().trim(), 16).unwrap();
                self.skip(length + 2);
                if length == 0 {
                    break;
                }
            },
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.connection.read_line(&mut line).unwrap();
        line
    }

    fn skip(&mut self, length: usize) {
        self.connection.read_exact(&mut vec![0; length]).unwrap();
    }
}
