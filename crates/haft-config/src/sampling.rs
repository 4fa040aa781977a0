//! Resolves the access of an MCP server to models (sampling).

use haft_core::settings::mcp::{SamplingConsent, SamplingLimits};

use super::default;
use super::models::ModelName;
use super::position::child;
use super::resolve::ConfigResolver;
use super::written::{self, RawApproval};

impl ConfigResolver<'_> {
    pub(super) fn sampling(
        &mut self,
        path: &str,
        written: Option<&written::RawMcpSampling>,
    ) -> Option<SamplingLimits> {
        let written = written?;
        if let Some(Err(problem)) = written.model.as_deref().map(ModelName::parse) {
            self.wrong(&child(path, "model"), problem);
        }
        let consent = match written.approval.unwrap_or(RawApproval::Ask) {
            RawApproval::Ask => SamplingConsent::Ask,
            RawApproval::Allow => SamplingConsent::Given,
            RawApproval::Deny => return None,
        };
        Some(SamplingLimits {
            consent,
            model: written.model.clone(),
            output_tokens_max: written.max_output_tokens.unwrap_or(default::MCP_SAMPLING_OUTPUT_TOKENS_MAX),
            requests_per_call_max: written
                .max_requests_per_call
                .unwrap_or(default::MCP_SAMPLING_REQUESTS_MAX),
        })
    }
}
