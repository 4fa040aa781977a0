//! An agent and all agents reachable from it, read and checked together.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use haft_core::internal_tools::batch::BATCH;
use haft_core::internal_tools::final_report::FINAL_REPORT;
use haft_core::internal_tools::task_status::TASK_STATUS;

use super::loader::{AgentFile, AgentLoadError, AgentLoader, AgentSource};
use crate::agents::cycle::{self, AgentCycle, AgentLinks};
use crate::agents::{AgentDefinition, AgentOverrides};

/// The maximum number of agents in one graph, including the first.
pub const AGENTS_MAX: usize = 64;

/// The maximum length of a chain of agents that call agents.
pub const DEPTH_MAX: usize = 8;

/// The prefix of tool names of sub-agents.
pub const NAMESPACE: &str = "agent";

/// All agents that a request may reach, by file. The links between them have no cycle.
#[derive(Debug)]
pub struct AgentGraph {
    nodes: BTreeMap<PathBuf, AgentNode>,
    first: PathBuf,
}

/// The texts and links of all agents of a graph. The graph can be built again from them without reading a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentGraphSource {
    pub first: String,
    pub nodes: BTreeMap<String, AgentNodeSource>,
}

/// One agent of a graph, and the keys of the agents it links to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentNodeSource {
    pub source: AgentSource,
    pub agents: Vec<String>,
    pub destinations: Vec<String>,
    pub handoff: Option<String>,
}

/// One agent, and the files of the agents that it links to.
#[derive(Debug)]
pub struct AgentNode {
    pub agent: AgentDefinition,
    source: AgentSource,
    pub agents: Vec<PathBuf>,
    pub destinations: Vec<PathBuf>,
    pub handoff: Option<PathBuf>,
}

/// The reasons why agents cannot be used together, as messages for their author.
#[derive(Debug, thiserror::Error)]
pub enum AgentGraphError {
    /// The agent `by` names an agent that cannot be loaded.
    #[error("{by}: {error}")]
    Load { by: String, error: AgentLoadError },
    #[error("{0}")]
    Cycle(AgentCycle),
    #[error("agents call each other more than {DEPTH_MAX} levels deep: {}; merge two of them", .path.join(" > "))]
    TooDeep { path: Vec<String> },
    #[error(
        "the agent `{first}` and its sub-agents can call more than {AGENTS_MAX} agents; remove some of them"
    )]
    TooMany { first: String },
    /// An agent links to two agents with the same name, or to one whose name is reserved.
    #[error(
        "the agent `{by}` cannot call the agent `{name}`: the name is reserved, or another agent has the same name; change {key} of `{name}`"
    )]
    Name { by: String, name: String, key: &'static str },
}

impl AgentGraph {
    /// Reads all agents reachable from `first`.
    pub fn gather(first: AgentFile, loader: &AgentLoader) -> Result<Self, AgentGraphError> {
        let start = key(&first.file);
        let mut graph = Self { nodes: BTreeMap::new(), first: start.clone() };
        let mut waiting = vec![(start, first)];
        while let Some((path, found)) = waiting.pop() {
            if graph.nodes.len() >= AGENTS_MAX {
                return Err(AgentGraphError::TooMany { first: graph.first().agent.name.clone() });
            }
            let node = graph.join(path, found, loader)?;
            let by = node.agent.name.clone();
            for file in node.linked_files().cloned().collect::<Vec<_>>() {
                if !graph.nodes.contains_key(&file) && waiting.iter().all(|(path, _)| *path != file) {
                    let error = |error| AgentGraphError::Load { by: by.clone(), error };
                    let found = loader.open(&file).map_err(error)?;
                    waiting.push((file, found));
                }
            }
        }
        graph.check()?;
        Ok(graph)
    }

