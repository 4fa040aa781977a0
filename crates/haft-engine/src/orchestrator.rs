//! Carries out calls. Here, and only here, stands the order of the stages.

use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use haft_core::arguments::ArgumentLimits;
use haft_core::event::{EventSink, NoEvents};
use haft_core::output::ToolOutput;
use haft_core::provider::Principal;
use haft_core::result::{ToolError, ToolResult};
use haft_core::tool::{Effects, ToolCall};

use crate::catalog::Catalog;
use crate::order::EffectOrder;
use crate::policy::Policies;
use crate::record::CallRecord;
use crate::stage;

/// Turns calls into results. A call that is dropped is cancelled; one that fails harms no other.
#[derive(Debug)]
pub struct Orchestrator {
    catalog: Catalog,
    config: OrchestratorConfig,
}

/// What the operator and the embedding program decide.
#[derive(Clone)]
pub struct OrchestratorConfig {
    pub policies: Policies,
    pub arguments: ArgumentLimits,
    pub principal: Principal,
    pub events: Arc<dyn EventSink>,
}

impl Default for OrchestratorConfig {
    fn default() -> Self {
        Self {
            policies: Policies::default(),
            arguments: ArgumentLimits::default(),
            principal: Principal::local(),
            events: Arc::new(NoEvents),
        }
    }
}

impl fmt::Debug for OrchestratorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrchestratorConfig")
            .field("policies", &self.policies)
            .field("arguments", &self.arguments)
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

impl Orchestrator {
    pub fn new(catalog: Catalog, config: OrchestratorConfig) -> Self {
        Self { catalog, config }
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Carries out one call. Whatever happens, there is a result.
    pub async fn execute(&self, call: ToolCall) -> ToolResult {
        self.carry_out(self.begin(call)).await
    }

    /// Carries out the calls of one turn; the results stand in call order. Calls that only read run at the same time;
    /// any other waits for those before it and holds up those after it.
    pub async fn execute_all(&self, calls: Vec<ToolCall>) -> Vec<ToolResult> {
        let order = EffectOrder::default();
        join_all(calls.into_iter().map(|call| self.execute_in_turn(&order, call))).await
    }

    /// Carries out one call when its turn has come. The place in the order is taken at once, not when first polled, so
    /// a caller that learns of calls one by one can start each as it comes.
    pub fn execute_in_turn<'a>(
        &'a self,
        order: &EffectOrder,
        call: ToolCall,
    ) -> impl Future<Output = ToolResult> + Send + use<'a> {
        let turn = order.enter(self.effects_of(&call.name));
        let record = self.begin(call);
        async move {
            let _turn = turn.await;
            self.carry_out(record.after_waiting()).await
        }
    }

    /// What calling the tool of this name does; `Unknown` when there is none.
    pub fn effects_of(&self, written_name: &str) -> Effects {
        self.catalog.resolve(written_name).map_or(Effects::Unknown, |tool| tool.entry().definition().effects)
    }

    fn begin(&self, call: ToolCall) -> CallRecord {
        CallRecord::begin(call, Arc::clone(&self.config.events))
    }

    async fn carry_out(&self, mut record: CallRecord) -> ToolResult {
        let outcome = self.run_stages(&mut record).await;
        record.finish(outcome)
    }

    /// The order of the stages is a safety property: a tool that may not be called reveals no complaints about
    /// arguments, nothing runs unvalidated, and a cap holds for whatever came out.
    async fn run_stages(&self, record: &mut CallRecord) -> Result<ToolOutput, ToolError> {
        let arguments = stage::parse(record, &self.config.arguments)?;
        let tool = stage::resolve(record, &self.catalog)?;
        let policy = self.config.policies.of(tool.entry().exposed());
        stage::admit(&tool, policy.approval)?;
        let arguments = stage::validate(record, &tool, arguments)?;
        let deadline = stage::Deadline::after(policy.timeout);
        let context = record.reach_provider(self.config.principal.clone(), deadline.limit());
        let outcome = deadline.bound(&tool, stage::call(&tool, &arguments, &context)).await;
        record.keep_notes(&context);
        stage::fit(outcome, policy.output)
    }
}
