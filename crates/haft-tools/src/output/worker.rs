//! Asking inside the confined worker: a filter that never ends dies with it.

use std::os::unix::net::UnixStream;

use haft_sandbox::{SandboxError, Workers};
use serde::{Deserialize, Serialize};

use super::extract::{ExtractError, Question};
use crate::exchange::exchange;
use crate::frame::{self, FrameError};

/// The name under which the worker is known to the launcher.
pub const EXTRACT_WORKER: &str = "extract";

#[derive(Serialize, Deserialize)]
struct Asked {
    extract: String,
    /// As text: what is not UTF-8 was replaced, as it would be in the answer.
    content: String,
}

/// Answers questions until nobody asks any more.
pub fn serve(mut channel: UnixStream) {
    while let Ok(Some(body)) = frame::read_frame(&mut channel) {
        let answer: Result<String, String> = frame::decode::<Asked>(&body)
            .map_err(|error: FrameError| error.to_string())
            .and_then(|asked| answer(&asked).map_err(|error| error.to_string()));
        if frame::write_frame(&mut channel, &answer).is_err() {
            return;
        }
    }
}

fn answer(asked: &Asked) -> Result<String, ExtractError> {
    let question =
        Question::parse(&asked.extract)?.ok_or_else(|| ExtractError("not a known question".into()))?;
    question.answer(asked.content.as_bytes())
}

/// Has a question answered. Dropping the future kills the worker, and with it the filter.
pub async fn ask(workers: &Workers, extract: &str, content: &[u8]) -> Result<String, ExtractError> {
    let failed = |error: &dyn std::fmt::Display| ExtractError(format!("the extract worker failed: {error}"));
    let mut worker = workers.take().await.map_err(|error: SandboxError| failed(&error))?;
    let asked = Asked { extract: extract.into(), content: String::from_utf8_lossy(content).into_owned() };
    let answer: Result<String, String> =
        exchange(&mut worker.channel, &asked).await.map_err(|error| failed(&error))?;
    workers.give_back(worker);
    answer.map_err(ExtractError)
}
