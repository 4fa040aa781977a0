//! Remembers requests whose connections were cut. The official clients retry such a request automatically, and the
//! tools of the first attempt must not run a second time.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haft_core::principal::Principal;
use http::HeaderMap;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::error::{ApiError, ApiErrorKind};

/// The header in which clients made with Stainless, such as those of OpenAI, count the retries of a request.
const RETRY_COUNT_HEADER: &str = "x-stainless-retry-count";

/// The time for which the server remembers a cut request. Clients wait at most one minute before a retry.
const REMEMBERED: Duration = Duration::from_mins(5);

/// The maximum number of remembered requests. The oldest one makes room for a new one.
const REQUESTS_MAX: usize = 10_000;

/// The maximum time for which a retry waits for the end of the first attempt. A cancelled run ends within a second.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The cut requests of the last minutes.
#[derive(Debug, Default)]
pub(crate) struct CutRequests(Mutex<VecDeque<CutRequest>>);

/// The values that are equal in a retry and in its first attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestIdentity {
    pub(crate) principal: Principal,
    /// The digest of the request body.
    pub(crate) digest: String,
}

#[derive(Debug)]
struct CutRequest {
    identity: RequestIdentity,
    response: String,
    cut_at: Instant,
    /// Whether a tool of the server had begun; `None` until the run has ended.
    tool_began: watch::Receiver<Option<bool>>,
}

/// The sender for the outcome of a cut request, which is known when its run has ended.
#[derive(Debug)]
pub(crate) struct CutOutcome(watch::Sender<Option<bool>>);

impl CutOutcome {
    pub(crate) fn set(self, tool_began: bool) {
        self.0.send_replace(Some(tool_began));
    }
}

impl CutRequests {
    /// Remembers a request whose connection was cut before its reply.
    pub(crate) fn add(&self, identity: RequestIdentity, response: String) -> CutOutcome {
        let (outcome, tool_began) = watch::channel(None);
        let mut requests = self.current();
        if requests.len() == REQUESTS_MAX {
            requests.pop_front();
        }
        requests.push_back(CutRequest { identity, response, cut_at: Instant::now(), tool_began });
        CutOutcome(outcome)
    }

    /// Refuses a retry if a tool of an earlier attempt had begun. Waits until this is known.
    pub(crate) async fn check_retry(&self, identity: &RequestIdentity) -> Result<(), ApiError> {
        for (response, mut tool_began) in self.attempts(identity) {
            let known = timeout(END_TIMEOUT, tool_began.wait_for(Option::is_some)).await;
            let is_harmless = matches!(known, Ok(Ok(tool_began)) if *tool_began == Some(false));
            if !is_harmless {
                return Err(refusal(&response));
            }
        }
        Ok(())
    }

    fn attempts(&self, identity: &RequestIdentity) -> Vec<(String, watch::Receiver<Option<bool>>)> {
        let requests = self.current();
        let attempts = requests.iter().filter(|request| request.identity == *identity);
        attempts.map(|request| (request.response.clone(), request.tool_began.clone())).collect()
    }

    /// Returns the requests after removing those that are too old.
    fn current(&self) -> MutexGuard<'_, VecDeque<CutRequest>> {
        let mut requests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while requests.front().is_some_and(|request| request.cut_at.elapsed() > REMEMBERED) {
            requests.pop_front();
        }
        requests
    }
}

fn refusal(response: &str) -> ApiError {
    let message = format!(
        "this is a retry of the request of response `{response}`, whose connection was cut after a tool had begun; \
         the server does not run the tool again. Read the response if it was stored, send the request again as a new \
         one, or send an `Idempotency-Key` with each request"
    );
    ApiError::new(ApiErrorKind::Conflict, message).with_code("retry_repeats_tools").not_retryable()
}

/// Returns the number of earlier attempts of the request; `None` if the client does not count them.
pub(crate) fn retry_count(headers: &HeaderMap) -> Option<u32> {
    headers.get(RETRY_COUNT_HEADER)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(subject: &str, digest: &str) -> RequestIdentity {
        let principal = Principal::new("t", subject, "key");
        RequestIdentity { principal, digest: digest.into() }
    }

    async fn is_refused(requests: &CutRequests, identity: &RequestIdentity) -> bool {
        requests.check_retry(identity).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn retry_is_refused_only_if_caller_and_body_are_equal_and_a_tool_had_begun() {
        let requests = CutRequests::default();
        requests.add(identity("ada", "with tool"), "resp_1".into()).set(true);
        requests.add(identity("ada", "without tool"), "resp_2".into()).set(false);
        let error = requests.check_retry(&identity("ada", "with tool")).await.unwrap_err();
        assert_eq!((error.code, error.should_retry), (Some("retry_repeats_tools"), Some(false)));
        assert!(error.message.contains("resp_1"), "{}", error.message);
        assert!(!is_refused(&requests, &identity("ada", "without tool")).await);
        assert!(!is_refused(&requests, &identity("ada", "other")).await);
        assert!(!is_refused(&requests, &identity("bob", "with tool")).await);
    }

    #[tokio::test(start_paused = true)]
    async fn retry_waits_for_the_end_of_the_first_attempt() {
        let requests = CutRequests::default();
        let (ends, hangs, lost) = (identity("a", "ends"), identity("a", "hangs"), identity("a", "lost"));
        let outcome = requests.add(ends.clone(), "resp_1".into());
        let ending = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            outcome.set(false);
        };
        assert!(!tokio::join!(is_refused(&requests, &ends), ending).0);
        let _outcome = requests.add(hangs.clone(), "resp_2".into());
        assert!(is_refused(&requests, &hangs).await, "the server cannot know whether a tool has begun");
        drop(requests.add(lost.clone(), "resp_3".into()));
        assert!(is_refused(&requests, &lost).await);
    }

    #[tokio::test(start_paused = true)]
    async fn cut_requests_are_forgotten_by_age_and_number() {
        let (requests, first) = (CutRequests::default(), identity("a", "first"));
        requests.add(first.clone(), "resp_1".into()).set(true);
        (1..REQUESTS_MAX)
            .for_each(|at| requests.add(identity("a", &at.to_string()), String::new()).set(true));
        assert!(is_refused(&requests, &first).await);
        requests.add(identity("a", "last"), String::new()).set(true);
        assert!(!is_refused(&requests, &first).await);
        assert!(is_refused(&requests, &identity("a", "last")).await);
        tokio::time::advance(REMEMBERED + Duration::from_secs(1)).await;
        assert!(!is_refused(&requests, &identity("a", "last")).await);
        assert!(requests.current().is_empty());
    }
}
