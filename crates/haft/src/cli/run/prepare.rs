//! Everything that is decided before the model is asked.

use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use haft_core::budget::{Budget, ContextLimits};
use haft_core::conversation::{Conversation, Message};
use haft_core::event::EventSink;
use haft_core::glob::ToolGlob;
use haft_core::internal::final_report::ReportShape;
use haft_core::model_provider::ModelProvider;
use haft_core::model_request::{ModelRequest, ModelTool};
use haft_core::provider::ToolProvider;
use haft_core::run::final_report::FinalReport;
use haft_core::run::limits::ContextLimit;
use haft_core::run::{AgentRun, RunPlan};
use haft_core::tokens::TokenCounter;
use haft_engine::{CallOptions, Memory, Meter, Orchestrator, Pick, Selection};
use serde_json::Value;

use super::Denials;
use super::screen::Screen;
use super::system;
use super::wire::Output;
use crate::agents::{AGENT_BYTES_MAX, Agent, Around};
use crate::approvals;
use crate::cli::approver::TerminalApprover;
use crate::cli::args::RunArgs;
use crate::cli::ask;
use crate::cli::call;
use crate::cli::exit::Exit;
use crate::cli::servers;
use crate::cli::settings::{self, Configuration, Refused};
use crate::cli::watch::Watch;
use crate::config::expand::Lookup;
use crate::config::resolved::ModelName;
use crate::config::{Resolved, environment};
use crate::models;
use crate::telemetry::captures_content;
use crate::wiring::{self, Settings};

/// The longest request that is read from standard input.
const REQUEST_BYTES_MAX: u64 = 16 << 20;

/// The longest schema that is read.
const SCHEMA_BYTES_MAX: u64 = 1 << 20;

/// A run that can begin.
pub(in crate::cli) struct Prepared {
    pub(super) models: Box<dyn ModelProvider>,
    pub(super) orchestrator: Orchestrator,
    pub(super) meter: Arc<Meter>,
    pub(super) options: CallOptions,
    pub(super) timeout: Duration,
    pub(super) began: Instant,
    pub(super) watch: Watch,
    pub(super) output: Arc<Output>,
    /// Where nobody said that they want it quiet.
    pub(super) screen: Option<Arc<Screen>>,
    pub(super) denials: Arc<Denials>,
    agent: Agent,
    model: ModelName,
    plan: RunPlan,
    request: String,
}

impl Prepared {
    pub(super) fn new(
        args: &RunArgs,
        mut configuration: Configuration,
        others: Vec<Arc<dyn ToolProvider>>,
        variables: Lookup<'_>,
    ) -> Result<Self, Refused> {
        let (agent, request) = said(args)?;
        let policy = settings::policy(&args.policy, &configuration)?;
        let home = policy.home().clone();
        let config = &mut configuration.resolved;
        let names = names(args, &agent, config)?;
        let models = models::chain(config, &names, variables).map_err(|error| ask::refused(&error))?;
        let model = names.into_iter().next().ok_or((Exit::Usage, "no model is named".to_owned()))?;
        let agent = as_typed(args, agent, policy.workspace(), config, &model);
        let plan = plan(args, &agent)?;

        let output = Arc::new(Output::new(args.output_format, &plan));
        let screen = (!args.quiet).then(|| Arc::new(Screen::new(args, &output)));
        let denials = Arc::new(Denials::default());
        let mut seen: Vec<Arc<dyn EventSink>> = vec![Arc::clone(&denials) as _, Arc::clone(&output) as _];
        seen.extend(screen.iter().map(|screen| Arc::clone(screen) as Arc<dyn EventSink>));
        let watch = Watch::of_run(args, &home, seen);
        let meter = Meter::new(watch.sink());
        let telemetry = &mut config.telemetry;
        telemetry.capture_content =
            watch.tells_a_collector() && captures_content().unwrap_or(telemetry.capture_content);
        let store = Arc::new(call::store(&home, &config.tool_output.limits)?);
        let servers = servers::providers(config, &policy, None);
        let settings = Settings {
            policy,
            timeout: None,
            events: Arc::clone(&meter) as _,
            config: configuration.resolved,
            approver: TerminalApprover::when_somebody_is_there(),
            remembered: Memory::new(approvals::load(&home)),
            store: Some(store),
        };
        let orchestrator = wiring::orchestrator_with(settings, [servers, others].concat());
        let options = CallOptions { selection: selection(args, &agent)?, ..watch.options() };
        let timeout = args.timeout.unwrap_or(agent.times.run);
        let began = Instant::now();
        Ok(Self {
            models,
            orchestrator,
            meter,
            options,
            timeout,
            began,
            watch,
            output,
            screen,
            denials,
            agent,
            model,
            plan,
            request,
        })
    }

