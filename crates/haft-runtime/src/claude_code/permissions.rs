//! The permissions for the command's own tools, as calls that pass the rules and approvals of a run.

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

/// One tool for each of the command's own tools. A call that gets through the stages is the permission; the command then
/// uses its tool itself, in its sandbox.
pub(crate) struct CommandPermissions {
    namespace: Namespace,
    tools: Arc<[ToolDefinition]>,
}

impl CommandPermissions {
    /// Returns the permissions that these models can ask for; `None` if there are none.
    pub(crate) fn of(config: &ResolvedConfig, models: &[ModelName]) -> Option<Self> {
        let commands = models.iter().filter(|model| kind(config, &model.provider) == claude_code::NAME);
        let own: Vec<String> = commands
            .filter_map(|model| config.providers.get(&model.provider))
            .flat_map(|provider| provider.command.allowed_tools.clone())
            .collect();
        let tools: Arc<[ToolDefinition]> = own_tool_names(&own).into_iter().filter_map(definition).collect();
        (!tools.is_empty()).then(|| Self { namespace: Namespace::sanitize(PERMISSIONS), tools })
    }

    /// Returns the group of these tools. An agent that selects other tools has them too: `allowedTools` has named them.
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
    /// The command is an agent. Names of built-in tools have no namespace, and `Bash` would be one with `bash`.
    fn kind(&self) -> ProviderKind {
        ProviderKind::Agent
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.tools)
    }

    /// The command asks by itself; a model that called these tools would gain nothing.
    fn is_shown(&self, _: &RunContext) -> bool {
        false
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolName,
        _: &'a ValidArguments,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move { Ok(ToolOutput::text(format!("`{tool}` may be used"))) })
    }
}
