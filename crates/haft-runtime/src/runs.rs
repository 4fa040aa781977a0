//! Runs, put together: an agent, its models and its tools become a run and what drives it.
//!
//! Start with [`Workshop`], which holds what all runs of a process share; a [`Worker`] is an agent ready to be asked, and an
//! [`Errand`] a request on its way. The command line, sub-agents and whoever else runs agents do it through these. Nothing
//! here writes to a screen or knows an exit code.

mod agent_tools;
mod context;
mod errand;
mod lineage;
mod offer;
mod output_reader;
mod relay;
mod resuming;
pub mod route;
mod skilled;
mod system;
mod worker;
mod workshop;

pub use errand::{Errand, Task};
pub use resuming::{ResumeError, Resumed};
pub use skilled::{Available, call_in};
pub use worker::Worker;
pub use worker::model_names;
pub use workshop::{TakingUp, Variables, Workshop};
