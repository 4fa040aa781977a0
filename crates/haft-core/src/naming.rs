//! The exposed tool names, and the lookup from a name that a model wrote to its tool.

mod distinct;
mod nearest;
mod ownership;

use std::cmp::Ordering;
use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use crate::name::{Namespace, ToolName};
use crate::provider::ProviderKind;

pub use distinct::{NameForm, NameRequest, distinct_names};
use nearest::{LetterCounts, WrittenName};
pub use ownership::NamingSource;
use ownership::NamingSources;

/// The scheme that builds a tool's exposed name from its namespace and its own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NamingScheme {
    /// Exposed names have the form `server__tool`.
    #[default]
    Double,
    /// Exposed names have the form `mcp__server__tool`.
    Claude,
    /// Exposed names have the form `server_tool`.
    Single,
    /// Exposed names have the form `tool`, without the server name.
    Bare,
}

crate::name_table!(NamingScheme { Double: "double", Claude: "claude", Single: "single", Bare: "bare" });

impl NamingScheme {
    fn expose(self, identity: &ToolIdentity) -> ToolName {
        let ToolIdentity { namespace, tool, .. } = identity;
        match self {
            NamingScheme::Double => ToolName::sanitize(&format!("{namespace}__{tool}")),
            NamingScheme::Claude => ToolName::sanitize(&format!("mcp__{namespace}__{tool}")),
            NamingScheme::Single => ToolName::sanitize(&format!("{namespace}_{tool}")),
            NamingScheme::Bare => tool.clone(),
        }
    }
}

/// The identity of a tool, independent of its exposed name: its source and its name in this source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ToolIdentity {
    /// The kind of provider. It is part of the keys of caches and grants.
    pub kind: ProviderKind,
    /// The namespace: the name of the server or the spec, or the namespace of built-in tools.
    pub namespace: Namespace,
    /// The provider's own name for the tool.
    pub tool: ToolName,
}

/// The prefix of an item in a list of tools. The rest of the item is a pattern for [`ToolIdentity::mcp_name`], not for
/// exposed names.
pub const MCP_ITEM_PREFIX: &str = "mcp:";

/// A prefix like [`MCP_ITEM_PREFIX`] that selects only tools that change nothing.
pub const MCP_READING_PREFIX: &str = "mcp:reading:";

/// A prefix like [`MCP_ITEM_PREFIX`] that selects only tools that may change something.
pub const MCP_WRITING_PREFIX: &str = "mcp:writing:";

impl ToolIdentity {
    /// Returns `SERVER__TOOL` for a tool of an MCP server, in every naming scheme; `None` for other tools.
    pub fn mcp_name(&self) -> Option<String> {
        match self.kind {
            ProviderKind::Mcp => Some(format!("{}__{}", self.namespace, self.tool)),
            ProviderKind::Builtin | ProviderKind::Rest | ProviderKind::Agent | ProviderKind::Client => None,
        }
    }
}

/// One row of the table of exposed tool names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTool {
    /// The index of the tool in the list from which the table was built.
    pub index: usize,
    /// The name that the model uses.
    pub exposed: ToolName,
    /// The tool's provider, and its name at this provider.
    pub identity: ToolIdentity,
}

/// The tool or tools to which a written name refers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameResolution<'a> {
    /// The name belongs to one tool.
    Known {
        /// The row of the tool in the name table.
        tool: &'a NamedTool,
        /// The rule by which the name matched.
        matched: NameMatch,
    },
    /// The name is a bare tool name, without a namespace. The caller must choose among the tools by the arguments.
    Bare {
        /// The tools with this name: at least one, never a built-in tool.
        tools: Vec<&'a NamedTool>,
    },
    /// No tool has this name.
    Unknown {
        /// The most similar exposed names, the most similar first; may be empty.
        nearest: Vec<ToolName>,
    },
}

/// The rule by which a written name matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameMatch {
    /// The written name is the exposed name, character by character.
    Exact,
    /// The written name equals the exposed name except for case.
    Case,
    /// The written name is the name that the tool would have under another naming scheme.
    Alias,
    /// The written name is the tool's own name without its namespace, and only this tool accepts the arguments.
    Bare,
}

