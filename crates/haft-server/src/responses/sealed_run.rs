//! Suspended runs that wait for approval and that the server does not store. The client keeps such a run, encrypted
//! ("sealed"), in an item of type `reasoning`.

use haft_runtime::SuspendedRun;
use haft_store::responses::{ResponseRecord, WaitingApproval};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::field::invalid;
use super::{run_fields, sealed_text};
use crate::auth::Caller;
use crate::error::ApiError;
use crate::server::ServerState;

/// The first bytes of a decrypted run. A decrypted turn is a JSON object, so it begins with a brace instead.
const MARK: &[u8] = b"run ";

/// A response that ended with approval requests, and the run that continues when they are answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SuspendedResponse {
    pub(crate) id: String,
    pub(crate) created_ms: u64,
    /// The requests, and the answers that the client gave while other requests were open.
    pub(crate) approvals: Vec<WaitingApproval>,
    /// The `mcp_approval_request` items as the client got them.
    pub(crate) items: Vec<Value>,
    /// The fields of the response that its run fixes; see `run_fields`. Empty in items of earlier versions.
    #[serde(default)]
    pub(crate) fields: Map<String, Value>,
    /// The name of the workspace of the run.
    pub(crate) workspace: Option<String>,
    /// The id of the conversation that the response belongs to.
    pub(crate) conversation: Option<String>,
    pub(crate) run: ResumableRun,
}

/// A suspended run: the id of a stored session, or the whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResumableRun {
    Stored(String),
    Whole(Box<SuspendedRun>),
}

impl SuspendedResponse {
    /// Reads a stored response.
    pub(super) fn of_stored(record: ResponseRecord) -> Self {
        Self {
            run: ResumableRun::Stored(record.run),
            items: approval_items(record.response["output"].as_array().into_iter().flatten()),
            fields: run_fields::of_stored(&record.response),
            conversation: record.response["conversation"]["id"].as_str().map(str::to_owned),
            id: record.id,
            created_ms: record.created_ms,
            approvals: record.approvals,
            workspace: record.workspace,
        }
    }

    /// Encrypts the response for the caller.
    pub(super) async fn seal(&self, state: &ServerState, caller: &Caller) -> Result<String, ApiError> {
        let own = self.clone();
        let text = move || serde_json::to_vec(&own).map(|json| [MARK, &json].concat());
        sealed_text::seal(state, caller, text).await
    }
}

/// Returns the approval requests in the output of a response.
pub(super) fn approval_items<'a>(output: impl IntoIterator<Item = &'a Value>) -> Vec<Value> {
    output.into_iter().filter(|item| item["type"] == "mcp_approval_request").cloned().collect()
}

/// Reads a decrypted text; `None` if the text is not a run.
pub(super) fn read(path: &str, text: &[u8]) -> Result<Option<SuspendedResponse>, ApiError> {
    let Some(json) = text.strip_prefix(MARK) else { return Ok(None) };
    serde_json::from_slice(json).map(Some).map_err(|error| {
        let message = format!("the encrypted item contains no valid run: {error}");
        invalid(format!("{path}.encrypted_content"), message).with_code(sealed_text::INVALID)
    })
}
