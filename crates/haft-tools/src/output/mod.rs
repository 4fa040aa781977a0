//! Outputs too large to carry along: kept in a store, and asked about without reading them whole.
//!
//! Start reading at [`Extract`]: what can be asked. [`FileStore`] keeps outputs; the asking is done inside the
//! confined worker ([`serve`]), because a filter that a model wrote may never end.

mod extract;
mod file_store;
mod tool;
mod worker;

pub use extract::{Extract, ExtractError};
pub use file_store::{FileStore, StoreLimits};
pub use tool::OutputTools;
pub use worker::{EXTRACT_WORKER, ask, serve};
