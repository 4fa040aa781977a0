//! What all runs of one process share: configuration, tools, and where models are.

use std::fmt;
use std::sync::{Arc, OnceLock};

use haft_core::model_provider::ModelProvider;
use haft_core::place::SessionId;
use haft_core::provider::ToolProvider;
use haft_core::run::AgentRun;
use serde_json::Value;

use crate::config::Resolved;
use crate::config::resolved::ModelName;
use crate::models::{self, ModelsError};
use crate::sessions::line::Opened;
use crate::sessions::{SessionError, SessionJournal, Sessions};
use crate::wiring::{Parts, Settings};

/// Looks up the variables that say where providers of models are, and their keys.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Makes workers. All of them share servers, queues, cache and store.
pub struct Workshop {
    pub(super) parts: Parts,
    variables: Variables,
    kept: OnceLock<Kept>,
}

/// Where sessions are kept, and how whoever began them can have them again.
struct Kept {
    sessions: Sessions,
    order: Value,
}

impl Workshop {
    pub fn new(settings: Settings, others: Vec<Arc<dyn ToolProvider>>, variables: Variables) -> Arc<Self> {
        Arc::new(Self { parts: Parts::new(settings, others), variables, kept: OnceLock::new() })
    }

    pub fn config(&self) -> &Arc<Resolved> {
        self.parts.config()
    }

    /// From now on runs are put on record. The order is what whoever began them needs to put all this together again.
    pub fn keep_sessions(&self, sessions: Sessions, order: Value) {
        self.kept.get_or_init(|| Kept { sessions, order });
    }

    /// Begins to put a run on record, where runs are.
    pub(super) fn open_session(
        &self,
        id: SessionId,
        request: &str,
        run: &AgentRun,
    ) -> Option<Result<SessionJournal, SessionError>> {
        let Kept { sessions, order } = self.kept.get()?;
        let opened = Opened::new(id, request, order.clone(), run.snapshot());
        Some(sessions.open(id, opened))
    }

    /// The provider of the first model, with the others behind it.
    pub(super) fn models(&self, names: &[ModelName]) -> Result<Box<dyn ModelProvider>, ModelsError> {
        models::chain(self.config(), names, &*self.variables)
    }
}

impl fmt::Debug for Workshop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workshop").field("parts", &self.parts).finish_non_exhaustive()
    }
}
