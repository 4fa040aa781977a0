//! Runs, put together: an agent, its models and its tools become a run and what drives it.
//!
//! Start with [`RunEnvironment`], which holds what all runs of a process share; a [`PreparedAgent`] is an agent ready to be asked, and an
//! [`ActiveRun`] a request on its way. The command line, sub-agents and whoever else runs agents do it through these. Nothing
//! here writes to a screen or knows an exit code.

mod active_run;
mod agent_tools;
mod context;
mod environment;
mod input;
mod lineage;
mod offer;
mod output_reader;
mod prepared_agent;
mod relay;
mod resuming;
pub mod route;
mod skilled;
mod system;

pub use active_run::{ActiveRun, ClientFunctions, NoFunctions, RunRequest};
pub use environment::{LeftSessions, RunEnvironment, Variables};
pub(crate) use input::check_input;
pub use prepared_agent::PreparedAgent;
pub use prepared_agent::model_names;
pub use resuming::{ResumeError, ResumedSession};
pub use skilled::AvailableSkills;
