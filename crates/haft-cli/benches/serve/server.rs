//! Starts `haft serve`, or another HTTP server, in a separate process.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::model_server_process::ModelServerProcess;
use crate::process_stats::cpu_of;

/// A home directory of haft with an API key, and the model server process that `haft serve` uses with it.
pub(crate) struct BenchHome {
    dir: PathBuf,
    pub(crate) model: ModelServerProcess,
    pub(crate) key: String,
}

impl BenchHome {
    /// Starts the model, and creates a home directory with this value of `serve` in its configuration.
    pub(crate) fn create(dir: &Path, script: &Value, serve: &Value) -> Self {
        let model = ModelServerProcess::start(dir, script);
        std::fs::create_dir(dir.join("home")).unwrap();
        let mut serve = serve.clone();
        // Accept requests even if the disk is nearly full, as it often is after a build.
        serve["minFreeDiskPercent"] = 0.into();
        std::fs::write(dir.join("home/haft.json"), json!({ "serve": serve }).to_string()).unwrap();
        let mut home = Self { dir: dir.to_owned(), model, key: String::new() };
        let created = home.haft().args(["keys", "create", "bench", "--json"]).output().unwrap();
        let created: Value = serde_json::from_slice(&created.stdout).unwrap();
        created["key"].as_str().unwrap().clone_into(&mut home.key);
        home
    }

    /// Creates a home directory whose model answers every request at once.
    pub(crate) fn with_fast_model(dir: &Path) -> Self {
        Self::create(dir, &json!({"steps": [{"say": [{"text": "done"}]}]}), &json!({}))
    }

    fn haft(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haft"));
        command.current_dir(&self.dir).env_clear().env("PATH", "/usr/bin:/bin");
        command.env("HAFT_HOME", self.dir.join("home")).env("HOME", &self.dir);
        command.env("OPENAI_BASE_URL", format!("{}/v1", self.model.url)).env("OPENAI_API_KEY", "k");
        command
    }

    /// Starts the server, and returns once it is ready.
    pub(crate) fn serve(&self) -> ServeProcess {
        let address = free_address();
        let mut command = self.haft();
        command.args(["serve", "--address", &address.to_string()]);
        ServeProcess::start(command, address, "/readyz")
    }

    /// Returns a connection to the model itself, which accepts any key.
    pub(crate) fn model_client(&self) -> Client {
        Client::connect(self.model.url.trim_start_matches("http://").parse().unwrap(), &self.key)
    }
}

pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// An HTTP server in a separate process, which is killed when this value is dropped.
pub(crate) struct ServeProcess {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl ServeProcess {
    /// Starts a server, and returns once it answers a request for `ready_path` with status 200.
    pub(crate) fn start(mut command: Command, address: SocketAddr, ready_path: &str) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        while !is_ready(address, ready_path) {
            assert!(child.try_wait().unwrap().is_none(), "the server has ended: {command:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        Self { child, address }
    }

    pub(crate) fn cpu(&self) -> Duration {
        cpu_of(self.child.id())
    }

    /// Returns the resident memory, including the pages of the program file.
    pub(crate) fn resident_megabytes(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1e3
    }

    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_ready(address: SocketAddr, path: &str) -> bool {
    let Ok(mut connection) = TcpStream::connect(address) else { return false };
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    connection.read_to_string(&mut reply).is_ok() && reply.starts_with("HTTP/1.1 200")
}
