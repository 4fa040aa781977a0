//! The stored form of a complete reply.

use serde::{Deserialize, Serialize};

use super::conversation::StoredPart;
use super::event::StoredStop;
use super::{StoredError, StoredUsage};
use crate::model_reply::ModelReply;

/// A model's reply without its notes, which the run reported when the reply arrived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredModelReply {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    parts: Vec<StoredPart>,
    stop: StoredStop,
    usage: Option<StoredUsage>,
}

impl StoredModelReply {
    /// Converts a reply for storage. Its notes are not stored.
    pub fn of(reply: &ModelReply) -> Self {
        let ModelReply { id, model, parts, stop, usage, notes: _ } = reply;
        Self {
            id: id.clone(),
            model: model.clone(),
            parts: parts.iter().map(StoredPart::of).collect(),
            stop: StoredStop::of(stop),
            usage: usage.as_ref().map(StoredUsage::of),
        }
    }

    /// Restores the reply without notes. Fails for damaged media and unknown names.
    pub fn into_reply(self) -> Result<ModelReply, StoredError> {
        Ok(ModelReply {
            id: self.id,
            model: self.model,
            parts: self.parts.into_iter().map(StoredPart::into_part).collect::<Result<_, _>>()?,
            stop: self.stop.into_stop(),
            usage: self.usage.map(StoredUsage::into_usage),
            notes: Vec::new(),
        })
    }
}