/// All exposed names. The table looks up whole names and never splits them, because `_` and `__` may occur in any part.
#[derive(Debug, Clone)]
pub struct NameTable {
    scheme: NamingScheme,
    tools: Vec<NamedTool>,
    exact: HashMap<String, usize>,
    folded: NameIndex,
    aliases: NameIndex,
    /// Tools other than built-in ones, by their own name in lower case.
    bare: HashMap<String, Vec<usize>>,
    /// Removed tools, the latest first. The table keeps their names reserved for them.
    departed: Vec<AssignedName>,
    /// The names prepared for comparison. They are built for the first unknown name, because most tables never need
    /// them.
    comparable: OnceLock<Vec<ComparableName>>,
}

/// The names of a tool in the form in which they are compared with an unknown name.
#[derive(Debug, Clone)]
struct ComparableName {
    exposed: (String, LetterCounts),
    own: (String, LetterCounts),
}

/// A name and the tool that owns it.
type AssignedName = (ToolIdentity, ToolName);

/// The maximum number of removed tools that keep their names. It limits the memory for a tool list that keeps changing.
pub const DEPARTED_MAX: usize = 10_000;

/// The maximum number of tools to which a bare name may refer. The call goes to the only one of these tools that
/// accepts its arguments. If more tools have the bare name, the name is unknown.
const BARE_MAX: usize = 16;

/// The maximum number of suggestions for an unknown name.
const NEAREST_MAX: usize = 3;

/// The minimum similarity (0 to 1) of a suggestion.
const NEAREST_SIMILARITY_MIN: f64 = 0.6;

/// The maximum length of a written name, including special tokens around it, in bytes. Comparing a longer text with
/// every name would be slow.
const WRITTEN_BYTES_MAX: usize = 256;

impl NameTable {
    /// Assigns a name to every tool. The name depends on the tool, on the naming scheme and on `sources`: all
    /// configured providers, even those that have not listed their tools yet. Built-in tools keep their own names.
    /// Other tools whose names collide get a digest of their identity as a suffix; the order of the tools has no
    /// effect.
    pub fn build(
        scheme: NamingScheme,
        sources: impl IntoIterator<Item = NamingSource>,
        identities: impl IntoIterator<Item = ToolIdentity>,
    ) -> Self {
        let sources = NamingSources::new(scheme, sources);
        Self::build_after(&sources, identities.into_iter().collect(), Vec::new())
    }

    /// Assigns names to a changed list of tools. A tool that already had a name keeps it, even if it was removed and
    /// came back: a name that a model has seen must never refer to a different tool.
    pub fn rebuild(
        &self,
        sources: impl IntoIterator<Item = NamingSource>,
        identities: impl IntoIterator<Item = ToolIdentity>,
    ) -> Self {
        let present = self.tools.iter().map(|tool| (tool.identity.clone(), tool.exposed.clone()));
        let given = present.chain(self.departed.iter().cloned()).collect();
        let sources = NamingSources::new(self.scheme, sources);
        Self::build_after(&sources, identities.into_iter().collect(), given)
    }

    fn build_after(sources: &NamingSources, identities: Vec<ToolIdentity>, given: Vec<AssignedName>) -> Self {
        let (exposed, departed) = expose_all(sources, &identities, given);
        let tools: Vec<_> = identities
            .into_iter()
            .zip(exposed)
            .enumerate()
            .map(|(index, (identity, exposed))| NamedTool { index, exposed, identity })
            .collect();
        Self {
            scheme: sources.scheme(),
            exact: tools.iter().map(|tool| (tool.exposed.to_string(), tool.index)).collect(),
            folded: tools
                .iter()
                .map(|tool| (tool.exposed.as_str().to_ascii_lowercase(), tool.index))
                .collect(),
            aliases: tools.iter().flat_map(aliases).collect(),
            bare: bare(&tools),
            tools,
            departed,
            comparable: OnceLock::new(),
        }
    }

    /// Returns all tools, in the order of the list from which the table was built.
    pub fn tools(&self) -> &[NamedTool] {
        &self.tools
    }

