//! Reports the queues of the configuration. Each queue is listed with the tools and servers that use it.

use std::fmt::Write;

use haft_core::name::QueueName;
use serde_json::{Value, json};

use haft_config::ResolvedConfig;

/// The name of the queue for all tools without a configured queue.
const DEFAULT: &str = "default";

/// The check result of one queue.
pub(super) struct QueueFinding {
    name: String,
    concurrent: usize,
    waiting_max: usize,
    /// The keys of the configuration that name this queue.
    users: Vec<String>,
}

impl QueueFinding {
    fn is_used(&self) -> bool {
        self.name == DEFAULT || !self.users.is_empty()
    }

    pub(super) fn as_json(&self) -> Value {
        json!({
            "name": self.name, "concurrent": self.concurrent, "waiting_max": self.waiting_max,
            "used": self.is_used(), "named_by": self.users,
        })
    }

    pub(super) fn write_to(&self, text: &mut String) {
        let users = match (self.users.as_slice(), self.name == DEFAULT) {
            ([], true) => "every tool without a queue of its own".to_owned(),
            ([], false) => {
                format!(
                    "no tool\n           hint: set `tools.NAME.queue: \"{}\"` to use this queue",
                    self.name
                )
            }
            (users, _) => users.join(", "),
        };
        let Self { name, concurrent, waiting_max, .. } = self;
        let _ = writeln!(
            text,
            "queue      {name}: {concurrent} running and {waiting_max} waiting calls allowed; used by {users}"
        );
    }
}

pub(super) fn check_all(config: &ResolvedConfig) -> Vec<QueueFinding> {
    let finding = |(name, queue): (&QueueName, &haft_config::resolved::QueueSettings)| QueueFinding {
        name: name.as_str().to_owned(),
        concurrent: queue.concurrent,
        waiting_max: queue.waiting_max,
        users: users(config, name),
    };
    config.queues.iter().map(finding).collect()
}

fn users(config: &ResolvedConfig, queue: &QueueName) -> Vec<String> {
    let is_it = |named: &Option<QueueName>| named.as_ref() == Some(queue);
    let tools = config.tools.iter().filter(|(_, tool)| is_it(&tool.queue));
    let servers = config.mcp_servers.iter().filter(|(_, server)| is_it(&server.queue));
    let rest = config.rest.tools.iter().filter(|(_, tool)| is_it(&tool.queue));
    let specs = config.rest.specs.iter().filter(|(_, spec)| is_it(&spec.queue));
    tools
        .map(|(glob, _)| format!("tools.{glob}"))
        .chain(servers.map(|(name, _)| format!("mcpServers.{name}")))
        .chain(rest.map(|(name, _)| format!("restTools.{name}")))
        .chain(specs.map(|(name, _)| format!("openapiSpecs.{name}")))
        .collect()
}
