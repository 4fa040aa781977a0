//! The differences between two sets of tools, in words for a person.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::line_diff::{PrintedExtent, differences};
use super::suspicious::{model_directives, secret_paths};
use super::{CanonicalTool, LockedSource, SchemaCompatibility, ToolLock, compatibility};
use crate::approval::{DeceptiveCharacters, escaped, shown};
use crate::digest::Digest;

/// One difference between the lock file and the current tools.
#[derive(Debug, Clone, PartialEq)]
pub enum LockChange {
    /// A source that the lock does not contain.
    SourceAdded {
        /// The key of the tool source, as `KIND/NAMESPACE`.
        source: String,
        /// The address of the source.
        address: String,
        /// The instructions that the source has for models.
        instructions: Option<String>,
    },
    /// A locked source that does not exist any more.
    SourceRemoved {
        /// The key of the tool source, as `KIND/NAMESPACE`.
        source: String,
    },
    /// A source whose address differs from the locked address.
    SourceMoved {
        /// The key of the tool source, as `KIND/NAMESPACE`.
        source: String,
        /// The address in the lock file.
        from: String,
        /// The current address of the source.
        to: String,
    },
    /// A server that reports a different name, so it may be another server. Its tools may be the same.
    ServerRenamed {
        /// The key of the tool source, as `KIND/NAMESPACE`.
        source: String,
        /// The server's name in the lock file. If the file has the former format, the server's name and version.
        from: String,
        /// The server's current name. If the lock file has the former format, the server's current name and version.
        to: String,
    },
    /// A server that reports a different version. Its tools may be the same.
    VersionChanged {
        /// The key of the tool source, as `KIND/NAMESPACE`.
        source: String,
        /// The server's version in the lock file. If the file has the former format, the server's name and version.
        from: String,
        /// The server's current version. If the lock file has the former format, the server's current name and version.
        to: String,
    },
    /// A source whose instructions for models have changed.
    InstructionsChanged {
        /// The key of the tool source, as `KIND/NAMESPACE`.
        source: String,
        /// The instructions in the lock file.
        from: Option<String>,
        /// The current instructions of the source.
        to: Option<String>,
    },
    /// A tool that the lock does not contain.
    ToolAdded {
        /// The key of the tool source, as `KIND/NAMESPACE`.
        source: String,
        /// The tool name.
        tool: String,
        /// The tool definition.
        definition: CanonicalTool,
    },
    /// A locked tool that does not exist any more.
    ToolRemoved {
        /// The key of the tool source, as `KIND/NAMESPACE`.
        source: String,
        /// The tool name.
        tool: String,
    },
    /// A tool with the same definition under another name.
    ToolRenamed {
        /// The key of the tool source, as `KIND/NAMESPACE`.
        source: String,
        /// The tool name in the lock file.
        from: String,
        /// The current name of the tool.
        to: String,
    },
    /// A locked tool that is now in another source, with the same definition.
    ToolRehomed {
        /// The tool name.
        tool: String,
        /// The key of the locked source.
        from: String,
        /// The key of the current source.
        to: String,
    },
    /// A tool whose definition has changed.
    ToolChanged {
        /// The key of the tool source, as `KIND/NAMESPACE`.
        source: String,
        /// The tool name.
        tool: String,
        /// The members of the definition that differ.
        parts: Vec<DefinitionPart>,
        /// The compatibility of the input schema; `None` if it did not change.
        compatibility: Option<SchemaCompatibility>,
    },
}

/// A member of a definition that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct DefinitionPart {
    /// The member, such as `description`.
    pub name: String,
    /// The value of the member in the lock file.
    pub from: Option<Value>,
    /// The current value of the member.
    pub to: Option<Value>,
}

impl LockChange {
    /// Returns true for a change that needs no review: a new version with the same tools.
    pub fn is_informational(&self) -> bool {
        matches!(self, LockChange::VersionChanged { .. })
    }

