//! The settings of a whole run: limits, budget, permitted tools and the form of the answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::budget::SpendLimit;
use super::exposure::{ToolExposure, ToolSearchPlan};
use super::final_report::FinalReport;
use super::limits::RunLimits;
use super::tool_choice::{AnswerForm, ChoiceSupport};
use crate::compaction::CompactionRules;
use crate::internal_tools::batch::{self, BATCH};
use crate::internal_tools::final_report::FINAL_REPORT;
use crate::internal_tools::handoff::{HANDOFF, HandoffRoutes};
use crate::internal_tools::task_status::{TASK_STATUS, TaskStatus};
use crate::internal_tools::tool_search::{self, TOOL_CALL, TOOL_SEARCH};
use crate::model_request::{ModelTool, ToolChoice};
use crate::tool::ToolCall;

/// The settings of one run. The snapshot stores them, so that a run resumed in another process has the same settings.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// The limits on turns, calls and attempts, and the context size.
    pub limits: RunLimits,
    /// The spending limit of the run and its sub-agents.
    pub budget: SpendLimit,
    /// The caller's tool choice. A required call is required only until the model has made a call.
    pub tool_choice: ToolChoice,
    /// The only tools that the model may call, although it sees all of them. `None` permits every tool; an empty list
    /// permits none.
    pub allowed_tools: Option<Vec<String>>,
    /// The names of the tools that the client runs.
    pub client_tools: BTreeSet<String>,
    /// The tool choices that the provider can enforce.
    pub support: ChoiceSupport,
    /// The form in which the model returns its answer.
    pub report: FinalReport,
    /// The agents to which the model may hand off the request.
    pub routes: HandoffRoutes,
    /// The optional tools of the run itself that are enabled.
    pub offer: OptionalTools,
    /// The rules for compacting a long conversation; `None` if the run ends when its context is full.
    pub compaction: Option<CompactionRules>,
    /// The tools that the model sees; `None` if the caller of the run chose them.
    pub exposure: Option<ToolExposure>,
}

/// The optional tools of the run itself that the model sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OptionalTools {
    /// True to show the tool with which the model reports its progress.
    pub task_status: bool,
    /// True to show the tool with which the model makes several calls at once.
    pub batch: bool,
}

impl Default for RunPlan {
    fn default() -> Self {
        Self {
            limits: RunLimits::default(),
            budget: SpendLimit::default(),
            tool_choice: ToolChoice::Auto,
            allowed_tools: None,
            client_tools: BTreeSet::new(),
            support: ChoiceSupport::default(),
            report: FinalReport::None,
            routes: HandoffRoutes::default(),
            offer: OptionalTools::default(),
            compaction: None,
            exposure: None,
        }
    }
}

impl RunPlan {
    /// Returns the tools for the model: the given ones, followed by the run's own.
    pub(super) fn shown(&self, tools: &Arc<[ModelTool]>) -> Arc<[ModelTool]> {
        let own = self.own_tools();
        if own.is_empty() {
            return Arc::clone(tools);
        }
        let others = tools.iter().filter(|tool| own.iter().all(|own| own.name != tool.name)).cloned();
        others.chain(own.iter().cloned()).collect()
    }

    fn own_tools(&self) -> Vec<ModelTool> {
        let report = match &self.report {
            FinalReport::Tool(shape) => Some(shape.tool()),
            FinalReport::None | FinalReport::Text(_) | FinalReport::Xml { .. } => None,
        };
        let status = self.offer.task_status.then(TaskStatus::tool);
        let batch = self.offer.batch.then(batch::tool);
        let search = self.search().map(ToolSearchPlan::tools);
        let own = [status, batch, self.routes.tool(), report].into_iter().flatten();
        own.chain(search.into_iter().flatten()).collect()
    }

    /// Returns true for the name of a tool of the run itself. A function of the caller can have such a name too, if the
    /// run does not offer its own tool.
    pub(super) fn owns(&self, name: &str) -> bool {
        match name {
            FINAL_REPORT => matches!(self.report, FinalReport::Tool(_)),
            TASK_STATUS => self.offer.task_status,
            BATCH => self.offer.batch,
            HANDOFF => self.routes.tool().is_some(),
            TOOL_SEARCH | TOOL_CALL => self.search().is_some(),
            _ => false,
        }
    }

    /// Unwraps a call of the `tool_call` tool, which runs a tool that a search found. Returns any other call unchanged.
    pub(super) fn unwrapped(&self, call: &ToolCall) -> ToolCall {
        let inner = self.search().and_then(|_| tool_search::unwrap(call).ok());
        inner.unwrap_or_else(|| call.clone())
    }

    /// Returns the search for tools that the model does not see, or `None` if there is no search.
    pub fn search(&self) -> Option<&ToolSearchPlan> {
        self.exposure.as_ref()?.search.as_ref()
    }

    pub(super) fn answer_by(&self) -> AnswerForm {
        match self.report {
            FinalReport::Tool(_) => AnswerForm::ReportTool,
            FinalReport::None | FinalReport::Text(_) | FinalReport::Xml { .. } => AnswerForm::Text,
        }
    }
}
