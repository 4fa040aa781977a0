//! Asking a provider for its tools, whatever it does.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use haft_core::changes::Changes;
use haft_core::name::{Namespace, ToolName};
use haft_core::provider::{ProviderKind, ToolProvider};
use haft_core::tool::ToolDefinition;

/// Something that the operator should know about a provider. The other providers are not touched by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogWarning {
    /// Whose tools they are, by namespace.
    pub provider: String,
    pub message: String,
}

impl fmt::Display for CatalogWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "provider `{}`: {}", self.provider, self.message)
    }
}

/// What a provider lists. One that panics lists nothing.
#[derive(Debug, Clone)]
pub(super) struct Listing {
    pub(super) kind: ProviderKind,
    pub(super) namespace: Namespace,
    /// The provider's snapshot, shared by all its tools: to copy 10,000 schemas is most of what a catalog would cost.
    pub(super) tools: Arc<[ToolDefinition]>,
    /// Positions in `tools` of those that count.
    pub(super) counted: Vec<usize>,
    pub(super) warnings: Vec<CatalogWarning>,
}

impl Listing {
    pub(super) fn of(provider: &dyn ToolProvider, tools_max: usize) -> Self {
        // Nothing of ours is looked at after a panic but whether there was one.
        let asked = catch_unwind(AssertUnwindSafe(|| {
            (provider.kind(), provider.namespace().clone(), provider.tools())
        }));
        match asked {
            Ok((kind, namespace, tools)) => Self::counting(kind, namespace, tools, tools_max),
            Err(_) => Self::broken(name_of(provider)),
        }
    }

    fn counting(
        kind: ProviderKind,
        namespace: Namespace,
        tools: Arc<[ToolDefinition]>,
        tools_max: usize,
    ) -> Self {
        let mut names: HashSet<&ToolName> = HashSet::with_capacity(tools.len().min(tools_max));
        let counted: Vec<usize> =
            (0..tools.len().min(tools_max)).filter(|&position| names.insert(&tools[position].name)).collect();
        let twice = tools.len().min(tools_max) - counted.len();
        let mut messages = Vec::new();
        if tools.len() > tools_max {
            messages.push(format!(
                "it lists {} tools, of which the first {tools_max} are used; `catalog.toolsPerProviderMax` allows more",
                tools.len()
            ));
        }
        if twice > 0 {
            messages
                .push(format!("{twice} of its tools have the name of another; the first of each is used"));
        }
        let warning = |message| CatalogWarning { provider: namespace.to_string(), message };
        let warnings = messages.into_iter().map(warning).collect();
        drop(names);
        Self { kind, namespace, tools, counted, warnings }
    }

    fn broken(provider: String) -> Self {
        let message = "it panicked when it was asked for its tools; none of them can be used".into();
        Self {
            kind: ProviderKind::Client,
            namespace: Namespace::sanitize(&provider),
            tools: Arc::new([]),
            counted: Vec::new(),
            warnings: vec![CatalogWarning { provider, message }],
        }
    }
}

/// The name of a provider for a reader; a provider that cannot even say that has none.
pub(super) fn name_of(provider: &dyn ToolProvider) -> String {
    catch_unwind(AssertUnwindSafe(|| provider.namespace().to_string())).unwrap_or_else(|_| "?".into())
}

/// Where providers announce changes, each counter once.
pub(super) fn changes(providers: &[Arc<dyn ToolProvider>]) -> Vec<Changes> {
    let mut all: Vec<Changes> = Vec::new();
    for provider in providers {
        let asked = catch_unwind(AssertUnwindSafe(|| provider.changes().cloned()));
        if let Ok(Some(changes)) = asked
            && !all.iter().any(|known| known.is(&changes))
        {
            all.push(changes);
        }
    }
    all
}
