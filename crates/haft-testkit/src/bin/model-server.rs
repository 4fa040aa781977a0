//! The scripted model server by itself: `cargo run -p haft-testkit --bin model-server -- --script FILE`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to the person who runs it")]

use std::process::ExitCode;

use haft_testkit::model_server::{Script, serve};
use tokio::net::TcpListener;

const USAGE: &str = "model-server --script FILE [--port PORT]";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

async fn run(words: &[String]) -> Result<(), String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (file, port) = match words.as_slice() {
        ["--script", file] => (*file, "0"),
        ["--script", file, "--port", port] | ["--port", port, "--script", file] => (*file, *port),
        _ => return Err(USAGE.to_owned()),
    };
    let port: u16 = port.parse().map_err(|_| format!("`{port}` is not a port; give a number up to 65535"))?;
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let script = Script::parse(&text).map_err(|error| format!("{file}: {error}"))?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    let listener = listener.map_err(|error| format!("port {port} cannot be used: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    println!("http://{address}");
    serve(script, listener).await.map_err(|error| error.to_string())
}
