//! Inlines the references in schemas, and converts the `OpenAPI` dialect to JSON Schema.

mod all_of;
mod cost_limit;
mod keywords;
mod nullable;
mod trim;

use std::cell::RefCell;
use std::collections::HashMap;

use serde_json::{Map, Value, json};

use self::trim::Nesting;
use super::documents::Node;

pub(super) use cost_limit::SchemaBudget;

/// The direction of the data that a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Direction {
    Request,
    Response,
}

impl Direction {
    /// Returns the keyword that marks the properties that exist only in the other direction.
    fn left_out(self) -> &'static str {
        match self {
            Direction::Request => "readOnly",
            Direction::Response => "writeOnly",
        }
    }

    /// Returns the maximum number of values in a schema. Request schemas may be larger: a model needs them to write
    /// arguments, but can read a response without its schema.
    fn nodes_max(self) -> usize {
        match self {
            Direction::Request => 1_500,
            Direction::Response => 150,
        }
    }
}

/// The maximum depth to which references are inlined.
const REFERENCES_MAX: u8 = 8;

/// The maximum nesting depth of JSON between two references. Even with all references followed, the recursion uses
/// little stack.
const NESTING_MAX: usize = 48;

/// The size that is assumed for schemas that are too deep to be counted.
const TOO_LARGE: usize = 1_000_000;

/// The maximum number of schemas in one keyword; a keyword with more is dropped.
const BREADTH_MAX: usize = 3_000;

/// Inlines schemas, and caches the sizes of the schemas that references point to.
#[derive(Debug, Default)]
pub(super) struct SchemaInliner {
    /// The sizes, keyed by the address of the schema in memory and by the number of references that are still followed
    /// below it.
    sizes: RefCell<HashMap<(usize, u8), usize>>,
    /// The inlined schemas, so that a schema with many references is inlined once. `None` marks a schema that was
    /// requested once: it is cached only at the second request.
    made: RefCell<HashMap<(usize, Direction), Option<Value>>>,
    pub(super) effort: SchemaBudget,
}

impl SchemaInliner {
    /// Inlines the references of a schema, to the greatest depth that stays within the limits. Deeper and recursive
    /// parts are replaced by an outline with their type only.
    pub(super) fn whole(&self, node: &Node<'_>, direction: Direction) -> Value {
        if self.effort.is_spent() {
            return json!({});
        }
        let node = &alone(node);
        let key = (address(node), direction);
        let before = self.made.borrow().get(&key).cloned();
        let whole = match &before {
            Some(Some(known)) => known.clone(),
            Some(None) | None => self.made(node, direction),
        };
        // Cache a schema only at its second use: most schemas are used once, and would be in memory twice.
        match before {
            None => drop(self.made.borrow_mut().insert(key, None)),
            Some(None) => drop(self.made.borrow_mut().insert(key, Some(whole.clone()))),
            Some(Some(_)) => {}
        }
        self.effort.give(&whole);
        whole
    }

    fn made(&self, node: &Node<'_>, direction: Direction) -> Value {
        let nodes_max = direction.nodes_max();
        let fits = |depth: &u8| self.size(node, *depth, 0) <= nodes_max;
        let depth = (1..=REFERENCES_MAX).take_while(fits).last().unwrap_or(0);
        let mut writer =
            SchemaWriter { direction, effort: &self.effort, inside: vec![address(node)], levels: 0, cuts: 0 };
        let whole = writer.schema(node, depth);
        trim::trimmed(whole, nodes_max)
    }

    /// Returns the number of values in the schema when references are followed to this depth. `levels` counts the
    /// levels since the last reference.
    fn size(&self, node: &Node<'_>, depth: u8, levels: usize) -> usize {
        self.effort.work(1);
        if levels > NESTING_MAX {
            return TOO_LARGE;
        }
        let below = |sum: usize, inner: Node<'_>| sum.saturating_add(self.size(&inner, depth, levels + 1));
        match node.value {
            Value::Array(_) => node.items().fold(1, below),
            Value::Object(_) => match node.reference() {
                Some(reference) => self.size_of_target(node, reference, depth),
                None => node.members().map(|(_, member)| member).fold(1, below),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        }
    }

    fn size_of_target(&self, node: &Node<'_>, reference: &str, depth: u8) -> usize {
        let (Some(below), Ok(target)) = (depth.checked_sub(1), node.follow(reference)) else { return 1 };
        let key = (address(&target), below);
        if let Some(size) = self.sizes.borrow().get(&key) {
            return *size;
        }
        let size = self.size(&target, below, 0);
        self.sizes.borrow_mut().insert(key, size);
        size
    }
}

/// Resolves a schema that is only a reference, so that all references to one schema share its cache entry.
fn alone<'a>(node: &Node<'a>) -> Node<'a> {
    let only = node.value.as_object().is_some_and(|members| members.len() == 1);
    if only { node.resolved().unwrap_or(*node) } else { *node }
}

/// Returns the identity of a node. Two nodes have the same identity if they are the same value in memory.
fn address(node: &Node<'_>) -> usize {
    std::ptr::from_ref(node.value).addr()
}

/// The state while one schema is inlined.
struct SchemaWriter<'w> {
    direction: Direction,
    effort: &'w SchemaBudget,
    /// The addresses of the schemas being written, to detect recursion.
    inside: Vec<usize>,
    /// The current nesting depth.
    levels: usize,
    /// The number of parts dropped so far.
    cuts: usize,
}

