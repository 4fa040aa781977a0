//! Permissions for the own tools of the `claude` command. haft handles each permission request as a tool call, so that
//! the rules and approvals of the run apply to it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_config::ResolvedConfig;
use haft_config::resolved::ModelName;
use haft_core::name::{GroupName, Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::ToolError;
use haft_core::run::context::RunContext;
use haft_core::tool::{Effects, ToolDefinition, ToolFacts};
use haft_core::validate::ValidArguments;
use haft_models::claude_code::{self, PERMISSIONS, own_tool_names};
use serde_json::json;

use crate::models::kind;

/// Provides one tool for each of the command's own tools. If haft allows the call of such a tool, the command has the
/// permission, and then runs its own tool in its sandbox.
pub(crate) struct CommandPermissions {
    namespace: Namespace,
    tools: Arc<[ToolDefinition]>,
}

impl CommandPermissions {
    /// Creates a provider with a tool for each permission that these models can request; `None` if there are none.
    pub(crate) fn of(config: &ResolvedConfig, models: &[ModelName]) -> Option<Self> {
        let commands = models.iter().filter(|model| kind(config, &model.provider) == claude_code::NAME);
        let own: Vec<String> = commands
            .filter_map(|model| config.providers.get(&model.provider))
            .flat_map(|provider| provider.command.allowed_tools.clone())
            .collect();
        let tools: Arc<[ToolDefinition]> = own_tool_names(&own).into_iter().filter_map(definition).collect();
        (!tools.is_empty()).then(|| Self { namespace: Namespace::sanitize(PERMISSIONS), tools })
    }

    /// Returns the group of these tools. Every agent has this group, even an agent that selects other tools, because
    /// `allowedTools` already restricts the command.
    pub(crate) fn group() -> Option<GroupName> {
        GroupName::new(PERMISSIONS).ok()
    }
}

fn definition(name: &str) -> Option<ToolDefinition> {
    Some(ToolDefinition {
        name: ToolName::new(name).ok()?,
        description: format!("Asks for permission to use the tool `{name}` of Claude Code."),
        // The command checks the arguments of its own tools.
        input_schema: json!({"type": "object"}),
        output_schema: None,
        effects: Effects::Unknown,
        groups: CommandPermissions::group().into_iter().collect(),
        facts: ToolFacts { command_argument: (name == "Bash").then_some("command"), ..ToolFacts::default() },
        raw: None,
    })
}

impl ToolProvider for CommandPermissions {
    /// Returns `Agent`, so that the tool names get a namespace. Built-in tools have no namespace, so the name `Bash`
    /// would conflict with `bash`.
    fn kind(&self) -> ProviderKind {
        ProviderKind::Agent
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.tools)
    }

    /// Hides these tools from models, because only the `claude` command requests permissions.
    fn is_shown(&self, _: &RunContext) -> bool {
        false
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolName,
        _: &'a ValidArguments,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move { Ok(ToolOutput::text(format!("Claude Code may use its tool `{tool}`"))) })
    }
}
