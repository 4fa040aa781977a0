//! The built-in tools: a shell, files, the date, and a view of a repository.

mod bash;
mod changes;
mod confinement_text;
pub mod date;
mod define;
pub(crate) use define::define;
mod edit;
mod file;
mod introspect;
mod read;
mod transcript;
mod write;

use std::fmt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};

use futures_util::future::BoxFuture;
use haft_core::digest::Digest;
use haft_core::name::{Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::ToolDefinition;
use haft_core::validate::ValidArguments;
use haft_sandbox::{SandboxPolicy, WorkerPool};

pub use bash::{BASH_TIMEOUT_SECS, COMMAND_BYTES_MAX, MAX_BASH_OUTPUT};

/// The name under which the sandbox launcher starts the file worker.
pub const FILE_WORKER: &str = "files";

/// Runs the file worker. The sandbox launcher calls this function in the worker process.
pub fn serve_files(channel: UnixStream) {
    // Ignore the error: a broken channel means that the parent has closed it, and this process ends.
    let _ = crate::files::serve(channel);
}

/// All built-in tools, in listing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Builtin {
    Bash,
    Read,
    Write,
    Edit,
    CurrentDate,
    Introspect,
}

impl Builtin {
    const ALL: [Builtin; 6] = [
        Builtin::Bash,
        Builtin::Read,
        Builtin::Write,
        Builtin::Edit,
        Builtin::CurrentDate,
        Builtin::Introspect,
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Builtin::Bash => "bash",
            Builtin::Read => "read",
            Builtin::Write => "write",
            Builtin::Edit => "edit",
            Builtin::CurrentDate => "current_date",
            Builtin::Introspect => "introspect",
        }
    }

    fn definition(self) -> Option<ToolDefinition> {
        match self {
            Builtin::Bash => bash::definition(),
            Builtin::Read => read::definition(),
            Builtin::Write => write::definition(),
            Builtin::Edit => edit::definition(),
            Builtin::CurrentDate => date::definition(),
            Builtin::Introspect => introspect::definition(),
        }
    }

    async fn call(
        self,
        provider: &BuiltinTools,
        arguments: &ValidArguments,
        cx: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        let (files, store) = (&provider.files, cx.run.outputs.as_deref());
        match self {
            Builtin::Bash => bash::call(arguments.to()?, files.policy(), store, cx).await,
            Builtin::Read => read::call(arguments.to()?, files, store, cx).await,
            Builtin::Write => write::call(arguments.to()?, files, cx).await,
            Builtin::Edit => edit::call(arguments.to()?, files, cx).await,
            Builtin::CurrentDate => date::call(&arguments.to()?),
            Builtin::Introspect => introspect::call(arguments.to()?, files, cx).await,
        }
    }
}

/// The definitions of the built-in tools, without the text about the sandbox of a run.
static DEFINITIONS: LazyLock<Arc<[ToolDefinition]>> =
    LazyLock::new(|| Builtin::ALL.into_iter().filter_map(Builtin::definition).collect());

/// Returns the definitions of the built-in tools, with `bash`, `read`, `write` and `edit` first.
pub fn definitions() -> Vec<ToolDefinition> {
    DEFINITIONS.to_vec()
}

/// Provides the built-in tools under one policy.
pub struct BuiltinTools {
    namespace: Namespace,
    tools: Arc<[ToolDefinition]>,
    files: WorkerPool,
}

impl BuiltinTools {
    /// Creates the tools. The output store for long outputs of `bash` and `read` comes with the context of each call.
    pub fn new(policy: SandboxPolicy) -> Self {
        Self {
            namespace: Namespace::sanitize("builtin"),
            tools: confinement_text::definitions_under(&policy),
            files: WorkerPool::new(FILE_WORKER, policy),
        }
    }

    async fn dispatch(
        &self,
        tool: &ToolName,
        arguments: &ValidArguments,
        cx: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        match Builtin::named(tool.as_str()) {
            Some(builtin) => builtin.call(self, arguments, cx).await,
            None => Err(ToolError::new(ToolErrorKind::UnknownTool, format!("Unknown tool: {tool}"))),
        }
    }
}

impl ToolProvider for BuiltinTools {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Builtin
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        self.tools.clone()
    }

    /// Returns a digest of the sandbox policy and the haft version, because a later version may handle the same call
    /// differently.
    fn source_digest(&self, _: &ToolName, _: &ValidArguments) -> Option<Digest> {
        let policy = format!("{:?}", self.files.policy());
        Some(Digest::of_parts([env!("CARGO_PKG_VERSION").as_bytes(), policy.as_bytes()]))
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(self.dispatch(tool, arguments, cx))
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.files.stop())
    }
}

impl fmt::Debug for BuiltinTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltinTools").field("policy", self.files.policy()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtin_definitions_list_every_tool_in_order() {
        let names: Vec<String> = definitions().iter().map(|definition| definition.name.to_string()).collect();
        assert_eq!(names, ["bash", "read", "write", "edit", "current_date", "introspect"]);
        assert_eq!(
            names,
            Builtin::ALL.map(Builtin::name),
            "each definition has the name by which haft dispatches its calls"
        );
    }

    #[test]
    fn builtin_tools_have_descriptions_and_closed_object_schemas() {
        for definition in definitions() {
            assert!(definition.description.len() > 30, "{}", definition.name);
            assert_eq!(definition.input_schema["type"], "object", "{}", definition.name);
            assert_eq!(definition.input_schema["additionalProperties"], false, "{}", definition.name);
            assert!(definition.input_schema.get("$schema").is_none());
            for (name, property) in definition.input_schema["properties"].as_object().unwrap() {
                assert!(property["description"].is_string(), "{}.{name} has no description", definition.name);
            }
        }
    }
}