    /// Returns the key of the source that the change is about. For a tool that moved, this is the current source.
    pub fn source(&self) -> &str {
        match self {
            Self::SourceAdded { source, .. }
            | Self::SourceRemoved { source }
            | Self::SourceMoved { source, .. }
            | Self::ServerRenamed { source, .. }
            | Self::VersionChanged { source, .. }
            | Self::InstructionsChanged { source, .. }
            | Self::ToolAdded { source, .. }
            | Self::ToolRemoved { source, .. }
            | Self::ToolRenamed { source, .. }
            | Self::ToolChanged { source, .. }
            | Self::ToolRehomed { to: source, .. } => source,
        }
    }

    /// Returns the change as lines for a person. Characters that could deceive a reader are escaped.
    pub fn lines(&self) -> Vec<String> {
        self.printed(PrintedExtent::Full)
    }

    /// Returns the change as lines for a person, without the middle of long texts.
    pub fn shortened_lines(&self) -> Vec<String> {
        self.printed(PrintedExtent::Shortened)
    }

    /// Returns true if the shortened lines leave out a part of the change.
    pub fn is_shortened(&self) -> bool {
        self.shortened_lines() != self.lines()
    }

    fn printed(&self, extent: PrintedExtent) -> Vec<String> {
        let one = |text: &str| one(text, extent);
        match self {
            Self::SourceAdded { source, address, instructions } => {
                let mut lines = vec![format!("+ {source}: new source, {}", one(address))];
                if let Some(text) = instructions {
                    lines.push("    instructions for models".into());
                    difference(&mut lines, None, Some(&Value::from(text.as_str())), extent);
                }
                lines
            }
            Self::SourceRemoved { source } => vec![format!("- {source}: the source does not exist any more")],
            Self::SourceMoved { source, from, to } => {
                vec![format!("~ {source}: the address changed from {} to {}", one(from), one(to))]
            }
            Self::ServerRenamed { source, from, to } => {
                vec![format!("~ {source}: the reported name changed from {} to {}", one(from), one(to))]
            }
            Self::VersionChanged { source, from, to } => {
                vec![format!("  {source}: version {}, before {}", one(to), one(from))]
            }
            Self::InstructionsChanged { source, from, to } => {
                let mut lines = vec![format!("~ {source}: the instructions for models changed")];
                let text = |text: &Option<String>| text.clone().map(Value::from);
                difference(&mut lines, text(from).as_ref(), text(to).as_ref(), extent);
                lines
            }
            Self::ToolAdded { source, tool, definition } => added(source, tool, definition, extent),
            Self::ToolRemoved { source, tool } => {
                vec![format!("- {source} {}: the tool does not exist any more", one(tool))]
            }
            Self::ToolRenamed { source, from, to } => {
                let mut lines =
                    vec![format!("~ {source} {}: the tool has the new name {}", one(from), one(to))];
                warnings(&mut lines, &Value::from(to.as_str()));
                lines
            }
            Self::ToolRehomed { tool, from, to } => {
                vec![format!("~ {} moved from {from} to {to}", one(tool))]
            }
            Self::ToolChanged { source, tool, parts, compatibility } => {
                changed((source.as_str(), tool.as_str()), parts, compatibility.as_ref(), extent)
            }
        }
    }
}

fn added(source: &str, tool: &str, definition: &CanonicalTool, extent: PrintedExtent) -> Vec<String> {
    let mut lines = vec![format!("+ {source} {}: new tool", one(tool, extent))];
    warnings(&mut lines, &Value::from(tool));
    for (name, value) in definition.members().iter().filter(|(name, _)| *name != "name") {
        lines.push(format!("    {name}"));
        difference(&mut lines, None, Some(value), extent);
    }
    lines
}

fn changed(
    (source, tool): (&str, &str),
    parts: &[DefinitionPart],
    compatibility: Option<&SchemaCompatibility>,
    extent: PrintedExtent,
) -> Vec<String> {
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    let mut lines = vec![format!("~ {source} {}: {} changed", one(tool, extent), names.join(", "))];
    if let Some(compatibility) = compatibility {
        lines.push(format!("    {compatibility}"));
    }
    for part in parts {
        lines.push(format!("    {}", part.name));
        difference(&mut lines, part.from.as_ref(), part.to.as_ref(), extent);
    }
    lines
}