    /// Finds the tool for a written name: by its exposed name, else by that name in another case, else by the name that
    /// another scheme would give. The last two are used only if a single tool matches. Otherwise returns the tools with
    /// this bare name.
    pub fn resolve(&self, written: &str) -> NameResolution<'_> {
        let name = unwrap_name(written);
        if name.len() > WRITTEN_BYTES_MAX {
            return NameResolution::Unknown { nearest: Vec::new() };
        }
        let folded = name.to_ascii_lowercase();
        let found = (self.exact.get(name).map(|&index| (index, NameMatch::Exact)))
            .or_else(|| self.folded.single(&folded).map(|index| (index, NameMatch::Case)))
            .or_else(|| self.aliases.single(name).map(|index| (index, NameMatch::Alias)));
        match found {
            Some((index, matched)) => NameResolution::Known { tool: &self.tools[index], matched },
            None => match self.bare.get(&folded) {
                Some(indices) if indices.len() <= BARE_MAX => {
                    NameResolution::Bare { tools: indices.iter().map(|&index| &self.tools[index]).collect() }
                }
                Some(_) | None => NameResolution::Unknown { nearest: self.nearest(name) },
            },
        }
    }

    /// Returns the exposed names that are most similar to a written name, the most similar first.
    pub fn nearest(&self, written: &str) -> Vec<ToolName> {
        let name = unwrap_name(written);
        if name.len() > WRITTEN_BYTES_MAX {
            return Vec::new();
        }
        let folded = name.to_ascii_lowercase();
        let written = WrittenName::new(&folded);
        let mut best: Vec<(f64, &ToolName)> = Vec::with_capacity(NEAREST_MAX + 1);
        for (tool, names) in self.tools.iter().zip(self.comparable()) {
            // A name that cannot be among the best three needs no exact distance.
            let least =
                if best.len() < NEAREST_MAX { NEAREST_SIMILARITY_MIN } else { best[NEAREST_MAX - 1].0 };
            if let Some(similarity) = names.similarity(&written, least) {
                best.push((similarity, &tool.exposed));
                best.sort_by(by_similarity);
                best.truncate(NEAREST_MAX);
            }
        }
        best.into_iter().map(|(_, name)| name.clone()).collect()
    }

    fn comparable(&self) -> &[ComparableName] {
        self.comparable.get_or_init(|| self.tools.iter().map(ComparableName::of).collect())
    }
}

/// Orders the most similar name first, and equally similar ones alphabetically.
fn by_similarity(left: &(f64, &ToolName), right: &(f64, &ToolName)) -> Ordering {
    right.0.total_cmp(&left.0).then_with(|| left.1.cmp(right.1))
}

impl ComparableName {
    fn of(tool: &NamedTool) -> Self {
        let comparable = |name: &ToolName| {
            let folded = name.as_str().to_ascii_lowercase();
            let letters = LetterCounts::of(folded.as_bytes());
            (folded, letters)
        };
        Self { exposed: comparable(&tool.exposed), own: comparable(&tool.identity.tool) }
    }

    /// Compares the written name with both the exposed name and the bare name: a model that omits the namespace should
    /// still get the tool as a suggestion.
    fn similarity(&self, written: &WrittenName<'_>, least: f64) -> Option<f64> {
        let to =
            |(name, letters): &(String, LetterCounts)| written.similarity(name.as_bytes(), letters, least);
        let (exposed, own) = (to(&self.exposed), to(&self.own));
        [exposed, own].into_iter().flatten().max_by(f64::total_cmp)
    }
}

/// An index from names to tools. A name that belongs to two tools maps to no tool.
#[derive(Debug, Clone, Default)]
struct NameIndex(HashMap<String, Option<usize>>);

impl NameIndex {
    fn single(&self, name: &str) -> Option<usize> {
        self.0.get(name).copied().flatten()
    }
}

impl FromIterator<(String, usize)> for NameIndex {
    fn from_iter<I: IntoIterator<Item = (String, usize)>>(pairs: I) -> Self {
        let mut index = Self::default();
        for (name, tool) in pairs {
            match index.0.entry(name) {
                Slot::Vacant(slot) => {
                    slot.insert(Some(tool));
                }
                // A second tool has this name, so the name identifies neither of them. The same tool may have the name
                // under several schemes, which is no conflict.
                Slot::Occupied(mut slot) if *slot.get() != Some(tool) => {
                    slot.insert(None);
                }
                Slot::Occupied(_) => {}
            }
        }
        index
    }
}

