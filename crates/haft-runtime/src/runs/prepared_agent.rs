//! An agent bound to its models, tools and limits.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use haft_core::compaction::CompactionRules;
use haft_core::conversation::Conversation;
use haft_core::glob::ToolGlob;
use haft_core::internal_tools::batch::BATCH;
use haft_core::internal_tools::final_report::FINAL_REPORT;
use haft_core::internal_tools::handoff::HANDOFF;
use haft_core::internal_tools::is_own_tool;
use haft_core::internal_tools::task_status::TASK_STATUS;
use haft_core::model_provider::{ModelContext, ModelProvider};
use haft_core::model_request::{ModelRequest, ModelTool, ToolChoice};
use haft_core::name::GroupName;
use haft_core::naming::{MCP_ITEM_PREFIX, MCP_READING_PREFIX, MCP_WRITING_PREFIX, ToolIdentity};
use haft_core::position::RunPosition;
use haft_core::run::RunPlan;
use haft_core::run::context::RunContext;
use haft_core::run::exposure::{ToolExposure, ToolListGrowth};
use haft_core::run::scope::RunScope;
use haft_core::settings::tool_search::ToolExposeForm;
use haft_engine::compact::{CompactError, CompactedConversation, compact};
use haft_engine::exposure::{ExposureRequest, ModelToolLimits};
use haft_engine::{
    CallOptions, CatalogEntry, InstructionPolicy, OfferedTool, Orchestrator, RunDriver, ToolFilter,
    ToolFilterItem, ToolsetVersion,
};
use haft_models::capability::loads_tools;
use haft_models::schema::defects;

use super::agent_tools::AgentTools;
use super::caller_choice::RunTools;
use super::environment::RunEnvironment;
use super::optional_tools;
use super::output_reader::ModelReader;
use super::request_sizes::request_sizes;
use super::system_prompt::{self, InstructionSources};
use crate::claude_code::CommandPermissions;
use crate::models::{self, ModelsError};
use crate::wiring::OrchestratorOptions;
use haft_config::agents::graph::NAMESPACE;
use haft_config::agents::{AgentAccess, AgentDefinition, DefaultText, ReportDelivery};
use haft_config::project_instructions::InstructionFile;
use haft_config::resolved::{CompactionStart, ModelName};
use haft_config::{ResolvedConfig, printable};

/// An agent that is ready to receive requests. Several runs of it may be in progress at once.
pub struct PreparedAgent {
    agent: AgentDefinition,
    model: ModelName,
    models: Arc<dyn ModelProvider>,
    /// The model that reads stored outputs. Its name is checked when the agent is prepared; the reader is built on
    /// first use.
    reading: OutputReaderModel,
    /// The model that summarizes old turns, and the rules for it; `None` if the agent does not compact.
    compaction: Option<CompactionModel>,
    environment: Arc<RunEnvironment>,
    /// The orchestrator, built on first use: the tools of MCP servers are known only once the servers are ready.
    orchestrator: OnceLock<Orchestrator>,
    links: LinkedAgents,
    purpose: AgentPurpose,
    /// The configuration, with this agent's changes for its own calls.
    config: Arc<ResolvedConfig>,
    /// The warnings about the last set of tools that a run saw, cached because checking thousands of schemas takes
    /// longer than the rest of a start.
    checked: Mutex<Option<(ToolsetVersion, Vec<String>)>>,
}

/// The purpose of an agent: to work on requests, or to read a stored output for another agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentPurpose {
    Work,
    ReadOutput,
}

/// The agents that an agent can call or hand the request to.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkedAgents {
    /// Agents that this agent calls as tools.
    pub(super) below: Vec<Arc<PreparedAgent>>,
    /// Agents that can take over the request and then answer in place of this agent.
    pub(super) destinations: Vec<Arc<PreparedAgent>>,
    /// The agent that receives the finished answer of this agent.
    pub(super) handoff: Option<Arc<PreparedAgent>>,
}

