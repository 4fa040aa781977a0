//! The limits of keys: requests and tokens per minute, concurrent responses, and cost per month.
//!
//! The counters are in memory, except for the cost. After a restart of the server, all allowances are full, which they
//! would also be after a minute.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use haft_core::event::{Event, EventSink};
use haft_core::home::Home;
use haft_core::principal::Principal;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_store::api_keys::KeyLimits;
use haft_store::spending::{MissingSum, SpendingStore};
use http::{HeaderMap, HeaderValue, Method};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::auth::Caller;
use crate::error::{ApiError, ApiErrorKind};
use crate::key_spending::KeySpending;
use crate::server::ServerState;
use crate::settings::AuthMode;
use crate::storage_limits::RETRY_AFTER_S;
use crate::store_errors::StoreErrors;

/// The maximum number of keys whose counters are kept. When it is reached, the counters of keys without a response in
/// progress are reset.
const KEYS_MAX: usize = 10_000;

/// The `Retry-After` time for a key that has its maximum number of responses in progress. It is a guess, because the
/// end of a response cannot be predicted.
const RETRY_AFTER_RESPONSE: Duration = Duration::from_secs(5);

/// The number of parts into which a request or token is divided: one for each millisecond of a minute. A limit of one
/// per minute then refills by one part each millisecond.
const PARTS: i128 = 60_000;

tokio::task_local! {
    /// The slot for concurrent responses of the request that this task handles. The response that the handler starts
    /// takes over the slot.
    static REQUEST_SLOT: RefCell<Option<ResponseSlot>>;
}

/// Runs a handler. A response that the handler starts can take the slot.
async fn with_slot<T>(slot: Option<ResponseSlot>, handler: impl Future<Output = T>) -> T {
    REQUEST_SLOT.scope(RefCell::new(slot), handler).await
}

/// Prepares work for another task, which takes over the slot of the request that this task handles.
pub(crate) fn with_slot_of_request<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    with_slot(take_slot(), work)
}

/// Takes the slot of the request that this task handles; `None` if its key has no limit on concurrent responses.
pub(crate) fn take_slot() -> Option<ResponseSlot> {
    REQUEST_SLOT.try_with(|slot| slot.borrow_mut().take()).ok().flatten()
}

/// Counts a request against the limits of its key, or refuses it.
pub(crate) async fn check<F: Future<Output = Response>>(
    state: &ServerState,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let Some(caller) = request.extensions().get::<Caller>() else { return next(request).await };
    let decision = decide(state, caller, RequestKind::of(&request));
    let mut response = match decision.outcome {
        Ok(slot) => with_slot(slot, next(request)).await,
        Err(by) => by.error().into_response(),
    };
    add_headers(response.headers_mut(), &decision.state);
    response
}

/// Counts a WebSocket message that starts a response against the limits of its key, and starts the response. A refusal
/// has the headers that an HTTP reply would have.
pub(crate) async fn start_counted<T>(
    state: &ServerState,
    caller: &Caller,
    start: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, (ApiError, Box<HeaderMap>)> {
    let decision = decide(state, caller, RequestKind::StartsResponse);
    let mut headers = Box::<HeaderMap>::default();
    add_headers(&mut headers, &decision.state);
    match decision.outcome {
        Ok(slot) => with_slot(slot, start).await.map_err(|error| (error, Box::default())),
        Err(by) => Err((by.error(), headers)),
    }
}

/// Counts a run that starts within a request that [`check`] has counted, such as the run of an agent that an MCP client
/// calls. Applies the limits on tokens, cost and concurrent responses.
pub(crate) fn admit_run(state: &ServerState, owner: &Principal) -> Result<Option<ResponseSlot>, ToolError> {
    match state.settings.auth {
        AuthMode::Keys => {}
        AuthMode::NoAuth => return Ok(None),
    }
    let admitted = state.limits.admit_run(owner.credential_id(), (&Timestamp::now(), Instant::now()));
    admitted.map_err(|by| {
        state.metrics.refused(by.name());
        by.tool_error()
    })
}

/// Counts a response of an earlier process that this process must continue. It cannot be refused, because the server has
/// accepted it.
pub(crate) fn count_continued(state: &ServerState, owner: &Principal) -> Option<ResponseSlot> {
    match state.settings.auth {
        AuthMode::Keys => Some(state.limits.count_continued(owner.credential_id(), Instant::now())),
        AuthMode::NoAuth => None,
    }
}

/// Counts a request against all limits of the caller.
fn decide(state: &ServerState, caller: &Caller, kind: RequestKind) -> RateDecision {
    match state.settings.auth {
        AuthMode::Keys => {}
        AuthMode::NoAuth => return RateDecision { state: Vec::new(), outcome: Ok(None) },
    }
    let key = caller.principal.credential_id();
    let refused = match kind {
        RequestKind::StartsResponse => state.limits.refused_by_cost(key, caller.limits, &Timestamp::now()),
        RequestKind::Other => None,
    };
    let decision = match refused {
        Some(by) => RateDecision { state: Vec::new(), outcome: Err(by) },
        None => state.limits.admit(key, caller.limits, kind, Instant::now()),
    };
    if let Err(by) = &decision.outcome {
        state.metrics.refused(by.name());
    }
    decision
}

/// The counters of all keys. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct RateLimits {
    usage: Arc<Mutex<HashMap<String, KeyUsage>>>,
    /// The costs; `None` only in tests that have no costs.
    spending: Option<Arc<KeySpending>>,
}

