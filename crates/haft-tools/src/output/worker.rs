//! Runs queries inside the confined worker, so that an endless jq filter can be killed together with its process.

use std::os::unix::net::UnixStream;

use haft_sandbox::{SandboxError, WorkerPool};
use serde::{Deserialize, Serialize};

use super::extract::{ExtractError, OutputQuery};
use crate::frame::{self, FrameError};
use crate::worker_request::exchange;

/// The name under which the sandbox launcher starts the worker.
pub const EXTRACT_WORKER: &str = "extract";

#[derive(Serialize, Deserialize)]
struct ExtractRequest {
    extract: String,
    /// The output as text, with invalid UTF-8 replaced. The replacement loses nothing, because the answer is text too
    /// and would replace the same bytes.
    content: String,
}

/// Answers queries until the other end closes the channel.
pub fn serve(mut channel: UnixStream) {
    while let Ok(Some(body)) = frame::read_frame(&mut channel) {
        let answer: Result<String, String> = frame::decode::<ExtractRequest>(&body)
            .map_err(|error: FrameError| error.to_string())
            .and_then(|asked| answer(&asked).map_err(|error| error.to_string()));
        if frame::write_frame(&mut channel, &answer).is_err() {
            return;
        }
    }
}

fn answer(asked: &ExtractRequest) -> Result<String, ExtractError> {
    let question = OutputQuery::parse(&asked.extract)?
        .ok_or_else(|| ExtractError("haft does not know this query of a stored output".into()))?;
    question.answer(asked.content.as_bytes())
}

/// Sends a query to a worker and awaits the answer. Dropping the future kills the worker, and with it the jq filter.
pub async fn ask(workers: &WorkerPool, extract: &str, content: &[u8]) -> Result<String, ExtractError> {
    let failed = |error: &dyn std::fmt::Display| {
        ExtractError(format!("the process that reads parts of stored outputs failed: {error}"))
    };
    let mut worker = workers.take().await.map_err(|error: SandboxError| failed(&error))?;
    let request =
        ExtractRequest { extract: extract.into(), content: String::from_utf8_lossy(content).into_owned() };
    let answer: Result<String, String> =
        exchange(&mut worker.channel, &request).await.map_err(|error| failed(&error))?;
    workers.give_back(worker);
    answer.map_err(ExtractError)
}