impl PreparedAgent {
    pub(super) fn new(
        environment: &Arc<RunEnvironment>,
        agent: AgentDefinition,
        links: LinkedAgents,
    ) -> Result<Arc<Self>, ModelsError> {
        let config = environment.config();
        let names = model_names(&agent, config)?;
        let models: Arc<dyn ModelProvider> = environment.models(&names)?.into();
        let model = names.into_iter().next().ok_or(ModelsError::NoModel)?;
        let reading = reading(
            environment,
            &agent,
            OutputReaderModel { model: model.clone(), models: Arc::clone(&models) },
        )?;
        let compaction = compaction(environment, &agent, (&model, &models))?;
        let agent =
            with_model_settings(with_default_body(agent, environment.parts.workspace()), config, &model);
        let environment = Arc::clone(environment);
        let orchestrator = OnceLock::new();
        let purpose = AgentPurpose::Work;
        let config = own_config(&agent, environment.config());
        Ok(Arc::new(Self {
            config,
            checked: Mutex::default(),
            agent,
            model,
            models,
            reading,
            compaction,
            environment,
            orchestrator,
            links,
            purpose,
        }))
    }

    /// Prepares an agent that has only the tools of this orchestrator.
    pub(super) fn with_tools(
        environment: &Arc<RunEnvironment>,
        agent: AgentDefinition,
        reading: &OutputReaderModel,
        orchestrator: Orchestrator,
    ) -> Arc<Self> {
        let OutputReaderModel { model, models } = reading.clone();
        let agent = with_model_settings(agent, environment.config(), &model);
        Arc::new(Self {
            config: own_config(&agent, environment.config()),
            checked: Mutex::default(),
            agent,
            model,
            models,
            reading: reading.clone(),
            compaction: None,
            environment: Arc::clone(environment),
            orchestrator: OnceLock::from(orchestrator),
            links: LinkedAgents::default(),
            purpose: AgentPurpose::ReadOutput,
        })
    }

    /// Returns the agent as its file describes it.
    pub fn agent(&self) -> &AgentDefinition {
        &self.agent
    }

    /// Returns the environment that the agent shares with others.
    pub fn environment(&self) -> &Arc<RunEnvironment> {
        &self.environment
    }

    /// Returns the model that is tried first.
    pub fn model(&self) -> &ModelName {
        &self.model
    }

    /// Returns the orchestrator over the agent's tools and the agents it may call. Builds it on first use.
    pub fn orchestrator(&self) -> &Orchestrator {
        self.orchestrator.get_or_init(|| {
            let below = &self.links.below;
            let agents = (!below.is_empty()).then(|| Arc::new(AgentTools::new(below.clone())) as _);
            let permissions = self.command_permissions().map(|permissions| Arc::new(permissions) as _);
            let cached_answer = |prepared_agent: &Arc<PreparedAgent>| {
                let agent = prepared_agent.agent();
                Some((agent.tool_name.clone(), agent.outputs.cache_ttl?))
            };
            let own = OrchestratorOptions {
                providers: agents.into_iter().chain(permissions).collect(),
                answers_kept: below.iter().filter_map(cached_answer).collect(),
                reader: Some(Arc::new(ModelReader::new(&self.environment, &self.agent, &self.reading))),
                ..OrchestratorOptions::default()
            };
            self.environment.parts.orchestrator(&self.config, own)
        })
    }

    fn command_permissions(&self) -> Option<CommandPermissions> {
        let names = model_names(&self.agent, self.environment.config()).ok()?;
        CommandPermissions::of(self.environment.config(), &names)
    }

    pub(super) fn links(&self) -> &LinkedAgents {
        &self.links
    }

    /// Returns the plan of one run of this agent. `path` lists the agents above the run.
    pub fn plan(&self, path: &[String], run: &RunContext) -> RunPlan {
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let others = self.orchestrator().tools(&self.selection(), run).len();
        let offer = optional_tools::offer(&self.agent, others);
        let (allowed_tools, tool_choice) = (self.allowed_tools(), self.tool_choice());
        let compaction = self.compaction.as_ref().map(|compaction| compaction.rules.clone());
        RunPlan {
            offer,
            allowed_tools,
            tool_choice,
            compaction,
            ..self.agent.plan(path.to_vec(), &nonce[..8])
        }
    }

