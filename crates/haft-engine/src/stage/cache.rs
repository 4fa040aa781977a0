//! Cache: answers a call with the output of an equal earlier call, made by this or another process, or of an equal call
//! in flight.

use std::time::Duration;

use haft_core::cache_store::CacheLease;
use haft_core::digest::{CallKey, Digest};
use haft_core::output::ToolOutput;
use haft_core::result::ToolError;
use haft_core::tool::Effects;
use serde_json::Value;

use crate::cache::{Cache, CacheLookup, CacheUse, FlightLeader, NeededForm, StoreLookup, StoreSlot};
use crate::call_record::CallRecord;
use crate::stage::Deadline;

/// The result of the cache stage.
#[derive(Debug)]
pub(crate) enum CacheStageResult {
    Hit(ToolOutput),
    Miss(CacheWriter),
}

/// Stores the provider's output if the call is cacheable.
#[derive(Debug)]
pub(crate) struct CacheWriter(Option<CacheableCall>);

#[derive(Debug)]
struct CacheableCall {
    lead: FlightLeader,
    ttl: Duration,
    /// The store slot for the output and the lease for the call; `None` if the output is cached only in memory.
    slot: Option<(StoreSlot, CacheLease)>,
}

impl CacheWriter {
    /// Stores only a successful output, and only before the deadline, because an output at the deadline may be partial.
    /// Equal waiting calls get the output first, then it is written to the store.
    pub(crate) async fn keep(self, outcome: &Result<ToolOutput, ToolError>, deadline: &Deadline<'_>) {
        let (Some(call), Ok(output)) = (self.0, outcome) else { return };
        if deadline.is_past() {
            return;
        }
        call.lead.keep(output, call.ttl);
        if let Some((slot, lease)) = call.slot {
            // The future is boxed, because otherwise it would enlarge the future of every call.
            Box::pin(slot.write(output, deadline.left())).await;
            // Other processes that wait for the call can now find its output.
            drop(lease);
        }
    }
}

/// Returns the time to live of the output, or `None` if this call does not use the cache.
///
/// A tool that is known to change something never uses the cache, regardless of its policy: a hit would silently skip
/// the effect. If the declared effects are wrong, the operator can override them.
pub(crate) fn ttl(policy: Option<Duration>, effects: Effects, wish: CacheUse) -> Option<Duration> {
    match (wish, effects) {
        (CacheUse::Use, Effects::ReadOnly | Effects::Unknown) => policy,
        (CacheUse::Use, Effects::Idempotent | Effects::Mutating) | (CacheUse::Bypass, _) => None,
    }
}

/// Looks for the output in the memory cache, then in the store. `source` is the digest of the tool's source; without
/// it, only the memory cache is used.
pub(crate) async fn cache(
    record: &mut CallRecord,
    cache: &Cache,
    (ttl, form): (Option<Duration>, NeededForm),
    (key, source): (CallKey<'_>, impl FnOnce() -> Option<Digest>),
    deadline: &Deadline<'_>,
) -> Result<CacheStageResult, ToolError> {
    let Some(ttl) = ttl else { return Ok(CacheStageResult::Miss(CacheWriter(None))) };
    let call = key.digest();
    let lead = match deadline.wait(cache.look_up(call, form), "waiting for an identical call").await? {
        CacheLookup::Hit(output) => return Ok(hit(record, output)),
        CacheLookup::Lead(lead) => lead,
    };
    let slot = cache.slot(key.principal.tenant(), call, ttl, source);
    let Some(slot) = slot else {
        let call = CacheableCall { lead, ttl, slot: None };
        return Ok(CacheStageResult::Miss(CacheWriter(Some(call))));
    };
    match Box::pin(slot.look_up(form, deadline.left())).await {
        StoreLookup::Hit((output, left)) => {
            lead.keep(&output, left);
            Ok(hit(record, output))
        }
        StoreLookup::Lead(lease) => {
            let call = CacheableCall { lead, ttl, slot: Some((slot, lease)) };
            Ok(CacheStageResult::Miss(CacheWriter(Some(call))))
        }
    }
}

fn hit(record: &mut CallRecord, output: ToolOutput) -> CacheStageResult {
    record.note("cache", Value::from("hit"));
    CacheStageResult::Hit(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutating_and_idempotent_calls_are_never_cached() {
        let minute = Some(Duration::from_mins(1));
        let check = |effects: Effects, wish: CacheUse, expected: Option<Duration>| {
            assert_eq!(ttl(minute, effects, wish), expected, "{effects:?} {wish:?}");
            assert_eq!(ttl(None, effects, wish), None);
        };
        check(Effects::ReadOnly, CacheUse::Use, minute);
        check(Effects::Unknown, CacheUse::Use, minute);
        check(Effects::Idempotent, CacheUse::Use, None);
        check(Effects::Mutating, CacheUse::Use, None);
        check(Effects::ReadOnly, CacheUse::Bypass, None);
    }
}
