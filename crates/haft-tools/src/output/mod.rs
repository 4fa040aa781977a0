//! Large outputs: kept in a store, so that a model can query them without reading them whole.
//!
//! Start reading at [`Question`], the queries. They run inside the confined worker ([`serve`]), because a jq filter
//! that a model wrote may never end.

mod answer;
mod extract;
mod reader;
mod tool;
mod worker;

pub use extract::{ExtractError, PAGE_BYTES_MAX, Question, about_binary};
pub use haft_core::settings::outputs::{Reading, StoreLimits};
pub use reader::{FreeQuestion, OutputReader, Strategy};
pub use tool::{OUTPUT_TOOL, OutputTools};
pub use worker::{EXTRACT_WORKER, ask, serve};