    /// Decides which tools the model of a run sees. `functions` is the number of functions that the caller runs itself.
    pub(super) fn exposure(&self, plan: &RunPlan, run: &RunContext, functions: usize) -> ToolExposure {
        let config = self.environment.config();
        let pinned = match &plan.tool_choice {
            ToolChoice::Named(name) => Some(name.as_str()),
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Required | ToolChoice::Allowed { .. } => None,
        };
        let request = ExposureRequest {
            settings: &self.agent.tool_search.over(&config.tool_search),
            limits: ModelToolLimits {
                tools_max: models::format_of(config, &self.model.provider).and_then(models::tools_max),
                window_tokens: plan.limits.context.map(|context| context.window_tokens),
            },
            pinned,
            own_tools: OWN_TOOLS_MAX + functions,
            lock: config.tool_lock.as_deref(),
        };
        self.orchestrator().expose(&self.selection(), run, &request)
    }

    /// Returns the hidden tools, for a model that loads tools by name; empty for other models.
    fn deferred(&self, plan: &RunPlan, shown: &[ModelTool], run: &RunContext) -> Arc<[ModelTool]> {
        let config = self.environment.config();
        let format = models::format_of(config, &self.model.provider);
        let Some(format) = format.filter(|format| loads_tools(*format, &self.model.model)) else {
            return Arc::new([]);
        };
        let is_constant = plan.search().is_some_and(|search| search.growth == ToolListGrowth::Constant);
        let expose = self.agent.tool_search.expose.unwrap_or(config.tool_search.expose);
        if !is_constant || expose != ToolExposeForm::Auto {
            return Arc::new([]);
        }
        let shown: HashSet<&str> = shown.iter().map(|tool| tool.name.as_str()).collect();
        let tools = self.orchestrator().model_tools(&self.selection(), run);
        let hidden: Arc<[ModelTool]> =
            tools.iter().filter(|tool| !shown.contains(tool.name.as_str())).cloned().collect();
        if models::carries_hidden(format, &hidden) { hidden } else { Arc::new([]) }
    }

    /// Returns the tools with these exposed names, in this order. Omits tools that do not exist any more.
    pub(super) fn tools_named(&self, names: &[String], run: &RunContext) -> Vec<ModelTool> {
        let tools = self.orchestrator().model_tools(&self.selection(), run);
        let by_name: HashMap<&str, &ModelTool> =
            tools.iter().map(|tool| (tool.name.as_str(), tool)).collect();
        names.iter().filter_map(|name| by_name.get(name.as_str()).map(|tool| (*tool).clone())).collect()
    }

    /// Returns the tool name that the model sees. The configuration may refer to a tool by any of its names.
    pub(super) fn exposed_name(&self, name: &str) -> String {
        match self.orchestrator().catalog().resolve(name) {
            Ok(tool) => tool.exposed().to_string(),
            Err(_) => name.to_owned(),
        }
    }

    pub(super) fn allowed_tools(&self) -> Option<Vec<String>> {
        let names = self.agent.reach.allowed_tools.as_ref()?;
        Some(names.iter().map(|name| self.exposed_name(name)).collect())
    }

    pub(super) fn tool_choice(&self) -> ToolChoice {
        match &self.agent.reach.tool_choice {
            ToolChoice::Named(name) => ToolChoice::Named(self.exposed_name(name)),
            other => other.clone(),
        }
    }

    /// Returns whether the runs of the agent have tools of their own that meet a required call.
    pub(super) fn run_tools(&self) -> RunTools {
        let reports = self.agent.report.by == ReportDelivery::Tool;
        if self.links.destinations.is_empty() && !reports { RunTools::None } else { RunTools::Some }
    }

    /// Returns the identity of the tool that a name means, for this agent and the agents that can take over its run.
    pub(crate) fn tool_identity(self: &Arc<Self>, name: &str) -> Option<ToolIdentity> {
        let own = self.orchestrator().catalog().resolve(name).ok();
        let found = own.or_else(|| {
            let mut others = self.reachable_agents().into_iter().skip(1);
            others.find_map(|agent| agent.orchestrator().catalog().resolve(name).ok())
        });
        found.map(|tool| tool.identity().clone())
    }