/// Appends the differences of two values, and the warnings about the new value.
fn difference(lines: &mut Vec<String>, from: Option<&Value>, to: Option<&Value>, extent: PrintedExtent) {
    let (before, now) = (from.map(text_of), to.map(text_of));
    lines.extend(differences(before.as_deref(), now.as_deref(), extent));
    if let Some(value) = to {
        warnings(lines, value);
    }
}

/// Appends a warning for each phrase in a value that gives orders to the model, and for other dangers. The warnings cover
/// the whole value, also the parts that are equal or too long to be shown.
fn warnings(lines: &mut Vec<String>, value: &Value) {
    let (mut characters, mut phrases, mut paths) =
        (DeceptiveCharacters::default(), BTreeSet::new(), BTreeSet::new());
    // Search each text in the value, not its JSON form, because JSON escapes line breaks.
    for text in texts(value) {
        characters.add(text);
        phrases.extend(model_directives(text));
        paths.extend(secret_paths(text));
    }
    if characters.invisible > 0 {
        lines.push(format!("    ! contains invisible characters: {}", characters.invisible));
    }
    if characters.look_alikes > 0 {
        lines
            .push(format!("    ! contains letters that look like other letters: {}", characters.look_alikes));
    }
    lines.extend(phrases.iter().map(|phrase| format!("    ! gives orders to the model: \"{phrase}\"")));
    lines.extend(paths.iter().map(|path| format!("    ! names a file that may contain secrets: \"{path}\"")));
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => serde_json::to_string_pretty(value).unwrap_or_default(),
    }
}

