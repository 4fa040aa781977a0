//! Compares the current tools with the tool definitions that a person has accepted.
//!
//! A server can change a tool's description after a person has reviewed it, and models follow instructions in
//! descriptions. With a lock, a tool that is new or changed is neither shown nor called until a person accepts the
//! difference.

mod acceptance;
mod changes;
mod compatible;
mod line_diff;
mod suspicious;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::naming::ToolIdentity;
use crate::provider::ProviderKind;
use crate::tool::{DefinitionAuthor, ToolDefinition};

pub use changes::{DefinitionPart, LockChange};
pub use compatible::{SchemaCompatibility, compatibility};

/// The members of a definition that are locked. Icons and metadata are not locked, because no model reads them and they
/// do not affect calls. A text for a model must contain no other members.
pub const LOCKED_MEMBERS: [&str; 6] =
    ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

/// A tool in the form that is compared: all parts that a model reads or that affect calls.
#[derive(Debug, Clone, PartialEq)]
pub struct CanonicalTool {
    members: Map<String, Value>,
    digest: Digest,
}

impl CanonicalTool {
    /// Returns the canonical form of a definition: the server's own JSON if there is one, else the definition itself.
    pub fn of(definition: &ToolDefinition) -> Self {
        let sent = definition.raw.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        match sent {
            Some(Value::Object(sent)) => Self::from_members(sent),
            Some(_) | None => Self::from_members(own_members(definition)),
        }
    }

    /// Returns the canonical form of a definition's members. Drops members that are not locked.
    pub fn from_members(mut members: Map<String, Value>) -> Self {
        members.retain(|key, value| !value.is_null() && LOCKED_MEMBERS.contains(&key.as_str()));
        let digest = Digest::of_value(&Value::Object(members.clone()));
        Self { members, digest }
    }

    /// Returns the locked members, such as `description` and `inputSchema`.
    pub fn members(&self) -> &Map<String, Value> {
        &self.members
    }

    /// Returns the digest of all locked members of the definition.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the digest of the canonical form without the name, to recognize a renamed tool.
    fn nameless(&self) -> Digest {
        let mut members = self.members.clone();
        members.remove("name");
        Digest::of_value(&Value::Object(members))
    }
}

fn own_members(definition: &ToolDefinition) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("name".into(), definition.name.as_str().into());
    members.insert("description".into(), definition.description.as_str().into());
    members.insert("inputSchema".into(), definition.input_schema.clone());
    if let Some(schema) = &definition.output_schema {
        members.insert("outputSchema".into(), schema.clone());
    }
    members.insert("annotations".into(), serde_json::json!({ "effects": definition.effects.name() }));
    members
}

/// A source of tools: an MCP server, or all HTTP APIs on one host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LockedSource {
    /// The address of the source, without secrets: a command line with its directory and its environment variables, or
    /// a URL. Empty if two locks apply and contain different addresses. An empty address matches no source.
    pub address: String,
    /// The name that the server reports; empty if it reports none. `None` for an HTTP API, and for a source from a lock
    /// file of the former format, in which `version` contains the name too.
    pub name: Option<String>,
    /// The version that the server reports; empty if it reports none.
    pub version: String,
    /// The instructions that the source has for models.
    pub instructions: Option<String>,
    /// The tools, by the names that the source uses.
    pub tools: BTreeMap<String, CanonicalTool>,
}

/// The tools that a person has accepted, by source. The key of a source is `KIND/NAMESPACE`, or `KIND/HOST` for HTTP
/// APIs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolLock {
    /// All sources of tools that the lock contains.
    pub sources: BTreeMap<String, LockedSource>,
    /// The format of the file that contains the lock.
    pub format: LockFormat,
}

/// The format of a lock file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LockFormat {
    /// The file contains everything that identifies a source.
    #[default]
    Current,
    /// The file contains no directories and environment variables of servers, and no hosts of HTTP APIs.
    Former,
}

/// The status of a tool under a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockStanding {
    /// The tool needs no lock: it is a part of haft, an agent, or a function of the caller.
    Exempt,
    /// The definition equals the locked one.
    Agreed,
    /// The lock has no entry for the tool's server or API.
    NewSource,
    /// The lock has an entry for the source, but not for the tool.
    NewTool,
    /// The definition differs from the locked one.
    Changed,
    /// The server's command, directory, environment variables or URL differ from the locked ones, so another program
    /// may define the tool.
    Moved,
}

/// The text that the audit data of a call has in place of a rule if the lock file denied the call.
pub const QUARANTINE_RULE: &str = "haft.lock";