    /// Returns the reason why the tools of the agent cannot meet the tool choice. Call this method once the tools are
    /// ready.
    pub fn unmet_choice(&self, run: &RunContext) -> Option<String> {
        let shown = || self.orchestrator().tools(&self.selection(), run);
        match self.tool_choice() {
            ToolChoice::Named(name) => {
                let is_there =
                    is_own_tool(&name) || shown().iter().any(|tool| tool.entry.exposed().as_str() == name);
                (!is_there).then(|| format!("there is no tool `{}`", printable(&name)))
            }
            ToolChoice::Required if shown().is_empty() => {
                Some("a tool call is required, but the agent has no tools".into())
            }
            ToolChoice::Required | ToolChoice::Auto | ToolChoice::None | ToolChoice::Allowed { .. } => None,
        }
    }

    /// Returns the tools that the model sees and may call. They always include the agents that this agent calls.
    pub fn selection(&self) -> ToolFilter {
        let Some(globs) = &self.agent.reach.tools else { return ToolFilter::All };
        let agents = if self.links.below.is_empty() { None } else { GroupName::new(NAMESPACE).ok() };
        let agents = agents.map(ToolFilterItem::Group);
        let permissions = CommandPermissions::group().map(ToolFilterItem::Group);
        ToolFilter::of(globs.iter().flat_map(picks).chain(agents).chain(permissions))
    }

    /// Returns every agent that can receive the request or a part of it, starting with this one.
    pub fn reachable_agents(self: &Arc<Self>) -> Vec<Arc<Self>> {
        let mut found = vec![Arc::clone(self)];
        let mut at = 0;
        while let Some(prepared_agent) = found.get(at).map(Arc::clone) {
            let LinkedAgents { below, destinations, handoff } = &prepared_agent.links;
            for next in below.iter().chain(destinations).chain(handoff) {
                if !found.iter().any(|known| Arc::ptr_eq(known, next)) {
                    found.push(Arc::clone(next));
                }
            }
            at += 1;
        }
        found
    }

    /// Returns the tool names and patterns of the agent that match no tool. Call this method once the tools are ready.
    pub fn unresolved_names(&self) -> Vec<String> {
        let AgentAccess { tools, allowed_tools, .. } = &self.agent.reach;
        let catalog = self.orchestrator().catalog().snapshot();
        let theirs = catalog.tools().map(|tool| tool.exposed().as_str());
        let all: Vec<&str> = theirs.chain([FINAL_REPORT, TASK_STATUS, BATCH, HANDOFF]).collect();
        let in_group = |group: &GroupName| {
            self.environment.config().groups.contains_key(group)
                || catalog.tools().any(|tool| tool.definition().groups.contains(group))
        };
        let matches_a_server = |glob: &ToolGlob| {
            let effects = |tool: &CatalogEntry| self.orchestrator().effects_of(tool.exposed().as_str());
            let selection = mcp_item(glob).map(|item| ToolFilter::of([item]));
            let covers = |tool: &Arc<CatalogEntry>, selection: &ToolFilter| {
                selection.covers(tool.exposed(), tool.identity(), &[], effects(tool))
            };
            selection.is_some_and(|selection| catalog.tools().any(|tool| covers(tool, &selection)))
        };
        let nothing = |glob: &ToolGlob| {
            !matches_a_server(glob)
                && !all.iter().any(|name| glob.matches(name))
                && !group_of(glob).is_some_and(|group| in_group(&group))
        };
        let shown = tools.iter().flatten().filter(|glob| nothing(glob)).map(ToString::to_string);
        let allowed = allowed_tools
            .iter()
            .flatten()
            .filter(|name| !self.is_a_tool(name) && !all.contains(&name.as_str()));
        shown.chain(allowed.cloned()).collect()
    }

