//! The agents that requests can name as `model`, read when the server starts.
//!
//! A name in a request is only compared with these names. It never becomes a path, because a path could name any file
//! of the machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use haft_config::agents::graph::AgentGraph;
use haft_config::agents::loader::AgentLoader;

/// Agents by name.
#[derive(Debug, Default)]
pub struct AgentCatalog {
    agents: BTreeMap<String, ServedAgent>,
}

#[derive(Debug)]
struct ServedAgent {
    graph: Arc<AgentGraph>,
    description: String,
}

impl AgentCatalog {
    /// Reads all agents of the directories. The warnings name the agents that cannot be used.
    pub fn load(loader: &AgentLoader) -> (Self, Vec<String>) {
        let (mut agents, mut warnings) = (BTreeMap::new(), Vec::new());
        for (file, read) in loader.all() {
            let gathered = read.map_err(|error| error.to_string()).and_then(|agent| {
                let (name, description) = (agent.agent.name.clone(), agent.agent.description.clone());
                let graph = AgentGraph::gather(agent, loader).map_err(|error| error.to_string())?;
                Ok((name, ServedAgent { graph: Arc::new(graph), description }))
            });
            match gathered {
                Ok((name, agent)) => drop(agents.insert(name, agent)),
                Err(problem) => warnings.push(format!("`{}` is not served: {problem}", file.display())),
            }
        }
        (Self { agents }, warnings)
    }

    /// Returns the agent with this name, with all agents that it can reach.
    pub fn get(&self, name: &str) -> Option<&AgentGraph> {
        self.agents.get(name).map(|agent| &*agent.graph)
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
