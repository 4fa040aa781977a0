//! Executes tool calls. Only this file defines the order of the stages.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{OptionFuture, join_all};
use haft_core::arguments::ArgumentLimits;
use haft_core::digest::CallKey;
use haft_core::event::{EventSink, NoEvents};
use haft_core::grant::Grant;
use haft_core::internal_tools::tool_search::TOOL_SEARCH;
use haft_core::output::ToolOutput;
use haft_core::position::RunPosition;
use haft_core::provider::ProviderKind;
use haft_core::result::{ToolError, ToolResult};
use haft_core::rules::{PermissionDecision, PermissionRules};
use haft_core::run::context::RunContext;
use haft_core::tokens::{LengthEstimator, TokenCounter};
use haft_core::tool::{ApprovalPolicy, Effects, ToolCall};
use haft_core::tool_switches::ToolSwitches;
use haft_core::validate::{SchemaDraft, ValidArguments};

use crate::cache::{Cache, NeededForm};
use crate::call_record::CallRecord;
use crate::catalog::{Catalog, CatalogEntry, ResolvedTool};
use crate::options::CallOptions;
use crate::order::EffectOrder;
use crate::policy::{
    GovernedTool, InactiveReason, TOOL_TIMEOUT_MAX_DEFAULT, ToolActivity, ToolPolicies, UncheckedSchemas,
};
use crate::queue::{Queues, UndefinedQueue};
use crate::selection::ToolFilter;
use crate::stage::{self, CacheStageResult, Deadline, FitResources, SchemaCheckSettings};
use crate::tool_finder::{self, ToolFinder};
use haft_core::run::journal::Durability;

/// Executes calls and returns their results. Dropping the future of a call cancels it. A failed call does not affect
/// other calls.
#[derive(Debug)]
pub struct Orchestrator {
    catalog: Catalog,
    config: OrchestratorConfig,
    finder: ToolFinder,
}

/// The settings of the operator and of the embedding program.
#[derive(Clone)]
pub struct OrchestratorConfig {
    /// The timeout, queue, cache and output limits of each tool.
    pub policies: ToolPolicies,
    /// The limits on the arguments of a call.
    pub arguments: ArgumentLimits,
    /// The treatment of schemas that do not compile.
    pub unchecked: UncheckedSchemas,
    /// The JSON Schema draft to assume for a schema that does not name its draft.
    pub draft: SchemaDraft,
    /// The maximum time for any call, including the time it waits.
    pub tool_timeout_max: Duration,
    /// The queues that policies name. Clones share their slots with other orchestrators.
    pub queues: Queues,
    /// The output cache. Clones share it with other orchestrators.
    pub cache: Cache,
    /// The operator's rules. Without rules, every call is allowed.
    pub rules: PermissionRules,
    /// The time for which a remembered approval is valid; `None` if it is valid until it is revoked.
    pub grant_lifetime: Option<Duration>,
    /// The decision about calls that change or send data after their run has read untrusted text. With any decision
    /// except `Allow`, trusted outputs for a model are also enclosed in delimiters; untrusted outputs always are.
    pub after_untrusted: PermissionDecision,
    /// Counts the tokens of an output for the context budget. It is not used for a call without a budget.
    pub tokens: Arc<dyn TokenCounter>,
    /// Selects whether events contain arguments and results.
    pub capture: ContentCapture,
    /// The tools that an administrator turned off. Clones share them with other orchestrators. The catalog must get
    /// their change counter, so that lists of tools are built again after a change.
    pub switches: ToolSwitches,
}

impl OrchestratorConfig {
    /// Returns the policy of a tool at this moment. The tool is inactive while an administrator has turned it off.
    pub(crate) fn governed(&self, tool: &CatalogEntry) -> GovernedTool {
        let governed = tool.governed(&self.policies).clone();
        match self.inactivity(tool) {
            Some(why) => GovernedTool { activity: ToolActivity::Inactive { why }, ..governed },
            None => governed,
        }
    }

