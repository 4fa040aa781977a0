//! The JSON schema for the answer, and the check of the answer against it.

use std::path::Path;
use std::sync::Arc;

use haft_core::model_reply::ModelReply;
use haft_core::model_request::OutputShape;
use haft_core::validate::{SCHEMA_BYTES_MAX, Schema};
use serde_json::Value;

use crate::exit::ExitReason;
use crate::settings::CliError;
use haft_config::agents::loader::read_bounded;

/// The name of the schema in requests to providers.
const NAME: &str = "answer";

/// A schema read from a file.
pub(super) struct AnswerSchema {
    written: Arc<Value>,
    compiled: Schema,
}

impl AnswerSchema {
    pub(super) fn read(file: &Path) -> Result<Self, CliError> {
        let wrong = |problem: String| {
            let hint = "hint: give a file with one JSON Schema of an object";
            (ExitReason::Input, format!("{}: {problem}\n{hint}", file.display()))
        };
        let text = read_bounded(file, SCHEMA_BYTES_MAX as u64).map_err(wrong)?;
        let written: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        // Providers accept only a schema of an object.
        if written.get("type").is_some_and(|kind| kind != "object") {
            return Err(wrong(format!("`type` must be \"object\"; got {}", written["type"])));
        }
        match Schema::compile(&written) {
            Schema::Unchecked { reason } => Err(wrong(reason)),
            compiled @ Schema::Checked(_) => Ok(Self { written: Arc::new(written), compiled }),
        }
    }

    pub(super) fn output(&self) -> OutputShape {
        OutputShape::Schema { name: NAME.into(), schema: Arc::clone(&self.written) }
    }

    /// Parses the answer and checks it against the schema. Providers without optional properties send `null` for an
    /// absent one.
    pub(super) fn fit(&self, reply: &ModelReply) -> Result<Value, String> {
        let text = reply.text();
        let hint = "hint: ask again, or use a model that supports JSON Schema";
        let wrong = |problem: String| format!("the answer does not match the schema: {problem}\n{hint}");
        let answer = serde_json::from_str(text.trim()).map_err(|error| wrong(error.to_string()))?;
        self.compiled.fit(answer, text.len()).map_err(wrong)
    }
}