    /// The run, once the tools are ready: they are a part of what the model is told.
    pub(super) fn begin(&mut self) -> Result<AgentRun, Refused> {
        let catalog = self.orchestrator.catalog();
        let system = system::text(&self.agent.body, catalog, &self.plan.report);
        let tools: Arc<[ModelTool]> =
            self.orchestrator.tools(&self.options.selection).iter().map(model_tool).collect();
        let mut conversation = Conversation::default();
        let message = Message::user(self.request.clone());
        conversation.push(message).map_err(|error| (Exit::Internal, error.to_string()))?;
        self.options.budget = self.plan.limits.context.map(|limit| self.budget(limit, &system, &tools));
        self.output.begin(self.options.place.session, &self.model.to_string(), &tools);
        let asking = &self.agent.asking;
        let request = ModelRequest {
            system: system.into(),
            tools,
            sampling: asking.sampling.clone(),
            reasoning: asking.effort,
            output_tokens_max: Some(asking.output_tokens_max),
            context_tokens: Some(asking.context_tokens),
            ..ModelRequest::new(self.model.model.clone(), Arc::new(conversation))
        };
        Ok(AgentRun::new(request, self.plan.clone()))
    }

    fn budget(&self, limit: ContextLimit, system: &str, tools: &[ModelTool]) -> Arc<Budget> {
        let counter: &dyn TokenCounter = &*self.orchestrator.config().tokens;
        let of_tool = |tool: &ModelTool| {
            counter.count(&format!("{} {} {}", tool.name, tool.description, tool.input_schema)).count()
        };
        let limits = ContextLimits {
            window_tokens: limit.window_tokens,
            buffer_tokens: limit.buffer_tokens,
            output_tokens_max: limit.output_tokens,
        };
        let budget = Budget::new(limits, tools.iter().map(of_tool).sum());
        budget.set_current(counter.count(system).count() + counter.count(&self.request).count());
        budget
    }
}

fn model_tool(shown: &haft_engine::Shown) -> ModelTool {
    let definition = shown.entry.definition();
    ModelTool {
        name: shown.entry.exposed().as_str().to_owned(),
        description: definition.description.clone(),
        input_schema: Arc::new(definition.input_schema.clone()),
    }
}

/// The agent and what is asked of it.
fn said(args: &RunArgs) -> Result<(Agent, String), Refused> {
    let (agent, request) = match args.words.as_slice() {
        [agent, request] if agent.starts_with('@') => (read_agent(&agent[1..])?, request),
        [agent] if agent.starts_with('@') => {
            let hint = "hint: haft run @AGENT 'what it shall do', or - to read it from standard input";
            return Err((Exit::Usage, format!("nothing is asked of the agent\n{hint}")));
        }
        [request] => (unnamed()?, request),
        _ => {
            let hint = "hint: put it in quotation marks; an agent's file is written @FILE";
            return Err((Exit::Usage, format!("the request must be one word for the shell\n{hint}")));
        }
    };
    Ok((agent, written_request(request)?))
}

fn written_request(word: &str) -> Result<String, Refused> {
    let unusable = |problem: &dyn std::fmt::Display| {
        (
            Exit::Input,
            format!("the request cannot be used: {problem}\nhint: give UTF-8 text that is not empty"),
        )
    };
    let mut text = String::new();
    if word == "-" {
        let read = std::io::stdin().take(REQUEST_BYTES_MAX + 1).read_to_string(&mut text);
        read.map_err(|error| unusable(&error))?;
    } else {
        word.clone_into(&mut text);
    }
    if text.len() as u64 > REQUEST_BYTES_MAX {
        return Err(unusable(&format!("it has more than {REQUEST_BYTES_MAX} bytes")));
    }
    if text.trim().is_empty() {
        return Err(unusable(&"it is empty"));
    }
    Ok(text)
}

/// An agent that says nothing of itself has every default.
fn unnamed() -> Result<Agent, Refused> {
    let around = Around { read: &|_| Err(String::new()), variable: &|_| None };
    Agent::read("run", "", around).map_err(|error| (Exit::Internal, error.to_string()))
}

