//! Queries about large tool outputs. haft keeps such outputs in a store, so that a model need not read them as a whole.
//!
//! Start reading at [`OutputQuery`], the queries. They run inside the confined worker ([`serve`]), because a jq filter
//! that a model wrote may never end.

mod answer;
mod extract;
mod reader;
mod tool;
mod worker;

pub use extract::{ExtractError, OutputQuery, PAGE_BYTES_MAX, about_binary};
pub use haft_core::settings::outputs::{OutputReadSettings, StoreLimits};
pub use reader::{FreeQuestion, OutputReader, ReadStrategy};
pub use tool::{OUTPUT_TOOL, OutputTools};
pub use worker::{EXTRACT_WORKER, ask, serve};
