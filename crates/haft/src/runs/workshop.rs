//! What all runs of one process share: configuration, tools, and where models are.

use std::fmt;
use std::sync::Arc;

use haft_core::model_provider::ModelProvider;
use haft_core::provider::ToolProvider;

use crate::config::Resolved;
use crate::config::resolved::ModelName;
use crate::models::{self, ModelsError};
use crate::wiring::{Parts, Settings};

/// Looks up the variables that say where providers of models are, and their keys.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Makes workers. All of them share servers, queues, cache and store.
pub struct Workshop {
    pub(super) parts: Parts,
    variables: Variables,
}

impl Workshop {
    pub fn new(settings: Settings, others: Vec<Arc<dyn ToolProvider>>, variables: Variables) -> Arc<Self> {
        Arc::new(Self { parts: Parts::new(settings, others), variables })
    }

    pub fn config(&self) -> &Arc<Resolved> {
        self.parts.config()
    }

    /// The provider of the first model, with the others behind it.
    pub(super) fn models(&self, names: &[ModelName]) -> Result<Box<dyn ModelProvider>, ModelsError> {
        models::chain_under(Some(self.parts.policy()), self.config(), names, &*self.variables)
    }
}

impl fmt::Debug for Workshop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workshop").field("parts", &self.parts).finish_non_exhaustive()
    }
}
