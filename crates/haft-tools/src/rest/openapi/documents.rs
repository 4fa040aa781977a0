//! An OpenAPI document, which may consist of several files, and the references between them.

use serde_json::Value;
use url::Url;

/// An OpenAPI document, which may consist of several files. The first is the one that the operator named.
#[derive(Debug)]
pub struct Documents {
    documents: Vec<Document>,
}

#[derive(Debug)]
pub(super) struct Document {
    /// The URL of the document. References are relative to it.
    pub(super) at: Url,
    pub(super) value: Value,
}

/// A value in an OpenAPI document, with the document that its references are relative to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a> {
    documents: &'a Documents,
    document: usize,
    pub(super) value: &'a Value,
}

/// A `$ref` in an OpenAPI document that has no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the reference `{0}` has no target")]
pub(super) struct BadReference(String);

/// The maximum length of a reference that is followed, in bytes.
const REFERENCE_BYTES_MAX: usize = 2_000;

/// The maximum length of a chain of references that point to references.
const REFERENCE_CHAIN_MAX: usize = 32;

impl Documents {
    pub(super) fn new(documents: Vec<Document>) -> Self {
        Self { documents }
    }

    pub(super) fn root(&self) -> Node<'_> {
        static NOTHING: Value = Value::Null;
        let value = self.documents.first().map_or(&NOTHING, |document| &document.value);
        Node { documents: self, document: 0, value }
    }

    /// Returns the URL of the first document.
    pub fn at(&self) -> Option<&Url> {
        self.documents.first().map(|document| &document.at)
    }
}

impl<'a> Node<'a> {
    /// Returns a member of the object and follows its references. Returns `None` if the object has no such member, or
    /// if a reference has no target.
    pub(super) fn get(&self, key: &str) -> Option<Node<'a>> {
        self.value.get(key).and_then(|value| self.with(value).resolved().ok())
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.value.get(key).and_then(Value::as_str)
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        self.value.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&'a str, Node<'a>)> {
        let node = *self;
        self.value.as_object().into_iter().flatten().map(move |(key, value)| (key.as_str(), node.with(value)))
    }

    pub(super) fn items(&self) -> impl Iterator<Item = Node<'a>> {
        let node = *self;
        self.value.as_array().into_iter().flatten().map(move |value| node.with(value))
    }

    /// Returns a node for another value of the same document.
    pub(super) fn with(&self, value: &'a Value) -> Node<'a> {
        Node { value, ..*self }
    }

    pub(super) fn reference(&self) -> Option<&'a str> {
        self.text("$ref")
    }

    /// Follows a chain of references to its value.
    pub(super) fn resolved(&self) -> Result<Node<'a>, BadReference> {
        let mut node = *self;
        for _ in 0..REFERENCE_CHAIN_MAX {
            match node.reference() {
                Some(reference) => node = node.follow(reference)?,
                None => return Ok(node),
            }
        }
        Err(BadReference(self.reference().unwrap_or_default().chars().take(200).collect()))
    }

    /// Follows one reference.
    pub(super) fn follow(&self, reference: &str) -> Result<Node<'a>, BadReference> {
        let bad = || BadReference(reference.chars().take(200).collect());
        if reference.len() > REFERENCE_BYTES_MAX {
            return Err(bad());
        }
        let (file, pointer) = reference.split_once('#').unwrap_or((reference, ""));
        let document = if file.is_empty() { self.document } else { self.find(file).ok_or_else(bad)? };
        let target = self.documents.documents.get(document).ok_or_else(bad)?;
        let pointer = percent_encoding::percent_decode_str(pointer).decode_utf8().map_err(|_| bad())?;
        let value = target.value.pointer(&pointer).ok_or_else(bad)?;
        Ok(Node { documents: self.documents, document, value })
    }

    fn find(&self, file: &str) -> Option<usize> {
        let at = self.documents.documents.get(self.document)?.at.join(file).ok()?;
        self.documents.documents.iter().position(|document| document.at == at)
    }
}

/// Returns the other documents that this document refers to, without duplicates.
pub(super) fn referenced_documents(value: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    // Use no recursion, because a deeply nested document could overflow the stack.
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::Object(members) => {
                let reference = members.get("$ref").and_then(Value::as_str);
                let file = reference.map(|reference| reference.split('#').next().unwrap_or_default());
                found.extend(file.filter(|file| !file.is_empty()));
                left.extend(members.values());
            }
            Value::Array(items) => left.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
