//! Selects the operations of an OpenAPI document that become tools.

use haft_core::glob::ToolGlob;

use haft_core::settings::method::Method;
use haft_core::settings::rest::{DeprecatedOperations, METHODS_DEFAULT};

/// The operator's selection of operations.
#[derive(Debug, Clone)]
pub struct OperationFilter {
    pub methods: Vec<Method>,
    /// Selects operations with any of these tags; an empty list selects all.
    pub tags: Vec<String>,
    /// Patterns of operation ids, or of `GET /path`; an empty list selects all.
    pub include: Vec<ToolGlob>,
    /// Patterns that take precedence over `include`.
    pub exclude: Vec<ToolGlob>,
    pub deprecated: DeprecatedOperations,
}

impl Default for OperationFilter {
    fn default() -> Self {
        Self {
            methods: METHODS_DEFAULT.to_vec(),
            tags: Vec::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            deprecated: DeprecatedOperations::LeftOut,
        }
    }
}

/// The properties of an operation that a filter checks.
#[derive(Debug)]
pub(super) struct OperationProperties<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) id: Option<&'a str>,
    pub(super) tags: Vec<&'a str>,
    pub(super) deprecated: bool,
}

impl OperationFilter {
    /// Returns the reason for skipping an operation; `None` if the operation is selected.
    pub(super) fn skip_reason(&self, looked: &OperationProperties<'_>) -> Option<&'static str> {
        let line = format!("{} {}", looked.method.name(), looked.path);
        let names = |glob: &ToolGlob| glob.matches(&line) || looked.id.is_some_and(|id| glob.matches(id));
        if !self.methods.contains(&looked.method) {
            return Some("the method is not in `includeMethods`");
        }
        if looked.deprecated && self.deprecated == DeprecatedOperations::LeftOut {
            return Some("the operation is deprecated");
        }
        if !self.tags.is_empty()
            && !looked.tags.iter().any(|tag| self.tags.iter().any(|wanted| wanted == tag))
        {
            return Some("the operation has none of the tags in `tagFilter`");
        }
        if !self.include.is_empty() && !self.include.iter().any(names) {
            return Some("no pattern of `includeOperations` matches the operation");
        }
        self.exclude.iter().any(names).then_some("a pattern of `excludeOperations` matches the operation")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(texts: &[&str]) -> Vec<ToolGlob> {
        texts.iter().map(|text| ToolGlob::new(text).unwrap()).collect()
    }

    #[test]
    fn reason_for_skipping_an_operation_names_the_setting() {
        let looked = |deprecated: bool| OperationProperties {
            method: Method::Get,
            path: "/pets/{id}",
            id: Some("pets/get"),
            tags: vec!["pets"],
            deprecated,
        };
        let check = |filter: &OperationFilter, deprecated: bool, expected: Option<&str>| {
            let found = filter.skip_reason(&looked(deprecated));
            assert_eq!(found.is_some(), expected.is_some(), "{filter:?}");
            assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()), "{found:?}");
        };
        let all = OperationFilter::default;
        check(&all(), false, None);
        check(&all(), true, Some("deprecated"));
        check(&OperationFilter { deprecated: DeprecatedOperations::Kept, ..all() }, true, None);
        check(&OperationFilter { methods: vec![Method::Post], ..all() }, false, Some("includeMethods"));
        check(&OperationFilter { tags: vec!["dogs".into()], ..all() }, false, Some("tagFilter"));
        check(&OperationFilter { tags: vec!["dogs".into(), "pets".into()], ..all() }, false, None);
        check(&OperationFilter { include: globs(&["pets/*"]), ..all() }, false, None);
        check(&OperationFilter { include: globs(&["GET /pets*"]), ..all() }, false, None);
        check(&OperationFilter { include: globs(&["dogs/*"]), ..all() }, false, Some("includeOperations"));
        check(&OperationFilter { exclude: globs(&["*get"]), ..all() }, false, Some("excludeOperations"));
    }
}