    /// Returns the texts and links of all agents.
    pub fn source(&self) -> AgentGraphSource {
        let name = |file: &PathBuf| file.to_string_lossy().into_owned();
        let names = |files: &[PathBuf]| files.iter().map(name).collect();
        let node = |node: &AgentNode| AgentNodeSource {
            source: node.source.clone(),
            agents: names(&node.agents),
            destinations: names(&node.destinations),
            handoff: node.handoff.as_ref().map(name),
        };
        AgentGraphSource {
            first: name(&self.first),
            nodes: self.nodes.iter().map(|(file, found)| (name(file), node(found))).collect(),
        }
    }

    /// Builds the graph from its texts. The overrides apply to the first agent.
    pub fn from_source(
        source: &AgentGraphSource,
        overrides: &AgentOverrides,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, AgentGraphError> {
        let wrong =
            |error| AgentGraphError::Load { by: source.first.clone(), error: AgentLoadError::Wrong(error) };
        let unchanged = AgentOverrides::default();
        let mut nodes = BTreeMap::new();
        for (file, node) in &source.nodes {
            let overrides = if *file == source.first { overrides } else { &unchanged };
            let agent = node.source.resolve(overrides, variable).map_err(wrong)?;
            let files = |names: &[String]| names.iter().map(PathBuf::from).collect();
            let node = AgentNode {
                agent,
                source: node.source.clone(),
                agents: files(&node.agents),
                destinations: files(&node.destinations),
                handoff: node.handoff.as_ref().map(PathBuf::from),
            };
            nodes.insert(PathBuf::from(file), node);
        }
        let first = PathBuf::from(&source.first);
        if !nodes.contains_key(&first) {
            let error = AgentLoadError::Unknown { name: source.first.clone() };
            return Err(AgentGraphError::Load { by: source.first.clone(), error });
        }
        let graph = Self { nodes, first };
        graph.check()?;
        Ok(graph)
    }

    /// Returns the first agent, so that the caller can change it. The first agent receives the request.
    pub fn first_mut(&mut self) -> Option<&mut AgentDefinition> {
        self.nodes.get_mut(&self.first).map(|node| &mut node.agent)
    }

    pub fn first(&self) -> &AgentNode {
        // `gather` adds the first agent before this method can be called.
        &self.nodes[&self.first]
    }

    /// Makes the first agent use this model; agents that name no model inherit it.
    pub fn set_first_model(&mut self, model: String) {
        if let Some(node) = self.nodes.get_mut(&self.first) {
            node.agent.models = vec![model];
        }
    }

    pub fn node(&self, file: &Path) -> Option<&AgentNode> {
        self.nodes.get(file)
    }

    /// Returns all agents, ordered by file.
    pub fn nodes(&self) -> impl Iterator<Item = &AgentNode> {
        self.nodes.values()
    }

    /// Returns the file of the first agent.
    pub fn first_file(&self) -> &Path {
        &self.first
    }

    fn join(
        &mut self,
        path: PathBuf,
        found: AgentFile,
        from: &AgentLoader,
    ) -> Result<&AgentNode, AgentGraphError> {
        let AgentFile { agent, file, source } = found;
        let find = |name: &String| {
            let found = from.find_beside(&file, name);
            let found = found.map_err(|error| AgentGraphError::Load { by: agent.name.clone(), error });
            found.map(|file| key(&file))
        };
        let all = |names: &[String]| names.iter().map(find).collect::<Result<Vec<_>, _>>();
        let (agents, destinations) = (all(&agent.reach.agents)?, all(&agent.reach.destinations)?);
        let handoff = agent.reach.handoff.as_ref().map(find).transpose()?;
        Ok(self.nodes.entry(path).or_insert(AgentNode { agent, source, agents, destinations, handoff }))
    }

    fn check(&self) -> Result<(), AgentGraphError> {
        let shown = |file: &Path| file.display().to_string();
        let links: AgentLinks = self
            .nodes
            .iter()
            .map(|(file, node)| (shown(file), node.linked_files().map(|file| shown(file)).collect()))
            .collect();
        cycle::check(&links).map_err(|cycle| self.named(cycle))?;
        self.check_depth(&self.first, &mut Vec::new(), &mut HashMap::new())?;
        self.nodes.values().try_for_each(|node| self.check_names(node))?;
        self.check_cached_names()
    }

    /// Checks that an agent with a cache has a unique tool name, because cached answers are keyed by that name.
    fn check_cached_names(&self) -> Result<(), AgentGraphError> {
        for (file, node) in &self.nodes {
            let agent = &node.agent;
            let same =
                |(other, it): (&PathBuf, &AgentNode)| other != file && it.agent.tool_name == agent.tool_name;
            if agent.outputs.cache_ttl.is_some() && self.nodes.iter().any(same) {
                let (by, name) = (self.first().agent.name.clone(), agent.tool_name.to_string());
                return Err(AgentGraphError::Name { by, name, key: "`toolName`" });
            }
        }
        Ok(())
    }

    /// Replaces the files in a cycle by agent names, which are clearer to the user.
    fn named(&self, cycle: AgentCycle) -> AgentGraphError {
        let name = |file: String| {
            let node = self.nodes.get(Path::new(&file));
            node.map_or(file, |node| node.agent.name.clone())
        };
        AgentGraphError::Cycle(AgentCycle { path: cycle.path.into_iter().map(name).collect() })
    }

    /// Checks the depth. This terminates, because cycles were ruled out before. `seen` holds the depth at which each
    /// agent was found; an agent is visited again only if it is found at a greater depth.
    fn check_depth<'c>(
        &'c self,
        file: &'c Path,
        path: &mut Vec<String>,
        seen: &mut HashMap<&'c Path, usize>,
    ) -> Result<(), AgentGraphError> {
        let Some(node) = self.nodes.get(file) else { return Ok(()) };
        path.push(node.agent.name.clone());
        if path.len() > DEPTH_MAX {
            return Err(AgentGraphError::TooDeep { path: path.clone() });
        }
        if seen.get(file).is_none_or(|depth| *depth < path.len()) {
            seen.insert(file, path.len());
            node.linked_files().try_for_each(|below| self.check_depth(below, path, seen))?;
        }
        path.pop();
        Ok(())
    }