impl LockStanding {
    /// Returns the reason why the tool is quarantined (neither shown nor called), or `None` if it is not.
    pub fn quarantine(self) -> Option<&'static str> {
        match self {
            LockStanding::Exempt | LockStanding::Agreed => None,
            LockStanding::NewSource => Some(
                "the tool is quarantined, because the lock file does not contain its server or its HTTP API",
            ),
            LockStanding::NewTool => {
                Some("the tool is quarantined, because the lock file does not contain it")
            }
            LockStanding::Changed => {
                Some("the tool is quarantined, because its definition differs from the one in the lock file")
            }
            LockStanding::Moved => Some(
                "the tool is quarantined, because the command, directory, environment or URL of its server differs from the one in the lock file",
            ),
        }
    }
}

/// Returns the key of a source in a lock.
pub fn source_key(kind: ProviderKind, namespace: &str) -> String {
    format!("{}/{namespace}", kind.name())
}

/// Returns the key of a tool's source in a lock. All HTTP APIs on one host are one source, so that a tool that begins to
/// use another host is a change.
pub fn source_key_of(identity: &ToolIdentity, definition: &ToolDefinition) -> String {
    let namespace = identity.namespace.as_str();
    let name = match identity.kind {
        ProviderKind::Rest => definition.facts.host.as_deref().unwrap_or(namespace),
        ProviderKind::Mcp | ProviderKind::Builtin | ProviderKind::Agent | ProviderKind::Client => namespace,
    };
    source_key(identity.kind, name)
}

/// Returns true for tools whose definitions do not come from haft or the program that embeds it.
fn needs_lock(kind: ProviderKind) -> bool {
    match kind {
        ProviderKind::Mcp | ProviderKind::Rest => true,
        ProviderKind::Builtin | ProviderKind::Agent | ProviderKind::Client => false,
    }
}

/// Returns true for a tool whose definition comes from a server or an HTTP API, which can change it at any time.
pub fn is_watched(kind: ProviderKind, definition: &ToolDefinition) -> bool {
    match definition.facts.author {
        DefinitionAuthor::Source => needs_lock(kind),
        DefinitionAuthor::Haft | DefinitionAuthor::Protocol => false,
    }
}

impl ToolLock {
    /// Returns the status of one tool under this lock. `address` is the current address of the tool's MCP server, in the
    /// form of [`LockedSource::address`]; `None` for a tool of another source.
    pub fn standing(
        &self,
        identity: &ToolIdentity,
        definition: &ToolDefinition,
        address: Option<&str>,
    ) -> LockStanding {
        if !is_watched(identity.kind, definition) {
            return LockStanding::Exempt;
        }
        let Some(source) = self.sources.get(&source_key_of(identity, definition)) else {
            return LockStanding::NewSource;
        };
        let address = address.or(definition.facts.host.as_deref());
        if address.is_some_and(|address| address != source.address) {
            return LockStanding::Moved;
        }
        let found = CanonicalTool::of(definition);
        match source.tools.get(&own_name(&found, definition)) {
            None => LockStanding::NewTool,
            Some(locked) if locked.digest() == found.digest() => LockStanding::Agreed,
            Some(_) => LockStanding::Changed,
        }
    }

    /// Returns true if models may see these instructions from an MCP server.
    pub fn agrees_with_instructions(&self, kind: ProviderKind, namespace: &str, instructions: &str) -> bool {
        let source = self.sources.get(&source_key(kind, namespace));
        !needs_lock(kind) || source.is_some_and(|source| source.instructions.as_deref() == Some(instructions))
    }

    /// Returns this lock without the parts that contradict another lock. For a source that both locks contain, only the
    /// address, tools and instructions that are equal in both are kept. A source that only this lock contains is kept
    /// unchanged.
    #[must_use]
    pub fn limited_by(&self, other: &ToolLock) -> ToolLock {
        let mut limited = self.clone();
        if other.format == LockFormat::Former {
            limited.format = LockFormat::Former;
        }
        for (key, source) in &mut limited.sources {
            let Some(of_other) = other.sources.get(key) else { continue };
            let is_equal = |name: &String, tool: &mut CanonicalTool| {
                of_other.tools.get(name).is_some_and(|other| other.digest() == tool.digest())
            };
            source.tools.retain(is_equal);
            if source.address != of_other.address {
                source.address = String::new();
            }
            if source.instructions != of_other.instructions {
                source.instructions = None;
            }
        }
        limited
    }

    /// Returns the differences between this lock and another set of tools, sorted by source and tool.
    pub fn changes_to(&self, found: &ToolLock) -> Vec<LockChange> {
        changes::between(self, found)
    }
}

/// Returns the name that the source itself uses for the tool.
pub fn own_name(tool: &CanonicalTool, definition: &ToolDefinition) -> String {
    tool.members().get("name").and_then(Value::as_str).unwrap_or(definition.name.as_str()).to_owned()
}

#[cfg(test)]
mod tests;
