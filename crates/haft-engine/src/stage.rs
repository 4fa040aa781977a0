//! The stages of a call, one file each. The orchestrator defines their order.

mod admit;
mod approve;
mod authorize;
mod cache;
mod call;
mod caller_approval;
mod check_output;
mod confirm;
mod fit;
mod idle;
mod journal;
mod parse;
mod queue;
mod resolve;
mod timeout;
mod untrusted;
mod validate;

pub(crate) use admit::admit;
pub(crate) use approve::{approve, asked_call, binding, covering_grants};
pub(crate) use authorize::{authorize, ruling};
pub(crate) use cache::{CacheStageResult, cache, ttl};
pub(crate) use call::call;
pub(crate) use caller_approval::caller_approval;
pub(crate) use check_output::check_output;
pub(crate) use confirm::confirm;
pub use fit::ANSWER_TOKENS_MIN;
pub(crate) use fit::{FitResources, fit, reserve, settle};
pub(crate) use idle::IdleWatch;
pub(crate) use journal::journal;
pub(crate) use parse::parse;
pub(crate) use queue::{queue, queue_of};
pub(crate) use resolve::resolve;
pub(crate) use timeout::Deadline;
pub(crate) use untrusted::{after_untrusted, delimit, note_untrusted};
pub use untrusted::{delimited_text, without_delimiters};
pub(crate) use validate::{SchemaCheckSettings, validate};
