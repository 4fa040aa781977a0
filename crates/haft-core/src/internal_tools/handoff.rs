//! The handoff tool: an agent passes the request to another agent, which then answers it.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use crate::arguments::RawArguments;
use crate::model_request::ModelTool;

/// The tool name that the model calls.
pub const HANDOFF: &str = "router__handoff-to";

/// The agent that gets the request, and an optional message from the previous agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handoff {
    /// The agent name, one of [`HandoffRoutes::destinations`].
    pub agent: String,
    /// A message for the next agent; `None` if the model wrote none.
    pub message: Option<String>,
}

/// The agents to which the current agent may hand off a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HandoffRoutes {
    /// The agent names, in the order of the configuration.
    pub destinations: Vec<String>,
    /// The agents that have had the request so far, including the current one.
    pub path: Vec<String>,
}

#[derive(Deserialize)]
struct HandoffArguments {
    agent: String,
    message: Option<String>,
}

impl HandoffRoutes {
    /// Returns the definition of the tool for the model, or `None` if no destination is left.
    pub fn tool(&self) -> Option<ModelTool> {
        let open = self.open();
        if open.is_empty() {
            return None;
        }
        let schema = json!({
            "type": "object",
            "properties": {
                "agent": {"type": "string", "enum": open},
                "message": {"type": "string", "description": "Advice for the agent that takes over."},
            },
            "required": ["agent"],
        });
        let description = "Hands the user's request to another agent, which then answers instead of you.";
        Some(ModelTool {
            name: HANDOFF.into(),
            description: description.into(),
            input_schema: Arc::new(schema),
            strict: false,
        })
    }

    /// Parses a call of the tool. The error text is for the model.
    pub fn read(&self, arguments: &RawArguments) -> Result<Handoff, String> {
        let HandoffArguments { agent, message } = super::read(arguments)?;
        if self.path.contains(&agent) {
            return Err(format!(
                "the agent `{agent}` already had this request ({}); {}",
                self.path.join(" > "),
                self.choices()
            ));
        }
        if !self.destinations.contains(&agent) {
            return Err(format!("you cannot hand off to the agent `{agent}`; {}", self.choices()));
        }
        Ok(Handoff { agent, message: message.filter(|message| !message.trim().is_empty()) })
    }

    /// Returns the destinations that have not had the request yet, so that agents cannot hand off a request in a
    /// circle.
    fn open(&self) -> Vec<&str> {
        let open = self.destinations.iter().filter(|agent| !self.path.contains(agent));
        open.map(String::as_str).collect()
    }

    fn choices(&self) -> String {
        match self.open().as_slice() {
            [] => "answer yourself".into(),
            open => format!("choose one of {}, or answer yourself", open.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(destinations: &[&str], path: &[&str]) -> HandoffRoutes {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        HandoffRoutes { destinations: owned(destinations), path: owned(path) }
    }

    #[test]
    fn handoff_to_an_agent_that_already_had_the_request_is_refused() {
        let check = |agent: &str, expected: Result<&str, &str>| {
            let routes = routes(&["billing", "legal", "desk"], &["desk", "legal"]);
            let call = RawArguments::from_value(&json!({"agent": agent, "message": " "}));
            match (routes.read(&call), expected) {
                (Ok(handoff), Ok(agent)) => {
                    assert_eq!(handoff, Handoff { agent: agent.into(), message: None });
                }
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (found, expected) => panic!("expected {expected:?}, found {found:?}"),
            }
        };
        check("billing", Ok("billing"));
        check("legal", Err("already had this request (desk > legal); choose one of billing"));
        check("desk", Err("already had"));
        check("sales", Err("you cannot hand off to the agent `sales`"));
    }

    #[test]
    fn handoff_tool_is_offered_only_if_a_destination_remains() {
        assert_eq!(routes(&[], &["desk"]).tool(), None);
        assert_eq!(routes(&["desk"], &["desk"]).tool(), None);
        let tool = routes(&["desk", "billing"], &["desk"]).tool().unwrap();
        assert_eq!(tool.input_schema["properties"]["agent"]["enum"], json!(["billing"]));
    }
}
