//! The tool that haft lists for a server whose own tools are unknown until a user logs in.

use haft_core::name::{GroupName, Namespace, ToolName};
use haft_core::tool::{DefinitionAuthor, Effects, ToolDefinition, ToolFacts};
use serde_json::json;

/// The name of the tool within the namespace of its server. A server is unlikely to use it for a tool of its own.
const NAME: &str = "haft_login";

/// The result of a call after the login.
pub(super) const LOGIN_FINISHED: &str =
    "The login is finished. The tools of this server are now in the tool list.";

pub(super) fn is_login_tool(name: &ToolName) -> bool {
    name.as_str() == NAME
}

/// Returns the definition of the login tool of a server. The tool is read-only, because the call itself changes
/// nothing. It is in the group of its server, so that rules for this group apply to it.
pub(super) fn login_tool(server: &str, namespace: &Namespace) -> ToolDefinition {
    let description = format!(
        "Asks the user to log in at the MCP server `{server}`. The tools of this server are unknown before the login."
    );
    let schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let facts = ToolFacts { author: DefinitionAuthor::Haft, ..ToolFacts::default() };
    let groups = GroupName::new(namespace.as_str()).into_iter().collect();
    let tool =
        ToolDefinition::new(NAME, description, schema).with_effects(Effects::ReadOnly).with_facts(facts);
    ToolDefinition { groups, ..tool }
}
