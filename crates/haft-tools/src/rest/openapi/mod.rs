//! The OpenAPI importer: converts `OpenAPI` 3 and Swagger 2.0 documents to tools.
//!
//! Start reading at [`import()`], a pure function over [`Documents`]; [`OpenApiSource`] reads the documents. An
//! operation that cannot become a tool is skipped with a reason, and the others are still imported.

mod body;
mod description;
mod document;
mod documents;
mod download;
mod filter;
mod import;
mod names;
mod operation;
mod parameters;
mod schema;
mod security;
mod servers;
mod source;
mod swagger2;

pub use document::{DOCUMENT_BYTES_MAX, DocumentError};
pub use documents::Documents;
pub use download::OpenApiDownload;
pub use filter::OperationFilter;
pub use haft_core::settings::rest::DeprecatedOperations;
pub use import::{ImportError, ImportResult, ImportSettings, SkippedOperation, import};
pub use security::SchemeCredentials;
pub use source::{OpenApiSource, SourceError};

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
