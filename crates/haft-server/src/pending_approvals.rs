//! The approval requests that wait for an answer, and their expiry.
//!
//! When an approval request expires, haft denies the call and ends the run. The run does not continue by itself: its
//! client may have gone, and further model requests would cost money without the client's consent.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haft_core::conversation::{Conversation, Message, ToolReply};
use haft_core::home::Home;
use haft_core::position::SessionId;
use haft_core::principal::Principal;
use haft_core::stored::StoredMessage;
use haft_runtime::runtime::ResumeFailure;
use haft_runtime::{AnswerSource, FinishedRun, QueueEntry, RunHooks, RunSecrets};
use haft_store::audit_log::AuditEvent;
use haft_store::pending_approvals::{PendingApprovalRecord, PendingApprovalStore, expires_ms};
use haft_store::sessions::SessionError;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::auth::now_ms;
use crate::server::ServerState;

/// The longest time between two checks for expired requests. A reload of the configuration may shorten the lifetime of
/// requests that already wait.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// The maximum time for ending one expired run, so that this run does not delay the others.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// All approval requests that wait, by response.
pub(crate) struct PendingApprovals {
    store: PendingApprovalStore,
    records: Mutex<BTreeMap<String, PendingApprovalRecord>>,
    added: Notify,
}

/// The number of waiting requests and the age of the oldest one, for the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PendingApprovalStats {
    pub(crate) requests: usize,
    pub(crate) oldest_age: Duration,
}

impl PendingApprovalStats {
    /// Returns the statistics of both values together: the sum of the requests, and the age of the oldest request.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { requests: self.requests + other.requests, oldest_age: self.oldest_age.max(other.oldest_age) }
    }
}

impl PendingApprovals {
    pub(crate) fn of(home: &Home) -> Self {
        let store = PendingApprovalStore::of(home);
        let records = store.all().into_iter().map(|record| (record.response.clone(), record)).collect();
        Self { store, records: Mutex::new(records), added: Notify::new() }
    }

    pub(crate) fn add(&self, record: PendingApprovalRecord) -> io::Result<()> {
        let stored = self.store.put(&record);
        self.records().insert(record.response.clone(), record);
        self.added.notify_one();
        stored
    }

    /// Removes the requests of a response, because they are answered or were deleted.
    pub(crate) fn remove(&self, response: &str) {
        if self.take(response).is_some() {
            self.forget(response);
        }
    }

    /// Removes the requests of a response from memory and returns them, so that only the code that took them ends the run
    /// of the response. The file stays until that run has ended: if this process dies before, the next process ends the
    /// run.
    pub(crate) fn take(&self, response: &str) -> Option<PendingApprovalRecord> {
        self.records().remove(response)
    }

    fn forget(&self, response: &str) {
        // Ignore a failure: a file that stays is removed when it expires.
        let _ = self.store.remove(response);
    }

    /// Returns the requests whose webhook event no receiver has accepted yet, the oldest first.
    pub(crate) fn unannounced(&self) -> Vec<PendingApprovalRecord> {
        let mut open: Vec<_> =
            self.records().values().filter(|record| !record.is_announced).cloned().collect();
        open.sort_by_key(|record| record.since_ms);
        open
    }

    /// Notes that the webhook has accepted the event, so that the next process does not send it again. Requests that
    /// were answered in the meantime no longer have a file.
    pub(crate) fn mark_announced(&self, response: &str) {
        let mut records = self.records();
        if let Some(record) = records.get_mut(response) {
            record.is_announced = true;
            // Write while the table is locked: otherwise a concurrent removal could leave the file behind. Ignore a
            // failure: the next process then sends the event again, and the receiver recognises its id.
            let _ = self.store.put(record);
        }
    }

    /// Returns the requests of a principal.
    pub(crate) fn of_principal(&self, principal: &Principal) -> Vec<PendingApprovalRecord> {
        let records = self.records();
        records.values().filter(|record| record.principal().is_subject_of(principal)).cloned().collect()
    }

    /// Returns the requests of a run of this principal; `None` if the run does not wait for approval.
    pub(crate) fn of_run(&self, principal: &Principal, run: &str) -> Option<PendingApprovalRecord> {
        self.of_principal(principal).into_iter().find(|record| record.run == run)
    }

    pub(crate) fn stats(&self, now_ms: u64) -> PendingApprovalStats {
        let records = self.records();
        let oldest = records.values().map(|record| record.since_ms).min().unwrap_or(now_ms);
        PendingApprovalStats {
            requests: records.values().map(|record| record.requests.len()).sum(),
            oldest_age: Duration::from_millis(now_ms.saturating_sub(oldest)),
        }
    }

