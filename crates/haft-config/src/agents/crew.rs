//! An agent and all agents reachable from it, read and checked together.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};

use haft_core::internal::batch::BATCH;
use haft_core::internal::final_report::FINAL_REPORT;
use haft_core::internal::task_status::TASK_STATUS;

use super::shelf::{OnShelf, Shelf, ShelfError};
use crate::agents::Agent;
use crate::agents::cycle::{self, AgentCycle, Links};

/// The largest number of agents reachable from one agent, itself included.
pub const CREW_MAX: usize = 64;

/// The longest chain of agents that call agents.
pub const DEPTH_MAX: usize = 8;

/// The prefix of sub-agents' tool names.
pub const NAMESPACE: &str = "agent";

/// All agents that a request may reach, by their files. The links between them have no cycle.
#[derive(Debug)]
pub struct Crew {
    members: BTreeMap<PathBuf, Member>,
    first: PathBuf,
}

/// One agent, and the files of the agents it links to.
#[derive(Debug)]
pub struct Member {
    pub agent: Agent,
    pub agents: Vec<PathBuf>,
    pub destinations: Vec<PathBuf>,
    pub handoff: Option<PathBuf>,
}

/// The reasons agents cannot work together, for their author.
#[derive(Debug)]
pub enum CrewError {
    /// The agent `by` names an agent that cannot be loaded.
    Shelf {
        by: String,
        error: ShelfError,
    },
    Cycle(AgentCycle),
    TooDeep {
        path: Vec<String>,
    },
    TooMany {
        first: String,
    },
    /// An agent links to two agents of the same name, or to one whose name is reserved.
    Name {
        by: String,
        name: String,
        key: &'static str,
    },
}

impl Crew {
    /// Reads all agents reachable from `first`.
    pub fn gather(first: OnShelf, shelf: &Shelf) -> Result<Self, CrewError> {
        let start = key(&first.file);
        let mut crew = Self { members: BTreeMap::new(), first: start.clone() };
        let mut waiting = vec![(start, first)];
        while let Some((place, found)) = waiting.pop() {
            if crew.members.len() >= CREW_MAX {
                return Err(CrewError::TooMany { first: crew.first().agent.name.clone() });
            }
            let member = crew.join(place, found, shelf)?;
            let by = member.agent.name.clone();
            for file in member.leads_to().cloned().collect::<Vec<_>>() {
                if !crew.members.contains_key(&file) && waiting.iter().all(|(place, _)| *place != file) {
                    let error = |error| CrewError::Shelf { by: by.clone(), error };
                    let found = shelf.open(&file).map_err(error)?;
                    waiting.push((file, found));
                }
            }
        }
        crew.check()?;
        Ok(crew)
    }

    pub fn first(&self) -> &Member {
        // `gather` adds the first agent before it calls this.
        &self.members[&self.first]
    }

    /// Makes the first agent use this model; agents that name no model inherit it.
    pub fn ask_model(&mut self, model: String) {
        if let Some(member) = self.members.get_mut(&self.first) {
            member.agent.models = vec![model];
        }
    }

    pub fn member(&self, file: &Path) -> Option<&Member> {
        self.members.get(file)
    }

    /// Returns the file of the first agent.
    pub fn first_file(&self) -> &Path {
        &self.first
    }

    fn join(&mut self, place: PathBuf, found: OnShelf, from: &Shelf) -> Result<&Member, CrewError> {
        let OnShelf { agent, file } = found;
        let find = |name: &String| {
            let found = from.find_beside(&file, name);
            let found = found.map_err(|error| CrewError::Shelf { by: agent.name.clone(), error });
            found.map(|file| key(&file))
        };
        let all = |names: &[String]| names.iter().map(find).collect::<Result<Vec<_>, _>>();
        let (agents, destinations) = (all(&agent.reach.agents)?, all(&agent.reach.destinations)?);
        let handoff = agent.reach.handoff.as_ref().map(find).transpose()?;
        Ok(self.members.entry(place).or_insert(Member { agent, agents, destinations, handoff }))
    }

    fn check(&self) -> Result<(), CrewError> {
        let shown = |file: &Path| file.display().to_string();
        let links: Links = self
            .members
            .iter()
            .map(|(file, member)| (shown(file), member.leads_to().map(|file| shown(file)).collect()))
            .collect();
        cycle::check(&links).map_err(|cycle| self.named(cycle))?;
        self.check_depth(&self.first, &mut Vec::new(), &mut HashMap::new())?;
        self.members.values().try_for_each(|member| self.check_names(member))?;
        self.check_kept()
    }

