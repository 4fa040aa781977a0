//! The stages of a call, one file each. Their order stands in the orchestrator.

mod admit;
mod call;
mod fit;
mod parse;
mod resolve;
mod timeout;
mod validate;

pub(crate) use admit::admit;
pub(crate) use call::call;
pub(crate) use fit::fit;
pub(crate) use parse::parse;
pub(crate) use resolve::resolve;
pub(crate) use timeout::Deadline;
pub(crate) use validate::validate;
