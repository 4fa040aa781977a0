//! Checks that every configured model provider can be used. Sends no request.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::{Value, json};

use haft_config::expand::VariableSource;
use haft_config::resolved::ModelName;
use haft_config::{ResolvedConfig, printable};
use haft_runtime::models;

/// The check result of one model provider.
pub(super) struct ModelFinding {
    name: String,
    /// The reason why the provider cannot be used.
    problem: Option<String>,
}

impl ModelFinding {
    pub(super) fn is_good(&self) -> bool {
        self.problem.is_none()
    }

    pub(super) fn as_json(&self) -> Value {
        json!({ "name": self.name, "usable": self.is_good(), "reason": self.problem })
    }

    pub(super) fn write_to(&self, text: &mut String) {
        let name = printable(&self.name);
        let _ = match &self.problem {
            None => writeln!(text, "models     {name}: configured"),
            Some(problem) => {
                writeln!(text, "models     {name}: haft cannot use this provider: {}", printable(problem))
            }
        };
    }
}

/// Checks every provider that `models` or `providers` names.
pub(super) fn check_all(config: &ResolvedConfig, variables: VariableSource<'_>) -> Vec<ModelFinding> {
    let models = &config.models;
    let wanted = models.default.iter().chain(&models.fast).chain(&models.complex).chain(&models.fallback);
    let names: BTreeSet<&str> = wanted
        .map(|model| model.provider.as_str())
        .chain(config.providers.keys().map(String::as_str))
        .collect();
    let finding = |name: &&str| {
        // An empty model name is enough, because the check depends only on the provider.
        let any = ModelName { provider: (*name).to_owned(), model: String::new() };
        let problem = models::chain(config, &[any], variables).err().map(|error| {
            let text = error.to_string();
            // Remove the provider name with which most errors begin, because the finding already contains it.
            text.strip_prefix(&format!("{name}: ")).map_or(text.clone(), str::to_owned)
        });
        ModelFinding { name: (*name).to_owned(), problem }
    };
    names.iter().map(finding).collect()
}
