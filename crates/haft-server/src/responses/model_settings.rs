//! Settings of a request that only some model providers support, and warnings for the other providers.

use haft_config::ResolvedConfig;
use haft_config::resolved::ModelName;
use haft_runtime::models::{RequestFeature, supports};

use super::request::{CreateRequest, WarningItems};
use super::spec::{ModelTarget, target};
use crate::server::ServerState;

/// A setting of a request that has no effect with some model providers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelSetting {
    pub(crate) feature: RequestFeature,
    /// The warning for a model that does not support the setting.
    pub(crate) warning: String,
}

/// Adds a warning for each setting that the model of the request does not support. Adds none for an unknown model, which
/// the server refuses later.
pub(super) fn warn_of_unsupported(state: &ServerState, request: &mut CreateRequest) {
    if request.model_settings.is_empty() {
        return;
    }
    let Ok(target) = target(state, request) else { return };
    let config = state.runtime.config();
    let providers = providers(&config, &target);
    let settings = std::mem::take(&mut request.model_settings).into_iter();
    let unsupported =
        settings.filter(|setting| providers.iter().any(|name| !supports(&config, name, setting.feature)));
    let warnings: Vec<String> = unsupported.map(|setting| setting.warning).collect();
    if request.warning_items == WarningItems::Included {
        request.shown_warnings.extend(warnings.iter().cloned());
    }
    request.warnings.extend(warnings);
}

/// Returns the names of the providers that answer the request, without fallbacks.
fn providers(config: &ResolvedConfig, target: &ModelTarget) -> Vec<String> {
    let models = &config.models;
    let named = |name: Option<&String>| {
        let parsed = name.and_then(|name| ModelName::parse(name).ok());
        parsed.or_else(|| models.default.clone()).map(|name| name.provider)
    };
    match target {
        ModelTarget::Agent(graph) => named(graph.first().agent.models.first()).into_iter().collect(),
        ModelTarget::Model(name) => named(name.as_ref()).into_iter().collect(),
        ModelTarget::Route => {
            let routed = models.fast.iter().chain(&models.complex).chain(&models.default);
            routed.map(|name| name.provider.clone()).collect()
        }
    }
}
