//! Builds runs: combines an agent, its models and its tools, and drives the result.
//!
//! Start with [`RunEnvironment`], which holds the state that all runs of a process share. A [`PreparedAgent`] is an
//! agent bound to models and tools, and an [`ActiveRun`] is a request in progress. The command line, sub-agents and
//! embedding programs all run agents through these types. This module does not write to a screen and has no exit codes.

mod active_run;
mod agent_tools;
mod available_skills;
mod caller_choice;
mod context;
mod environment;
mod input;
mod lineage;
pub mod model_route;
mod optional_tools;
mod output_reader;
mod partial_output;
mod prepared_agent;
mod relay;
mod request_sizes;
mod resume;
mod served_agents;
mod system_prompt;

pub use active_run::{ActiveRun, ClientFunctions, NoFunctions, RunRequest};
pub use available_skills::AvailableSkills;
pub use caller_choice::CallerChoice;
pub use environment::{LeftSessions, RunEnvironment, Variables};
pub(crate) use input::check_input;
pub use partial_output::PartialOutputs;
pub use prepared_agent::PreparedAgent;
pub use prepared_agent::model_names;
pub use resume::{ResumeError, ResumedSession};
pub use served_agents::{RunAdmission, RunPermit, ServedAgents};