    fn expired(&self, now_ms: u64, lifetime: Duration) -> Vec<PendingApprovalRecord> {
        let records = self.records();
        let expired = records.values().filter(|record| is_expired(record.since_ms, now_ms, lifetime));
        expired.cloned().collect()
    }

    /// Returns the time until the next request expires.
    fn next_expiry(&self, now_ms: u64, lifetime: Duration) -> Duration {
        let oldest = self.records().values().map(|record| record.since_ms).min();
        let left = oldest.map(|since| expires_ms(since, lifetime).saturating_sub(now_ms));
        // Add one millisecond, because a request expires after its time limit, not exactly at it.
        left.map_or(CHECK_INTERVAL, |left| Duration::from_millis(left + 1).min(CHECK_INTERVAL))
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<String, PendingApprovalRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if a request that has waited since `since_ms` has expired.
pub(crate) fn is_expired(since_ms: u64, now_ms: u64, lifetime: Duration) -> bool {
    expires_ms(since_ms, lifetime) < now_ms
}

/// Sends the events that an earlier process could not deliver. The webhook may have been configured only now.
pub(crate) async fn announce_again(state: Arc<ServerState>, unannounced: Vec<PendingApprovalRecord>) {
    for record in unannounced {
        let settings = state.runtime.config().serve.clone();
        let is_answered = !state.pending_approvals.records().contains_key(&record.response);
        if is_answered || is_expired(record.since_ms, now_ms(), settings.approval_timeout) {
            continue;
        }
        tokio::select! {
            () = state.webhook.announce_again(&state, &settings, &record) => {}
            () = state.stopped() => return,
        }
    }
}

/// Ends the runs of expired requests until the server stops.
pub(crate) async fn expire(state: Arc<ServerState>) {
    loop {
        let lifetime = state.runtime.config().serve.approval_timeout;
        for record in state.pending_approvals.expired(now_ms(), lifetime) {
            let Some(record) = state.pending_approvals.take(&record.response) else { continue };
            let owned = Arc::clone(&state);
            // Do not wait longer: the run then ends in the background.
            let _ =
                timeout(END_TIMEOUT, tokio::spawn(async move { end_expired(&owned, &record).await })).await;
        }
        let next = state.pending_approvals.next_expiry(now_ms(), lifetime);
        tokio::select! {
            () = sleep(next) => {}
            () = state.pending_approvals.added.notified() => {}
            () = state.stopped() => return,
        }
    }
}

async fn end_expired(state: &ServerState, record: &PendingApprovalRecord) {
    if end(state, record, "expired").await {
        state.metrics.approvals_expired(record.requests.len());
    }
}

/// Denies the requests of a response and ends its run. The caller must have removed the requests with
/// [`PendingApprovals::take`]. `reason` is for the audit log. The client can continue the conversation, which then
/// contains the denied calls. Returns false if there was nothing to deny.
pub(crate) async fn end(state: &ServerState, record: &PendingApprovalRecord, reason: &str) -> bool {
    let principal = record.principal();
    let ended = end_run(state, &principal, &record.run).await;
    if matches!(ended, DeniedRun::Answered) {
        state.pending_approvals.forget(&record.response);
        return false;
    }
    let (store, id) = (state.responses.clone(), record.response.clone());
    let owner = principal.clone();
    let changed = tokio::task::spawn_blocking(move || {
        store.expire_approvals(&owner, &id, |stored| match ended {
            DeniedRun::Ended(messages) => messages,
            DeniedRun::Unavailable | DeniedRun::Answered => with_results(stored),
        })
    });
    match changed.await {
        Ok(Ok(true)) => {}
        // The response was deleted in the meantime, so there is nothing to deny.
        Ok(Ok(false)) => {
            state.pending_approvals.forget(&record.response);
            return false;
        }
        // Ignore the failure: the next process tries again.
        Ok(Err(_)) | Err(_) => return false,
    }
    state.pending_approvals.forget(&record.response);
    for request in &record.requests {
        state.audit.decided(&principal, AuditEvent::ApprovalDecided, &request.id, reason);
    }
    true
}

/// The outcome of ending a run that waits for approval.
enum DeniedRun {
    /// The run has ended with this conversation.
    Ended(Vec<StoredMessage>),
    /// The run cannot be resumed, for example because the URL of an MCP server is not stored. The run makes no further
    /// calls.
    Unavailable,
    /// A concurrent answer has resumed the run.
    Answered,
}

async fn end_run(state: &ServerState, principal: &Principal, run: &str) -> DeniedRun {
    let Ok(id) = Uuid::parse_str(run) else { return DeniedRun::Unavailable };
    let session = SessionId(id.as_u128());
    let Ok(spec) = state.runtime.stored_spec(principal, session).await else { return DeniedRun::Unavailable };
    let hooks = RunHooks {
        approvals: AnswerSource::ThroughHandle,
        elicitations: AnswerSource::Denied,
        queue_entry: QueueEntry::Accepted,
        // Accept a run that has already ended: an earlier process may have ended the run and stopped before it changed
        // the response.
        finished: FinishedRun::EndsAgain,
        ..RunHooks::default()
    };
    let handle = match state.runtime.resume_with(session, spec, None, RunSecrets::none(), hooks).await {
        Ok(handle) => handle,
        Err(ResumeFailure::Session(SessionError::Busy { .. })) => return DeniedRun::Answered,
        Err(_) => return DeniedRun::Unavailable,
    };
    handle.cancel();
    let stopped = handle.stopped().await;
    match handle.conversation().filter(|_| stopped.is_ok()) {
        Some(conversation) => {
            let messages = conversation.messages().iter();
            DeniedRun::Ended(messages.map(|message| StoredMessage::of(message)).collect())
        }
        None => DeniedRun::Unavailable,
    }
}

/// Adds an error result to each call that has no result, because model APIs refuse a conversation with such calls.
fn with_results(stored: Vec<StoredMessage>) -> Vec<StoredMessage> {
    let mut conversation = Conversation::default();
    for message in &stored {
        let pushed = message.clone().into_message().is_ok_and(|message| conversation.push(message).is_ok());
        if !pushed {
            return stored;
        }
    }
    let replies = conversation.open_calls().map(|call| ToolReply::error(call, NO_RESULT)).collect::<Vec<_>>();
    if replies.is_empty() {
        return stored;
    }
    stored.into_iter().chain([StoredMessage::of(&Message::tool(replies))]).collect()
}

/// The result of the calls of a turn that ended before all of them were approved.
const NO_RESULT: &str = "Error: this call has no result, because a call of the same turn was not approved";

#[cfg(test)]
mod tests {
    use super::*;

    fn record(response: &str, since_ms: u64) -> PendingApprovalRecord {
        PendingApprovalRecord {
            response: response.into(),
            run: "r".into(),
            tenant: "t".into(),
            subject: "s".into(),
            credential_id: "k".into(),
            since_ms,
            requests: Vec::new(),
            is_announced: false,
        }
    }

    #[test]
    fn approval_requests_of_an_earlier_process_expire_too() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let first = PendingApprovals::of(&home);
        first.add(record("resp_1", 1_000)).unwrap();
        first.add(record("resp_2", 5_000)).unwrap();
        let pending = PendingApprovals::of(&home);
        let lifetime = Duration::from_secs(2);
        let expired = |now_ms| pending.expired(now_ms, lifetime).into_iter().map(|record| record.response);
        assert_eq!(expired(3_000).count(), 0);
        assert_eq!(expired(3_001).collect::<Vec<_>>(), ["resp_1"]);
        assert_eq!(pending.next_expiry(2_000, lifetime), Duration::from_millis(1_001));
        assert_eq!(pending.stats(6_000).oldest_age, Duration::from_secs(5));
        pending.remove("resp_1");
        assert_eq!(PendingApprovals::of(&home).stats(6_000).oldest_age, Duration::from_secs(1));
    }

    #[test]
    fn restarted_server_announces_only_unannounced_approval_requests() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let first = PendingApprovals::of(&home);
        for (response, since_ms) in [("resp_1", 3_000), ("resp_2", 2_000), ("resp_3", 1_000)] {
            first.add(record(response, since_ms)).unwrap();
        }
        first.mark_announced("resp_2");
        first.remove("resp_3");
        first.mark_announced("resp_3");
        let next = PendingApprovals::of(&home);
        let open: Vec<String> = next.unannounced().into_iter().map(|record| record.response).collect();
        assert_eq!(open, ["resp_1"], "an answered request is not announced");
        assert_eq!(
            next.stats(3_000).oldest_age,
            Duration::from_secs(1),
            "announced requests still wait for an answer"
        );
    }
}
