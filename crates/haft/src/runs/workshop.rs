//! What all runs of one process share: configuration, tools, and where models are.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haft_core::model_provider::ModelProvider;
use haft_core::provider::ToolProvider;

use super::crew::Crew;
use super::skilled::Available;
use super::worker::{self, Colleagues, Worker};
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
    skills: Available,
}

impl Workshop {
    pub fn new(
        settings: Settings,
        others: Vec<Arc<dyn ToolProvider>>,
        variables: Variables,
        skills: Available,
    ) -> Arc<Self> {
        Arc::new(Self { parts: Parts::new(settings, others), variables, skills })
    }

    pub(super) fn skills(&self) -> &Available {
        &self.skills
    }

    pub fn config(&self) -> &Arc<Resolved> {
        self.parts.config()
    }

    /// A worker for each of a crew; gives the one who is asked. Who names no model takes that one's.
    pub fn employ(self: &Arc<Self>, crew: &Crew) -> Result<Arc<Worker>, ModelsError> {
        let names = worker::model_names(&crew.first().agent, self.config())?;
        let models = names.iter().map(ToString::to_string).collect();
        let first = crew.first_file().to_owned();
        Employing { workshop: self, crew, models, done: HashMap::new() }.worker(&first)
    }

    /// The provider of the first model, with the others behind it.
    pub fn models(&self, names: &[ModelName]) -> Result<Box<dyn ModelProvider>, ModelsError> {
        models::chain(self.config(), names, &*self.variables)
    }
}

/// Makes the workers of a crew, those below first. There are no circles in a crew.
struct Employing<'a> {
    workshop: &'a Arc<Workshop>,
    crew: &'a Crew,
    models: Vec<String>,
    done: HashMap<PathBuf, Arc<Worker>>,
}

impl Employing<'_> {
    fn worker(&mut self, file: &Path) -> Result<Arc<Worker>, ModelsError> {
        if let Some(done) = self.done.get(file) {
            return Ok(Arc::clone(done));
        }
        let member = self.crew.member(file).ok_or(ModelsError::NoModel)?;
        let colleagues = Colleagues {
            below: self.all(&member.agents)?,
            destinations: self.all(&member.destinations)?,
            handoff: member.handoff.as_ref().map(|file| self.worker(file)).transpose()?,
        };
        let mut agent = member.agent.clone();
        if agent.models.is_empty() {
            agent.models.clone_from(&self.models);
        }
        let worker = Worker::new(self.workshop, agent, colleagues)?;
        self.done.insert(file.to_owned(), Arc::clone(&worker));
        Ok(worker)
    }

    fn all(&mut self, files: &[PathBuf]) -> Result<Vec<Arc<Worker>>, ModelsError> {
        files.iter().map(|file| self.worker(file)).collect()
    }
}

impl fmt::Debug for Workshop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workshop").field("parts", &self.parts).finish_non_exhaustive()
    }
}