    /// Returns the warnings about the tools of the agent. Call this method once the tools are ready.
    pub fn tool_warnings(&self, run: &RunContext) -> Vec<String> {
        let version = self.orchestrator().toolset_version(run);
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, warnings)) = checked.as_ref().filter(|(known, _)| *known == version) {
            return warnings.clone();
        }
        let mut warnings = self.missing_tools();
        warnings.extend(self.schema_warnings(run));
        *checked = Some((version, warnings.clone()));
        warnings
    }

    /// Returns one warning for each tool that the agent names and that does not exist.
    fn missing_tools(&self) -> Vec<String> {
        let agent = printable(&self.agent.name);
        let warning =
            |name: &String| format!("there is no tool `{}`, which agent `{agent}` lists", printable(name));
        self.unresolved_names().iter().map(warning).collect()
    }

    /// Returns one warning for each shown tool whose schema the provider would refuse.
    fn schema_warnings(&self, run: &RunContext) -> Vec<String> {
        let grammar = models::tool_grammar(self.environment.config(), &self.model.provider);
        let shown = self.orchestrator().tools(&self.selection(), run);
        let warned = shown.iter().filter_map(|tool| {
            let defect = defects(&tool.entry.definition().input_schema, grammar).into_iter().next()?;
            let source = &tool.entry.identity().namespace;
            let (tool, source) = (printable(tool.entry.exposed().as_str()), printable(source.as_str()));
            Some(format!(
                "haft shows the model a reduced schema of the tool `{tool}` of `{source}`: {}",
                printable(&defect.to_string())
            ))
        });
        warned.collect()
    }

    /// Returns true if the text is a name or alias of a tool.
    pub(super) fn is_a_tool(&self, name: &str) -> bool {
        self.orchestrator().catalog().resolve(name).is_ok()
    }

    /// Returns the model request without the conversation.
    pub(super) fn request(&self, plan: &RunPlan, run: &RunContext) -> ModelRequest {
        let mut shown = self.orchestrator().tools(&self.selection(), run);
        let tools = match &plan.exposure {
            Some(exposure) => {
                let names: HashSet<&str> = exposure.shown.iter().map(String::as_str).collect();
                shown.retain(|tool| names.contains(tool.entry.exposed().as_str()));
                self.tools_named(&exposure.shown, run).into()
            }
            None => self.orchestrator().model_tools(&self.selection(), run),
        };
        let asking = &self.agent.asking;
        ModelRequest {
            system: self.system(&shown, plan).into(),
            deferred: self.deferred(plan, &tools, run),
            tools,
            sampling: asking.sampling.clone(),
            reasoning: asking.effort,
            reasoning_summary: asking.reasoning_summary,
            verbosity: asking.verbosity,
            parallel_calls: asking.parallel_calls,
            output_tokens_max: asking.output_tokens_max,
            context_tokens: asking.context_tokens,
            caching: asking.caching,
            ..ModelRequest::new(self.model.model.clone(), Arc::default())
        }
    }

    /// Returns the system text: the agent's own text, the handoff destinations, the instructions of tools and skills,
    /// and the rule for ending a run.
    fn system(&self, shown: &[OfferedTool], plan: &RunPlan) -> String {
        let destinations = self.links.destinations.iter().map(|to| to.agent());
        let body = system_prompt::with_destinations(&self.agent.body, destinations);
        let body = system_prompt::with_project(&body, self.instructions());
        let (providers, skills) = (self.orchestrator().catalog().providers(), self.environment.skills());
        let providers = &*providers;
        let sources = if self.environment.config().instructions {
            InstructionSources { providers, skills, lock: self.environment.config().tool_lock.as_deref() }
        } else {
            InstructionSources::default()
        };
        system_prompt::text(&body, sources, shown, &plan.report)
    }

    /// Returns the instruction files of the project. Returns none for the internal agent that reads stored outputs,
    /// because it does not work on the project.
    fn instructions(&self) -> &[InstructionFile] {
        match self.purpose {
            AgentPurpose::Work => self.environment.instructions(),
            AgentPurpose::ReadOutput => &[],
        }
    }

    pub(super) fn driver(&self, scope: &Arc<RunScope>, options: &CallOptions) -> RunDriver<'_> {
        RunDriver {
            models: &*self.models,
            summary_models: self.compaction.as_ref().map_or(&*self.models, |compaction| &*compaction.models),
            orchestrator: self.orchestrator(),
            scope: Arc::clone(scope),
            options: CallOptions { instructions: self.instruction_policy(), ..options.clone() },
            reply_timeout: self.agent.times.llm,
            observer: self.environment.observer(),
        }
    }

    /// Replaces the old turns of a conversation by a summary, with this agent's model and rules. An agent without
    /// automatic compaction uses the default rules.
    pub(crate) async fn compact(
        &self,
        conversation: Conversation,
        context: &RunContext,
        place: RunPosition,
    ) -> Result<CompactedConversation, CompactError> {
        let rules = self.compaction.as_ref().map(|compaction| compaction.rules.clone()).unwrap_or_default();
        let models = self.compaction.as_ref().map_or(&*self.models, |compaction| &*compaction.models);
        let asking = &self.agent.asking;
        let like = ModelRequest {
            system: self.agent.body.as_str().into(),
            sampling: asking.sampling.clone(),
            output_tokens_max: asking.output_tokens_max,
            context_tokens: asking.context_tokens,
            ..ModelRequest::new(self.model.model.clone(), Arc::new(conversation))
        };
        let usable_tokens = self.agent.limits.context.map_or(u64::MAX, |window| window.usable_tokens());
        let id = format!("compact-{}", place.session);
        let asked = ModelContext::new(id, context.principal.clone(), Arc::clone(&context.events)).at(place);
        compact(&like, &rules, usable_tokens, (models, &asked)).await
    }

    fn instruction_policy(&self) -> InstructionPolicy {
        let config = self.environment.config();
        if config.instructions {
            InstructionPolicy::Given(config.tool_lock.clone())
        } else {
            InstructionPolicy::Withheld
        }
    }

    /// Returns the context of a run of this agent. An agent that stores no outputs gets no store, so its outputs are
    /// truncated.
    pub(super) fn context(&self, run: &Arc<RunContext>) -> Arc<RunContext> {
        if self.config.tool_output.enabled || run.outputs.is_none() {
            return Arc::clone(run);
        }
        Arc::new(RunContext { outputs: None, ..RunContext::clone(run) })
    }
}