/// Returns all texts in a value, with the names of the members.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(members) => members
            .iter()
            .flat_map(|(name, value)| std::iter::once(name.as_str()).chain(texts(value)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

fn one(text: &str, extent: PrintedExtent) -> String {
    match extent {
        PrintedExtent::Full => format!("`{}`", escaped(text)),
        PrintedExtent::Shortened => format!("`{}`", shown(text)),
    }
}

/// Returns all differences, sorted by source and tool.
pub(super) fn between(locked: &ToolLock, found: &ToolLock) -> Vec<LockChange> {
    let mut changes = Vec::new();
    let keys: BTreeSet<&String> = locked.sources.keys().chain(found.sources.keys()).collect();
    let none = LockedSource::default();
    for key in keys {
        let (before, now) = (locked.sources.get(key), found.sources.get(key));
        of_source(&mut changes, key, before, now);
        of_tools(&mut changes, key, before.unwrap_or(&none), now.unwrap_or(&none));
    }
    rehomed(&mut changes, locked);
    changes
}

fn of_source(
    changes: &mut Vec<LockChange>,
    key: &str,
    before: Option<&LockedSource>,
    now: Option<&LockedSource>,
) {
    let source = key.to_owned();
    let (before, now) = match (before, now) {
        (Some(before), Some(now)) => (before, now),
        (None, Some(now)) => {
            let (address, instructions) = (now.address.clone(), now.instructions.clone());
            return changes.push(LockChange::SourceAdded { source, address, instructions });
        }
        (Some(_), None) => return changes.push(LockChange::SourceRemoved { source }),
        (None, None) => return,
    };
    if before.address != now.address {
        let (from, to) = (before.address.clone(), now.address.clone());
        changes.push(LockChange::SourceMoved { source: source.clone(), from, to });
    }
    changes.extend(of_server(&source, before, now));
    if before.instructions != now.instructions {
        let (from, to) = (before.instructions.clone(), now.instructions.clone());
        changes.push(LockChange::InstructionsChanged { source, from, to });
    }
}

/// Returns the change of the name or the version that a server reports.
fn of_server(source: &str, before: &LockedSource, now: &LockedSource) -> Vec<LockChange> {
    let source = source.to_owned();
    let name = now.name.clone().unwrap_or_default();
    let Some(locked) = before.name.clone() else {
        // In the former format, `version` contains the name and the version of the server, such as `x 1`.
        let (from, to) = (before.version.clone(), format!("{name} {}", now.version).trim().to_owned());
        let has_name = from == name || from.starts_with(&format!("{name} "));
        return match (from == to, has_name) {
            (true, _) => Vec::new(),
            (false, true) => vec![LockChange::VersionChanged { source, from, to }],
            (false, false) => vec![LockChange::ServerRenamed { source, from, to }],
        };
    };
    let mut changes = Vec::new();
    if locked != name {
        changes.push(LockChange::ServerRenamed { source: source.clone(), from: locked, to: name });
    }
    if before.version != now.version {
        let (from, to) = (before.version.clone(), now.version.clone());
        changes.push(LockChange::VersionChanged { source, from, to });
    }
    changes
}

fn of_tools(changes: &mut Vec<LockChange>, key: &str, before: &LockedSource, now: &LockedSource) {
    let gone: BTreeMap<Digest, &String> = before
        .tools
        .iter()
        .filter(|(name, _)| !now.tools.contains_key(*name))
        .map(|(name, tool)| (tool.nameless(), name))
        .collect();
    let mut renamed = BTreeSet::new();
    for (tool, definition) in &now.tools {
        let source = key.to_owned();
        match before.tools.get(tool) {
            Some(locked) if locked.digest() == definition.digest() => {}
            Some(locked) => changes.push(changed_tool(source, tool, locked, definition)),
            None => {
                let from = gone.get(&definition.nameless()).filter(|from| renamed.insert(**from));
                changes.push(new_tool(source, tool, definition, from.copied()));
            }
        }
    }
    for tool in before.tools.keys().filter(|tool| !now.tools.contains_key(*tool) && !renamed.contains(tool)) {
        changes.push(LockChange::ToolRemoved { source: key.to_owned(), tool: tool.clone() });
    }
}

/// Describes a tool that the lock does not contain under this name. `from` is its locked name, if the tool was renamed.
fn new_tool(source: String, tool: &str, definition: &CanonicalTool, from: Option<&String>) -> LockChange {
    match from.cloned() {
        Some(from) => LockChange::ToolRenamed { source, from, to: tool.to_owned() },
        None => LockChange::ToolAdded { source, tool: tool.to_owned(), definition: definition.clone() },
    }
}

fn changed_tool(source: String, tool: &str, locked: &CanonicalTool, found: &CanonicalTool) -> LockChange {
    let names: BTreeSet<&String> = locked.members().keys().chain(found.members().keys()).collect();
    let parts: Vec<DefinitionPart> = names
        .into_iter()
        .map(|name| (name, locked.members().get(name), found.members().get(name)))
        .filter(|(_, from, to)| from != to)
        .map(|(name, from, to)| DefinitionPart { name: name.clone(), from: from.cloned(), to: to.cloned() })
        .collect();
    let schema = parts.iter().find(|part| part.name == "inputSchema");
    let compatibility = schema.map(|part| {
        let anything = Value::Bool(true);
        compatibility(part.from.as_ref().unwrap_or(&anything), part.to.as_ref().unwrap_or(&anything))
    });
    LockChange::ToolChanged { source, tool: tool.to_owned(), parts, compatibility }
}

/// Replaces a removal and an addition by one `ToolRehomed` change if both have the same definition and different
/// sources.
fn rehomed(changes: &mut Vec<LockChange>, locked: &ToolLock) {
    let mut joined = Vec::new();
    for (at, change) in changes.iter().enumerate() {
        let LockChange::ToolAdded { source: to, tool, definition } = change else { continue };
        let is_it = |other: &LockChange| match other {
            LockChange::ToolRemoved { source: from, tool: gone } => {
                let before = locked.sources.get(from).and_then(|source| source.tools.get(gone));
                from != to && before.is_some_and(|before| before.digest() == definition.digest())
            }
            _ => false,
        };
        if let Some(removed) = changes.iter().position(is_it)
            && !joined.iter().any(|(_, other, _)| *other == removed)
            && let LockChange::ToolRemoved { source: from, .. } = &changes[removed]
        {
            let (tool, from, to) = (tool.clone(), from.clone(), to.clone());
            joined.push((at, removed, LockChange::ToolRehomed { tool, from, to }));
        }
    }
    let dropped: BTreeSet<usize> = joined.iter().map(|(_, removed, _)| *removed).collect();
    for (at, _, change) in joined {
        changes[at] = change;
    }
    let mut at = 0;
    changes.retain(|_| {
        at += 1;
        !dropped.contains(&(at - 1))
    });
}
