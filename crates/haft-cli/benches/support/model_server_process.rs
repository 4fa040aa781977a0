//! The scripted model server of a benchmark.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

/// The scripted model server, in a separate process.
pub(crate) struct ModelServerProcess {
    child: Child,
    pub(crate) url: String,
    /// Keeps the pipe open, because the server ends when its standard output has no reader.
    _words: BufReader<ChildStdout>,
}

impl ModelServerProcess {
    pub(crate) fn start(dir: &Path, script: &Value) -> Self {
        let file = dir.join("script.json");
        std::fs::write(&file, script.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_haft"));
        command.args(["dev", "model-server", "--script"]).arg(&file).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut url = String::new();
        let mut words = BufReader::new(child.stdout.take().unwrap());
        words.read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned(), _words: words }
    }
}

impl Drop for ModelServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
