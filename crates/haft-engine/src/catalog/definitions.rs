//! Values computed from tool definitions, shared by the catalogs of many runs.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use haft_core::digest::Digest;
use haft_core::tool::ToolDefinition;
use haft_core::validate::{Schema, SchemaDraft};
use serde_json::Value;

/// Compiled schemas and other values computed from tool definitions, for all catalogs with the same JSON Schema draft.
/// Clones share the values.
///
/// Runs that get the same tool list from a provider, such as the built-in tools, share the values, so each schema is
/// compiled once instead of once per run. The values are dropped after the list is dropped.
#[derive(Clone, Default)]
pub struct SharedDefinitions(Arc<Mutex<Vec<KnownList>>>);

struct KnownList {
    /// Keeps the address of the list reserved, so that no other list can have the same address.
    tools: Weak<[ToolDefinition]>,
    values: Arc<[DefinitionValues]>,
}

impl SharedDefinitions {
    /// Returns the values for a list, one for each tool in it.
    pub(super) fn values(&self, tools: &Arc<[ToolDefinition]>) -> Arc<[DefinitionValues]> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |list: &&KnownList| std::ptr::addr_eq(list.tools.as_ptr(), Arc::as_ptr(tools));
        if let Some(list) = known.iter().find(is_it) {
            return Arc::clone(&list.values);
        }
        known.retain(|list| list.tools.strong_count() > 0);
        let values: Arc<[DefinitionValues]> = tools.iter().map(|_| DefinitionValues::default()).collect();
        known.push(KnownList { tools: Arc::downgrade(tools), values: Arc::clone(&values) });
        values
    }
}

impl fmt::Debug for SharedDefinitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedDefinitions").finish_non_exhaustive()
    }
}

/// The values of one definition. They are computed on first use, because most tools are never called.
#[derive(Debug, Default)]
pub(super) struct DefinitionValues {
    schema: OnceLock<Schema>,
    output_schema: OnceLock<Schema>,
    digest: OnceLock<Digest>,
    input_schema: OnceLock<Arc<Value>>,
}

impl DefinitionValues {
    pub(super) fn schema(&self, definition: &ToolDefinition, draft: SchemaDraft) -> &Schema {
        self.schema.get_or_init(|| Schema::compile_as(&definition.input_schema, draft))
    }

    /// Returns the compiled output schema, or `None` for a tool without one.
    pub(super) fn output_schema(&self, definition: &ToolDefinition, draft: SchemaDraft) -> Option<&Schema> {
        let written = definition.output_schema.as_ref()?;
        Some(self.output_schema.get_or_init(|| Schema::compile_as(written, draft)))
    }

    pub(super) fn digest(&self, definition: &ToolDefinition) -> Digest {
        *self.digest.get_or_init(|| Digest::of_definition(definition))
    }

    /// Returns the input schema in the form that model requests contain.
    pub(super) fn input_schema(&self, definition: &ToolDefinition) -> Arc<Value> {
        Arc::clone(self.input_schema.get_or_init(|| Arc::new(definition.input_schema.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computed_values_of_a_tool_list_are_shared_until_it_is_dropped() {
        let shared = SharedDefinitions::default();
        let list = || -> Arc<[ToolDefinition]> { Arc::new([]) };
        let (first, second) = (list(), list());
        let values = shared.values(&first);
        assert!(Arc::ptr_eq(&values, &shared.clone().values(&first)));
        assert!(!Arc::ptr_eq(&values, &shared.values(&second)));
        drop(first);
        let third = list();
        shared.values(&third);
        assert_eq!(shared.0.lock().unwrap().len(), 2, "only the values of live lists are kept");
    }
}