#[derive(Debug)]
struct KeyUsage {
    /// The limits of the key at its last request.
    limits: KeyLimits,
    requests: Allowance,
    tokens: Allowance,
    responses: u32,
}

/// An amount that refills evenly over one minute. It can be negative, because the tokens of a response are charged when
/// the response ends.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    /// The amount, in units of 1/[`PARTS`] of a request or token.
    left: i128,
    at: Instant,
}

/// The kinds of requests, which have different rate limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    /// The request starts a response, so the limits on tokens and concurrent responses apply too.
    StartsResponse,
    Other,
}

impl RequestKind {
    fn of(request: &Request) -> Self {
        // The path is relative to `/v1` or `/api/v1`. A compaction also starts a model request.
        let path = request.uri().path().trim_end_matches('/');
        let starts = request.method() == Method::POST
            && (["/responses", "/responses/compact", "/runs"].contains(&path)
                || path.starts_with("/approvals/"));
        if starts { Self::StartsResponse } else { Self::Other }
    }
}

/// The decision about a request.
#[derive(Debug)]
struct RateDecision {
    /// The states of the limits after the request, for the headers of the reply.
    state: Vec<(LimitHeaders, LimitState)>,
    outcome: Result<Option<ResponseSlot>, RefusedBy>,
}

/// The limit that a refused request would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefusedBy {
    Requests {
        retry_after: Duration,
    },
    Tokens {
        retry_after: Duration,
    },
    Responses,
    Cost {
        retry_after: Duration,
    },
    /// The store cannot read the cost so far.
    CostUnknown,
    /// The server has removed the counters of the key to make room for other keys.
    CountersRemoved,
}

/// The headers of one limit.
#[derive(Debug, Clone, Copy)]
struct LimitHeaders {
    limit: &'static str,
    remaining: &'static str,
    reset: &'static str,
}

const REQUESTS: LimitHeaders = LimitHeaders {
    limit: "x-ratelimit-limit-requests",
    remaining: "x-ratelimit-remaining-requests",
    reset: "x-ratelimit-reset-requests",
};

const TOKENS: LimitHeaders = LimitHeaders {
    limit: "x-ratelimit-limit-tokens",
    remaining: "x-ratelimit-remaining-tokens",
    reset: "x-ratelimit-reset-tokens",
};

/// The state of one limit after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LimitState {
    limit: u64,
    remaining: u64,
    /// The time until the allowance is full.
    reset: Duration,
}

/// Counts a response in progress until it is dropped.
#[derive(Debug)]
pub(crate) struct ResponseSlot {
    limits: RateLimits,
    key: String,
}

impl RateLimits {
    pub(crate) fn of(home: &Home, errors: Arc<StoreErrors>) -> Self {
        let spending = KeySpending::new(SpendingStore::of(home), errors);
        Self { usage: Arc::default(), spending: Some(Arc::new(spending)) }
    }

    /// Returns the refusal if the key has reached its cost limit. The last response may exceed the limit, because its
    /// cost is known only when it ends.
    fn refused_by_cost(&self, key: &str, limits: KeyLimits, now: &Timestamp) -> Option<RefusedBy> {
        let (limit, spending) = limits.nano_usd_per_month.zip(self.spending.as_ref())?;
        match spending.spent(key, &month_of(now)) {
            Ok(spent) if spent < limit => None,
            Ok(_) => Some(RefusedBy::Cost { retry_after: until_next_month(now) }),
            Err(_) => Some(RefusedBy::CostUnknown),
        }
    }