impl SchemaWriter<'_> {
    fn schema(&mut self, node: &Node<'_>, depth: u8) -> Value {
        self.effort.work(1);
        if self.levels > trim::LEVELS_MAX || self.effort.is_spent() {
            return self.cut(node);
        }
        self.levels += 1;
        let written = match (node.value, node.reference()) {
            (Value::Object(_), Some(reference)) => self.target(node, reference, depth),
            (Value::Object(_), None) => self.object(node, depth),
            (Value::Bool(flag), _) => Value::Bool(*flag),
            _ => json!({}),
        };
        self.levels -= 1;
        written
    }

    fn cut(&mut self, node: &Node<'_>) -> Value {
        self.cuts += 1;
        outline(node)
    }

    fn target(&mut self, node: &Node<'_>, reference: &str, depth: u8) -> Value {
        // Accept any value for a reference without a target, because it says nothing about the value.
        let Ok(target) = node.follow(reference) else {
            self.cuts += 1;
            return json!({});
        };
        let simple = keywords::is_simple(target.value);
        let own = address(&target);
        if self.inside.contains(&own) || (depth == 0 && !simple) {
            return self.cut(&target);
        }
        self.inside.push(own);
        let mut written = self.schema(&target, depth.saturating_sub(1));
        self.inside.pop();
        if let (Some(own), Value::Object(written)) = (node.text("description"), &mut written) {
            written.insert("description".into(), keywords::description(own));
        }
        written
    }

    fn object(&mut self, node: &Node<'_>, depth: u8) -> Value {
        let mut written = Map::new();
        for (key, member) in node.members() {
            if let Some((key, value)) = self.keyword(key, &member, depth) {
                written.insert(key.to_owned(), value);
            }
        }
        keywords::settle(&mut written);
        all_of::merge(&mut written);
        keywords::drop_unknown_required(&mut written, node);
        let written = if node.flag("nullable") { nullable::nullable(written) } else { written };
        Value::Object(written)
    }

    /// Converts a keyword to JSON Schema 2020-12; returns `None` if it has no equivalent.
    ///
    /// A shortened schema accepts more values than the original, and must never reject a valid value. So `oneOf`
    /// becomes `anyOf`, because several alternatives may now match. `not`, `if`, `then` and `else` are dropped, because
    /// a schema inside of them that accepts more makes the whole schema reject more.
    fn keyword<'k>(&mut self, key: &'k str, member: &Node<'_>, depth: u8) -> Option<(&'k str, Value)> {
        let before = self.cuts;
        let (key, written) = self.keyword_as_written(key, member, depth)?;
        match key {
            _ if self.cuts == before => Some((key, written)),
            "oneOf" => Some(("anyOf", written)),
            "not" | "if" | "then" | "else" => None,
            key => Some((key, written)),
        }
    }

    fn keyword_as_written<'k>(
        &mut self,
        key: &'k str,
        member: &Node<'_>,
        depth: u8,
    ) -> Option<(&'k str, Value)> {
        if key == "items" && member.value.is_array() {
            return self.list(member, depth).map(|list| ("prefixItems", list));
        }
        let written = match Nesting::of(key) {
            Nesting::Named => self.named(key, member, depth),
            Nesting::One => Some(self.schema(member, depth)),
            Nesting::List => self.list(member, depth),
            Nesting::None if key == "pattern" => {
                member.value.as_str().filter(|text| self.effort.is_pattern(text)).map(Value::from)
            }
            Nesting::None => {
                self.effort.work(keywords::effort(key, member.value));
                keywords::plain(key, member.value)
            }
        };
        written.map(|written| (key, written))
    }

    fn named(&mut self, key: &str, members: &Node<'_>, depth: u8) -> Option<Value> {
        let left_out = self.direction.left_out();
        if members.value.as_object()?.len() > BREADTH_MAX {
            self.cuts += 1;
            return None;
        }
        let kept = members
            .members()
            .filter(|(_, member)| key != "properties" || !is_marked(member, left_out))
            .map(|(name, member)| (name.to_owned(), self.schema(&member, depth)));
        Some(Value::Object(kept.collect()))
    }

    fn list(&mut self, members: &Node<'_>, depth: u8) -> Option<Value> {
        if members.value.as_array()?.len() > BREADTH_MAX {
            self.cuts += 1;
            return None;
        }
        let written: Vec<Value> = members.items().map(|member| self.schema(&member, depth)).collect();
        (!written.is_empty()).then_some(Value::Array(written))
    }
}

/// Returns whether a property has a marker, on itself or on the schema it refers to.
fn is_marked(member: &Node<'_>, mark: &str) -> bool {
    member.flag(mark) || member.resolved().is_ok_and(|target| target.flag(mark))
}

/// Returns the replacement for a schema that is cut off: the type of an object or array that is not nullable, otherwise
/// `{}`, which accepts any value.
fn outline(node: &Node<'_>) -> Value {
    let kind = node.text("type").or_else(|| node.value.get("properties").map(|_| "object"));
    match kind {
        Some(kind @ ("object" | "array")) if !node.flag("nullable") => json!({ "type": kind }),
        Some(_) | None => json!({}),
    }
}

#[cfg(test)]
mod tests;
