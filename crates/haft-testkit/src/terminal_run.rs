//! Runs haft on a pseudo-terminal, which the program `script` provides.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::run::{HaftCommand, HaftOutput, Watchdog, eventually};

/// A run of haft on a terminal with 80 columns and 24 rows.
#[derive(Debug)]
pub struct TerminalRun {
    child: Child,
    /// Everything that the terminal showed.
    shown: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    /// The length of the output up to and including the text that [`TerminalRun::wait_for`] found last.
    seen: usize,
}

impl HaftCommand {
    /// Starts the program on a terminal. Its input stays open until the program ends.
    pub fn on_terminal(self) -> TerminalRun {
        self.on_terminal_with(80, "")
    }

    /// Starts the program on a terminal with this width and with these shell redirections, such as `< file`.
    pub fn on_terminal_with(mut self, columns: u16, redirections: &str) -> TerminalRun {
        let words: Vec<String> =
            self.words.iter().map(|word| quoted(word.to_str().expect("UTF-8"))).collect();
        let line = format!("stty cols {columns} rows 24; exec {} {redirections}", words.join(" "));
        self.words = ["script", "-qefc", &line, "/dev/null"].map(OsString::from).into();
        let mut child = self.env("TERM", "xterm").start();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let reader = reader(child.stdout.take().unwrap(), Arc::clone(&shown));
        TerminalRun { child, shown, reader, seen: 0 }
    }
}

impl TerminalRun {
    /// Waits until the terminal shows `text`. Ignores output up to the end of the previous match.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        let mut end = None;
        eventually(&format!("the terminal shows `{text}` after {:?}", self.text()), || {
            let shown = self.shown.lock().unwrap();
            let found = shown[self.seen..].windows(text.len()).position(|window| window == text.as_bytes());
            end = found.map(|at| self.seen + at + text.len());
            end.is_some()
        });
        self.seen = end.unwrap();
    }

    /// Types these keys.
    pub fn type_keys(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(keys.as_bytes()).and_then(|()| stdin.flush()).unwrap();
    }

    /// Returns everything that the terminal has shown.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Returns true once the program has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until the program ends. The terminal output is in `stdout`.
    pub fn finish(mut self) -> HaftOutput {
        let watchdog = Watchdog::over(&self.child);
        // `wait` would close the input, which the terminal passes to the program as Ctrl-D.
        let stdin = self.child.stdin.take();
        let status = self.child.wait().unwrap();
        drop((stdin, watchdog));
        self.reader.join().unwrap();
        let stdout = String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned();
        HaftOutput { code: status.code(), stdout, stderr: String::new() }
    }
}

fn reader(mut output: impl Read + Send + 'static, shown: Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = output.read(&mut buffer) {
            shown.lock().unwrap().extend_from_slice(&buffer[..read]);
        }
    })
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