    /// Counts a request of a key, or refuses it.
    fn admit(&self, key: &str, limits: KeyLimits, kind: RequestKind, now: Instant) -> RateDecision {
        let mut keys = self.keys();
        make_room(&mut keys, key);
        let usage = keys.entry(key.to_owned()).or_insert_with(|| KeyUsage::full(limits, now));
        let admitted = usage.admit(limits, kind, now);
        let state = usage.state(limits);
        let outcome = admitted.map(|()| match kind {
            RequestKind::StartsResponse => self.slot(usage, key),
            RequestKind::Other => None,
        });
        RateDecision { state, outcome }
    }

    /// Counts a run of a key whose request is already counted, or refuses the run.
    fn admit_run(
        &self,
        key: &str,
        (now, clock): (&Timestamp, Instant),
    ) -> Result<Option<ResponseSlot>, RefusedBy> {
        let limits = self.keys().get(key).map(|usage| usage.limits).ok_or(RefusedBy::CountersRemoved)?;
        if let Some(by) = self.refused_by_cost(key, limits, now) {
            return Err(by);
        }
        let mut keys = self.keys();
        let usage = keys.get_mut(key).ok_or(RefusedBy::CountersRemoved)?;
        usage.refill(limits, clock);
        usage.admit_response(limits)?;
        Ok(self.slot(usage, key))
    }

    /// Counts a response in progress. The limits of the key are not known yet; its next request sets them.
    fn count_continued(&self, key: &str, now: Instant) -> ResponseSlot {
        let mut keys = self.keys();
        let full = || KeyUsage::full(KeyLimits::default(), now);
        keys.entry(key.to_owned()).or_insert_with(full).responses += 1;
        ResponseSlot { limits: self.clone(), key: key.to_owned() }
    }

    /// Counts a response in progress, if the key has a limit on them.
    fn slot(&self, usage: &mut KeyUsage, key: &str) -> Option<ResponseSlot> {
        usage.limits.concurrent_responses?;
        usage.responses += 1;
        Some(ResponseSlot { limits: self.clone(), key: key.to_owned() })
    }

    fn charge(&self, key: &str, tokens: u64) {
        if let Some(usage) = self.keys().get_mut(key) {
            usage.tokens.left -= i128::from(tokens) * PARTS;
        }
    }

