//! The agents that requests can name as `model`, read when the server starts.
//!
//! The server only compares the name in a request with these names. It never uses the name as a path, because a path
//! could name any file on this machine.

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
    /// Loads all agents from the directories. The warnings name the agents that cannot be used.
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
                Err(problem) => warnings
                    .push(format!("the server does not offer the agent in `{}`: {problem}", file.display())),
            }
        }
        (Self { agents }, warnings)
    }

    /// Returns the agent with this name, together with all agents that it can call.
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