    /// Checks that an agent with a cache has a unique tool name, because cached answers are keyed by that name.
    fn check_kept(&self) -> Result<(), CrewError> {
        for (file, member) in &self.members {
            let agent = &member.agent;
            let same =
                |(other, it): (&PathBuf, &Member)| other != file && it.agent.tool_name == agent.tool_name;
            if agent.outputs.cache_ttl.is_some() && self.members.iter().any(same) {
                let (by, name) = (self.first().agent.name.clone(), agent.tool_name.to_string());
                return Err(CrewError::Name { by, name, key: "`toolName`" });
            }
        }
        Ok(())
    }

    /// Replaces the files in a cycle by the names of the agents, which tell the user more.
    fn named(&self, cycle: AgentCycle) -> CrewError {
        let name = |file: String| {
            let member = self.members.get(Path::new(&file));
            member.map_or(file, |member| member.agent.name.clone())
        };
        CrewError::Cycle(AgentCycle { path: cycle.path.into_iter().map(name).collect() })
    }

    /// Checks the depth. This ends because cycles were ruled out before. `seen` holds the depth at which each agent was
    /// found, so that one is visited again only when it is found deeper.
    fn check_depth<'c>(
        &'c self,
        file: &'c Path,
        path: &mut Vec<String>,
        seen: &mut HashMap<&'c Path, usize>,
    ) -> Result<(), CrewError> {
        let Some(member) = self.members.get(file) else { return Ok(()) };
        path.push(member.agent.name.clone());
        if path.len() > DEPTH_MAX {
            return Err(CrewError::TooDeep { path: path.clone() });
        }
        if seen.get(file).is_none_or(|depth| *depth < path.len()) {
            seen.insert(file, path.len());
            member.leads_to().try_for_each(|below| self.check_depth(below, path, seen))?;
        }
        path.pop();
        Ok(())
    }

    /// Checks that the names from which a model chooses differ from each other and from the names of the run's own
    /// tools.
    fn check_names(&self, member: &Member) -> Result<(), CrewError> {
        let names = |files: &[PathBuf], of: fn(&Agent) -> &str| -> Vec<String> {
            files
                .iter()
                .filter_map(|file| self.members.get(file))
                .map(|member| of(&member.agent).to_owned())
                .collect()
        };
        let own = [BATCH, FINAL_REPORT, TASK_STATUS];
        let taken = |name: &str| own.contains(&format!("{NAMESPACE}__{name}").as_str());
        let by = &member.agent.name;
        let tools = names(&member.agents, |agent| agent.tool_name.as_str());
        if let Some(name) = tools.iter().find(|name| taken(name)).or_else(|| twice(&tools)) {
            return Err(CrewError::Name { by: by.clone(), name: name.clone(), key: "`toolName`" });
        }
        match twice(&names(&member.destinations, |agent| &agent.name)) {
            Some(name) => Err(CrewError::Name { by: by.clone(), name: name.clone(), key: "the file's name" }),
            None => Ok(()),
        }
    }
}

impl Member {
    fn leads_to(&self) -> impl Iterator<Item = &PathBuf> {
        self.agents.iter().chain(&self.destinations).chain(&self.handoff)
    }
}

fn twice(names: &[String]) -> Option<&String> {
    names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)).map(|(_, name)| name)
}

/// Returns the same key for all spellings of a path.
fn key(file: &Path) -> PathBuf {
    file.canonicalize().unwrap_or_else(|_| file.to_owned())
}

impl fmt::Display for CrewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shelf { by, error } => write!(f, "{by}: {error}"),
            Self::Cycle(cycle) => cycle.fmt(f),
            Self::TooDeep { path } => {
                write!(f, "agents call agents at most {DEPTH_MAX} deep: {}", path.join(" > "))?;
                write!(f, "\nhint: let one of them do the work of another")
            }
            Self::TooMany { first } => {
                write!(f, "`{first}` leads to more than {CREW_MAX} agents\nhint: let it lead to fewer")
            }
            Self::Name { by, name, key } => {
                write!(f, "`{by}` leads to agents of which one has the name `{name}`, which is taken")?;
                write!(f, "\nhint: change {key} of one of them")
            }
        }
    }
}

impl std::error::Error for CrewError {}
