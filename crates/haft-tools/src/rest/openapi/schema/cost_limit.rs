//! Limits the cost of importing an OpenAPI document: a malicious one could refer to one large schema from ten thousand
//! places.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use serde_json::Value;

/// The schema values and bytes that an import may still use.
#[derive(Debug)]
pub(in super::super) struct SchemaBudget {
    work: Cell<usize>,
    bytes: Cell<usize>,
    /// The patterns compiled so far, and whether each is valid.
    patterns: RefCell<HashMap<String, bool>>,
}

/// The maximum number of schema values that an import examines. The largest real OpenAPI document that was tested needs
/// 1/30 of this number; an import that needs all of it takes seconds.
const WORK_MAX: usize = 50_000_000;

/// The maximum memory of all schemas from one OpenAPI document, in bytes, as estimated by [`bytes`].
const BYTES_MAX: usize = 128 * 1024 * 1024;

/// The estimated memory of a value in addition to its text, in bytes.
const VALUE_BYTES: usize = 32;

/// The maximum length of a pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1_000;
/// The maximum size of a compiled pattern, in bytes.
const PATTERN_READY_BYTES_MAX: usize = 128 * 1024;

/// The cost of compiling a pattern, in values. The largest real OpenAPI document that was tested has seventy patterns.
const PATTERN_EFFORT: usize = 50_000;

impl Default for SchemaBudget {
    fn default() -> Self {
        Self { work: Cell::new(WORK_MAX), bytes: Cell::new(BYTES_MAX), patterns: RefCell::default() }
    }
}

impl SchemaBudget {
    /// Counts the examination of this many values against the limit.
    pub(in super::super) fn work(&self, values: usize) {
        self.work.set(self.work.get().saturating_sub(values));
    }

    /// Counts a schema that becomes a part of a tool against the limit.
    pub(super) fn give(&self, schema: &Value) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes(schema)));
    }

    /// Returns whether a string is a valid pattern. Caches the result, because compiling a pattern may take a
    /// millisecond.
    pub(super) fn is_pattern(&self, text: &str) -> bool {
        if text.len() > PATTERN_BYTES_MAX {
            return false;
        }
        if let Some(known) = self.patterns.borrow().get(text) {
            return *known;
        }
        self.work(PATTERN_EFFORT);
        let is = regex::RegexBuilder::new(text).size_limit(PATTERN_READY_BYTES_MAX).build().is_ok();
        self.patterns.borrow_mut().insert(text.to_owned(), is);
        is
    }

    pub(in super::super) fn is_spent(&self) -> bool {
        self.work.get() == 0 || self.bytes.get() == 0
    }
}

fn bytes(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes).sum(),
        Value::Object(members) => members.iter().map(|(key, member)| key.len() + bytes(member)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    VALUE_BYTES + inner
}
