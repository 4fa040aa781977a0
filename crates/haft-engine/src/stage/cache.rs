//! Cache: answers a call from an equal earlier call, or from an equal call in flight.

use std::time::Duration;

use haft_core::digest::CallKey;
use haft_core::output::ToolOutput;
use haft_core::result::ToolError;
use haft_core::tool::Effects;
use serde_json::Value;

use crate::cache::{Cache, CacheUse, Lead, Lookup};
use crate::record::CallRecord;
use crate::stage::Deadline;

/// The result of the cache stage.
#[derive(Debug)]
pub(crate) enum Cached {
    Hit(ToolOutput),
    Miss(Keeper),
}

/// Stores the provider's output if the call is cacheable.
#[derive(Debug)]
pub(crate) struct Keeper(Option<(Lead, Duration)>);

impl Keeper {
    /// Stores only a success, and only before the deadline: an output at the deadline may be partial.
    pub(crate) fn keep(self, outcome: &Result<ToolOutput, ToolError>, deadline: &Deadline<'_>) {
        if let (Some((lead, ttl)), Ok(output)) = (self.0, outcome)
            && !deadline.is_past()
        {
            lead.keep(output, ttl);
        }
    }
}

/// Returns the time to live of the output; `None` if this call does not use the cache.
///
/// A tool with known effects never uses the cache, regardless of its policy: a hit would silently skip the effect. An
/// operator who knows better overrides the tool's effects.
pub(crate) fn ttl(policy: Option<Duration>, effects: Effects, wish: CacheUse) -> Option<Duration> {
    match (wish, effects) {
        (CacheUse::Use, Effects::ReadOnly | Effects::Unknown) => policy,
        (CacheUse::Use, Effects::Idempotent | Effects::Mutating) | (CacheUse::Bypass, _) => None,
    }
}

pub(crate) async fn cache(
    record: &mut CallRecord,
    cache: &Cache,
    ttl: Option<Duration>,
    key: CallKey<'_>,
    deadline: &Deadline<'_>,
) -> Result<Cached, ToolError> {
    let Some(ttl) = ttl else { return Ok(Cached::Miss(Keeper(None))) };
    let looking = cache.look_up(key.digest());
    match deadline.wait(looking, "waiting for an equal call").await? {
        Lookup::Hit(output) => {
            record.note("cache", Value::from("hit"));
            Ok(Cached::Hit(output))
        }
        Lookup::Lead(lead) => Ok(Cached::Miss(Keeper(Some((lead, ttl))))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_is_never_answered_from_the_cache() {
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