    /// Returns the reason why a tool is inactive at this moment; `None` for an active tool. The configuration comes
    /// first, so that turning a tool on never activates a tool that the configuration denies.
    pub(crate) fn inactivity(&self, tool: &CatalogEntry) -> Option<InactiveReason> {
        let GovernedTool { activity, groups, .. } = tool.governed(&self.policies);
        match activity {
            ToolActivity::Inactive { why } => Some(why.clone()),
            ToolActivity::Active => {
                let switches = self.switches.current();
                switches.reason(tool.identity(), groups).map(|why| InactiveReason::TurnedOff(why.to_owned()))
            }
        }
    }
}

/// Selects whether events contain the content of calls. Arguments and results may contain secrets, so only the operator
/// can enable this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContentCapture {
    /// Events contain only sizes and digests.
    #[default]
    Nothing,
    /// Events also contain arguments and results, each truncated to a maximum length.
    Content,
}

impl Default for OrchestratorConfig {
    fn default() -> Self {
        Self {
            policies: ToolPolicies::default(),
            arguments: ArgumentLimits::default(),
            unchecked: UncheckedSchemas::default(),
            draft: SchemaDraft::default(),
            tool_timeout_max: TOOL_TIMEOUT_MAX_DEFAULT,
            queues: Queues::default(),
            cache: Cache::default(),
            rules: PermissionRules::default(),
            grant_lifetime: None,
            after_untrusted: PermissionDecision::Allow,
            tokens: Arc::new(LengthEstimator),
            capture: ContentCapture::Nothing,
            switches: ToolSwitches::default(),
        }
    }
}