    /// Returns what happens to a cost if no sum is stored for the key. For a key with a cost limit, the store creates
    /// the sum: such a key may never have started a response, for example if it only calls tools through `/mcp`.
    fn missing_sum(&self, key: &str) -> MissingSum {
        let limit = self.keys().get(key).and_then(|usage| usage.limits.nano_usd_per_month);
        limit.map_or(MissingSum::Ignored, |_| MissingSum::Created)
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<String, KeyUsage>> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Charges the tokens and the cost of each model request to the key of its run.
impl EventSink for RateLimits {
    fn emit(&self, event: Event) {
        let Event::ModelFinished { principal, account, .. } = event else { return };
        let key = principal.credential_id();
        if let Some(usage) = account.usage {
            self.charge(key, usage.input.saturating_add(usage.output));
        }
        if let Some((spending, cost)) = self.spending.as_ref().zip(account.cost)
            && !key.is_empty()
        {
            let missing = self.missing_sum(key);
            spending.charge(key, &month_of(&Timestamp::now()), cost.nano_usd, missing);
        }
    }
}

/// Returns the month in UTC, such as `2026-11`.
fn month_of(now: &Timestamp) -> String {
    now.to_zoned(TimeZone::UTC).strftime("%Y-%m").to_string()
}

fn until_next_month(now: &Timestamp) -> Duration {
    let today = now.to_zoned(TimeZone::UTC);
    let next = today.last_of_month().and_then(|last| last.tomorrow()).and_then(|next| next.start_of_day());
    let left = next.map(|next| next.timestamp().duration_since(*now)).unwrap_or_default();
    Duration::try_from(left).unwrap_or_default()
}

fn make_room(keys: &mut HashMap<String, KeyUsage>, key: &str) {
    if keys.len() >= KEYS_MAX && !keys.contains_key(key) {
        keys.retain(|_, usage| usage.responses > 0);
    }
}

impl KeyUsage {
    fn full(limits: KeyLimits, now: Instant) -> Self {
        let full = |limit: Option<u64>| Allowance { left: parts(limit), at: now };
        Self {
            limits,
            requests: full(limits.requests_per_minute.map(u64::from)),
            tokens: full(limits.tokens_per_minute),
            responses: 0,
        }
    }

    fn admit(&mut self, limits: KeyLimits, kind: RequestKind, now: Instant) -> Result<(), RefusedBy> {
        self.refill(limits, now);
        let requests = limits.requests_per_minute.map(u64::from);
        if let Some(retry_after) = self.requests.wait_for(PARTS, requests) {
            return Err(RefusedBy::Requests { retry_after });
        }
        match kind {
            RequestKind::StartsResponse => self.admit_response(limits)?,
            RequestKind::Other => {}
        }
        self.requests.left -= PARTS;
        Ok(())
    }

    fn refill(&mut self, limits: KeyLimits, now: Instant) {
        self.limits = limits;
        self.requests.refill(limits.requests_per_minute.map(u64::from), now);
        self.tokens.refill(limits.tokens_per_minute, now);
    }

    fn admit_response(&self, limits: KeyLimits) -> Result<(), RefusedBy> {
        // A positive remainder permits one more response, because its tokens are not known yet.
        if let Some(retry_after) = self.tokens.wait_for(1, limits.tokens_per_minute) {
            return Err(RefusedBy::Tokens { retry_after });
        }
        if limits.concurrent_responses.is_some_and(|max| self.responses >= max) {
            return Err(RefusedBy::Responses);
        }
        Ok(())
    }

    fn state(&self, limits: KeyLimits) -> Vec<(LimitHeaders, LimitState)> {
        let rows = [
            (REQUESTS, self.requests, limits.requests_per_minute.map(u64::from)),
            (TOKENS, self.tokens, limits.tokens_per_minute),
        ];
        rows.into_iter().filter_map(|(name, of, limit)| Some((name, of.state(limit?)))).collect()
    }
}

impl Allowance {
    fn refill(&mut self, limit: Option<u64>, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        let refilled = i128::from(passed).saturating_mul(i128::from(limit.unwrap_or(0)));
        self.left = self.left.saturating_add(refilled).min(parts(limit));
        // Advance by whole milliseconds only, and keep the remainder for the next request. Otherwise the allowance of a
        // client that sends many requests would never refill.
        self.at += Duration::from_millis(passed);
    }

    /// Returns the time until the allowance has this many parts; `None` if it has them already or there is no limit.
    fn wait_for(&self, amount: i128, limit: Option<u64>) -> Option<Duration> {
        let limit = limit?;
        (amount > self.left).then(|| refill_time(amount - self.left, limit))
    }

    fn state(&self, limit: u64) -> LimitState {
        let missing = (parts(Some(limit)) - self.left).max(0);
        LimitState {
            limit,
            remaining: u64::try_from(self.left / PARTS).unwrap_or(0),
            reset: refill_time(missing, limit),
        }
    }
}

fn parts(limit: Option<u64>) -> i128 {
    i128::from(limit.unwrap_or(0)) * PARTS
}

/// Returns the time until `missing` parts ([`PARTS`] per request or token) are refilled, rounded up. It is at most
/// 24 hours, even for a limit of 0, which never refills.
fn refill_time(missing: i128, limit: u64) -> Duration {
    const LONGEST: Duration = Duration::from_hours(24);
    let millis =
        missing.checked_add(i128::from(limit) - 1).and_then(|sum| sum.checked_div(i128::from(limit)));
    let millis = millis.and_then(|millis| u64::try_from(millis).ok());
    millis.map_or(LONGEST, |millis| Duration::from_millis(millis).min(LONGEST))
}

impl Drop for ResponseSlot {
    fn drop(&mut self) {
        if let Some(usage) = self.limits.keys().get_mut(&self.key) {
            usage.responses = usage.responses.saturating_sub(1);
        }
    }
}

impl RefusedBy {
    /// The label of the metric.
    fn name(self) -> &'static str {
        match self {
            Self::Requests { .. } => "requests",
            Self::Tokens { .. } => "tokens",
            Self::Responses => "responses",
            Self::Cost { .. } | Self::CostUnknown => "cost",
            Self::CountersRemoved => "counters",
        }
    }

    /// Returns the error for an MCP client, which gets no headers, so the message contains the time to wait.
    fn tool_error(self) -> ToolError {
        let kind = match self {
            Self::Requests { .. } | Self::Tokens { .. } | Self::Responses | Self::Cost { .. } => {
                ToolErrorKind::LimitExceeded
            }
            Self::CostUnknown | Self::CountersRemoved => ToolErrorKind::Unavailable,
        };
        let ApiError { message, retry_after_s, .. } = self.error();
        let wait = retry_after_s.map(|seconds| format!("; try again in {seconds} s")).unwrap_or_default();
        ToolError::new(kind, format!("{message}{wait}"))
    }

    fn error(self) -> ApiError {
        let (message, retry_after) = match self {
            Self::Requests { retry_after } => {
                ("this key has reached its limit of requests per minute", retry_after)
            }
            Self::Tokens { retry_after } => {
                ("this key has reached its limit of tokens per minute", retry_after)
            }
            Self::Responses => {
                ("this key has reached its limit of concurrent responses", RETRY_AFTER_RESPONSE)
            }
            Self::Cost { retry_after } => {
                // Tell the client not to retry, because every retry in this month would be refused.
                let error = ApiError::new(
                    ApiErrorKind::TooManyRequests,
                    "this key has reached its cost limit for this month; the operator can raise the limit",
                );
                return error
                    .with_code("insufficient_quota")
                    .not_retryable()
                    .after(whole_seconds(retry_after));
            }
            Self::CostUnknown => {
                let message = "the server cannot read how much this API key has spent, so it cannot check the cost limit; report this to the \
                     operator of the server";
                return ApiError::new(ApiErrorKind::Unavailable, message).after(RETRY_AFTER_S);
            }
            Self::CountersRemoved => {
                let message = "the server cannot check the limits of this key, because it removed the counters of the key to make room \
                     for other keys; send the request again";
                return ApiError::new(ApiErrorKind::Unavailable, message).after(1);
            }
        };
        let error = ApiError::new(ApiErrorKind::TooManyRequests, message).with_code("rate_limit_exceeded");
        error.after(whole_seconds(retry_after))
    }
}

/// Returns the seconds, rounded up, so that a client that waits this long is not refused again.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// Adds rate-limit headers with the names that OpenAI's API uses.
fn add_headers(headers: &mut HeaderMap, state: &[(LimitHeaders, LimitState)]) {
    for (names, LimitState { limit, remaining, reset }) in state {
        headers.insert(names.limit, HeaderValue::from(*limit));
        headers.insert(names.remaining, HeaderValue::from(*remaining));
        if let Ok(value) = HeaderValue::from_str(&format!("{}s", whole_seconds(*reset))) {
            headers.insert(names.reset, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::operator_log::OperatorLog;

    const LIMITS: KeyLimits = KeyLimits {
        requests_per_minute: Some(3),
        tokens_per_minute: Some(600),
        concurrent_responses: Some(2),
        nano_usd_per_month: None,
    };

    fn refused(decision: &RateDecision) -> Option<RefusedBy> {
        decision.outcome.as_ref().err().copied()
    }

    #[test]
    fn request_allowance_refills_evenly_within_a_minute() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let at =
            |seconds| limits.admit("k", LIMITS, RequestKind::Other, start + Duration::from_secs(seconds));
        for remaining in [2, 1, 0] {
            assert_eq!(at(0).state[0].1.remaining, remaining);
        }
        let retry_after = Duration::from_secs(20);
        assert_eq!(refused(&at(0)), Some(RefusedBy::Requests { retry_after }));
        assert!(refused(&at(19)).is_some());
        assert_eq!(refused(&at(20)), None);
        assert_eq!(refused(&limits.admit("other", LIMITS, RequestKind::Other, start)), None);
        assert_eq!(at(10_000).state[0].1.remaining, 2, "the allowance does not grow beyond its limit");
    }

    #[test]
    fn token_limit_counts_ended_responses_and_refuses_only_new_ones() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let at = |kind, seconds| limits.admit("k", LIMITS, kind, start + Duration::from_secs(seconds));
        assert_eq!(refused(&at(RequestKind::StartsResponse, 0)), None);
        limits.charge("k", 1_200);
        let decision = at(RequestKind::StartsResponse, 0);
        assert_eq!(
            refused(&decision),
            Some(RefusedBy::Tokens { retry_after: Duration::from_millis(60_001) })
        );
        assert_eq!((decision.state[1].1.remaining, decision.state[1].1.limit), (0, 600));
        assert_eq!(refused(&at(RequestKind::Other, 0)), None);
        assert_eq!(refused(&at(RequestKind::StartsResponse, 61)), None);
    }

    #[test]
    fn ended_response_frees_its_slot() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let unlimited = KeyLimits { requests_per_minute: None, ..LIMITS };
        let admit = || limits.admit("k", unlimited, RequestKind::StartsResponse, start);
        let (one, two) = (admit(), admit());
        assert_eq!(refused(&admit()), Some(RefusedBy::Responses));
        drop(one);
        let three = admit();
        assert_eq!(refused(&three), None);
        assert_eq!(refused(&admit()), Some(RefusedBy::Responses));
        drop((two, three));
        assert_eq!(limits.keys()["k"].responses, 0);
    }

    #[test]
    fn run_of_a_counted_request_counts_towards_all_limits_but_the_request_limit() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let run = || limits.admit_run("k", (&Timestamp::UNIX_EPOCH, start)).map_err(RefusedBy::name);
        assert_eq!(run().err(), Some("counters"), "the limits of an unknown key are not known");
        let one_request = KeyLimits { requests_per_minute: Some(1), ..LIMITS };
        assert_eq!(refused(&limits.admit("k", one_request, RequestKind::Other, start)), None);
        let (one, two) = (run().unwrap(), run().unwrap());
        assert!(one.is_some() && two.is_some());
        assert_eq!(run().err(), Some("responses"));
        drop((one, two));
        assert!(run().is_ok());
        limits.charge("k", 600);
        assert_eq!(run().err(), Some("tokens"));
        let error = RefusedBy::Tokens { retry_after: Duration::from_millis(1_001) }.tool_error();
        assert!(error.message.ends_with("tokens per minute; try again in 2 s"), "{error}");
    }

