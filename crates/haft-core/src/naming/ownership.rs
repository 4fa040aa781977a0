//! Decides which provider owns a name that several providers could give to a tool.

use std::collections::HashMap;

use super::{NameForm, NameRequest, NamingScheme, ToolIdentity};
use crate::name::Namespace;
use crate::provider::ProviderKind;

/// A configured provider. It is included even before it has listed its tools, so that no name depends on which provider
/// listed its tools first.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamingSource {
    /// The kind of the tool provider.
    pub kind: ProviderKind,
    /// The namespace of the provider's tools.
    pub namespace: Namespace,
}

/// The naming scheme and all configured providers.
pub(super) struct NamingSources {
    scheme: NamingScheme,
    /// The kind of provider that owns the names in each namespace. Names of built-in tools have no namespace.
    owners: HashMap<String, ProviderKind>,
}

impl NamingSources {
    pub(super) fn new(scheme: NamingScheme, sources: impl IntoIterator<Item = NamingSource>) -> Self {
        let mut owners: HashMap<String, ProviderKind> = HashMap::new();
        for NamingSource { kind, namespace } in sources {
            if kind == ProviderKind::Builtin {
                continue;
            }
            let owner = owners.entry(namespace.to_string()).or_insert(kind);
            if rank(kind) < rank(*owner) {
                *owner = kind;
            }
        }
        Self { scheme, owners }
    }

    pub(super) fn scheme(&self) -> NamingScheme {
        self.scheme
    }

    /// Returns the name request for a tool. `times` is the number of tools with the same identity up to and including
    /// this one.
    pub(super) fn request(&self, identity: &ToolIdentity, times: usize) -> NameRequest {
        let ToolIdentity { kind, namespace, tool } = identity;
        let plain = match kind {
            ProviderKind::Builtin => tool.clone(),
            ProviderKind::Mcp | ProviderKind::Rest | ProviderKind::Agent | ProviderKind::Client => {
                self.scheme.expose(identity)
            }
        };
        let first = if times == 1 && self.is_owner(identity) { NameForm::Plain } else { NameForm::Suffixed };
        NameRequest { plain, key: format!("{}\n{namespace}\n{tool}\n{times}", kind.name()), first }
    }

    /// Returns true if the plain name belongs to the provider of this tool. `a_b_c` may be the tool `b_c` of `a` or the
    /// tool `c` of `a_b`: the longest configured namespace decides, even if its provider has no such tool now.
    fn is_owner(&self, identity: &ToolIdentity) -> bool {
        let separator = match (identity.kind, self.scheme) {
            // A built-in tool reaches this point only if its name is taken.
            (ProviderKind::Builtin, _) => return false,
            (_, NamingScheme::Bare) => return true,
            (_, NamingScheme::Single) => "_",
            (_, NamingScheme::Double | NamingScheme::Claude) => "__",
        };
        let ToolIdentity { kind, namespace, tool } = identity;
        let text = format!("{namespace}{separator}{tool}");
        let longest = (1..text.len() - separator.len())
            .rev()
            .filter(|&at| text[at..].starts_with(separator))
            .find_map(|at| self.owners.get_key_value(&text[..at]));
        longest.is_none_or(|(owner, of_kind)| owner == namespace.as_str() && of_kind == kind)
    }
}

/// Returns the rank of a kind of provider. If providers of several kinds share a namespace, the kind with the lowest
/// rank owns its names. Operators choose the names of MCP servers freely, so MCP comes last; the namespaces of the
/// other kinds are fixed.
fn rank(kind: ProviderKind) -> u8 {
    match kind {
        ProviderKind::Builtin => 0,
        ProviderKind::Rest => 1,
        ProviderKind::Agent => 2,
        ProviderKind::Client => 3,
        ProviderKind::Mcp => 4,
    }
}
