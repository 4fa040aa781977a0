//! The stored form of a run's settings.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SnapshotError;
use super::compaction::StoredCompactionRules;
use crate::internal_tools::final_report::ReportShape;
use crate::internal_tools::handoff::HandoffRoutes;
use crate::internal_tools::report_format::ReportFormat;
use crate::run::budget::SpendLimit;
use crate::run::exposure::{ToolExposure, ToolListGrowth, ToolSearchPlan};
use crate::run::final_report::FinalReport;
use crate::run::limits::{RunContextLimit, RunLimits};
use crate::run::plan::{OptionalTools, RunPlan};
use crate::run::tool_choice::ChoiceSupport;
use crate::stored::{StoredToolChoice, find};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredPlan {
    limits: StoredLimits,
    budget: StoredBudget,
    tool_choice: StoredToolChoice,
    allowed_tools: Option<Vec<String>>,
    client_tools: BTreeSet<String>,
    support: StoredSupport,
    report: Option<StoredReportPlan>,
    destinations: Vec<String>,
    path: Vec<String>,
    task_status: bool,
    batch: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compaction: Option<StoredCompactionRules>,
    /// The tools that the model sees; absent in runs of older versions, which showed all tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exposure: Option<StoredExposure>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredExposure {
    shown: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    search: Option<StoredSearch>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredSearch {
    roster: String,
    growth: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredLimits {
    turns_max: u32,
    tool_calls_max: Option<u32>,
    tool_calls_per_turn_max: u32,
    attempts_max: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    continuations_max: Option<u32>,
    context: Option<StoredContext>,
}

#[expect(clippy::struct_field_names, reason = "every limit has its unit in its name")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredContext {
    window_tokens: u64,
    output_tokens: u64,
    buffer_tokens: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredBudget {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usd: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calls: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
}

#[expect(clippy::struct_excessive_bools, reason = "each field is one independent capability of a provider")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredSupport {
    none: bool,
    required: bool,
    named: bool,
    allowed: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredReportPlan {
    format: String,
    schema: Option<Value>,
    /// The nonce if the model writes the report as a tag; `None` if it calls the report tool.
    nonce: Option<String>,
    /// True if the last text is the report.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    by_text: bool,
}

impl StoredPlan {
    pub(super) fn of(plan: &RunPlan) -> Self {
        let RunPlan {
            limits,
            budget,
            tool_choice,
            allowed_tools,
            client_tools,
            support,
            report,
            routes,
            offer,
            compaction,
            exposure,
        } = plan;
        Self {
            limits: StoredLimits::of(limits),
            budget: StoredBudget::of(budget),
            tool_choice: StoredToolChoice::of(tool_choice),
            allowed_tools: allowed_tools.clone(),
            client_tools: client_tools.clone(),
            support: StoredSupport {
                none: support.none,
                required: support.required,
                named: support.named,
                allowed: support.allowed,
            },
            report: StoredReportPlan::of(report),
            destinations: routes.destinations.clone(),
            path: routes.path.clone(),
            task_status: offer.task_status,
            batch: offer.batch,
            compaction: compaction.as_ref().map(StoredCompactionRules::of),
            exposure: exposure.as_ref().map(StoredExposure::of),
        }
    }

    pub(super) fn into_plan(self) -> Result<RunPlan, SnapshotError> {
        let StoredSupport { none, required, named, allowed } = self.support;
        Ok(RunPlan {
            limits: self.limits.into_limits(),
            budget: self.budget.into_budget()?,
            tool_choice: self.tool_choice.into_choice(),
            allowed_tools: self.allowed_tools,
            client_tools: self.client_tools,
            support: ChoiceSupport { none, required, named, allowed },
            report: self.report.map_or(Ok(FinalReport::None), StoredReportPlan::into_report)?,
            routes: HandoffRoutes { destinations: self.destinations, path: self.path },
            offer: OptionalTools { task_status: self.task_status, batch: self.batch },
            compaction: self.compaction.map(StoredCompactionRules::into_rules),
            exposure: self.exposure.map(StoredExposure::into_exposure).transpose()?,
        })
    }
}

impl StoredExposure {
    fn of(exposure: &ToolExposure) -> Self {
        let search = exposure.search.as_ref().map(|search| StoredSearch {
            roster: search.roster.clone(),
            growth: search.growth.name().into(),
        });
        Self { shown: exposure.shown.clone(), search }
    }

    fn into_exposure(self) -> Result<ToolExposure, SnapshotError> {
        let search = self.search.map(|search| {
            let growth =
                find("tool list growth", &ToolListGrowth::ALL, ToolListGrowth::name, &search.growth)?;
            Ok::<_, SnapshotError>(ToolSearchPlan { roster: search.roster, growth })
        });
        Ok(ToolExposure { shown: self.shown, search: search.transpose()? })
    }
}

impl StoredLimits {
    fn of(limits: &RunLimits) -> Self {
        let RunLimits {
            turns_max,
            tool_calls_max,
            tool_calls_per_turn_max,
            attempts_max,
            continuations_max,
            context,
        } = *limits;
        let context = context.map(|context| StoredContext {
            window_tokens: context.window_tokens,
            output_tokens: context.output_tokens,
            buffer_tokens: context.buffer_tokens,
        });
        Self {
            turns_max,
            tool_calls_max,
            tool_calls_per_turn_max,
            attempts_max,
            continuations_max: Some(continuations_max),
            context,
        }
    }

    fn into_limits(self) -> RunLimits {
        let Self {
            turns_max,
            tool_calls_max,
            tool_calls_per_turn_max,
            attempts_max,
            continuations_max,
            context,
        } = self;
        let context = context.map(|context| RunContextLimit {
            window_tokens: context.window_tokens,
            output_tokens: context.output_tokens,
            buffer_tokens: context.buffer_tokens,
        });
        // Plans of earlier versions of haft have no such limit.
        let continuations_max = continuations_max.unwrap_or(RunLimits::default().continuations_max);
        RunLimits {
            turns_max,
            tool_calls_max,
            tool_calls_per_turn_max,
            attempts_max,
            continuations_max,
            context,
        }
    }
}

impl StoredBudget {
    pub(super) fn of(budget: &SpendLimit) -> Self {
        let SpendLimit { usd, tokens, calls, time } = *budget;
        Self { usd, tokens, calls, seconds: time.map(|time| time.as_secs_f64()) }
    }

    pub(super) fn into_budget(self) -> Result<SpendLimit, SnapshotError> {
        let Self { usd, tokens, calls, seconds } = self;
        let broken = |_| SnapshotError::Broken {
            problem: "the `seconds` of the budget are not a valid duration".into(),
        };
        let time = seconds.map(Duration::try_from_secs_f64).transpose().map_err(broken)?;
        Ok(SpendLimit { usd, tokens, calls, time })
    }
}

impl StoredReportPlan {
    fn of(report: &FinalReport) -> Option<Self> {
        let nonce = match report {
            FinalReport::None | FinalReport::Text(_) | FinalReport::Tool(_) => None,
            FinalReport::Xml { nonce, .. } => Some(nonce.clone()),
        };
        let shape = report.shape()?;
        let schema = shape.schema().map(|schema| (**schema).clone());
        let by_text = matches!(report, FinalReport::Text(_));
        Some(Self { format: shape.format().name().into(), schema, nonce, by_text })
    }

    fn into_report(self) -> Result<FinalReport, SnapshotError> {
        let format = find("report format", &ReportFormat::ALL, ReportFormat::name, &self.format)?;
        let shape = match self.schema {
            Some(schema) => {
                ReportShape::json(Arc::new(schema)).map_err(|problem| SnapshotError::Broken { problem })?
            }
            None => ReportShape::plain(format),
        };
        Ok(match self.nonce {
            Some(nonce) => FinalReport::Xml { shape, nonce },
            None if self.by_text => FinalReport::Text(shape),
            None => FinalReport::Tool(shape),
        })
    }
}