/// A file, else one of the operator's own agents.
fn read_agent(name: &str) -> Result<Agent, Refused> {
    let home = crate::home::find().map(|home| home.root().join("agents"));
    let own = home.iter().flat_map(|agents| [agents.join(name), agents.join(format!("{name}.md"))]);
    let path = std::iter::once(PathBuf::from(name)).chain(own).find(|path| path.is_file());
    let Some(path) = path else {
        let hint = "hint: name a file, or put it into `agents` below haft's home";
        return Err((Exit::Input, format!("there is no agent `{name}`\n{hint}")));
    };
    let shown = path.display().to_string();
    let wrong = |problem: String| (Exit::Input, format!("{shown}: {problem}"));
    let text = read_bounded(&path, AGENT_BYTES_MAX as u64).map_err(wrong)?;
    let beside = path.parent().unwrap_or(Path::new(""));
    let read = |name: &str| read_bounded(&inside(beside, name)?, AGENT_BYTES_MAX as u64);
    let around = Around { read: &read, variable: &environment };
    let agent = Agent::read(&shown, &text, around).map_err(|error| (Exit::Input, error.to_string()))?;
    alone(agent).map_err(wrong)
}

/// Nothing that a file asks for is passed over in silence.
fn alone(agent: Agent) -> Result<Agent, String> {
    let reach = &agent.reach;
    if reach.agents.is_empty() && reach.destinations.is_empty() && reach.handoff.is_none() {
        return Ok(agent);
    }
    Err("`agents`, `router` and `handoff` are not carried out by this version\nhint: take them out to run the agent alone".into())
}

/// What an agent includes lies beside it or below.
fn inside(directory: &Path, name: &str) -> Result<PathBuf, String> {
    let stays =
        Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if stays { Ok(directory.join(name)) } else { Err("it must lie in the agent's own directory".into()) }
}

fn read_bounded(path: &Path, bytes_max: u64) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(bytes_max + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > bytes_max {
        return Err(format!("it has more than {bytes_max} bytes"));
    }
    Ok(text)
}

/// What was typed, else what the agent says, else the configuration.
fn names(args: &RunArgs, agent: &Agent, config: &Resolved) -> Result<Vec<ModelName>, Refused> {
    let typed = if args.model.is_empty() { &agent.models } else { &args.model };
    if typed.is_empty() {
        return Ok(config.models.default.iter().chain(&config.models.fallback).cloned().collect());
    }
    typed.iter().map(|text| ModelName::parse(text).map_err(|message| (Exit::Usage, message))).collect()
}

/// What was typed wins over the agent's file; what the operator knows about the model over defaults.
fn as_typed(
    args: &RunArgs,
    mut agent: Agent,
    workspace: &Path,
    config: &Resolved,
    model: &ModelName,
) -> Agent {
    if let Some(system) = &args.system {
        agent.body.clone_from(system);
    } else if agent.body.trim().is_empty() {
        agent.body = system::plain(workspace);
    }
    agent.limits.turns_max = args.max_turns.unwrap_or(agent.limits.turns_max);
    if let Some(allowed) = &args.allowed_tools {
        agent.reach.allowed_tools = Some(words(allowed));
    }
    let Some(known) = config.models.settings.get(model) else { return agent };
    agent.asking.output_tokens_max = known.output_tokens_max.unwrap_or(agent.asking.output_tokens_max);
    agent.asking.context_tokens = known.context_tokens.unwrap_or(agent.asking.context_tokens);
    if let Some(context) = &mut agent.limits.context {
        context.window_tokens = agent.asking.context_tokens.into();
        context.output_tokens = agent.asking.output_tokens_max.into();
    }
    agent
}

fn plan(args: &RunArgs, agent: &Agent) -> Result<RunPlan, Refused> {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let plan = agent.plan(Vec::new(), &nonce[..8]);
    let Some(file) = &args.output_schema else { return Ok(plan) };
    let wrong = |problem: String| {
        (Exit::Input, format!("{}: {problem}\nhint: give a file with one JSON Schema", file.display()))
    };
    let text = read_bounded(file, SCHEMA_BYTES_MAX).map_err(wrong)?;
    let schema: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let shape = ReportShape::json(Arc::new(schema)).map_err(wrong)?;
    let report = match plan.report {
        FinalReport::None | FinalReport::Tool(_) => FinalReport::Tool(shape),
        FinalReport::Xml { nonce, .. } => FinalReport::Xml { shape, nonce },
    };
    Ok(RunPlan { report, ..plan })
}

fn selection(args: &RunArgs, agent: &Agent) -> Result<Selection, Refused> {
    let of_globs = |globs: Vec<ToolGlob>| Selection::of(globs.into_iter().map(Pick::Tool));
    let Some(typed) = &args.tools else {
        return Ok(agent.reach.tools.clone().map_or(Selection::All, of_globs));
    };
    let globs = words(typed).iter().map(|word| ToolGlob::new(word)).collect::<Result<Vec<_>, _>>();
    globs.map(of_globs).map_err(|error| (Exit::Usage, format!("--tools: {error}")))
}

/// `--tools ''` is no tools at all.
fn words(typed: &[String]) -> Vec<String> {
    typed.iter().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}