/// Returns the tool's names under the other schemes, except its bare name: see [`NameResolution::Bare`].
fn aliases(tool: &NamedTool) -> Vec<(String, usize)> {
    match tool.identity.kind {
        ProviderKind::Builtin => Vec::new(),
        ProviderKind::Mcp | ProviderKind::Rest | ProviderKind::Agent | ProviderKind::Client => {
            [NamingScheme::Double, NamingScheme::Claude, NamingScheme::Single]
                .iter()
                .map(|scheme| (scheme.expose(&tool.identity).to_string(), tool.index))
                .collect()
        }
    }
}

fn bare(tools: &[NamedTool]) -> HashMap<String, Vec<usize>> {
    let mut bare: HashMap<String, Vec<usize>> = HashMap::new();
    for tool in tools {
        match tool.identity.kind {
            ProviderKind::Builtin => {}
            ProviderKind::Mcp | ProviderKind::Rest | ProviderKind::Agent | ProviderKind::Client => {
                bare.entry(tool.identity.tool.as_str().to_ascii_lowercase()).or_default().push(tool.index);
            }
        }
    }
    bare
}

/// Returns the names of all tools, and the names that stay reserved for removed tools.
fn expose_all(
    sources: &NamingSources,
    identities: &[ToolIdentity],
    given: Vec<AssignedName>,
) -> (Vec<ToolName>, Vec<AssignedName>) {
    let mut reserved: HashSet<ToolName> = given.iter().map(|(_, name)| name.clone()).collect();
    let mut given = AssignedNames::new(given);
    let mut exposed: Vec<Option<ToolName>> = identities.iter().map(|identity| given.take(identity)).collect();
    for (identity, exposed) in identities.iter().zip(&mut exposed) {
        let is_free = identity.kind == ProviderKind::Builtin && exposed.is_none();
        if is_free && reserved.insert(identity.tool.clone()) {
            *exposed = Some(identity.tool.clone());
        }
    }
    let mut listed: HashMap<&ToolIdentity, usize> = HashMap::new();
    let mut requests = Vec::new();
    for (identity, exposed) in identities.iter().zip(&exposed) {
        let times = listed.entry(identity).or_default();
        *times += 1;
        if exposed.is_none() {
            requests.push(sources.request(identity, *times));
        }
    }
    let mut named = distinct_names(&reserved, &requests).into_iter();
    let exposed = exposed.into_iter().filter_map(|name| name.or_else(|| named.next())).collect();
    (exposed, given.left())
}

/// The names from the previous table. A tool that was listed twice has two names, in order.
#[derive(Default)]
struct AssignedNames {
    /// The names. An entry becomes `None` when its tool takes the name again.
    names: Vec<Option<AssignedName>>,
    /// For each tool, the indexes of its names in `names`. They are in reverse order, so that `pop` returns the first
    /// one.
    by_tool: HashMap<ToolIdentity, Vec<usize>>,
}

impl AssignedNames {
    fn new(given: Vec<AssignedName>) -> Self {
        let mut by_tool: HashMap<ToolIdentity, Vec<usize>> = HashMap::new();
        for (position, (identity, _)) in given.iter().enumerate().rev() {
            by_tool.entry(identity.clone()).or_default().push(position);
        }
        Self { names: given.into_iter().map(Some).collect(), by_tool }
    }

    fn take(&mut self, identity: &ToolIdentity) -> Option<ToolName> {
        let position = self.by_tool.get_mut(identity)?.pop()?;
        self.names[position].take().map(|(_, name)| name)
    }

    fn left(self) -> Vec<AssignedName> {
        self.names.into_iter().flatten().take(DEPARTED_MAX).collect()
    }
}

/// Removes the special tokens that some models write around names, as in `<|bash|>` or `bash<|channel|>commentary`.
fn unwrap_name(written: &str) -> &str {
    let name = written.trim();
    if let Some(inner) = name.strip_prefix("<|").and_then(|rest| rest.strip_suffix("|>"))
        && !inner.contains("|>")
    {
        return inner.trim();
    }
    let mut rest = name;
    while let Some((_, after)) = rest.strip_prefix("<|").and_then(|token| token.split_once("|>")) {
        rest = after.trim_start();
    }
    rest.split_once("<|").map_or(rest, |(before, _)| before).trim()
}

#[cfg(test)]
mod tests;
