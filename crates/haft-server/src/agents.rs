//! The agents that requests can name as `model`, read when the server starts and at each reload.
//!
//! The server only compares the name in a request with these names. It never uses the name as a path, because a path
//! could name any file on this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use haft_config::agents::graph::{AgentGraph, AgentGraphError};
use haft_config::agents::loader::{AgentFile, AgentLoadError, AgentLoader};

/// The agents that the server offers, by name.
#[derive(Debug, Default)]
pub struct AgentCatalog {
    agents: BTreeMap<String, ServedAgent>,
    left_out: BTreeMap<PathBuf, LeftOutAgent>,
}

#[derive(Debug)]
struct ServedAgent {
    graph: Arc<AgentGraph>,
    description: String,
}

/// The reason why the server does not offer the agent that a file defines.
#[derive(Debug)]
enum LeftOutAgent {
    /// The operator does not trust the file, or a file that it uses.
    Untrusted(String),
    Wrong(String),
}

impl LeftOutAgent {
    fn of_file(error: &AgentLoadError) -> Self {
        match error {
            AgentLoadError::Untrusted { .. } | AgentLoadError::UntrustedInclude(_) => {
                Self::Untrusted(error.to_string())
            }
            AgentLoadError::Unknown { .. } | AgentLoadError::Unreadable { .. } | AgentLoadError::Wrong(_) => {
                Self::Wrong(error.to_string())
            }
        }
    }

    fn of_graph(error: &AgentGraphError) -> Self {
        let text = error.to_string();
        match error {
            AgentGraphError::Load { error, .. } => match Self::of_file(error) {
                Self::Untrusted(_) => Self::Untrusted(text),
                Self::Wrong(_) => Self::Wrong(text),
            },
            AgentGraphError::Cycle(_)
            | AgentGraphError::TooDeep { .. }
            | AgentGraphError::TooMany { .. }
            | AgentGraphError::Name { .. } => Self::Wrong(text),
        }
    }

    fn warning(&self, file: &Path) -> String {
        let (Self::Untrusted(problem) | Self::Wrong(problem)) = self;
        format!("the server does not offer the agent in `{}`: {problem}", file.display())
    }
}

impl AgentCatalog {
    /// Loads all agents from the directories. The warnings name the agents that cannot be used.
    pub fn load(loader: &AgentLoader) -> (Self, Vec<String>) {
        let mut catalog = Self::default();
        for (file, read) in loader.all() {
            match read.map_err(|error| LeftOutAgent::of_file(&error)).and_then(|agent| gather(agent, loader))
            {
                Ok((name, agent)) => drop(catalog.agents.insert(name, agent)),
                Err(left_out) => drop(catalog.left_out.insert(file, left_out)),
            }
        }
        let warnings = catalog.left_out.iter().map(|(file, left_out)| left_out.warning(file)).collect();
        (catalog, warnings)
    }

    /// Returns the errors in agent files that `before` did not leave out. A file that `before` left out is not an
    /// error, because it may be only an include of an agent. An untrusted file is not an error either, because a reload
    /// must be able to remove an agent whose file the operator no longer trusts.
    pub(crate) fn new_errors(&self, before: &Self) -> Vec<String> {
        let new = self.left_out.iter().filter_map(|(file, left_out)| match left_out {
            LeftOutAgent::Wrong(_) if !before.left_out.contains_key(file) => Some(left_out.warning(file)),
            LeftOutAgent::Wrong(_) | LeftOutAgent::Untrusted(_) => None,
        });
        new.collect()
    }

    /// Returns a warning for each agent file that the server does not offer.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.left_out.iter().map(|(file, left_out)| left_out.warning(file))
    }

    /// Returns the agent with this name, together with all agents that it can call.
    pub fn get(&self, name: &str) -> Option<&Arc<AgentGraph>> {
        self.agents.get(name).map(|agent| &agent.graph)
    }

    /// Returns all agents, sorted by name.
    pub fn graphs(&self) -> impl Iterator<Item = &Arc<AgentGraph>> {
        self.agents.values().map(|agent| &agent.graph)
    }

    /// Returns the names and descriptions, sorted by name.
    pub fn list(&self) -> impl Iterator<Item = (&str, &str)> {
        self.agents.iter().map(|(name, agent)| (name.as_str(), agent.description.as_str()))
    }
}

fn gather(agent: AgentFile, loader: &AgentLoader) -> Result<(String, ServedAgent), LeftOutAgent> {
    let (name, description) = (agent.agent.name.clone(), agent.agent.description.clone());
    let graph = AgentGraph::gather(agent, loader).map_err(|error| LeftOutAgent::of_graph(&error))?;
    Ok((name, ServedAgent { graph: Arc::new(graph), description }))
}

/// The catalog that requests use now. A reload replaces it.
#[derive(Debug)]
pub(crate) struct CurrentAgents(RwLock<Arc<AgentCatalog>>);

impl CurrentAgents {
    pub(crate) fn new(agents: AgentCatalog) -> Self {
        Self(RwLock::new(Arc::new(agents)))
    }

    pub(crate) fn get(&self) -> Arc<AgentCatalog> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, agents: AgentCatalog) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(agents);
    }
}

#[cfg(test)]
mod tests {
    use haft_core::home::Home;

    use super::*;

    #[test]
    fn reload_reports_only_agent_files_that_became_invalid() {
        let directory = tempfile::tempdir().unwrap();
        let agents = directory.path().join("agents");
        std::fs::create_dir(&agents).unwrap();
        let write = |name: &str, text: &str| std::fs::write(agents.join(name), text).unwrap();
        let load = || AgentCatalog::load(&AgentLoader::new(Some(Home::at(directory.path())), None)).0;
        let (right, wrong) = ("---\ndescription: d\n---\nYou help.\n", "---\nmaxTurns: many\n---\nx\n");
        write("good.md", right);
        write("bad.md", wrong);
        let before = load();
        assert_eq!(before.list().map(|(name, _)| name).collect::<Vec<_>>(), ["good"]);
        assert_eq!(
            load().new_errors(&before),
            [] as [String; 0],
            "an agent that was already invalid is not reported"
        );
        write("good.md", wrong);
        let errors = load().new_errors(&before);
        assert!(
            matches!(&errors[..], [one] if one.contains("good.md") && one.contains("whole number")),
            "{errors:?}"
        );
        write("good.md", right);
        write("new.md", wrong);
        assert_eq!(load().new_errors(&before).len(), 1);
        std::fs::remove_file(agents.join("new.md")).unwrap();
        std::fs::remove_file(agents.join("good.md")).unwrap();
        assert_eq!(load().new_errors(&before), [] as [String; 0], "a removed agent is not an error");
    }
}
