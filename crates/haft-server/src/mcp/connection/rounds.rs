//! Requests that may need answers from the client before they end. Protocol revisions differ in how the server asks.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use haft_core::approval::ApprovalId;
use haft_core::digest::Digest;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use super::ClientConnection;
use super::calls::RequestedNotices;
use super::opened::OpenedClient;
use crate::mcp::call_notices::WatchedCall;
use crate::mcp::era::RequestEra;
use crate::mcp::held::{AbortOnDrop, DetachedCall, DetachedStep, ResumedCall};
use crate::mcp::message::{self, GatewayError, INTERNAL_ERROR};
use crate::mcp::questions::{CallQuestion, QuestionCarrier};

/// The maximum number of questions of one call that wait. Upstream servers send at most this many at once.
const QUESTIONS_WAITING_MAX: usize = 16;

/// The answers in a repeated request.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RoundParams {
    #[serde(default)]
    input_responses: HashMap<String, Box<RawValue>>,
    request_state: Option<String>,
}

impl RoundParams {
    /// Returns true if the request does not continue an earlier one.
    pub(super) fn is_first(&self) -> bool {
        self.request_state.is_none()
    }

    /// Reads the answers from the parameters of a request. In revisions with a handshake, the parameters contain no
    /// answers.
    pub(super) fn read(params: Option<&RawValue>, era: RequestEra) -> Result<Self, GatewayError> {
        match era {
            RequestEra::Handshake => Ok(Self::default()),
            RequestEra::Stateless(_) => message::params(params),
        }
    }
}

/// One round of a request.
pub(super) struct RequestRound {
    /// The id of the request.
    pub(super) id: Box<RawValue>,
    pub(super) era: RequestEra,
    /// A digest of the method and parameters. A repeated request must have the same digest.
    pub(super) digest: Digest,
    pub(super) params: RoundParams,
    /// The id of the approval that the work may ask for, by which its questions find this request; `None` if it asks
    /// for none.
    pub(super) approval: Option<ApprovalId>,
    /// The notices that this request wants.
    pub(super) notices: RequestedNotices,
    /// The notices of the call that the request begins.
    pub(super) watched: WatchedCall,
}

impl ClientConnection {
    /// Runs `work` for a new request. If the request repeats an earlier one with the client's answers, continues the
    /// earlier call and drops `work`. Until the request ends, the client gets the notices that it wants.
    pub(super) async fn in_rounds(
        &self,
        opened: &OpenedClient,
        round: RequestRound,
        work: impl Future<Output = Result<String, GatewayError>> + Send + 'static,
    ) -> Result<String, GatewayError> {
        match round.era {
            RequestEra::Handshake => {
                let RequestRound { id, approval, notices, watched, .. } = round;
                let _carrying = self.questions.carry(approval, QuestionCarrier::Request(id.clone()));
                self.with_notices(&watched.notices, (&id, notices), work).await
            }
            RequestEra::Stateless(_) => self.detached(opened, round, work).await,
        }
    }

    async fn detached(
        &self,
        opened: &OpenedClient,
        round: RequestRound,
        work: impl Future<Output = Result<String, GatewayError>> + Send + 'static,
    ) -> Result<String, GatewayError> {
        let held = &opened.shared.held;
        let RequestRound { id, digest, params, approval, notices, watched, era: _ } = round;
        let mut call = match &params.request_state {
            Some(state) => match held.resume(state, digest, &params.input_responses)? {
                ResumedCall::Running(call) => call,
                ResumedCall::Incomplete(reply) => return Ok(reply.to_string()),
            },
            None => self.detach((digest, approval), watched, work),
        };
        // A continued call has its own notices, which this request now gets.
        let of_call = Arc::clone(&call.watched.notices);
        match self.with_notices(&of_call, (&id, notices), call.step()).await {
            DetachedStep::Finished(outcome) => outcome,
            DetachedStep::Asks(questions) => {
                let client = self.client_name.get().map(String::as_str).unwrap_or_default();
                Ok(held.hold(client, call, questions).to_string())
            }
            DetachedStep::Lost => Err(GatewayError::new(INTERNAL_ERROR, "the call was cancelled")),
        }
    }

    fn detach(
        &self,
        (digest, approval): (Digest, Option<ApprovalId>),
        watched: WatchedCall,
        work: impl Future<Output = Result<String, GatewayError>> + Send + 'static,
    ) -> DetachedCall {
        let (ask, questions) = question_channel();
        let carrying = self.questions.carry(approval, QuestionCarrier::Reply(ask));
        DetachedCall { _carrying: Some(carrying), ..detached_call(digest, (watched, questions), work) }
    }
}

/// Returns the channel for the questions of a call that outlives its request.
pub(super) fn question_channel() -> (mpsc::Sender<CallQuestion>, mpsc::Receiver<CallQuestion>) {
    mpsc::channel(QUESTIONS_WAITING_MAX)
}

/// Runs the work in a task that outlives its request.
pub(super) fn detached_call(
    request: Digest,
    (watched, questions): (WatchedCall, mpsc::Receiver<CallQuestion>),
    work: impl Future<Output = Result<String, GatewayError>> + Send + 'static,
) -> DetachedCall {
    let (finished, result) = oneshot::channel();
    let task = tokio::spawn(async move {
        // Ignore an error: the request that waits for the result may be gone.
        let _ = finished.send(work.await);
    });
    DetachedCall {
        result,
        questions,
        _task: AbortOnDrop(task.abort_handle()),
        _carrying: None,
        watched,
        _receiving: None,
        request,
    }
}
