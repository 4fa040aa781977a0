//! The importer: from the description of an API to tools.
//!
//! Start reading at [`import()`], a pure function over [`Documents`]; [`Source`] is what reads them. One operation that cannot
//! become a tool is skipped with its reason, the others stay.

mod body;
mod description;
mod document;
mod documents;
mod filter;
mod import;
mod names;
mod operation;
mod parameters;
mod reading;
mod schema;
mod security;
mod servers;
mod source;
mod swagger2;

pub use document::{DOCUMENT_BYTES_MAX, DocumentError};
pub use documents::Documents;
pub use filter::Filter;
pub use haft_core::settings::rest::Deprecated;
pub use import::{ImportError, Imported, Settings, Skipped, import};
pub use reading::Reading;
pub use security::Login;
pub use source::{Source, SourceError};

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
