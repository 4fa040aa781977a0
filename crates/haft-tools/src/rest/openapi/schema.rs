//! Schemas of a description, made whole: references put in their places, the dialect of `OpenAPI` turned into JSON Schema.

mod all_of;
mod keywords;
mod nullable;
mod trim;

use std::cell::RefCell;
use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::documents::Node;

/// Whether a schema describes what is sent or what comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Request,
    Response,
}

impl Direction {
    /// The mark of properties that only the other direction has.
    fn left_out(self) -> &'static str {
        match self {
            Direction::Request => "readOnly",
            Direction::Response => "writeOnly",
        }
    }

    /// How many values a schema may hold: a model reads every one of them, and answers are read without their schema.
    fn nodes_max(self) -> usize {
        match self {
            Direction::Request => 1_500,
            Direction::Response => 150,
        }
    }
}

/// How many references deep a schema is written out.
const REFERENCES_MAX: u8 = 8;

/// Makes schemas, and remembers how large what is referred to becomes.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    /// By the address of the value and the references still followed below it.
    sizes: RefCell<HashMap<(usize, u8), usize>>,
}

impl Schemas {
    /// The schema as one piece. Of several depths the greatest that stays within bounds is written out; what lies deeper, or
    /// inside itself, is only named by its type.
    pub(super) fn whole(&self, node: &Node<'_>, direction: Direction) -> Value {
        let nodes_max = direction.nodes_max();
        let fits = |depth: &u8| self.size(node, *depth) <= nodes_max;
        let depth = (1..=REFERENCES_MAX).take_while(fits).last().unwrap_or(0);
        let whole = Writer { direction, inside: Vec::new() }.schema(node, depth);
        trim::trimmed(whole, nodes_max)
    }

    /// How many values the schema has when references are followed so deep.
    fn size(&self, node: &Node<'_>, depth: u8) -> usize {
        match node.value {
            Value::Array(_) => node.items().fold(1, |sum, item| self.sum(sum, &item, depth)),
            Value::Object(_) => match node.reference() {
                Some(reference) => self.size_of_target(node, reference, depth),
                None => node.members().fold(1, |sum, (_, member)| self.sum(sum, &member, depth)),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        }
    }

    fn sum(&self, sum: usize, node: &Node<'_>, depth: u8) -> usize {
        sum.saturating_add(self.size(node, depth))
    }

    fn size_of_target(&self, node: &Node<'_>, reference: &str, depth: u8) -> usize {
        let (Some(below), Ok(target)) = (depth.checked_sub(1), node.follow(reference)) else { return 1 };
        let key = (address(&target), below);
        if let Some(size) = self.sizes.borrow().get(&key) {
            return *size;
        }
        let size = self.size(&target, below);
        self.sizes.borrow_mut().insert(key, size);
        size
    }
}

/// Two nodes are the same when they are the same value in memory.
fn address(node: &Node<'_>) -> usize {
    std::ptr::from_ref(node.value).addr()
}

/// Writes one schema out.
pub(super) struct Writer {
    direction: Direction,
    /// What is being written out, so that nothing is inside itself.
    inside: Vec<usize>,
}

impl Writer {
    fn schema(&mut self, node: &Node<'_>, depth: u8) -> Value {
        match (node.value, node.reference()) {
            (Value::Object(_), Some(reference)) => self.target(node, reference, depth),
            (Value::Object(_), None) => self.object(node, depth),
            (Value::Bool(flag), _) => Value::Bool(*flag),
            _ => json!({}),
        }
    }

    fn target(&mut self, node: &Node<'_>, reference: &str, depth: u8) -> Value {
        // What leads nowhere says nothing about the value.
        let Ok(target) = node.follow(reference) else { return json!({}) };
        let simple = keywords::is_simple(target.value);
        let own = address(&target);
        if self.inside.contains(&own) || (depth == 0 && !simple) {
            return outline(&target);
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

    /// A keyword in today's form; nothing when it has none.
    fn keyword<'k>(&mut self, key: &'k str, member: &Node<'_>, depth: u8) -> Option<(&'k str, Value)> {
        let written = match key {
            "properties" | "patternProperties" | "dependentSchemas" => self.named(key, member, depth),
            "items" if member.value.is_array() => {
                return self.list(member, depth).map(|list| ("prefixItems", list));
            }
            "items"
            | "additionalProperties"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contains"
            | "propertyNames" => Some(self.schema(member, depth)),
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => self.list(member, depth),
            other => keywords::plain(other, member.value),
        };
        written.map(|written| (key, written))
    }

    fn named(&mut self, key: &str, members: &Node<'_>, depth: u8) -> Option<Value> {
        let left_out = self.direction.left_out();
        members.value.as_object()?;
        let kept = members
            .members()
            .filter(|(_, member)| key != "properties" || !is_marked(member, left_out))
            .map(|(name, member)| (name.to_owned(), self.schema(&member, depth)));
        Some(Value::Object(kept.collect()))
    }

    fn list(&mut self, members: &Node<'_>, depth: u8) -> Option<Value> {
        let written: Vec<Value> = members.items().map(|member| self.schema(&member, depth)).collect();
        (!written.is_empty()).then_some(Value::Array(written))
    }
}

/// The mark may stand at the property or at what it refers to.
fn is_marked(member: &Node<'_>, mark: &str) -> bool {
    member.flag(mark) || member.resolved().is_ok_and(|target| target.flag(mark))
}

/// What is known of a schema that is not written out.
fn outline(node: &Node<'_>) -> Value {
    let kind = node.text("type").or_else(|| node.value.get("properties").map(|_| "object"));
    match kind {
        Some(kind @ ("object" | "array")) if !node.flag("nullable") => json!({ "type": kind }),
        Some(_) | None => json!({}),
    }
}

#[cfg(test)]
mod tests;
