//! Applies single accepted changes to a lock.

use std::collections::BTreeMap;

use super::{CanonicalTool, LockChange, LockedSource, ToolLock};

impl ToolLock {
    /// Applies one of the differences between this lock and the tools that were found. If this lock does not contain the
    /// source, only the addition of the source has an effect: a person who refuses a source also refuses its tools.
    pub fn accept(&mut self, change: &LockChange, found: &ToolLock) {
        let none = LockedSource::default();
        let now = found.sources.get(change.source()).unwrap_or(&none);
        match change {
            LockChange::SourceAdded { source, .. } => {
                let without_tools = LockedSource { tools: BTreeMap::new(), ..now.clone() };
                self.sources.insert(source.clone(), without_tools);
            }
            LockChange::SourceRemoved { source } => {
                self.sources.remove(source);
            }
            LockChange::ToolRehomed { tool, from, to } => self.rehome(tool, (from, to), now),
            LockChange::SourceMoved { source, .. }
            | LockChange::ServerRenamed { source, .. }
            | LockChange::VersionChanged { source, .. }
            | LockChange::InstructionsChanged { source, .. }
            | LockChange::ToolAdded { source, .. }
            | LockChange::ToolRemoved { source, .. }
            | LockChange::ToolRenamed { source, .. }
            | LockChange::ToolChanged { source, .. } => {
                if let Some(locked) = self.sources.get_mut(source) {
                    locked.accept(change, now);
                }
            }
        }
    }

    fn rehome(&mut self, tool: &str, (from, to): (&str, &str), now: &LockedSource) {
        let (Some(definition), Some(target)) = (now.tools.get(tool), self.sources.get_mut(to)) else {
            return;
        };
        target.tools.insert(tool.to_owned(), definition.clone());
        if let Some(earlier) = self.sources.get_mut(from) {
            earlier.tools.remove(tool);
        }
    }
}

impl LockedSource {
    /// Applies a change inside this source.
    fn accept(&mut self, change: &LockChange, now: &LockedSource) {
        match change {
            LockChange::SourceMoved { .. } => self.address.clone_from(&now.address),
            LockChange::ServerRenamed { .. } | LockChange::VersionChanged { .. } if self.name.is_none() => {
                // In the former format, the version contains the name.
                self.name.clone_from(&now.name);
                self.version.clone_from(&now.version);
            }
            LockChange::ServerRenamed { .. } => self.name.clone_from(&now.name),
            LockChange::VersionChanged { .. } => self.version.clone_from(&now.version),
            LockChange::InstructionsChanged { .. } => self.instructions.clone_from(&now.instructions),
            LockChange::ToolAdded { tool, .. } | LockChange::ToolChanged { tool, .. } => {
                self.set(tool, now.tools.get(tool));
            }
            LockChange::ToolRemoved { tool, .. } => self.set(tool, None),
            LockChange::ToolRenamed { from, to, .. } => {
                self.set(from, None);
                self.set(to, now.tools.get(to));
            }
            LockChange::SourceAdded { .. }
            | LockChange::SourceRemoved { .. }
            | LockChange::ToolRehomed { .. } => {}
        }
    }

    fn set(&mut self, tool: &str, definition: Option<&CanonicalTool>) {
        match definition {
            Some(definition) => self.tools.insert(tool.to_owned(), definition.clone()),
            None => self.tools.remove(tool),
        };
    }
}