    #[test]
    fn key_is_refused_if_its_monthly_cost_is_at_the_limit_or_unreadable() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let errors = Arc::new(StoreErrors::new(Metrics::default(), OperatorLog::default()));
        let limits = RateLimits::of(&home, errors);
        let now: Timestamp = "2026-11-30T23:59:00Z".parse().unwrap();
        let capped = KeyLimits { nano_usd_per_month: Some(10), ..KeyLimits::default() };
        let refused = |at: &Timestamp| limits.refused_by_cost("key_1", capped, at);
        assert_eq!(refused(&now), None);
        limits.spending.as_ref().unwrap().charge("key_1", "2026-11", 10, MissingSum::Created);
        assert_eq!(refused(&now), Some(RefusedBy::Cost { retry_after: Duration::from_mins(1) }));
        assert_eq!(refused(&"2026-12-01T00:00:00Z".parse().unwrap()), None);
        std::fs::write(home.data().join("spending/key_1.json"), "?").unwrap();
        assert_eq!(refused(&now), Some(RefusedBy::CostUnknown));
        assert_eq!(limits.refused_by_cost("key_2", KeyLimits::default(), &now), None);
        let error = RefusedBy::Cost { retry_after: Duration::from_mins(1) }.error();
        assert_eq!((error.code, error.should_retry), (Some("insufficient_quota"), Some(false)));
        let unknown = RefusedBy::CostUnknown.error();
        assert_eq!((unknown.kind, unknown.retry_after_s), (ApiErrorKind::Unavailable, Some(RETRY_AFTER_S)));
    }

    #[test]
    fn key_without_limits_is_never_refused() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        for _ in 0..1_000 {
            let decision = limits.admit("k", KeyLimits::default(), RequestKind::StartsResponse, start);
            assert!(decision.outcome.is_ok_and(|slot| slot.is_none()) && decision.state.is_empty());
        }
    }

    #[test]
    fn retry_after_is_rounded_up() {
        let error = RefusedBy::Requests { retry_after: Duration::from_millis(1_001) }.error();
        assert_eq!((error.retry_after_s, error.kind), (Some(2), ApiErrorKind::TooManyRequests));
        let never = KeyLimits { requests_per_minute: Some(0), ..KeyLimits::default() };
        let decision = RateLimits::default().admit("k", never, RequestKind::Other, Instant::now());
        assert_eq!(refused(&decision).map(|by| by.error().retry_after_s), Some(Some(86_400)));
    }
}
