//! Reads a provider's tool list. A panic or an invalid list affects only this provider.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use haft_core::change_counter::ChangeCounter;
use haft_core::name::{Namespace, ToolName};
use haft_core::provider::{ProviderKind, ToolProvider};
use haft_core::tool::ToolDefinition;

use super::definitions::{DefinitionValues, SharedDefinitions};

/// A warning for the operator about one provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogWarning {
    /// The namespace of the provider.
    pub provider: String,
    /// The problem, in words for the operator.
    pub message: String,
}

impl fmt::Display for CatalogWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.starts_with("MCP server `") {
            return f.write_str(&self.message);
        }
        write!(f, "tool provider `{}`: {}", self.provider, self.message)
    }
}

/// The tool list of one provider. It is empty if the provider panics.
#[derive(Debug)]
pub(super) struct ProviderListing {
    pub(super) kind: ProviderKind,
    pub(super) namespace: Namespace,
    /// The provider's own list, shared by all catalog entries: copying 10,000 schemas would be most of the catalog's
    /// cost.
    pub(super) tools: Arc<[ToolDefinition]>,
    /// The compiled schemas and other values that are computed from `tools`.
    pub(super) values: Arc<[DefinitionValues]>,
    /// The indexes in `tools` of the accepted tools.
    pub(super) counted: Vec<usize>,
    pub(super) warnings: Vec<CatalogWarning>,
}

impl ProviderListing {
    pub(super) fn of(provider: &dyn ToolProvider, tools_max: usize, shared: &SharedDefinitions) -> Self {
        // After a panic, the code below uses only the fact that it happened, so no inconsistent state can be seen.
        let listed = catch_unwind(AssertUnwindSafe(|| {
            (provider.kind(), provider.namespace().clone(), provider.tools(), provider.list_warning())
        }));
        match listed {
            Ok((kind, namespace, tools, warning)) => {
                let values = shared.values(&tools);
                let mut listing = Self::counting(kind, namespace, (tools, values), tools_max);
                let provider = listing.namespace.to_string();
                listing.warnings.extend(warning.map(|message| CatalogWarning { provider, message }));
                listing
            }
            Err(_) => Self::broken(name_of(provider)),
        }
    }

    /// Returns true if the provider still returns the same list. Returns false if the provider panics.
    pub(super) fn is_current(&self, provider: &dyn ToolProvider) -> bool {
        catch_unwind(AssertUnwindSafe(|| provider.tools()))
            .is_ok_and(|tools| Arc::ptr_eq(&tools, &self.tools))
    }

    fn counting(
        kind: ProviderKind,
        namespace: Namespace,
        (tools, values): (Arc<[ToolDefinition]>, Arc<[DefinitionValues]>),
        tools_max: usize,
    ) -> Self {
        let mut names: HashSet<&ToolName> = HashSet::with_capacity(tools.len().min(tools_max));
        let counted: Vec<usize> =
            (0..tools.len().min(tools_max)).filter(|&position| names.insert(&tools[position].name)).collect();
        let twice = tools.len().min(tools_max) - counted.len();
        let mut messages = Vec::new();
        if tools.len() > tools_max {
            messages.push(format!(
                "the provider lists {} tools, of which haft uses the first {tools_max}; raise `catalog.maxToolsPerProvider` to use more",
                tools.len()
            ));
        }
        if twice > 0 {
            messages.push(format!(
                "{twice} of the provider's tools have duplicate names; haft uses the first tool of each name"
            ));
        }
        let warning = |message| CatalogWarning { provider: namespace.to_string(), message };
        let warnings = messages.into_iter().map(warning).collect();
        drop(names);
        Self { kind, namespace, tools, values, counted, warnings }
    }

    fn broken(provider: String) -> Self {
        let message = "the provider panicked while listing its tools, so haft can use none of them".into();
        Self {
            kind: ProviderKind::Client,
            namespace: Namespace::sanitize(&provider),
            tools: Arc::new([]),
            values: Arc::new([]),
            counted: Vec::new(),
            warnings: vec![CatalogWarning { provider, message }],
        }
    }
}

/// Returns a display name for the provider, or `?` if `namespace` panics.
pub(super) fn name_of(provider: &dyn ToolProvider) -> String {
    catch_unwind(AssertUnwindSafe(|| provider.namespace().to_string())).unwrap_or_else(|_| "?".into())
}

/// Returns the change counters of the providers, without duplicates.
pub(super) fn changes(providers: &[Arc<dyn ToolProvider>]) -> Vec<ChangeCounter> {
    let mut all: Vec<ChangeCounter> = Vec::new();
    for provider in providers {
        let listed = catch_unwind(AssertUnwindSafe(|| provider.changes().cloned()));
        if let Ok(Some(changes)) = listed
            && !all.iter().any(|known| known.is(&changes))
        {
            all.push(changes);
        }
    }
    all
}