impl fmt::Debug for OrchestratorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrchestratorConfig")
            .field("policies", &self.policies)
            .field("arguments", &self.arguments)
            .field("tool_timeout_max", &self.tool_timeout_max)
            .field("queues", &self.queues)
            .field("cache", &self.cache)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl Orchestrator {
    /// Creates an orchestrator without checking the queue names in the policies. If a tool's policy names an undefined
    /// queue, every call to this tool returns an error. Use `try_new` if policies name queues.
    pub fn new(catalog: Catalog, config: OrchestratorConfig) -> Self {
        Self { catalog, config, finder: ToolFinder::default() }
    }

    /// Creates an orchestrator, or returns an error if a policy names an undefined queue.
    pub fn try_new(catalog: Catalog, config: OrchestratorConfig) -> Result<Self, UndefinedQueue> {
        for policy in config.policies.all() {
            config.queues.of(policy.queue.as_ref())?;
        }
        let this = Self::new(catalog, config);
        if this.config.policies.governor.is_some() {
            // Do not call `tools` here: it would make the names permanent before any caller has seen them.
            for tool in this.catalog.snapshot().tools() {
                let queue = tool.governed(&this.config.policies).policy.queue.as_ref();
                this.config.queues.of(queue)?;
            }
        }
        Ok(this)
    }

    /// Returns the tools of all providers.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the settings with which the orchestrator was created.
    pub fn config(&self) -> &OrchestratorConfig {
        &self.config
    }

    /// Returns the tools that the model sees in a run, sorted by exposed name, each with its policy.
    pub fn tools(&self, selection: &ToolFilter, run: &RunContext) -> Vec<OfferedTool> {
        let shown = |entry: Arc<CatalogEntry>| {
            let governed = entry.governed(&self.config.policies);
            let chosen = entry.provider().is_shown(run)
                && self.config.inactivity(&entry).is_none()
                && selection.covers(entry.exposed(), entry.identity(), &governed.groups, governed.effects);
            // Copy only the policies of chosen tools, because a run without tools would copy all of them for nothing.
            let governed = chosen.then(|| governed.clone())?;
            Some(OfferedTool { entry, governed })
        };
        self.catalog.tools().filter_map(shown).collect()
    }

    /// Returns all active tools in a selection, sorted by exposed name. Unlike [`tools`](Self::tools), also returns
    /// tools that their provider does not show to a run yet, for a caller that needs a stable list.
    pub fn active_tools(&self, selection: &ToolFilter) -> Vec<OfferedTool> {
        let active = |entry: Arc<CatalogEntry>| {
            let governed = self.config.governed(&entry);
            let chosen = governed.activity.is_active()
                && selection.covers(entry.exposed(), entry.identity(), &governed.groups, governed.effects);
            chosen.then_some(OfferedTool { entry, governed })
        };
        self.catalog.tools().filter_map(active).collect()
    }

    /// Returns all tools of all providers, sorted by exposed name. For an inactive tool, `governed.activity` contains
    /// the reason.
    pub fn all_tools(&self) -> Vec<OfferedTool> {
        let governed =
            |entry: Arc<CatalogEntry>| OfferedTool { governed: self.config.governed(&entry), entry };
        self.catalog.tools().map(governed).collect()
    }

    /// Returns the decision of the rules about a tool before the arguments of a call are known. `Deny` means that every
    /// call is denied.
    pub fn standing_decision(&self, tool: &OfferedTool) -> PermissionDecision {
        let of_policy = match tool.governed.policy.approval {
            ApprovalPolicy::Allow => PermissionDecision::Allow,
            ApprovalPolicy::Ask => PermissionDecision::Ask,
            ApprovalPolicy::Deny => PermissionDecision::Deny,
        };
        self.config.rules.admit(tool.entry.exposed().as_str()).decision.max(of_policy)
    }

    /// Executes one call. It returns a result in every case, including errors, panics and timeouts.
    pub async fn execute(&self, call: ToolCall) -> ToolResult {
        self.execute_with(call, CallOptions::default()).await
    }

    /// Executes one call with the options of its run.
    pub async fn execute_with(&self, call: ToolCall, options: CallOptions) -> ToolResult {
        self.carry_out(self.begin(call, &options), options).await
    }

    /// Records work that is not a tool call, such as reading a stored output, with the same events as a call. The work
    /// passes through no stage.
    pub async fn record(
        &self,
        call: ToolCall,
        options: &CallOptions,
        work: impl Future<Output = Result<ToolOutput, ToolError>>,
    ) -> ToolResult {
        let mut record = self.begin(call, options);
        record.reach_engine();
        let outcome = work.await;
        record.finish(outcome)
    }

    /// Executes the calls of one turn, each with these options, and returns the results in call order. Read-only calls
    /// run concurrently; every other call waits for the calls before it and blocks the calls after it.
    pub async fn execute_all(&self, calls: Vec<ToolCall>, options: CallOptions) -> Vec<ToolResult> {
        let order = EffectOrder::default();
        join_all(calls.into_iter().map(|call| self.execute_in_turn(&order, call, options.clone()))).await
    }

    /// Executes one call when its turn comes. Takes the position in the order immediately, not when the future is first
    /// polled, so a caller that receives calls one by one can start each of them on arrival.
    pub fn execute_in_turn<'a>(
        &'a self,
        order: &EffectOrder,
        call: ToolCall,
        options: CallOptions,
    ) -> impl Future<Output = ToolResult> + Send + use<'a> {
        let turn = self.waits_for_turn(order, &call.name).then(|| order.enter(self.effects_of(&call.name)));
        let record = self.begin(call, &options);
        async move {
            let _turn = OptionFuture::from(turn).await;
            self.carry_out(record.after_waiting(), options).await
        }
    }

    /// Returns the stored grants that cover a call for which the rules require approval, without making the call.
    /// Returns an empty list if the rules allow or deny the call, and an error if the call would fail before the rules
    /// are checked.
    pub async fn covering_grants(&self, call: ToolCall, run: &RunContext) -> Result<Vec<Grant>, ToolError> {
        let config = &self.config;
        let OrchestratorConfig { policies, arguments, unchecked, draft, rules, .. } = config;
        let events: Arc<dyn EventSink> = Arc::new(NoEvents);
        let mut record = CallRecord::begin(
            call,
            RunPosition::default(),
            run.principal.clone(),
            events,
            ContentCapture::Nothing,
        );
        let arguments = stage::parse(&mut record, arguments)?;
        let catalog = self.catalog.named_snapshot();
        let fits = |tool: &CatalogEntry| {
            config.inactivity(tool).is_none() && tool.schema(*draft).accepts(&arguments)
        };
        let tool = stage::resolve(&mut record, &catalog, policies, fits)?;
        let GovernedTool { policy, effects, .. } = tool.entry().governed(policies);
        let checking = SchemaCheckSettings { unchecked: *unchecked, draft: *draft };
        let arguments = stage::validate(&mut record, &tool, *effects, arguments, checking)?;
        let ruling = stage::ruling(&tool, &arguments, policy.approval, rules);
        let binding = stage::binding(&tool, run);
        Ok(stage::covering_grants(&stage::asked_call(&tool, &arguments, &ruling, rules, &binding), run).await)
    }

    /// Returns the effects of the named tool. Returns `Unknown` if no tool has this name, or if several have it and
    /// only the arguments can decide.
    pub fn effects_of(&self, written_name: &str) -> Effects {
        if written_name == TOOL_SEARCH {
            return Effects::ReadOnly;
        }
        let effects = |tool: Arc<CatalogEntry>| tool.governed(&self.config.policies).effects;
        self.catalog.resolve(written_name).map_or(Effects::Unknown, effects)
    }

    /// Returns the durability that the journal entry for the result of this tool needs.
    pub(crate) fn durability_for(&self, written_name: &str) -> Durability {
        if written_name == TOOL_SEARCH {
            return Durability::for_effects(Effects::ReadOnly);
        }
        let trusted_effects = |tool: Arc<CatalogEntry>| tool.governed(&self.config.policies).trusted_effects;
        Durability::for_effects(self.catalog.resolve(written_name).map_or(Effects::Unknown, trusted_effects))
    }

    /// Returns true if a call that may already have run can be repeated after a crash. This is always true for a call
    /// of a sub-agent, because the sub-agent resumes from its own journal.
    pub fn may_repeat(&self, written_name: &str) -> bool {
        let Ok(tool) = self.catalog.resolve(written_name) else { return false };
        let is_agent = tool.identity().kind == ProviderKind::Agent;
        match tool.governed(&self.config.policies).trusted_effects {
            Effects::ReadOnly | Effects::Idempotent => true,
            Effects::Mutating | Effects::Unknown => is_agent,
        }
    }

    /// Returns true if a call waits for the calls before it. If calls may run in parallel, a sub-agent's call does not
    /// wait, because the calls inside the sub-agent take their own positions.
    fn waits_for_turn(&self, order: &EffectOrder, written_name: &str) -> bool {
        let is_agent = |tool: Arc<CatalogEntry>| tool.identity().kind == ProviderKind::Agent;
        order.is_one_at_a_time() || !self.catalog.resolve(written_name).is_ok_and(is_agent)
    }

    fn begin(&self, call: ToolCall, options: &CallOptions) -> CallRecord {
        let of_run = options.scope.as_ref().map(|scope| Arc::clone(&scope.meter) as Arc<dyn EventSink>);
        let context = &options.context;
        let events = of_run.unwrap_or_else(|| Arc::clone(&context.events));
        CallRecord::begin(call, options.place, context.principal.clone(), events, self.config.capture)
    }

    /// Executes the call. Reserves context tokens before the first stage, because every result takes space in the
    /// conversation, even a refusal.
    async fn carry_out(&self, mut record: CallRecord, options: CallOptions) -> ToolResult {
        let outcome = match stage::reserve(options.budget.as_ref()) {
            Ok(reserved) => {
                let outcome = match &options.search {
                    Some(scope) if record.call.name == TOOL_SEARCH => {
                        self.finder.answer(&mut record, self, (scope, &options))
                    }
                    Some(_) | None => self.run_stages(&mut record, &options).await,
                };
                let outcome = stage::settle(&mut record, outcome, reserved, self.means(&options));
                // Only a model needs delimiters. A program that makes a single call outside a run gets the output
                // unchanged.
                stage::delimit(outcome, record.source.as_deref().filter(|_| options.scope.is_some()))
            }
            Err(error) => Err(error),
        };
        record.finish(outcome)
    }

    fn means<'a>(&'a self, options: &'a CallOptions) -> FitResources<'a> {
        FitResources { store: options.context.outputs.as_deref(), counter: self.counter(options) }
    }

    /// Returns the real token counter only if there is a budget. Without one, loading a vocabulary would cost more than
    /// the call.
    pub(crate) fn counter(&self, options: &CallOptions) -> &dyn TokenCounter {
        if options.budget.is_some() { &*self.config.tokens } else { &LengthEstimator }
    }

    /// Runs the stages in order. The order is a safety property: a denied tool reveals no schema errors, no tool runs
    /// with unvalidated arguments, the cache answers only callers that may make the call, a cached result takes no
    /// queue slot, and the output limit applies to every result.
    async fn run_stages(
        &self,
        record: &mut CallRecord,
        options: &CallOptions,
    ) -> Result<ToolOutput, ToolError> {
        let config = &self.config;
        let checking = SchemaCheckSettings { unchecked: config.unchecked, draft: config.draft };
        let arguments = stage::parse(record, &config.arguments)?;
        let catalog = self.catalog.named_snapshot();
        let fits = |tool: &CatalogEntry| {
            config.inactivity(tool).is_none() && tool.schema(config.draft).accepts(&arguments)
        };
        let tool = stage::resolve(record, &catalog, &config.policies, fits)?;
        let governed @ GovernedTool { policy, effects, trusted_effects, .. } =
            tool.entry().governed(&config.policies);
        stage::admit(
            record,
            &tool,
            (governed, config.inactivity(tool.entry())),
            &options.selection,
            &config.rules,
        )?;
        let arguments = stage::validate(record, &tool, *effects, arguments, checking)
            .map_err(|error| tool_finder::with_definition(error, &tool, options.search.as_deref()))?;
        let ruling = stage::authorize(record, &tool, &arguments, policy.approval, &config.rules)?;
        let after = (config.after_untrusted, &*options.context);
        let ruling = stage::after_untrusted(record, &tool, (ruling, *trusted_effects), after)?;
        let asked = stage::caller_approval(record, &tool, (ruling, governed), &options.context);
        // The deadline starts after the user's answer, because the time that a person takes to answer must not cause a
        // timeout.
        let granting = (&config.rules, config.grant_lifetime);
        stage::approve(record, &tool, &arguments, &asked, granting, &options.context).await?;
        let queue = stage::queue_of(&tool, policy, options.concurrency, &config.queues)?;
        let deadline = Deadline::begin(&tool, policy, queue, options, config.tool_timeout_max);
        let ttl = stage::ttl(policy.cache_ttl, *effects, options.cache);
        let form = NeededForm::of(tool.entry().identity().kind, options.context.raw_results);
        let key = key(&tool, &arguments, &options.context);
        let source = || tool.entry().source_digest(&arguments);
        let outcome = match stage::cache(record, &config.cache, (ttl, form), (key, source), &deadline).await?
        {
            CacheStageResult::Hit(output) => stage::check_output(record, &tool, Ok(output), checking),
            CacheStageResult::Miss(keeper) => {
                let priority = policy.priority.unwrap_or(options.priority);
                let caller = (&options.context.principal, priority);
                let slot = stage::queue(record, queue, caller, &deadline).await?;
                stage::confirm(record, (&tool, &catalog), self, &deadline).await?;
                let durability = Durability::for_effects(*trusted_effects);
                stage::journal(record, options.journal.as_deref(), durability, &deadline).await?;
                let progress = record.bounded_progress();
                let idle =
                    stage::IdleWatch::watch(tool.entry().exposed(), policy.idle_timeout, progress.clone());
                let context = record
                    .reach_provider(Arc::clone(&options.context), deadline.limit(), idle.sink())
                    .with_priority(priority)
                    .with_scope(options.scope.clone());
                let call = stage::call(&tool, &arguments, &context);
                let outcome = deadline.bound(idle.bound(call)).await;
                record.record_notes(&context, &progress);
                let outcome = stage::check_output(record, &tool, outcome, checking);
                // The tool has finished, so the next call in the queue need not wait for the store.
                drop(slot);
                keeper.keep(&outcome, &deadline).await;
                outcome
            }
        };
        stage::note_untrusted(record, &tool, after);
        stage::fit(record, outcome, policy.output, self.means(options))
    }
}

fn key<'a>(tool: &ResolvedTool<'a>, arguments: &'a ValidArguments, run: &'a RunContext) -> CallKey<'a> {
    CallKey {
        identity: tool.entry().identity(),
        definition: tool.entry().digest(),
        arguments,
        principal: &run.principal,
        scope: &run.workspace,
    }
}

/// A tool in a request, with its policy.
#[derive(Debug, Clone)]
pub struct OfferedTool {
    /// The tool in the catalog.
    pub entry: Arc<CatalogEntry>,
    /// The tool's policy, effects and groups under this orchestrator's configuration.
    pub governed: GovernedTool,
}