impl fmt::Debug for PreparedAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedAgent")
            .field("agent", &self.agent.name)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

fn own_config(agent: &AgentDefinition, shared: &Arc<ResolvedConfig>) -> Arc<ResolvedConfig> {
    let AgentDefinition { times, outputs, .. } = agent;
    let mut config = ResolvedConfig::clone(shared);
    config.tool_timeout = times.tool.unwrap_or(config.tool_timeout);
    let bytes_max = outputs.response_bytes_max.and_then(|bytes| usize::try_from(bytes).ok());
    config.tool_response_bytes_max = bytes_max.unwrap_or(config.tool_response_bytes_max);
    outputs.tool_output.change(&mut config.tool_output);
    if config == **shared { Arc::clone(shared) } else { Arc::new(config) }
}

/// Returns the tools that one item of `tools` selects: `@NAME` selects a group, and `mcp:SERVER__TOOL` tools of MCP
/// servers. Any other item selects the tools that it matches, and the tools of the server or OpenAPI document with that
/// name.
fn picks(glob: &ToolGlob) -> Vec<ToolFilterItem> {
    if let Some(item) = mcp_item(glob) {
        return vec![item];
    }
    let group = group_of(glob).map(ToolFilterItem::Group);
    let is_group = glob.to_string().starts_with('@');
    let tool = (!is_group).then(|| ToolFilterItem::Tool(glob.clone()));
    tool.into_iter().chain(group).collect()
}

/// Returns the selection of an item that begins with `mcp:`; `None` for other items.
fn mcp_item(glob: &ToolGlob) -> Option<ToolFilterItem> {
    let written = glob.to_string();
    let after = |prefix: &str| ToolGlob::new(written.strip_prefix(prefix)?).ok();
    // Try the longer prefixes first, because the short prefix is the beginning of each of them and would match too.
    let reading = after(MCP_READING_PREFIX).map(ToolFilterItem::ReadingMcpTool);
    let writing = || after(MCP_WRITING_PREFIX).map(ToolFilterItem::WritingMcpTool);
    reading.or_else(writing).or_else(|| after(MCP_ITEM_PREFIX).map(ToolFilterItem::McpTool))
}

