//! The policy of requests that read content of upstream servers without being tool calls.
//!
//! A model may read a resource like the output of a tool. Each such method is therefore a tool of a catalog that no
//! client sees, so that its requests pass the same stages as calls: rules, approvals, queues, timeouts and the journal.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use haft_core::name::{GroupName, Namespace, ToolName};
use haft_core::naming::NamingScheme;
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind, ToolResult};
use haft_core::tool::{DefinitionAuthor, Effects, OutputFact, ToolCall, ToolDefinition, ToolFacts};
use haft_core::validate::ValidArguments;
use haft_engine::{CacheUse, CallOptions, Catalog, Orchestrator};
use serde_json::json;

/// A method whose result contains text of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ContentMethod {
    ReadResource,
    GetPrompt,
    Complete,
}

impl ContentMethod {
    const ALL: [Self; 3] = [Self::ReadResource, Self::GetPrompt, Self::Complete];

    /// Returns the name of the method within the namespace of its server. Rules match `SERVER__NAME`, in every naming
    /// scheme.
    fn tool(self) -> &'static str {
        match self {
            Self::ReadResource => "resources_read",
            Self::GetPrompt => "prompts_get",
            Self::Complete => "completion_complete",
        }
    }

    fn definition(self, namespace: &Namespace) -> ToolDefinition {
        let facts = ToolFacts {
            author: DefinitionAuthor::Protocol,
            // A part of the JSON would be invalid, so a limit of the gateway applies to the whole result.
            output: OutputFact::CapsItself,
            ..ToolFacts::default()
        };
        let definition = ToolDefinition::new(self.tool(), "", json!({ "type": "object" }))
            .with_effects(Effects::ReadOnly)
            .with_facts(facts);
        ToolDefinition { groups: GroupName::new(namespace.as_str()).into_iter().collect(), ..definition }
    }
}

/// The methods of the upstream servers of a client, with the policy of its tools.
#[derive(Debug)]
pub(super) struct PassedMethods {
    orchestrator: Orchestrator,
    work: Arc<PendingWork>,
    /// The names by which the orchestrator knows the methods, by namespace.
    names: HashMap<(String, ContentMethod), String>,
}

impl PassedMethods {
    /// Creates the methods of these servers. `tools` has the rules, queues and limits.
    pub(super) fn new(tools: &Orchestrator, namespaces: impl Iterator<Item = Namespace>) -> Self {
        let work = Arc::new(PendingWork::default());
        let providers = namespaces.map(|namespace| {
            let tools = ContentMethod::ALL.map(|method| method.definition(&namespace)).into();
            Arc::new(MethodProvider { namespace, tools, work: Arc::clone(&work) }) as Arc<dyn ToolProvider>
        });
        let catalog = Catalog::new(providers.collect(), NamingScheme::Double);
        let orchestrator = Orchestrator::new(catalog, tools.config().clone());
        let names = orchestrator.catalog().tools().filter_map(|entry| {
            let identity = entry.identity();
            let mut methods = ContentMethod::ALL.into_iter();
            let method = methods.find(|method| method.tool() == identity.tool.as_str())?;
            Some(((identity.namespace.to_string(), method), entry.exposed().to_string()))
        });
        let names = names.collect();
        Self { orchestrator, work, names }
    }

    /// Returns the name of a method of a server, as rules and records contain it.
    pub(super) fn name(&self, namespace: &str, method: ContentMethod) -> &str {
        self.names.get(&(namespace.to_owned(), method)).map_or(method.tool(), String::as_str)
    }

    /// Carries out `work` after the stages that every call passes. If a stage refuses the call, drops `work`.
    pub(super) async fn execute(
        &self,
        call: ToolCall,
        options: CallOptions,
        work: impl Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    ) -> ToolResult {
        let _pending = self.work.add(&call, Box::pin(work));
        // A cached resource could be older than the notification about its change.
        let options = CallOptions { cache: CacheUse::Bypass, ..options };
        self.orchestrator.execute_with(call, options).await
    }
}

type Work = BoxFuture<'static, Result<ToolOutput, ToolError>>;

/// The work of the requests that have not passed the stages yet, by call id.
#[derive(Default)]
struct PendingWork(Mutex<HashMap<String, Work>>);

impl PendingWork {
    fn add(&self, call: &ToolCall, work: Work) -> PendingGuard<'_> {
        self.lock().insert(call.id.0.clone(), work);
        PendingGuard { work: self, call: call.id.0.clone() }
    }

    fn take(&self, call: &str) -> Option<Work> {
        self.lock().remove(call)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Work>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PendingWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingWork({})", self.lock().len())
    }
}

/// Drops the work of a request that a stage refused.
struct PendingGuard<'a> {
    work: &'a PendingWork,
    call: String,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.work.take(&self.call);
    }
}

/// The methods of one server, as the orchestrator calls them.
struct MethodProvider {
    namespace: Namespace,
    tools: Arc<[ToolDefinition]>,
    work: Arc<PendingWork>,
}

impl ToolProvider for MethodProvider {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Mcp
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.tools)
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolName,
        _: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let missing = || ToolError::new(ToolErrorKind::Internal, "the request has no work");
        self.work.take(&cx.id.0).unwrap_or_else(|| Box::pin(async move { Err(missing()) }))
    }
}

#[cfg(test)]
mod tests {
    use haft_core::glob::ToolGlob;
    use haft_core::rules::{PermissionDecision, PermissionRule, PermissionRules};
    use haft_engine::OrchestratorConfig;

    use super::*;

    fn methods(denied: &str) -> PassedMethods {
        let rule = PermissionRule {
            tool: ToolGlob::new(denied).unwrap(),
            command: None,
            decision: PermissionDecision::Deny,
        };
        let rules = PermissionRules { rules: vec![rule], default: PermissionDecision::Allow };
        let config = OrchestratorConfig { rules, ..OrchestratorConfig::default() };
        let tools = Orchestrator::new(Catalog::new(Vec::new(), NamingScheme::Bare), config);
        PassedMethods::new(&tools, ["one", "two"].into_iter().map(|name| Namespace::new(name).unwrap()))
    }

    #[tokio::test]
    async fn work_runs_only_if_no_rule_denies_the_method_of_its_server() {
        let methods = methods("one__resources_read");
        for (namespace, method, expected) in [
            ("one", ContentMethod::ReadResource, false),
            ("two", ContentMethod::ReadResource, true),
            ("one", ContentMethod::GetPrompt, true),
            ("one", ContentMethod::Complete, true),
        ] {
            let call = ToolCall::new("c", methods.name(namespace, method), &json!({"uri": "a:b"}));
            let work = async { Ok(ToolOutput::text("content")) };
            let result = methods.execute(call, CallOptions::default(), work).await;
            assert_eq!(result.outcome.is_ok(), expected, "{namespace} {method:?}: {result:?}");
            assert!(methods.work.lock().is_empty(), "refused work is dropped");
        }
    }
}
