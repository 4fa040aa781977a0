//! All data that haft stores between processes, in files below `data`: sessions, usage records, grants, outputs, cached
//! outputs, and the data of `haft serve`.
//!
//! Start reading at [`sessions`], whose journal lets a run continue after a crash. This crate depends on the types of
//! `haft-core`, but not on models, tools or configuration files.

pub mod access_log;
pub mod accounting;
pub mod api_keys;
pub mod approvals_import;
pub mod archive;
pub mod audit_log;
pub mod backup;
pub mod blobs;
pub mod cache;
pub mod call_journal;
pub mod conversations;
pub mod events;
pub mod grants;
pub mod idempotency;
pub mod journals;
mod lock_file;
mod log_slots;
pub mod mcp_tokens;
pub mod outputs;
mod owned_records;
pub mod pending_approvals;
pub mod principal_data;
pub mod responses;
pub mod retention;
pub mod seal_keys;
pub mod server_caches;
pub mod sessions;
pub mod spending;
pub mod sweep;
pub mod tenant;
pub mod tool_pins;
pub mod tool_switches;
mod tree;
pub mod used_approvals;
pub mod workspaces;