fn group_of(glob: &ToolGlob) -> Option<GroupName> {
    let word = glob.to_string();
    GroupName::new(word.strip_prefix('@').unwrap_or(&word)).ok()
}

/// The maximum number of tools that a run adds itself: status, batch, handoff and final report.
const OWN_TOOLS_MAX: usize = 4;

/// The model that reads stored outputs, and its provider.
#[derive(Clone)]
pub(super) struct OutputReaderModel {
    pub(super) model: ModelName,
    pub(super) models: Arc<dyn ModelProvider>,
}

/// Returns the model that reads stored outputs: the first of `toolOutput.models`, or the agent's own model.
fn reading(
    environment: &RunEnvironment,
    agent: &AgentDefinition,
    own: OutputReaderModel,
) -> Result<OutputReaderModel, ModelsError> {
    let parse = |text: &String| ModelName::parse(text).map_err(ModelsError::Name);
    let names = agent.outputs.tool_output.models.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    match names.first() {
        None => Ok(own),
        Some(first) => {
            Ok(OutputReaderModel { model: first.clone(), models: environment.models(&names)?.into() })
        }
    }
}

/// The compaction rules, and the provider of the model that writes the summary.
struct CompactionModel {
    rules: CompactionRules,
    models: Arc<dyn ModelProvider>,
}

/// Returns the compaction rules; `None` if compaction is off, or if the provider has its own tools, because such a
/// provider keeps the conversation and compacts it itself.
fn compaction(
    environment: &RunEnvironment,
    agent: &AgentDefinition,
    (model, models): (&ModelName, &Arc<dyn ModelProvider>),
) -> Result<Option<CompactionModel>, ModelsError> {
    let config = environment.config();
    let settings = agent.compaction.over(&config.compaction);
    let at_percent = match settings.at {
        CompactionStart::Percent(percent) => percent,
        CompactionStart::Off => return Ok(None),
    };
    if models::has_tools_of_its_own(config, &model.provider) {
        return Ok(None);
    }
    let rules = CompactionRules { at_percent, keep_turns: settings.keep_turns, ..CompactionRules::default() };
    let Some(named) = settings.model.filter(|named| named != model) else {
        return Ok(Some(CompactionModel { rules, models: Arc::clone(models) }));
    };
    let sizes = request_sizes(&agent.asking, config.models.settings.get(&named), &named.model);
    let rules = CompactionRules {
        model: Some(named.model.clone()),
        request_tokens_max: Some(sizes.context.usable_tokens()),
        ..rules
    };
    Ok(Some(CompactionModel { rules, models: environment.models(&[named])?.into() }))
}

/// Returns the models of the agent, or the models of the configuration if the agent has none.
pub fn model_names(agent: &AgentDefinition, config: &ResolvedConfig) -> Result<Vec<ModelName>, ModelsError> {
    if agent.models.is_empty() {
        return Ok(config.models.default.iter().chain(&config.models.fallback).cloned().collect());
    }
    agent.models.iter().map(|name| ModelName::parse(name).map_err(ModelsError::Name)).collect()
}

fn with_default_body(mut agent: AgentDefinition, workspace: &Path) -> AgentDefinition {
    if agent.default_text == DefaultText::WhenEmpty && agent.body.trim().is_empty() {
        agent.body = system_prompt::plain(workspace);
    }
    agent
}

/// Applies the operator's settings and the known sizes of the model.
fn with_model_settings(
    mut agent: AgentDefinition,
    config: &ResolvedConfig,
    model: &ModelName,
) -> AgentDefinition {
    let sizes = request_sizes(&agent.asking, config.models.settings.get(model), &model.model);
    agent.asking.output_tokens_max = sizes.output_tokens_max;
    agent.asking.context_tokens = sizes.context_tokens;
    agent.limits.context = Some(sizes.context);
    agent
}