    /// Checks that the names from which a model chooses are distinct, and that none is the name of an internal tool of
    /// the run.
    fn check_names(&self, node: &AgentNode) -> Result<(), AgentGraphError> {
        let names = |files: &[PathBuf], of: fn(&AgentDefinition) -> &str| -> Vec<String> {
            files
                .iter()
                .filter_map(|file| self.nodes.get(file))
                .map(|node| of(&node.agent).to_owned())
                .collect()
        };
        let own = [BATCH, FINAL_REPORT, TASK_STATUS];
        let taken = |name: &str| own.contains(&format!("{NAMESPACE}__{name}").as_str());
        let by = &node.agent.name;
        let tools = names(&node.agents, |agent| agent.tool_name.as_str());
        if let Some(name) = tools.iter().find(|name| taken(name)).or_else(|| first_duplicate(&tools)) {
            return Err(AgentGraphError::Name { by: by.clone(), name: name.clone(), key: "`toolName`" });
        }
        match first_duplicate(&names(&node.destinations, |agent| &agent.name)) {
            Some(name) => {
                Err(AgentGraphError::Name { by: by.clone(), name: name.clone(), key: "the file name" })
            }
            None => Ok(()),
        }
    }
}

impl AgentNode {
    fn linked_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.agents.iter().chain(&self.destinations).chain(&self.handoff)
    }
}

fn first_duplicate(names: &[String]) -> Option<&String> {
    names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)).map(|(_, name)| name)
}

/// Returns a key for a file that is the same for all spellings of its path.
fn key(file: &Path) -> PathBuf {
    file.canonicalize().unwrap_or_else(|_| file.to_owned())
}
